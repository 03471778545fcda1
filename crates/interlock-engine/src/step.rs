//! Moves, turned into groups: what is written about a slot that the plan has decided on.

use std::collections::BTreeMap;

use interlock_core::{
    agenda::Work,
    control::Move,
    id::PipelineId,
    readiness::Verdict,
    run::{RunEvent, TriggerType},
    slot::{
        Disposition, Evaluated, FAILED_FINAL, OpenState, RerunSource, SkipReason, Slot, SlotState,
    },
};
use interlock_ports::trigger::StartRequest;
use interlock_store::{RunKey, kept::Stretch};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    controller::SpecsInUse,
    host::Host,
    obligations::began_with_sensor,
    request::{request, run_closes_at},
    rerun::Rerun,
    scheduler::plus,
    state::{KnownRun, OpenSlot, PipelineState, SlotPlace},
    write::{Act, Event, NewRun, Planned},
};

/// A queued slot that never got its turn is given up after this.
pub(crate) const QUEUE_MAX: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Turns moves into groups.
pub(crate) struct Stepper<'a> {
    pub(crate) pipeline: &'a PipelineId,
    pub(crate) specs: &'a SpecsInUse,
    pub(crate) state: &'a PipelineState,
    pub(crate) now: Timestamp,
    pub(crate) stuck_after: SignedDuration,
    pub(crate) host: &'a Host,
    /// Times in which nobody could have reported.
    pub(crate) deaf: &'a [Stretch],
}

impl Stepper<'_> {
    /// `None` when the move makes no sense any more.
    pub(crate) fn step(
        &self,
        place: &SlotPlace,
        step: Move,
        verdict: Option<&Verdict>,
        plan: &mut Planned,
    ) -> Option<()> {
        let open = self.state.open.get(place)?;
        match step {
            Move::Start(attempt) => self.start(place, open, attempt, (verdict, plan)),
            Move::Queue => {
                let slot = open.slot.advance(OpenState::Queued, plus(self.now, QUEUE_MAX)).ok()?;
                plan.slot(place, open.revision, &slot);
                Some(())
            }
            Move::WaitAgain => {
                let until = self.waits_until(place, &open.slot);
                let slot = open.slot.advance(OpenState::Waiting, until).ok()?;
                plan.slot(place, open.revision, &slot);
                Some(())
            }
            Move::Drift => self.drift(place, open, (verdict, plan)),
            Move::Close(disposition) => self.close(place, open, disposition, (verdict, plan)),
        }
    }

    /// Until when a slot waits that was not ready at its turn. One that the schedule owed has its evaluation window, which
    /// begins now: nobody looked while it was queued. What people asked for keeps its time.
    fn waits_until(&self, (nominal, schedule): &SlotPlace, slot: &Slot) -> Timestamp {
        let agenda = &self.state.agenda;
        let is_owed = matches!(slot.opened_by, TriggerType::Scheduler | TriggerType::Catchup);
        let start = agenda.starts.iter().find(|start| is_owed && start.schedule.id() == schedule);
        let until = start.map(|start| agenda.closes_at(start, *nominal, slot.opened_by, self.now));
        // The deadline of a sensor may have passed before its slot came to its turn.
        until.filter(|at| *at > self.now).map_or(slot.closes_at, |at| at.min(slot.closes_at))
    }

    /// Keeps the first look at a slot that found it not ready, where the slot promises one: nobody but the
    /// controller could tell otherwise that it looked.
    pub(crate) fn evaluated(
        &self,
        place: &SlotPlace,
        verdict: &Verdict,
        plan: &mut Planned,
    ) -> Option<()> {
        let open = self.state.open.get(place)?;
        let promises = open.slot.sla.as_deref().is_some_and(|sla| sla.evaluation_at.is_some());
        let waits = open.slot.state == SlotState::Open(OpenState::Waiting);
        if !promises || !waits || open.slot.evaluated.is_some() {
            return None;
        }
        let reasons = blocking(verdict).into_iter();
        let blocking = reasons.filter_map(|it| it.as_str().map(str::to_owned)).collect();
        let mut slot = open.slot.clone();
        let evaluated = Evaluated { at: self.now, blocking, is_told: false };
        slot.evaluated = Some(Box::new(evaluated));
        plan.slot(place, open.revision, &slot);
        Some(())
    }

    fn start(
        &self,
        place: &SlotPlace,
        open: &OpenSlot,
        attempt: u32,
        (verdict, plan): (Option<&Verdict>, &mut Planned),
    ) -> Option<()> {
        let now = self.now;
        let mut slot = open.slot.advance(OpenState::Running, run_closes_at(now)).ok()?;
        slot.attempt = attempt;
        let trigger_type = if attempt > 1 { TriggerType::Retry } else { slot.opened_by };
        let key = RunKey {
            schedule: place.1.clone(),
            nominal: place.0,
            generation: slot.generation,
            attempt,
        };
        let run_id = key.id(self.pipeline);
        plan.slot(place, open.revision, &slot);
        let mut metadata = origin_of(&slot);
        let kind = self.specs.of(&slot).trigger.as_ref().map(|trigger| &trigger.kind);
        metadata.extend(kind.and_then(|kind| self.host.of(kind)));
        plan.new_run(key.clone(), trigger_type, NewRun { at: now, metadata });
        plan.will_end(self.specs.of(&slot), &key, (now, self.stuck_after));
        if attempt == 1 && !began_with_sensor(&slot) {
            plan.spends(place, &slot, now);
        }
        let message = format!("attempt {attempt}, {}", trigger_type.as_str());
        let mut event = Event::of("JOB_TRIGGERED", now, message).about(place).run(run_id);
        if let Some(verdict) = verdict.filter(|verdict| !verdict.parts.is_empty()) {
            // S8: the evidence is stored with the decision.
            event = with_traits(event.detail("evidence", verdict.to_string()), verdict);
        }
        plan.event(event);
        let record = plan.created_run()?;
        let run = KnownRun { key, record, revision: 1 };
        let started = OpenSlot { slot, revision: open.revision + 1, runs: open.runs.clone() };
        let spec = self.specs.of(&started.slot);
        let asked = request(self.pipeline, spec, (place, &started), &run);
        plan.acts.push(Act::Start(Box::new(asked)));
        Some(())
    }

    /// What would be asked for now if it were this queued slot's turn. Only advice is made of it.
    pub(crate) fn rehearse(&self, place: &SlotPlace, plan: &Planned) -> Option<Box<StartRequest>> {
        let open = self.state.open.get(place)?;
        let mut rehearsal = Planned::new(self.pipeline, plan.group.writer);
        self.start(place, open, open.slot.attempt + 1, (None, &mut rehearsal))?;
        rehearsal.acts.into_iter().find_map(|act| match act {
            Act::Start(request) => Some(request),
            Act::Cancel(_) | Act::Acknowledge(_) => None,
        })
    }

    /// The data of a monitored slot changed: it is completed, and its next generation waits, in one group.
    fn drift(
        &self,
        place: &SlotPlace,
        open: &OpenSlot,
        (verdict, plan): (Option<&Verdict>, &mut Planned),
    ) -> Option<()> {
        let now = self.now;
        let run = open.last_run()?;
        let blocking = verdict.map(blocking).unwrap_or_default();
        let found =
            Event::of("MONITORING_DRIFT_DETECTED", now, "its data changed: it is no longer ready");
        plan.event(found.about(place).run(run.key.id(self.pipeline)).detail("blocking", blocking));
        plan.run(run, RunEvent::MonitoringEnded, |_| {});
        let rerun = Rerun {
            place,
            slot: &open.slot,
            revision: open.revision,
            version: self.state.version,
            source: RerunSource::Drift,
            why: "monitoring_drift_detected",
            original_run: Some(run.key.id(self.pipeline)),
        };
        if let Err(refused) = rerun.plan(self.specs.of(&open.slot), now, plan) {
            let slot = open.slot.close(Disposition::Completed, now).ok()?;
            plan.slot(place, open.revision, &slot);
            plan.event(Event::of("RERUN_REJECTED", now, refused.to_string()).about(place));
        }
        Some(())
    }

    /// Says since when nobody could have reported on a slot that is unknown, as the watchdog does and the scheduler.
    fn unheard<'e>(&self, place: &SlotPlace, open: &OpenSlot, event: Event<'e>) -> Event<'e> {
        let date = open.slot.date.to_string();
        let event = event.detail("scheduleId", place.1.as_str()).detail("date", date);
        let event = event.detail("expectedTime", place.0.to_string());
        let unheard = self.state.unheard(place, &open.slot, self.deaf);
        match unheard.filter(|(from, _)| *from > Timestamp::MIN) {
            Some((from, until)) => {
                let until = until.min(self.now);
                let event =
                    event.says(format!("unknown: reports could not arrive from {from} to {until}"));
                let event = event.detail("deafFrom", from.to_string());
                event.detail("deafUntil", until.to_string())
            }
            None => event.says("unknown: reports could not arrive, no instance was listening"),
        }
    }

    fn close(
        &self,
        place: &SlotPlace,
        open: &OpenSlot,
        disposition: Disposition,
        (verdict, plan): (Option<&Verdict>, &mut Planned),
    ) -> Option<()> {
        let now = self.now;
        let slot = open.slot.close(disposition, now).ok()?;
        plan.slot(place, open.revision, &slot);
        let last = open.last_run();
        if let Some(run) = last {
            let event = if disposition == Disposition::Completed {
                RunEvent::MonitoringEnded
            } else {
                RunEvent::Failed
            };
            // The end of monitoring is not the end of the job.
            plan.run(run, event, |record| record.ended_at = record.ended_at.or(Some(now)));
            if disposition != Disposition::Completed {
                plan.has_ended(self.specs.of(&open.slot), run, self.stuck_after);
            }
            if disposition == Disposition::Failed
                && open.slot.state == SlotState::Open(OpenState::Running)
                && self.state.agenda.work != Work::Watched
            {
                let asked = request(self.pipeline, self.specs.of(&open.slot), (place, open), run);
                plan.acts.push(Act::Cancel(Box::new(asked)));
            }
        }
        let kind = close_kind(disposition, open.slot.state);
        let mut event = Event::of(kind, now, slot.state.in_words()).about(place);
        if disposition == Disposition::Failed {
            event = event.detail("status", FAILED_FINAL);
        }
        if disposition == Disposition::Unknown {
            event = self.unheard(place, open, event);
        }
        let expected = self.specs.of(&open.slot).sla.expected_duration;
        if let (Disposition::Skipped(SkipReason::DryRun), Some(expected)) = (disposition, expected)
        {
            event = event.detail("estimatedCompletion", plus(now, expected).to_string());
        }
        if let Some(verdict) = verdict {
            event = with_traits(event.detail("blocking", blocking(verdict)), verdict);
        }
        plan.event(event);
        Some(())
    }
}

/// The name of the event with which a slot is closed by plan.
fn close_kind(disposition: Disposition, from: SlotState) -> &'static str {
    match disposition {
        Disposition::Skipped(SkipReason::NotReady) => "VALIDATION_EXHAUSTED",
        Disposition::Skipped(SkipReason::DryRun) => "DRY_RUN_WOULD_TRIGGER",
        Disposition::Skipped(SkipReason::NoSensor) => "SENSOR_DEADLINE_EXPIRED",
        Disposition::Skipped(_) => "SLOT_SKIPPED",
        Disposition::Completed => "MONITORING_COMPLETED",
        Disposition::Failed if from == SlotState::Open(OpenState::Running) => "SFN_TIMEOUT",
        Disposition::Failed => "RETRY_EXHAUSTED",
        Disposition::Missed => "SCHEDULE_MISSED",
        Disposition::Cancelled => "SLOT_CANCELLED",
        Disposition::Unknown => "SCHEDULE_UNKNOWN",
    }
}

/// Adds what evaluators said, by the trait's type.
fn with_traits<'a>(event: Event<'a>, verdict: &Verdict) -> Event<'a> {
    let said = traits_said(verdict);
    if said.is_empty() { event } else { event.detail("traits", said) }
}

/// What evaluators said, by the trait's type.
pub(crate) fn traits_said(verdict: &Verdict) -> serde_json::Map<String, Value> {
    let said = verdict.traits().into_iter().map(|(part, status)| {
        let said = json!({ "status": status.as_str(), "reason": part.reason, "value": part.seen });
        (part.name.clone(), said)
    });
    said.collect()
}

/// Why the conditions do not hold, for people.
pub(crate) fn blocking(verdict: &Verdict) -> Vec<Value> {
    let named = |part: &&Verdict| {
        if part.reason.contains(&part.name) {
            part.reason.clone()
        } else {
            format!("{}: {}", part.name, part.reason)
        }
    };
    let mut reasons = Vec::new();
    for part in verdict.blocking() {
        let reason = Value::from(named(&part));
        // Two rules on one missing sensor are one reason.
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons
}

/// Why a run exists, kept with it.
fn origin_of(slot: &Slot) -> BTreeMap<String, Value> {
    let Some(wish) = &slot.wish else { return BTreeMap::new() };
    let named = [("reason", &wish.reason), ("originalRunId", &wish.original_run)];
    let given = named.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    given.map(|(name, value)| (name.to_owned(), Value::from(value.clone()))).collect()
}
