//! The cast: pipelines, instants and records that cases speak of.

use std::collections::BTreeMap;

use interlock_core::id::{PipelineId, ScheduleId};
use jiff::{SignedDuration, Timestamp, civil::date};
use serde_json::{Value, json};

use interlock_store::{
    DueKind, Key, RunKey,
    record::{
        AppliedRecord, BackfillCounts, BackfillRecord, DueRecord, EventRecord, IncidentRecord,
        MarksRecord, OutboxRecord, PipelineRecord, Record, RunRecord, SensorRecord, SlotRecord,
        SpanRecord, WatermarkRecord,
    },
};

/// A good instant for a clock to start at: 2026-02-25T09:00:00Z.
pub const START: Timestamp = Timestamp::constant(1_772_010_000, 0);

/// Longer than any case takes.
pub(super) const LONG: SignedDuration = SignedDuration::from_hours(1);

/// Short enough to wait for on a clock that cannot be moved.
pub(super) const SHORT: SignedDuration = SignedDuration::from_millis(20);

/// Certainly past [`SHORT`].
pub(super) const PAST_SHORT: SignedDuration = SignedDuration::from_millis(30);

pub(super) fn pipeline(name: &str) -> PipelineId {
    PipelineId::parse(name).expect("the suite names pipelines well")
}

pub(super) fn orders() -> PipelineId {
    pipeline("orders")
}

pub(super) fn schedule(name: &str) -> ScheduleId {
    ScheduleId::any(name).expect("the suite names schedules well")
}

pub(super) fn daily() -> ScheduleId {
    schedule("daily")
}

/// An instant so many minutes after [`START`].
pub(super) fn minute(minutes: i64) -> Timestamp {
    START + SignedDuration::from_mins(minutes)
}

pub(super) fn slot_key(minutes: i64) -> Key {
    Key::Slot(daily(), minute(minutes))
}

pub(super) fn open_slot() -> SlotRecord {
    SlotRecord {
        state: "waiting".into(),
        disposition: None,
        reason: None,
        generation: 1,
        attempt: 0,
        opened_by: "scheduler".into(),
        date: date(2026, 2, 25),
        opened_at: START,
        closes_at: minute(60),
        retry_at: None,
        marks: MarksRecord::default(),
        version: "00000000000000ab".into(),
        wish: None,
        reruns: None,
        sla: None,
        evaluated: None,
    }
}

/// A slot of [`START`] that is over.
pub fn closed_slot(disposition: &'static str) -> SlotRecord {
    SlotRecord {
        state: "closed".into(),
        disposition: Some(disposition.into()),
        reason: (disposition == "skipped").then(|| "overlap".into()),
        ..open_slot()
    }
}

/// An open slot as a row.
pub(super) fn open() -> Record {
    Record::Slot(open_slot().into())
}

/// A closed slot as a row.
pub(super) fn closed(disposition: &'static str) -> Record {
    Record::Slot(closed_slot(disposition).into())
}

pub(super) fn span(last: Timestamp, disposition: &'static str) -> Record {
    Record::Span(
        SpanRecord {
            last,
            count: 7,
            disposition: disposition.into(),
            reason: None,
            version: "00000000000000ab".into(),
            recorded_at: START,
        }
        .into(),
    )
}

pub(super) fn run_key(minutes: i64, attempt: u32) -> RunKey {
    RunKey { schedule: daily(), nominal: minute(minutes), generation: 1, attempt }
}

pub(super) fn run(
    status: &'static str,
    trigger_type: &'static str,
    created_at: Timestamp,
) -> Record {
    Record::Run(
        RunRecord {
            status: status.into(),
            trigger_type: trigger_type.into(),
            created_at,
            started_at: None,
            ended_at: None,
            message: None,
            category: None,
            metadata: BTreeMap::new(),
        }
        .into(),
    )
}

pub(super) fn sensor(value: Value) -> Record {
    Record::Sensor(
        SensorRecord { value, at: START, received_at: minute(1), unheeded: false }.into(),
    )
}

pub(super) fn sensor_key(name: &str) -> Key {
    Key::Sensor(name.into())
}

pub(super) fn pipeline_row() -> Record {
    Record::Pipeline(
        PipelineRecord {
            version: "00000000000000ab".into(),
            first_seen: START,
            retired_at: None,
            disabled_since: None,
            pause: None,
            agenda: None,
            about: None,
        }
        .into(),
    )
}

pub(super) fn watermark(at: Timestamp) -> Record {
    Record::Watermark(WatermarkRecord { at })
}

/// An incident that is open since an instant.
pub fn open_incident(opened_at: Timestamp) -> IncidentRecord {
    IncidentRecord {
        state: "open".into(),
        kind: "SCHEDULE_MISSED".into(),
        level: "error".into(),
        message: "nothing came".into(),
        details: BTreeMap::new(),
        opened_at,
        updated_at: opened_at,
        count: 1,
        told: None,
        acknowledged: None,
        resolved: None,
        openings: Box::default(),
    }
}

pub(super) fn incident(opened_at: Timestamp) -> Record {
    Record::Incident(open_incident(opened_at).into())
}

/// A backfill of a day that stands like this.
pub(super) fn backfill(state: &str) -> BackfillRecord {
    BackfillRecord {
        state: state.into(),
        from: START,
        to: minute(24 * 60),
        schedules: vec!["daily".into()],
        reprocess: "missing".into(),
        order: "asc".into(),
        concurrency: 2,
        reason: String::new(),
        by: String::new(),
        total: 1,
        plan: "cbf29ce484222325".into(),
        since: START,
        updated_at: START,
        ended_at: None,
        cursor: None,
        open: vec![],
        counts: BackfillCounts::default(),
        opened: "cbf29ce484222325".into(),
        ends_runs: false,
    }
}

pub(super) fn due_key(minutes: i64, name: &str) -> Key {
    Key::Due(minute(minutes), DueKind::Closes, name.into())
}

pub(super) fn due() -> Record {
    Record::Due(DueRecord { details: BTreeMap::from([("slot".into(), json!("daily"))]) })
}

pub(super) fn outbox(not_before: Timestamp) -> OutboxRecord {
    OutboxRecord {
        channel: "console".into(),
        alert: json!({"level": "error"}).into(),
        tries: 0,
        not_before,
        claimed_until: None,
        last_error: None,
        dead: false,
        after: None,
        held: None,
    }
}

pub(super) fn outbox_key(name: &str) -> Key {
    Key::Outbox(name.into())
}

pub(super) fn applied(result: Value) -> Record {
    Record::Applied(AppliedRecord { at: START, accepted: true, result, request: None }.into())
}

pub(super) fn applied_key(name: &str) -> Key {
    Key::Applied(name.into())
}

pub(super) fn event(message: &str) -> EventRecord {
    EventRecord {
        kind: "SLOT_OPENED".into(),
        at: START,
        slot: None,
        run_id: None,
        message: message.into(),
        details: BTreeMap::new(),
    }
}
