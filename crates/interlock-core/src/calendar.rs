//! Calendars: named sets of days that schedules leave out or keep to.
//!
//! A day is a civil date in the schedule's zone, so a holiday means the local holiday. Each source
//! of days answers for a whole month at once with a 32-bit mask: combining calendars is then one AND
//! per month instead of a lookup per day.

use std::{collections::BTreeSet, sync::Arc};

use jiff::civil::Date;

use crate::{
    civil::{Month, day_of_date, weekday},
    text::TextError,
};

/// A set of weekdays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Weekdays(u8);

const WEEKDAY_NAMES: [&str; 7] =
    ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

impl Weekdays {
    /// No day.
    pub const NONE: Self = Self(0);
    /// Every day.
    pub const ALL: Self = Self(0x7f);
    /// Saturday and Sunday.
    pub const WEEKEND: Self = Self(0b100_0001);

    /// Reads one day: `monday`, `Mon`, `TUE`.
    pub fn parse_day(text: &str) -> Result<Self, TextError> {
        let lower = text.to_ascii_lowercase();
        WEEKDAY_NAMES
            .iter()
            .position(|name| lower == *name || (lower.len() >= 3 && name.starts_with(&lower)))
            .map(|index| Self(1 << index))
            .ok_or_else(|| {
                TextError::new(
                    0..text.len(),
                    format!("`{text}` is not a day of the week"),
                    "Write monday, tuesday, wednesday, thursday, friday, saturday or sunday, or the first three letters.",
                )
            })
    }

    /// The days of both sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether no day is in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Bit 0 is Sunday.
    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    /// The names of its days, Sunday first.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        WEEKDAY_NAMES
            .into_iter()
            .enumerate()
            .filter_map(move |(i, name)| (self.0 >> i & 1 == 1).then_some(name))
    }
}

/// A named set of days.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Calendar {
    /// What files call it; inline exclusions have a name that says so.
    pub name: String,
    /// Whole weekdays.
    pub weekdays: Weekdays,
    /// Single dates.
    pub dates: BTreeSet<Date>,
    /// Month and day, every year. The 29th of February counts in leap years only.
    pub yearly: BTreeSet<(i8, i8)>,
    /// First and last day, both included.
    pub ranges: Vec<(Date, Date)>,
}

impl Calendar {
    /// Whether no day is in it.
    pub fn is_empty(&self) -> bool {
        self.weekdays.is_empty()
            && self.dates.is_empty()
            && self.yearly.is_empty()
            && self.ranges.is_empty()
    }

    /// Whether a date is in it.
    pub fn contains(&self, date: Date) -> bool {
        self.weekdays.0 >> weekday(day_of_date(date)) & 1 == 1
            || self.dates.contains(&date)
            || self.yearly.contains(&(date.month(), date.day()))
            || self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&date))
    }

    /// The days of a month that are in it.
    pub(crate) fn days_in(&self, month: Month) -> u32 {
        let mut mask = month.days_on(self.weekdays.0);
        let last_day = month.first_day + i64::from(month.length) - 1;
        let (Ok(first), Ok(last)) = (
            Date::new(month.year as i16, month.number as i8, 1),
            Date::new(month.year as i16, month.number as i8, month.length as i8),
        ) else {
            return mask;
        };
        for date in self.dates.range(first..=last) {
            mask |= 1 << (date.day() - 1);
        }
        for (_, day) in self.yearly.range((month.number as i8, 1)..=(month.number as i8, 31)) {
            mask |= 1 << (day - 1);
        }
        for (from, until) in &self.ranges {
            let from = day_of_date(*from).max(month.first_day);
            let until = day_of_date(*until).min(last_day);
            for day in from..=until {
                mask |= 1 << (day - month.first_day);
            }
        }
        mask & month.all_days()
    }
}

/// Which days a schedule may use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DayFilter {
    /// Days in any of these have no slots.
    pub exclude: Vec<Arc<Calendar>>,
    /// When there is at least one, only days in one of these have slots.
    pub include: Vec<Arc<Calendar>>,
}

impl DayFilter {
    /// Whether it lets every day pass.
    pub fn is_empty(&self) -> bool {
        self.exclude.is_empty() && self.include.is_empty()
    }

    /// Whether a date may have slots.
    pub fn allows(&self, date: Date) -> bool {
        !self.exclude.iter().any(|calendar| calendar.contains(date))
            && (self.include.is_empty()
                || self.include.iter().any(|calendar| calendar.contains(date)))
    }

    /// Why a date has no slots, for people; `None` when it may have some.
    pub fn reason(&self, date: Date) -> Option<String> {
        if let Some(calendar) = self.exclude.iter().find(|calendar| calendar.contains(date)) {
            return Some(format!("excluded by {}", calendar.name));
        }
        if self.include.is_empty() || self.include.iter().any(|c| c.contains(date)) {
            return None;
        }
        let names: Vec<_> = self.include.iter().map(|calendar| calendar.name.as_str()).collect();
        Some(format!("not in {}", names.join(" or ")))
    }

    /// The days of a month that may have slots.
    pub(crate) fn days_in(&self, month: Month) -> u32 {
        let mut mask = month.all_days();
        for calendar in &self.exclude {
            mask &= !calendar.days_in(month);
        }
        if !self.include.is_empty() {
            mask &= self.include.iter().fold(0, |days, calendar| days | calendar.days_in(month));
        }
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holidays() -> Calendar {
        Calendar {
            name: "holidays".into(),
            weekdays: Weekdays::WEEKEND,
            dates: [Date::constant(2026, 4, 3)].into(),
            yearly: [(12, 25), (2, 29)].into(),
            ranges: vec![(Date::constant(2026, 12, 30), Date::constant(2027, 1, 2))],
        }
    }

    #[test]
    fn a_month_mask_says_the_same_as_day_by_day() {
        let filters = [
            DayFilter { exclude: vec![holidays().into()], include: vec![] },
            DayFilter { exclude: vec![], include: vec![holidays().into()] },
        ];
        for filter in filters {
            for (year, month) in (2024..=2028).flat_map(|y| (1..=12).map(move |m| (y, m))) {
                let month = Month::new(year, month);
                for day in 1..=month.length {
                    let date = Date::constant(year as i16, month.number as i8, day as i8);
                    let in_mask = filter.days_in(month) >> (day - 1) & 1 == 1;
                    assert_eq!(in_mask, filter.allows(date), "{date}");
                    assert_eq!(filter.reason(date).is_none(), filter.allows(date), "{date}");
                }
            }
        }
    }

    #[test]
    fn case_31_a_day_in_any_calendar_is_left_out() {
        let inline = Calendar {
            name: "exclusions".into(),
            dates: [Date::constant(2025, 11, 28)].into(),
            ..Calendar::default()
        };
        let both = DayFilter { exclude: vec![holidays().into(), inline.into()], include: vec![] };
        for (date, allowed) in [
            (Date::constant(2025, 11, 28), false),
            (Date::constant(2025, 11, 29), false),
            (Date::constant(2025, 12, 25), false),
            (Date::constant(2025, 12, 1), true),
        ] {
            assert_eq!(both.allows(date), allowed, "{date}");
            assert!(DayFilter::default().allows(date), "nothing is left out unless it is said");
        }
    }

    #[test]
    fn case_31_days_are_case_insensitive() {
        assert_eq!(Weekdays::parse_day("Saturday"), Weekdays::parse_day("SAT"));
        assert_eq!(Weekdays::parse_day("SUNDAY"), Weekdays::parse_day("sunday"));
        assert!(Weekdays::parse_day("sa").is_err());
        assert!(Weekdays::parse_day("someday").is_err());
    }
}
