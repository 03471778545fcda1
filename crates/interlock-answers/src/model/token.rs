//! Tokens, without what opens anything.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A token that the store keeps. Those of `interlock.yaml` are not listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Token)]
pub struct TokenAnswer {
    /// What it is called where its text must not be.
    pub id: String,
    /// Whose it is, for people.
    pub name: String,
    /// `ping`, `badge`, `viewer`, `operator` or `admin`.
    pub scope: String,
    /// Of `ping`: on which pipelines it may report; else null.
    pub pipelines: Option<Vec<String>>,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// Who made it.
    pub by: String,
    /// From when on it opens nothing.
    pub expires_at: Option<Timestamp>,
}
