//! Calendars, inline exclusions and weekdays.

use std::{collections::BTreeSet, sync::Arc};

use interlock_core::calendar::{Calendar, DayFilter, Weekdays};
use jiff::civil::Date;

use super::{Decoder, flag, moment::parse_year_day, text};
use crate::{problem::Code, yaml::Node};

const WEEK: [&str; 7] =
    ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

impl Decoder<'_> {
    /// A calendar file.
    pub(crate) fn calendar(&mut self, root: &Node) -> Option<Calendar> {
        let yearly = root.get("yearly").map(Node::items).unwrap_or_default();
        let ranges = root.get("ranges").map(Node::items).unwrap_or_default();
        let calendar = Calendar {
            name: text(root, "name")?,
            weekdays: self.weekdays(root, "days").unwrap_or_default(),
            dates: self.dates(root, "dates"),
            yearly: yearly
                .iter()
                .filter_map(|node| self.read(node, Code::Date, parse_year_day))
                .collect(),
            ranges: ranges.iter().filter_map(|range| self.range(range)).collect(),
        };
        if calendar.name.is_empty() {
            self.problems.add(root.get("name")?.span, Code::Name, "the name is empty", "");
        }
        Some(calendar)
    }

    fn range(&mut self, range: &Node) -> Option<(Date, Date)> {
        let first = self.date(range.get("from")?)?;
        let last = self.date(range.get("to")?)?;
        if first > last {
            self.problems.add(
                range.get("to")?.span,
                Code::Date,
                format!("the range ends on {last}, before it begins on {first}"),
                "Exchange `from` and `to`.",
            );
        }
        Some((first, last))
    }

    pub(super) fn dates(&mut self, map: &Node, key: &str) -> BTreeSet<Date> {
        let items = map.get(key).map(Node::items).unwrap_or_default();
        let mut dates = BTreeSet::new();
        for item in items {
            if let Some(date) = self.date(item)
                && !dates.insert(date)
            {
                let message = format!("{date} is listed twice");
                self.problems.add(item.span, Code::Repeated, message, "Keep one of them.");
            }
        }
        dates
    }

    pub(super) fn weekdays(&mut self, map: &Node, key: &str) -> Option<Weekdays> {
        let items = map.get(key)?.items();
        let days =
            items.iter().filter_map(|day| self.read(day, Code::Weekday, Weekdays::parse_day));
        Some(days.fold(Weekdays::NONE, Weekdays::union))
    }

    /// Adds the days that a pipeline or a schedule leaves out or keeps to.
    pub(super) fn add_days(&mut self, map: &Node, filter: &mut DayFilter) {
        self.add_calendars(map.get("calendar"), &mut filter.exclude);
        if let Some(exclusions) = map.get("exclusions") {
            self.add_calendars(exclusions.get("calendar"), &mut filter.exclude);
            let mut weekdays = self.weekdays(exclusions, "days").unwrap_or_default();
            if flag(exclusions, "weekends") == Some(true) {
                weekdays = weekdays.union(Weekdays::WEEKEND);
            }
            let dates = self.dates(exclusions, "dates");
            let inline =
                Calendar { name: "exclusions".into(), weekdays, dates, ..Calendar::default() };
            if !inline.is_empty() {
                filter.exclude.push(Arc::new(inline));
            }
        }
        if let Some(include) = map.get("include") {
            self.add_calendars(include.get("calendar"), &mut filter.include);
        }
    }

    fn add_calendars(&mut self, names: Option<&Node>, calendars: &mut Vec<Arc<Calendar>>) {
        let around = self.around;
        for node in names.map(Node::items).unwrap_or_default() {
            let name = self.known(node, "calendar", Code::UnknownCalendar, around.calendars);
            if let Some(found) = name.and_then(|name| around.calendars.get(name)) {
                calendars.push(Arc::clone(found));
            }
        }
    }
}

/// The days that a set does not have, as something to leave out.
pub(super) fn all_but(weekdays: Weekdays) -> Option<Arc<Calendar>> {
    let kept: Vec<_> = weekdays.names().collect();
    let left_out = WEEK.into_iter().filter(|day| !kept.contains(day));
    let weekdays = left_out
        .filter_map(|day| Weekdays::parse_day(day).ok())
        .fold(Weekdays::NONE, Weekdays::union);
    let calendar = Calendar { name: "days".into(), weekdays, ..Calendar::default() };
    (!calendar.is_empty()).then(|| Arc::new(calendar))
}
