//! Silences: which alerts are kept back.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::plan::{AlertFilterAnswer, SilenceWindowsAnswer};

/// Which silences are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct SilencesQuery {
    /// Only in one of these states: `silent`, `waiting` for its time, `over`.
    pub state: Vec<String>,
    /// Behind this cursor: the `next` of the page before.
    pub after: Option<String>,
    /// At most so many, up to 1,000.
    pub limit: Option<usize>,
}

/// Alerts that are kept back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Silence)]
pub struct SilenceAnswer {
    /// Its name.
    pub id: String,
    /// `silent`, `waiting` for its time, or `over`.
    pub state: String,
    /// Which alerts.
    pub when: AlertFilterAnswer,
    /// From when on.
    pub from: Timestamp,
    /// Until when; null for ever.
    pub until: Option<Timestamp>,
    /// Only within these times.
    pub windows: Option<SilenceWindowsAnswer>,
    /// Why.
    pub reason: String,
    /// Who wants it.
    pub by: String,
}
