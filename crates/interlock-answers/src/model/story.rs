//! The story of a slot: what became of it, and what happened to it; or why there is none.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    event::EventAnswer,
    incident::IncidentDetailAnswer,
    run::RunAnswer,
    slot::{SlotAnswer, SpanAnswer},
};

/// All that is known of one slot, or of an instant that has none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Story)]
pub struct StoryAnswer {
    /// Whose it is.
    pub pipeline: String,
    /// Of which schedule; null if no schedule was named and the pipeline has none.
    pub schedule: Option<String>,
    /// The instant that is asked about.
    pub utc: Timestamp,
    /// What became of it and why, in a sentence; or why there is no slot. Times are UTC.
    pub headline: String,
    /// The same with what else is known: whom its incidents reached, who looks at them.
    pub full_reason: String,
    /// What is recorded: the slot's row, or what its span says of it. Null when there is nothing.
    pub slot: Option<SlotAnswer>,
    /// The span that the slot is recorded with; null for one with a row of its own.
    pub span: Option<SpanAnswer>,
    /// Why nothing is recorded; null when something is.
    pub absence: Option<AbsenceAnswer>,
    /// Its runs, in the order in which they were made.
    pub runs: Vec<RunAnswer>,
    /// What happened to it, oldest first.
    pub events: Vec<EventAnswer>,
    /// The number of the event up to which was looked; null when all were looked at.
    pub events_looked_at_until: Option<u64>,
    /// The incidents that it opened or joined, with their alerts that are not delivered.
    pub incidents: Vec<IncidentDetailAnswer>,
}

/// Why nothing is recorded at an instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Absence)]
pub struct AbsenceAnswer {
    /// Why, in a word.
    pub reason: AbsenceReason,
    /// Why, in a sentence that names the slot.
    pub sentence: String,
    /// Why, in a sentence that stands beside the slot: `No slot: 2026-12-25 is excluded by …`.
    pub headline: String,
    /// The slot of the schedule before that instant.
    pub previous: Option<Timestamp>,
    /// The slot of the schedule after it.
    pub next: Option<Timestamp>,
}

/// Why nothing is recorded at an instant, in a word. The list is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AbsenceReason {
    /// A calendar leaves the day out.
    Excluded,
    /// The local time does not exist that night, and the schedule skips it.
    DstGap,
    /// It lies outside the schedule's `from` and `until`.
    OutOfBounds,
    /// The schedule owes nothing at that instant.
    NotASlot,
    /// The pipeline has no such schedule.
    NoSuchSchedule,
    /// The pipeline is no longer declared.
    Undeclared,
    /// The declaration cannot be loaded.
    DeclarationUnreadable,
    /// No `serve` has seen the pipeline yet.
    NotSeen,
    /// It lies before the pipeline was first seen.
    BeforeFirstSight,
    /// It is still to come.
    NotDue,
    /// The pipeline was retired.
    Retired,
    /// The pipeline is paused.
    Paused,
    /// The pipeline is disabled in its file.
    Disabled,
    /// The schedule was declared differently when that time was recorded.
    DeclaredDifferently,
    /// No slot of the schedule was recorded yet.
    NothingRecorded,
    /// Slots are not recorded that far: `serve` was not running, or is behind.
    NotRecordedYet,
    /// It is older than what is kept.
    Archived,
}
