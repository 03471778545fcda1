//! Absence in time: graces, zones, midnight, daylight saving, listed dates, pauses, catch-up, watch-only.

use interlock_core::{
    run::TriggerType,
    slot::{Disposition, Evaluated, OpenState, SkipReason, Slot, SlotState},
};
use interlock_store::{
    Change, Expect, Key, Record, Store as _, block_on,
    record::{InboxRecord, SpanRecord, version_text},
};
use interlock_watchdog::CheckName;
use jiff::Timestamp;
use serde_json::json;

use crate::house::{House, at, instant, waiting};

const NOTHING: [&str; 0] = [];

fn cron(expression: &str, more: &str) -> String {
    format!(
        "name: orders\nschedule: '{expression}'\ntrigger: {{type: command, command: 'true'}}\n{more}"
    )
}

/// Recorded and judged up to an instant.
fn judged(file: &str, until: Timestamp) -> House {
    let house = House::new(&[file], until);
    assert_eq!(house.found(until), NOTHING);
    house
}

#[test]
fn a_slot_that_is_not_recorded_is_missed_after_its_grace() {
    let house = judged(&cron("0 9 * * *", ""), at("08:00"));
    assert_eq!(house.found(at("09:05")), NOTHING, "half a second is left for what is on its way");
    assert_eq!(
        house.found(at("09:06")),
        ["missed-schedules SCHEDULE_MISSED cron/2026-02-24T09:00:00Z"]
    );
}

#[test]
fn without_a_deadline_it_is_enough_that_it_was_recorded() {
    let house = judged(&cron("0 9 * * *", ""), at("08:00"));
    house.slot("orders", ("cron", at("09:00")), &waiting(at("09:00")));
    house.recorded("orders", "cron", at("09:00"));
    assert_eq!(house.found(at("09:06")), NOTHING);
}

#[test]
fn hourly_slots_are_judged_one_by_one() {
    let house = judged(&cron("0 * * * *", ""), at("08:30"));
    house.slot("orders", ("cron", at("10:00")), &waiting(at("10:00")));
    assert_eq!(
        house.found(at("11:30")),
        [
            "missed-schedules SCHEDULE_MISSED cron/2026-02-24T09:00:00Z",
            "missed-schedules SCHEDULE_MISSED cron/2026-02-24T11:00:00Z"
        ]
    );
    // One incident for the day, which the second joined silently.
    assert_eq!(house.incidents()["watchdog:orders:cron:2026-02-24"].count, 2);
    assert_eq!(house.alerts().len(), 1);
}

#[test]
fn a_deadline_past_midnight_belongs_to_the_day_before() {
    let file = "
name: orders
schedules: [{name: night, after: '22:00', deadline: '02:00'}]
trigger: {type: command, command: 'true'}
";
    let house = judged(file, at("21:00"));
    assert_eq!(house.found(instant("2026-02-25T01:59:00Z")), NOTHING);
    assert_eq!(
        house.found(instant("2026-02-25T02:01:00Z")),
        ["missed-schedules SCHEDULE_MISSED night/2026-02-24T22:00:00Z"]
    );
    assert!(house.incidents().contains_key("watchdog:orders:night:2026-02-24"));
}

#[test]
fn the_day_is_the_schedules_own() {
    let file = cron("30 8 * * *", "timezone: Asia/Tokyo\n");
    let house = judged(&file, instant("2026-02-23T20:00:00Z"));
    // 08:30 in Tokyo is the evening before in UTC.
    assert_eq!(
        house.found(instant("2026-02-23T23:40:00Z")),
        ["missed-schedules SCHEDULE_MISSED cron/2026-02-23T23:30:00Z"]
    );
    assert!(house.incidents().contains_key("watchdog:orders:cron:2026-02-24"));
}

#[test]
fn in_the_night_without_two_o_clock_the_slot_is_judged_at_three() {
    let file = cron("30 2 * * *", "timezone: Europe/Berlin\n");
    let house = judged(&file, instant("2026-03-28T12:00:00Z"));
    // The gap moves it to 03:00 local, 01:00 UTC; an hour earlier it is nobody's.
    assert_eq!(house.found(instant("2026-03-29T01:04:00Z")), NOTHING);
    assert_eq!(
        house.found(instant("2026-03-29T01:06:00Z")),
        ["missed-schedules SCHEDULE_MISSED cron/2026-03-29T01:00:00Z"]
    );
}

#[test]
fn listed_dates_have_a_check_of_their_own() {
    let file = "
name: orders
schedules: [{name: quarter, at: '06:00', dates: ['2026-02-24', '2026-03-31']}]
trigger: {type: command, command: 'true'}
";
    let house = judged(file, at("05:00"));
    assert_eq!(
        house.found(at("06:10")),
        ["missed-inclusion-schedules IRREGULAR_SCHEDULE_MISSED quarter/2026-02-24T06:00:00Z"]
    );
    assert_eq!(house.found(instant("2026-02-25T06:10:00Z")), NOTHING, "the next day is not listed");
}

#[test]
fn what_a_pause_accounts_for_is_not_missed() {
    for until in [None, Some(at("09:30"))] {
        let house = judged(&cron("0 9 * * *", ""), at("08:00"));
        house.pause("orders", at("08:30"), until);
        assert_eq!(house.found(at("10:00")), NOTHING, "{until:?}");
    }
    let house = judged(&cron("0 9 * * *", ""), at("08:00"));
    house.pause("orders", at("08:10"), Some(at("08:30")));
    assert_eq!(house.found(at("10:00")).len(), 1, "it was over before");
}

#[test]
fn a_catch_up_in_progress_is_not_a_second_miss() {
    let house = judged(&cron("0 9 * * *", "sla: {evaluationDeadline: '09:30'}\n"), at("08:00"));
    let mut slot = waiting(at("09:00"));
    slot.opened_by = TriggerType::Catchup;
    let slot = slot.advance(OpenState::Queued, at("23:00")).unwrap();
    house.slot("orders", ("cron", at("09:00")), &slot);
    house.recorded("orders", "cron", at("09:00"));
    assert_eq!(house.found(at("10:00")), NOTHING);
}

#[test]
fn a_slot_that_nobody_evaluated_is_missed_and_keeps_its_chance() {
    let house = judged(&cron("0 9 * * *", "sla: {evaluationDeadline: '09:30'}\n"), at("08:00"));
    house.slot("orders", ("cron", at("09:00")), &waiting(at("09:00")));
    house.recorded("orders", "cron", at("09:00"));
    assert_eq!(
        house.found(at("09:31")),
        ["missed-schedules SCHEDULE_MISSED cron/2026-02-24T09:00:00Z"]
    );
    let slot = house.state("orders", "cron", at("09:00")).unwrap();
    assert_eq!(slot.state, SlotState::Open(OpenState::Waiting));
    assert_eq!(slot.marks.missed_at, Some(at("09:31")));
    assert_eq!(house.found(at("09:40")), NOTHING);
}

#[test]
fn a_slot_that_was_evaluated_and_not_ready_breaks_its_sla_instead() {
    let house = judged(&cron("0 9 * * *", "sla: {evaluationDeadline: '09:30'}\n"), at("08:00"));
    let mut slot = waiting(at("09:00"));
    let blocking = vec!["orders-ready: not reported".to_owned()];
    slot.evaluated = Some(Box::new(Evaluated { at: at("09:01"), blocking, is_told: false }));
    house.slot("orders", ("cron", at("09:00")), &slot);
    house.recorded("orders", "cron", at("09:00"));
    assert_eq!(house.found(at("09:31")), ["missed-schedules SLA_BREACH cron/2026-02-24T09:00:00Z"]);
    let alert = &house.alerts()[0];
    let message = alert["message"].as_str().unwrap();
    assert!(message.ends_with("on 2026-02-24: orders-ready: not reported"), "{message}");
    // Also for one who judges the same time again.
    assert!(house.state("orders", "cron", at("09:00")).unwrap().evaluated.unwrap().is_told);
}

#[test]
fn what_was_given_up_is_told_and_what_was_decided_is_not() {
    for (reason, count) in [
        (SkipReason::NoCatchup, 1),
        (SkipReason::Expired, 1),
        (SkipReason::Capped, 1),
        (SkipReason::Overlap, 0),
        (SkipReason::Superseded, 0),
        (SkipReason::Paused, 0),
        (SkipReason::NotReady, 0),
        (SkipReason::DryRun, 0),
    ] {
        let house = judged(&cron("0 9 * * *", ""), at("08:00"));
        let slot = waiting(at("09:00")).close(Disposition::Skipped(reason), at("09:02")).unwrap();
        house.slot("orders", ("cron", at("09:00")), &slot);
        house.recorded("orders", "cron", at("09:00"));
        assert_eq!(house.found(at("09:10")).len(), count, "{reason:?}");
    }
}

#[test]
fn many_that_were_given_up_in_a_row_are_one_finding() {
    let house = judged(&cron("0 * * * *", ""), at("03:30"));
    let span = SpanRecord {
        last: at("08:00"),
        count: 5,
        disposition: "skipped".into(),
        reason: Some("no_catchup".into()),
        version: version_text(7),
        recorded_at: at("08:03"),
    };
    let key = Key::Span(interlock_core::id::ScheduleId::any("cron").unwrap(), at("04:00"));
    house.write("orders", vec![Change::Put(key, Expect::Absent, Record::Span(span.into()))]);
    house.recorded("orders", "cron", at("08:00"));
    assert_eq!(
        house.found(at("08:10")),
        ["missed-schedules SCHEDULE_MISSED cron/2026-02-24T08:00:00Z"]
    );
    let incident = &house.incidents()["watchdog:orders:cron:2026-02-24"];
    assert_eq!(incident.details["count"], 5);
    assert!(incident.message.contains("5 slots from 2026-02-24T04:00:00Z"), "{}", incident.message);
}

#[test]
fn stops_and_restarts_are_not_watched() {
    let file = "
name: orders
schedule: {start: '0 9 * * *', stop: '30 9 * * *'}
trigger: {type: command, command: 'true'}
";
    let house = judged(file, at("09:10"));
    assert_eq!(house.found(at("12:00")), NOTHING);
}

const WATCHED: &str = "name: orders\nschedule: '0 9 * * *'\ntrigger: {type: external}\n";

fn watched(until: Timestamp) -> House {
    let house = judged(WATCHED, until);
    let mut slot: Slot = waiting(at("09:00"));
    slot.closes_at = at("09:05");
    house.slot("orders", ("cron", at("09:00")), &slot);
    house.recorded("orders", "cron", at("09:00"));
    house
}

#[test]
fn a_watched_slot_without_a_report_is_closed_as_missed() {
    let house = watched(at("08:00"));
    assert_eq!(
        house.found(at("09:06")),
        ["missed-schedules SCHEDULE_MISSED cron/2026-02-24T09:00:00Z"]
    );
    let slot = house.state("orders", "cron", at("09:00")).unwrap();
    assert_eq!(slot.state, SlotState::Closed(Disposition::Missed));
}

#[test]
fn a_report_that_nobody_has_applied_counts_as_arrived() {
    let house = watched(at("08:00"));
    let orders = interlock_core::id::PipelineId::parse("orders").unwrap();
    let record = InboxRecord::Sensor { key: "done".into(), value: json!(true), at: at("09:01") };
    block_on(house.store.post(&orders, "k", &record)).unwrap();
    assert_eq!(house.found(at("09:06")), NOTHING);
}

#[test]
fn s10_a_slot_that_nobody_could_report_on_is_unknown() {
    let house = watched(at("08:00"));
    // The gap is found by whoever watches next, and is kept.
    let key = interlock_store::Key::Due(
        "9999-12-30T00:00:00Z".parse().unwrap(),
        interlock_store::DueKind::Pause,
        "coverage".into(),
    );
    let gaps = json!([["2026-02-24T08:10:00Z", "2026-02-24T09:01:00Z"]]);
    let details = [("gaps".to_owned(), gaps)].into_iter().collect();
    let record = Record::Due(interlock_store::record::DueRecord { details });
    house.write("_system", vec![Change::Put(key, Expect::Any, record)]);
    assert_eq!(
        house.found(at("09:06")),
        ["missed-schedules SCHEDULE_UNKNOWN cron/2026-02-24T09:00:00Z"]
    );
    let slot = house.state("orders", "cron", at("09:00")).unwrap();
    assert_eq!(slot.state, SlotState::Closed(Disposition::Unknown));
    assert_eq!(house.incidents()["unknown:orders:cron:2026-02-24"].level, "warning");
}

#[test]
fn at_another_time_nothing_is_written() {
    let house = judged(&cron("0 9 * * *", ""), at("08:00"));
    let before = house.events();
    let report = house.would_find(CheckName::MissedSchedules, instant("2026-02-26T10:00:00Z"));
    assert_eq!(report.unwrap().findings.len(), 3, "three days of it");
    assert_eq!(house.events(), before);
    assert!(house.incidents().is_empty());
    // And is found again by whoever may write.
    assert_eq!(house.found(at("09:06")).len(), 1);
}

#[test]
fn a_long_time_is_judged_in_portions_and_wholly() {
    let house = judged(&cron("* * * * *", ""), at("00:00"));
    let report = house.pass(at("23:00"));
    // 00:01 to 22:58: a grace is never longer than the gap.
    assert_eq!(report.findings.len(), 22 * 60 + 58);
    assert_eq!(house.alerts().len(), 1, "one incident for the day");
    assert_eq!(house.found(at("23:00")), NOTHING);
}

#[test]
fn jitter_delays_the_judgement_of_what_we_start() {
    let file = "
name: orders
schedules: [{name: nine, cron: '0 9 * * *', jitter: 10m}]
trigger: {type: command, command: 'true'}
";
    let house = judged(file, at("08:00"));
    assert_eq!(house.found(at("09:05")), NOTHING);
    assert_eq!(house.found(at("09:16")).len(), 1, "ten minutes at most, and the grace");
}

#[test]
fn a_rehearsal_misses_nothing_also_if_nobody_schedules_it() {
    let house = judged(&cron("0 9 * * *", "dryRun: true\n"), at("08:00"));
    assert_eq!(house.found(at("10:00")), NOTHING);
}
