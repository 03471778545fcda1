//! Instants as people give them on the command line.
//!
//! A text without an offset means the wall clock of the schedule it is asked about, so it is kept as it
//! is until a zone is known.

use interlock_core::{
    duration::{self, Units},
    text::TextError,
    time_of_day::TimeOfDay,
    zone::Zone,
};
use jiff::{
    SignedDuration, Timestamp, ToSpan,
    civil::{Date, DateTime},
};

/// An instant that may still need a zone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Moment {
    /// A definite instant.
    Instant(Timestamp),
    /// A time on the wall.
    Civil(DateTime),
    /// Local midnight, so many days from today.
    Day(i32),
    /// So far from now.
    FromNow(SignedDuration),
}

const HELP: &str = "Write `2026-02-25T09:00:00Z`, `2026-02-25T09:00` (the schedule's zone), `2026-02-25`, \
     `now`, `today`, `yesterday`, `tomorrow`, `+2h` or `-3d`.";

impl Moment {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let day = |offset| Ok(Self::Day(offset));
        match text {
            "now" => return Ok(Self::FromNow(SignedDuration::ZERO)),
            "today" => return day(0),
            "yesterday" => return day(-1),
            "tomorrow" => return day(1),
            _ => {}
        }
        if let Some(distance) = text.strip_prefix('+') {
            return relative(distance).map(Self::FromNow);
        }
        if let Some(distance) = text.strip_prefix('-') {
            return relative(distance).map(|distance| Self::FromNow(-distance));
        }
        if let Ok(instant) = text.parse::<Timestamp>() {
            return Ok(Self::Instant(instant));
        }
        let civil = text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(DateTime::from));
        civil.map(Self::Civil).map_err(|error| {
            // What is wrong with a date is worth telling, not that a word is none.
            let is_date = text.starts_with(|first: char| first.is_ascii_digit());
            let why = if is_date { format!(": {error}") } else { String::new() };
            format!("`{text}` is not an instant{why}. {HELP}")
        })
    }

    /// The instant in a zone. A time that the clock jumps over is the first one after; of two, the
    /// first.
    pub(crate) fn at(self, now: Timestamp, zone: &Zone) -> Timestamp {
        match self {
            Self::Instant(instant) => instant,
            Self::FromNow(distance) => now.saturating_add(distance).unwrap_or(now),
            Self::Civil(civil) => zone.instants_of(civil).first,
            Self::Day(days) => {
                let today = zone.time_zone().to_datetime(now).date();
                TimeOfDay::MIDNIGHT.first_on(today.saturating_add(days.days()), zone)
            }
        }
    }
}

fn relative(text: &str) -> Result<SignedDuration, String> {
    duration::parse(text, Units::SecondsToDays)
        .map_err(|TextError { message, help, .. }| format!("{message}. {help}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let now: Timestamp = "2026-11-15T23:30:00Z".parse().unwrap();
        let riga = Zone::new("Europe/Riga", jiff::tz::TimeZone::get("Europe/Riga").unwrap());
        assert_eq!(Moment::parse(text).unwrap().at(now, &riga).to_string(), expected, "{text}");
    }

    #[test]
    fn every_spelling_of_an_instant_is_read() {
        check("2026-02-25T09:00:00Z", "2026-02-25T09:00:00Z");
        check("2026-02-25T09:00Z", "2026-02-25T09:00:00Z");
        check("2026-02-25T09:00+01:00", "2026-02-25T08:00:00Z");
        check("2026-02-25T09:00", "2026-02-25T07:00:00Z");
        check("2026-02-25 09:00", "2026-02-25T07:00:00Z");
        check("2026-02-25", "2026-02-24T22:00:00Z");
        check("now", "2026-11-15T23:30:00Z");
        // It is already the 16th in Riga.
        check("today", "2026-11-15T22:00:00Z");
        check("yesterday", "2026-11-14T22:00:00Z");
        check("tomorrow", "2026-11-16T22:00:00Z");
        check("+90m", "2026-11-16T01:00:00Z");
        check("-1d", "2026-11-14T23:30:00Z");
    }

    #[test]
    fn a_bad_instant_is_told_what_to_write() {
        for bad in ["", "soon", "2026-02-30", "25:00", "+", "+3"] {
            assert!(Moment::parse(bad).is_err(), "{bad}");
        }
        assert!(Moment::parse("soon").unwrap_err().contains("yesterday"));
    }
}
