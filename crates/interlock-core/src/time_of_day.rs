//! A time on the wall clock: `09:30`, `9:05`, `23:59:30`.
//!
//! A wall-clock time becomes an instant only together with a date and a zone, and on two nights of
//! the year that is not one instant: in a gap there is none, in an overlap there are two. Both
//! cases are decided once, by [`Zone::instants_of`], so that deadlines and periods cannot disagree.

use std::fmt;

use jiff::{Timestamp, civil::Date};

use crate::{
    text::TextError,
    zone::{Instants, Zone},
};

/// A time of day, without a date and without a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeOfDay {
    /// Invariant: below 86,400.
    seconds: u32,
}

impl TimeOfDay {
    /// 00:00.
    pub const MIDNIGHT: Self = Self { seconds: 0 };

    /// Reads `H:MM`, `HH:MM` or `HH:MM:SS`.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        if let Some((at, found)) =
            text.char_indices().find(|(_, c)| !c.is_ascii_digit() && *c != ':')
        {
            let message = format!("`{found}` does not belong in a time of day");
            return Err(TextError::new(at..at + found.len_utf8(), message, EXAMPLE));
        }
        let mut parts = Parts { text, at: 0 };
        let hour = parts.next(Part { name: "hour", shortest: 1, max: 23 })?;
        parts.colon()?;
        let minute = parts.next(MINUTE)?;
        let second = if parts.at < text.len() {
            parts.colon()?;
            parts.next(Part { name: "second", ..MINUTE })?
        } else {
            0
        };
        if parts.at < text.len() {
            let message = format!("`{text}` goes on after the seconds");
            return Err(TextError::new(parts.at..text.len(), message, EXAMPLE));
        }
        Ok(Self { seconds: hour * 3600 + minute * 60 + second })
    }

    /// The start of an hour of the day; `None` for hours after 23.
    pub fn from_hour(hour: u8) -> Option<Self> {
        (hour < 24).then(|| Self { seconds: u32::from(hour) * 3600 })
    }

    /// Seconds since midnight on the wall clock, 0 to 86,399.
    pub fn seconds(self) -> u32 {
        self.seconds
    }

    /// As a civil time.
    pub fn to_civil(self) -> jiff::civil::Time {
        let (h, m, s) = (self.seconds / 3600, self.seconds / 60 % 60, self.seconds % 60);
        jiff::civil::Time::constant(h as i8, m as i8, s as i8, 0)
    }

    /// The instant of this time on a date: in a gap the first instant after it, in an overlap the
    /// first occurrence.
    pub fn first_on(self, date: Date, zone: &Zone) -> Timestamp {
        self.on(date, zone).first
    }

    /// Every instant of this time on a date.
    pub(crate) fn on(self, date: Date, zone: &Zone) -> Instants {
        zone.instants_of(date.to_datetime(self.to_civil()))
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (h, m, s) = (self.seconds / 3600, self.seconds / 60 % 60, self.seconds % 60);
        write!(f, "{h:02}:{m:02}")?;
        if s > 0 { write!(f, ":{s:02}") } else { Ok(()) }
    }
}

const EXAMPLE: &str = "Write for example `09:30` or `23:59:30`.";

/// What one part of a time must look like.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    name: &'static str,
    /// Digits; the longest is two.
    shortest: usize,
    max: u32,
}

/// Two digits up to 59.
pub(crate) const MINUTE: Part = Part { name: "minute", shortest: 2, max: 59 };

/// A text that is read part by part.
pub(crate) struct Parts<'a> {
    pub(crate) text: &'a str,
    pub(crate) at: usize,
}

impl Parts<'_> {
    /// Reads digits up to the next colon.
    pub(crate) fn next(&mut self, part: Part) -> Result<u32, TextError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        let span = self.at..self.at + digits.len();
        if digits.is_empty() {
            return Err(TextError::new(span, format!("the {} is missing", part.name), EXAMPLE));
        }
        if digits.len() < part.shortest {
            let message = format!("the {} `{digits}` needs two digits", part.name);
            return Err(TextError::new(span, message, format!("Write `0{digits}`.")));
        }
        if digits.len() > 2 {
            return Err(self.unbroken(digits));
        }
        let value = digits.bytes().fold(0, |value, digit| value * 10 + u32::from(digit - b'0'));
        if value > part.max {
            let message = format!("there is no {} {digits}", part.name);
            let help = format!("The last {} is {}.", part.name, part.max);
            return Err(TextError::new(span, message, help));
        }
        self.at = span.end;
        Ok(value)
    }

    fn colon(&mut self) -> Result<(), TextError> {
        if self.text.get(self.at..).is_some_and(|rest| rest.starts_with(':')) {
            self.at += 1;
            return Ok(());
        }
        let message = format!("`{}` has no minutes", self.text);
        Err(TextError::new(self.at..self.at, message, EXAMPLE))
    }

    /// The error for `0830`.
    fn unbroken(&self, digits: &str) -> TextError {
        let help = match (self.at, digits.split_at_checked(2)) {
            (0, Some((hour, minute))) if minute.len() == 2 => format!("Write `{hour}:{minute}`."),
            _ => EXAMPLE.to_owned(),
        };
        let message = format!("`{digits}` is too long: a `:` is missing");
        TextError::new(self.at..self.at + digits.len(), message, help)
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    /// `marked` is the text with `[` and `]` around the characters that the error points at.
    fn check_error(marked: &str, message: &str, help: &str) {
        let start = marked.find('[').unwrap();
        let end = marked.find(']').unwrap() - 1;
        let text = marked.replace(['[', ']'], "");
        let error = TimeOfDay::parse(&text).unwrap_err();
        assert_eq!(error.span, start..end, "{marked}: {error}");
        assert_eq!(error.message, message, "{marked}");
        assert!(error.help.contains(help), "{marked}: {}", error.help);
    }

    #[test]
    fn case_29_times_of_day_are_read() {
        for (text, seconds) in [
            ("08:30", 30_600),
            ("00:00", 0),
            ("23:59", 86_340),
            ("9:05", 32_700),
            ("23:59:30", 86_370),
        ] {
            assert_eq!(TimeOfDay::parse(text).map(TimeOfDay::seconds), Ok(seconds), "{text}");
        }
    }

    #[test]
    fn case_29_mistakes_are_pointed_at() {
        check_error("[25]:00", "there is no hour 25", "The last hour is 23.");
        check_error("12:[61]", "there is no minute 61", "The last minute is 59.");
        check_error("12:00:[60]", "there is no second 60", "59");
        check_error("[0830]", "`0830` is too long: a `:` is missing", "Write `08:30`.");
        check_error("[]", "the hour is missing", "`09:30`");
        check_error("08[]", "`08` has no minutes", "`09:30`");
        check_error("08:[]", "the minute is missing", "`09:30`");
        check_error("[]:30", "the hour is missing", "`09:30`");
        check_error("08:[5]", "the minute `5` needs two digits", "Write `05`.");
        check_error("08:30[ ]", "` ` does not belong in a time of day", "");
        check_error("9[h]30", "`h` does not belong in a time of day", "");
        check_error("08:30:00[:00]", "`08:30:00:00` goes on after the seconds", "");
        check_error("08:[305]", "`305` is too long: a `:` is missing", "`09:30`");
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        for text in ["09:05", "00:00", "23:59:30"] {
            assert_eq!(TimeOfDay::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(TimeOfDay::from_hour(23).unwrap().to_string(), "23:00");
        assert_eq!(TimeOfDay::from_hour(24), None);
    }

    fn check_instants(zone: &str, date: Date, time: &str, first: &str, last: &str) {
        let zone = Zone::new(zone, TimeZone::get(zone).unwrap());
        let found = TimeOfDay::parse(time).unwrap().on(date, &zone);
        assert_eq!((found.first.to_string(), found.last.to_string()), (first.into(), last.into()));
    }

    #[test]
    fn a_time_in_a_gap_is_the_first_instant_after_it() {
        let spring = Date::constant(2026, 3, 29);
        for time in ["03:00", "03:30", "03:59:59", "04:00"] {
            let jump = "2026-03-29T01:00:00Z";
            check_instants("Europe/Riga", spring, time, jump, jump);
        }
        let before = "2026-03-29T00:59:59Z";
        check_instants("Europe/Riga", spring, "02:59:59", before, before);
        // Midnight itself is missing in Santiago on this date.
        let jump = "2026-09-06T04:00:00Z";
        check_instants("America/Santiago", Date::constant(2026, 9, 6), "00:00", jump, jump);
    }

    #[test]
    fn a_time_in_an_overlap_comes_twice() {
        let (first, last) = ("2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z");
        check_instants("Europe/Riga", Date::constant(2026, 10, 25), "03:30", first, last);
    }
}
