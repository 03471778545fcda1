//! Small registers beside the pipelines: who wakes when, who waits for whom, how many runs there are.
//!
//! They follow from what the pipelines say and are kept so that a pass need not look at all of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering::SeqCst},
};

use interlock_core::id::PipelineId;
use jiff::{SignedDuration, Timestamp};

use crate::{engine::Limits, host::Busy, scheduler::plus, state::PipelineState};

/// What the rate of catch-up counts.
const A_MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// When pipelines are looked at again by themselves: the earliest instant for each.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    order: BTreeSet<(Timestamp, PipelineId)>,
    by_pipeline: BTreeMap<PipelineId, Timestamp>,
}

impl Wakes {
    /// At this instant, unless it is woken earlier.
    pub(crate) fn set(&mut self, pipeline: &PipelineId, at: Timestamp) {
        let known = self.by_pipeline.entry(pipeline.clone()).or_insert(Timestamp::MAX);
        if at < *known {
            self.order.remove(&(*known, pipeline.clone()));
            *known = at;
            self.order.insert((at, pipeline.clone()));
        }
    }

    /// The earliest.
    pub(crate) fn first(&self) -> Option<Timestamp> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes those whose time has come.
    pub(crate) fn due(&mut self, now: Timestamp) -> Vec<PipelineId> {
        let mut due = Vec::new();
        while self.first().is_some_and(|at| at <= now)
            && let Some((_, pipeline)) = self.order.pop_first()
        {
            self.by_pipeline.remove(&pipeline);
            due.push(pipeline);
        }
        due
    }
}

/// Runs that are under way, by pipeline: all, and those of slots that catch-up opened.
#[derive(Debug, Default)]
pub(crate) struct Active {
    by_pipeline: BTreeMap<PipelineId, (u32, u32)>,
    /// With those of the other shards of this process.
    busy: Arc<Busy>,
}

impl Active {
    /// None yet, beside those of others.
    pub(crate) fn among(busy: Arc<Busy>) -> Self {
        Self { by_pipeline: BTreeMap::new(), busy }
    }

    /// Counts a pipeline anew.
    pub(crate) fn count(&mut self, pipeline: &PipelineId, state: &PipelineState) {
        let count = state.open.running();
        let before = match count {
            (0, _) => self.by_pipeline.remove(pipeline),
            _ => self.by_pipeline.insert(pipeline.clone(), count),
        };
        self.busy.moved(before.unwrap_or_default(), count);
    }

    /// Over all pipelines.
    pub(crate) fn total(&self) -> u32 {
        self.busy.total.load(SeqCst)
    }

    /// Those of missed slots.
    pub(crate) fn catchup(&self) -> u32 {
        self.busy.catchup.load(SeqCst)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        for count in self.by_pipeline.values() {
            self.busy.moved(*count, (0, 0));
        }
    }
}

/// How many runs of missed slots may begin (`catchupConcurrency`, `catchupRate`), and who waits for that.
#[derive(Debug, Default)]
pub(crate) struct Restraint {
    /// The minute that is counted, and how many began in it.
    minute: Option<(Timestamp, u32)>,
    /// Pipelines that found no room, the one with the oldest slot first.
    held: BTreeSet<(Timestamp, PipelineId)>,
    /// Whether it was the rate that held them.
    is_spent: bool,
}

impl Restraint {
    /// How many may begin now.
    pub(crate) fn room(&mut self, active: u32, limits: &Limits, now: Timestamp) -> u32 {
        let is_over = |began: Timestamp| now < began || now >= plus(began, A_MINUTE);
        if self.minute.is_some_and(|(began, _)| is_over(began)) {
            self.minute = None;
        }
        let begun = self.minute.map_or(0, |(_, begun)| begun);
        let by_rate = limits.catchup_per_minute.saturating_sub(begun);
        self.is_spent = by_rate == 0;
        limits.catchup_runs_max.saturating_sub(active).min(by_rate)
    }

    /// So many began.
    pub(crate) fn begun(&mut self, count: u32, now: Timestamp) {
        if count > 0 {
            self.minute.get_or_insert((now, 0)).1 += count;
        }
    }

    /// A pipeline found no room for a slot.
    pub(crate) fn hold(&mut self, pipeline: &PipelineId, slot: Timestamp) {
        self.held.insert((slot, pipeline.clone()));
    }

    /// As many of those as there is room for; the others need not be looked at.
    pub(crate) fn let_go(&mut self, room: u32) -> Vec<PipelineId> {
        let count = self.held.len().min(room as usize);
        (0..count).filter_map(|_| self.held.pop_first()).map(|(_, pipeline)| pipeline).collect()
    }

    /// When there is room again because a minute is over.
    pub(crate) fn wake(&self) -> Option<Timestamp> {
        let is_waiting = self.is_spent && !self.held.is_empty();
        self.minute.filter(|_| is_waiting).map(|(began, _)| plus(began, A_MINUTE))
    }
}

/// Which pipelines wait for slots of which others. An upstream of another shard is not seen here; those are
/// found at the next evaluation.
#[derive(Debug, Default)]
pub(crate) struct Dependents {
    by_upstream: BTreeMap<PipelineId, BTreeSet<PipelineId>>,
    upstreams: BTreeMap<PipelineId, Box<[PipelineId]>>,
}

impl Dependents {
    /// Takes over what a pipeline says it waits for.
    pub(crate) fn set(&mut self, pipeline: &PipelineId, upstreams: &[PipelineId]) {
        for gone in self.upstreams.remove(pipeline).unwrap_or_default() {
            if let Some(waiting) = self.by_upstream.get_mut(&gone) {
                waiting.remove(pipeline);
            }
        }
        for upstream in upstreams {
            let waiting = self.by_upstream.entry(upstream.clone()).or_default();
            waiting.insert(pipeline.clone());
        }
        if !upstreams.is_empty() {
            self.upstreams.insert(pipeline.clone(), upstreams.into());
        }
    }

    /// Who waits for a pipeline.
    pub(crate) fn of(&self, upstream: &PipelineId) -> Vec<PipelineId> {
        self.by_upstream.get(upstream).into_iter().flatten().cloned().collect()
    }
}
