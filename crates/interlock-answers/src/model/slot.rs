//! The ledger: slots, and spans of them.

use jiff::{Timestamp, civil::Date};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::page::ListingOrder;

/// Which slots are asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct SlotsQuery {
    /// Only of this pipeline.
    pub pipeline: Option<String>,
    /// Only of this schedule.
    pub schedule: Option<String>,
    /// Only those that ended in one of these ways, such as `missed`; `open` for those that have not ended.
    pub disposition: Vec<String>,
    /// Only those that one of these trigger types opened, such as `catchup`; then no spans, whose slots were never opened.
    pub trigger_type: Vec<String>,
    /// Slots from this instant on; when absent, from a day before now, or before `until` if that is earlier.
    pub from: Option<Timestamp>,
    /// Slots before this instant; when absent, until a day after now, or after `from` if that is later.
    pub until: Option<Timestamp>,
    /// Which come first; the oldest when absent.
    #[param(inline)]
    pub order: Option<ListingOrder>,
    /// List each slot of a span by itself. Only of one pipeline, oldest first.
    pub expand: bool,
    /// Behind this cursor: the `next` of the page before.
    pub after: Option<String>,
    /// At most so many, up to 1,000.
    pub limit: Option<usize>,
}

/// Which slot is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Path)]
pub struct SlotPath {
    /// Of which pipeline.
    pub pipeline: String,
    /// Of which of its schedules.
    pub schedule: String,
    /// Its instant, such as `2026-02-25T09:00:00Z`.
    pub instant: Timestamp,
}

/// A slot, or many in a row with the same fate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = LedgerItem)]
#[expect(clippy::large_enum_variant, reason = "nearly all are slots")]
pub enum LedgerAnswer {
    /// A slot.
    Slot(SlotAnswer),
    /// Many slots in a row with the same fate.
    Span(SpanAnswer),
}

/// One instant at which a schedule owes a run, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Slot)]
pub struct SlotAnswer {
    /// Whose it is.
    pub pipeline: String,
    /// Of which schedule.
    pub schedule: String,
    /// Its name, such as `orders/daily/2026-02-25T09:00:00Z`.
    pub slot: String,
    /// Its instant.
    pub utc: Timestamp,
    /// The local date that it stands for; null for one of a span whose schedule is not known any more.
    pub date: Option<Date>,
    /// `waiting`, `queued`, `running`, `backoff`, `monitoring` or `closed`.
    pub state: String,
    /// How it ended; null while open.
    pub disposition: Option<String>,
    /// Why it was skipped.
    pub reason: Option<String>,
    /// The same in the words of the first Interlock, such as `FAILED_FINAL`.
    pub status: String,
    /// What stays on it.
    pub marks: MarksAnswer,
    /// 1 at its first opening, one more each time it is opened again; 0 for one of a span.
    pub generation: u32,
    /// The last attempt of it.
    pub attempt: u32,
    /// What opened this generation: a trigger type.
    pub opened_by: Option<String>,
    /// When that was.
    pub opened_at: Option<Timestamp>,
    /// When it is closed by force; null once closed.
    pub closes_at: Option<Timestamp>,
    /// When the next attempt may begin.
    pub retry_at: Option<Timestamp>,
    /// The version of the declaration under which it was recorded.
    pub version: String,
    /// What it promises about time; null when nothing.
    pub sla: Option<SlaAnswer>,
    /// What became of it and why, in a sentence: `Skipped: orders-ready was not reported by 09:20 UTC.` Times are UTC.
    pub headline: String,
    /// The reason alone, at most 45 characters, for the cell of a table; times are UTC and do not say so.
    pub short_reason: String,
    /// What it waits for, or did not get, as far as its row says.
    pub blocking: Vec<String>,
    /// Until when it waits; of one that was missed or not ready, waited.
    pub waits_until: Option<Timestamp>,
    /// Why its last run failed; null when that did not.
    pub message: Option<String>,
    /// Its runs, in the order in which they were made.
    pub runs: Vec<SlotRunAnswer>,
}

/// Many slots in a row with the same fate, recorded together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Span)]
pub struct SpanAnswer {
    /// Whose they are.
    pub pipeline: String,
    /// Of which schedule.
    pub schedule: String,
    /// The first of them.
    pub first: Timestamp,
    /// The last of them.
    pub last: Timestamp,
    /// How many there are from one to the other.
    pub count: u64,
    /// `closed`.
    pub state: String,
    /// How they ended.
    pub disposition: String,
    /// Why they were skipped.
    pub reason: Option<String>,
    /// The same in the words of the first Interlock.
    pub status: String,
    /// The version of the declaration under which they were recorded.
    pub version: String,
    /// When they were recorded.
    pub recorded_at: Timestamp,
    /// What became of them and why, in a sentence; times are UTC.
    pub headline: String,
}

/// What stays on a slot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Marks)]
pub struct MarksAnswer {
    /// When it was found missing.
    pub missed_at: Option<Timestamp>,
    /// Its end came after it had been called missed or unknown.
    pub late: bool,
    /// The outcome of a run of it could not be found out.
    pub uncertain: bool,
    /// It was opened by a repair.
    pub recovered: bool,
}

/// What a slot promises about time, resolved when it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Sla)]
pub struct SlaAnswer {
    /// By when it is to be evaluated.
    pub evaluation_at: Option<Timestamp>,
    /// From when on its completion is at risk.
    pub warning_at: Option<Timestamp>,
    /// By when it is to be completed.
    pub breach_at: Option<Timestamp>,
    /// How long it may take from its first sensor.
    pub max_duration_seconds: Option<i64>,
    /// How long it is expected to take.
    pub expected_duration_seconds: Option<i64>,
}

/// A run within its slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SlotRun)]
pub struct SlotRunAnswer {
    /// Its id.
    pub id: String,
    /// Which opening of the slot.
    pub generation: u32,
    /// Which attempt within it.
    pub attempt: u32,
    /// `PENDING` to `COMPLETED`.
    pub status: String,
    /// What asked for it.
    pub trigger_type: String,
    /// When its job began, as far as known.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}
