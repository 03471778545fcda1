//! Plans: what would happen, line by line, before anything does.
//!
//! Each has a `plan`: a hash of what it decides, without times that go by. HTTP sends it as `ETag`, and a client that wants exactly that done sends it
//! back as `If-Match`.

use std::collections::BTreeMap;

use interlock_core::id::fnv1a;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::pipeline::PauseAnswer;

/// Which catch-up is asked about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct CatchupPlanQuery {
    /// Only of these pipelines.
    pub pipeline: Vec<String>,
    /// Behind this cursor: the `next` of the part before.
    pub after: Option<String>,
    /// As of this instant instead of now: what an owner that starts then would do.
    pub at: Option<Timestamp>,
}

/// What is owed from before, and what becomes of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = CatchupPlan)]
pub struct CatchupPlanAnswer {
    /// As of when.
    pub at: Timestamp,
    /// The hash of what is decided.
    pub plan: String,
    /// In order of time for each pipeline. Up to 10,000 slots have a line each; the others are ranges.
    pub lines: Vec<PlanLineAnswer>,
    /// How many slots there are of each action.
    pub counts: BTreeMap<String, u64>,
    /// Pipelines that are paused: what they owe is decided by their resume, whose plan shows it.
    pub paused: Vec<String>,
    /// Whether slots are told in ranges because they are too many.
    pub has_ranges: bool,
    /// How many pipelines were looked at.
    pub scanned: u64,
    /// Behind what to go on (`after=`); null at the end.
    pub next: Option<String>,
}

/// What becomes of a slot, or of many in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanLine)]
pub struct PlanLineAnswer {
    /// Whose it is.
    pub pipeline: String,
    /// Of which schedule.
    pub schedule: String,
    /// Its instant; of a range the first one.
    pub slot: Timestamp,
    /// The name of the slot; null of a range.
    pub name: Option<String>,
    /// The last instant.
    pub last: Timestamp,
    /// How many slots there are from one to the other.
    pub count: u64,
    /// `run`, `skip`, `close` or `wait`.
    pub action: String,
    /// Why.
    pub reason: String,
}

/// How a pipeline is to be resumed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schema(as = ResumeRequest)]
pub struct ResumePlanRequest {
    /// What becomes of the slots that lay in the pause: `none`, `latest`, `all`, or `policy`, which is what the pipeline declares.
    pub catchup: Option<String>,
}

/// What a resume would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ResumePlan)]
pub struct ResumePlanAnswer {
    /// Of which pipeline.
    pub pipeline: String,
    /// As of when.
    pub at: Timestamp,
    /// The hash of what is decided.
    pub plan: String,
    /// The pause that would end; null of a pipeline that is not paused, of which nothing would happen.
    pub paused: Option<PauseAnswer>,
    /// What becomes of the slots, in order of time.
    pub lines: Vec<PlanLineAnswer>,
    /// How many slots there are of each action.
    pub counts: BTreeMap<String, u64>,
    /// How many slots were missed.
    pub missed: u64,
    /// Whether slots are told in ranges because they are too many.
    pub has_ranges: bool,
}

/// Which range is to be run again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = BackfillRequest)]
pub struct BackfillPlanRequest {
    /// The first instant.
    pub from: Timestamp,
    /// The first instant after the range.
    pub to: Timestamp,
    /// Of which schedules; of all that have slots when there are none.
    #[serde(default)]
    pub schedules: Vec<String>,
    /// Which slots: `missing`, `failed` (those too) or `all`.
    #[serde(default = "missing")]
    pub reprocess: String,
    /// `asc` or `desc` (newest first).
    #[serde(default = "ascending")]
    pub order: String,
    /// How many at a time.
    #[serde(default = "one")]
    pub concurrency: u32,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// Whether what is older than what is kept counts as missing.
    #[serde(default)]
    pub assume_missing: bool,
}

fn missing() -> String {
    "missing".to_owned()
}

fn ascending() -> String {
    "asc".to_owned()
}

fn one() -> u32 {
    1
}

/// What a backfill would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = BackfillPlan)]
pub struct BackfillPlanAnswer {
    /// Of which pipeline.
    pub pipeline: String,
    /// The first instant.
    pub from: Timestamp,
    /// The first instant after the range.
    pub to: Timestamp,
    /// Of which schedules.
    pub schedules: Vec<String>,
    /// Which slots.
    pub reprocess: String,
    /// In which order.
    pub order: String,
    /// How many would run at a time: not more than `maxActiveRuns`.
    pub concurrency: u32,
    /// Slots in the range.
    pub count: u64,
    /// How many would be opened: those that would run, and those that would wait until they are ready.
    pub total: u64,
    /// The hash of those.
    pub plan: String,
    /// How many slots have which verdict; of `excluded`, how many days.
    pub verdicts: BTreeMap<String, u64>,
    /// In the order of the backfill; a plan of more than 10,000 slots is told in ranges.
    pub slots: Vec<BackfillLineAnswer>,
}

/// What a backfill would do with a slot, or with many in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = BackfillLine)]
pub struct BackfillLineAnswer {
    /// Of which schedule.
    pub schedule: String,
    /// Its instant; of a range the first one; null of a day that has none.
    pub slot: Option<Timestamp>,
    /// The name of the slot; null of a range.
    pub name: Option<String>,
    /// The last instant.
    pub last: Option<Timestamp>,
    /// How many slots there are from one to the other.
    pub count: u64,
    /// The local date.
    pub date: Option<String>,
    /// `would_run`, `not_ready`, `exists`, `open`, `owed` or `excluded`.
    pub verdict: String,
    /// How it ended, or why it is not ready or left out.
    pub reason: Option<String>,
}

/// Which alerts are to be kept back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schema(as = SilenceRequest)]
pub struct SilencePlanRequest {
    /// Its name; one is made when it is absent.
    pub id: Option<String>,
    /// Which alerts; at least one of its lists is needed.
    pub when: AlertFilterAnswer,
    /// From when on; from now on when it is absent.
    pub from: Option<Timestamp>,
    /// Until when.
    pub until: Option<Timestamp>,
    /// For how long instead, such as `2h`; of a cron expression, how long each window is.
    #[serde(rename = "for")]
    pub length: Option<String>,
    /// Only within windows of the week: `sat-sun 02:00-06:00`.
    pub weekly: Option<String>,
    /// Only within windows that begin when this cron expression says; `for` is their length.
    pub cron: Option<String>,
    /// The zone of the windows; UTC when it is absent.
    pub timezone: Option<String>,
    /// Why.
    pub reason: String,
}

/// Which alerts something is about. Each list that is not empty must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schema(as = AlertFilter)]
pub struct AlertFilterAnswer {
    /// `error`, `warning`, `info`.
    pub levels: Vec<String>,
    /// Such as `schedule_missed`.
    pub types: Vec<String>,
    /// Names of pipelines; `*` stands for any text.
    pub pipelines: Vec<String>,
    /// Owners of pipelines.
    pub owners: Vec<String>,
    /// Labels of pipelines.
    pub labels: BTreeMap<String, String>,
}

/// What a silence would hide.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SilencePlan)]
pub struct SilencePlanAnswer {
    /// Its name.
    pub id: String,
    /// Which alerts.
    pub when: AlertFilterAnswer,
    /// From when on.
    pub from: Timestamp,
    /// Until when.
    pub until: Option<Timestamp>,
    /// Only within these windows.
    pub windows: Option<SilenceWindowsAnswer>,
    /// Why.
    pub reason: String,
    /// Who wants it.
    pub by: String,
    /// Whether it would keep quiet from now on.
    pub is_in_force: bool,
    /// The hash of what is decided: the kind of alerts, when, and which incidents that hides.
    pub plan: String,
    /// Those that are open or of the last seven days and match, newest first.
    pub incidents: Vec<HiddenIncidentAnswer>,
    /// Whether there were more incidents than were looked at.
    pub more: bool,
}

/// Times that come again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SilenceWindows)]
pub struct SilenceWindowsAnswer {
    /// When each begins.
    pub cron: String,
    /// How long each is.
    #[serde(rename = "for")]
    pub length: String,
    /// By which zone.
    pub timezone: String,
}

/// An incident that a silence would hide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = HiddenIncident)]
pub struct HiddenIncidentAnswer {
    /// Whose it is.
    pub pipeline: String,
    /// Its dedup key.
    pub key: String,
    /// `open`, `acknowledged` or `resolved`.
    pub state: String,
    /// Since when.
    pub opened_at: Timestamp,
}

/// The hash of what is decided.
#[derive(Debug, Default)]
pub(crate) struct PlanHash(String);

impl PlanHash {
    /// With one more decision.
    pub(crate) fn add(&mut self, decision: &str) {
        self.0.push_str(decision);
        self.0.push('\n');
    }

    /// Its text.
    pub(crate) fn finish(&self) -> String {
        format!("{:016x}", fnv1a(self.0.as_bytes()))
    }
}
