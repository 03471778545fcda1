//! Holiday calendars from iCalendar files (RFC 5545), as far as whole days go.
//!
//! Only what a day calendar can hold is read: events with their first and last day, and yearly
//! recurrence on a fixed date. Everything else in such a file (weekly meetings, the third Monday of a
//! month, exceptions) is reported as left out, never guessed at: a holiday that silently is none runs a
//! pipeline on the wrong day.

use std::collections::BTreeMap;

use interlock_core::calendar::Calendar;
use jiff::{ToSpan, civil::Date};

/// Longest stretch of days that one event may cover; more is surely not a holiday.
const DAYS_PER_EVENT_MAX: i32 = 366;

/// What an iCalendar file held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The days that were understood.
    pub calendar: Calendar,
    /// How many events they came from.
    pub events: usize,
    /// What was left out and why, one sentence each, with the event's line.
    pub left_out: Vec<String>,
}

/// Reads an iCalendar text into a calendar of that name.
pub fn import(name: &str, text: &str) -> Result<Imported, String> {
    if !text.trim_start_matches('\u{feff}').trim_start().starts_with("BEGIN:VCALENDAR") {
        return Err("this is not an iCalendar file: it does not begin with BEGIN:VCALENDAR".into());
    }
    let calendar = Calendar { name: name.to_owned(), ..Calendar::default() };
    let mut imported = Imported { calendar, events: 0, left_out: Vec::new() };
    let mut event: Option<Event> = None;
    for (number, line) in unfolded(text) {
        match (line.as_str(), &mut event) {
            ("BEGIN:VEVENT", _) => event = Some(Event { line: number, fields: BTreeMap::new() }),
            ("END:VEVENT", Some(finished)) => {
                imported.add(finished);
                event = None;
            }
            (line, Some(open)) => open.read(line),
            (_, None) => {}
        }
    }
    if event.is_some() {
        return Err("the file ends in the middle of an event; it may be cut off".into());
    }
    Ok(imported)
}

/// Logical lines with the number of their first physical one: a line that begins with a space or a tab
/// continues the one before.
fn unfolded(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        match (line.strip_prefix([' ', '\t']), lines.last_mut()) {
            (Some(rest), Some((_, last))) => last.push_str(rest),
            _ => lines.push((index + 1, line.trim_end().to_owned())),
        }
    }
    lines
}

/// The fields of one event, by name without parameters. Of repeated ones the last counts.
struct Event {
    line: usize,
    fields: BTreeMap<String, String>,
}

impl Event {
    fn read(&mut self, line: &str) {
        if let Some((name, value)) = line.split_once(':') {
            let name = name.split(';').next().unwrap_or(name).to_ascii_uppercase();
            self.fields.insert(name, value.to_owned());
        }
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    fn title(&self) -> &str {
        self.field("SUMMARY").unwrap_or("event without a name")
    }

    /// First and last day, both included. An end is exclusive when it is a date or a midnight.
    fn days(&self) -> Result<(Date, Date), String> {
        let start = self.field("DTSTART").ok_or("has no DTSTART")?;
        let first = date(start).ok_or_else(|| format!("has the unreadable DTSTART `{start}`"))?;
        let Some(end) = self.field("DTEND") else { return Ok((first, first)) };
        let last = date(end).ok_or_else(|| format!("has the unreadable DTEND `{end}`"))?;
        let exclusive = !end.contains('T') || end.contains("T000000");
        let last = if exclusive && last > first { last.saturating_sub(1.day()) } else { last };
        if last < first {
            return Err("ends before it begins".into());
        }
        if first.until(last).map_or(i32::MAX, |span| span.get_days()) >= DAYS_PER_EVENT_MAX {
            return Err(format!("covers more than {DAYS_PER_EVENT_MAX} days"));
        }
        Ok((first, last))
    }
}

/// The date of `20261225` or `20261225T090000Z`.
fn date(value: &str) -> Option<Date> {
    let digits = value.get(..8).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
    let (year, rest) = digits.split_at_checked(4)?;
    let (month, day) = rest.split_at_checked(2)?;
    Date::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?).ok()
}

impl Imported {
    fn add(&mut self, event: &Event) {
        if event.field("STATUS").is_some_and(|status| status.eq_ignore_ascii_case("CANCELLED")) {
            return;
        }
        let result = event.days().and_then(|days| match event.field("RRULE") {
            None => {
                self.add_days(days);
                Ok(())
            }
            Some(rule) => self.add_yearly(rule, days, event),
        });
        match result {
            Ok(()) => self.events += 1,
            Err(reason) => {
                let Event { line, .. } = event;
                self.left_out.push(format!("line {line}: `{}` {reason}", event.title()));
            }
        }
    }

    fn add_days(&mut self, (first, last): (Date, Date)) {
        if first == last {
            self.calendar.dates.insert(first);
        } else {
            self.calendar.ranges.push((first, last));
        }
    }

    fn add_yearly(
        &mut self,
        rule: &str,
        (first, last): (Date, Date),
        event: &Event,
    ) -> Result<(), String> {
        let month = format!("BYMONTH={}", first.month());
        let day = format!("BYMONTHDAY={}", first.day());
        let plain = rule.split(';').all(|part| {
            part == "FREQ=YEARLY" || part == "INTERVAL=1" || part == month || part == day
        });
        if !plain || !rule.contains("FREQ=YEARLY") {
            return Err(format!("recurs by `{rule}`, which is not a fixed date every year"));
        }
        if event.field("EXDATE").is_some() {
            return Err("recurs with exceptions (EXDATE)".into());
        }
        let mut date = first;
        while date <= last {
            self.calendar.yearly.insert((date.month(), date.day()));
            date = date.saturating_add(1.day());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\n\
        BEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20261225\r\nDTEND;VALUE=DATE:20261227\r\nSUMMARY:Chris\r\n tmas\r\nEND:VEVENT\r\n\
        BEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20260501\r\nRRULE:FREQ=YEARLY\r\nSUMMARY:May Day\r\nEND:VEVENT\r\n\
        BEGIN:VEVENT\r\nDTSTART;TZID=Europe/Berlin:20261003T000000\r\nDTEND;TZID=Europe/Berlin:20261004T000000\r\nSUMMARY:Unity\r\nEND:VEVENT\r\n\
        BEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20260119\r\nRRULE:FREQ=YEARLY;BYDAY=3MO;BYMONTH=1\r\nSUMMARY:MLK\r\nEND:VEVENT\r\n\
        BEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20260102\r\nSTATUS:CANCELLED\r\nSUMMARY:None\r\nEND:VEVENT\r\n\
        BEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20261399\r\nSUMMARY:Broken\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n";

    #[test]
    fn single_days_ranges_and_fixed_yearly_dates_are_read() {
        let imported = import("de", FILE).unwrap();
        assert_eq!(imported.events, 3);
        assert_eq!(
            imported.calendar,
            Calendar {
                name: "de".into(),
                dates: [Date::constant(2026, 10, 3)].into(),
                yearly: [(5, 1)].into(),
                ranges: vec![(Date::constant(2026, 12, 25), Date::constant(2026, 12, 26))],
                ..Calendar::default()
            }
        );
    }

    #[test]
    fn what_cannot_be_held_is_said_with_its_line() {
        let imported = import("de", FILE).unwrap();
        assert_eq!(
            imported.left_out,
            [
                "line 19: `MLK` recurs by `FREQ=YEARLY;BYDAY=3MO;BYMONTH=1`, which is not a fixed date every year",
                "line 29: `Broken` has the unreadable DTSTART `20261399`",
            ]
        );
    }

    #[test]
    fn another_kind_of_file_is_refused() {
        assert!(import("x", "<html>").unwrap_err().contains("BEGIN:VCALENDAR"));
        assert!(import("x", "BEGIN:VCALENDAR\nBEGIN:VEVENT\n").unwrap_err().contains("cut off"));
    }
}
