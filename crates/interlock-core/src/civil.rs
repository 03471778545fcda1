//! Days and months of the proleptic Gregorian calendar as plain integers.
//!
//! The schedule evaluator answers tens of millions of questions per second; it works on day numbers
//! (days since 1970-01-01) and on months as 32-bit masks of days, and converts to `jiff` types only
//! at its border.

use jiff::civil::Date;

pub(crate) const SECONDS_PER_DAY: i64 = 86_400;

/// One month of one year, with what is needed to talk about its days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Month {
    pub(crate) year: i32,
    /// 1 to 12.
    pub(crate) number: u8,
    /// Day number of the month's first day.
    pub(crate) first_day: i64,
    /// 28 to 31.
    pub(crate) length: u8,
}

impl Month {
    #[cfg(test)]
    pub(crate) fn new(year: i32, number: u8) -> Self {
        let first_day = day_number(year, number, 1);
        Self { year, number, first_day, length: length_of(year, number) }
    }

    /// The month that contains a day, and the day's number in it, from 1.
    pub(crate) fn of_day(day: i64) -> (Self, u8) {
        let (year, number, day_of_month) = year_month_day(day);
        let first_day = day - i64::from(day_of_month) + 1;
        (Self { year, number, first_day, length: length_of(year, number) }, day_of_month)
    }

    pub(crate) fn next(self) -> Self {
        let (year, number) =
            if self.number == 12 { (self.year + 1, 1) } else { (self.year, self.number + 1) };
        let first_day = self.first_day + i64::from(self.length);
        Self { year, number, first_day, length: length_of(year, number) }
    }

    pub(crate) fn previous(self) -> Self {
        let (year, number) =
            if self.number == 1 { (self.year - 1, 12) } else { (self.year, self.number - 1) };
        let length = length_of(year, number);
        Self { year, number, first_day: self.first_day - i64::from(length), length }
    }

    /// Weekday of the first day, Sunday = 0.
    pub(crate) fn first_weekday(self) -> u8 {
        weekday(self.first_day)
    }

    /// The days of this month as a mask: bit 0 is the first day.
    pub(crate) fn all_days(self) -> u32 {
        (1_u32 << self.length) - 1
    }

    /// The days that fall on the weekdays of a mask (bit 0 = Sunday).
    pub(crate) fn days_on(self, weekdays: u8) -> u32 {
        // Seven days from the month's first one, five times over.
        let doubled = u64::from(weekdays) << 7 | u64::from(weekdays);
        let week = doubled >> self.first_weekday() & 0x7f;
        (week | week << 7 | week << 14 | week << 21 | week << 28) as u32 & self.all_days()
    }
}

/// Weekday of a day number, Sunday = 0.
pub(crate) fn weekday(day: i64) -> u8 {
    (day + 4).rem_euclid(7) as u8
}

pub(crate) fn length_of(year: i32, month: u8) -> u8 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

pub(crate) fn is_leap(year: i32) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days since 1970-01-01 of a civil date.
pub(crate) fn day_number(year: i32, month: u8, day: u8) -> i64 {
    // The year is counted from March, so that the leap day comes last.
    let year = i64::from(year) - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let month_from_march = i64::from((month + 9) % 12);
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a day number.
pub(crate) fn year_month_day(day: i64) -> (i32, u8, u8) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted - era * 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u8;
    let month =
        if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 } as u8;
    ((year_of_era + era * 400 + i64::from(month <= 2)) as i32, month, day_of_month)
}

pub(crate) fn day_of_date(date: Date) -> i64 {
    day_number(i32::from(date.year()), date.month() as u8, date.day() as u8)
}

pub(crate) fn date_of_day(day: i64) -> Date {
    let (year, month, day) = year_month_day(day);
    Date::constant(year as i16, month as i8, day as i8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_numbers_agree_with_jiff_over_four_centuries() {
        let mut date = Date::constant(1899, 12, 25);
        for day in day_number(1899, 12, 25)..=day_number(2201, 1, 5) {
            assert_eq!(date_of_day(day), date);
            assert_eq!(day_of_date(date), day);
            assert_eq!(weekday(day), date.weekday().to_sunday_zero_offset() as u8);
            let (month, day_of_month) = Month::of_day(day);
            assert_eq!(month, Month::new(i32::from(date.year()), date.month() as u8));
            assert_eq!(month.first_day + i64::from(day_of_month) - 1, day);
            assert_eq!(i32::from(month.length), i32::from(date.days_in_month()));
            assert_eq!(month.next().previous(), month);
            let on_its_weekday = month.days_on(1 << weekday(day));
            assert_eq!(on_its_weekday >> (day_of_month - 1) & 1, 1);
            assert!(on_its_weekday.count_ones() >= 4 && on_its_weekday & !month.all_days() == 0);
            date = date.tomorrow().unwrap();
        }
    }
}
