//! Runs: attempts at slots.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// Which runs are asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct RunsQuery {
    /// Only of this pipeline.
    pub pipeline: Option<String>,
    /// Only of pipelines of one of these owners.
    pub owner: Vec<String>,
    /// Only of pipelines with all of these labels: `name=value`.
    pub label: Vec<String>,
    /// Only with one of these statuses, such as `FAILED`.
    pub status: Vec<String>,
    /// Only with one of these trigger types, such as `catchup`. `subdag` is reserved: nothing has it yet.
    pub trigger_type: Vec<String>,
    /// Only made at this instant or later.
    pub from: Option<Timestamp>,
    /// Only made before this instant.
    pub until: Option<Timestamp>,
    /// Behind this cursor: the `next` of the page before.
    pub after: Option<String>,
    /// At most so many, up to 1,000.
    pub limit: Option<usize>,
}

/// One attempt at a slot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Run)]
pub struct RunAnswer {
    /// Its id, such as `orders~daily~20260225T090000Z~1~1`.
    pub id: String,
    /// Whose it is.
    pub pipeline: String,
    /// Of which schedule.
    pub schedule: String,
    /// The slot that it attempts, such as `orders/daily/2026-02-25T09:00:00Z`.
    pub slot: String,
    /// That slot's instant.
    pub utc: Timestamp,
    /// Which opening of the slot.
    pub generation: u32,
    /// Which attempt within it.
    pub attempt: u32,
    /// `PENDING` to `COMPLETED`.
    pub status: String,
    /// What asked for it.
    pub trigger_type: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its job began, as far as known.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Why it failed, for people.
    pub message: Option<String>,
    /// What kind of failure it was.
    pub category: Option<String>,
    /// What the job and its adapter reported.
    pub metadata: BTreeMap<String, Value>,
}
