//! Whether a process does its work.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// That every loop comes round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Health)]
pub struct HealthAnswer {
    /// `ok`.
    pub status: String,
    /// Every loop.
    pub loops: Vec<LoopAnswer>,
    /// What the process finds wrong with itself.
    #[serde(rename = "self")]
    pub own: SelfCheckAnswer,
}

/// A loop, and whether it comes round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = HealthLoop)]
pub struct LoopAnswer {
    /// Its name.
    pub name: String,
    /// How long it has not come round.
    pub still_for_seconds: f64,
    /// How long it may not.
    pub bound_seconds: f64,
    /// Whether that is too long.
    pub late: bool,
}

/// What a process finds wrong with itself, and whether anything outside hears of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SelfCheck)]
pub struct SelfCheckAnswer {
    /// In a sentence each.
    pub complaints: Vec<String>,
    /// The beacons, which are called only while there is nothing to complain of.
    pub beacons: Vec<BeaconAnswer>,
}

/// How a beacon stands. Which one it is, is not for everybody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Beacon)]
pub struct BeaconAnswer {
    /// How long ago it last answered.
    pub answered_seconds_ago: Option<u64>,
    /// Whether the last call failed.
    pub failing: bool,
}

/// That it can do its work now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Readiness)]
pub struct ReadinessAnswer {
    /// `ready`.
    pub status: String,
}
