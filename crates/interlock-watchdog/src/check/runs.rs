//! stuck-runs and stale-triggers: runs that do not end.

use interlock_core::{
    agenda::Work,
    duration,
    run::{RunEvent, RunState},
    slot::{Disposition, FAILED_FINAL, OpenState, SlotState},
};
use interlock_store::{
    DueKind, Obligation, RunKey, RunRow, Subject,
    record::{InboxRecord, RunRecord, SlotName},
};
use jiff::Timestamp;

use crate::{
    finding::{CheckName, Finding, Remedy},
    snapshot::{Known, Place, Snapshot},
};

/// Runs that have not ended for too long. Monitoring does not count: the job is over.
pub(super) fn stuck_runs(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let due = snapshot.due.iter().filter(|due| due.kind == DueKind::Stuck);
    due.map(|due| stuck_run(snapshot, due, now)).collect()
}

fn stuck_run(snapshot: &Snapshot, due: &Obligation, now: Timestamp) -> Finding {
    let name = CheckName::StuckRuns;
    let over = Finding::silent(name, &snapshot.pipeline).with(Remedy::Drop(due.clone()));
    let Subject::Run(key) = &due.subject else { return over };
    let place = (key.nominal, key.schedule.clone());
    let run = snapshot.runs.get(&place).filter(|run| run.key == *key);
    let (Some(run), Some(known)) = (run, snapshot.slots.get(&place)) else { return over };
    let Ok(status @ (RunState::Pending | RunState::Triggering | RunState::Running)) =
        run.record.state()
    else {
        return over;
    };
    // Whatever is said, the day on which it must be over comes next.
    let closes = Subject::Slot(place.1.clone(), place.0);
    let closes = Obligation::new(known.slot.closes_at, DueKind::Closes, closes);
    let over = over.with(Remedy::Arm(closes));
    if snapshot.agenda.work == Work::Dormant {
        return over;
    }
    let age = duration::format_go(now.duration_since(run.record.created_at));
    let (pipeline, date) = (&snapshot.pipeline, known.slot.date);
    let run_id = key.id(pipeline);
    let what = format!("run stuck in {status} for {age} on {date}");
    let mut finding = Finding::of(name, "RUN_STUCK", pipeline)
        .about(&place, date)
        .due(due.at())
        .says(what.clone())
        .alerts(format!("Pipeline {pipeline} schedule {} {what}", place.1))
        .detail("status", status.as_str())
        .detail("duration", age.as_str())
        .detail("runId", run_id.as_str())
        .detail("actionHint", hint(status));
    finding.run_id = Some(run_id.clone());
    finding.remedies = over.remedies;
    match due.details.get("action").and_then(|action| action.as_str()) {
        Some("cancel") => {
            let reason = format!("stuck for {age}");
            let slot = SlotName { schedule: place.1.to_string(), nominal: place.0 };
            let ask = InboxRecord::Cancel { slot, reason };
            finding.with(Remedy::Ask(format!("stuck~{run_id}"), Box::new(ask)))
        }
        Some("fail") => fail(finding, (&place, known), run, (now, &format!("stuck for {age}"))),
        Some(_) | None => finding,
    }
}

fn hint(status: RunState) -> &'static str {
    match status {
        RunState::Pending | RunState::Triggering => {
            "The start was never confirmed: check the trigger and the system that runs the job."
        }
        RunState::Running
        | RunState::CompletedMonitoring
        | RunState::Completed
        | RunState::Failed
        | RunState::Cancelled => {
            "Read its log (`interlock logs`), or end it with `interlock cancel`."
        }
    }
}

/// Runs older than any run may be: the slot is failed, for good.
pub(super) fn stale_triggers(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let due = snapshot.due.iter().filter(|due| due.kind == DueKind::Closes);
    due.filter_map(|due| stale_trigger(snapshot, due, now)).collect()
}

fn stale_trigger(snapshot: &Snapshot, due: &Obligation, now: Timestamp) -> Option<Finding> {
    let name = CheckName::StaleTriggers;
    let over = Finding::silent(name, &snapshot.pipeline).with(Remedy::Drop(due.clone()));
    if let Subject::Run(key) = &due.subject {
        return overdue_run(snapshot, key, over, now);
    }
    let Subject::Slot(schedule, nominal) = &due.subject else { return Some(over) };
    let place = (*nominal, schedule.clone());
    let Some(known) = snapshot.slots.get(&place) else { return Some(over) };
    match known.slot.state {
        SlotState::Open(OpenState::Running) if now > known.slot.closes_at => {}
        // It went on to another attempt: its end is later.
        SlotState::Open(OpenState::Running) => {
            let next = due.moved_to(known.slot.closes_at);
            return (next != *due).then(|| over.with(Remedy::Arm(next)));
        }
        // One that a repair opened, and that of a dead-man's switch, are the other checks'.
        SlotState::Open(OpenState::Waiting)
            if known.slot.marks.recovered || snapshot.switch(schedule).is_some() =>
        {
            return None;
        }
        SlotState::Open(_) | SlotState::Closed(_) => return Some(over),
    }
    let (pipeline, date) = (&snapshot.pipeline, known.slot.date);
    let message = format!("step function timed out for {pipeline}/{schedule}/{date}");
    let finding = Finding::of(name, "SFN_TIMEOUT", pipeline)
        .about(&place, date)
        .due(known.slot.closes_at)
        .says(message.clone())
        .alerts(format!(
            "Pipeline {pipeline} schedule {schedule} did not end in time on {date}; its slot is closed as failed"
        ))
        .detail("source", "watchdog")
        .detail("status", FAILED_FINAL)
        .detail("ttlExpired", known.slot.closes_at.to_string())
        .detail(
            "actionHint",
            "Find out what became of its job, then run it again with `interlock rerun`.",
        )
        .with(Remedy::Drop(due.clone()));
    let run = snapshot.runs.get(&place);
    Some(match run {
        Some(run) => fail(finding, (&place, known), run, (now, "it did not end in time")),
        None => close(finding, &place, known, now),
    })
}

/// A run that somebody else runs and that has taken longer than it may, whatever became of its slot.
fn overdue_run(
    snapshot: &Snapshot,
    key: &RunKey,
    over: Finding,
    now: Timestamp,
) -> Option<Finding> {
    if snapshot.has_unapplied {
        // Its end may lie in the inbox.
        return None;
    }
    let place = (key.nominal, key.schedule.clone());
    let run = snapshot.limited.get(key);
    let (Some(run), Some(known)) = (run, snapshot.slots.get(&place)) else { return Some(over) };
    if !matches!(run.record.state(), Ok(RunState::Running)) {
        return Some(over);
    }
    let (pipeline, date) = (&snapshot.pipeline, known.slot.date);
    let began = run.record.started_at.unwrap_or(run.record.created_at);
    let age = duration::format_go(now.duration_since(began));
    let what = format!("run did not end in {age} on {date}");
    let mut finding = Finding::of(CheckName::StaleTriggers, "SFN_TIMEOUT", pipeline)
        .about(&place, date)
        .due(now)
        .says(what.clone())
        .alerts(format!("Pipeline {pipeline} schedule {} {what}", place.1))
        .detail("source", "watchdog")
        .detail("duration", age.as_str())
        .detail(
            "actionHint",
            "Check the job where it runs; `maxDuration` is how long it may take.",
        );
    finding.remedies = over.remedies;
    let failed = (now, "it did not end in time");
    // One that only waits is a switch's, and waits for another run than this.
    if known.slot.state == SlotState::Open(OpenState::Waiting) {
        return Some(fail_run(finding, run, failed));
    }
    Some(fail(finding.detail("status", FAILED_FINAL), (&place, known), run, failed))
}

/// Adds that slot and run are failed.
fn fail(
    finding: Finding,
    (place, known): (&Place, &Known),
    run: &RunRow,
    failed: (Timestamp, &str),
) -> Finding {
    fail_run(close(finding, place, known, failed.0), run, failed)
}

/// Adds that a run is failed.
fn fail_run(finding: Finding, run: &RunRow, (now, why): (Timestamp, &str)) -> Finding {
    let Ok(Ok(state)) = run.record.state().map(|state| state.apply(RunEvent::Failed)) else {
        return finding;
    };
    let record = RunRecord {
        status: state.as_str().into(),
        ended_at: run.record.ended_at.or(Some(now)),
        message: Some(why.to_owned()),
        category: Some("TIMEOUT".into()),
        ..run.record.clone()
    };
    let mut finding = finding;
    finding.run_id = Some(run.key.id(&run.pipeline));
    finding.with(Remedy::Run(run.key.clone(), run.revision, Box::new(record)))
}

fn close(finding: Finding, place: &Place, known: &Known, now: Timestamp) -> Finding {
    match known.slot.close(Disposition::Failed, now) {
        Ok(slot) => finding.with(Remedy::Slot(place.clone(), known.revision, Box::new(slot))),
        Err(_it_moved_on) => finding,
    }
}
