//! Coverage: when reports could reach Interlock.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Which gaps are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct CoverageGapsQuery {
    /// Only those that end after this instant.
    pub from: Option<Timestamp>,
    /// Only those that begin before this instant.
    pub until: Option<Timestamp>,
}

/// A time in which no report could reach Interlock: a watch-only slot of that time is unknown, not missed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = CoverageGap)]
pub struct CoverageGapAnswer {
    /// Since when.
    pub from: Timestamp,
    /// Until when; null while it goes on.
    pub until: Option<Timestamp>,
}
