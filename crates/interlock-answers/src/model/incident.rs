//! Incidents, and who was told of them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// Which incidents are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct IncidentsQuery {
    /// Only of this pipeline; `_system` for what belongs to none.
    pub pipeline: Option<String>,
    /// Only in one of these states; those that are `open` or `acknowledged` when absent, not the `resolved` ones.
    pub state: Vec<String>,
    /// Only of one of these levels: `error`, `warning`, `info`.
    pub level: Vec<String>,
    /// Only of one of these kinds, such as `SCHEDULE_MISSED`.
    pub kind: Vec<String>,
    /// Only of pipelines of one of these owners.
    pub owner: Vec<String>,
    /// Only of pipelines with all of these labels, each as `name=value`.
    pub label: Vec<String>,
    /// Only opened at this instant or later.
    pub from: Option<Timestamp>,
    /// Only opened before this instant.
    pub until: Option<Timestamp>,
    /// Behind this cursor: the `next` of the page before.
    pub after: Option<String>,
    /// At most so many, up to 1,000.
    pub limit: Option<usize>,
}

/// Which incident is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Path)]
pub struct IncidentPath {
    /// Of which pipeline; `_system` for what belongs to none.
    pub pipeline: String,
    /// Its dedup key.
    pub key: String,
}

/// How open incidents are to be counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct IncidentGroupsQuery {
    /// By what they have in common.
    #[param(inline)]
    pub by: IncidentGrouping,
}

/// What incidents may have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum IncidentGrouping {
    /// The kind of the event that opened them.
    Kind,
    /// The owner of their pipelines.
    Owner,
    /// What their pipelines wait for.
    Upstream,
    /// Their pipeline.
    Pipeline,
}

/// Something that a person should know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Incident)]
pub struct IncidentAnswer {
    /// Its dedup key, such as `failed:orders:daily:2026-02-25`.
    pub key: String,
    /// Whose it is; `_system` for what belongs to no pipeline.
    pub pipeline: String,
    /// `open`, `acknowledged` or `resolved`.
    pub state: String,
    /// `error`, `warning` or `info`.
    pub level: String,
    /// The kind of the event that opened it, such as `RETRY_EXHAUSTED`.
    pub kind: String,
    /// For people.
    pub message: String,
    /// What it is about.
    pub details: BTreeMap<String, Value>,
    /// How many findings it stands for.
    pub count: u64,
    /// Since when.
    pub opened_at: Timestamp,
    /// When something last joined or resolved it.
    pub updated_at: Timestamp,
    /// Who looks at it.
    pub acknowledged: Option<HandAnswer>,
    /// Who called it over; null also if it was found to be over.
    pub resolved: Option<HandAnswer>,
    /// Why it is not told yet, such as a silence.
    pub held: Option<String>,
}

/// What a person did with an incident.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = IncidentHand)]
pub struct HandAnswer {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: String,
    /// Why, or what else there is to say.
    pub note: Option<String>,
}

/// An incident, and where its alerts are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = IncidentDetail)]
pub struct IncidentDetailAnswer {
    /// The incident.
    #[serde(flatten)]
    pub incident: IncidentAnswer,
    /// Its alerts that are not delivered: what a channel has is not listed. Empty when every channel that asks has all of them.
    pub deliveries: Vec<DeliveryAnswer>,
}

/// An alert on its way to a channel, or given up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Delivery)]
pub struct DeliveryAnswer {
    /// Its name in the outbox.
    pub name: String,
    /// To which channel; null while it has not been asked which channels get it.
    pub channel: Option<String>,
    /// What it tells: `open`, `acknowledged` or `resolved`; null for what is about no incident.
    pub tells: Option<String>,
    /// `waiting`, `held`, `retrying` or `dead`.
    pub state: String,
    /// How often it was tried.
    pub tries: u32,
    /// When it is tried next; null once it is dead.
    pub next_try_at: Option<Timestamp>,
    /// Why it is held, or why the last try failed.
    pub reason: Option<String>,
}

/// Open incidents, counted by what they have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = IncidentGroups)]
pub struct IncidentGroupsAnswer {
    /// The groups, the largest first.
    pub items: Vec<IncidentGroupAnswer>,
    /// How many open incidents were counted.
    pub scanned: u64,
    /// Whether there are more, which were not counted.
    pub is_cut: bool,
}

/// Open incidents that have something in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = IncidentGroup)]
pub struct IncidentGroupAnswer {
    /// What they have in common.
    pub by: IncidentGrouping,
    /// Which; null for pipelines that have none.
    pub value: Option<String>,
    /// How many there are.
    pub count: u64,
    /// When the first of them was opened.
    pub first_opened_at: Timestamp,
    /// When the last of them was opened.
    pub last_opened_at: Timestamp,
    /// A pipeline of them.
    pub example: String,
}

/// An alert that was given up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLetter)]
pub struct DeadLetterAnswer {
    /// Its name in the outbox.
    pub name: String,
    /// Of which pipeline.
    pub pipeline: String,
    /// To which channel.
    pub channel: String,
    /// How often it was tried.
    pub tries: u32,
    /// Why the last try failed.
    pub error: Option<String>,
    /// The alert, as webhooks are sent it.
    pub alert: Value,
}

impl IncidentGrouping {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kind => "kind",
            Self::Owner => "owner",
            Self::Upstream => "upstream",
            Self::Pipeline => "pipeline",
        }
    }
}
