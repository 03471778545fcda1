//! A pass over one shard: gather, judge, make durable, and say how far everything was judged.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use interlock_core::id::PipelineId;
use interlock_store::{
    Change, Expect, Group, Record, Refusal, Role, Shard, Term, Writer,
    coverage::deaf_beside,
    pass_coverage::PassCoverage,
    record::{Shared, WatermarkRecord},
};
use jiff::Timestamp;

use super::{CheckOptions, LEASE, Report};
use crate::{
    check::CHECKS,
    durable::{Left, degraded, say},
    gather::{Gatherer, Question, Surroundings},
    judging::{
        COVERAGE, INBOX, NotDone, UsableChecks, commit, judge_all, none_can_be_done, unapplied,
    },
    load,
    plan::{Planned, Planner},
    resident::WatchdogError,
    watched::Watchlist,
};

/// Pipelines that are judged before their findings are committed.
const CHUNK: usize = 500;
/// How often a pipeline with many owed slots is gone on with.
const ROUNDS_MAX: usize = 100;

pub(super) struct Pass<'a> {
    pub(super) options: &'a CheckOptions,
    pub(super) shard: Shard,
    writer: Option<Writer>,
    own: load::Own,
    /// When passes reached the store, this one included.
    passes: PassCoverage,
    /// Everything up to this was judged before.
    judged: Timestamp,
}

/// What a pass has in hand.
struct Progress {
    list: Watchlist,
    usable: UsableChecks,
    report: Report,
}

impl<'a> Pass<'a> {
    /// Judges a shard, of which everything up to an instant was judged before unless its own row says otherwise.
    pub(super) async fn run(
        options: &'a CheckOptions,
        (shard, inherited): (Shard, Option<Timestamp>),
        writer: Option<Writer>,
    ) -> Result<Report, WatchdogError> {
        let store = options.store.as_ref();
        let own = load::own(store, shard).await?;
        let passes = PassCoverage::read(store).await?.extended(options.now);
        let judged = if own.revision == 0 { inherited } else { own.judged };
        let judged = judged.unwrap_or(Timestamp::MIN);
        Self { options, shard, writer, own, passes, judged }.judge().await
    }

    async fn judge(&self) -> Result<Report, WatchdogError> {
        let CheckOptions { store, zones, checks, now, .. } = self.options;
        let mut list = Watchlist::new(Arc::clone(zones));
        let mut usable = UsableChecks::new(checks);
        let mut report = Report::default();
        let agendas = load::agenda(store.as_ref(), self.shard, &mut list, self.judged);
        for (pipeline, reason) in agendas.await? {
            none_can_be_done(checks, &format!("{pipeline}: {reason}"), &mut report.failed);
        }
        self.renew_lease().await?;
        let around = self.surroundings(&mut usable).await;
        let mut asked = self.questions(&list, &mut usable).await?;
        let mut progress = Progress { list, usable, report };
        for _ in 0..ROUNDS_MAX {
            while let Some((pipeline, from)) = progress.list.pop(*now) {
                asked.entry(pipeline).or_default().from = Some(from);
            }
            if asked.is_empty() {
                break;
            }
            let mut round = std::mem::take(&mut asked).into_iter();
            loop {
                let chunk: Vec<_> = round.by_ref().take(CHUNK).collect();
                if chunk.is_empty() {
                    break;
                }
                self.judge_chunk(chunk, &around, &mut progress).await?;
                self.renew_lease().await?;
            }
        }
        let Progress { list, usable, mut report } = progress;
        report.failed.extend(usable.failed);
        self.finish(list.judged_by(*now), &mut report).await?;
        Ok(report)
    }

    async fn surroundings(&self, usable: &mut UsableChecks) -> Surroundings {
        let CheckOptions { store, now, late_after, .. } = self.options;
        let store = store.as_ref();
        let inbox = unapplied(store, self.shard).await;
        let deaf = deaf_beside(store, &self.own.blind, &self.passes, *now).await;
        Surroundings {
            unapplied: usable.read(INBOX, inbox),
            blind: usable.read(COVERAGE, deaf),
            late_after: *late_after,
            now: *now,
        }
    }

    /// Keeps the lease for another while: what takes long takes as long as it needs, and what hangs loses it.
    pub(super) async fn renew_lease(&self) -> Result<(), WatchdogError> {
        let Some(writer) = self.writer else { return Ok(()) };
        let renewed = self.options.store.renew(writer, LEASE).await?;
        renewed.map(drop).ok_or(WatchdogError::Deposed)
    }

    async fn judge_chunk(
        &self,
        chunk: Vec<(PipelineId, Question)>,
        around: &Surroundings,
        progress: &mut Progress,
    ) -> Result<(), WatchdogError> {
        let Progress { list, usable, report } = progress;
        let (store, zones) = (self.options.store.as_ref(), &self.options.zones);
        let agendas = Mutex::default();
        let gatherer = Gatherer { store, around, zones, agendas: &agendas };
        let outcome = judge_all(&gatherer, list, &usable.checks, chunk).await?;
        report.failed.extend(outcome.failed);
        let checks = &self.options.checks;
        for (pipeline, record, revision) in outcome.changed {
            // It is judged in the next round, as it is now.
            let (row, shared) = ((&record, revision), &mut Shared::default());
            if let Err(reason) = list.take(&pipeline, row, self.judged, shared) {
                none_can_be_done(checks, &format!("{pipeline}: {reason}"), &mut report.failed);
            }
        }
        let nobody = Writer { role: Role::Watchdog, shard: self.shard, term: Term(0) };
        let writer = self.writer.unwrap_or(nobody);
        let planner = Planner { writer, now: around.now, late_after: around.late_after };
        let mut planned = Vec::new();
        let mut judged_until = Vec::new();
        for judged in outcome.judged {
            planned.extend(planner.plan(judged.findings));
            judged_until.extend(judged.next.map(|next| (judged.pipeline, next)));
        }
        let left = self.make_durable(&mut planned).await?;
        for (pipeline, reason) in &left.impossible {
            none_can_be_done(checks, &format!("{pipeline}: {reason}"), &mut report.failed);
        }
        for (pipeline, next) in judged_until {
            if left.again.contains(&pipeline) {
                // Somebody was faster: it is read and judged again in the next round.
                list.arm(&pipeline, Timestamp::MIN);
            } else {
                list.judged(&pipeline, next);
            }
        }
        self.report_durable(planned, report).await
    }

    /// Logs what is durable now, and has it delivered if that is this pass's to do.
    async fn report_durable(
        &self,
        planned: Vec<Planned>,
        report: &mut Report,
    ) -> Result<(), WatchdogError> {
        for plan in planned {
            let pipeline = plan.group.pipeline;
            let names = plan.notifications.into_iter().map(|name| (pipeline.clone(), name));
            self.options.hand_over(names.collect(), &mut report.notifications).await?;
            let Some(finding) = plan.said else { continue };
            if let Some(logger) = &self.options.logger {
                logger(finding.alert.as_deref().unwrap_or(&finding.message));
            } else {
                say(&finding);
            }
            if self.writer.is_none() {
                self.options.alert_unrecorded(&finding);
            }
            report.findings.push(*finding);
        }
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

    /// Says how far everything was judged, that this pass reached the store, and what could not be judged.
    async fn finish(&self, judged: Timestamp, report: &mut Report) -> Result<(), WatchdogError> {
        let (Some(telling), Some(writer)) = (&self.options.telling, self.writer) else {
            return Ok(());
        };
        let passes = self.passes.to_record();
        let mut changes = vec![Change::Put(PassCoverage::key(), Expect::Any, passes)];
        // Part of the checks is not all of them: what they left is judged by the next whole pass.
        let is_whole = self.options.checks.len() == CHECKS.len() && report.failed.is_empty();
        if is_whole && self.judged < judged {
            let revision = self.own.revision;
            let expect = if revision == 0 { Expect::Absent } else { Expect::Revision(revision) };
            let record = Record::Watermark(WatermarkRecord { at: judged });
            changes.push(Change::Put(load::own_watermark(self.shard), expect, record));
        }
        if !report.failed.is_empty() {
            changes.push(Change::Append(degraded(&report.failed, self.options.now).into()));
        }
        let group = Group { pipeline: PipelineId::system(), writer, changes };
        let mut planned = [Planned::only(group)];
        let store = self.options.store.as_ref();
        let results = commit(store, telling.as_ref(), &mut planned).await?;
        match results.into_iter().next() {
            Some(Ok(_)) => {}
            Some(Err(NotDone::Impossible(error))) => return Err(error.into()),
            Some(Err(NotDone::Refused(_))) | None => return Err(WatchdogError::Deposed),
        }
        let names = planned.into_iter().flat_map(|plan| plan.notifications);
        let names = names.map(|name| (PipelineId::system(), name)).collect();
        self.options.hand_over(names, &mut report.notifications).await
    }
}

/// Questions about pipelines.
pub(super) type Questions = BTreeMap<PipelineId, Question>;
