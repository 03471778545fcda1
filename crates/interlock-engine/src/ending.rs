//! Ending what runs: a person's cancel and a schedule's stop take the same way.
//!
//! That a job is to end is stored with its run, in the group that accepts the request. So the request outlives
//! the process that took it: whoever finds the run still there (after a restart, or because the job had not
//! begun when it was asked) asks again, and a run that never started is closed instead of being started.
//! The job's own end closes the slot; until then it holds its place (S6).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use interlock_core::{
    firing::Ending,
    id::PipelineId,
    pipeline::Pipeline,
    slot::{Disposition, OpenState, SlotState},
};
use interlock_store::record::RunRecord;
use jiff::Timestamp;

use crate::{
    request::{is_active, request},
    state::{KnownRun, OpenSlot, SlotPlace},
    write::{Act, Event, Planned},
};

/// Kept with a run whose job is to end: why.
pub(crate) const CANCEL_REQUESTED: &str = "cancelRequested";

/// Why a run's job is to end, if somebody wants that.
pub fn end_wanted(run: &RunRecord) -> Option<&str> {
    run.metadata.get(CANCEL_REQUESTED)?.as_str()
}

/// An open slot that is to end.
pub(crate) struct Ender<'a> {
    pub(crate) pipeline: &'a PipelineId,
    pub(crate) spec: &'a Pipeline,
    pub(crate) place: &'a SlotPlace,
    pub(crate) open: &'a OpenSlot,
    pub(crate) why: &'a str,
    pub(crate) now: Timestamp,
}

impl Ender<'_> {
    /// Asks the slot's job to end, or closes the slot where none runs. Answers with which it was; `None`
    /// when the slot cannot be closed.
    pub(crate) fn end(&self, plan: &mut Planned) -> Option<Ending> {
        if self.open.slot.state == SlotState::Open(OpenState::Running)
            && let Some(run) = self.open.last_run().filter(|run| is_active(run))
        {
            self.ask(run, plan);
            return Some(Ending::AskTheJob);
        }
        let slot = self.open.slot.close(Disposition::Cancelled, self.now).ok()?;
        plan.slot(self.place, self.open.revision, &slot);
        plan.event(Event::of("SLOT_CANCELLED", self.now, self.why).about(self.place));
        Some(Ending::Close)
    }

    fn ask(&self, run: &KnownRun, plan: &mut Planned) {
        let Self { pipeline, spec, place, open, why, now } = *self;
        if end_wanted(&run.record).is_none() {
            plan.about_run(run, BTreeMap::from([(CANCEL_REQUESTED.to_owned(), why.into())]));
        }
        let event = Event::of("CANCEL_REQUESTED", now, why).about(place);
        plan.event(event.run(run.key.id(pipeline)));
        plan.acts.push(Act::Cancel(Box::new(request(pipeline, spec, (place, open), run))));
    }
}

/// The starts that this process has asked for and that were not answered yet. While one is on its way,
/// "never started" is no reason to call its run off.
#[derive(Debug, Clone, Default)]
pub(crate) struct StartsUnderWay(Arc<Mutex<BTreeSet<String>>>);

impl StartsUnderWay {
    /// A start is on its way until what is answered is dropped.
    pub(crate) fn begin(&self, run_id: &str) -> StartUnderWay {
        self.set().insert(run_id.to_owned());
        StartUnderWay { all: self.clone(), run_id: run_id.to_owned() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.set().is_empty()
    }

    pub(crate) fn contains(&self, run_id: &str) -> bool {
        self.set().contains(run_id)
    }

    fn set(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        // A set of names is whole at every instant, also in a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them.
pub(crate) struct StartUnderWay {
    all: StartsUnderWay,
    run_id: String,
}

impl Drop for StartUnderWay {
    fn drop(&mut self) {
        self.all.set().remove(&self.run_id);
    }
}
