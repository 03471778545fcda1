//! When: instants in the zone that who looks has chosen, and how long things take.

use std::fmt;

use askama::filters::HtmlSafe;
use jiff::{Timestamp, Zoned, civil::DateTime, tz::TimeZone};

/// Whose clock the pages go by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ZoneChoice {
    /// Each time by the zone of its schedule; UTC where there is none.
    Schedule,
    /// By the zone of the browser.
    #[default]
    Mine,
    /// UTC.
    Utc,
}

impl ZoneChoice {
    /// The word for it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Mine => "mine",
            Self::Utc => "utc",
        }
    }

    /// The choice of a word.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Schedule, Self::Mine, Self::Utc].into_iter().find(|it| it.as_str() == word)
    }
}

/// A zone, and what it is called.
#[derive(Debug, Clone)]
pub(crate) struct Zone {
    pub(crate) name: String,
    pub(crate) zone: TimeZone,
}

impl Zone {
    /// The zone of this name, if there is one.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let zone = TimeZone::get(name).ok()?;
        Some(Self { name: name.to_owned(), zone })
    }

    pub(crate) fn utc() -> Self {
        Self { name: "UTC".to_owned(), zone: TimeZone::UTC }
    }

    pub(crate) fn at(&self, at: Timestamp) -> Zoned {
        at.to_zoned(self.zone.clone())
    }

    fn text(&self, form: &str, at: Timestamp) -> String {
        self.at(at).strftime(form).to_string()
    }

    /// `CET`, or `+03` where that has no letters.
    pub(crate) fn letters(&self, at: Timestamp) -> String {
        self.text("%Z", at)
    }

    /// `06:30`.
    pub(crate) fn minute(&self, at: Timestamp) -> String {
        self.text("%H:%M", at)
    }

    /// `06:30:12`.
    pub(crate) fn second(&self, at: Timestamp) -> String {
        self.text("%H:%M:%S", at)
    }

    /// `Sun 25 Oct`.
    pub(crate) fn day(&self, at: Timestamp) -> String {
        self.text("%a %-d %b", at)
    }

    /// `2026-10-25 06:30`, as fields have it; a time that the clock shows twice is said in UTC.
    pub(crate) fn field(&self, at: Timestamp) -> String {
        let form = if at.as_second() % 60 == 0 { "%Y-%m-%d %H:%M" } else { "%Y-%m-%d %H:%M:%S" };
        let text = self.text(form, at);
        let is_twice = self.zone.to_ambiguous_timestamp(self.at(at).datetime()).is_ambiguous();
        if is_twice { at.to_string() } else { text }
    }

    /// A text of the record with its instants by this clock: `2026-10-25T05:30:00Z` is `06:30 CET`.
    pub(crate) fn retold(&self, text: &str, beside: Timestamp) -> String {
        let mut told = String::new();
        let mut rest = text;
        while let Some(end) = rest.find('Z') {
            let (before, after) = rest.split_at(end + 1);
            let start = before
                .rfind(|letter: char| !letter.is_ascii_digit() && !"-:.TZ".contains(letter))
                .map_or(0, |at| at + 1);
            let found = before.get(start..).and_then(|word| word.parse::<Timestamp>().ok());
            match found {
                Some(at) => {
                    told.push_str(&before[..start]);
                    told.push_str(&self.stamp(at, beside));
                }
                None => told.push_str(before),
            }
            rest = after;
        }
        told.push_str(rest);
        told
    }

    /// `06:30` of a minute, `06:30:10` of anything else.
    pub(crate) fn clock(&self, at: Timestamp) -> String {
        if at.as_second() % 60 == 0 { self.minute(at) } else { self.second(at) }
    }

    /// As short as it can be understood now: `06:30`, `Sun 25 Oct 06:30`, `25 Oct 2025 06:30`; without the zone.
    pub(crate) fn short(&self, at: Timestamp, now: Timestamp) -> String {
        self.dated(at, now, self.clock(at))
    }

    /// The same with seconds, of what is no slot.
    pub(crate) fn short_to_the_second(&self, at: Timestamp, now: Timestamp) -> String {
        self.dated(at, now, self.second(at))
    }

    fn dated(&self, at: Timestamp, now: Timestamp, clock: String) -> String {
        let (then, today) = (self.at(at), self.at(now));
        if then.date() == today.date() {
            clock
        } else if then.year() == today.year() || (then.date() - today.date()).get_days().abs() < 180
        {
            format!("{} {clock}", self.day(at))
        } else {
            format!("{} {clock}", self.text("%-d %b %Y", at))
        }
    }

    /// The same with its zone.
    pub(crate) fn stamp(&self, at: Timestamp, now: Timestamp) -> String {
        format!("{} {}", self.short(at, now), self.letters(at))
    }

    /// Reads what a field says: an instant with its offset, or the time of this zone, in ISO form.
    pub(crate) fn read(&self, text: &str) -> Option<Timestamp> {
        let text = text.trim();
        if let Ok(at) = text.parse() {
            return Some(at);
        }
        let text = text.replace(' ', "T");
        let civil: DateTime = match text.parse() {
            Ok(civil) => civil,
            Err(_) => {
                text.parse::<jiff::civil::Date>().ok()?.to_datetime(jiff::civil::Time::midnight())
            }
        };
        Some(civil.to_zoned(self.zone.clone()).ok()?.timestamp())
    }
}

/// The times of a page.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    pub(crate) choice: ZoneChoice,
    /// The zone of the browser, if it has said which.
    pub(crate) mine: Option<Zone>,
    pub(crate) now: Timestamp,
}

impl Times {
    /// The zone of what has no schedule.
    pub(crate) fn zone(&self) -> Zone {
        match (&self.choice, &self.mine) {
            (ZoneChoice::Mine, Some(mine)) => mine.clone(),
            (ZoneChoice::Mine, None) | (ZoneChoice::Schedule | ZoneChoice::Utc, _) => Zone::utc(),
        }
    }

    /// The zone for what a schedule by this zone has.
    pub(crate) fn zone_of(&self, schedule: Option<&str>) -> Zone {
        let own = schedule.filter(|_| self.choice == ZoneChoice::Schedule).and_then(Zone::named);
        own.unwrap_or_else(|| self.zone())
    }
}

/// An instant, for a template.
#[derive(Debug, Clone)]
pub(crate) struct When {
    at: Timestamp,
    text: String,
}

impl When {
    /// It, said so.
    pub(crate) fn said(at: Timestamp, text: String) -> Self {
        Self { at, text }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, text } = self;
        write!(f, "<time datetime=\"{at}\" title=\"{at}\">{}</time>", crate::parts::Escaped(text))
    }
}

impl HtmlSafe for When {}

/// `40 s`, `19 min`, `1 h 49`, `20 h`, `6 d`.
pub(crate) fn rough(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    match seconds.max(0) {
        seconds @ 0..MINUTE => format!("{seconds} s"),
        seconds @ MINUTE..HOUR => format!("{} min", seconds / MINUTE),
        seconds if seconds < 10 * HOUR && seconds % HOUR >= MINUTE => {
            format!("{} h {:02}", seconds / HOUR, seconds % HOUR / MINUTE)
        }
        seconds if seconds < 2 * DAY => format!("{} h", seconds / HOUR),
        seconds => format!("{} d", seconds / DAY),
    }
}

/// `2 min 23 s`, where every second may matter.
pub(crate) fn exact(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes @ 1..=29, 1..) => format!("{minutes} min {} s", seconds % 60),
        _ => rough(seconds),
    }
}

/// The same for a drawing.
pub(crate) fn seconds_between(from: Timestamp, until: Timestamp) -> f64 {
    until.duration_since(from).as_secs_f64()
}

/// How many seconds lie between.
pub(crate) fn between(from: Timestamp, until: Timestamp) -> i64 {
    until.as_second() - from.as_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_as_short_as_people_say_them() {
        let cases = [
            (40, "40 s"),
            (19 * 60, "19 min"),
            (6_540, "1 h 49"),
            (7_200, "2 h"),
            (72_000, "20 h"),
            (518_400, "6 d"),
            (-3, "0 s"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(rough(seconds), expected);
        }
        assert_eq!(exact(143), "2 min 23 s");
        assert_eq!(exact(120), "2 min");
    }

    #[test]
    fn a_time_is_said_with_its_zone_and_read_again() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        let now: Timestamp = "2026-10-25T08:41:00Z".parse().unwrap();
        let check = |at: &str, expected: &str| {
            assert_eq!(berlin.stamp(at.parse().unwrap(), now), expected);
        };
        check("2026-10-25T05:30:00Z", "06:30 CET");
        check("2026-10-25T00:30:00Z", "02:30 CEST");
        check("2026-10-24T16:00:10Z", "Sat 24 Oct 18:00:10 CEST");
        check("2024-10-24T16:00:00Z", "24 Oct 2024 18:00 CEST");
        for text in
            ["2026-10-25 06:30", "2026-10-25T06:30", "2026-10-25T05:30:00Z", " 2026-10-25 06:30:00"]
        {
            assert_eq!(berlin.read(text), Some("2026-10-25T05:30:00Z".parse().unwrap()), "{text}");
        }
        assert_eq!(berlin.read("2026-10-25"), Some("2026-10-24T22:00:00Z".parse().unwrap()));
        assert_eq!(berlin.read("tomorrow"), None);
        let twice: Timestamp = "2026-10-25T00:30:00Z".parse().unwrap();
        assert_eq!(berlin.read(&berlin.field(twice)), Some(twice), "{}", berlin.field(twice));
        assert_eq!(
            berlin.retold("attempt 2 at 2026-10-25T05:30:00Z, Zorro: Z", now),
            "attempt 2 at 06:30 CET, Zorro: Z"
        );
    }
}
