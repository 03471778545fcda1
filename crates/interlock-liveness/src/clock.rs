//! The clocks, as nanoseconds.
//!
//! Hang detection counts by the clock that stands still while the machine sleeps: nobody can progress then. Leases count by
//! the one that goes on, because the other side's clock goes on too. The wall clock decides nothing here.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since some moment; stands still while the machine sleeps.
pub(crate) fn monotonic() -> u64 {
    read(ClockId::Monotonic)
}

/// Nanoseconds since the machine was started, sleep included.
pub(crate) fn boottime() -> u64 {
    read(ClockId::Boottime)
}

fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The wall clock, in UTC, for people to read.
pub(crate) fn wall() -> String {
    date(clock_gettime(ClockId::Realtime).tv_sec)
}

/// Seconds since 1970 as a date and a time, by the calendar that has gone on for ever.
fn date(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Years begin with March here, so that the day that some of them have more is their last.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// A length of time in nanoseconds; half a millennium is as good as more.
pub(crate) fn nanos(length: std::time::Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX / 2).min(u64::MAX / 2)
}

/// What the clocks said at one moment, and when that moment was meant to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) monotonic: u64,
    pub(crate) boottime: u64,
    /// When the monitor meant to wake.
    pub(crate) planned: u64,
}

impl Reading {
    pub(crate) fn take(planned: u64) -> Self {
        Self { monotonic: monotonic(), boottime: boottime(), planned }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(date(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(date(4_107_542_399), "2100-02-28T23:59:59Z");
        assert_eq!(date(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(date(-1), "1969-12-31T23:59:59Z");
    }
}
