//! What the job of a run wrote.

use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

/// Which part of a log is asked for: all of it, unless it is said otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Only so many of the last lines, up to 10,000.
    pub lines: Option<usize>,
    /// Only from this byte on.
    pub offset: Option<u64>,
    /// Go on with what is added, until the run has ended: for an hour at most, `offset` goes on after that.
    pub follow: bool,
}
