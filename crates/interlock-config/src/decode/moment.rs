//! Dates, times and instants.

use interlock_core::{sla::Deadline, text::TextError, time_of_day::TimeOfDay, zone::Zone};
use jiff::{
    Timestamp,
    civil::{Date, DateTime},
};

use super::Decoder;
use crate::{problem::Code, yaml::Node};

/// A time of every day, or one instant.
pub(super) enum TimeOrInstant {
    Time(TimeOfDay),
    Instant(Timestamp),
}

impl Decoder<'_> {
    pub(super) fn date(&mut self, node: &Node) -> Option<Date> {
        self.read(node, Code::Date, parse_date)
    }

    pub(super) fn time(&mut self, map: &Node, key: &str) -> Option<TimeOfDay> {
        let node = map.get(key)?;
        self.read(node, Code::Time, TimeOfDay::parse)
    }

    pub(super) fn deadline(&mut self, map: &Node, key: &str) -> Option<Deadline> {
        let node = map.get(key)?;
        self.read(node, Code::Time, Deadline::parse)
    }

    pub(super) fn instant(&mut self, map: &Node, key: &str, zone: &Zone) -> Option<Timestamp> {
        let node = map.get(key)?;
        self.read(node, Code::Date, |text| parse_instant(text, zone))
    }

    pub(super) fn time_or_instant(&mut self, node: &Node, zone: &Zone) -> Option<TimeOrInstant> {
        let looks_like_a_date = |text: &str| text.get(4..5) == Some("-");
        if node.text().is_some_and(looks_like_a_date) {
            let instant = self.read(node, Code::Date, |text| parse_instant(text, zone));
            return instant.map(TimeOrInstant::Instant);
        }
        self.read(node, Code::Time, TimeOfDay::parse).map(TimeOrInstant::Time)
    }
}

fn parse_date(text: &str) -> Result<Date, TextError> {
    let shape = text.len() == 10 && text.get(4..5) == Some("-") && text.get(7..8) == Some("-");
    shape.then(|| text.parse().ok()).flatten().ok_or_else(|| {
        TextError::new(
            0..text.len(),
            format!("`{text}` is not a date"),
            "Write year, month and day, such as `2026-02-25`.",
        )
    })
}

/// An RFC 3339 instant, or a local date or date and time in a zone.
fn parse_instant(text: &str, zone: &Zone) -> Result<Timestamp, TextError> {
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Ok(instant);
    }
    // A zoned text that is no instant must not be read as a local time.
    let local = text.parse::<DateTime>().ok().filter(|_| !text.contains(['+', 'Z', 'z', '[']));
    local.map(|local| zone.instants_of(local).first).ok_or_else(|| {
        TextError::new(
            0..text.len(),
            format!("`{text}` is not an instant"),
            "Write RFC 3339, such as `2026-02-25T09:00:00Z`, or a date.",
        )
    })
}

/// A month and day of every year.
pub(super) fn parse_year_day(text: &str) -> Result<(i8, i8), TextError> {
    let wrong = || {
        TextError::new(
            0..text.len(),
            format!("`{text}` is not a day of the year"),
            "Write month and day, such as `12-25`.",
        )
    };
    let (month, day) = text.split_once('-').ok_or_else(wrong)?;
    if month.len() != 2 || day.len() != 2 {
        return Err(wrong());
    }
    let (month, day) = month.parse().ok().zip(day.parse().ok()).ok_or_else(wrong)?;
    // A leap year, so that the 29th of February is a day.
    Date::new(2024, month, day).ok().map(|date| (date.month(), date.day())).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_must_exist() {
        assert!(parse_date("2026-02-25").is_ok());
        for bad in ["2026-02-30", "2026-2-5", "25.02.2026", "2026-02-25T00:00", ""] {
            assert!(parse_date(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_year_day("02-29").unwrap(), (2, 29));
        for bad in ["02-30", "13-01", "1-1", "1225", "-1-+2"] {
            assert!(parse_year_day(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn instants_are_rfc_3339_or_local() {
        let zone = Zone::new("Europe/Riga", jiff::tz::TimeZone::get("Europe/Riga").unwrap());
        let at = |text| parse_instant(text, &zone).map(|instant| instant.to_string());
        assert_eq!(at("2026-02-25T09:00:00Z").unwrap(), "2026-02-25T09:00:00Z");
        assert_eq!(at("2026-02-25T09:00:00+02:00").unwrap(), "2026-02-25T07:00:00Z");
        assert_eq!(at("2026-02-25T09:00").unwrap(), "2026-02-25T07:00:00Z");
        assert_eq!(at("2026-07-01").unwrap(), "2026-06-30T21:00:00Z");
        for bad in ["tomorrow", "2026-02-25T25:00", "2026-02-25T09:00:00+99:00", ""] {
            assert!(at(bad).is_err(), "{bad}");
        }
    }
}
