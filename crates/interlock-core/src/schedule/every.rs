//! Intervals: every so many seconds of real time from an anchor, on the days that calendars leave.
//!
//! Daylight saving does not touch an interval: `every: 1d` is 24 hours, whatever the wall clock does.

use super::Timing;
use crate::civil::{Month, SECONDS_PER_DAY, date_of_day};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Every {
    /// Invariant: at least 1.
    pub(super) step: i64,
    pub(super) anchor: i64,
}

impl Every {
    /// The first slot in `[from, until)`.
    pub(super) fn first_from(self, from: i64, until: i64, timing: &Timing) -> Option<i64> {
        let mut from = from;
        loop {
            let slot = self.anchor
                + (from - self.anchor + self.step - 1).div_euclid(self.step) * self.step;
            if timing.days.is_empty() || slot >= until {
                return (slot < until).then_some(slot);
            }
            let day = timing.zone.day_at(slot);
            if timing.days.allows(date_of_day(day)) {
                return Some(slot);
            }
            let next_day = next_allowed_day(day, until, timing)?;
            from = timing.zone.first_instant(next_day * SECONDS_PER_DAY).0.max(slot + 1);
        }
    }

    /// The last slot in `[from, before)`.
    pub(super) fn last_before(self, before: i64, from: i64, timing: &Timing) -> Option<i64> {
        let mut before = before;
        loop {
            let slot = self.anchor + (before - 1 - self.anchor).div_euclid(self.step) * self.step;
            if timing.days.is_empty() || slot < from {
                return (slot >= from).then_some(slot);
            }
            let day = timing.zone.day_at(slot);
            if timing.days.allows(date_of_day(day)) {
                return Some(slot);
            }
            before = timing.zone.first_instant(day * SECONDS_PER_DAY).0.min(slot);
        }
    }
}

/// The first day after `day` on which slots may be, if there is one before `until`.
fn next_allowed_day(day: i64, until: i64, timing: &Timing) -> Option<i64> {
    let (mut month, day_of_month) = Month::of_day(day);
    let mut days = timing.days.days_in(month) >> day_of_month << day_of_month;
    while days == 0 {
        month = month.next();
        if month.first_day * SECONDS_PER_DAY > until + SECONDS_PER_DAY {
            return None;
        }
        days = timing.days.days_in(month);
    }
    Some(month.first_day + i64::from(days.trailing_zeros()))
}
