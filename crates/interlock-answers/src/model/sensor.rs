//! Sensors: facts about data.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// The last report of a fact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Sensor)]
pub struct SensorAnswer {
    /// Its key.
    pub key: String,
    /// What was reported.
    pub value: Value,
    /// When, by the reporter's word.
    pub at: Timestamp,
    /// When it reached us.
    pub received_at: Timestamp,
}
