//! Verdicts: whether a slot may run, rule by rule.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// Of which slot the readiness is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ReadinessQuery {
    /// Which slot: `daily/2026-02-25T09:00:00Z`, or its instant alone. When it is absent: the oldest that waits, else the last that was due.
    pub slot: Option<String>,
    /// As of this instant instead of now.
    pub at: Option<Timestamp>,
}

/// Whether a slot may run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Evaluation)]
pub struct EvaluationAnswer {
    /// Whose slot it is.
    pub pipeline: String,
    /// Its name.
    pub slot: String,
    /// As of when.
    pub at: Timestamp,
    /// Whether a job would be started on it: also true for "cannot tell" of a pipeline that is fail-open.
    pub may_run: bool,
    /// Rule by rule.
    pub verdict: VerdictAnswer,
}

/// What a rule says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Verdict)]
pub struct VerdictAnswer {
    /// `ready`, `not ready` or `cannot tell`.
    pub outcome: String,
    /// What it is about: a sensor, a trait, an upstream.
    pub name: String,
    /// The rule.
    pub asked: String,
    /// The value that decided, or null.
    pub seen: Value,
    /// Why, for people.
    pub reason: String,
    /// Whether it is only shown, and never stands in the way.
    #[serde(default)]
    pub optional: bool,
    /// What it was made from.
    #[schema(no_recursion)]
    pub parts: Vec<VerdictAnswer>,
}
