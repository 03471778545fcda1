//! Rows of the ledger as rows of a table.

use interlock_core::id::{PipelineId, SlotKey};
use jiff::Timestamp;

use super::{instant, marks, slot_state, span_state};
use crate::{
    RunRow,
    record::{IncidentRecord, SlotRecord, SpanRecord},
};

/// What stands over slots.
pub const SLOTS: [&str; 6] = ["PIPELINE", "SCHEDULE", "SLOT", "STATE", "RUNS", "NOTE"];
/// What stands over runs.
pub const RUNS: [&str; 6] = ["RUN", "STATUS", "TYPE", "STARTED", "ENDED", "MESSAGE"];
/// What stands over incidents.
pub const INCIDENTS: [&str; 8] =
    ["STATE", "LEVEL", "KIND", "PIPELINE", "SINCE", "COUNT", "KEY", "MESSAGE"];

/// Headings and rows as lines, columns as wide as they need to be.
pub fn layout<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> (String, Vec<String>) {
    let mut widths = headings.map(|heading| heading.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let rows = rows.iter().map(|row| line(row.each_ref().map(String::as_str))).collect();
    (line(headings), rows)
}

/// A slot with so many runs.
pub fn slot_row(key: &SlotKey, slot: &SlotRecord, runs: usize) -> [String; 6] {
    row(key, slot_state(slot), runs.to_string(), note(slot))
}

/// One slot of a span.
pub fn of_span_row(key: &SlotKey, span: &SpanRecord) -> [String; 6] {
    row(key, span_state(span), String::new(), String::new())
}

/// A whole span.
pub fn span_row(key: &SlotKey, span: &SpanRecord) -> [String; 6] {
    let note = format!("{} slots, until {}", span.count, span.last);
    row(key, span_state(span), String::new(), note)
}

fn row(key: &SlotKey, state: String, runs: String, note: String) -> [String; 6] {
    let SlotKey { pipeline, schedule, nominal } = key;
    [pipeline.to_string(), schedule.to_string(), nominal.to_string(), state, runs, note]
}

/// What else is to be known of a slot.
fn note(slot: &SlotRecord) -> String {
    let mut notes = Vec::new();
    if slot.generation > 1 {
        notes.push(format!("generation {}", slot.generation));
    }
    if slot.is_open() {
        notes.push(format!("closes at {}", slot.closes_at));
    }
    notes.extend(slot.retry_at.map(|at| format!("tried again at {at}")));
    notes.extend(marks(&slot.marks));
    notes.join(", ")
}

/// A run.
pub fn run_row(run: &RunRow) -> [String; 6] {
    let record = &run.record;
    let shown = |at: Option<Timestamp>| at.map_or_else(String::new, instant);
    [
        run.key.id(&run.pipeline),
        record.status.to_string(),
        record.trigger_type.to_string(),
        shown(record.started_at),
        shown(record.ended_at),
        record.message.clone().unwrap_or_default(),
    ]
}

/// An incident; with why nobody was told of it, if there is a reason.
pub fn incident_row(
    pipeline: &PipelineId,
    key: &str,
    record: &IncidentRecord,
    held: Option<&str>,
) -> [String; 8] {
    let hand = record.resolved.as_ref().or(record.acknowledged.as_ref());
    let mut message = one_line(&record.message);
    if let Some(hand) = hand {
        let note = hand.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        message = one_line(&format!("{message} [{}{note}]", hand.by));
    }
    if let Some(held) = held {
        message = one_line(&format!("{message} [nobody was told: {held}]"));
    }
    [
        record.state.to_string(),
        record.level.to_string(),
        record.kind.to_string(),
        pipeline.to_string(),
        instant(record.opened_at),
        record.count.to_string(),
        key.to_owned(),
        message,
    ]
}

/// What others wrote, in one line and without control characters.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
