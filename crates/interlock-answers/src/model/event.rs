//! Events: what happened.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::page::ListingOrder;

/// Which events are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Only of this pipeline; `_system` for what belongs to none.
    pub pipeline: Option<String>,
    /// Only of one of these kinds, such as `JOB_COMPLETED`.
    pub kind: Vec<String>,
    /// Only about this slot, as `schedule/instant`.
    pub slot: Option<String>,
    /// Only about this run.
    pub run_id: Option<String>,
    /// Which come first; the oldest when absent.
    #[param(inline)]
    pub order: Option<ListingOrder>,
    /// Behind this cursor: the `next` of the page before; or behind the event with this number, in the order of the list.
    pub after: Option<String>,
    /// At most so many, up to 1,000.
    pub limit: Option<usize>,
}

/// Which events a stream has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct StreamQuery {
    /// Only of these pipelines; `_system` for what belongs to none.
    pub pipeline: Vec<String>,
    /// Only of these kinds, such as `JOB_COMPLETED`.
    pub kind: Vec<String>,
    /// Behind the event with this number; from now on when absent. The header `Last-Event-ID` goes before it.
    pub after: Option<u64>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Event)]
pub struct EventAnswer {
    /// Ever-growing within the store.
    pub number: u64,
    /// Whose it is; `_system` for what belongs to no pipeline.
    pub pipeline: String,
    /// What happened, such as `SLOT_OPENED`.
    pub kind: String,
    /// When.
    pub at: Timestamp,
    /// Which slot, as `schedule/instant`.
    pub slot: Option<String>,
    /// Which run.
    pub run_id: Option<String>,
    /// For people: what and why.
    pub message: String,
    /// The evidence.
    pub details: BTreeMap<String, Value>,
}
