//! Calendars, bounds and limits: what a schedule leaves out, and how it says so.

use interlock_core::{
    calendar::{Calendar, DayFilter, Weekdays},
    id::{PipelineId, ScheduleId},
    schedule::{NeverFires, Omission, Recurrence, Schedule, Timing, jitter_offset},
    time_of_day::TimeOfDay,
};
use jiff::{SignedDuration, Timestamp};

use crate::support::{DEFAULT, LITERAL, after, cron, instant, schedule, timing, zone};

fn with_days(expression: &str, days: DayFilter) -> Result<Schedule, NeverFires> {
    let berlin = zone("Europe/Berlin");
    let recurrence = cron(expression, &berlin, DEFAULT).unwrap().recurrence().clone();
    Schedule::new(
        ScheduleId::from_static("cron"),
        recurrence,
        Timing { days, ..timing(&berlin, DEFAULT) },
    )
}

fn christmas() -> Calendar {
    Calendar {
        name: "de-holidays".into(),
        yearly: [(12, 25), (12, 26)].into(),
        ..Calendar::default()
    }
}

#[test]
fn an_excluded_day_has_no_slots_in_the_schedules_own_zone() {
    let days = DayFilter { exclude: vec![christmas().into()], include: vec![] };
    let schedule = with_days("30 0 * * *", days).unwrap();
    // 00:30 in Berlin on the 25th is still the 24th in UTC: the local date counts.
    let start = instant("2026-12-24T12:00", &schedule.timing().zone);
    assert_eq!(after(&schedule, start, 1), ["2026-12-27T00:30:00+01:00"]);
}

#[test]
fn omissions_name_the_date_and_the_calendar() {
    let days = DayFilter { exclude: vec![christmas().into()], include: vec![] };
    let schedule = with_days("0 9,17 * * *", days).unwrap();
    let zone = &schedule.timing().zone;
    let omissions =
        schedule.omissions(instant("2026-12-24T00:00", zone), instant("2027-01-01T00:00", zone), 9);
    let text: Vec<_> = omissions.iter().map(ToString::to_string).collect();
    assert_eq!(text, ["2026-12-25 excluded by de-holidays", "2026-12-26 excluded by de-holidays"]);
}

#[test]
fn omissions_name_a_skipped_gap() {
    let berlin = zone("Europe/Berlin");
    let schedule = cron("30 2 * * *", &berlin, LITERAL).unwrap();
    let omissions = schedule.omissions(
        instant("2026-03-01T00:00", &berlin),
        instant("2026-04-01T00:00", &berlin),
        9,
    );
    assert_eq!(omissions, [Omission::Gap { missing: "2026-03-29T02:30".parse().unwrap() }]);
    let by_default = cron("30 2 * * *", &berlin, DEFAULT).unwrap();
    assert_eq!(by_default.omissions(Timestamp::MIN, Timestamp::MAX, 9), []);
}

#[test]
fn an_inclusion_calendar_keeps_only_its_days() {
    let days = DayFilter { exclude: vec![], include: vec![christmas().into()] };
    let schedule = with_days("0 9 * * *", days).unwrap();
    let start = instant("2026-01-01T00:00", &schedule.timing().zone);
    assert_eq!(
        after(&schedule, start, 3),
        ["2026-12-25T09:00:00+01:00", "2026-12-26T09:00:00+01:00", "2027-12-25T09:00:00+01:00"]
    );
}

#[test]
fn calendars_that_leave_no_day_are_refused_with_the_reason() {
    let weekend =
        Calendar { name: "weekend".into(), weekdays: Weekdays::WEEKEND, ..Calendar::default() };
    let days = DayFilter { exclude: vec![weekend.into()], include: vec![] };
    let never = with_days("0 9 * * sat", days).unwrap_err();
    assert_eq!(never, NeverFires::Calendars);
}

#[test]
fn bounds_include_from_and_exclude_until() {
    let utc = zone("UTC");
    let bounded = |from: &str, until: &str| {
        let timing = Timing {
            from: Some(instant(from, &utc)),
            until: Some(instant(until, &utc)),
            ..timing(&utc, DEFAULT)
        };
        let recurrence = cron("0 * * * *", &utc, DEFAULT).unwrap().recurrence().clone();
        Schedule::new(ScheduleId::from_static("cron"), recurrence, timing)
    };
    let schedule = bounded("2026-01-01T03:00", "2026-01-01T05:00").unwrap();
    let all = schedule.slots(Timestamp::MIN, Timestamp::MAX, 9);
    let expected = [instant("2026-01-01T03:00", &utc), instant("2026-01-01T04:00", &utc)];
    assert_eq!((all.found.as_slice(), all.rest), (&expected[..], None));
    assert_eq!(schedule.previous(Timestamp::MAX), Some(expected[1]));
    let never = bounded("2026-01-01T03:01", "2026-01-01T03:59").unwrap_err();
    assert_eq!(never, NeverFires::Bounds);
}

#[test]
fn an_interval_keeps_its_anchor_and_ignores_daylight_saving() {
    let berlin = zone("Europe/Berlin");
    let anchor = instant("2026-03-28T08:00", &berlin);
    let schedule = schedule(Recurrence::Every { step: 86_400, anchor }, &berlin, DEFAULT).unwrap();
    let expected = ["2026-03-28T08:00:00+01:00", "2026-03-29T09:00:00+02:00"];
    assert_eq!(after(&schedule, anchor - SignedDuration::from_secs(1), 2), expected);
}

#[test]
fn an_interval_leaves_out_excluded_days_both_ways() {
    let berlin = zone("Europe/Berlin");
    let days = DayFilter { exclude: vec![christmas().into()], include: vec![] };
    let recurrence = Recurrence::Every { step: 6 * 3600, anchor: Timestamp::UNIX_EPOCH };
    let schedule = Schedule::new(
        ScheduleId::from_static("every"),
        recurrence,
        Timing { days, ..timing(&berlin, DEFAULT) },
    );
    let schedule = schedule.unwrap();
    // 23:00Z on the 26th would be midnight of the 27th in Berlin; the grid has 00:00Z = 01:00 there.
    let start = instant("2026-12-24T20:00", &berlin);
    assert_eq!(
        after(&schedule, start, 2),
        ["2026-12-27T01:00:00+01:00", "2026-12-27T07:00:00+01:00"]
    );
    let back = schedule.previous(instant("2026-12-27T01:00", &berlin)).unwrap();
    assert_eq!(back, instant("2026-12-24T19:00", &berlin));
}

#[test]
fn one_instant_is_one_slot() {
    let at = instant("2026-02-25T09:00", &zone("UTC"));
    let schedule = schedule(Recurrence::Once(at), &zone("UTC"), DEFAULT).unwrap();
    assert_eq!(schedule.slots(Timestamp::MIN, Timestamp::MAX, 9).found, [at]);
    assert_eq!(schedule.previous(at), None);
}

#[test]
fn a_dead_mans_switch_owes_no_slots_by_itself() {
    let schedule = schedule(Recurrence::SinceLast { step: 60 }, &zone("UTC"), DEFAULT).unwrap();
    assert_eq!(schedule.next(Timestamp::MIN), None);
}

#[test]
fn a_time_of_day_keeps_to_its_weekdays() {
    let utc = zone("UTC");
    let weekdays = Weekdays::parse_day("mon").unwrap().union(Weekdays::parse_day("thu").unwrap());
    let time = TimeOfDay::parse("09:30").unwrap();
    let schedule = schedule(Recurrence::At { time, weekdays }, &utc, DEFAULT).unwrap();
    let expected = ["2026-11-16T09:30:00+00:00", "2026-11-19T09:30:00+00:00"];
    assert_eq!(after(&schedule, instant("2026-11-15T00:00", &utc), 2), expected);
}

#[test]
fn a_start_between_two_seconds_rounds_up() {
    let schedule = cron("* * * * * *", &zone("UTC"), DEFAULT).unwrap();
    let half = Timestamp::new(100, 500_000_000).unwrap();
    assert_eq!(schedule.next(half), Some(Timestamp::from_second(101).unwrap()));
    assert_eq!(schedule.previous(half), Some(Timestamp::from_second(100).unwrap()));
}

#[test]
fn nothing_is_asked_beyond_the_horizon() {
    let schedule = cron("0 0 * * *", &zone("Europe/Riga"), DEFAULT).unwrap();
    assert_eq!(schedule.next("2200-01-02T00:00:00Z".parse().unwrap()), None);
    assert_eq!(schedule.next(Timestamp::MAX), None);
    assert_eq!(schedule.previous(Timestamp::MIN), None);
    assert!(schedule.next(Timestamp::MIN).is_some() && schedule.previous(Timestamp::MAX).is_some());
}

#[test]
fn jitter_is_below_its_limit_and_always_the_same() {
    let schedule = ScheduleId::from_static("cron");
    let offset = |name: &str| {
        jitter_offset(&PipelineId::parse(name).unwrap(), &schedule, SignedDuration::from_secs(30))
    };
    assert_eq!(offset("orders"), offset("orders"));
    let distinct: std::collections::BTreeSet<_> =
        (0..100).map(|i| offset(&format!("pipeline-{i}"))).collect();
    assert!(distinct.len() > 20 && distinct.iter().all(|o| o.as_secs() < 30));
    let none = PipelineId::parse("orders").unwrap();
    assert_eq!(jitter_offset(&none, &schedule, SignedDuration::ZERO), SignedDuration::ZERO);
}
