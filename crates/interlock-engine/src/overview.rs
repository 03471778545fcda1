//! What an engine has before it, for the summary at start-up.

use std::{cmp::Reverse, sync::Arc};

use interlock_core::{
    agenda::Work,
    id::{PipelineId, ScheduleId},
    schedule::{Recurrence, Schedule},
};
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
    /// Schedules that owe slots by themselves, or by the last report.
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
        // One that is retired stays in the heap until its time has come.
        let is_there = |pipeline: &PipelineId| {
            self.pipelines.0.get(pipeline).is_some_and(|it| !it.is_retired())
        };
        let due = self.agenda.iter().filter(|Reverse((_, pipeline))| is_there(pipeline)).max();
        let due = due.and_then(|Reverse((at, pipeline))| self.next(*at, pipeline));
        let switches = self.pipelines.0.iter().flat_map(|(pipeline, state)| {
            state.switches().filter_map(move |id| {
                let (nominal, _) = state.watermark(id)?;
                Some((nominal, pipeline.clone(), id.clone()))
            })
        });
        Overview {
            schedules: states.clone().map(|state| state.schedules()).sum(),
            next: due.into_iter().chain(switches).min(),
            open_slots: states.clone().map(|state| state.undecided()).sum(),
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
    fn schedules(&self) -> usize {
        if self.is_retired() {
            return 0;
        }
        self.agenda.owed().count() + self.switches().count()
    }

    /// Its dead-man's switches: nothing of them is due by the clock, and one slot of each is always open, at its watermark.
    fn switches(&self) -> impl Iterator<Item = &ScheduleId> {
        let is_awake = self.agenda.work != Work::Dormant;
        let starts = self.agenda.starts.iter().map(|start| &start.schedule);
        let switches = starts.filter(move |schedule| {
            is_awake && matches!(schedule.recurrence(), Recurrence::SinceLast { .. })
        });
        switches.map(Schedule::id)
    }

    fn active_runs(&self) -> usize {
        let last_runs = self.open.values().filter_map(OpenSlot::last_run);
        last_runs.filter(|run| is_active(run)).count()
    }
}
