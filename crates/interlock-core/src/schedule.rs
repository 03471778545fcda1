//! Schedules: at which instants a pipeline owes a run.
//!
//! A schedule is a recurrence (cron, interval, time of day, listed dates, one instant, or a sensor's
//! periods) in a zone, on the days its calendars leave, within its bounds. It answers which instants
//! are slots, and nothing else: what becomes of them is decided elsewhere.
//!
//! Everything with a wall clock goes through one evaluator, [`wall`]: a set of days and a set of times
//! of day, walked over the zone's segments of constant offset. On a daylight-saving night the policy is
//! then two explicit rules:
//! - **gap** (wall times are missing): `run_after` owes one slot at the first instant after the gap if a
//!   matching time fell into it; `skip` owes none.
//! - **overlap** (wall times occur twice): `first`, `second` or `both` occurrences are slots.
//!
//! By default a fixed time (`0 3 * * *`) runs once per local date: `run_after`, `first`. A wildcard
//! (`*/15 * * * *`) follows real time: `skip`, `both`. A local date that does not exist at all (Samoa
//! skipped 2011-12-30) owes nothing.
//!
//! Invariant (S1): slots are pure, strictly increasing, and the same however an interval is split,
//! because each answer depends on the instant asked about and never on the one asked before.

mod every;
mod explain;
mod wall;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp, civil::Date};

pub use self::explain::{DstEffect, Occurrence, Omission};
use self::{every::Every, wall::Wall};
use crate::{
    calendar::{DayFilter, Weekdays},
    cron::Cron,
    id::{PipelineId, ScheduleId, fnv1a},
    readiness::SensorRule,
    time_of_day::TimeOfDay,
    zone::{EARLIEST, LATEST, Zone, timestamp},
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
    evaluator: Evaluator,
    /// First second that may be a slot, and first one after the last that may.
    bounds: (i64, i64),
}

/// How slots are computed; each kind in seconds since the epoch.
#[derive(Debug, Clone, PartialEq)]
enum Evaluator {
    Wall(Wall),
    Every(Every),
    Once(i64),
    /// Slots come from elsewhere.
    Nothing,
}

/// Why a schedule has no slot at all, ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NeverFires {
    /// The expression or the dates by themselves.
    #[error("this schedule can never fire: no day has such a date and time")]
    Recurrence,
    /// The calendars.
    #[error("this schedule can never fire: its calendars leave out every day on which it would")]
    Calendars,
    /// The bounds.
    #[error("this schedule can never fire: it has no slot between its `from` and `until`")]
    Bounds,
}

/// The slots of an interval, and where they were cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    /// The slots found, in order.
    pub found: Vec<Timestamp>,
    /// The first slot of the interval that is not in `found`, because the limit was reached.
    pub rest: Option<Timestamp>,
}

impl Schedule {
    /// Puts a schedule together; refuses one that can never fire.
    pub fn new(id: ScheduleId, recurrence: Recurrence, timing: Timing) -> Result<Self, NeverFires> {
        let evaluator = match &recurrence {
            Recurrence::Every { step, anchor } => {
                Evaluator::Every(Every { step: (*step).max(1), anchor: anchor.as_second() })
            }
            Recurrence::Once(at) => Evaluator::Once(at.as_second()),
            Recurrence::SinceLast { .. } => Evaluator::Nothing,
            Recurrence::Cron(_)
            | Recurrence::At { .. }
            | Recurrence::Dates { .. }
            | Recurrence::Sensor { .. }
            | Recurrence::Daily => Evaluator::Wall(Wall::new(&recurrence, timing.dst)),
        };
        let bounds = (
            timing.from.map_or(EARLIEST, second_at_or_after).max(EARLIEST),
            timing.until.map_or(LATEST, second_at_or_after).min(LATEST),
        );
        let schedule = Self { id, recurrence, timing, evaluator, bounds };
        if schedule.evaluator != Evaluator::Nothing && schedule.first_second(EARLIEST).is_none() {
            return Err(schedule.why_never());
        }
        Ok(schedule)
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

    /// The first slot at or after an instant.
    pub fn next(&self, at_or_after: Timestamp) -> Option<Timestamp> {
        self.first_second(second_at_or_after(at_or_after)).map(timestamp)
    }

    /// The first slot after an instant.
    pub fn after(&self, instant: Timestamp) -> Option<Timestamp> {
        self.next(instant.saturating_add(SignedDuration::from_nanos(1)).ok()?)
    }

    /// The last slot before an instant.
    pub fn previous(&self, before: Timestamp) -> Option<Timestamp> {
        self.last_second(second_at_or_after(before)).map(timestamp)
    }

    /// The slots in `[from, until)`, at most `limit` of them.
    pub fn slots(&self, from: Timestamp, until: Timestamp, limit: usize) -> Slots {
        let mut found = Vec::new();
        let until = second_at_or_after(until);
        let mut next = self.first_second(second_at_or_after(from)).filter(|slot| *slot < until);
        while let Some(slot) = next
            && found.len() < limit
        {
            found.push(timestamp(slot));
            next = self.first_second(slot + 1).filter(|slot| *slot < until);
        }
        Slots { found, rest: next.map(timestamp) }
    }

    /// Whether an instant is a slot.
    pub fn is_slot(&self, at: Timestamp) -> bool {
        self.next(at) == Some(at)
    }

    #[inline]
    fn first_second(&self, from: i64) -> Option<i64> {
        let from = from.max(self.bounds.0);
        let found = match &self.evaluator {
            Evaluator::Wall(wall) => wall.first_from(from, self.bounds.1, &self.timing),
            Evaluator::Every(every) => every.first_from(from, self.bounds.1, &self.timing),
            Evaluator::Once(at) => (*at >= from && self.allows(*at)).then_some(*at),
            Evaluator::Nothing => None,
        };
        found.filter(|slot| *slot < self.bounds.1)
    }

    fn last_second(&self, before: i64) -> Option<i64> {
        let before = before.min(self.bounds.1);
        let found = match &self.evaluator {
            Evaluator::Wall(wall) => wall.last_before(before, self.bounds.0, &self.timing),
            Evaluator::Every(every) => every.last_before(before, self.bounds.0, &self.timing),
            Evaluator::Once(at) => (*at < before && self.allows(*at)).then_some(*at),
            Evaluator::Nothing => None,
        };
        found.filter(|slot| *slot >= self.bounds.0)
    }

    fn allows(&self, second: i64) -> bool {
        let day = self.timing.zone.day_at(second);
        self.timing.days.allows(crate::civil::date_of_day(day))
    }

    fn why_never(&self) -> NeverFires {
        let unbounded = Timing { from: None, until: None, ..self.timing.clone() };
        let unfiltered = Timing { days: DayFilter::default(), ..unbounded.clone() };
        let fires =
            |timing: Timing| Self::new(self.id.clone(), self.recurrence.clone(), timing).is_ok();
        // Each question drops one more restriction, so the recursion ends.
        let is_bounded = self.timing.from.is_some() || self.timing.until.is_some();
        if is_bounded && fires(unbounded) {
            NeverFires::Bounds
        } else if !self.timing.days.is_empty() && fires(unfiltered) {
            NeverFires::Calendars
        } else {
            NeverFires::Recurrence
        }
    }
}

/// How much later than its nominal instant a pipeline's slots open: spread over `[0, jitter)`, always
/// the same for one pipeline and schedule, so that a thousand midnight jobs do not start together.
pub fn jitter_offset(
    pipeline: &PipelineId,
    schedule: &ScheduleId,
    jitter: SignedDuration,
) -> SignedDuration {
    let Ok(range) = u64::try_from(jitter.as_secs()) else { return SignedDuration::ZERO };
    if range == 0 {
        return SignedDuration::ZERO;
    }
    let hash = fnv1a(format!("{pipeline}~{schedule}").as_bytes());
    SignedDuration::from_secs((hash % range) as i64)
}

/// The first whole second at or after an instant. (For instants before 1970 `as_second` already
/// rounds towards it.)
fn second_at_or_after(at: Timestamp) -> i64 {
    at.as_second() + i64::from(at.subsec_nanosecond() > 0)
}
