//! What an engine has before it, for the summary at start-up.

use std::{cmp::Reverse, sync::Arc};

use interlock_core::id::{PipelineId, ScheduleId};
use jiff::Timestamp;

use crate::{
    engine::Engine,
    request::is_active,
    state::{OpenSlot, PipelineState},
    vitals::Vitals,
};

/// What an engine has before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// Schedules that owe slots by themselves.
    pub schedules: usize,
    /// The slot that is due next, or due already.
    pub next: Option<(Timestamp, PipelineId, ScheduleId)>,
    /// Slots that are not decided.
    pub open_slots: usize,
    /// Runs that an earlier process started, or was about to.
    pub active_runs: usize,
    /// Pipelines that no file declares and that nobody agreed to retire.
    pub held: usize,
}

impl Engine {
    /// What it has before it; looks at every pipeline.
    pub fn overview(&self) -> Overview {
        let states = self.pipelines.0.values();
        Overview {
            schedules: states.clone().map(|state| state.schedules.len()).sum(),
            next: self.agenda.peek().map(|Reverse(next)| next.clone()),
            open_slots: states.clone().map(|state| state.open.len()).sum(),
            active_runs: states.clone().map(PipelineState::active_runs).sum(),
            held: states.filter(|state| state.version == 0 && state.is_declared()).count(),
        }
    }

    /// What it did so far, in numbers.
    pub fn vitals(&self) -> Arc<Vitals> {
        Arc::clone(&self.vitals)
    }
}

impl PipelineState {
    fn active_runs(&self) -> usize {
        let last_runs = self.open.values().filter_map(OpenSlot::last_run);
        last_runs.filter(|run| is_active(run)).count()
    }
}
