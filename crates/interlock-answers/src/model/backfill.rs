//! Backfills: ranges of history, run a few slots at a time.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Which backfills are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct BackfillsQuery {
    /// Only of this pipeline.
    pub pipeline: Option<String>,
    /// Only in one of these states: `running`, `paused`, `cancelled`, `done`.
    pub state: Vec<String>,
    /// Behind this cursor: the `next` of the page before.
    pub after: Option<String>,
    /// At most so many, up to 1,000.
    pub limit: Option<usize>,
}

/// Which backfill is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Path)]
pub struct BackfillPath {
    /// Of which pipeline.
    pub pipeline: String,
    /// Its number there.
    pub id: u64,
}

/// A range of slots to run, and how far that got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Backfill)]
pub struct BackfillAnswer {
    /// Whose it is.
    pub pipeline: String,
    /// Its number there.
    pub id: u64,
    /// `running`, `paused`, `cancelled` or `done`.
    pub state: String,
    /// The first instant of its range.
    pub from: Timestamp,
    /// The first instant after it.
    pub to: Timestamp,
    /// Its schedules, by id.
    pub schedules: Vec<String>,
    /// `missing`, `failed` or `all`.
    pub reprocess: String,
    /// `asc` or `desc`.
    pub order: String,
    /// How many of its slots may run at a time.
    pub concurrency: u32,
    /// Why it was asked for.
    pub reason: String,
    /// Who asked for it.
    pub by: String,
    /// The hash of the slots that were planned.
    pub plan: String,
    /// How many were planned.
    pub total: u64,
    /// How many it has opened.
    pub opened: u64,
    /// How many it left as they were.
    pub passed: u64,
    /// Of those that it opened: how many completed.
    pub completed: u64,
    /// How many failed.
    pub failed: u64,
    /// How many were cancelled.
    pub cancelled: u64,
    /// How many were skipped.
    pub skipped: u64,
    /// Its slots that have not ended, as `schedule/instant`.
    pub open: Vec<String>,
    /// The last slot that it judged.
    pub cursor: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it was done or cancelled.
    pub ended_at: Option<Timestamp>,
    /// How long it may still take, going by its time so far; null when that cannot be told.
    pub eta_seconds: Option<i64>,
}
