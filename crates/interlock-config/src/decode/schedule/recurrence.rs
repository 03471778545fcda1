//! What makes one schedule recur.

use std::sync::Arc;

use interlock_core::{
    calendar::{Calendar, Weekdays},
    cron::CronText,
    readiness::SensorRule,
    schedule::{Period, Recurrence},
    sla::Deadline,
    time_of_day::TimeOfDay,
    zone::Zone,
};
use jiff::Timestamp;

use super::{Shared, WatchOnly, seconds};
use crate::{
    decode::{Decoder, moment::TimeOrInstant},
    problem::Code,
    yaml::Node,
};

/// A recurrence and what else its keys said.
pub(super) struct Found {
    pub(super) recurrence: Recurrence,
    pub(super) zone: Zone,
    /// A deadline that is not spelled `deadline`.
    pub(super) deadline: Option<Deadline>,
    /// A sensor that a schedule with a time of its own waits for.
    pub(super) condition: Option<SensorRule>,
    /// Listed dates beside a cron expression or an interval.
    pub(super) include: Option<Arc<Calendar>>,
}

impl Decoder<'_> {
    /// Reads how one entry recurs; it is a cron expression, or a map of keys.
    pub(super) fn recurrence(&mut self, node: &Node, shared: &Shared) -> Option<Found> {
        if node.text().is_some() {
            let cron = self.cron(node, shared.seconds)?;
            let zone = self.cron_zone(node, &cron).unwrap_or_else(|| shared.zone.clone());
            return Some(Found {
                recurrence: Recurrence::Cron(cron.cron),
                zone,
                deadline: None,
                condition: None,
                include: None,
            });
        }
        self.report_strays(node);
        if !self.at_most_one(node) {
            return None;
        }
        let zone = self.zone(node, "timezone").unwrap_or_else(|| shared.zone.clone());
        let sensor = node.get("sensor");
        let rule = sensor.and_then(|sensor| self.rule(sensor));
        let mut found = Found {
            recurrence: Recurrence::Daily,
            deadline: sensor.and_then(|sensor| self.deadline(sensor, "deadline")),
            condition: rule,
            include: None,
            zone,
        };
        self.kind(node, shared, &mut found)?;
        Some(found)
    }

    fn kind(&mut self, node: &Node, shared: &Shared, found: &mut Found) -> Option<()> {
        let listed = self.listed_dates(node);
        if let Some(cron) = node.get("cron") {
            found.recurrence = self.cron_entry(node, cron, found)?;
            let time = self.time(node, "time").map(Deadline::TimeOfDay);
            found.deadline = found.deadline.or(time);
            found.include = listed;
        } else if let Some(every) = node.entry("every") {
            found.recurrence = self.every(node, shared, &found.zone)?;
            if let Some(entry) = node.entry("time") {
                let message = format!("`{}` does not apply beside `{}`", entry.key, every.key);
                self.problems.add(entry.key_span, Code::NotApplicable, message, "");
            }
            found.include = listed;
        } else if let Some(dates) = listed {
            let time = self.time_of_dates(node, &found.zone)?;
            found.recurrence = Recurrence::Dates { dates: dates.dates.clone(), time };
        } else if let Some(at) = node.get("at").or_else(|| node.get("time")) {
            let weekdays = self.weekdays(node, "days").unwrap_or(Weekdays::ALL);
            found.recurrence = match self.time_or_instant(at, &found.zone)? {
                TimeOrInstant::Time(time) => Recurrence::At { time, weekdays },
                TimeOrInstant::Instant(instant) => Recurrence::Once(instant),
            };
        } else if node.get("sensor").is_some() {
            let rule = found.condition.take()?;
            found.recurrence = Recurrence::Sensor { rule, period: period(node, found.deadline) };
        }
        Some(())
    }

    fn cron_entry(&mut self, node: &Node, cron: &Node, found: &mut Found) -> Option<Recurrence> {
        let parsed: CronText = self.cron(cron, seconds(node))?;
        if let Some(zone) = self.cron_zone(cron, &parsed) {
            if node.get("timezone").is_some() && zone != found.zone {
                let message = format!(
                    "the expression says `{}`, but `timezone` says `{}`",
                    zone.name(),
                    found.zone.name()
                );
                self.problems.add(cron.span, Code::Conflict, message, "Keep one of them.");
            }
            found.zone = zone;
        }
        Some(Recurrence::Cron(parsed.cron))
    }

    fn every(&mut self, node: &Node, shared: &Shared, zone: &Zone) -> Option<Recurrence> {
        let step = self.duration(node, "every")?.as_secs().max(1);
        if node.get("from").and_then(Node::text) != Some("last") {
            let anchor = self.instant(node, "anchor", zone).unwrap_or(Timestamp::UNIX_EPOCH);
            return Some(Recurrence::Every { step, anchor });
        }
        if shared.watch_only == WatchOnly::No {
            let at = node.get("from").map_or(node.span, |from| from.span);
            self.problems.add(
                at,
                Code::NotApplicable,
                "`from: last` applies only to pipelines that are watched, not started",
                "Write `trigger: {type: external}`, or `anchor:` instead of `from: last`.",
            );
        }
        Some(Recurrence::SinceLast { step })
    }

    /// `dates` or `include.dates`, as a set of days.
    fn listed_dates(&mut self, node: &Node) -> Option<Arc<Calendar>> {
        let holder = if node.get("dates").is_some() { node } else { node.get("include")? };
        holder.get("dates")?;
        let dates = self.dates(holder, "dates");
        Some(Arc::new(Calendar { name: "dates".into(), dates, ..Calendar::default() }))
    }

    /// The time of listed dates: midnight when none is written.
    fn time_of_dates(&mut self, node: &Node, zone: &Zone) -> Option<TimeOfDay> {
        let Some(at) = node.get("at").or_else(|| node.get("time")) else {
            return Some(TimeOfDay::MIDNIGHT);
        };
        match self.time_or_instant(at, zone)? {
            TimeOrInstant::Time(time) => Some(time),
            TimeOrInstant::Instant(_) => {
                let message = "listed dates need a time of day, not an instant";
                self.problems.add(at.span, Code::Time, message, "Write one such as `09:00`.");
                None
            }
        }
    }

    /// A schedule recurs in one way.
    fn at_most_one(&mut self, node: &Node) -> bool {
        let at = if node.get("dates").is_some() { "dates" } else { "at" };
        let given: Vec<_> =
            ["cron", "every", at].into_iter().filter_map(|key| node.entry(key)).collect();
        let twice = match given.as_slice() {
            [] | [_] => node.entry("at").and(node.entry("time")),
            [_, second, ..] => Some(*second),
        };
        let Some(second) = twice else { return true };
        let keys: Vec<_> = given.iter().map(|entry| format!("`{}`", entry.key)).collect();
        let message = if keys.len() > 1 {
            format!("a schedule recurs in one way, this one has {}", keys.join(" and "))
        } else {
            "`time` is another spelling of `at`, which already exists".to_owned()
        };
        let help = "Keep one of them, or make two schedules.";
        self.problems.add(second.key_span, Code::RecurrenceCount, message, help);
        false
    }

    /// Keys that mean nothing beside this kind of recurrence.
    fn report_strays(&mut self, node: &Node) {
        for (key, needs) in [("seconds", "cron"), ("anchor", "every")] {
            if let Some(entry) = node.entry(key)
                && node.get(needs).is_none()
            {
                let message = format!("`{key}` applies only beside `{needs}`");
                self.problems.add(entry.key_span, Code::NotApplicable, message, "Remove it.");
            }
        }
        if let Some(from) = node.get("from")
            && from.text() == Some("last")
            && node.get("every").is_none()
        {
            let message = "`from: last` applies only beside `every`";
            self.problems.add(from.span, Code::NotApplicable, message, "Write a date instead.");
        }
    }
}

fn period(node: &Node, deadline: Option<Deadline>) -> Period {
    let word = node.get("sensor").and_then(|sensor| sensor.get("period")).and_then(Node::text);
    match (word, deadline) {
        (Some("hour"), _) | (None, Some(Deadline::MinuteOfNextHour(_))) => Period::Hour,
        (Some(_) | None, _) => Period::Day,
    }
}
