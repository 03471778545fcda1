//! What the rows of the ledger say, in words. `interlock why`, `slots`, `runs`, `events` and `incidents` print them, and
//! so do the simulator's scenarios: a newcomer who has read one can read the other.

mod absence;
mod table;

use interlock_core::{
    duration,
    id::{PipelineId, SlotKey},
};
use jiff::Timestamp;
use serde_json::Value;

pub use self::{
    absence::Absence,
    table::{
        INCIDENTS, RUNS, SLOTS, incident_row, layout, of_span_row, one_line, run_row, slot_row,
        span_row,
    },
};
use crate::{
    EventRow, LedgerEntry, LedgerRow, RunRow,
    check::whole_milliseconds,
    record::{MarksRecord, SlaRecord, SlotRecord, SpanRecord},
};

/// A report that could be placed nowhere.
pub const REPORT_REJECTED: &str = "REPORT_REJECTED";
/// The event that says that nothing came of a request.
pub const REQUEST_REJECTED: &str = "REQUEST_REJECTED";

/// An instant for people: nothing finer than a millisecond.
pub fn instant(at: Timestamp) -> String {
    whole_milliseconds(at).to_string()
}

/// Where a slot stands, in a word or two.
pub fn slot_state(slot: &SlotRecord) -> String {
    match (&slot.disposition, &slot.reason) {
        (None, _) => slot.state.to_string(),
        (Some(disposition), None) => disposition.to_string(),
        (Some(disposition), Some(reason)) => format!("{disposition} ({reason})"),
    }
}

/// How the slots of a span ended.
pub fn span_state(span: &SpanRecord) -> String {
    match &span.reason {
        None => span.disposition.to_string(),
        Some(reason) => format!("{} ({reason})", span.disposition),
    }
}

/// The marks of a slot.
pub fn marks(marks: &MarksRecord) -> Vec<String> {
    let mut words = Vec::new();
    words.extend(marks.missed_at.map(|at| format!("missed at {at}")));
    let set =
        [(marks.late, "late"), (marks.uncertain, "uncertain"), (marks.recovered, "recovered")];
    words.extend(set.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| (*word).to_owned()));
    words
}

/// What the ledger holds about one slot.
#[derive(Debug, Clone)]
pub struct Story {
    /// Which.
    pub key: SlotKey,
    /// Its row, or the span that covers it.
    pub entry: LedgerEntry,
    /// Its runs, in the order in which they were made.
    pub runs: Vec<RunRow>,
    /// What happened to it, oldest first.
    pub events: Vec<EventRow>,
}

impl Story {
    /// The story, line by line.
    pub fn lines(&self) -> Vec<String> {
        let key = &self.key;
        let mut lines = Vec::new();
        match &self.entry {
            LedgerEntry::Slot(slot) => {
                lines.push(format!("{key} is {}.", slot_state(slot)));
                lines.extend(about_slot(slot).into_iter().map(|line| format!("  {line}")));
            }
            LedgerEntry::Span(span) => lines.push(about_span(key, span)),
        }
        if !self.runs.is_empty() {
            lines.push("Runs:".to_owned());
        }
        lines.extend(self.runs.iter().map(|run| format!("  {}", about_run(run))));
        if !self.events.is_empty() {
            lines.push("Events:".to_owned());
        }
        lines.extend(self.events.iter().map(|event| format!("  {}", sentence(event))));
        lines
    }
}

fn about_slot(slot: &SlotRecord) -> Vec<String> {
    let mut lines = vec![format!(
        "It stands for {}; generation {} was opened at {} by {}.",
        slot.date, slot.generation, slot.opened_at, slot.opened_by
    )];
    if slot.is_open() {
        lines.push(format!("Unless something happens it is closed at {}.", slot.closes_at));
    }
    lines.extend(slot.retry_at.map(|at| format!("It is tried again at {at}.")));
    lines.extend(slot.sla.as_deref().into_iter().flat_map(promises));
    let marks = marks(&slot.marks);
    if !marks.is_empty() {
        lines.push(format!("It is marked {}.", marks.join(", ")));
    }
    lines
}

/// What a slot promised about time when it was opened.
fn promises(sla: &SlaRecord) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(sla.evaluation_at.map(|at| format!("It is to be evaluated by {at}.")));
    lines.extend(sla.breach_at.map(|at| match sla.warning_at {
        Some(warning) => format!("It is to be completed by {at}; from {warning} that is at risk."),
        None => format!("It is to be completed by {at}."),
    }));
    let budget = sla.duration_max.map(duration::format);
    lines.extend(budget.map(|budget| format!("It may take {budget} from its first sensor.")));
    lines
}

fn about_span(key: &SlotKey, span: &SpanRecord) -> String {
    format!(
        "{key} is {}: one of {} slots up to {} that were recorded together at {}.",
        span_state(span),
        span.count,
        span.last,
        span.recorded_at
    )
}

fn about_run(run: &RunRow) -> String {
    let record = &run.record;
    let id = run.key.id(&run.pipeline);
    let mut parts = vec![format!("{id} ({}) is {}", record.trigger_type, record.status)];
    parts.extend(record.started_at.map(|at| format!("started at {}", instant(at))));
    parts.extend(record.ended_at.map(|at| format!("ended at {}", instant(at))));
    let message = record.message.as_ref().map_or_else(String::new, |text| format!(": {text}"));
    format!("{}{message}", parts.join(", "))
}

/// An event as a line of text.
pub fn sentence(event: &EventRow) -> String {
    let record = &event.record;
    let about = record
        .run_id
        .clone()
        .or_else(|| record.slot.as_ref().map(|slot| format!("{}/{slot}", event.pipeline)));
    let about = about.unwrap_or_else(|| event.pipeline.to_string());
    let separator = if record.message.is_empty() { "" } else { ": " };
    let said = said(event);
    format!("{} {} {about}{separator}{}{said}", instant(record.at), record.kind, record.message)
}

/// What a report said that is not kept anywhere else, and who made it.
fn said(event: &EventRow) -> String {
    let record = &event.record;
    if record.kind == REQUEST_REJECTED {
        let word = record.details.get("request").and_then(|word| word.as_str());
        return word.map_or_else(String::new, |word| format!(" (somebody asked for `{word}`)"));
    }
    if record.kind != REPORT_REJECTED {
        return String::new();
    }
    let text = |name: &str| record.details.get(name).and_then(|value| value.as_str());
    let named = |name: &str| text(name).map(|value| format!("{name} {value}"));
    let said = text("said").map(|said| format!("it said {said}"));
    let at = text("reportedAt").map(|at| format!("at {at}"));
    let from = text("source").map(|source| format!("by {source}"));
    let parts: Vec<_> = [said, at, named("rid"), from].into_iter().flatten().collect();
    format!(" ({})", parts.join(", "))
}

/// What came of a request, in words: `: slot orders/manual/…`.
pub fn answer(result: &Value) -> String {
    let Some(fields) = result.as_object().filter(|fields| !fields.is_empty()) else {
        return String::new();
    };
    let parts = fields.iter().map(|(name, value)| format!("{name} {}", plain(value)));
    format!(": {}", parts.collect::<Vec<_>>().join(", "))
}

/// Why a request was refused.
pub fn refusal(result: &Value) -> String {
    result.get("reason").map_or_else(|| result.to_string(), plain)
}

/// A text without quotes, anything else as JSON.
pub fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Which events tell about a slot.
#[derive(Debug)]
pub struct About<'a> {
    pipeline: &'a PipelineId,
    /// As events name it.
    slot: String,
    /// What is said of many in a row is said under the last: of the spans that cover the slot, also if it has a row by now.
    lasts: Vec<String>,
}

impl<'a> About<'a> {
    /// Those about a slot, given what the ledger has at its instant.
    pub fn new(key: &'a SlotKey, rows: &[LedgerRow]) -> Self {
        let own = rows.iter().filter(|row| row.schedule == key.schedule);
        let lasts = own.filter_map(|row| match &row.entry {
            LedgerEntry::Span(span) => Some(format!("{}/{}", key.schedule, span.last)),
            LedgerEntry::Slot(_) => None,
        });
        let slot = format!("{}/{}", key.schedule, key.nominal);
        Self { pipeline: &key.pipeline, slot, lasts: lasts.collect() }
    }

    /// Whether an event is one of them.
    pub fn is_told_by(&self, event: &EventRow) -> bool {
        let is_absence = |kind: &str| {
            matches!(kind, "SCHEDULE_MISSED" | "SCHEDULE_UNKNOWN" | "IRREGULAR_SCHEDULE_MISSED")
        };
        let Some(slot) = event.record.slot.as_deref() else { return false };
        let is_of_span = || self.lasts.iter().any(|last| last == slot);
        event.pipeline == *self.pipeline
            && (slot == self.slot || (is_absence(&event.record.kind) && is_of_span()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_told_in_words() {
        assert_eq!(answer(&json!({ "slot": "a/b/c", "count": 2 })), ": count 2, slot a/b/c");
        assert_eq!(answer(&json!({})), "");
        assert_eq!(refusal(&json!({ "reason": "no" })), "no");
        assert_eq!(refusal(&json!(3)), "3");
    }
}
