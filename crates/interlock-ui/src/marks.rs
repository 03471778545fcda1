//! Which silhouette, word and colour a state has. Every word of the answers that is shown as a mark is here.

use interlock_answers::model::{
    incident::IncidentAnswer,
    pipeline::SlotStateAnswer,
    slot::{LedgerAnswer, SlotAnswer, SpanAnswer},
};

use crate::parts::{Glyph, Mark};

/// What decides how a slot looks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SlotLook<'a> {
    pub(crate) state: &'a str,
    pub(crate) disposition: Option<&'a str>,
    pub(crate) reason: Option<&'a str>,
    pub(crate) is_late: bool,
    pub(crate) opened_by: Option<&'a str>,
}

impl<'a> From<&'a SlotAnswer> for SlotLook<'a> {
    fn from(slot: &'a SlotAnswer) -> Self {
        Self {
            state: &slot.state,
            disposition: slot.disposition.as_deref(),
            reason: slot.reason.as_deref(),
            is_late: slot.marks.late,
            opened_by: slot.opened_by.as_deref(),
        }
    }
}

impl<'a> From<&'a SpanAnswer> for SlotLook<'a> {
    fn from(span: &'a SpanAnswer) -> Self {
        let (disposition, reason) = (Some(span.disposition.as_str()), span.reason.as_deref());
        Self { state: &span.state, disposition, reason, ..Self::default() }
    }
}

impl<'a> From<&'a SlotStateAnswer> for SlotLook<'a> {
    fn from(slot: &'a SlotStateAnswer) -> Self {
        let (disposition, reason) = (slot.disposition.as_deref(), slot.reason.as_deref());
        Self { state: &slot.state, disposition, reason, ..Self::default() }
    }
}

impl<'a> From<&'a LedgerAnswer> for SlotLook<'a> {
    fn from(item: &'a LedgerAnswer) -> Self {
        match item {
            LedgerAnswer::Slot(slot) => slot.into(),
            LedgerAnswer::Span(span) => span.into(),
        }
    }
}

/// The mark of a slot.
pub(crate) fn slot(look: SlotLook<'_>) -> Mark {
    let is_catchup = look.opened_by == Some("catchup");
    let Some(disposition) = look.disposition else {
        return match (look.state, is_catchup) {
            ("running", true) => Mark::new("m-catchrun", "Catching up", "is-catch"),
            ("running", false) => Mark::new("m-run", "Running", "is-run"),
            ("queued", true) => Mark::new("m-catchplan", "Queued", "is-catch"),
            ("queued", false) => Mark::new("m-wait", "Queued", "is-run"),
            ("backoff", _) => Mark::new("m-wait", "Waiting to retry", "is-run"),
            ("monitoring", _) => Mark::new("m-ok", "Completed, watched", ""),
            _ => Mark::new("m-wait", "Waiting", "is-run"),
        };
    };
    match disposition {
        "completed" if look.is_late => Mark::new("m-late", "Completed late", "is-late"),
        "completed" if is_catchup => Mark::new("m-catch", "Caught up", ""),
        "completed" => Mark::new("m-ok", "Completed", ""),
        "failed" => Mark::new("m-failed", "Failed", "is-failed"),
        "missed" => Mark::new("m-missed", "Missed", "is-missed"),
        "unknown" => Mark::new("m-unknown", "Unknown", "is-unknown"),
        "cancelled" => Mark::new("m-cancel", "Cancelled", ""),
        "skipped" => skipped(look.reason),
        other => Mark::new("m-none", other, ""),
    }
}

/// A skip says why. What was given up counts as missed, and keeps its own word.
fn skipped(reason: Option<&str>) -> Mark {
    let Some(reason) = reason else { return Mark::new("m-skipped", "Skipped", "") };
    let said = reason.replace('_', " ");
    match reason {
        "no_catchup" | "expired" | "capped" => {
            Mark::new("m-missed", format!("Skipped: {said}"), "is-missed")
        }
        _ => Mark::new("m-skipped", format!("Skipped: {said}"), ""),
    }
}

/// The mark of a run.
pub(crate) fn run(status: &str) -> Mark {
    match status {
        "PENDING" => Mark::new("m-wait", "Pending", "is-run"),
        "TRIGGERING" => Mark::new("m-run", "Starting", "is-run"),
        "RUNNING" => Mark::new("m-run", "Running", "is-run"),
        "COMPLETED_MONITORING" => Mark::new("m-ok", "Completed, watched", ""),
        "COMPLETED" => Mark::new("m-ok", "Completed", ""),
        "FAILED" => Mark::new("m-failed", "Failed", "is-failed"),
        "CANCELLED" => Mark::new("m-cancel", "Cancelled", ""),
        other => Mark::new("m-none", other, ""),
    }
}

/// The silhouette of an incident, by what opened it.
pub(crate) fn incident(incident: &IncidentAnswer) -> Glyph {
    let kind = incident.kind.as_str();
    Glyph(match kind {
        _ if kind.contains("UNKNOWN") || kind.contains("UNCERTAIN") => "m-unknown",
        _ if kind.contains("MISSED") || kind.contains("MISSING") || kind.contains("DEADLINE") => {
            "m-missed"
        }
        _ if kind.contains("SLA") || kind.contains("STUCK") => "m-risk",
        "PIPELINE_PAUSED" => "m-pause",
        _ if kind.contains("FAILED") || kind.contains("EXHAUSTED") || kind.contains("TIMEOUT") => {
            "m-failed"
        }
        _ if incident.level == "error" => "m-failed",
        _ => "m-risk",
    })
}

/// A word of the record as people read it: `RETRY_EXHAUSTED` is "Retry exhausted".
pub(crate) fn said(kind: &str) -> String {
    let mut text = kind.replace('_', " ").to_lowercase();
    if let Some(first) = text.get_mut(0..1) {
        first.make_ascii_uppercase();
    }
    text.replace("Sla ", "SLA ").replace("Sfn timeout", "Timed out")
}

/// The silhouette of an event.
pub(crate) fn event(kind: &str) -> Glyph {
    Glyph(match kind {
        "SLOT_OPENED" | "SLOTS_OPENED" | "PIPELINE_DECLARED" => "m-plan",
        "JOB_TRIGGERED" | "JOB_STARTED" | "RUN_STARTED" => "m-run",
        "JOB_COMPLETED" | "MONITORING_COMPLETED" | "SLA_MET" | "POST_RUN_PASSED" => "m-ok",
        "VALIDATION_EXHAUSTED" | "SLOT_SKIPPED" | "SLOTS_SKIPPED" => "m-skipped",
        "RETRY_SCHEDULED" => "i-retry",
        "CATCHUP_QUEUED" | "CATCHUP_PLANNED" | "CATCHUP_BEGINS" | "CATCHUP_SUMMARY" => "m-catch",
        "INCIDENT_ACKNOWLEDGED" | "INCIDENT_NOTED" | "INCIDENT_RESOLVED" => "i-hand",
        "SLOT_CANCELLED" | "JOB_CANCELLED" | "CANCEL_REQUESTED" => "m-cancel",
        "PIPELINE_PAUSED" | "PIPELINE_RESUMED" => "m-pause",
        "RERUN_ACCEPTED" | "BACKFILL_STARTED" => "i-stack",
        "SENSOR_ARRIVED" | "SENSOR_REPORTED" => "i-sensor",
        _ if kind.contains("UNKNOWN") || kind.contains("UNCERTAIN") => "m-unknown",
        _ if kind.contains("MISSED") => "m-missed",
        _ if kind.contains("SLA") => "m-risk",
        _ if kind.contains("FAILED") || kind.contains("EXHAUSTED") || kind.contains("TIMEOUT") => {
            "m-failed"
        }
        _ => "m-none",
    })
}
