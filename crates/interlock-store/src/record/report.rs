//! Reports of jobs that somebody else runs, as they wait in the inbox.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a watch-only job says about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportRecord {
    /// `start`, `success`, `fail` or `log`.
    pub said: String,
    /// The reporter's name for the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rid: Option<String>,
    /// When, by the reporter's word.
    pub at: Timestamp,
    /// What the program exited with; above 128 it was ended by a signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// How long it took, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// What it said besides, cut off at [`ReportRecord::BODY_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Who reported, for people: a program and where it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The pipeline that was named and is not there: it is kept under `_system`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// Whether the pipeline is about to be made, and is waited for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub create: bool,
    /// Why whoever heard it could make nothing of it: it is kept for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// What tells the request that it came by from another under the same `Idempotency-Key`, if it came under one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

impl ReportRecord {
    /// Bytes of a body that are kept.
    pub const BODY_MAX: usize = 100_000;

    /// A report of a word, with something to keep.
    pub fn of(said: &str, at: Timestamp, body: Option<&str>) -> Self {
        Self {
            said: said.to_owned(),
            rid: None,
            at,
            exit_code: None,
            duration_ms: None,
            body: body.map(str::to_owned),
            source: None,
            pipeline: None,
            create: false,
            refused: None,
            fingerprint: None,
        }
    }
}
