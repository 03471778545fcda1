//! Small registers beside the pipelines: who wakes when, who waits for whom, how many runs there are.
//!
//! They follow from what the pipelines say and are kept so that a pass need not look at all of them.

use std::collections::{BTreeMap, BTreeSet};

use interlock_core::{
    id::PipelineId,
    slot::{OpenState, SlotState},
};
use jiff::Timestamp;

use crate::state::PipelineState;

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

/// Runs that are under way, by pipeline.
#[derive(Debug, Default)]
pub(crate) struct Active {
    by_pipeline: BTreeMap<PipelineId, u32>,
    total: u32,
}

impl Active {
    /// Counts a pipeline anew.
    pub(crate) fn count(&mut self, pipeline: &PipelineId, state: &PipelineState) {
        let running = SlotState::Open(OpenState::Running);
        let count = state.open.values().filter(|open| open.slot.state == running).count() as u32;
        let before = match count {
            0 => self.by_pipeline.remove(pipeline),
            _ => self.by_pipeline.insert(pipeline.clone(), count),
        };
        self.total = self.total - before.unwrap_or(0) + count;
    }

    /// Over all pipelines.
    pub(crate) fn total(&self) -> u32 {
        self.total
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
