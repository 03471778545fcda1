//! What was missed, counted before any of it is recorded: what the log sums up when a catch-up begins.
//!
//! It takes the plans themselves, so that the sum is what is then done. Planning is cheap beside recording, but a month
//! of minutes of ten thousand pipelines is not: what is due now does not wait for such a count, which is then said once
//! all of it is recorded.

use std::{cmp::Reverse, collections::BTreeMap};

use interlock_core::{catchup, id::PipelineId};
use jiff::Timestamp;

use crate::{
    engine::{Engine, EngineError},
    gap::{Ahead, Claim, Owing},
    quarantine::guarded,
};

/// So many slots are counted before anything is recorded: some tenths of a second.
const COUNTED_MAX: u64 = 2_000_000;

/// What pipelines missed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outlook<'a> {
    /// Whose, and the first slot that each owes.
    pub(crate) missed: &'a BTreeMap<PipelineId, Timestamp>,
    /// How much that is, unless it is too much to be counted.
    pub(crate) totals: Option<Totals>,
    pub(crate) now: Timestamp,
}

/// So many slots.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) missed: u64,
    /// Those of them that run.
    pub(crate) run: u64,
    /// Those that would, were they of a pipeline that starts jobs (`dryRun`).
    pub(crate) would_run: u64,
}

impl Totals {
    /// Those that do not run.
    pub(crate) fn skipped(self) -> u64 {
        self.missed.saturating_sub(self.run + self.would_run)
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.missed += other.missed;
        self.run += other.run;
        self.would_run += other.would_run;
    }
}

impl Engine {
    /// Says what was missed, if that was not said yet of some of those whose time has come: then of all, also of those
    /// that are still on the agenda.
    pub(crate) async fn announce_what_was_missed(
        &mut self,
        due: &BTreeMap<PipelineId, Timestamp>,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        if due.keys().all(|pipeline| self.progress.is_announced(pipeline)) {
            return Ok(());
        }
        let later = self.agenda.iter().filter(|Reverse((at, _))| *at <= now);
        let mut missed = self.missed_by(later.map(|Reverse((_, pipeline))| pipeline), now);
        missed.extend(due.iter().map(|(pipeline, since)| (pipeline.clone(), *since)));
        missed.retain(|pipeline, _| !self.progress.is_announced(pipeline));
        let mut totals = Some(Totals::default());
        let mut without = Vec::new();
        for pipeline in missed.keys() {
            let Some(so_far) = &mut totals else { break };
            let found = guarded(self.foresee(pipeline, now)).await?;
            // Of one that cannot be planned nothing is recorded either; it is set aside when that is tried.
            let found = found.unwrap_or_default();
            if found.missed == 0 {
                without.push(pipeline.clone());
            }
            so_far.add(found);
            totals = totals.filter(|totals| totals.missed < COUNTED_MAX);
        }
        // Somebody has recorded what they owed.
        missed.retain(|pipeline, _| without.binary_search(pipeline).is_err());
        if !missed.is_empty() {
            let said = self.progress.announce(Outlook { missed: &missed, totals, now });
            self.log_catchup(said, now);
        }
        Ok(())
    }

    /// Those of these pipelines of which some of what they owe is not live any more, and the first slot that each owes.
    pub(crate) fn missed_by<'a>(
        &self,
        pipelines: impl Iterator<Item = &'a PipelineId>,
        now: Timestamp,
    ) -> BTreeMap<PipelineId, Timestamp> {
        let pipelines = pipelines.filter(|pipeline| !self.is_aside(pipeline, now));
        pipelines.filter_map(|it| Some((it.clone(), self.missed_since(it, now)?))).collect()
    }

    fn missed_since(&self, pipeline: &PipelineId, now: Timestamp) -> Option<Timestamp> {
        let owing = self.pipelines.0.get(pipeline)?.owing(pipeline, now)?;
        if owing.gap(&self.nothing_ahead()).has_missed() { owing.first() } else { None }
    }

    /// What becomes of everything that a pipeline missed, one plan after the other.
    async fn foresee(&self, pipeline: &PipelineId, now: Timestamp) -> Result<Totals, EngineError> {
        let mut totals = Totals::default();
        let state = self.pipelines.0.get(pipeline);
        let Some(state) = state else { return Ok(totals) };
        let Some(mut owing) = state.owing(pipeline, now) else { return Ok(totals) };
        let ahead = self.ahead_of(&owing).await?;
        let deaf = self.deaf_to(&owing).await?;
        loop {
            let gap = catchup::Gap { deaf: deaf.clone(), ..owing.gap(&ahead) };
            let plan = catchup::plan(&gap);
            let counts = plan.counts();
            let (run, would_run) =
                if state.agenda.is_rehearsal { (0, counts.run) } else { (counts.run, 0) };
            totals.add(Totals { missed: counts.missed(), run, would_run });
            if !plan.is_cut_off || totals.missed >= COUNTED_MAX {
                return Ok(totals);
            }
            owing.move_past(&gap, &plan);
        }
    }

    /// What is known of every pipeline before anything of it is read.
    pub(crate) fn nothing_ahead(&self) -> Ahead {
        Ahead { uncertain_until: self.remembered.uncertain_until, ..Ahead::default() }
    }

    /// What is recorded of what a pipeline owes.
    pub(crate) async fn ahead_of(&self, owing: &Owing<'_>) -> Result<Ahead, EngineError> {
        let is_blocked = self.blocked.contains(owing.pipeline);
        let prefetch = if is_blocked { &self.prefetched.blocked } else { &self.prefetched.missed };
        let mut ahead = match prefetch.as_ref().and_then(|prefetch| prefetch.of(owing)) {
            Some(ahead) => ahead,
            None => Ahead::read(self.store.as_ref(), owing).await?,
        };
        ahead.uncertain_until = self.remembered.uncertain_until;
        let state = self.pipelines.0.get(owing.pipeline);
        for (record, _) in state.iter().flat_map(|state| state.backfills.values()) {
            ahead.claims.extend(Claim::of(record)?);
        }
        Ok(ahead)
    }

    /// When no report on what a pipeline owes could have reached anybody.
    pub(crate) async fn deaf_to(
        &self,
        owing: &Owing<'_>,
    ) -> Result<Vec<(Timestamp, Timestamp)>, EngineError> {
        match &self.prefetched.missed {
            Some(prefetch) => Ok(prefetch.deaf.clone()),
            None => owing.deaf(self.store.as_ref()).await,
        }
    }
}
