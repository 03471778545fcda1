//! Rows of the store as rows of the archive: pure, and each only once.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    Key, Record, RunKey, StoredRow,
    record::{EventRecord, IncidentRecord, RunRecord, SlotRecord, SpanRecord},
};
use jiff::{Timestamp, civil::Date};
use serde_json::Value;

use crate::reading::Read;

/// What one transaction writes.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) events: Vec<Event>,
    pub(crate) runs: BTreeMap<String, (PipelineId, RunKey, RunRecord)>,
    pub(crate) slots: BTreeMap<(PipelineId, ScheduleId, Timestamp), SlotRecord>,
    /// By pipeline, date and schedule: the last slot.
    pub(crate) run_logs: BTreeMap<(PipelineId, Date, ScheduleId), (Timestamp, SlotRecord)>,
    pub(crate) spans: BTreeMap<(PipelineId, ScheduleId, Timestamp), SpanRecord>,
    pub(crate) incidents: BTreeMap<(PipelineId, String), IncidentRecord>,
}

/// An event as it is archived.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) number: i64,
    pub(crate) pipeline: String,
    pub(crate) kind: String,
    pub(crate) at: Timestamp,
    pub(crate) slot: Option<String>,
    pub(crate) run_id: Option<String>,
    pub(crate) message: String,
    pub(crate) details: String,
}

impl Batch {
    /// The rows of what was read; of several looks at one row the last.
    pub(crate) fn of(read: Read) -> Self {
        let mut batch = Self::default();
        let event = |(number, pipeline, record)| Event::of(number, &pipeline, record);
        let events = read.events.into_iter();
        let events = events.map(|row| (row.number, row.pipeline, Arc::unwrap_or_clone(row.record)));
        batch.events = events.map(event).collect();
        for StoredRow { pipeline, key, row } in read.rows {
            batch.take(pipeline, key, row.record);
        }
        batch
    }

    fn take(&mut self, pipeline: PipelineId, key: Key, record: Record) {
        match (key, record) {
            (Key::Run(key), Record::Run(record)) => {
                self.runs.insert(key.id(&pipeline), (pipeline, key, Arc::unwrap_or_clone(record)));
            }
            (Key::Slot(schedule, nominal), Record::Slot(record)) => {
                let day = (pipeline.clone(), record.date, schedule.clone());
                let known = self.run_logs.get(&day);
                if known.is_none_or(|(last, _)| *last <= nominal) {
                    self.run_logs.insert(day, (nominal, record.as_ref().clone()));
                }
                self.slots.insert((pipeline, schedule, nominal), Arc::unwrap_or_clone(record));
            }
            (Key::Span(schedule, first), Record::Span(record)) => {
                self.spans.insert((pipeline, schedule, first), Arc::unwrap_or_clone(record));
            }
            (Key::Incident(key), Record::Incident(record)) => {
                self.incidents.insert((pipeline, key), Arc::unwrap_or_clone(record));
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
        let details: serde_json::Map<String, Value> = details.into_iter().collect();
        Self {
            number: number as i64,
            pipeline: pipeline.to_string(),
            kind: kind.to_string(),
            at,
            slot,
            run_id,
            message,
            details: Value::from(details).to_string(),
        }
    }
}
