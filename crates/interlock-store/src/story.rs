//! What the rows of the ledger say, in words, for messages about them; whole answers are made by `interlock-answers`.

mod table;

use interlock_core::id::{PipelineId, SlotKey};
use jiff::Timestamp;
use serde_json::Value;

pub use self::table::{layout, one_line};
use crate::{
    EventRow, LedgerEntry, LedgerRow,
    check::whole_milliseconds,
    record::{SlotRecord, SpanRecord},
};

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
