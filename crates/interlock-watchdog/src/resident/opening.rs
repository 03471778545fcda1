//! How a watchdog begins: what it is made of, its lease, and what it loads before the first pass.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use interlock_core::{clock::ClockWatch, id::PipelineId};
use interlock_store::{Change, Expect, Group, Lease, Role, Shard, Store, StoreError};
use jiff::{SignedDuration, Timestamp};

use super::{BLIND_AFTER, Watchdog, WatchdogError};
use crate::{
    check::{CHECKS, Check},
    durable::system_event,
    finding::CheckName,
    load,
    owed::plus,
    scanning::Scanning,
    seam::{Telling, World, ZoneBook},
    sweep::Sweep,
    vitals::WatchdogVitals,
    watched::Watchlist,
};

/// How often.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How long a lease is asked for; renewed at a third of it.
    pub lease: SignedDuration,
    /// How often something is looked for that no timer announces.
    pub look: SignedDuration,
    /// How often it is written down how far everything was judged.
    pub heartbeat: SignedDuration,
    /// How long one rotation of the sweep takes.
    pub interval: SignedDuration,
    /// How long the scheduler is given after a start to record what passed meanwhile.
    pub settle: SignedDuration,
    /// What is found later than this is found late.
    pub late_after: SignedDuration,
    /// When the ledger is first looked through for broken promises: what was missed in a downtime is being
    /// recorded for a while after a start.
    pub scan_after: SignedDuration,
    /// A look through all of it takes at least so long.
    pub rotation: SignedDuration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            lease: SignedDuration::from_secs(15),
            look: SignedDuration::from_millis(500),
            heartbeat: SignedDuration::from_secs(10),
            interval: SignedDuration::from_mins(5),
            settle: SignedDuration::from_secs(10),
            late_after: SignedDuration::from_mins(1),
            scan_after: SignedDuration::from_mins(5),
            rotation: SignedDuration::from_mins(1),
        }
    }
}

/// What a watchdog is made of.
pub struct Parts {
    /// Time.
    pub world: Arc<dyn World>,
    /// The ledger.
    pub store: Arc<dyn Store>,
    /// What follows from events for people.
    pub telling: Arc<dyn Telling>,
    /// Zones by name.
    pub zones: ZoneBook,
    /// Who this is, for the lease.
    pub holder: String,
    /// How often.
    pub pace: Pace,
    /// What is judged; [`CHECKS`] unless a test has its own.
    pub checks: Vec<(CheckName, Check)>,
    /// What it counts.
    pub vitals: Arc<WatchdogVitals>,
    /// Called each time that the loop has come round.
    pub came_round: Arc<dyn Fn() + Send + Sync>,
    /// Called each time that it could not, because the store failed; it is tried again.
    pub failed: Arc<dyn Fn(&StoreError) + Send + Sync>,
    /// Called each time that there is something new for people in the outbox.
    pub notified: Arc<dyn Fn() + Send + Sync>,
    /// The channels that a miss of nobody's pipeline goes to: those must hear a bark.
    pub hears: Hearers,
}

/// The names of channels, as they are now.
pub type Hearers = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("holder", &self.holder).finish_non_exhaustive()
    }
}

impl Parts {
    /// All checks, at the usual pace.
    pub fn new(
        world: Arc<dyn World>,
        store: Arc<dyn Store>,
        telling: Arc<dyn Telling>,
        zones: ZoneBook,
    ) -> Self {
        Self {
            world,
            store,
            telling,
            zones,
            holder: "watchdog".to_owned(),
            pace: Pace::default(),
            checks: CHECKS.to_vec(),
            vitals: Arc::default(),
            came_round: Arc::new(|| {}),
            failed: Arc::new(|_| {}),
            notified: Arc::new(|| {}),
            hears: Arc::new(Vec::new),
        }
    }
}

impl Watchdog {
    /// Takes a shard's lease and loads what the store knows; `None` while another watchdog holds it.
    pub async fn open(parts: Parts, shard: Shard) -> Result<Option<Self>, WatchdogError> {
        let Parts { world, store, telling, zones, holder, pace, checks, vitals, .. } = parts;
        let (came_round, failed, hears) = (parts.came_round, parts.failed, parts.hears);
        let notified = parts.notified;
        let lease = store.acquire(Role::Watchdog, shard, &holder, pace.lease).await?;
        let Some(Lease { writer, .. }) = lease else { return Ok(None) };
        let now = world.now();
        let own = load::own(store.as_ref(), shard).await?;
        let mut watchdog = Self {
            world,
            store,
            telling,
            checks,
            vitals,
            came_round,
            failed,
            notified,
            pace,
            writer,
            hears,
            bark_at: now,
            scanning: Scanning::new(Arc::clone(&zones), plus(now, pace.scan_after)),
            agendas: Arc::default(),
            list: Watchlist::new(zones),
            judged: own.judged.unwrap_or(Timestamp::MIN),
            judged_revision: own.revision,
            blind: own.blind,
            followed: 0,
            seen: None,
            due_at: now,
            aside: BTreeMap::new(),
            unwatched: BTreeMap::new(),
            told_failed: BTreeSet::new(),
            unreadable: BTreeMap::new(),
            told_unwatched: false,
            sweep: Sweep::default(),
            renew_at: plus(now, pace.lease / 3),
            beat_at: now,
            clock: ClockWatch::default(),
            rested_at: now,
        };
        watchdog.begin(own.judged, now).await?;
        watchdog.standing(now).await?;
        Ok(Some(watchdog))
    }

    /// Says that it watches, and since when nobody did; then loads the agendas. The event's number is where it
    /// begins to follow, so that nothing that changes meanwhile is passed over.
    async fn begin(
        &mut self,
        judged: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), WatchdogError> {
        let mut changes = Vec::new();
        let gap = judged.filter(|judged| now.duration_since(*judged) > BLIND_AFTER);
        let message = match (gap, judged) {
            (Some(since), _) => {
                self.blind.push((since, now));
                let record = load::coverage_record(&self.blind, now);
                changes.push(Change::Put(
                    load::coverage_key(self.writer.shard),
                    Expect::Any,
                    record,
                ));
                format!("no watchdog was running since {since}")
            }
            (None, Some(since)) => format!("goes on from {since}"),
            (None, None) => "watches for the first time".to_owned(),
        };
        changes.push(Change::Append(system_event("WATCHDOG_STARTED", message, now).into()));
        let (pipeline, writer) = (PipelineId::system(), self.writer);
        let results = self.store.commit(vec![Group { pipeline, writer, changes }]).await?;
        match results.into_iter().next() {
            Some(Ok(accepted)) => self.followed = accepted.last_event,
            Some(Err(_)) | None => return Err(WatchdogError::Deposed),
        }
        let unreadable =
            load::agenda(self.store.as_ref(), self.writer.shard, &mut self.list, self.judged);
        self.unwatched = unreadable.await?.into_iter().collect();
        for (pipeline, reason) in &self.unwatched {
            tracing::error!(%pipeline, reason, "cannot read its schedule: the watchdog does not watch it");
        }
        self.list.settle(now, plus(now, self.pace.settle));
        Ok(())
    }
}
