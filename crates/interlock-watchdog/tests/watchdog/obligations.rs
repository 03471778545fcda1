//! What the due index announces: runs that are too old, SLAs, budgets, reports after a run, pauses; and sensors whose
//! slots nobody opened.

use interlock_core::{
    id::ScheduleId,
    run::TriggerType,
    sla::{Limit, ResolvedSla},
    slot::{Disposition, OpenState, SkipReason, Slot, SlotState},
};
use interlock_store::{
    Change, DueKind, Expect, Key, Obligation, Record, RunKey, Shard, Store as _, Subject, block_on,
    record::{SensorRecord, SpanRecord, version_text},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::house::{House, at, instant, waiting};

const NOTHING: [&str; 0] = [];
const CRON: &str =
    "name: orders\nschedule: '0 9 * * *'\ntrigger: {type: command, command: 'true'}\n";

fn nine() -> Timestamp {
    at("09:00")
}

fn cron() -> ScheduleId {
    ScheduleId::any("cron").unwrap()
}

fn subject() -> Subject {
    Subject::Slot(cron(), nine())
}

/// A house in which nine o'clock is recorded.
fn house(file: &str) -> House {
    let house = House::new(&[file], nine());
    assert_eq!(house.found(nine()), NOTHING);
    house
}

fn due_rows(house: &House) -> Vec<(Timestamp, DueKind)> {
    let until = instant("2027-01-01T00:00:00Z");
    let page = block_on(house.store.due(Shard(0), until, 100)).unwrap();
    page.items.into_iter().map(|row| (row.at, row.kind)).collect()
}

#[test]
fn a_run_past_its_ttl_is_failed_once_with_its_slot() {
    let house = house(CRON);
    house.run("orders", ("cron", nine()), ("RUNNING", nine()), SignedDuration::from_mins(30));
    assert_eq!(house.found(at("09:31")), ["stuck-runs RUN_STUCK cron/2026-02-24T09:00:00Z"]);
    let end = nine() + SignedDuration::from_hours(24);
    assert_eq!(due_rows(&house), [(end, DueKind::Closes)], "the next stage replaced the first");
    assert_eq!(house.found(end), NOTHING, "strictly after");
    let later = end + SignedDuration::from_secs(3);
    assert_eq!(house.found(later), ["stale-triggers SFN_TIMEOUT cron/2026-02-24T09:00:00Z"]);
    let slot = house.state("orders", "cron", nine()).unwrap();
    assert_eq!(slot.state, SlotState::Closed(Disposition::Failed));
    let key = RunKey { schedule: cron(), nominal: nine(), generation: 1, attempt: 1 };
    let Some((Record::Run(run), _)) = house.row("orders", &Key::Run(key)) else { panic!() };
    assert_eq!((run.status.as_str(), run.ended_at), ("FAILED", Some(later)));
    assert_eq!(house.found(later), NOTHING);
    assert_eq!(due_rows(&house), []);
    let failed = house.incidents().remove("failed:orders:cron:2026-02-24").unwrap();
    assert_eq!(failed.details["type"], "job_timeout");
}

#[test]
fn a_run_past_its_ttl_is_found_without_its_entry_too() {
    let house = house(CRON);
    let mut slot = waiting(nine());
    slot.state = SlotState::Open(OpenState::Running);
    slot.attempt = 1;
    slot.closes_at = at("10:00");
    house.slot("orders", ("cron", nine()), &slot);
    assert_eq!(house.found(at("10:01")), ["stale-triggers SFN_TIMEOUT cron/2026-02-24T09:00:00Z"]);
}

#[test]
fn a_slot_that_went_on_to_another_attempt_is_looked_at_later() {
    let house = house(CRON);
    let mut slot = waiting(nine());
    slot.state = SlotState::Open(OpenState::Running);
    slot.closes_at = at("12:00");
    house.slot("orders", ("cron", nine()), &slot);
    house.due("orders", Obligation::new(at("10:00"), DueKind::Closes, subject()));
    assert_eq!(house.found(at("10:01")), NOTHING);
    assert_eq!(due_rows(&house), [(at("12:00"), DueKind::Closes)]);
}

#[test]
fn a_stuck_run_is_cancelled_or_failed_where_the_pipeline_says_so() {
    let key = RunKey { schedule: cron(), nominal: nine(), generation: 1, attempt: 1 };
    for (action, asks, state) in [
        ("alert", 0, SlotState::Open(OpenState::Running)),
        ("cancel", 1, SlotState::Open(OpenState::Running)),
        ("fail", 0, SlotState::Closed(Disposition::Failed)),
    ] {
        let house = house(CRON);
        house.run("orders", ("cron", nine()), ("RUNNING", nine()), SignedDuration::from_mins(30));
        let due = Obligation::new(at("09:30"), DueKind::Stuck, Subject::Run(key.clone()));
        house.due("orders", due.detail("action", action));
        assert_eq!(house.found(at("09:31")).len(), 1, "{action}");
        let inbox = block_on(house.store.inbox(Shard(0), 10)).unwrap().items;
        assert_eq!(inbox.len(), asks, "{action}");
        assert_eq!(house.state("orders", "cron", nine()).unwrap().state, state, "{action}");
    }
}

fn promising(warning: Option<&str>, breach: &str) -> Slot {
    let limit = Limit { warning_at: warning.map(at), breach_at: at(breach) };
    waiting(nine()).promising(ResolvedSla { completion: Some(limit), ..ResolvedSla::default() })
}

#[test]
fn a_warning_comes_then_the_breach_and_each_is_told() {
    let house = house(CRON);
    house.slot("orders", ("cron", nine()), &promising(Some("09:45"), "10:00"));
    house.due("orders", Obligation::new(at("09:45"), DueKind::SlaWarning, subject()));
    assert_eq!(house.found(at("09:44")), NOTHING);
    assert_eq!(house.found(at("09:45")), ["sla-scheduling SLA_WARNING cron/2026-02-24T09:00:00Z"]);
    assert_eq!(due_rows(&house), [(at("10:00"), DueKind::SlaBreach)]);
    assert_eq!(house.found(at("10:00")), NOTHING, "breach is strictly after");
    assert_eq!(due_rows(&house), [(at("10:00"), DueKind::SlaBreach)], "it is looked at again");
    assert_eq!(house.found(at("10:01")), ["sla-scheduling SLA_BREACH cron/2026-02-24T09:00:00Z"]);
    assert_eq!(house.found(at("10:02")), NOTHING);
    let types: Vec<_> = house.alerts().iter().map(|alert| alert["alertType"].clone()).collect();
    assert_eq!(types, ["sla_warning", "sla_breach"]);
}

#[test]
fn a_warning_after_the_breach_is_none() {
    let house = house(CRON);
    house.slot("orders", ("cron", nine()), &promising(Some("09:45"), "10:00"));
    house.due("orders", Obligation::new(at("09:45"), DueKind::SlaWarning, subject()));
    assert_eq!(house.found(at("10:01")), ["sla-scheduling SLA_BREACH cron/2026-02-24T09:00:00Z"]);
    assert_eq!(due_rows(&house), []);
}

#[test]
fn an_sla_that_was_met_is_said_and_alarms_nobody() {
    let house = house(CRON);
    let mut slot = promising(None, "10:00");
    slot.state = SlotState::Open(OpenState::Running);
    let slot = slot.close(Disposition::Completed, at("09:10")).unwrap();
    house.slot("orders", ("cron", nine()), &slot);
    house.due("orders", Obligation::new(at("10:00"), DueKind::SlaBreach, subject()));
    assert_eq!(house.found(at("10:01")), ["sla-scheduling SLA_MET cron/2026-02-24T09:00:00Z"]);
    assert!(house.incidents().is_empty());
}

#[test]
fn an_sla_that_nobody_armed_is_armed() {
    // Of an open slot, which a look at all open slots finds.
    let house = house(CRON);
    house.slot("orders", ("cron", nine()), &promising(Some("09:45"), "10:00"));
    assert_eq!(house.found(at("09:10")), NOTHING);
    assert_eq!(due_rows(&house), [(at("09:45"), DueKind::SlaWarning)]);
    assert_eq!(house.found(at("09:50")).len(), 1);
    // Of an owed one that is not recorded, because the scheduler hangs.
    let file = format!("{CRON}sla: {{completionDeadline: '10:00'}}\n");
    let house = House::new(&[&file], at("08:00"));
    assert_eq!(house.found(at("08:00")), NOTHING);
    assert_eq!(
        house.found(at("09:06")),
        ["missed-schedules SCHEDULE_MISSED cron/2026-02-24T09:00:00Z"]
    );
    assert_eq!(due_rows(&house), [(at("10:00"), DueKind::SlaBreach)]);
    assert_eq!(house.found(at("10:01")), ["sla-scheduling SLA_BREACH cron/2026-02-24T09:00:00Z"]);
}

#[test]
fn a_budget_counts_from_the_first_sensor() {
    let house = house(CRON);
    let budget =
        ResolvedSla { duration_max: Some(SignedDuration::from_hours(1)), ..ResolvedSla::default() };
    house.slot("orders", ("cron", nine()), &waiting(nine()).promising(budget));
    let due = Obligation::new(at("10:05"), DueKind::SlaWarning, Subject::Budget(cron(), nine()));
    house.due("orders", due.detail("sensorArrivalAt", at("09:20").to_string()));
    assert_eq!(
        house.found(at("10:05")),
        ["relative-sla-breaches RELATIVE_SLA_WARNING cron/2026-02-24T09:00:00Z"]
    );
    assert_eq!(
        house.found(at("10:21")),
        ["relative-sla-breaches RELATIVE_SLA_BREACH cron/2026-02-24T09:00:00Z"]
    );
    assert_eq!(house.found(at("10:22")), NOTHING);
}

fn post_run(house: &House) {
    post_run_of(house, &["output-row-count"]);
}

/// A completion after which something is to be reported under these keys.
fn post_run_of(house: &House, keys: &[&str]) {
    let mut slot = waiting(nine());
    slot.state = SlotState::Open(OpenState::Running);
    let slot = slot.close(Disposition::Completed, at("09:10")).unwrap();
    house.slot("orders", ("cron", nine()), &slot);
    let due = Obligation::new(at("11:10"), DueKind::PostRun, subject())
        .detail("completedAt", at("09:10").to_string())
        .detail("sensorTimeout", "2h")
        .detail("generation", 1)
        .detail("ruleKeys", json!(keys));
    house.due("orders", due);
}

#[test]
fn a_completion_that_nobody_reported_on_is_told_once() {
    let house = house(CRON);
    post_run(&house);
    // A report from before the completion says nothing about it.
    house.sensor("orders", "output-row-count", json!({"count": 5}), at("09:05"));
    assert_eq!(house.found(at("11:09")), NOTHING);
    assert_eq!(
        house.found(at("11:11")),
        ["post-run-sensors POST_RUN_SENSOR_MISSING cron/2026-02-24T09:00:00Z"]
    );
    assert_eq!(house.found(at("11:12")), NOTHING);
}

#[test]
fn a_completion_that_was_reported_on_is_fine() {
    let house = house(CRON);
    post_run(&house);
    house.sensor("orders", "output-row-count", json!({"count": 5}), at("09:30"));
    assert_eq!(house.found(at("11:11")), NOTHING);
    assert_eq!(due_rows(&house), []);
}

#[test]
fn a_pause_without_an_end_is_told_and_one_that_ended_is_not() {
    for (until, expected) in
        [(None, &["paused-too-long PIPELINE_PAUSED"][..]), (Some(at("12:00")), &[])]
    {
        let house = house(CRON);
        house.pause("orders", at("09:10"), until);
        house.recorded("orders", "cron", instant("2026-02-26T00:00:00Z"));
        let due = at("09:10") + SignedDuration::from_hours(24);
        let due = Obligation::new(due, DueKind::Pause, Subject::Pipeline);
        house.due("orders", due.detail("since", at("09:10").to_string()));
        assert_eq!(house.found(instant("2026-02-25T09:11:00Z")), expected, "{until:?}");
        assert_eq!(due_rows(&house), []);
        let paused = house.incidents().contains_key("paused:orders");
        assert_eq!(paused, until.is_none());
    }
}

const STREAM: &str = "
name: orders
schedules: [{name: stream, sensor: {key: ready, check: exists, period: day}}]
trigger: {type: command, command: 'true'}
";

#[test]
fn a_sensor_whose_slot_nobody_opened_opens_it_once() {
    let house = House::new(&[STREAM], at("08:00"));
    assert_eq!(house.found(at("08:00")), NOTHING);
    house.sensor("orders", "ready", json!({"date": "2026-02-24"}), at("08:30"));
    assert_eq!(
        house.found(at("08:31")),
        ["sensor-trigger-reconciliation TRIGGER_RECOVERED stream/2026-02-24T00:00:00Z"]
    );
    let slot = house.state("orders", "stream", at("00:00")).unwrap();
    assert_eq!(slot.state, SlotState::Open(OpenState::Waiting));
    assert_eq!((slot.opened_by, slot.marks.recovered), (TriggerType::Reconcile, true));
    // The owner is asked to look, again and again until it does.
    for (time, asked) in [("08:32", 1), ("08:33", 2)] {
        assert_eq!(house.found(at(time)), NOTHING);
        assert_eq!(block_on(house.store.inbox(Shard(0), 10)).unwrap().items.len(), asked);
    }
}

#[test]
fn a_slot_that_was_opened_by_the_watchdog_has_its_budget_from_the_sensor_on() {
    let house = House::new(&[&format!("{STREAM}sla: {{maxDuration: 30m}}\n")], at("08:00"));
    assert_eq!(house.found(at("08:00")), NOTHING);
    house.sensor("orders", "ready", json!({"date": "2026-02-24"}), at("08:30"));
    assert_eq!(house.found(at("08:40")).len(), 1, "it is opened");
    // The warning came a quarter before.
    assert_eq!(house.found(at("08:59")).len(), 1);
    assert_eq!(
        house.found(at("09:01")),
        ["relative-sla-breaches RELATIVE_SLA_BREACH stream/2026-02-24T00:00:00Z"]
    );
}

#[test]
fn a_budget_of_an_earlier_generation_says_nothing_of_this_one() {
    let house = house(CRON);
    let budget =
        ResolvedSla { duration_max: Some(SignedDuration::from_mins(30)), ..Default::default() };
    let mut slot = waiting(nine()).promising(budget);
    let place = (nine(), cron());
    house.due("orders", Obligation::of_budget(&place, &slot, nine()).unwrap());
    slot.generation = 2;
    house.slot("orders", ("cron", nine()), &slot);
    assert_eq!(house.found(at("09:31")), NOTHING);
    assert_eq!(due_rows(&house), []);
}

#[test]
fn a_run_is_stuck_while_it_is_starting_too_and_not_once_it_is_over() {
    for (status, is_stuck) in [
        ("PENDING", true),
        ("TRIGGERING", true),
        ("RUNNING", true),
        ("FAILED", false),
        ("CANCELLED", false),
    ] {
        let house = house(CRON);
        house.run("orders", ("cron", nine()), (status, nine()), SignedDuration::from_mins(30));
        assert_eq!(house.found(at("09:31")).len(), usize::from(is_stuck), "{status}");
    }
}

#[test]
fn each_rule_of_a_post_run_wants_its_own_report() {
    for (reported, missing) in [(&["rows"][..], 1), (&["checksum"], 1), (&["rows", "checksum"], 0)]
    {
        let house = house(CRON);
        post_run_of(&house, &["rows", "checksum"]);
        for key in reported {
            house.sensor("orders", key, json!({"count": 5}), at("09:30"));
        }
        assert_eq!(house.found(at("11:11")).len(), missing, "{reported:?}");
    }
}

#[test]
fn a_sensor_from_before_the_first_sight_or_in_a_pause_opens_nothing() {
    let house = House::new(&[], at("08:00"));
    house.declare(STREAM, at("08:00"), at("08:00"));
    house.sensor("orders", "ready", json!({"date": "2026-02-24"}), at("07:30"));
    assert_eq!(house.found(at("08:31")), NOTHING);
    let house = House::new(&[STREAM], at("08:00"));
    house.pause("orders", at("08:10"), Some(at("08:20")));
    house.sensor("orders", "ready", json!({"date": "2026-02-24"}), at("08:15"));
    assert_eq!(house.found(at("08:31")), NOTHING);
    // Nor in one that is forgotten, because there was another after it.
    let house = House::new(&[STREAM], at("08:00"));
    let (value, at_then) = (json!({"date": "2026-02-24"}), at("08:15"));
    let unheeded = SensorRecord { value, at: at_then, received_at: at_then, unheeded: true };
    house.report("orders", "ready", unheeded);
    assert_eq!(house.found(at("08:31")), NOTHING);
}

#[test]
fn s11_a_sensor_whose_slot_was_given_up_among_others_opens_nothing() {
    let house = House::new(&[STREAM], at("08:00"));
    let span = SpanRecord {
        last: instant("2026-02-25T00:00:00Z"),
        count: 2,
        disposition: "skipped".into(),
        reason: Some("paused".into()),
        version: version_text(7),
        recorded_at: at("08:10"),
    };
    let key = Key::Span(ScheduleId::any("stream").unwrap(), at("00:00"));
    house.write("orders", vec![Change::Put(key, Expect::Absent, Record::Span(span.into()))]);
    house.sensor("orders", "ready", json!({"date": "2026-02-24"}), at("08:30"));
    assert_eq!(house.found(at("08:31")), NOTHING);
    assert!(house.state("orders", "stream", at("00:00")).is_none());
}

const WINDOW: &str = "
name: orders
schedules: [{name: stream, sensor: {key: ready, check: exists, period: day}, deadline: '10:00'}]
trigger: {type: command, command: 'true'}
";

#[test]
fn a_window_that_closed_without_its_sensor_is_skipped_and_told() {
    for is_recorded in [true, false] {
        let house = House::new(&[WINDOW], instant("2026-02-23T23:00:00Z"));
        assert_eq!(house.found(instant("2026-02-23T23:00:00Z")), NOTHING);
        if is_recorded {
            house.slot("orders", ("stream", at("00:00")), &waiting(at("00:00")));
            house.recorded("orders", "stream", at("00:00"));
        }
        assert_eq!(house.found(at("10:00")), NOTHING);
        assert_eq!(
            house.found(at("10:01")),
            ["trigger-deadlines SENSOR_DEADLINE_EXPIRED stream/2026-02-24T00:00:00Z"]
        );
        let slot = house.state("orders", "stream", at("00:00")).unwrap();
        assert_eq!(slot.state, SlotState::Closed(Disposition::Skipped(SkipReason::NoSensor)));
        assert_eq!(house.found(at("10:02")), NOTHING);
    }
}

#[test]
fn a_sensor_that_came_in_its_window_is_taken_up_instead() {
    let house = House::new(&[WINDOW], instant("2026-02-23T23:00:00Z"));
    assert_eq!(house.found(instant("2026-02-23T23:00:00Z")), NOTHING);
    house.slot("orders", ("stream", at("00:00")), &waiting(at("00:00")));
    house.recorded("orders", "stream", at("00:00"));
    house.sensor("orders", "ready", json!({"date": "2026-02-24"}), at("09:30"));
    assert_eq!(
        house.found(at("10:01")),
        ["sensor-trigger-reconciliation TRIGGER_RECOVERED stream/2026-02-24T00:00:00Z"]
    );
}

#[test]
fn a_report_that_came_in_a_pause_does_not_keep_its_window_open() {
    let house = House::new(&[WINDOW], instant("2026-02-23T20:00:00Z"));
    assert_eq!(house.found(instant("2026-02-23T20:00:00Z")), NOTHING);
    let (since, until) = (instant("2026-02-23T21:00:00Z"), instant("2026-02-23T22:00:00Z"));
    house.pause("orders", since, Some(until));
    // Of the day after, and before that began.
    let early = instant("2026-02-23T21:30:00Z");
    house.sensor("orders", "ready", json!({"date": "2026-02-24"}), early);
    house.slot("orders", ("stream", at("00:00")), &waiting(at("00:00")));
    house.recorded("orders", "stream", at("00:00"));
    assert_eq!(
        house.found(at("10:01")),
        ["trigger-deadlines SENSOR_DEADLINE_EXPIRED stream/2026-02-24T00:00:00Z"]
    );
}
