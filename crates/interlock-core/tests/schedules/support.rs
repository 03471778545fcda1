//! The shared cast of the schedule tests: zones by name and schedules from one line.

use interlock_core::{
    calendar::DayFilter,
    cron::{Cron, Seconds},
    id::ScheduleId,
    schedule::{Dst, Gap, NeverFires, Overlap, Recurrence, Schedule, Timing},
    zone::Zone,
};
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

pub(crate) const LITERAL: Dst = Dst { gap: Some(Gap::Skip), overlap: Some(Overlap::Both) };
pub(crate) const ONCE: Dst = Dst { gap: Some(Gap::Skip), overlap: Some(Overlap::First) };
pub(crate) const DEFAULT: Dst = Dst { gap: None, overlap: None };

pub(crate) fn zone(name: &str) -> Zone {
    let time_zone = if name.contains(',') { TimeZone::posix(name) } else { TimeZone::get(name) };
    Zone::new(name, time_zone.unwrap())
}

pub(crate) fn timing(zone: &Zone, dst: Dst) -> Timing {
    Timing { zone: zone.clone(), dst, days: DayFilter::default(), from: None, until: None }
}

pub(crate) fn schedule(
    recurrence: Recurrence,
    zone: &Zone,
    dst: Dst,
) -> Result<Schedule, NeverFires> {
    Schedule::new(ScheduleId::from_static("test"), recurrence, timing(zone, dst))
}

/// A cron schedule; six fields mean that the first is seconds.
pub(crate) fn cron(expression: &str, zone: &Zone, dst: Dst) -> Result<Schedule, NeverFires> {
    let seconds = match expression.split_whitespace().count() {
        6 => Seconds::Present,
        _ => Seconds::Absent,
    };
    let parsed = Cron::parse(expression, seconds).unwrap();
    schedule(Recurrence::Cron(parsed.cron), zone, dst)
}

/// The instant of a civil time in a zone; the first of two.
pub(crate) fn instant(civil: &str, zone: &Zone) -> Timestamp {
    let civil: DateTime = civil.parse().unwrap();
    zone.time_zone().to_ambiguous_timestamp(civil).earlier().unwrap()
}

/// Slots strictly after an instant, written as `2021-03-28T04:00:00+03:00`.
pub(crate) fn after(schedule: &Schedule, instant: Timestamp, count: usize) -> Vec<String> {
    let from = instant + jiff::SignedDuration::from_nanos(1);
    let slots = schedule.slots(from, Timestamp::MAX, count).found;
    slots.into_iter().map(|slot| local(slot, schedule)).collect()
}

pub(crate) fn local(slot: Timestamp, schedule: &Schedule) -> String {
    let zone = schedule.timing().zone.time_zone();
    slot.to_zoned(zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}
