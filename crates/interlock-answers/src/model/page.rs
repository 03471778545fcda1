//! Which part of a list is asked for, where there is nothing else to ask.

use interlock_store::ListOrder;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Behind this cursor: the `next` of the page before.
    pub after: Option<String>,
    /// At most so many, up to 1,000.
    pub limit: Option<usize>,
}

/// Which end of a list comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ListingOrder {
    /// The oldest.
    Oldest,
    /// The newest.
    Newest,
}

impl From<ListingOrder> for ListOrder {
    fn from(order: ListingOrder) -> Self {
        match order {
            ListingOrder::Oldest => Self::OldestFirst,
            ListingOrder::Newest => Self::NewestFirst,
        }
    }
}
