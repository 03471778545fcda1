//! The fleet: every pipeline or group as one row, with what became of its slots and what is planned.
//!
//! Each slot of the range is counted in exactly one place of [`FleetCountsAnswer`], so that the numbers of a row add up to what was due
//! (`docs/adr/0062-the-fleets-tally.md` has the place of every state).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    coverage::CoverageGapAnswer,
    pipeline::{NextAnswer, PauseAnswer},
};
use crate::UnreadableRow;

/// Which part of the fleet is asked for, and how it is counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct FleetQuery {
    /// From this instant on, rounded down to a UTC quarter hour; 12 hours before now when absent.
    pub from: Option<Timestamp>,
    /// Up to this instant, rounded up to whole buckets; a quarter of the past part after now when absent. At most 120 days after `from`.
    pub until: Option<Timestamp>,
    /// How many seconds a bucket is wide: a multiple of 900. The narrowest that makes at most 100 buckets when absent.
    pub bucket: Option<u32>,
    /// How many pixels the range is wide, 900 when absent: rows whose slots are at least 6 pixels apart list each slot.
    pub width: Option<u32>,
    /// The zone whose midnight the totals begin at, such as `Europe/Berlin`, and whose clock changes are listed; UTC when absent.
    pub tz: Option<String>,
    /// One row per group: `owner`, or `label:domain` for the values of a label. One row per pipeline when absent.
    pub group: Option<String>,
    /// Show the pipelines of these groups instead of one row each; an empty text is the group of those that have none.
    pub expand: Vec<String>,
    /// Show these groups as one row, whatever `members` says.
    pub collapse: Vec<String>,
    /// Show the pipelines of each group that has at most so many; no group when absent.
    pub members: Option<usize>,
    /// With `group`: pipelines that need attention come first as rows of their own, at most so many; 20 when absent.
    pub attention: Option<usize>,
    /// Only pipelines with this text in their name, owner or description, whatever its case.
    pub q: Option<String>,
    /// Only those of one of these owners; an empty text for those without one.
    pub owner: Vec<String>,
    /// Only those with one of these labels: `domain=orders`, or `domain` with any value.
    pub label: Vec<String>,
    /// Only those whose row has one of these states, such as `missed`; `attention` for all that need a person; or that have slots
    /// in one of these places today: `caughtUp`, `skipped`, `cancelled`.
    pub state: Vec<String>,
    /// Which rows come first; the worst when absent.
    #[param(inline)]
    pub order: Option<FleetOrder>,
    /// Behind this cursor: the `next` of the page before.
    pub after: Option<String>,
    /// At most so many rows, up to 1,000; 100 when absent.
    pub limit: Option<usize>,
}

/// Which rows of the fleet come first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FleetOrder {
    /// Those in the worst state, then by name.
    #[default]
    Worst,
    /// By name.
    Name,
    /// Those whose next slot comes first.
    Next,
}

/// The fleet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Fleet)]
pub struct FleetAnswer {
    /// As of when.
    pub now: Timestamp,
    /// Where the range begins.
    pub from: Timestamp,
    /// Where it ends.
    pub until: Timestamp,
    /// How many seconds each bucket is wide. Bucket `n` begins `n * bucketSeconds` after `from`.
    pub bucket_seconds: u32,
    /// How many buckets there are.
    pub buckets: u32,
    /// The rows of this page, in order: those of the first section, then those of the second …
    pub items: Vec<FleetRowAnswer>,
    /// How the rows belong together.
    pub sections: Vec<FleetSectionAnswer>,
    /// Behind which cursor the next page begins; null at the end.
    pub next: Option<String>,
    /// How many pipelines match, and how many of them are in each state.
    pub pipelines: FleetStatesAnswer,
    /// How many groups there are; 0 when not grouped.
    pub groups: u64,
    /// What was due since midnight, and what became of it, of all pipelines that match.
    pub totals: FleetTotalsAnswer,
    /// When no report could reach Interlock, within the range.
    pub blind: Vec<CoverageGapAnswer>,
    /// When the clocks of `tz` are changed, within the range.
    pub clock_changes: Vec<ClockChangeAnswer>,
    /// How fresh this is.
    pub freshness: FleetFreshnessAnswer,
    /// Rows of the store that could not be read; what they hold is counted nowhere. At most 20 are listed.
    pub unreadable: Vec<UnreadableRow>,
}

/// Rows that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FleetSection)]
pub struct FleetSectionAnswer {
    /// What they have in common.
    pub kind: FleetSectionKind,
    /// The owner, or the value of the label; null for those that have none, and for the other kinds.
    pub name: Option<String>,
    /// How many items of this page are in it.
    pub rows: usize,
    /// How many pipelines are in it altogether.
    pub pipelines: u64,
    /// How many of those are rows of `attention` instead.
    pub above: u64,
    /// Whether its pipelines are summed up in one row.
    pub is_collapsed: bool,
    /// Whether it has more pipelines than rows here (asked for by `owner` or `label`, or by `state=attention`).
    pub has_more: bool,
}

/// What the rows of a section have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum FleetSectionKind {
    /// They need a person.
    Attention,
    /// Their owner or their label.
    Group,
    /// Nothing: the list is not grouped.
    All,
}

/// A pipeline or a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FleetRow)]
#[expect(clippy::struct_excessive_bools, reason = "each says something of its own on the wire")]
pub struct FleetRowAnswer {
    /// Its name; null for a group.
    pub pipeline: Option<String>,
    /// The group that it is or is in; null for those without one, and when not grouped.
    pub group: Option<String>,
    /// How many pipelines it sums up: 1 for a pipeline.
    pub pipelines: u64,
    /// The worst that a person must know of it.
    pub state: FleetState,
    /// Why, in at most 45 characters.
    pub reason: String,
    /// Why, in full.
    pub reason_in_full: String,
    /// Whether it needs a person.
    pub needs_attention: bool,
    /// How many of its pipelines are in each state.
    pub states: FleetStatesAnswer,
    /// How long runs usually take, in seconds; null while too few are known, and for a group.
    pub usual_seconds: Option<i64>,
    /// Its next slot.
    pub next: Option<NextAnswer>,
    /// The kind of its trigger, such as `command`; null for a group.
    pub trigger: Option<String>,
    /// Whether its jobs are started elsewhere and only reported; false for a group.
    pub is_watch_only: bool,
    /// Who looks after it; null for a group of a label.
    pub owner: Option<String>,
    /// Its labels; none for a group.
    pub labels: BTreeMap<String, String>,
    /// The pause that is in force; null for a group.
    pub paused: Option<PauseAnswer>,
    /// Its slots of the range, by place.
    pub counts: FleetCountsAnswer,
    /// The same by bucket; buckets without a slot are left out.
    pub cells: Vec<FleetCellAnswer>,
    /// From when on its slots are counted; later than `from` where there are more than one request may read: ask again.
    pub counted_from: Timestamp,
    /// Whether `slots` lists every slot: they are at least 6 pixels apart. Otherwise it lists the exceptions only.
    pub lists_all_slots: bool,
    /// Slots, in order of time: exceptions (failed, missed, unknown, late, caught up), and the others if `listsAllSlots`. None for a group.
    pub slots: Vec<FleetSlotAnswer>,
    /// Whether it has more exceptions than are listed.
    pub has_more_slots: bool,
    /// When it was, is and will be paused, within the range; as far as recorded.
    pub pauses: Vec<FleetPeriodAnswer>,
    /// Days of the range on which a calendar leaves out all its slots.
    pub excluded: Vec<FleetPeriodAnswer>,
}

/// What a row says first: the worst that a person must know, worst first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum FleetState {
    /// A run failed: its last decided slot, or an incident of it is open.
    Failed,
    /// A slot was missed: the last one that was decided, or an incident of it is open.
    Missed,
    /// What became of a slot is not known: of the last one that was decided, or an incident of it is open.
    Unknown,
    /// A slot was skipped because its data was not there in time, and the incident of it is open.
    NotReady,
    /// What runs or waits may not be completed in time.
    AtRisk,
    /// Its last slot completed late, or an open one is past its deadline.
    Late,
    /// Missed slots are being caught up.
    CatchingUp,
    /// Paused for longer than a day.
    PausedLong,
    /// A slot runs.
    Running,
    /// A slot is due, and waits or is queued.
    Waiting,
    /// Paused.
    Paused,
    /// Its last decided slot was well.
    OnTime,
    /// No slot was due in the range.
    NotDue,
}

/// How many pipelines are in each state. Those that are 0 are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(as = FleetStates)]
pub struct FleetStatesAnswer {
    /// All of them.
    pub pipelines: u64,
    /// Those that need a person.
    pub attention: u64,
    /// See [`FleetState::Failed`].
    #[serde(skip_serializing_if = "is_zero")]
    pub failed: u64,
    /// See [`FleetState::Missed`].
    #[serde(skip_serializing_if = "is_zero")]
    pub missed: u64,
    /// See [`FleetState::Unknown`].
    #[serde(skip_serializing_if = "is_zero")]
    pub unknown: u64,
    /// See [`FleetState::NotReady`].
    #[serde(skip_serializing_if = "is_zero")]
    pub not_ready: u64,
    /// See [`FleetState::AtRisk`].
    #[serde(skip_serializing_if = "is_zero")]
    pub at_risk: u64,
    /// See [`FleetState::Late`].
    #[serde(skip_serializing_if = "is_zero")]
    pub late: u64,
    /// See [`FleetState::CatchingUp`].
    #[serde(skip_serializing_if = "is_zero")]
    pub catching_up: u64,
    /// See [`FleetState::PausedLong`].
    #[serde(skip_serializing_if = "is_zero")]
    pub paused_long: u64,
    /// See [`FleetState::Running`].
    #[serde(skip_serializing_if = "is_zero")]
    pub running: u64,
    /// See [`FleetState::Waiting`].
    #[serde(skip_serializing_if = "is_zero")]
    pub waiting: u64,
    /// See [`FleetState::Paused`].
    #[serde(skip_serializing_if = "is_zero")]
    pub paused: u64,
    /// See [`FleetState::OnTime`].
    #[serde(skip_serializing_if = "is_zero")]
    pub on_time: u64,
    /// See [`FleetState::NotDue`].
    #[serde(skip_serializing_if = "is_zero")]
    pub not_due: u64,
}

/// The place in which a slot is counted. Each has exactly one.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum FleetPlace {
    /// Completed, or completed and its data still watched (`monitoring`).
    OnTime,
    /// Completed by a catch-up, a repair or a backfill, after it had been missed.
    CaughtUp,
    /// Completed, after it had been called missed or unknown.
    Late,
    /// Failed.
    Failed,
    /// Missed, or skipped because it was given up (`no_catchup`, `expired`, `capped`).
    Missed,
    /// What became of it is not known.
    Unknown,
    /// Skipped for any other reason.
    Skipped,
    /// Cancelled by a person.
    Cancelled,
    /// Running.
    Running,
    /// Waiting, queued, or between two attempts (`backoff`).
    Waiting,
    /// To come.
    Planned,
}

/// How many slots are in each place. Those that are 0 are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
#[schema(as = FleetCounts)]
pub struct FleetCountsAnswer {
    /// See [`FleetPlace::OnTime`].
    #[serde(skip_serializing_if = "is_zero")]
    pub on_time: u64,
    /// See [`FleetPlace::CaughtUp`].
    #[serde(skip_serializing_if = "is_zero")]
    pub caught_up: u64,
    /// See [`FleetPlace::Late`].
    #[serde(skip_serializing_if = "is_zero")]
    pub late: u64,
    /// See [`FleetPlace::Failed`].
    #[serde(skip_serializing_if = "is_zero")]
    pub failed: u64,
    /// See [`FleetPlace::Missed`].
    #[serde(skip_serializing_if = "is_zero")]
    pub missed: u64,
    /// See [`FleetPlace::Unknown`].
    #[serde(skip_serializing_if = "is_zero")]
    pub unknown: u64,
    /// See [`FleetPlace::Skipped`].
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped: u64,
    /// See [`FleetPlace::Cancelled`].
    #[serde(skip_serializing_if = "is_zero")]
    pub cancelled: u64,
    /// See [`FleetPlace::Running`].
    #[serde(skip_serializing_if = "is_zero")]
    pub running: u64,
    /// See [`FleetPlace::Waiting`].
    #[serde(skip_serializing_if = "is_zero")]
    pub waiting: u64,
    /// See [`FleetPlace::Planned`].
    #[serde(skip_serializing_if = "is_zero")]
    pub planned: u64,
}

/// The slots of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FleetCell)]
pub struct FleetCellAnswer {
    /// Which bucket, from 0.
    pub bucket: u32,
    /// Its slots, by place.
    #[serde(flatten)]
    pub counts: FleetCountsAnswer,
}

/// A slot of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FleetSlot)]
pub struct FleetSlotAnswer {
    /// Of which schedule.
    pub schedule: String,
    /// Its instant.
    pub utc: Timestamp,
    /// Where it is counted.
    pub place: FleetPlace,
    /// Its state or disposition, such as `skipped` or `queued`; `planned` for one to come.
    pub word: String,
    /// Why it was skipped: the word of the reason.
    pub reason: Option<String>,
    /// When its last run began; null without a run, and where it would be less than a pixel.
    pub started_at: Option<Timestamp>,
    /// When that ended; null while it runs.
    pub ended_at: Option<Timestamp>,
    /// When it should end, while it runs; how long it usually takes, for one to come.
    pub expected_end: Option<Timestamp>,
}

/// What was due since midnight, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FleetTotals)]
pub struct FleetTotalsAnswer {
    /// Since when: midnight by `zone`.
    pub since: Timestamp,
    /// By which zone.
    pub zone: String,
    /// How many slots were due until now. It is the sum of `counts` and `unaccounted`.
    pub due: u64,
    /// How many of them are not recorded yet, some time after they should be: 0 when all is well.
    pub unaccounted: u64,
    /// What became of the others; `planned` is left out.
    pub counts: FleetCountsAnswer,
}

/// A time within the range, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FleetPeriod)]
pub struct FleetPeriodAnswer {
    /// Since when.
    pub from: Timestamp,
    /// Until when; null while it goes on without a known end.
    pub until: Option<Timestamp>,
    /// Why.
    pub reason: String,
}

/// When the clocks of a zone are changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ClockChange)]
pub struct ClockChangeAnswer {
    /// When.
    pub utc: Timestamp,
    /// Of which zone.
    pub zone: String,
    /// By how many seconds: 3,600 in spring.
    pub shift_seconds: i32,
}

/// How fresh the counts are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FleetFreshness)]
pub struct FleetFreshnessAnswer {
    /// Up to when the store's changes are counted; null before the first count.
    pub as_of: Option<Timestamp>,
    /// Whether this process still counts for the first time: rows that are not counted yet have no slots.
    pub is_counting: bool,
    /// How many pipelines are counted.
    pub counted: u64,
    /// Why the store's changes cannot be followed now; null when all is well.
    pub problem: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands in references")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Of which pipelines metrics are asked for, beside those of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct MetricsQuery {
    /// Also of pipelines with one of these names, at most a thousand; `*` stands for anything.
    pub pipelines: Vec<String>,
}

/// What the address of a badge may say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct BadgeQuery {
    /// A token with the scope `badge`, because an image on a page sends no header. No other token is taken here.
    pub key: Option<String>,
}
