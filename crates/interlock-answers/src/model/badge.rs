//! Badges: how a pipeline stands, in a word and a colour.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a pipeline stands, as shields.io takes it for an endpoint badge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Badge)]
pub struct BadgeAnswer {
    /// 1: the version of this shape.
    pub schema_version: u32,
    /// The pipeline.
    pub label: String,
    /// Its state, in a word or two.
    pub message: String,
    /// A colour by name: `brightgreen`, `orange` …
    pub color: String,
    /// Whether it needs a person.
    pub is_error: bool,
}
