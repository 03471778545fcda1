//! Cron expressions: from text to sets of days and times.
//!
//! The dialect is classic cron (Vixie) with the extensions people bring from elsewhere: names,
//! `@daily` and its sisters, a `CRON_TZ=` prefix, and `L`, `L-n`, `LW`, `nW`, `d#n`, `dL` in the day
//! fields. It is strict: what classic cron would read as something surprising is an error that points
//! at the character.
//!
//! An expression says nothing about zones or daylight saving; [`crate::schedule`] adds those. Here it
//! is two independent things: a set of times of day ([`Times`]) and, for any month, a mask of days.

mod parse;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::{
    civil::{Month, SECONDS_PER_DAY},
    text::TextError,
};

/// Whether an expression has a seconds field in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seconds {
    /// Five fields; a sixth is refused.
    Absent,
    /// Six fields, the first being seconds.
    Present,
}

/// A parsed cron expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    text: Box<str>,
    times: Times,
    days: Days,
    is_fixed: bool,
    day_fields: Range<usize>,
}

/// A parsed expression and what else its text said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronText {
    /// The expression.
    pub cron: Cron,
    /// The zone named by a `CRON_TZ=` or `TZ=` prefix, with its place in the text.
    pub zone: Option<(String, Range<usize>)>,
    /// Legal, but probably not what was meant.
    pub warnings: Vec<TextError>,
}

impl Cron {
    /// Reads an expression. Whether it can ever fire is asked of the schedule it becomes part of.
    pub fn parse(text: &str, seconds: Seconds) -> Result<CronText, TextError> {
        parse::parse(text, seconds)
    }

    /// The expression as written, without a zone prefix.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it names its times instead of following the clock: no `*` in seconds, minutes or
    /// hours. A fixed time is owed once per local date even on daylight-saving nights; a wildcard
    /// follows real time.
    pub fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// Where the day and month fields stand in the text that was parsed: the place to point at when
    /// no day ever matches.
    pub fn day_fields(&self) -> Range<usize> {
        self.day_fields.clone()
    }

    pub(crate) fn times(&self) -> Times {
        self.times
    }

    /// Whether every day of every month matches.
    pub(crate) fn is_daily(&self) -> bool {
        let Days { months, of_month, of_week, .. } = self.days;
        months == 0xfff && of_month == 0x7fff_ffff && of_week == 0x7f
    }

    pub(crate) fn days_in(&self, month: Month) -> u32 {
        self.days.days_in(month)
    }
}

/// A set of times of day: every combination of its hours, minutes and seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    /// Invariant: none of the three is empty.
    pub(crate) hours: u32,
    pub(crate) minutes: u64,
    pub(crate) seconds: u64,
}

impl Times {
    /// One time of day, in seconds since midnight.
    pub(crate) fn one(second_of_day: u32) -> Self {
        Self {
            hours: 1 << (second_of_day / 3600),
            minutes: 1 << (second_of_day / 60 % 60),
            seconds: 1 << (second_of_day % 60),
        }
    }

    /// Every full hour.
    pub(crate) fn hourly() -> Self {
        Self { hours: 0xff_ffff, minutes: 1, seconds: 1 }
    }

    pub(crate) fn first(self) -> i64 {
        join(self.hours.trailing_zeros(), self.first_minute(), self.first_second())
    }

    pub(crate) fn last(self) -> i64 {
        join(self.hours.ilog2(), self.last_minute(), self.last_second())
    }

    /// The earliest time in the set at or after a second of the day.
    #[inline]
    pub(crate) fn at_or_after(self, second_of_day: i64) -> Option<i64> {
        assert!((0..SECONDS_PER_DAY).contains(&second_of_day));
        let (hour, minute, second) = split(second_of_day);
        if self.hours >> hour & 1 == 1 {
            if self.minutes >> minute & 1 == 1 {
                let later = self.seconds >> second;
                if later != 0 {
                    return Some(join(hour, minute, second + later.trailing_zeros()));
                }
            }
            let later = self.minutes >> minute >> 1;
            if later != 0 {
                let minute = minute + 1 + later.trailing_zeros();
                return Some(join(hour, minute, self.first_second()));
            }
        }
        let later = self.hours >> hour >> 1;
        let hour = hour + 1 + later.trailing_zeros();
        (later != 0).then(|| join(hour, self.first_minute(), self.first_second()))
    }

    /// The latest time in the set at or before a second of the day.
    pub(crate) fn at_or_before(self, second_of_day: i64) -> Option<i64> {
        assert!((0..SECONDS_PER_DAY).contains(&second_of_day));
        let (hour, minute, second) = split(second_of_day);
        if self.hours >> hour & 1 == 1 {
            if self.minutes >> minute & 1 == 1 {
                let earlier = self.seconds & (2_u64 << second).wrapping_sub(1);
                if earlier != 0 {
                    return Some(join(hour, minute, earlier.ilog2()));
                }
            }
            let earlier = self.minutes & ((1_u64 << minute) - 1);
            if earlier != 0 {
                return Some(join(hour, earlier.ilog2(), self.last_second()));
            }
        }
        let earlier = self.hours & ((1_u32 << hour) - 1);
        (earlier != 0).then(|| join(earlier.ilog2(), self.last_minute(), self.last_second()))
    }

    fn first_minute(self) -> u32 {
        self.minutes.trailing_zeros()
    }

    fn last_minute(self) -> u32 {
        self.minutes.ilog2()
    }

    fn first_second(self) -> u32 {
        self.seconds.trailing_zeros()
    }

    fn last_second(self) -> u32 {
        self.seconds.ilog2()
    }
}

fn split(second_of_day: i64) -> (u32, u32, u32) {
    let second_of_day = second_of_day as u32;
    (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60)
}

fn join(hour: u32, minute: u32, second: u32) -> i64 {
    i64::from(hour * 3600 + minute * 60 + second)
}

/// The day-of-month, month and day-of-week fields.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Days {
    /// Bit 0 is January.
    months: u16,
    /// Bit 0 is the first of the month.
    of_month: u32,
    of_month_special: Vec<OfMonth>,
    /// Bit 0 is Sunday.
    of_week: u8,
    of_week_special: Vec<OfWeek>,
    /// Classic cron: when both day fields are restricted either may match, else both must. A field
    /// with a `*` (also `*/2`) is not a restriction in this sense.
    either: bool,
}

/// Days that depend on the month they are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OfMonth {
    /// `L`, `L-n`: so many days before the last.
    BeforeLast(u8),
    /// `LW`: the last weekday (Monday to Friday).
    LastWeekday,
    /// `nW`: the weekday nearest to the n-th, within the month.
    NearestWeekday(u8),
}

/// Weekdays by their position in the month; Sunday is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OfWeek {
    /// `d#n`.
    Nth { weekday: u8, n: u8 },
    /// `dL`.
    Last { weekday: u8 },
}

const MONDAY_TO_FRIDAY: u8 = 0b011_1110;

impl Days {
    /// The days of a month on which the expression fires.
    fn days_in(&self, month: Month) -> u32 {
        if self.months >> (month.number - 1) & 1 == 0 {
            return 0;
        }
        let of_month = self
            .of_month_special
            .iter()
            .fold(self.of_month, |days, special| days | special.days_in(month));
        let of_week = self
            .of_week_special
            .iter()
            .fold(month.days_on(self.of_week), |days, special| days | special.days_in(month));
        let days = if self.either { of_month | of_week } else { of_month & of_week };
        days & month.all_days()
    }
}

impl OfMonth {
    fn days_in(self, month: Month) -> u32 {
        let weekdays = month.days_on(MONDAY_TO_FRIDAY);
        match self {
            Self::BeforeLast(n) if n < month.length => 1 << (month.length - 1 - n),
            Self::LastWeekday => 1 << (weekdays.ilog2()),
            Self::NearestWeekday(n) if n <= month.length => {
                // At most two days away: Saturday the 1st goes to the 3rd, Sunday the last goes back.
                let day = 1_u32 << (n - 1);
                [day, day >> 1, day << 1, day >> 2, day << 2]
                    .into_iter()
                    .find(|candidate| candidate & weekdays != 0)
                    .unwrap_or(0)
            }
            Self::BeforeLast(_) | Self::NearestWeekday(_) => 0,
        }
    }
}

impl OfWeek {
    fn days_in(self, month: Month) -> u32 {
        match self {
            Self::Nth { weekday, n } => {
                let mut days = month.days_on(1 << weekday);
                for _ in 1..n {
                    days &= days.wrapping_sub(1);
                }
                days & days.wrapping_neg()
            }
            Self::Last { weekday } => 1 << (month.days_on(1 << weekday).ilog2()),
        }
    }
}
