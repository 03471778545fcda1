//! Who asks.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who asks, and what they may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Session)]
pub struct SessionAnswer {
    /// The name of the token; null where no token is needed.
    pub name: Option<String>,
    /// `viewer`, `operator` or `admin`.
    pub scope: String,
    /// Whether every program of this machine may do everything, because there is no token.
    pub is_open: bool,
}

impl SessionAnswer {
    /// Whether they may act on pipelines.
    pub fn may_act(&self) -> bool {
        matches!(self.scope.as_str(), "operator" | "admin")
    }

    /// Whether they may change who may do what.
    pub fn may_administer(&self) -> bool {
        self.scope == "admin"
    }
}
