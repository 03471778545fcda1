//! A slot whose work is done runs again: by hand, for late data, or because its data drifted.

use interlock_core::{
    pipeline::Pipeline,
    run::TriggerType,
    slot::{Opening, RerunError, RerunSource, Slot, Wish},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    obligations::began_with_sensor,
    scheduler::plus,
    state::SlotPlace,
    write::{Event, Planned},
};

/// How long a slot that is opened out of turn waits to be ready.
pub(crate) const OUT_OF_TURN_WINDOW: SignedDuration = SignedDuration::from_hours(24);

/// A slot that is to run again, and why.
pub(crate) struct Rerun<'a> {
    pub(crate) place: &'a SlotPlace,
    pub(crate) slot: &'a Slot,
    pub(crate) revision: u64,
    /// The pipeline's version in force.
    pub(crate) version: u64,
    /// Whose budget pays.
    pub(crate) source: RerunSource<'a>,
    pub(crate) why: &'a str,
    /// The run that gave rise to it.
    pub(crate) original_run: Option<String>,
}

impl Rerun<'_> {
    /// Writes the slot's next generation, if its budget allows one.
    pub(crate) fn plan(
        self,
        spec: &Pipeline,
        now: Timestamp,
        plan: &mut Planned,
    ) -> Result<(), RerunError> {
        let opened_by = match self.source {
            RerunSource::Manual(_) => TriggerType::Manual,
            RerunSource::Drift => TriggerType::Reconcile,
        };
        let opening = Opening {
            opened_by,
            date: self.slot.date,
            at: now,
            closes_at: plus(now, OUT_OF_TURN_WINDOW),
            version: self.version,
        };
        let slot = self.slot.rerun(self.source, spec.reruns, opening)?;
        let mut slot = slot.promising(spec.sla.out_of_turn());
        slot.wish = Some(Box::new(Wish {
            reason: Some(self.why.to_owned()),
            original_run: self.original_run,
            ..Wish::default()
        }));
        plan.slot(self.place, self.revision, &slot);
        if began_with_sensor(&slot) {
            plan.spends(self.place, &slot, now);
        }
        let message = format!("{}, generation {}", self.why, slot.generation);
        plan.event(Event::of("RERUN_ACCEPTED", now, message).about(self.place));
        Ok(())
    }
}
