//! Which schedule begins where, and which slots nobody owes.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::*;
use crate::{
    agenda::Work,
    calendar::DayFilter,
    cron::{Cron, Seconds},
    schedule::{Dst, Recurrence, Schedule, Timing},
    zone::Zone,
};

const NOW: &str = "12:00:30";

fn at(time: &str) -> Timestamp {
    format!("2026-11-15T{time}Z").parse().unwrap()
}

fn start(id: &'static str, recurrence: Recurrence) -> StartSchedule {
    let timing = Timing {
        zone: Zone::utc(),
        dst: Dst::default(),
        days: DayFilter::default(),
        from: None,
        until: None,
    };
    StartSchedule {
        schedule: Schedule::new(ScheduleId::from_static(id), recurrence, timing).unwrap(),
        deadline: None,
        grace: SignedDuration::from_mins(5),
        start_grace: SignedDuration::from_mins(1),
        early: None,
        duration_max: SignedDuration::from_hours(24),
        jitter: SignedDuration::ZERO,
    }
}

fn hourly(id: &'static str) -> StartSchedule {
    let cron = Cron::parse("0 * * * *", Seconds::Absent).unwrap().cron;
    start(id, Recurrence::Cron(cron))
}

fn agenda(starts: impl IntoIterator<Item = StartSchedule>) -> Agenda {
    let starts = starts.into_iter().map(Into::into).collect();
    Agenda { work: Work::Started, starts, ..Agenda::default() }
}

fn of_ids(ids: &'static str) -> Option<Agenda> {
    (ids != "-").then(|| agenda(ids.split_terminator(' ').map(hourly)))
}

/// Whether what was due is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Settled,
    AGap,
}

use Found::{AGap, Settled};

/// Says in short what becomes of schedules: `new@` where it begins, `gone:` and `back:` which time was away.
fn check(
    (old, new): (&'static str, &'static str),
    watermarks: &[(&str, &str)],
    found: Found,
    expected: &str,
) {
    let watermarks: BTreeMap<_, _> = watermarks.iter().map(|(id, time)| (*id, at(time))).collect();
    let (was, is) = (of_ids(old), of_ids(new));
    let heir = Heir {
        old: was.as_ref(),
        last: was.as_ref(),
        new: is.as_ref(),
        watermark: |id: &ScheduleId| watermarks.get(id.as_str()).copied(),
        is_settled: found == Found::Settled,
        now: at(NOW),
    };
    let time = |at: Timestamp| at.strftime("%H:%M:%S").to_string();
    let Succession { begins, away } = heir.succeed();
    let begins = begins.iter().map(|(id, from)| format!("{id}@{}", time(*from)));
    let away = away.iter().map(|away| {
        let word = if away.is_back { "back" } else { "gone" };
        let id = away.start.schedule.id();
        format!("{word}:{id} {}-{}", time(away.from), time(away.until))
    });
    let said = begins.chain(away).collect::<Vec<_>>().join(", ");
    assert_eq!(said, expected, "{old} becomes {new}");
}

#[test]
fn schedules_that_stay_stay_where_they_are() {
    check(("a b", "b a"), &[("a", "09:00:00"), ("b", "10:00:00")], AGap, "");
    check(("a", "a"), &[("a", "09:00:00")], Settled, "");
}

#[test]
fn a_schedule_that_is_new_owes_nothing_from_before() {
    check(("-", "a b"), &[], AGap, "a@12:00:30, b@12:00:30");
    check(("a", "a b"), &[("a", "09:00:00")], AGap, "b@12:00:30");
}

#[test]
fn what_comes_in_the_place_of_what_goes_takes_over_where_the_oldest_stood() {
    let gone = "gone:a 09:00:00-12:00:30";
    check(
        ("a b", "c b"),
        &[("a", "09:00:00"), ("b", "08:00:00")],
        AGap,
        &format!("c@09:00:00, {gone}"),
    );
    check(
        ("a b", "c d"),
        &[("a", "09:00:00"), ("b", "10:00:00")],
        AGap,
        &format!("c@09:00:00, d@09:00:00, {gone}, gone:b 10:00:00-12:00:30"),
    );
    // A live edit has recorded what was due: nothing from before it is owed by what comes with it (S16).
    check(("a", "c"), &[("a", "12:00:00")], Settled, "c@12:00:30, gone:a 12:00:00-12:00:30");
}

#[test]
fn what_comes_back_does_not_owe_the_time_in_which_it_was_away() {
    check(
        ("a", "a b"),
        &[("a", "12:00:00"), ("b", "07:00:00")],
        Settled,
        "back:b 07:00:00-12:00:30",
    );
    // In the place of one that goes it owes what that one owed, and its watermark does not go back (S4).
    check(
        ("a", "b"),
        &[("a", "10:00:00"), ("b", "07:00:00")],
        AGap,
        "gone:a 10:00:00-12:00:30, back:b 07:00:00-10:00:00",
    );
    check(("a", "b"), &[("a", "07:00:00"), ("b", "10:00:00")], AGap, "gone:a 07:00:00-12:00:30");
}

#[test]
fn a_pipeline_whose_file_is_gone_owes_nothing_any_more_and_one_that_is_back_nothing_from_before() {
    check(("a b", "-"), &[("a", "09:00:00")], AGap, "gone:a 09:00:00-12:00:30");
    check(("-", "a"), &[("a", "09:00:00")], AGap, "back:a 09:00:00-12:00:30");
}

#[test]
fn today_is_owed_by_a_schedule_without_a_time_of_its_own() {
    let daily = agenda([start("daily", Recurrence::Daily)]);
    let watermark = |_: &ScheduleId| None;
    let heir = Heir {
        old: None,
        last: None,
        new: Some(&daily),
        watermark,
        is_settled: true,
        now: at(NOW),
    };
    let begins: Vec<_> = heir.succeed().begins.into_iter().map(|(_, from)| from).collect();
    assert_eq!(begins, [at("00:00:00") - SignedDuration::from_millis(1)]);
}

#[test]
fn a_time_away_is_told_by_what_was_declared_last() {
    let cron = Cron::parse("46 * * * *", Seconds::Absent).unwrap().cron;
    let (was, is) = (agenda([hourly("a")]), agenda([start("a", Recurrence::Cron(cron))]));
    let watermark = |_: &ScheduleId| Some(at("09:00:00"));
    let heir = Heir {
        old: None,
        last: Some(&was),
        new: Some(&is),
        watermark,
        is_settled: true,
        now: at(NOW),
    };
    let away = heir.succeed().away;
    assert_eq!(away[0].start.schedule.after(away[0].from), Some(at("10:00:00")));
}
