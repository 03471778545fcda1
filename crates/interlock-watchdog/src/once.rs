//! One pass over everything: for a cron job, a function, and the question what would be found at an instant.
//!
//! It keeps nothing between calls but what the store keeps: the watchdog's own watermark says what was judged.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::id::PipelineId;
use interlock_store::{
    Change, Expect, Group, Lease, Record, Refusal, Role, Shard, Store, Term, Writer,
    record::WatermarkRecord,
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    check::{CHECKS, Check},
    coverage::deaf,
    durable::degraded,
    finding::{CheckName, Finding},
    gather::{Gatherer, Question, Reconciles, Surroundings},
    judging::{commit, judge_all, unapplied},
    load,
    owed::Owed,
    plan::{Planned, Planner},
    resident::WatchdogError,
    seam::{Telling, ZoneBook},
    sweep::ask_about_open,
    watched::{Watched, Watchlist},
};

/// How long a single pass may hold the lease.
const LEASE: SignedDuration = SignedDuration::from_mins(5);
/// Due entries that one pass looks at.
const DUE_MAX: usize = 100_000;
/// Pipelines that are judged before their findings are committed.
const CHUNK: usize = 500;
/// How often a pipeline with many owed slots is gone on with.
const ROUNDS_MAX: usize = 100;

/// What a pass needs.
#[derive(Clone)]
pub struct CheckOptions {
    /// The ledger.
    pub store: Arc<dyn Store>,
    /// Zones by name.
    pub zones: ZoneBook,
    /// The one time of the pass.
    pub now: Timestamp,
    /// Which checks; [`CHECKS`] by default.
    pub checks: Vec<(CheckName, Check)>,
    /// What is found later than this is found late.
    pub late_after: SignedDuration,
    /// What follows from findings for people; without it nothing is written.
    pub telling: Option<Arc<dyn Telling>>,
    /// Who this is, for the lease.
    pub holder: String,
}

impl CheckOptions {
    /// All checks at an instant, writing nothing.
    pub fn new(store: Arc<dyn Store>, zones: ZoneBook, now: Timestamp) -> Self {
        Self {
            store,
            zones,
            now,
            checks: CHECKS.to_vec(),
            // The longest that the Go watchdog looked back.
            late_after: SignedDuration::from_mins(15),
            telling: None,
            holder: "once".to_owned(),
        }
    }

    /// Only one check.
    #[must_use]
    pub fn only(mut self, name: CheckName) -> Self {
        self.checks.retain(|(check, _)| *check == name);
        self
    }

    /// The same, and what it finds is recorded and told.
    #[must_use]
    pub fn telling(mut self, telling: Arc<dyn Telling>) -> Self {
        self.telling = Some(telling);
        self
    }
}

impl std::fmt::Debug for CheckOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckOptions").field("now", &self.now).finish_non_exhaustive()
    }
}

/// What a pass found.
#[derive(Debug, Default)]
pub struct Report {
    /// What people should know, as it was recorded.
    pub findings: Vec<Finding>,
    /// The checks that could not be done, and why.
    pub failed: BTreeMap<CheckName, String>,
}

/// Judges everything once. `None` while another watchdog is at work and this one was to write.
pub async fn once(options: &CheckOptions, shard: Shard) -> Result<Option<Report>, WatchdogError> {
    let store = options.store.as_ref();
    if options.telling.is_none() {
        return Pass { options, shard, writer: None }.run().await.map(Some);
    }
    let lease = store.acquire(Role::Watchdog, shard, &options.holder, LEASE).await?;
    let Some(Lease { writer, .. }) = lease else { return Ok(None) };
    let report = Pass { options, shard, writer: Some(writer) }.run().await;
    store.release(writer).await?;
    report.map(Some)
}

struct Pass<'a> {
    options: &'a CheckOptions,
    shard: Shard,
    writer: Option<Writer>,
}

impl Pass<'_> {
    async fn run(&self) -> Result<Report, WatchdogError> {
        let CheckOptions { store, zones, now, late_after, .. } = self.options;
        let (store, now) = (store.as_ref(), *now);
        let own = load::own(store).await?;
        let mut list = Watchlist::new(Arc::clone(zones));
        let judged = own.judged.unwrap_or(Timestamp::MIN);
        let mut report = Report::default();
        for (pipeline, reason) in load::agenda(store, self.shard, &mut list, judged).await? {
            for (name, _) in &self.options.checks {
                report.failed.entry(*name).or_insert_with(|| format!("{pipeline}: {reason}"));
            }
        }
        let around = Surroundings {
            unapplied: unapplied(store, self.shard).await?,
            blind: deaf(store, self.shard, &own.blind, now).await?,
            late_after: *late_after,
            now,
        };
        let mut asked = self.questions(&list).await?;
        for _ in 0..ROUNDS_MAX {
            for (pipeline, question) in due_by_the_clock(&mut list, now) {
                asked.entry(pipeline).or_default().owed = question;
            }
            if asked.is_empty() {
                break;
            }
            let round = std::mem::take(&mut asked).into_iter().collect::<Vec<_>>();
            let mut round = round.into_iter();
            loop {
                let chunk: Vec<_> = round.by_ref().take(CHUNK).collect();
                if chunk.is_empty() {
                    break;
                }
                self.judge_chunk(chunk, &around, (&mut list, &mut report)).await?;
            }
        }
        self.finish(&own, &report).await?;
        Ok(report)
    }

    /// What is due by the due index, and what a look at every open slot and every sensor asks.
    async fn questions(
        &self,
        list: &Watchlist,
    ) -> Result<BTreeMap<PipelineId, Question>, WatchdogError> {
        let (store, now) = (self.options.store.as_ref(), self.options.now);
        let mut asked: BTreeMap<_, Question> = BTreeMap::new();
        for row in store.due(self.shard, now, DUE_MAX).await?.items {
            if let Some(due) = row.obligation() {
                asked.entry(row.pipeline).or_default().due.push(due);
            }
        }
        let mut after = None;
        loop {
            let (rows, next) =
                load::open_slots(store, self.shard, (after.as_ref(), load::PAGE)).await?;
            for row in &rows {
                ask_about_open(row, now, &mut asked);
            }
            after = next;
            if after.is_none() {
                break;
            }
        }
        for name in list.names() {
            if list.get(name).is_some_and(Watched::has_sensors) {
                asked.entry(name.clone()).or_default().reconciles = Reconciles::Yes;
            }
        }
        Ok(asked)
    }

    async fn judge_chunk(
        &self,
        chunk: Vec<(PipelineId, Question)>,
        around: &Surroundings,
        (list, report): (&mut Watchlist, &mut Report),
    ) -> Result<(), WatchdogError> {
        let store = self.options.store.as_ref();
        let gatherer = Gatherer { store, around };
        let outcome = judge_all(&gatherer, list, &self.options.checks, chunk).await?;
        report.failed.extend(outcome.failed);
        let writer = self.writer.unwrap_or(Writer {
            role: Role::Watchdog,
            shard: self.shard,
            term: Term(0),
        });
        let planner = Planner { writer, now: around.now, late_after: around.late_after };
        let mut planned = Vec::new();
        for judged in outcome.judged {
            list.judged(&judged.pipeline, &judged.owed);
            planned.extend(planner.plan(judged.findings));
        }
        if let (Some(telling), Some(_)) = (&self.options.telling, self.writer) {
            let results = commit(store, telling.as_ref(), &mut planned).await?;
            if results.iter().any(|it| matches!(it, Err(Refusal::Term { .. }))) {
                return Err(WatchdogError::Deposed);
            }
            let mut accepted = results.iter().map(Result::is_ok);
            planned.retain(|_| accepted.next() == Some(true));
        }
        report.findings.extend(planned.into_iter().filter_map(|plan| plan.said).map(|it| *it));
        Ok(())
    }

    /// Says how far everything was judged, and what could not be.
    async fn finish(&self, own: &load::Own, report: &Report) -> Result<(), WatchdogError> {
        let (Some(telling), Some(writer)) = (&self.options.telling, self.writer) else {
            return Ok(());
        };
        let store = self.options.store.as_ref();
        let (pipeline, now) = (PipelineId::system(), self.options.now);
        // Part of the checks is not all of them: what they left is judged by the next whole pass.
        let is_whole = self.options.checks.len() == CHECKS.len() && report.failed.is_empty();
        let mut changes = Vec::new();
        if is_whole && own.judged.is_none_or(|judged| judged < now) {
            let expect =
                if own.revision == 0 { Expect::Absent } else { Expect::Revision(own.revision) };
            let record = Record::Watermark(WatermarkRecord { at: now });
            changes.push(Change::Put(load::own_watermark(), expect, record));
        }
        if !report.failed.is_empty() {
            changes.push(Change::Append(degraded(&report.failed, now)));
        }
        if changes.is_empty() {
            return Ok(());
        }
        let group = Group { pipeline, writer, changes };
        let mut planned = [Planned { group, asks: vec![], said: None }];
        let results = commit(store, telling.as_ref(), &mut planned).await?;
        match results.into_iter().next() {
            Some(Ok(_)) => Ok(()),
            Some(Err(_)) | None => Err(WatchdogError::Deposed),
        }
    }
}

/// The slots that are to be judged by the clock.
fn due_by_the_clock(list: &mut Watchlist, now: Timestamp) -> Vec<(PipelineId, Vec<Owed>)> {
    let mut due = Vec::new();
    while let Some(pipeline) = list.pop(now) {
        let owed = list.owed(&pipeline, now);
        due.push((pipeline, owed));
    }
    due
}
