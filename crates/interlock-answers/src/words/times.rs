//! Instants as people read them.

use jiff::{Timestamp, Zoned, civil::Date, tz::TimeZone};

/// In which zone instants are written, and which day goes without saying.
#[derive(Debug, Clone, Copy)]
pub struct ShownTimes<'a> {
    zone: &'a TimeZone,
    now: Timestamp,
    has_zone: bool,
}

impl<'a> ShownTimes<'a> {
    /// In a zone, which is named behind each time.
    pub fn new(zone: &'a TimeZone, now: Timestamp) -> Self {
        Self { zone, now, has_zone: true }
    }

    /// In UTC, as answers over HTTP have them.
    pub fn utc(now: Timestamp) -> Self {
        static UTC: TimeZone = TimeZone::UTC;
        ShownTimes::new(&UTC, now)
    }

    /// The same without the zone's name: the head of the column has it.
    #[must_use]
    pub fn without_zone(self) -> Self {
        Self { has_zone: false, ..self }
    }

    /// What is now.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The wall clock, with the day unless it is that of `beside`: `09:20 CET`, `Sun 25 Oct 09:20 CET`.
    pub fn time(&self, at: Timestamp, beside: Timestamp) -> String {
        self.written(at, beside, "%H:%M")
    }

    /// The same to the second, for what people compare with a log.
    pub fn exact(&self, at: Timestamp, beside: Timestamp) -> String {
        self.written(at, beside, "%H:%M:%S")
    }

    /// Two instants as one stretch of time: `04:10–05:02 CET`.
    pub fn stretch(&self, from: Timestamp, until: Timestamp, beside: Timestamp) -> String {
        let begins = self.without_zone().time(from, beside);
        format!("{begins}–{}", self.time(until, from))
    }

    fn written(&self, at: Timestamp, beside: Timestamp, format: &str) -> String {
        let local = self.local(at);
        let time = local.strftime(format);
        let day = match (local.date(), self.local(beside).date()) {
            (date, same) if date == same => String::new(),
            (date, _) => format!("{} ", self.day(date)),
        };
        if self.has_zone {
            format!("{day}{time} {}", local.strftime("%Z"))
        } else {
            format!("{day}{time}")
        }
    }

    /// A day: `Sun 25 Oct`, with its year unless it is this one.
    fn day(&self, date: Date) -> String {
        let format =
            if date.year() == self.local(self.now).year() { "%a %-d %b" } else { "%-d %b %Y" };
        date.strftime(format).to_string()
    }

    fn local(&self, at: Timestamp) -> Zoned {
        at.to_zoned(self.zone.clone())
    }
}
