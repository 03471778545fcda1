//! The JSON of ledger rows that scripts rely on. Its shapes are documented in `docs/json.md` and pinned by
//! the tests of the commands.

use interlock_core::{id::SlotKey, slot::wire_status};
use interlock_store::{
    BackfillRow, EventRow, LedgerRow, OutboxRow, RunRow,
    record::{HandRecord, MarksRecord, SensorRecord, SlaRecord, SlotRecord, SpanRecord},
};
use jiff::{SignedDuration, civil::Date};
use serde_json::{Value, json};

use crate::ledger::IncidentRow;

/// The name of a ledger row's slot, or of its span's first.
pub(crate) fn slot_key(row: &LedgerRow) -> SlotKey {
    let LedgerRow { pipeline, schedule, nominal, .. } = row;
    SlotKey { pipeline: pipeline.clone(), schedule: schedule.clone(), nominal: *nominal }
}

/// A slot with a row of its own.
pub(crate) fn slot(key: &SlotKey, slot: &SlotRecord, runs: &[RunRow]) -> Value {
    let closes_at = slot.is_open().then_some(slot.closes_at);
    json!({
        "pipeline": key.pipeline.as_str(),
        "schedule": key.schedule.as_str(),
        "slot": key.to_string(),
        "utc": key.nominal.to_string(),
        "date": slot.date.to_string(),
        "state": slot.state,
        "disposition": slot.disposition,
        "reason": slot.reason,
        "status": slot.wire_status(),
        "marks": marks(&slot.marks),
        "generation": slot.generation,
        "attempt": slot.attempt,
        "openedBy": slot.opened_by,
        "openedAt": slot.opened_at.to_string(),
        "closesAt": closes_at.map(|at| at.to_string()),
        "retryAt": slot.retry_at.map(|at| at.to_string()),
        "version": slot.version,
        "sla": slot.sla.as_deref().map(sla),
        "runs": runs.iter().map(run_of_slot).collect::<Vec<_>>(),
    })
}

/// A backfill, and when it may be done.
pub(crate) fn backfill(row: &BackfillRow, eta: Option<SignedDuration>) -> Value {
    let it = &row.record;
    let slot = |schedule: &str, nominal| format!("{schedule}/{nominal}");
    json!({
        "pipeline": row.pipeline.as_str(),
        "id": row.number,
        "state": it.state,
        "from": it.from.to_string(),
        "to": it.to.to_string(),
        "schedules": it.schedules,
        "reprocess": it.reprocess,
        "order": it.order,
        "concurrency": it.concurrency,
        "reason": it.reason,
        "by": it.by,
        "plan": it.plan,
        "total": it.total,
        "opened": it.counts.opened,
        "passed": it.counts.passed,
        "completed": it.counts.completed,
        "failed": it.counts.failed,
        "cancelled": it.counts.cancelled,
        "skipped": it.counts.skipped,
        "open": it.open.iter().map(|it| slot(&it.schedule, it.nominal)).collect::<Vec<_>>(),
        "cursor": it.cursor.as_ref().map(|it| slot(&it.schedule, it.nominal)),
        "startedAt": it.since.to_string(),
        "updatedAt": it.updated_at.to_string(),
        "endedAt": it.ended_at.map(|at| at.to_string()),
        "etaSeconds": eta.map(|eta| eta.as_secs()),
    })
}

/// What a slot promises about time.
fn sla(sla: &SlaRecord) -> Value {
    let seconds = |duration: Option<SignedDuration>| duration.map(|duration| duration.as_secs());
    json!({
        "evaluationAt": sla.evaluation_at.map(|at| at.to_string()),
        "warningAt": sla.warning_at.map(|at| at.to_string()),
        "breachAt": sla.breach_at.map(|at| at.to_string()),
        "maxDurationSeconds": seconds(sla.duration_max),
        "expectedDurationSeconds": seconds(sla.expected_duration),
    })
}

/// One slot of a span.
pub(crate) fn slot_of_span(key: &SlotKey, date: Date, span: &SpanRecord) -> Value {
    json!({
        "pipeline": key.pipeline.as_str(),
        "schedule": key.schedule.as_str(),
        "slot": key.to_string(),
        "utc": key.nominal.to_string(),
        "date": date.to_string(),
        "state": "closed",
        "disposition": span.disposition,
        "reason": span.reason,
        "status": wire_status("closed", Some(&span.disposition)),
        "marks": marks(&MarksRecord::default()),
        "generation": 0,
        "attempt": 0,
        "openedBy": null,
        "openedAt": null,
        "closesAt": null,
        "retryAt": null,
        "version": span.version,
        "sla": null,
        "runs": [],
    })
}

/// Many slots in a row with the same fate.
pub(crate) fn span(key: &SlotKey, span: &SpanRecord) -> Value {
    json!({
        "pipeline": key.pipeline.as_str(),
        "schedule": key.schedule.as_str(),
        "first": key.nominal.to_string(),
        "last": span.last.to_string(),
        "count": span.count,
        "state": "closed",
        "disposition": span.disposition,
        "reason": span.reason,
        "status": wire_status("closed", Some(&span.disposition)),
        "version": span.version,
        "recordedAt": span.recorded_at.to_string(),
    })
}

fn marks(marks: &MarksRecord) -> Value {
    json!({
        "missedAt": marks.missed_at.map(|at| at.to_string()),
        "late": marks.late,
        "uncertain": marks.uncertain,
        "recovered": marks.recovered,
    })
}

/// A run within its slot.
fn run_of_slot(run: &RunRow) -> Value {
    json!({
        "id": run.key.id(&run.pipeline),
        "generation": run.key.generation,
        "attempt": run.key.attempt,
        "status": run.record.status,
        "triggerType": run.record.trigger_type,
        "startedAt": run.record.started_at.map(|at| at.to_string()),
        "endedAt": run.record.ended_at.map(|at| at.to_string()),
    })
}

/// A run by itself.
pub(crate) fn run(run: &RunRow) -> Value {
    let key = SlotKey {
        pipeline: run.pipeline.clone(),
        schedule: run.key.schedule.clone(),
        nominal: run.key.nominal,
    };
    json!({
        "id": run.key.id(&run.pipeline),
        "pipeline": key.pipeline.as_str(),
        "schedule": key.schedule.as_str(),
        "slot": key.to_string(),
        "utc": key.nominal.to_string(),
        "generation": run.key.generation,
        "attempt": run.key.attempt,
        "status": run.record.status,
        "triggerType": run.record.trigger_type,
        "createdAt": run.record.created_at.to_string(),
        "startedAt": run.record.started_at.map(|at| at.to_string()),
        "endedAt": run.record.ended_at.map(|at| at.to_string()),
        "message": run.record.message,
        "category": run.record.category,
        "metadata": run.record.metadata,
    })
}

/// An event.
pub(crate) fn event(event: &EventRow) -> Value {
    let record = &event.record;
    json!({
        "number": event.number,
        "pipeline": event.pipeline.as_str(),
        "kind": record.kind,
        "at": record.at.to_string(),
        "slot": record.slot,
        "runId": record.run_id,
        "message": record.message,
        "details": record.details,
    })
}

/// An incident, and why nobody was told of it, if so.
pub(crate) fn incident((pipeline, key, row): &IncidentRow, held: Option<&str>) -> Value {
    let record = &row.record;
    json!({
        "key": key,
        "pipeline": pipeline.as_str(),
        "state": record.state,
        "level": record.level,
        "kind": record.kind,
        "message": record.message,
        "details": record.details,
        "count": record.count,
        "openedAt": record.opened_at.to_string(),
        "updatedAt": record.updated_at.to_string(),
        "acknowledged": record.acknowledged.as_deref().map(hand),
        "resolved": record.resolved.as_deref().map(hand),
        "held": held,
    })
}

/// What a person did with an incident.
fn hand(hand: &HandRecord) -> Value {
    json!({ "at": hand.at.to_string(), "by": hand.by, "note": hand.note })
}

/// An alert that was given up.
pub(crate) fn dead_letter(row: &OutboxRow) -> Value {
    json!({
        "name": row.name,
        "pipeline": row.pipeline.as_str(),
        "channel": row.record.channel,
        "tries": row.record.tries,
        "error": row.record.last_error,
        "alert": row.record.alert.as_ref(),
    })
}

/// A sensor.
pub(crate) fn sensor(key: &str, sensor: &SensorRecord) -> Value {
    json!({
        "key": key,
        "value": sensor.value,
        "at": sensor.at.to_string(),
        "receivedAt": sensor.received_at.to_string(),
    })
}
