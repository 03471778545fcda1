//! A batch as it travels: the rows of each table, encoded before the server waits for them.

use interlock_store::{Record, RunKey};

use crate::{
    batch::Batch,
    rows::{Cell, Rows, date, instant, json, maybe, number, text},
    table::{EVENTS, INCIDENTS, RUN_LOGS, RUNS, SLOTS, SPANS},
};

/// What one transaction writes.
#[derive(Debug)]
pub(crate) struct Load {
    /// Appended: none of them is there.
    pub(crate) events: Rows,
    /// Written over older looks at the same things, table by table.
    pub(crate) tables: [Rows; 5],
    /// How many rows that are, besides events; the run logs follow from slots and do not count.
    pub(crate) rows: u64,
}

impl Load {
    /// The rows of a batch.
    pub(crate) fn of(batch: &Batch) -> Self {
        Self {
            events: events(batch),
            tables: [runs(batch), slots(batch), run_logs(batch), spans(batch), incidents(batch)],
            rows: (batch.len() - batch.events.len()) as u64,
        }
    }
}

fn events(batch: &Batch) -> Rows {
    let mut table = Rows::of(EVENTS);
    for event in &batch.events {
        table.push([
            Cell::Large(event.number),
            text(&event.pipeline),
            text(&event.kind),
            instant(Some(event.at)),
            maybe(event.slot.as_deref()),
            maybe(event.run_id.as_deref()),
            text(&event.message),
            json(event.details.clone()),
        ]);
    }
    table
}

fn runs(batch: &Batch) -> Rows {
    let mut table = Rows::of(RUNS);
    for (id, (pipeline, key, run)) in &batch.runs {
        table.push([
            text(id),
            text(pipeline.as_str()),
            text(key.schedule.as_str()),
            instant(Some(key.nominal)),
            number(key.generation),
            number(key.attempt),
            text(&run.status),
            text(&run.trigger_type),
            instant(Some(run.created_at)),
            instant(run.started_at),
            instant(run.ended_at),
            maybe(run.message.as_deref()),
            maybe(run.category.as_deref()),
            json(serde_json::json!(run.metadata).to_string()),
        ]);
    }
    table
}

fn slots(batch: &Batch) -> Rows {
    let mut table = Rows::of(SLOTS);
    for ((pipeline, schedule, nominal), slot) in &batch.slots {
        table.push([
            text(pipeline.as_str()),
            text(schedule.as_str()),
            instant(Some(*nominal)),
            date(slot.date),
            text(&slot.state),
            maybe(slot.disposition.as_deref()),
            maybe(slot.reason.as_deref()),
            number(slot.generation),
            number(slot.attempt),
            text(&slot.opened_by),
            instant(Some(slot.opened_at)),
            instant(slot.marks.missed_at),
            Cell::Flag(slot.marks.late),
            Cell::Flag(slot.marks.uncertain),
            instant(slot.sla.as_ref().and_then(|sla| sla.breach_at)),
            text(&slot.version),
            json(Record::Slot(slot.clone().into()).encode()),
        ]);
    }
    table
}

fn run_logs(batch: &Batch) -> Rows {
    let mut table = Rows::of(RUN_LOGS);
    for ((pipeline, day, schedule), (nominal, slot)) in &batch.run_logs {
        let run = RunKey {
            schedule: schedule.clone(),
            nominal: *nominal,
            generation: slot.generation,
            attempt: slot.attempt,
        };
        let run_id = (slot.attempt > 0).then(|| run.id(pipeline));
        table.push([
            text(pipeline.as_str()),
            date(*day),
            text(schedule.as_str()),
            instant(Some(*nominal)),
            text(&slot.wire_status()),
            number(slot.attempt),
            maybe(run_id.as_deref()),
            instant(Some(slot.opened_at)),
        ]);
    }
    table
}

fn spans(batch: &Batch) -> Rows {
    let mut table = Rows::of(SPANS);
    for ((pipeline, schedule, first), span) in &batch.spans {
        table.push([
            text(pipeline.as_str()),
            text(schedule.as_str()),
            instant(Some(*first)),
            instant(Some(span.last)),
            Cell::Large(span.count as i64),
            text(&span.disposition),
            maybe(span.reason.as_deref()),
            text(&span.version),
            instant(Some(span.recorded_at)),
        ]);
    }
    table
}

fn incidents(batch: &Batch) -> Rows {
    let mut table = Rows::of(INCIDENTS);
    for ((pipeline, key), incident) in &batch.incidents {
        table.push([
            text(pipeline.as_str()),
            text(key),
            text(&incident.state),
            text(&incident.kind),
            text(&incident.level),
            text(&incident.message),
            instant(Some(incident.opened_at)),
            instant(Some(incident.updated_at)),
            Cell::Large(incident.count as i64),
            json(Record::Incident(incident.clone().into()).encode()),
        ]);
    }
    table
}
