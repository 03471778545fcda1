//! Pipelines: what is declared, and where each stands.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// Which pipelines are asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct PipelinesQuery {
    /// Only those with one of these names.
    pub pipeline: Vec<String>,
    /// Only those of one of these owners.
    pub owner: Vec<String>,
    /// Only those with one of these labels: `domain=orders`, or `domain` with any value.
    pub label: Vec<String>,
    /// Only those with this text in their name, owner or description, whatever its case.
    pub q: Option<String>,
    /// Behind this cursor: the `next` of the page before.
    pub after: Option<String>,
    /// At most so many, up to 1,000.
    pub limit: Option<usize>,
    /// As of this instant instead of now.
    pub at: Option<Timestamp>,
}

/// As of when a question is meant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct InstantQuery {
    /// As of this instant instead of now.
    pub at: Option<Timestamp>,
}

/// What a pipeline declares, as lists tell of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeclaredPipeline)]
pub struct DeclaredAnswer {
    /// Its name.
    pub pipeline: String,
    /// The version of the declaration.
    pub version: Option<String>,
    /// Who looks after it.
    pub owner: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// How much it matters, by its owner's word.
    pub tier: Option<u32>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether its slots are owed: false of one whose file says `watch.enabled: false`, and of one that is not declared.
    pub enabled: bool,
    /// Its schedules: those that start runs, then those that stop or restart what runs.
    pub schedules: Vec<ScheduleAnswer>,
    /// The kind of its trigger, such as `command`.
    pub trigger: Option<String>,
    /// The pipelines that it waits for.
    pub upstreams: Vec<String>,
    /// The next slot.
    pub next: Option<NextAnswer>,
}

/// A schedule of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Schedule)]
pub struct ScheduleAnswer {
    /// Its id.
    pub id: String,
    /// What it does: `start`, `stop` or `restart`.
    pub action: String,
    /// When, in words: `0 3 * * * (Europe/Riga)`.
    pub when: String,
    /// By which zone.
    pub zone: String,
}

/// The next slot of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = NextSlot)]
pub struct NextAnswer {
    /// Of which schedule.
    pub schedule: String,
    /// Its instant.
    pub utc: Timestamp,
}

/// Where a pipeline stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Pipeline)]
pub struct PipelineAnswer {
    /// What it declares.
    #[serde(flatten)]
    pub declared: DeclaredAnswer,
    /// Since when its slots are owed; null of one that `interlock serve` has not seen.
    pub first_seen: Option<Timestamp>,
    /// Since when no longer.
    pub retired_at: Option<Timestamp>,
    /// The pause that is in force.
    pub paused: Option<PauseAnswer>,
    /// Whether its file says `watch.enabled: false`.
    pub disabled: bool,
    /// Its backfills that run or are paused.
    pub backfills: Vec<BackfillProgressAnswer>,
    /// The last recorded slot.
    pub last: Option<SlotStateAnswer>,
    /// Its open slots, in order of time.
    pub open: Vec<SlotStateAnswer>,
    /// Whether there are more open slots than `open` has.
    pub more_open: bool,
    /// How far each schedule is recorded.
    pub watermarks: BTreeMap<String, Timestamp>,
    /// Why its declaration cannot be loaded; what is recorded is told all the same.
    pub problem: Option<String>,
}

/// Where a pipeline stands, with all that it declares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PipelineDetail)]
pub struct PipelineDetailAnswer {
    /// Where it stands.
    #[serde(flatten)]
    pub standing: PipelineAnswer,
    /// How long runs of its schedules usually take.
    pub usual: Vec<UsualDurationAnswer>,
    /// Its slots that run now, at most 100, in order of time.
    pub running: Vec<RunningSlotAnswer>,
    /// The declaration with its defaults and without secrets, as `interlock show --json` prints it; null of one that is not declared.
    #[schema(value_type = Option<Object>)]
    pub declaration: Value,
}

/// How long runs of a schedule usually take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UsualDuration)]
pub struct UsualDurationAnswer {
    /// Which schedule.
    pub schedule: String,
    /// The median of its last 20 completed runs, in seconds; null of fewer than five.
    pub seconds: Option<i64>,
    /// How many completed runs that is taken from.
    pub runs: u64,
}

/// A slot that runs now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = RunningSlot)]
pub struct RunningSlotAnswer {
    /// Its name.
    pub slot: String,
    /// Its run.
    pub run: String,
    /// When its job began.
    pub started_at: Timestamp,
    /// When it should end, by how long runs usually take, else by `sla.expectedDuration`; not before now.
    pub expected_end: Option<Timestamp>,
    /// Why it is at risk, if so: `deadlinePassed`, `expectedTooLate`, `deadlineNear`, `longerThanExpected`, `longerThanUsual`.
    pub risk: Option<String>,
}

/// A pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PauseInForce)]
pub struct PauseAnswer {
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// Until when; null until a person resumes it.
    pub until: Option<Timestamp>,
}

/// How far a backfill is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = BackfillProgress)]
pub struct BackfillProgressAnswer {
    /// Its number.
    pub id: u64,
    /// `running` or `paused`.
    pub state: String,
    /// How many of its slots have ended.
    pub ended: u64,
    /// How many were planned.
    pub total: u64,
}

/// A slot, in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SlotState)]
pub struct SlotStateAnswer {
    /// Its name.
    pub slot: String,
    /// Of which schedule.
    pub schedule: String,
    /// Its instant.
    pub utc: Timestamp,
    /// `waiting` to `closed`.
    pub state: String,
    /// How it ended.
    pub disposition: Option<String>,
    /// Why it was skipped.
    pub reason: Option<String>,
}
