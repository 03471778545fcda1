//! Watermarks: how far schedules are recorded.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Which watermarks are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct WatermarksQuery {
    /// Only of this pipeline.
    pub pipeline: Option<String>,
    /// Behind this cursor: the `next` of the page before.
    pub after: Option<String>,
    /// At most so many, up to 1,000.
    pub limit: Option<usize>,
}

/// How far a schedule is recorded.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Watermark)]
pub struct WatermarkAnswer {
    /// Of which pipeline.
    pub pipeline: String,
    /// Which of its schedules.
    pub schedule: String,
    /// Every slot at or before this instant is recorded.
    pub at: Timestamp,
}
