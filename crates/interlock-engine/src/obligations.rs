//! What somebody must look at later, written in the group that creates it: the rows of the due index.
//!
//! The watchdog looks (ADR 13). A row that is overtaken does no harm, so only the rows of runs, of which there are
//! many, are deleted with their ends. A queued slot has no row.

use interlock_core::{
    duration,
    pipeline::{Pipeline, PostRun, StuckAction},
    run::TriggerType,
    slot::Slot,
};
use interlock_store::{DueKind, Obligation, RunKey, Subject};
use jiff::{SignedDuration, Timestamp};

use crate::{
    scheduler::plus,
    state::{KnownRun, SlotPlace},
    write::Planned,
};

/// How long a pause without an end may last before people are told.
const PAUSE_MAX: SignedDuration = SignedDuration::from_hours(24);

/// When a run is looked at that does not end: what the pipeline says, else the watchdog's default.
fn stuck(spec: &Pipeline, key: &RunKey, began: Timestamp, default: SignedDuration) -> Obligation {
    let action = match spec.stuck.action {
        StuckAction::Alert => "alert",
        StuckAction::Cancel => "cancel",
        StuckAction::Fail => "fail",
    };
    let at = plus(began, spec.stuck.threshold.unwrap_or(default));
    Obligation::new(at, DueKind::Stuck, Subject::Run(key.clone())).detail("action", action)
}

impl Planned {
    /// A run begins.
    pub(crate) fn will_end(
        &mut self,
        spec: &Pipeline,
        key: &RunKey,
        by: (Timestamp, SignedDuration),
    ) {
        let (began, default) = by;
        self.group.changes.push(stuck(spec, key, began, default).put());
    }

    /// A run ended.
    pub(crate) fn has_ended(&mut self, spec: &Pipeline, run: &KnownRun, default: SignedDuration) {
        let began = run.record.created_at;
        self.group.changes.push(stuck(spec, &run.key, began, default).delete());
    }

    /// A slot opens that promises when it will have completed.
    pub(crate) fn will_complete(&mut self, place: &SlotPlace, slot: &Slot, now: Timestamp) {
        let subject = || Subject::Slot(place.1.clone(), place.0);
        if let Some(limit) = slot.sla.as_deref().and_then(|sla| sla.completion) {
            self.group.changes.push(Obligation::of_limit(limit, subject(), now).put());
        }
    }

    /// The budget of a slot begins: with its first sensor, else with its first run; of a job that runs elsewhere, when it reports
    /// its start.
    pub(crate) fn spends(&mut self, place: &SlotPlace, slot: &Slot, first: Timestamp) {
        let due = Obligation::of_budget(place, slot, first);
        self.group.changes.extend(due.map(Obligation::put));
    }

    /// A run completed, after which something is to be reported.
    pub(crate) fn will_be_reported(
        &mut self,
        place: &SlotPlace,
        (slot, post_run): (&Slot, &PostRun),
        at: Timestamp,
    ) {
        let PostRun { rules, sensor_timeout, .. } = post_run;
        let keys: Vec<&str> = rules.iter().map(|rule| rule.key.as_str()).collect();
        let subject = Subject::Slot(place.1.clone(), place.0);
        let due = Obligation::new(plus(at, *sensor_timeout), DueKind::PostRun, subject)
            .detail("completedAt", at.to_string())
            .detail("sensorTimeout", duration::format(*sensor_timeout))
            .detail("generation", slot.generation)
            .detail("ruleKeys", keys);
        self.group.changes.push(due.put());
    }

    /// A pause begins that nothing ends.
    pub(crate) fn will_resume(&mut self, since: Timestamp) {
        let due = Obligation::new(plus(since, PAUSE_MAX), DueKind::Pause, Subject::Pipeline);
        self.group.changes.push(due.detail("since", since.to_string()).put());
    }
}

/// Whether a slot's budget began when it was opened: its sensor did that.
pub(crate) fn began_with_sensor(slot: &Slot) -> bool {
    matches!(slot.opened_by, TriggerType::Sensor | TriggerType::Reconcile)
}
