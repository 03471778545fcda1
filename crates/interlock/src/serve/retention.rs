//! Keeping what `retention` says, and no longer: the output of jobs, what the ledger says of them, and what it answered.

use std::{collections::BTreeSet, io, path::PathBuf, sync::Arc, time::Duration};

use interlock_config::server::{ServerConfig, StoreConfig};
use interlock_core::id::PipelineId;
use interlock_store::{
    LedgerQuery, Role, Shard, Store, StoreError,
    retention::{self, ANSWERS_KEPT, AnswerSweep, IncidentSweep, KEPT_MIN, Sweep},
};
use interlock_trigger::runner::{LogSweep, Step, Swept};
use jiff::{SignedDuration, Timestamp};

use crate::{clock, exec::spool};

/// Between two sweeps. Retention is counted in days.
const PAUSE: Duration = Duration::from_hours(1);

/// Between two sweeps of the ledger, which ask about each pipeline.
const LEDGER_PAUSE: Duration = Duration::from_hours(6);

/// How soon a sweep that broke off, or that an archive is in the way of, is tried again.
const AGAIN: Duration = Duration::from_mins(5);

/// Between two steps of one sweep, so that the disk belongs to the jobs.
const BREATH: Duration = Duration::from_millis(100);

/// Files looked at in one step.
const LOOKS_MAX: usize = 1_000;

/// Deletes the logs of settled runs that nothing was written to for this long, now and then, for ever.
pub(crate) async fn keep_logs(runner: PathBuf, retention: SignedDuration) {
    loop {
        match sweep(runner.clone(), retention).await {
            Ok(swept) if swept == Swept::default() => {}
            Ok(Swept { deleted, bytes, unsettled, failed, failure }) => {
                tracing::info!(
                    deleted,
                    bytes,
                    unsettled,
                    failed,
                    failure,
                    "old job logs were deleted"
                );
            }
            Err(error) => {
                tracing::warn!(%error, "cannot delete old job logs; trying again in 1 h");
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn sweep(runner: PathBuf, retention: SignedDuration) -> io::Result<Swept> {
    let now = clock::now();
    let before = now.checked_sub(retention).map_err(io::Error::other)?;
    // The journal names its logs by the real path.
    let open = move || LogSweep::new(&runner.canonicalize()?, before);
    let mut sweep = tokio::task::spawn_blocking(open).await.map_err(io::Error::other)??;
    loop {
        let stepped = tokio::task::spawn_blocking(move || {
            let step = sweep.step(LOOKS_MAX);
            (sweep, step)
        });
        let (unfinished, step) = stepped.await.map_err(io::Error::other)?;
        match step? {
            Step::Done(swept) => return Ok(swept),
            Step::More => sweep = unfinished,
        }
        tokio::time::sleep(BREATH).await;
    }
}

/// For how long what is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    slots: SignedDuration,
    events: SignedDuration,
}

impl Kept {
    /// As the files say. What is said of the events of one kind of store counts if it is less.
    pub(crate) fn of(config: &ServerConfig) -> Self {
        let slots = config.retention.slots;
        if slots < KEPT_MIN {
            let days = KEPT_MIN.as_hours() / 24;
            tracing::warn!("`retention.slots` is less than {days}d: slots are kept for {days}d");
        }
        let own = match &config.store {
            StoreConfig::Postgres(postgres) => postgres.retention_ttl,
            StoreConfig::Embedded { .. } | StoreConfig::Redis(_) => None,
        };
        let events = config.retention.events;
        Self { slots: slots.max(KEPT_MIN), events: own.map_or(events, |own| own.min(events)) }
    }
}

/// How a sweep of the ledger ended.
#[derive(Debug, Default, PartialEq, Eq)]
struct Gone {
    slots: usize,
    events: usize,
    /// And notifications that could not be delivered.
    incidents: usize,
    answers: usize,
    /// Something waits until an archive has it.
    waits: bool,
}

/// Takes old slots, runs, incidents and events out of the shards that this instance owns, now and then, for ever.
pub(crate) async fn keep_ledger(store: Arc<dyn Store>, holder: String, kept: Kept) {
    loop {
        let pause = match sweep_ledger(store.as_ref(), &holder, kept).await {
            Ok(Gone { slots, events, incidents, waits, .. }) => {
                if slots + events + incidents > 0 {
                    tracing::info!(
                        slots,
                        events,
                        incidents,
                        "old history was removed from the ledger"
                    );
                }
                if waits {
                    tracing::info!("old history stays in the ledger until it is archived");
                }
                if waits { AGAIN } else { LEDGER_PAUSE }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot remove old history; trying again in 5 m");
                AGAIN
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn sweep_ledger(store: &dyn Store, holder: &str, kept: Kept) -> Result<Gone, StoreError> {
    let now = store.now().await?;
    let (slots, events) = (before(now, kept.slots)?, before(now, kept.events)?);
    let mut gone = Gone::default();
    let shards = owned(store, holder).await?;
    let oldest = LedgerQuery { until: slots, ..LedgerQuery::everything(1) };
    if !store.ledger(&oldest).await?.items.is_empty() {
        for shard in &shards {
            let mut sweep = Sweep::begin(store, *shard, slots).await?;
            let mut more = true;
            while more {
                let step = sweep.step(store).await?;
                more = gone.count(&step, |gone| &mut gone.slots);
                tokio::time::sleep(BREATH).await;
            }
        }
    }
    if !are_for_all(store, &shards) {
        return Ok(gone);
    }
    let mut sweep = IncidentSweep::begin(store, slots).await?;
    while gone.count(&sweep.step(store).await?, |gone| &mut gone.incidents) {
        tokio::time::sleep(BREATH).await;
    }
    while gone.count(&retention::forget_events(store, events).await?, |gone| &mut gone.events) {
        tokio::time::sleep(BREATH).await;
    }
    Ok(gone)
}

/// Takes old answers to reports and requests out of the ledger, now and then, for ever. By itself: no archive is waited for.
pub(crate) async fn keep_answers(store: Arc<dyn Store>, holder: String) {
    loop {
        // What still lies in this user's spool is posted again by the next process, if only because nobody may remove it.
        let spared = tokio::task::spawn_blocking(|| spool::keys(&spool::folder()));
        let spared = spared.await.unwrap_or_default();
        let pause = match sweep_answers(store.as_ref(), &holder, spared).await {
            Ok(answers) => {
                if answers > 0 {
                    tracing::info!(answers, "old answers were removed from the ledger");
                }
                LEDGER_PAUSE
            }
            Err(error) => {
                tracing::warn!(%error, "cannot remove old answers; trying again in 5 m");
                AGAIN
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn sweep_answers(
    store: &dyn Store,
    holder: &str,
    spared: BTreeSet<String>,
) -> Result<usize, StoreError> {
    if !are_for_all(store, &owned(store, holder).await?) {
        return Ok(0);
    }
    let before = before(store.now().await?, ANSWERS_KEPT)?;
    let (mut sweep, mut gone) = (AnswerSweep::new(before, spared), Gone::default());
    while gone.count(&sweep.step(store).await?, |gone| &mut gone.answers) {
        tokio::time::sleep(BREATH).await;
    }
    Ok(gone.answers)
}

impl Gone {
    /// Adds what a step did; says whether there is more to do.
    fn count(&mut self, step: &retention::Step, of: impl Fn(&mut Self) -> &mut usize) -> bool {
        match step {
            retention::Step::More { gone } => {
                *of(self) += gone;
                true
            }
            retention::Step::Done { gone } => {
                *of(self) += gone;
                false
            }
            retention::Step::Archive => {
                self.waits = true;
                false
            }
        }
    }
}

fn before(now: Timestamp, kept: SignedDuration) -> Result<Timestamp, StoreError> {
    now.checked_sub(kept).map_err(|error| StoreError::permanent(error.to_string()))
}

/// Whether the owner of these shards sees to what is the whole store's: one of a fleet does.
fn are_for_all(store: &dyn Store, shards: &[Shard]) -> bool {
    shards.contains(&Shard::of(&PipelineId::system(), store.shard_count()))
}

/// The shards whose engine is here; all of them where nobody else can be.
async fn owned(store: &dyn Store, holder: &str) -> Result<Vec<Shard>, StoreError> {
    let all = (0..store.shard_count()).map(Shard);
    let Some(roll) = store.roll().await? else { return Ok(all.collect()) };
    let is_ours = |shard: &Shard| {
        roll.held.get(&(Role::Engine, *shard)).is_some_and(|(name, _)| name == holder)
    };
    Ok(all.filter(is_ours).collect())
}

#[cfg(test)]
mod tests {
    use interlock_store::{
        Freight, Key, Record, Row, Rows, StoredRow, memory::MemoryStore, record::AppliedRecord,
    };

    use super::*;

    const SHARDS: u16 = 4;

    /// An answer of so many hours ago, under a name.
    fn answer(pipeline: &PipelineId, key: &str, hours: i64) -> StoredRow {
        let at = clock::now() - SignedDuration::from_hours(hours);
        let record =
            AppliedRecord { at, accepted: true, result: [0].as_slice().into(), request: None };
        let row = Row { record: Record::Applied(record.into()), revision: 1 };
        StoredRow { pipeline: pipeline.clone(), key: Key::Applied(key.to_owned()), row }
    }

    async fn keys(store: &dyn Store) -> Vec<String> {
        let portion = store.rows(Rows::Answers, "", 100).await.unwrap();
        portion.items.into_iter().map(|row| row.key.name().unwrap().to_owned()).collect()
    }

    #[tokio::test]
    async fn answers_go_after_eight_days_by_the_one_that_sees_to_the_whole_store() {
        let store = MemoryStore::new(SHARDS, Arc::new(clock::now));
        let unknown = PipelineId::parse("nobody-declares-it").unwrap();
        let rows = vec![
            answer(&PipelineId::system(), "old", 8 * 24 + 1),
            answer(&unknown, "of old", 8 * 24 + 1),
            answer(&unknown, "spooled", 8 * 24 + 1),
            answer(&unknown, "young", 8 * 24 - 1),
        ];
        store.import(Freight { rows, ..Freight::default() }).await.unwrap();
        let system = Shard::of(&PipelineId::system(), SHARDS);
        for shard in (0..SHARDS).map(Shard) {
            let holder = if shard == system { "one" } else { "another" };
            let lease = store.acquire(Role::Engine, shard, holder, SignedDuration::from_hours(1));
            assert!(lease.await.unwrap().is_some());
        }
        let sweep = async |holder| {
            sweep_answers(&store, holder, ["spooled".to_owned()].into()).await.unwrap()
        };
        assert_eq!(sweep("another").await, 0);
        assert_eq!(keys(&store).await.len(), 4);
        assert_eq!(sweep("one").await, 2);
        assert_eq!(keys(&store).await, ["spooled", "young"]);
    }
}
