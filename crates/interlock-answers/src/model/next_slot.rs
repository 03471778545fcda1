//! Coming slots, and the days on which daylight saving or a calendar changes them.

use jiff::{Timestamp, civil::Date};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Which coming slots of a pipeline are asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct NextSlotsQuery {
    /// From this instant on; from now on when it is absent.
    pub from: Option<Timestamp>,
    /// Up to this instant, which is not one of them.
    pub to: Option<Timestamp>,
    /// At most so many, up to 1,000; 5 when neither this nor `to` is given.
    pub count: Option<usize>,
    /// As of this instant instead of now.
    pub at: Option<Timestamp>,
}

/// Coming slots of a pipeline.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = NextSlots)]
pub struct NextSlotsAnswer {
    /// In order of time.
    pub items: Vec<NextSlotAnswer>,
    /// Whether there are more of them within the time that was asked about: `from` behind the last one goes on.
    pub more: bool,
    /// Sentences: why there are none, and when what runs is stopped or restarted next.
    pub remarks: Vec<String>,
}

/// A slot that is due some time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ComingSlot)]
pub struct NextSlotAnswer {
    /// Whose it is.
    pub pipeline: String,
    /// Of which schedule.
    pub schedule: String,
    /// Its name.
    pub slot: String,
    /// Its instant.
    pub utc: Timestamp,
    /// The same by the wall clock of the schedule.
    pub local: String,
    /// The local date that it stands for.
    pub date: Date,
    /// What daylight saving does to it: `moved`, `first_of_two` or `second_of_two`.
    pub dst: Option<String>,
    /// What is left out between the slot before and this one: at most three of them.
    pub left_out: Vec<LeftOutAnswer>,
    /// All of that, and what holds of each slot of the schedule, in words.
    pub note: String,
}

/// A day or a time without the slot that would be there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LeftOut)]
pub struct LeftOutAnswer {
    /// Which date.
    pub date: Date,
    /// Which calendar leaves it out and how, or which time does not exist.
    pub reason: String,
}

/// How far ahead marked days are asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct MarkedDaysQuery {
    /// So many days ahead, up to 400; 400 when absent.
    pub days: Option<u32>,
    /// As of this instant instead of now.
    pub at: Option<Timestamp>,
}

/// Days ahead on which something is different.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = MarkedDays)]
pub struct MarkedDaysAnswer {
    /// In order of time.
    pub items: Vec<MarkedDayAnswer>,
    /// Whether there are more than are listed.
    pub more: bool,
}

/// A day on which a schedule has other slots than usual.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = MarkedDay)]
pub struct MarkedDayAnswer {
    /// The local date.
    pub date: Date,
    /// Of which schedule.
    pub schedule: String,
    /// `excluded` (a calendar leaves it out) or `dst` (the clock is changed).
    pub kind: String,
    /// When the clock is changed.
    pub utc: Option<Timestamp>,
    /// By how many seconds: 3,600 in spring.
    pub shift_seconds: Option<i32>,
    /// How many slots there are that day; null where they were too many to count.
    pub slots: Option<u64>,
    /// How many fall away that would be there; null where they were too many to count.
    pub fall_away: Option<u64>,
    /// Whether any slot of the day is not as on other days.
    pub is_affected: bool,
    /// What happens, in words.
    pub note: String,
}
