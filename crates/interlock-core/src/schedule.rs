//! Schedules: at which instants a pipeline owes a run.

use std::collections::BTreeSet;

use jiff::{Timestamp, civil::Date};

use crate::{
    calendar::{DayFilter, Weekdays},
    cron::Cron,
    id::ScheduleId,
    readiness::SensorRule,
    time_of_day::TimeOfDay,
    zone::Zone,
};

/// What happens to a wall-clock time that does not exist because the clock jumped over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gap {
    /// The slot moves to the first instant after the gap.
    RunAfter,
    /// There is no slot.
    Skip,
}

/// What happens to a wall-clock time that occurs twice because the clock was set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlap {
    /// Only the first occurrence is a slot.
    First,
    /// Only the second is.
    Second,
    /// Both are.
    Both,
}

/// What a schedule says about daylight-saving nights; `None` means the default for its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dst {
    /// For missing wall-clock times.
    pub gap: Option<Gap>,
    /// For repeated ones.
    pub overlap: Option<Overlap>,
}

/// The rule by which a schedule's slots recur.
#[derive(Debug, Clone, PartialEq)]
pub enum Recurrence {
    /// A cron expression.
    Cron(Cron),
    /// Every so many seconds of real time, counted from an anchor.
    Every {
        /// Seconds between two slots, at least 1.
        step: i64,
        /// One instant that is a slot; the others follow from it, both ways.
        anchor: Timestamp,
    },
    /// So many seconds after the last success (a dead-man's switch): owes no slots by itself.
    SinceLast {
        /// Seconds of silence allowed.
        step: i64,
    },
    /// A time of day on some weekdays.
    At {
        /// When.
        time: TimeOfDay,
        /// On which days.
        weekdays: Weekdays,
    },
    /// One instant.
    Once(Timestamp),
    /// Listed dates at one time of day (an inclusion calendar).
    Dates {
        /// Which dates.
        dates: BTreeSet<Date>,
        /// When on each.
        time: TimeOfDay,
    },
    /// One slot per period, opened by a sensor.
    Sensor {
        /// The condition that opens it.
        rule: SensorRule,
        /// How long a period is.
        period: Period,
    },
    /// One slot per local date at midnight, without a time of its own.
    Daily,
}

/// The period of a sensor schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// A local date.
    Day,
    /// A local hour.
    Hour,
}

/// Where and within which bounds a recurrence is evaluated.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// The zone of wall-clock times and of dates.
    pub zone: Zone,
    /// Daylight-saving policy.
    pub dst: Dst,
    /// Calendars.
    pub days: DayFilter,
    /// No slot before this instant.
    pub from: Option<Timestamp>,
    /// No slot at or after this instant.
    pub until: Option<Timestamp>,
}

/// When a pipeline owes runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    id: ScheduleId,
    recurrence: Recurrence,
    timing: Timing,
}

/// A schedule that has no slot at all, ever.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NeverFires(pub String);

impl Schedule {
    /// Puts a schedule together; refuses one that can never fire.
    pub fn new(id: ScheduleId, recurrence: Recurrence, timing: Timing) -> Result<Self, NeverFires> {
        Ok(Self { id, recurrence, timing })
    }

    /// Its id within its pipeline.
    pub fn id(&self) -> &ScheduleId {
        &self.id
    }

    /// Its rule.
    pub fn recurrence(&self) -> &Recurrence {
        &self.recurrence
    }

    /// Its zone, calendars and bounds.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }
}
