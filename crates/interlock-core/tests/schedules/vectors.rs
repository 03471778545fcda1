//! The daylight-saving and calendar vectors of `facts/field.md` D, each under its own id.
//!
//! D2 comes from cronsim's suite (default policy), D3 from Temporal and Argo (literal: gap=skip,
//! overlap=both), D4 from systemd's suite (once: gap=skip, overlap=first). D4 S12 (month intervals)
//! cannot be expressed; S18 is in `properties.rs`; S19 to S24 belong to the engine.

use std::collections::BTreeSet;

use crate::support::{DEFAULT, LITERAL, ONCE, after, cron, instant, local, schedule, zone};
use interlock_core::{
    cron::{Cron, Seconds},
    schedule::{DstEffect, NeverFires, Recurrence, Schedule},
};
use jiff::{Timestamp, civil::Date};

/// Checks Riga 2021: `expected` is `MM-DD HH:MM+OO` or, on the start's own day, `HH:MM+OO`.
#[track_caller]
fn riga(expression: &str, start: &str, expected: &[&str]) {
    let zone = zone("Europe/Riga");
    let schedule = cron(expression, &zone, DEFAULT).unwrap();
    let (day, time) = start.split_once(' ').unwrap();
    let from = instant(&format!("2021-{day}T{time}"), &zone);
    let expected: Vec<_> = expected
        .iter()
        .map(|text| {
            let (day, rest) = text.split_once(' ').unwrap_or((day, text));
            let (time, offset) = rest.split_once('+').unwrap();
            format!("2021-{day}T{time}:00+{offset}:00")
        })
        .collect();
    assert_eq!(after(&schedule, from, expected.len()), expected, "{expression} after {start}");
    // The same backwards: each slot's predecessor is the one before it.
    for pair in expected.windows(2) {
        let later: Timestamp = pair[1].parse().unwrap();
        assert_eq!(local(schedule.previous(later).unwrap(), &schedule), pair[0]);
    }
}

macro_rules! riga_vectors {
    ($($name:ident: $expression:expr, $start:expr => [$($expected:expr),+];)+) => {
        $(#[test] fn $name() { riga($expression, $start, &[$($expected),+]); })+
    };
}

riga_vectors! {
    d2_r1_hourly_over_the_gap: "0 * * * *", "03-28 01:30" => ["02:00+02", "04:00+03"];
    d2_r2_hourly_over_the_overlap: "0 * * * *", "10-31 01:30" => ["02:00+03", "03:00+03", "03:00+02", "04:00+02"];
    d2_r3_half_hourly_over_the_gap: "*/30 * * * *", "03-28 02:10" => ["02:30+02", "04:00+03", "04:30+03"];
    d2_r4_half_hourly_over_the_overlap: "*/30 * * * *", "10-31 02:10" => ["02:30+03", "03:00+03", "03:30+03", "03:00+02", "03:30+02", "04:00+02"];
    d2_r5_quarter_hourly_over_the_gap: "*/15 * * * *", "03-28 02:40" => ["02:45+02", "04:00+03"];
    d2_r6_every_second_hour_over_the_gap: "0 */2 * * *", "03-28 01:30" => ["02:00+02", "04:00+03", "06:00+03"];
    d2_r7_every_second_hour_over_the_overlap: "0 */2 * * *", "10-31 01:30" => ["02:00+03", "04:00+02", "06:00+02"];
    d2_r8_a_stepped_hour_counts_as_a_wildcard: "0 */3 * * *", "10-31 01:30" => ["03:00+03", "03:00+02", "06:00+02"];
    d2_r9_listed_hours_coalesce_at_the_gap: "0 1,2,3,4,5 * * *", "03-28 01:30" => ["02:00+02", "04:00+03", "05:00+03"];
    d2_r10_listed_hours_do_not_repeat: "0 1,2,3,4,5 * * *", "10-31 01:30" => ["02:00+03", "03:00+03", "04:00+02"];
    d2_r11_a_listed_half_hour_moves_past_the_gap: "30 1,2,3,4,5 * * *", "03-28 01:30" => ["02:30+02", "04:00+03", "04:30+03"];
    d2_r12_listed_half_hours_do_not_repeat: "30 1,2,3,4,5 * * *", "10-31 01:30" => ["02:30+03", "03:30+03", "04:30+02"];
    d2_r13_a_daily_time_in_the_gap_moves: "0 3 * * *", "03-27 01:30" => ["03:00+02", "03-28 04:00+03", "03-29 03:00+03"];
    d2_r14_a_daily_time_in_the_overlap_runs_once: "0 3 * * *", "10-31 01:30" => ["03:00+03", "11-01 03:00+02"];
    d2_r15_a_daily_time_inside_the_gap_moves_to_its_end: "15 3 * * *", "03-27 00:00" => ["03:15+02", "03-28 04:00+03", "03-29 03:15+03"];
    d2_r16_a_daily_time_inside_the_overlap_runs_once: "15 3 * * *", "10-30 00:00" => ["03:15+03", "10-31 03:15+03", "11-01 03:15+02"];
    d2_r17_a_daily_time_at_the_gaps_end_stays: "0 4 * * *", "03-27 01:30" => ["04:00+02", "03-28 04:00+03", "03-29 04:00+03"];
    d2_r18_a_daily_time_at_the_overlaps_end_stays: "0 4 * * *", "10-30 01:30" => ["04:00+03", "10-31 04:00+02", "11-01 04:00+02"];
    d2_r19_all_hours_enumerated_are_fixed_times: "0 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23 * * *", "10-31 01:30" => ["02:00+03", "03:00+03", "04:00+02"];
    d2_r20_a_range_of_hours_is_fixed: "0 1-5 * * *", "10-31 01:30" => ["02:00+03", "03:00+03", "04:00+02"];
    d2_r21_every_minute_runs_through_both_passes: "* * * * *", "10-31 03:58" => ["03:59+03", "03:00+02", "03:01+02"];
    d2_r22_a_wildcard_minute_with_a_range_of_hours_too: "* 1-6 * * *", "10-31 03:58" => ["03:59+03", "03:00+02", "03:01+02"];
}

#[track_caller]
fn literal(zone_name: &str, expression: &str, start: &str, expected: &[&str]) {
    let zone = zone(zone_name);
    let schedule = cron(expression, &zone, LITERAL).unwrap();
    assert_eq!(after(&schedule, instant(start, &zone), expected.len()), expected);
}

#[test]
fn d3_l1_a_time_in_the_gap_is_absent_that_day() {
    let expected = ["2022-03-12T02:33:33-08:00", "2022-03-14T02:33:33-07:00"];
    literal("US/Pacific", "33 33 2 * * *", "2022-03-11T20:00", &expected);
}

#[test]
fn d3_l2_both_passes_run_one_after_the_other() {
    let expected = [
        "2021-11-07T01:33:33-07:00",
        "2021-11-07T01:44:33-07:00",
        "2021-11-07T01:33:33-08:00",
        "2021-11-07T01:44:33-08:00",
        "2021-11-08T01:33:33-08:00",
    ];
    literal("US/Pacific", "33 33,44 1 * * *", "2021-11-07T00:15:15", &expected);
}

#[test]
fn d3_l3_a_start_in_the_repeated_hour_finds_a_target_outside() {
    let zone = zone("Europe/London");
    // Sunday the second of January: day of month and weekday must both match, which cron cannot say.
    let dates: BTreeSet<_> = [Date::constant(2005, 1, 2)].into();
    let time = interlock_core::time_of_day::TimeOfDay::parse("00:01").unwrap();
    let schedule = schedule(Recurrence::Dates { dates, time }, &zone, LITERAL).unwrap();
    let start = instant("2004-10-31T01:07:03", &zone);
    assert_eq!(after(&schedule, start, 2), ["2005-01-02T00:01:00+00:00"]);
}

#[test]
fn d3_l4_a_daily_time_in_the_overlap_runs_twice() {
    let expected =
        ["2020-11-01T01:59:00-07:00", "2020-11-01T01:59:00-08:00", "2020-11-02T01:59:00-08:00"];
    literal("America/Los_Angeles", "59 1 * * *", "2020-11-01T00:00", &expected);
}

#[test]
fn d3_l5_a_daily_time_in_the_gap_waits_for_the_next_day() {
    literal("America/Los_Angeles", "0 2 * * *", "2020-03-08T00:00", &["2020-03-09T02:00:00-07:00"]);
}

#[test]
fn d3_l6_every_second_before_a_slot_gives_the_same_slot() {
    let zone = zone("US/Pacific");
    for (expression, start) in
        [("33 33,44 1 * * *", "2021-11-07T00:50:00"), ("33 33 2 * * *", "2022-03-13T01:30:00")]
    {
        let schedule = cron(expression, &zone, LITERAL).unwrap();
        let mut second = instant(start, &zone);
        for _ in 0..4 {
            let slot = schedule.next(second).unwrap();
            while second <= slot {
                assert_eq!(schedule.next(second), Some(slot));
                second += jiff::SignedDuration::from_secs(1);
            }
        }
    }
}

fn on_date(date: Date, time: &str, zone_name: &str) -> Option<Schedule> {
    let time = interlock_core::time_of_day::TimeOfDay::parse(time).unwrap();
    let dates: BTreeSet<_> = [date].into();
    schedule(Recurrence::Dates { dates, time }, &zone(zone_name), ONCE).ok()
}

#[track_caller]
fn once(zone_name: &str, expression: &str, after_second: i64, expected: &[i64]) {
    let schedule = cron(expression, &zone(zone_name), ONCE).unwrap();
    let from = Timestamp::from_second(after_second + 1).unwrap();
    let slots = schedule.slots(from, Timestamp::MAX, expected.len()).found;
    let seconds: Vec<_> = slots.into_iter().map(Timestamp::as_second).collect();
    assert_eq!(seconds, expected, "{expression} in {zone_name}");
}

#[test]
fn d4_s1_a_date_in_the_gap_never_fires() {
    assert_eq!(on_date(Date::constant(2017, 9, 24), "02:30", "Pacific/Auckland"), None);
}

#[test]
fn d4_s2_a_date_in_the_overlap_fires_once() {
    let schedule = on_date(Date::constant(2017, 4, 2), "02:30", "Pacific/Auckland").unwrap();
    let all = schedule.slots(Timestamp::MIN, Timestamp::MAX, 9).found;
    assert_eq!(all, [Timestamp::from_second(1_491_053_400).unwrap()]);
}

#[test]
fn d4_s3_the_same_time_exists_in_berlin_and_not_in_helsinki() {
    let date = Date::constant(2016, 3, 27);
    assert_eq!(on_date(date, "03:17", "Europe/Helsinki"), None);
    let berlin = on_date(date, "03:17", "Europe/Berlin").unwrap();
    let all = berlin.slots(Timestamp::MIN, Timestamp::MAX, 9).found;
    assert_eq!(all, [Timestamp::from_second(1_459_041_420).unwrap()]);
}

#[test]
fn d4_s4_negative_daylight_saving_in_dublin_does_not_loop() {
    once("Europe/Dublin", "0 1 * * 0", 1_616_412_478, &[1_617_494_400]);
}

#[test]
fn d4_s5_a_posix_zone_with_negative_daylight_saving() {
    once("IST-1GMT-0,M10.5.0/1,M3.5.0/1", "0 * * * *", 1_743_292_800, &[1_743_296_400]);
}

#[test]
fn d4_s6_the_31st_of_april_is_refused() {
    let never = cron("0 0 31 4 *", &zone("UTC"), ONCE).unwrap_err();
    assert_eq!(never, NeverFires::Recurrence);
}

#[test]
fn d4_s7_a_step_over_days_begins_anew_each_month() {
    once("UTC", "0 4 1/5 * *", 1_646_010_000, &[1_646_107_200]);
}

#[test]
fn d4_s8_a_step_over_days_across_month_and_year() {
    once("UTC", "0 23 1/11 * *", 1_763_938_800, &[1_764_630_000]);
}

#[test]
fn d4_s9_the_last_of_february_in_a_leap_year() {
    once("UTC", "0 0 L 2 *", 1_451_606_400, &[1_456_704_000]);
}

#[test]
fn d4_s10_the_last_monday_of_may() {
    once("UTC", "0 0 * 5 1L", 1_483_228_800, &[1_496_016_000]);
}

#[test]
fn d4_s11_a_four_hourly_schedule_survives_the_gap_in_sydney() {
    let sydney = zone("Australia/Sydney");
    let schedule = cron("30 2/4 * * *", &sydney, ONCE).unwrap();
    let start = instant("2019-10-06T00:00", &sydney);
    let expected =
        ["2019-10-06T06:30:00+11:00", "2019-10-06T10:30:00+11:00", "2019-10-06T14:30:00+11:00"];
    assert_eq!(after(&schedule, start, 3), expected);
}

#[test]
fn d4_s13_rare_days_are_found_far_ahead() {
    let utc = zone("UTC");
    let start = instant("2026-01-01T00:00", &utc);
    let leap = cron("0 0 29 2 *", &utc, ONCE).unwrap();
    assert_eq!(after(&leap, start, 1), ["2028-02-29T00:00:00+00:00"]);
    let fifth_monday = cron("0 0 * 2 mon#5", &utc, ONCE).unwrap();
    let years: Vec<_> =
        after(&fifth_monday, start, 3).iter().map(|slot| slot[..4].to_owned()).collect();
    assert_eq!(years, ["2044", "2072", "2112"]);
}

#[test]
fn d4_s14_both_day_fields_mean_either_with_a_warning() {
    let parsed = Cron::parse("0 0 13 * 5", Seconds::Absent).unwrap();
    assert_eq!(parsed.warnings[0].span, 4..10);
    let utc = zone("UTC");
    let schedule = cron("0 0 13 * 5", &utc, ONCE).unwrap();
    let days: Vec<_> = after(&schedule, instant("2026-02-01T00:00", &utc), 5);
    let days: Vec<_> = days.iter().map(|slot| &slot[5..10]).collect();
    assert_eq!(days, ["02-06", "02-13", "02-20", "02-27", "03-06"]);
}

#[test]
fn d4_s15_a_sixth_field_is_refused_unless_declared() {
    let error = Cron::parse("0 0 12 * * 1", Seconds::Absent).unwrap_err();
    assert_eq!((error.span, error.message.as_str()), (11..12, "6 fields given where there are 5"));
    assert!(Cron::parse("0 0 12 * * 1", Seconds::Present).is_ok());
    assert!(Cron::parse("0 0 12 * * 1 2027", Seconds::Present).is_err());
}

#[test]
fn d4_s16_never_is_an_answer_and_not_a_loop() {
    for expression in ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 * 2 1#5,2#5 *"] {
        if let Ok(parsed) = Cron::parse(expression, Seconds::Absent) {
            let never = schedule(Recurrence::Cron(parsed.cron), &zone("UTC"), ONCE);
            assert!(never.is_err(), "{expression}");
        }
    }
}

#[test]
fn d4_s17_a_leap_second_owes_no_slot() {
    let utc = zone("UTC");
    let schedule = cron("59 59 23 31 12 *", &utc, ONCE).unwrap();
    let slots = after(&schedule, instant("2016-12-31T00:00", &utc), 2);
    assert_eq!(slots, ["2016-12-31T23:59:59+00:00", "2017-12-31T23:59:59+00:00"]);
    assert!(Cron::parse("60 59 23 31 12 *", Seconds::Present).is_err());
}

#[test]
fn the_preview_says_what_daylight_saving_did() {
    let riga = zone("Europe/Riga");
    let schedule = cron("15 3 * * *", &riga, DEFAULT).unwrap();
    let effect = |civil: &str| schedule.occurrence(instant(civil, &riga)).dst;
    let missing = "2021-03-28T03:15".parse().unwrap();
    assert_eq!(effect("2021-03-28T04:00"), Some(DstEffect::Moved { missing }));
    assert_eq!(effect("2021-10-31T03:15"), Some(DstEffect::FirstOfTwo));
    assert_eq!(effect("2021-10-30T03:15"), None);
    let hourly = cron("0 * * * *", &riga, DEFAULT).unwrap();
    let second: Timestamp = "2021-10-31T03:00:00+02:00".parse().unwrap();
    assert_eq!(hourly.occurrence(second).dst, Some(DstEffect::SecondOfTwo));
    // 04:00 is a slot of its own here, not a moved one.
    let at_end = instant("2021-03-28T04:00", &riga);
    assert_eq!(hourly.occurrence(at_end).dst, None);
}

#[test]
fn a_slot_that_moved_over_midnight_keeps_its_date() {
    // In Nuuk the clock jumps from 23:00 to 00:00 of the next day.
    let nuuk = zone("America/Nuuk");
    let schedule = cron("30 23 * * *", &nuuk, DEFAULT).unwrap();
    let moved = schedule.next(instant("2025-03-29T12:00", &nuuk)).unwrap();
    assert_eq!(local(moved, &schedule), "2025-03-30T00:00:00-01:00");
    assert_eq!(schedule.occurrence(moved).date, Date::constant(2025, 3, 29));
}
