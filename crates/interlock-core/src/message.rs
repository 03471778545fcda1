//! What each kind of event means, and what to do about those that open an incident: `docs/messages.md` is made of it, and alerts say
//! it and link to it.
//!
//! The sentences themselves are made where the events are; a test holds the examples here against them. What became of a slot is said
//! by `interlock_answers::words`.

mod events;
mod runbooks;

use std::borrow::Cow;

pub use self::{
    events::{EVENTS, EventKind, LOG_EVENTS},
    runbooks::{RUNBOOKS, Runbook, UNRECORDED},
};

/// The page that has a section for each kind.
pub const PAGE: &str = "docs/messages.md";
/// The detail of an alert with one sentence on what to do.
pub const ACTION: &str = "actionHint";
/// The detail of an alert that says where its runbook is.
pub const RUNBOOK: &str = "runbook";

/// What is to be done about the incidents of a kind of event, or an alert type that no event opens.
pub fn runbook(kind: &str) -> Option<&'static Runbook> {
    RUNBOOKS.iter().chain(UNRECORDED).find(|runbook| runbook.kind == kind)
}

/// A kind of event as people say it, before its message: in the log of `serve`.
pub fn label(kind: &str) -> Cow<'_, str> {
    let known = match kind {
        "BARK" => "test alert",
        "BARK_HEARD" => "test alert arrived",
        "BARK_LOST" => "test alert lost",
        "JOB_TRIGGERED" => "job starting",
        "PIPELINE_SET_ASIDE" => "pipeline in quarantine",
        "PIPELINE_TAKEN_BACK" => "pipeline out of quarantine",
        "RETRY_EXHAUSTED" => "slot failed",
        "SFN_TIMEOUT" => "job timed out",
        "VALIDATION_EXHAUSTED" => "slot skipped",
        other => return Cow::Owned(other.to_lowercase().replace('_', " ")),
    };
    Cow::Borrowed(known)
}

/// Where the runbook of a kind is, unless the pipeline or the route names another.
pub fn default_runbook(kind: &str) -> String {
    format!("{PAGE}#{}", kind.to_lowercase())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::incident::incident_kinds;

    #[test]
    fn each_kind_of_incident_has_a_runbook_and_is_a_known_event() {
        let runbooks: BTreeSet<_> = RUNBOOKS.iter().map(|runbook| runbook.kind).collect();
        assert_eq!(runbooks.len(), RUNBOOKS.len(), "two runbooks of one kind");
        assert_eq!(runbooks, incident_kinds().collect::<BTreeSet<_>>());
        let events: BTreeSet<_> = EVENTS.iter().map(|event| event.kind).collect();
        assert_eq!(events.len(), EVENTS.len(), "two entries of one kind");
        assert!(runbooks.is_subset(&events), "{:?}", &runbooks - &events);
    }

    #[test]
    fn a_kind_has_a_label_that_people_say() {
        assert_eq!(label("VALIDATION_EXHAUSTED"), "slot skipped");
        assert_eq!(label("SLOT_OPENED"), "slot opened");
    }

    #[test]
    fn a_runbook_is_found_by_its_kind() {
        assert_eq!(default_runbook("SCHEDULE_MISSED"), "docs/messages.md#schedule_missed");
        assert!(runbook("SCHEDULE_MISSED").unwrap().act.contains("interlock"));
        assert!(runbook("alert_undelivered").is_some());
        assert!(runbook("SLOT_OPENED").is_none());
    }
}
