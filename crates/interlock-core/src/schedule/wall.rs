//! The wall-clock evaluator: a set of days and a set of times, walked over a zone's segments.
//!
//! "Civil" seconds here are seconds since 1970-01-01T00:00 *on the wall*, as if it were UTC: inside one
//! segment `civil = utc + offset`. A segment's own slots are the matching civil seconds of its range,
//! less those of an overlap that belong to the neighbour; the slot owed for a gap stands at the
//! segment's first instant.

use std::ops::Range;

use super::{Dst, Gap, Overlap, Period, Recurrence, Timing};
use crate::{
    calendar::{Calendar, Weekdays},
    civil::{Month, SECONDS_PER_DAY},
    cron::{Cron, Times},
    zone::Segment,
};

/// Days and times on the wall clock.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wall {
    days: DayRule,
    times: Times,
    /// Whether every day matches.
    is_daily: bool,
    pub(super) gap: Gap,
    overlap: Overlap,
}

#[derive(Debug, Clone, PartialEq)]
enum DayRule {
    Cron(Cron),
    Weekdays(Weekdays),
    Dates(Calendar),
}

impl Wall {
    pub(super) fn new(recurrence: &Recurrence, dst: Dst) -> Self {
        let every_day = DayRule::Weekdays(Weekdays::ALL);
        let once = (Gap::RunAfter, Overlap::First);
        let (days, times, (gap, overlap)) = match recurrence {
            Recurrence::Cron(cron) => {
                let policy = if cron.is_fixed() { once } else { (Gap::Skip, Overlap::Both) };
                (DayRule::Cron(cron.clone()), cron.times(), policy)
            }
            Recurrence::At { time, weekdays } => {
                (DayRule::Weekdays(*weekdays), Times::one(time.seconds()), once)
            }
            Recurrence::Dates { dates, time } => {
                let dates = Calendar { dates: dates.clone(), ..Calendar::default() };
                (DayRule::Dates(dates), Times::one(time.seconds()), once)
            }
            // Every local hour is a period, also the rest of one whose beginning is missing.
            Recurrence::Sensor { period: Period::Hour, .. } => {
                (every_day, Times::hourly(), (Gap::RunAfter, Overlap::Both))
            }
            Recurrence::Sensor { period: Period::Day, .. }
            | Recurrence::Daily
            | Recurrence::Every { .. }
            | Recurrence::SinceLast { .. }
            | Recurrence::Once(_) => (every_day, Times::one(0), once),
        };
        let is_daily = match &days {
            DayRule::Cron(cron) => cron.is_daily(),
            DayRule::Weekdays(weekdays) => *weekdays == Weekdays::ALL,
            DayRule::Dates(_) => false,
        };
        let (gap, overlap) = (dst.gap.unwrap_or(gap), dst.overlap.unwrap_or(overlap));
        Self { days, times, is_daily, gap, overlap }
    }

    /// The first slot in `[from, until)`.
    #[inline]
    pub(super) fn first_from(&self, from: i64, until: i64, timing: &Timing) -> Option<i64> {
        let mut segment = timing.zone.segment_at(from);
        let mut at = from;
        loop {
            if at <= segment.start && self.owes_for_gap(&segment, timing).is_some() {
                return Some(segment.start);
            }
            let range = self.civil_range(&segment);
            let found = self.first_civil(range.start.max(at + segment.offset)..range.end, timing);
            if let Some(civil) = found {
                return Some(civil - segment.offset);
            }
            segment = timing.zone.segment_after(segment).filter(|segment| segment.start < until)?;
            at = segment.start;
        }
    }

    /// The last slot in `[from, before)`.
    pub(super) fn last_before(&self, before: i64, from: i64, timing: &Timing) -> Option<i64> {
        let mut segment = timing.zone.segment_at(before - 1);
        let mut end = before;
        loop {
            let range = self.civil_range(&segment);
            let found = self.last_civil(range.start..range.end.min(end + segment.offset), timing);
            if let Some(civil) = found {
                return Some(civil - segment.offset);
            }
            if segment.start < end && self.owes_for_gap(&segment, timing).is_some() {
                return Some(segment.start);
            }
            segment = timing.zone.segment_before(segment).filter(|segment| segment.end > from)?;
            end = segment.end;
        }
    }

    /// The civil times of a segment that are slots where they match.
    fn civil_range(&self, segment: &Segment) -> Range<i64> {
        let mut range = segment.start + segment.offset..segment.end + segment.offset;
        match self.overlap {
            Overlap::Both => {}
            Overlap::First => range.start = range.start.max(segment.start + segment.offset_before),
            Overlap::Second => range.end = range.end.min(segment.end + segment.offset_after),
        }
        range
    }

    /// The missing civil time for which a segment's first instant is owed, if there is one.
    pub(super) fn owes_for_gap(&self, segment: &Segment, timing: &Timing) -> Option<i64> {
        match self.gap {
            Gap::RunAfter => self.first_missing(segment, timing),
            Gap::Skip => None,
        }
    }

    /// The first matching civil time in the gap before a segment, on a date that exists at all.
    pub(super) fn first_missing(&self, segment: &Segment, timing: &Timing) -> Option<i64> {
        let gap = segment.gap_before()?;
        let mut rest = gap.clone();
        while let Some(civil) = self.first_civil(rest.clone(), timing) {
            let midnight = civil - civil.rem_euclid(SECONDS_PER_DAY);
            let next_midnight = midnight + SECONDS_PER_DAY;
            let date_is_missing = gap.start <= midnight && next_midnight <= gap.end;
            if !date_is_missing {
                return Some(civil);
            }
            rest.start = next_midnight;
        }
        None
    }

    /// Whether a civil second matches by itself.
    pub(super) fn matches(&self, civil: i64, timing: &Timing) -> bool {
        self.first_civil(civil..civil + 1, timing).is_some()
    }

    /// The first matching civil second of a range.
    #[inline]
    fn first_civil(&self, range: Range<i64>, timing: &Timing) -> Option<i64> {
        if range.is_empty() {
            return None;
        }
        let day = range.start.div_euclid(SECONDS_PER_DAY);
        let second_of_day = range.start - day * SECONDS_PER_DAY;
        if self.is_daily && timing.days.is_empty() {
            // Most schedules: no month has to be looked at.
            let time = self.times.at_or_after(second_of_day);
            let civil = day * SECONDS_PER_DAY
                + time.unwrap_or_else(|| SECONDS_PER_DAY + self.times.first());
            return (civil < range.end).then_some(civil);
        }
        let (mut month, day_of_month) = Month::of_day(day);
        let mut days = self.days_in(month, timing) >> (day_of_month - 1) << (day_of_month - 1);
        if days >> (day_of_month - 1) & 1 == 1 {
            if let Some(time) = self.times.at_or_after(second_of_day) {
                let civil = day * SECONDS_PER_DAY + time;
                return (civil < range.end).then_some(civil);
            }
            days &= days - 1;
        }
        while days == 0 {
            month = month.next();
            if month.first_day * SECONDS_PER_DAY >= range.end {
                return None;
            }
            days = self.days_in(month, timing);
        }
        let day = month.first_day + i64::from(days.trailing_zeros());
        let civil = day * SECONDS_PER_DAY + self.times.first();
        (civil < range.end).then_some(civil)
    }

    /// The last matching civil second of a range.
    fn last_civil(&self, range: Range<i64>, timing: &Timing) -> Option<i64> {
        if range.is_empty() {
            return None;
        }
        let day = (range.end - 1).div_euclid(SECONDS_PER_DAY);
        let second_of_day = range.end - 1 - day * SECONDS_PER_DAY;
        let (mut month, day_of_month) = Month::of_day(day);
        let today = 1_u32 << (day_of_month - 1);
        let mut days = self.days_in(month, timing) & (today | (today - 1));
        if days & today != 0 {
            if let Some(time) = self.times.at_or_before(second_of_day) {
                let civil = day * SECONDS_PER_DAY + time;
                return (civil >= range.start).then_some(civil);
            }
            days ^= today;
        }
        while days == 0 {
            if month.first_day * SECONDS_PER_DAY < range.start {
                return None;
            }
            month = month.previous();
            days = self.days_in(month, timing);
        }
        let day = month.first_day + i64::from(days.ilog2());
        let civil = day * SECONDS_PER_DAY + self.times.last();
        (civil >= range.start).then_some(civil)
    }

    #[inline]
    fn days_in(&self, month: Month, timing: &Timing) -> u32 {
        let days = match &self.days {
            DayRule::Cron(cron) => cron.days_in(month),
            DayRule::Weekdays(weekdays) => month.days_on(weekdays.bits()),
            DayRule::Dates(dates) => dates.days_in(month),
        };
        if timing.days.is_empty() { days } else { days & timing.days.days_in(month) }
    }
}
