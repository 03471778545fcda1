//! What is asked for, and what came of it.

use std::collections::BTreeMap;

use interlock_store::record::AppliedRecord;
use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use utoipa::ToSchema;

use super::plan::{BackfillPlanRequest, ResumePlanRequest, SilencePlanRequest};

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Request)]
pub struct RequestAnswer {
    /// The key under which it was handed in.
    pub key: String,
    /// Whether its owner has got to it. It is durable before that.
    pub applied: bool,
    /// Whether it was done; null until it is applied.
    pub accepted: Option<bool>,
    /// When it was applied.
    pub at: Option<Timestamp>,
    /// What came of it, or in `reason` why nothing did.
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
}

impl RequestAnswer {
    /// The answer to the request with a key, as far as it is known.
    pub fn of(key: &str, applied: Option<&AppliedRecord>) -> Self {
        Self {
            key: key.to_owned(),
            applied: applied.is_some(),
            accepted: applied.map(|answer| answer.accepted),
            at: applied.map(|answer| answer.at),
            result: applied.map(|answer| answer.result.clone()),
        }
    }
}

/// What may be sent to a route.
pub trait RequestBody: DeserializeOwned {
    /// One that is right, for who sent another.
    const EXAMPLE: &'static str;

    /// What nothing at all means, where it means something.
    fn when_empty() -> Option<Self> {
        None
    }
}

/// A run that is asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RunRequest {
    /// Which slot to run, as `schedule/instant`; one of its own when absent.
    pub slot: Option<String>,
    /// Whether it runs even if it is not ready.
    pub force: bool,
    /// Parameters of the job.
    pub params: BTreeMap<String, String>,
}

impl RequestBody for RunRequest {
    const EXAMPLE: &'static str =
        r#"{"slot": "daily/2026-02-25T09:00:00Z", "force": false, "params": {"day": "all"}}"#;

    fn when_empty() -> Option<Self> {
        Some(Self::default())
    }
}

/// A slot that is to run again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RerunRequest {
    /// Why; it is kept with the slot's events.
    pub reason: String,
}

impl RequestBody for RerunRequest {
    const EXAMPLE: &'static str = r#"{"reason": "late data"}"#;
}

/// Something that is to end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CancelRequest {
    /// Why; it is kept with the events.
    pub reason: Option<String>,
}

impl CancelRequest {
    /// Why, for people.
    pub fn reason(self) -> String {
        self.reason.unwrap_or_else(|| "asked for over HTTP".to_owned())
    }
}

impl RequestBody for CancelRequest {
    const EXAMPLE: &'static str = r#"{"reason": "wrong day"}"#;

    fn when_empty() -> Option<Self> {
        Some(Self::default())
    }
}

/// The end of a job that runs elsewhere, or that says by itself when it has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompleteRequest {
    /// `success` or `failed`.
    pub status: String,
    /// Why it failed.
    #[serde(default)]
    pub message: Option<String>,
    /// What kind of failure: `TRANSIENT`, `PERMANENT` or `TIMEOUT`.
    #[serde(default)]
    pub category: Option<String>,
    /// What else there is to say; it is kept with the run.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub metadata: BTreeMap<String, Value>,
}

impl RequestBody for CompleteRequest {
    const EXAMPLE: &'static str = r#"{"status": "success"}"#;
}

/// A fact about data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SensorRequest {
    /// Its value, any JSON.
    #[schema(value_type = Value)]
    pub value: Value,
    /// When it was so; now when absent. Also as seconds or milliseconds since 1970.
    #[serde(default)]
    #[schema(value_type = Option<Value>)]
    pub at: Option<Value>,
}

impl RequestBody for SensorRequest {
    const EXAMPLE: &'static str = r#"{"value": {"rows": 3}, "at": "2026-02-25T09:00:00Z"}"#;
}

/// A pause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PauseRequest {
    /// Why: it is shown to everybody who finds the pipeline paused.
    pub reason: String,
    /// Until when; until it is resumed when absent.
    #[serde(default)]
    pub until: Option<Timestamp>,
}

impl RequestBody for PauseRequest {
    const EXAMPLE: &'static str = r#"{"reason": "moving", "until": "2099-01-01T00:00:00Z"}"#;
}

impl RequestBody for ResumePlanRequest {
    const EXAMPLE: &'static str = r#"{"catchup": "latest"}"#;

    fn when_empty() -> Option<Self> {
        Some(Self::default())
    }
}

/// What is said about an incident.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IncidentRequest {
    /// What there is to say about it.
    pub note: Option<String>,
}

impl RequestBody for IncidentRequest {
    const EXAMPLE: &'static str = r#"{"note": "the disk was full"}"#;

    fn when_empty() -> Option<Self> {
        Some(Self::default())
    }
}

impl RequestBody for BackfillPlanRequest {
    const EXAMPLE: &'static str =
        r#"{"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z", "reprocess": "missing"}"#;
}

impl RequestBody for SilencePlanRequest {
    const EXAMPLE: &'static str = r#"{"when": {"pipelines": ["orders*"]}, "until": "2099-01-01T00:00:00Z", "reason": "moving"}"#;
}

/// How a backfill is cancelled.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CancelBackfillRequest {
    /// Why; it is kept with the events.
    pub reason: Option<String>,
    /// Whether what runs is to end too.
    pub ends_runs: bool,
}

impl RequestBody for CancelBackfillRequest {
    const EXAMPLE: &'static str = r#"{"reason": "wrong range", "endsRuns": false}"#;

    fn when_empty() -> Option<Self> {
        Some(Self::default())
    }
}

/// A test of the alerts from end to end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BarkRequest {
    /// As if this pipeline had missed a run; `_system` when absent.
    pub pipeline: Option<String>,
}

impl RequestBody for BarkRequest {
    const EXAMPLE: &'static str = r#"{"pipeline": "orders"}"#;

    fn when_empty() -> Option<Self> {
        Some(Self::default())
    }
}

/// A token to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenRequest {
    /// Whose it is.
    pub name: String,
    /// What it may do: `ping`, `badge`, `viewer`, `operator` or `admin`.
    pub scope: String,
    /// Which pipelines a token with the scope `ping` may report on; `*` stands for anything.
    #[serde(default)]
    pub pipelines: Vec<String>,
    /// From when on it is worth nothing; never when absent.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
}

impl RequestBody for TokenRequest {
    const EXAMPLE: &'static str = r#"{"name": "ci", "scope": "ping", "pipelines": ["orders*"], "expiresAt": "2099-01-01T00:00:00Z"}"#;
}

/// A token that was just made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = NewToken)]
pub struct NewTokenAnswer {
    /// Its id.
    pub id: String,
    /// The token itself. It is shown only now: what is kept is a hash.
    pub token: String,
    /// Whether it counts already; else it will in a moment.
    pub applied: bool,
}

/// Without what opens anything.
impl std::fmt::Debug for NewTokenAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewTokenAnswer").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What a job that runs elsewhere says about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportRequest {
    /// `start`, `success`, `fail` or `log`.
    pub said: String,
    /// The job's own name for the run, 1 to 200 visible ASCII characters.
    #[serde(default)]
    pub rid: Option<String>,
    /// When it happened; now when absent.
    #[serde(default)]
    pub at: Option<Timestamp>,
    /// What the clock that `at` is by says now.
    #[serde(default)]
    pub sent_at: Option<Timestamp>,
    /// With what it exited.
    #[serde(default)]
    pub exit_code: Option<i64>,
    /// How long it took.
    #[serde(default)]
    pub duration_ms: Option<u64>,
    /// What it printed; the first 100,000 bytes are kept.
    #[serde(default)]
    pub body: Option<String>,
    /// What sends it.
    #[serde(default)]
    pub source: Option<String>,
    /// Of an end with a `rid`: when the run began, if that was not told before.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
}

impl RequestBody for ReportRequest {
    const EXAMPLE: &'static str = r#"{"said": "success", "rid": "a1"}"#;
}

/// What came of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Report)]
pub struct ReportAnswer {
    /// The key under which it was handed in.
    pub key: String,
    /// It is durable: always true.
    pub durable: bool,
    /// Whether a slot was owed at its time.
    pub owed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_is_what_it_is_an_example_of() {
        fn check<T: RequestBody>() {
            let read: Result<T, _> = serde_json::from_str(T::EXAMPLE);
            assert!(read.is_ok(), "{}: {:?}", T::EXAMPLE, read.err());
        }
        check::<RunRequest>();
        check::<RerunRequest>();
        check::<CancelRequest>();
        check::<CompleteRequest>();
        check::<SensorRequest>();
        check::<PauseRequest>();
        check::<ResumePlanRequest>();
        check::<IncidentRequest>();
        check::<BackfillPlanRequest>();
        check::<SilencePlanRequest>();
        check::<CancelBackfillRequest>();
        check::<BarkRequest>();
        check::<TokenRequest>();
        check::<ReportRequest>();
    }
}
