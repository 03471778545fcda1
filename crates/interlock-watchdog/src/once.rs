//! One pass over everything: for a cron job, a function, and the question what would be found at an instant.
//!
//! It keeps nothing between calls but what the store keeps: the watchdog's own watermark says what was judged.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use interlock_core::id::PipelineId;
use interlock_store::{
    Change, Expect, Group, Lease, Record, Refusal, Role, Shard, Store, Term, Writer,
    coverage::deaf,
    record::{Shared, WatermarkRecord},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    check::{CHECKS, Check},
    durable::{Left, degraded},
    finding::{CheckName, Finding},
    gather::{Gatherer, Question, Reconciles, Surroundings},
    judging::{NotDone, commit, judge_all, none_can_be_done, unapplied},
    load,
    plan::{Planned, Planner},
    resident::WatchdogError,
    seam::{Telling, ZoneBook},
    sweep::ask_about_open,
    watched::Watchlist,
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
        return Pass::new(options, shard, None).await?.run().await.map(Some);
    }
    let lease = store.acquire(Role::Watchdog, shard, &options.holder, LEASE).await?;
    let Some(Lease { writer, .. }) = lease else { return Ok(None) };
    let report = match Pass::new(options, shard, Some(writer)).await {
        Ok(pass) => pass.run().await,
        Err(error) => Err(error),
    };
    store.release(writer).await?;
    report.map(Some)
}

struct Pass<'a> {
    options: &'a CheckOptions,
    shard: Shard,
    writer: Option<Writer>,
    own: load::Own,
    /// Everything up to this was judged before.
    judged: Timestamp,
}

impl<'a> Pass<'a> {
    async fn new(
        options: &'a CheckOptions,
        shard: Shard,
        writer: Option<Writer>,
    ) -> Result<Self, WatchdogError> {
        let own = load::own(options.store.as_ref(), shard).await?;
        let judged = own.judged.unwrap_or(Timestamp::MIN);
        Ok(Self { options, shard, writer, own, judged })
    }

    async fn run(&self) -> Result<Report, WatchdogError> {
        let CheckOptions { store, zones, checks, now, late_after, .. } = self.options;
        let (store, now) = (store.as_ref(), *now);
        let mut list = Watchlist::new(Arc::clone(zones));
        let mut report = Report::default();
        for (pipeline, reason) in load::agenda(store, self.shard, &mut list, self.judged).await? {
            none_can_be_done(checks, (&pipeline, &reason), &mut report.failed);
        }
        let around = Surroundings {
            unapplied: unapplied(store, self.shard).await?,
            blind: deaf(store, &self.own.blind, now).await?,
            late_after: *late_after,
            now,
        };
        let mut asked = self.questions(&list).await?;
        for _ in 0..ROUNDS_MAX {
            while let Some((pipeline, from)) = list.pop(now) {
                asked.entry(pipeline).or_default().from = Some(from);
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
        self.finish(list.judged_by(now), &report).await?;
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
        for name in list.with_sensors(0..list.len()) {
            asked.entry(name.clone()).or_default().reconciles = Reconciles::Yes;
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
        let zones = &self.options.zones;
        let agendas = Mutex::default();
        let gatherer = Gatherer { store, around, zones, agendas: &agendas };
        let outcome = judge_all(&gatherer, list, &self.options.checks, chunk).await?;
        report.failed.extend(outcome.failed);
        for (pipeline, record, revision) in outcome.changed {
            // It is judged in the next round, as it is now.
            let (row, shared) = ((&record, revision), &mut Shared::default());
            if let Err(reason) = list.take(&pipeline, row, self.judged, shared) {
                let checks = &self.options.checks;
                none_can_be_done(checks, (&pipeline, &reason.to_string()), &mut report.failed);
            }
        }
        let writer = self.writer.unwrap_or(Writer {
            role: Role::Watchdog,
            shard: self.shard,
            term: Term(0),
        });
        let planner = Planner { writer, now: around.now, late_after: around.late_after };
        let mut planned = Vec::new();
        let mut judged_until = Vec::new();
        for judged in outcome.judged {
            planned.extend(planner.plan(judged.findings));
            judged_until.extend(judged.next.map(|next| (judged.pipeline, next)));
        }
        let left = self.make_durable(&mut planned).await?;
        for (pipeline, reason) in &left.impossible {
            none_can_be_done(&self.options.checks, (pipeline, reason), &mut report.failed);
        }
        for (pipeline, next) in judged_until {
            if left.again.contains(&pipeline) {
                // Somebody was faster: it is read and judged again in the next round.
                list.arm(&pipeline, Timestamp::MIN);
            } else {
                list.judged(&pipeline, next);
            }
        }
        report.findings.extend(planned.into_iter().filter_map(|plan| plan.said).map(|it| *it));
        Ok(())
    }

    /// Writes what was found, if this pass may; what was not taken is left out, and whose it was is answered. A pass
    /// that writes nothing says what the store would not take.
    async fn make_durable(&self, planned: &mut Vec<Planned>) -> Result<Left, WatchdogError> {
        let store = self.options.store.as_ref();
        let results: Vec<Option<NotDone>> =
            if let (Some(telling), Some(_)) = (&self.options.telling, self.writer) {
                let results = commit(store, telling.as_ref(), planned).await?;
                results.into_iter().map(Result::err).collect()
            } else {
                let check = |plan: &Planned| plan.group.check(store.shard_count()).err();
                planned.iter().map(|plan| check(plan).map(NotDone::Impossible)).collect()
            };
        if results.iter().any(|it| matches!(it, Some(NotDone::Refused(Refusal::Term { .. })))) {
            return Err(WatchdogError::Deposed);
        }
        let mut left = Left::default();
        let mut results = results.into_iter();
        planned.retain(|plan| {
            let pipeline = plan.group.pipeline.clone();
            match results.next().flatten() {
                None => return true,
                Some(NotDone::Refused(_)) => {
                    left.again.insert(pipeline);
                }
                Some(NotDone::Impossible(error)) => {
                    left.impossible.insert(pipeline, error.to_string());
                }
            }
            false
        });
        Ok(left)
    }

    /// Says how far everything was judged, and what could not be.
    async fn finish(&self, judged: Timestamp, report: &Report) -> Result<(), WatchdogError> {
        let (Some(telling), Some(writer)) = (&self.options.telling, self.writer) else {
            return Ok(());
        };
        let store = self.options.store.as_ref();
        let (pipeline, now) = (PipelineId::system(), self.options.now);
        // Part of the checks is not all of them: what they left is judged by the next whole pass.
        let is_whole = self.options.checks.len() == CHECKS.len() && report.failed.is_empty();
        let mut changes = Vec::new();
        if is_whole && self.judged < judged {
            let revision = self.own.revision;
            let expect = if revision == 0 { Expect::Absent } else { Expect::Revision(revision) };
            let record = Record::Watermark(WatermarkRecord { at: judged });
            changes.push(Change::Put(load::own_watermark(self.shard), expect, record));
        }
        if !report.failed.is_empty() {
            changes.push(Change::Append(degraded(&report.failed, now).into()));
        }
        if changes.is_empty() {
            return Ok(());
        }
        let group = Group { pipeline, writer, changes };
        let mut planned = [Planned { group, asks: vec![], said: None }];
        let results = commit(store, telling.as_ref(), &mut planned).await?;
        match results.into_iter().next() {
            Some(Ok(_)) => Ok(()),
            Some(Err(NotDone::Impossible(error))) => Err(error.into()),
            Some(Err(NotDone::Refused(_))) | None => Err(WatchdogError::Deposed),
        }
    }
}
