//! Rows of the store as rows of the archive: pure, and each only once.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    Key, Record, RunKey, StoredRow,
    record::{EventRecord, IncidentRecord, RunRecord, SlotRecord, SpanRecord},
};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    json::{Json, clean},
    reading::Read,
};

/// What one transaction writes.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) events: Vec<Event>,
    pub(crate) runs: BTreeMap<String, (PipelineId, RunKey, RunRecord)>,
    pub(crate) slots: BTreeMap<(PipelineId, ScheduleId, Timestamp), SlotRecord>,
    /// By pipeline, date and schedule: the last slot.
    pub(crate) run_logs: BTreeMap<(PipelineId, String, ScheduleId), (Timestamp, SlotRecord)>,
    pub(crate) spans: BTreeMap<(PipelineId, ScheduleId, Timestamp), SpanRecord>,
    pub(crate) incidents: BTreeMap<(PipelineId, String), IncidentRecord>,
}

/// An event as it is archived.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) number: i64,
    pub(crate) pipeline: String,
    pub(crate) kind: String,
    pub(crate) at: SystemTime,
    pub(crate) slot: Option<String>,
    pub(crate) run_id: Option<String>,
    pub(crate) message: String,
    pub(crate) details: Json,
}

impl Batch {
    /// The rows of what was read; of several looks at one row the last.
    pub(crate) fn of(read: Read) -> Self {
        let mut batch = Self::default();
        let event = |(number, pipeline, record)| Event::of(number, &pipeline, record);
        let events = read.events.into_iter().map(|row| (row.number, row.pipeline, row.record));
        batch.events = events.map(event).collect();
        for StoredRow { pipeline, key, row } in read.rows {
            batch.take(pipeline, key, row.record);
        }
        batch
    }

    fn take(&mut self, pipeline: PipelineId, key: Key, record: Record) {
        match (key, record) {
            (Key::Run(key), Record::Run(record)) => {
                self.runs.insert(key.id(&pipeline), (pipeline, key, record));
            }
            (Key::Slot(schedule, nominal), Record::Slot(record)) => {
                let day = (pipeline.clone(), record.date.to_string(), schedule.clone());
                let known = self.run_logs.get(&day);
                if known.is_none_or(|(last, _)| *last <= nominal) {
                    self.run_logs.insert(day, (nominal, record.clone()));
                }
                self.slots.insert((pipeline, schedule, nominal), record);
            }
            (Key::Span(schedule, first), Record::Span(record)) => {
                self.spans.insert((pipeline, schedule, first), record);
            }
            (Key::Incident(key), Record::Incident(record)) => {
                self.incidents.insert((pipeline, key), record);
            }
            // Nothing else is archived.
            _ => {}
        }
    }

    /// How many rows it has, each table's counted.
    pub(crate) fn len(&self) -> usize {
        self.events.len()
            + self.runs.len()
            + self.slots.len()
            + self.spans.len()
            + self.incidents.len()
    }
}

impl Event {
    fn of(number: u64, pipeline: &PipelineId, record: EventRecord) -> Self {
        let EventRecord { kind, at, slot, run_id, message, details } = record;
        Self {
            number: number as i64,
            pipeline: pipeline.to_string(),
            kind: clean(&kind),
            at: system(at),
            slot: slot.as_deref().map(clean),
            run_id: run_id.as_deref().map(clean),
            message: clean(&message),
            details: Json::of(details.into_iter().collect::<serde_json::Map<String, Value>>()),
        }
    }
}

/// An instant as the database's client takes it, in whole microseconds.
pub(crate) fn system(at: Timestamp) -> SystemTime {
    let micros = at.as_microsecond();
    let length = Duration::from_micros(micros.unsigned_abs());
    if micros < 0 { SystemTime::UNIX_EPOCH - length } else { SystemTime::UNIX_EPOCH + length }
}
