//! The orders, sums and groups of the whole fleet, kept while single pipelines change: so a page costs what it shows.
//!
//! **Invariant:** each pipeline of the table is in every order once, with what its summary says, and in every sum with what it says at the
//! instant of its summary. So it is taken out exactly as it was put in.

use std::collections::{BTreeMap, BTreeSet};

use interlock_core::id::PipelineId;
use jiff::Timestamp;

use super::{
    groups::Grouping,
    question::GroupBy,
    summary::{ASKED_WITHIN, DayCounts},
    tallied::TalliedPipeline,
};
use crate::model::fleet::FleetStatesAnswer;

/// Days of different zones, and groupings, that are kept at once.
const DAYS_MAX: usize = 6;
const GROUPINGS_MAX: usize = 4;

/// Pipelines by name.
pub(super) type PipelinesByName = BTreeMap<PipelineId, TalliedPipeline>;

/// A pipeline in an order: by a rank, then by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RankedPipeline {
    pub(super) rank: i64,
    pub(super) name: PipelineId,
}

impl RankedPipeline {
    pub(super) fn new(rank: i64, name: &PipelineId) -> Self {
        Self { rank, name: name.clone() }
    }
}

/// An order of pipelines.
pub(super) type RankIndex = BTreeSet<RankedPipeline>;

/// When a pipeline is to be looked at again.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlannedChange {
    at: Timestamp,
    name: PipelineId,
}

/// The sums since one midnight.
#[derive(Debug)]
struct IndexedDay {
    midnight: Timestamp,
    sum: DayCounts,
    asked_at: Timestamp,
}

/// Orders, sums and groups.
#[derive(Debug)]
pub(super) struct FleetIndex {
    /// Up to when what changes by the clock has changed.
    at: Timestamp,
    states: FleetStatesAnswer,
    by_state: RankIndex,
    by_next: RankIndex,
    changes: BTreeSet<PlannedChange>,
    days: Vec<IndexedDay>,
    groupings: Vec<Grouping>,
}

impl FleetIndex {
    /// Of all pipelines, at an instant.
    pub(super) fn of(pipelines: &mut PipelinesByName, now: Timestamp) -> Self {
        let (mut states, mut changes) = (FleetStatesAnswer::default(), Vec::new());
        let (mut by_state, mut by_next) = (Vec::new(), Vec::new());
        for (name, pipeline) in pipelines {
            let summary = pipeline.summarised(now);
            pipeline.summary = summary;
            states.add(summary.state);
            by_state.push(RankedPipeline::new(summary.state as i64, name));
            by_next.push(RankedPipeline::new(summary.next, name));
            let change = summary.changes_at.map(|at| PlannedChange { at, name: name.clone() });
            changes.extend(change);
        }
        Self {
            at: now,
            states,
            by_state: by_state.into_iter().collect(),
            by_next: by_next.into_iter().collect(),
            changes: changes.into_iter().collect(),
            days: vec![],
            groupings: vec![],
        }
    }

    /// How many pipelines are in each state.
    pub(super) fn states(&self) -> FleetStatesAnswer {
        self.states
    }

    /// The worst first.
    pub(super) fn by_state(&self) -> &RankIndex {
        &self.by_state
    }

    /// The next one that is due first.
    pub(super) fn by_next(&self) -> &RankIndex {
        &self.by_next
    }

    /// Takes a pipeline out, which is as it was put in.
    pub(super) fn take_out(&mut self, name: &PipelineId, pipeline: &TalliedPipeline) {
        let summary = pipeline.summary;
        self.states.remove(summary.state);
        self.by_state.remove(&RankedPipeline::new(summary.state as i64, name));
        self.by_next.remove(&RankedPipeline::new(summary.next, name));
        if let Some(at) = summary.changes_at {
            self.changes.remove(&PlannedChange { at, name: name.clone() });
        }
        for day in &mut self.days {
            day.sum.subtract(&pipeline.since_midnight(day.midnight, summary.at));
        }
        for grouping in &mut self.groupings {
            grouping.take_out(name, pipeline);
        }
    }

    /// Puts a pipeline in, as it is at an instant.
    pub(super) fn put_in(
        &mut self,
        name: &PipelineId,
        pipeline: &mut TalliedPipeline,
        now: Timestamp,
    ) {
        // Not before what others say already: the clock may go back a little.
        let summary = pipeline.summarised(now.max(self.at));
        pipeline.summary = summary;
        self.states.add(summary.state);
        self.by_state.insert(RankedPipeline::new(summary.state as i64, name));
        self.by_next.insert(RankedPipeline::new(summary.next, name));
        if let Some(at) = summary.changes_at {
            self.changes.insert(PlannedChange { at, name: name.clone() });
        }
        for day in &mut self.days {
            day.sum.add(&pipeline.since_midnight(day.midnight, summary.at));
        }
        for grouping in &mut self.groupings {
            grouping.put_in(name, pipeline);
        }
    }

    /// Looks again at pipelines of which something changes by the clock, so many at most. Says whether that was all.
    pub(super) fn advance(
        &mut self,
        pipelines: &mut PipelinesByName,
        now: Timestamp,
        at_most: usize,
    ) -> bool {
        for _ in 0..at_most {
            if self.changes.first().is_none_or(|change| change.at > now) {
                if now > self.at {
                    self.at = now;
                    self.forget_unasked();
                }
                return true;
            }
            let Some(change) = self.changes.pop_first() else { return true };
            if let Some(pipeline) = pipelines.get_mut(&change.name) {
                self.take_out(&change.name, pipeline);
                self.put_in(&change.name, pipeline, now);
            }
        }
        false
    }

    fn forget_unasked(&mut self) {
        let now = self.at;
        let is_asked = |at: Timestamp| now.duration_since(at) < ASKED_WITHIN;
        self.days.retain(|day| is_asked(day.asked_at));
        self.groupings.retain(|grouping| is_asked(grouping.asked_at));
    }

    /// The sums of all pipelines since a midnight. They are made when they are first asked for, and kept as long as they are.
    pub(super) fn day(
        &mut self,
        pipelines: &PipelinesByName,
        midnight: Timestamp,
        now: Timestamp,
    ) -> DayCounts {
        if let Some(day) = self.days.iter_mut().find(|day| day.midnight == midnight) {
            day.asked_at = day.asked_at.max(now);
            return day.sum;
        }
        let mut sum = DayCounts::default();
        for pipeline in pipelines.values() {
            sum.add(&pipeline.since_midnight(midnight, pipeline.summary.at));
        }
        if self.days.len() >= DAYS_MAX {
            let oldest = self.days.iter().map(|day| day.asked_at).min();
            self.days.retain(|day| Some(day.asked_at) != oldest);
        }
        self.days.push(IndexedDay { midnight, sum, asked_at: now });
        sum
    }

    /// Makes groups, if they are not there yet.
    pub(super) fn make_grouping(
        &mut self,
        pipelines: &PipelinesByName,
        by: &GroupBy,
        now: Timestamp,
    ) {
        if let Some(known) = self.groupings.iter_mut().find(|it| it.by == *by) {
            known.asked_at = known.asked_at.max(now);
            return;
        }
        if self.groupings.len() >= GROUPINGS_MAX {
            let oldest = self.groupings.iter().map(|it| it.asked_at).min();
            self.groupings.retain(|it| Some(it.asked_at) != oldest);
        }
        self.groupings.push(Grouping::of(by.clone(), pipelines.iter(), now));
    }

    /// Groups that were made.
    pub(super) fn grouping(&self, by: &GroupBy) -> Option<&Grouping> {
        self.groupings.iter().find(|it| it.by == *by)
    }
}
