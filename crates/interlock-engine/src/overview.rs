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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overview {
    /// Schedules that owe slots by themselves.
    pub schedules: usize,
    /// The slot that is due next, or due already.
    pub next: Option<(Timestamp, PipelineId, ScheduleId)>,
    /// Slots that are not decided.
    pub open_slots: usize,
    /// Runs that an earlier process started, or was about to.
    pub active_runs: usize,
}

impl Overview {
    /// What two of them have before them.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            schedules: self.schedules + other.schedules,
            next: self.next.into_iter().chain(other.next).min(),
            open_slots: self.open_slots + other.open_slots,
            active_runs: self.active_runs + other.active_runs,
        }
    }
}

impl Engine {
    /// What it has before it; looks at every pipeline.
    pub fn overview(&self) -> Overview {
        let states = self.pipelines.0.values();
        Overview {
            schedules: states.clone().map(|state| state.agenda.owed().count()).sum(),
            next: self.agenda.peek().and_then(|Reverse((at, pipeline))| self.next(*at, pipeline)),
            open_slots: states.clone().map(|state| state.open.len()).sum(),
            active_runs: states.map(|state| state.active_runs()).sum(),
        }
    }

    /// Which schedule a pipeline is due for.
    fn next(
        &self,
        at: Timestamp,
        pipeline: &PipelineId,
    ) -> Option<(Timestamp, PipelineId, ScheduleId)> {
        let state = self.pipelines.0.get(pipeline)?;
        let schedule = state.agenda.owed().min_by_key(|start| {
            let watermark = state.watermark(start.schedule.id()).map(|(at, _)| at);
            watermark.and_then(|at| start.schedule.after(at)).unwrap_or(Timestamp::MAX)
        })?;
        Some((at, pipeline.clone(), schedule.schedule.id().clone()))
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
