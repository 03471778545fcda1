//! Silences and pauses (S14): what is silenced is recorded like everything else, and a pause is itself a record.
//!
//! That nobody is told of what is silenced is judged where channels take alerts, in `alerts`.

use interlock_store::{
    Change, Group, Key, Record,
    record::{EventRecord, PauseRecord},
};

use super::{Finding, book::Book};

/// What is found, and is an incident whoever wants to hear of it.
const INCIDENTS: [&str; 5] =
    ["SCHEDULE_MISSED", "SCHEDULE_UNKNOWN", "RUN_STUCK", "SFN_TIMEOUT", "SENSOR_DEADLINE_EXPIRED"];

/// Whether somebody silenced a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hush {
    No,
    Yes,
}

/// What was found has its incident, in the same group; also while nobody is told.
pub(crate) fn is_recorded(group: &Group, hush: Hush) -> Result<(), Finding> {
    let found = events(group).find(|event| INCIDENTS.contains(&event.kind.as_str()));
    let Some(found) = found else { return Ok(()) };
    let is_open = |change: &Change| match change {
        Change::Put(Key::Incident(_), _, Record::Incident(record)) => record.state != "resolved",
        Change::Put(..) | Change::Delete(..) | Change::Append(_) => false,
    };
    if group.changes.iter().any(is_open) {
        return Ok(());
    }
    let (invariant, why) = match hush {
        Hush::No => ("S12", ""),
        Hush::Yes => ("S14", ", and a silence is no reason not to"),
    };
    let slot = found.slot.as_deref().unwrap_or_default();
    Err(Finding::of(invariant, format!("{} {slot} has no incident{why}", found.kind)))
}

/// A pause begins, changes and ends with an event; one that is over stays, because it accounts for what lay in it. The time
/// in which a file said that its pipeline is disabled is a pause too, which a change of the file ends.
pub(crate) fn pause_is_recorded(
    book: &Book,
    after: Option<&PauseRecord>,
    group: &Group,
) -> Result<(), Finding> {
    let told = |message: String| Err(Finding::of("S14", message));
    let before = book.pause.as_ref();
    match (before, after) {
        (Some(before), None) => told(format!("the pause since {} is forgotten", before.since)),
        (_, Some(after)) if !before.is_some_and(|before| is_same(before, after)) => {
            let is_event = |event: &EventRecord| match event.kind.as_str() {
                "PIPELINE_PAUSED" | "PIPELINE_RESUMED" => true,
                "PIPELINE_CHANGED" | "PIPELINE_DECLARED" => book.is_disabled,
                _ => false,
            };
            if events(group).any(is_event) {
                return Ok(());
            }
            told(format!("the pause since {} changed without an event", after.since))
        }
        (Some(_) | None, Some(_)) | (None, None) => Ok(()),
    }
}

fn is_same(one: &PauseRecord, other: &PauseRecord) -> bool {
    (one.since, one.until, &one.reason) == (other.since, other.until, &other.reason)
}

fn events(group: &Group) -> impl Iterator<Item = &EventRecord> {
    group.changes.iter().filter_map(|change| match change {
        Change::Append(event) => Some(event.as_ref()),
        Change::Put(..) | Change::Delete(..) => None,
    })
}
