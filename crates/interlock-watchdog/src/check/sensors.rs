//! sensor-trigger-reconciliation, trigger-deadlines and post-run-sensors: reports that came to nothing, and
//! reports that did not come.

use std::sync::Arc;

use interlock_core::{
    agenda::Work,
    pipeline::StartSchedule,
    run::TriggerType,
    schedule::Recurrence,
    sensor::{self, Sensors},
    sla,
    slot::{Disposition, OpenState, Opening, SkipReason, Slot, SlotState},
};
use interlock_store::{DueKind, Obligation, Subject, record::InboxRecord};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    finding::{CheckName, Finding, Remedy},
    owed::{Owed, plus},
    snapshot::{Known, Place, Reported, Snapshot},
};

/// Older periods are left alone: their slots may have been forgotten.
const RECENT: SignedDuration = SignedDuration::from_hours(7 * 24);
/// How often the owner is asked to look at a slot that was opened for it.
const ASK_EVERY: SignedDuration = SignedDuration::from_mins(1);

/// Sensors whose condition is met and whose slot is not open: it is opened, once.
pub(super) fn reconciliation(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let mut found: Vec<Finding> = recovered(snapshot, now).collect();
    let is_closed =
        snapshot.is_retired || snapshot.pause.as_ref().is_some_and(|p| p.is_in_force(now));
    if snapshot.agenda.work == Work::Dormant || is_closed {
        return found;
    }
    let mut seen = std::collections::BTreeSet::new();
    for (key, reported) in &snapshot.sensors {
        if !counts(snapshot, reported, now) {
            continue;
        }
        for place in &reported.opens {
            let mut starts = snapshot.agenda.starts.iter();
            let start = starts.find(|start| *start.schedule.id() == place.1);
            if place.0 >= plus(now, -RECENT)
                && seen.insert(place)
                && let Some(finding) =
                    start.and_then(|start| recover(snapshot, start, place, (key, reported, now)))
            {
                found.push(finding);
            }
        }
    }
    found
}

/// Whether a report may open a slot: not one from before the first sight, nor one that came in a pause.
fn counts(snapshot: &Snapshot, reported: &Reported, now: Timestamp) -> bool {
    !reported.unheeded
        && reported.received_at > snapshot.first_seen
        && !snapshot.was_paused(reported.received_at, now)
}

fn recover(
    snapshot: &Snapshot,
    start: &Arc<StartSchedule>,
    place: &Place,
    (key, reported, now): (&str, &Reported, Timestamp),
) -> Option<Finding> {
    let agenda = &snapshot.agenda;
    let closes_at = agenda.closes_at(start, place.0, TriggerType::Reconcile, now);
    let date = start.schedule.occurrence(place.0).date;
    let (mut slot, revision) = match snapshot.slots.get(place) {
        None if snapshot.span_of(place).is_some() => return None,
        None => {
            let opening = Opening {
                opened_by: TriggerType::Reconcile,
                date,
                at: now,
                closes_at,
                version: snapshot.version,
            };
            let promise = agenda.promise(start, place.0, sla::Opening::Live);
            (Slot::open(OpenState::Waiting, opening).promising(promise), 0)
        }
        Some(Known { slot, revision }) if waits_for_sensor(slot) => {
            (slot.advance(OpenState::Waiting, closes_at).ok()?, *revision)
        }
        Some(_) => return None,
    };
    slot.opened_by = TriggerType::Reconcile;
    slot.marks.recovered = true;
    let look = Subject::Slot(place.1.clone(), place.0);
    let budget = Obligation::of_budget(place, &slot, reported.received_at);
    let message =
        format!("sensor {key} arrived but no slot was opened; opened {}/{} now", place.1, place.0);
    let finding = Finding::of(
        CheckName::SensorTriggerReconciliation,
        "TRIGGER_RECOVERED",
        &snapshot.pipeline,
    );
    let finding = budget.into_iter().fold(finding, |it, budget| it.with(Remedy::Arm(budget)));
    Some(
        finding
            .about(place, date)
            .says(message.clone())
            .alerts(format!("Pipeline {}: {message}", snapshot.pipeline))
            .detail("source", "reconciliation")
            .detail("sensor", key)
            .with(Remedy::Slot(place.clone(), revision, Box::new(slot)))
            .with(Remedy::Arm(Obligation::new(now, DueKind::Closes, look))),
    )
}

/// Slots that were opened here and that nobody has taken up: the owner is asked to look.
fn recovered(snapshot: &Snapshot, now: Timestamp) -> impl Iterator<Item = Finding> {
    snapshot.due.iter().filter_map(move |due| {
        let (DueKind::Closes, Subject::Slot(schedule, nominal)) = (due.kind, &due.subject) else {
            return None;
        };
        let place = (*nominal, schedule.clone());
        let known = snapshot.slots.get(&place)?;
        let is_untouched = known.slot.state == SlotState::Open(OpenState::Waiting)
            && known.slot.marks.recovered
            && known.slot.attempt == 0;
        let done = Finding::silent(CheckName::SensorTriggerReconciliation, &snapshot.pipeline);
        let done = done.with(Remedy::Drop(due.clone()));
        if !is_untouched {
            return None;
        }
        if known.slot.evaluated.is_some() || now >= known.slot.closes_at {
            return Some(done);
        }
        let next = Obligation::new(plus(now, ASK_EVERY), DueKind::Closes, due.subject.clone());
        let key = format!("look~{schedule}~{nominal}~{}", due.at());
        Some(done.with(Remedy::Ask(key, Box::new(InboxRecord::Look {}))).with(Remedy::Arm(next)))
    })
}

/// Whether a slot was opened by its schedule's deadline, and its sensor has not come.
pub(crate) fn waits_for_sensor(slot: &Slot) -> bool {
    slot.state == SlotState::Open(OpenState::Waiting) && slot.opened_by == TriggerType::Scheduler
}

/// Windows of sensors that closed without them.
pub(super) fn trigger_deadlines(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let is_sensor =
        |owed: &&Owed| matches!(owed.start.schedule.recurrence(), Recurrence::Sensor { .. });
    let owed = snapshot.owed.iter().filter(is_sensor);
    owed.filter_map(|owed| expired(snapshot, owed, now)).collect()
}

fn expired(snapshot: &Snapshot, owed: &Owed, now: Timestamp) -> Option<Finding> {
    let place = (owed.nominal, owed.start.schedule.id().clone());
    let is_excused = snapshot.is_retired
        || owed.limit <= snapshot.first_seen
        || snapshot.was_paused(owed.nominal, owed.limit)
        || snapshot.has_unapplied;
    // What came is the other check's to take up.
    let mut reports = snapshot.sensors.values().filter(|it| counts(snapshot, it, now));
    let came = reports.any(|reported| reported.opens.contains(&place));
    if now <= owed.limit || is_excused || came {
        return None;
    }
    let disposition = Disposition::Skipped(SkipReason::NoSensor);
    let (slot, revision) = match snapshot.slots.get(&place) {
        Some(known) if waits_for_sensor(&known.slot) => {
            (known.slot.close(disposition, now).ok()?, known.revision)
        }
        None if snapshot.span_of(&place).is_none() && snapshot.is_ahead(&place) => {
            let opening = Opening {
                opened_by: TriggerType::Scheduler,
                date: owed.date,
                at: now,
                closes_at: owed.limit,
                version: snapshot.version,
            };
            (Slot::decided(disposition, opening), 0)
        }
        Some(_) | None => return None,
    };
    let deadline = owed.deadline.clone().unwrap_or_default();
    let (pipeline, date) = (&snapshot.pipeline, owed.date);
    let what = format!("no sensor by deadline {deadline} on {date}");
    Some(
        Finding::of(CheckName::TriggerDeadlines, "SENSOR_DEADLINE_EXPIRED", pipeline)
            .about(&place, date)
            .due(owed.limit)
            .says(format!("trigger window of {pipeline} closed: {what}"))
            .alerts(format!("Pipeline {pipeline} schedule {}: {what}", place.1))
            .detail("triggerDeadline", deadline)
            .detail(
                "actionHint",
                "Data that arrives later starts nothing: run the slot with `interlock run --slot`.",
            )
            .with(Remedy::Slot(place.clone(), revision, Box::new(slot))),
    )
}

/// Completions after which nothing was reported.
pub(super) fn post_run(snapshot: &Snapshot, _now: Timestamp) -> Vec<Finding> {
    let due = snapshot.due.iter().filter(|due| due.kind == DueKind::PostRun);
    due.map(|due| unreported(snapshot, due)).collect()
}

fn unreported(snapshot: &Snapshot, due: &Obligation) -> Finding {
    let name = CheckName::PostRunSensors;
    let over = Finding::silent(name, &snapshot.pipeline).with(Remedy::Drop(due.clone()));
    let text = |key: &str| due.details.get(key).and_then(Value::as_str);
    let completed: Option<Timestamp> = text("completedAt").and_then(|at| at.parse().ok());
    let (Some(place), Some(completed)) = (due.subject.slot(), completed) else { return over };
    let Some(known) = snapshot.slots.get(&place) else { return over };
    let generation = due.details.get("generation").and_then(Value::as_u64);
    let is_same =
        generation.is_none_or(|generation| generation == u64::from(known.slot.generation));
    let is_done = matches!(
        known.slot.state,
        SlotState::Closed(Disposition::Completed) | SlotState::Open(OpenState::Monitoring)
    );
    if !is_done || !is_same || snapshot.is_retired || snapshot.agenda.work == Work::Dormant {
        return over;
    }
    let keys = due.details.get("ruleKeys").and_then(Value::as_array).into_iter().flatten();
    let keys: Vec<&str> = keys.filter_map(Value::as_str).collect();
    let missing = missing_keys(snapshot, &place, &keys, completed);
    if missing.is_empty() {
        return over;
    }
    let timeout = text("sensorTimeout").unwrap_or("2h").to_owned();
    let (pipeline, date) = (&snapshot.pipeline, known.slot.date);
    let message = format!("post-run sensor not received within {timeout} of completion");
    let names = missing.join(", ");
    Finding::of(name, "POST_RUN_SENSOR_MISSING", pipeline)
        .about(&place, date)
        .due(due.at())
        .says(message.clone())
        .alerts(format!("Pipeline {pipeline} schedule {} on {date}: {message} ({names})", place.1))
        .detail("sensorTimeout", timeout)
        .detail("ruleKeys", keys)
        .detail("missing", missing)
        .detail("completedAt", completed.to_string())
        .with(Remedy::Drop(due.clone()))
}

/// The rules without a report that is newer than the completion.
fn missing_keys(
    snapshot: &Snapshot,
    place: &Place,
    keys: &[&str],
    completed: Timestamp,
) -> Vec<String> {
    let start = snapshot.agenda.starts.iter().find(|start| *start.schedule.id() == place.1);
    let period = start.map(|start| start.period_of(place.0));
    let sensors: Sensors =
        snapshot.sensors.iter().map(|(key, it)| (key.clone(), it.sensor.clone())).collect();
    let is_missing = |key: &&&str| {
        let newest = sensor::find(&sensors, key, period);
        newest.is_none_or(|(_, sensor)| sensor.at <= completed)
    };
    keys.iter().filter(is_missing).map(|key| (*key).to_owned()).collect()
}
