//! Pauses that are in force.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A pipeline that is paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Pause)]
pub struct PauseAnswer {
    /// Which pipeline.
    pub pipeline: String,
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// Until when; null if until it is resumed.
    pub until: Option<Timestamp>,
}
