//! What a report can still change (ADR 0008), and who hears of it.

use interlock_core::id::PipelineId;
use interlock_engine::{Pace, Parts};
use interlock_store::{Forgetting, Store as _, block_on, record::InboxRecord};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    stage::{Job, Stage, at},
    traps::{engine, live},
};

const COMMAND: &str = "trigger: {type: command, command: 'true'}\n";
const SUCCEEDS: Job = Job::Succeeds(5);

/// A pipeline that runs once a day, when its orders are complete.
fn daily(more: &str) -> String {
    format!(
        "name: orders\nschedule: {{sensor: {{key: landed, check: equals, field: complete, value: true, period: day}}{more}}}\n\
         {COMMAND}"
    )
}

/// That pipeline, with its engine at work.
fn stream(more: &str) -> Stage {
    let mut stage = Stage::new(at("09:00"), &[&daily(more)], |_| SUCCEEDS);
    stage.until(at("09:01"));
    stage
}

fn complete(date: &str, rows: u32) -> Value {
    json!({ "complete": true, "date": date, "rows": rows })
}

/// Reports a sensor with a time of its own.
fn report(stage: &mut Stage, key: &str, value: &Value, at: Timestamp) -> Value {
    let record = InboxRecord::Sensor { key: key.to_owned(), value: value.clone(), at };
    let answer = stage.ask("orders", &record);
    assert!(answer.accepted, "{answer:?}");
    answer.result
}

#[test]
fn a_sensor_opens_the_slot_of_its_own_period() {
    let mut stage = stream("");
    stage.sensor("orders", "landed", json!({ "complete": false, "date": "2026-02-24" }));
    assert_eq!(stage.slots(), Vec::<String>::new());
    // Of yesterday, whatever time it is now.
    stage.sensor("orders", "landed", complete("2026-02-23", 1));
    stage.until(at("09:10"));
    assert_eq!(stage.slots(), ["stream/2026-02-23T00:00:00Z completed"]);
    assert_eq!(stage.runs(), ["orders~stream~20260223T000000Z~1~1 COMPLETED sensor"]);
    stage.until(at("23:00"));
    assert_eq!(stage.started().len(), 1, "a sensor without a deadline owes nothing by itself");
}

#[test]
fn s11_reports_that_come_twice_or_out_of_order_change_nothing() {
    let mut stage = stream("");
    let (first, second) = (at("08:00"), at("08:30"));
    report(&mut stage, "landed", &complete("2026-02-24", 1), second);
    assert_eq!(stage.started().len(), 1);
    let again = report(&mut stage, "landed", &complete("2026-02-24", 1), second);
    assert_eq!(again["repeated"], json!(true));
    // One that was overtaken on its way is not late data, and does not replace the later one.
    report(&mut stage, "landed", &complete("2026-02-24", 7), first);
    assert_eq!(
        stage.told(&["SENSOR_OUTDATED"]),
        ["SENSOR_OUTDATED landed: ignored, a newer report is already here"]
    );
    // But if it is about another period, that period is not lost.
    report(&mut stage, "landed", &complete("2026-02-23", 7), first);
    stage.until(at("12:00"));
    assert_eq!(
        stage.started(),
        ["orders~stream~20260224T000000Z~1~1", "orders~stream~20260223T000000Z~1~1"]
    );
    assert_eq!(stage.told(&["LATE_DATA_ARRIVAL"]), Vec::<String>::new());
}

#[test]
fn d1_18_late_data_runs_the_slot_again_within_its_own_budget() {
    let mut stage = stream("");
    for rows in [10, 11, 12] {
        stage.sensor("orders", "landed", complete("2026-02-24", rows));
        stage.until(stage.world.time() + SignedDuration::from_mins(5));
    }
    assert_eq!(stage.told(&["LATE_DATA_ARRIVAL"]).len(), 2);
    assert_eq!(
        stage.runs(),
        [
            "orders~stream~20260224T000000Z~1~1 COMPLETED sensor",
            "orders~stream~20260224T000000Z~2~1 COMPLETED reconcile"
        ]
    );
    let told = stage.told(&["RERUN_REJECTED"]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("maxDriftReruns"), "{told:?}");
    let rerun = stage.run_rows().pop().unwrap().record;
    assert_eq!(rerun.metadata["reason"], json!("late-data"));
    assert_eq!(rerun.metadata["originalRunId"], json!("orders~stream~20260224T000000Z~1~1"));
    // A person has a budget of their own.
    let by_hand = |reason: &str| -> InboxRecord {
        serde_json::from_value(json!({
            "request": "rerun",
            "slot": {"schedule": "stream", "nominal": "2026-02-24T00:00:00Z"},
            "reason": reason,
        }))
        .unwrap()
    };
    assert!(stage.ask("orders", &by_hand("typo")).accepted);
    let refused = stage.ask("orders", &by_hand("typo"));
    assert!(!refused.accepted && refused.result["reason"].as_str().unwrap().contains("typo"));
    assert!(stage.ask("orders", &by_hand("another typo")).accepted);
    stage.until(at("23:00"));
    assert_eq!(stage.started().len(), 4);
}

#[test]
fn a_deadline_opens_the_slot_before_its_sensor_and_gives_it_up() {
    let mut stage = stream(", deadline: \"10:00\"");
    stage.until("2026-02-25T09:00:00Z".parse().unwrap());
    assert_eq!(stage.slots(), ["stream/2026-02-25T00:00:00Z open(waiting)"]);
    stage.sensor("orders", "landed", complete("2026-02-25", 1));
    assert_eq!(stage.slots(), ["stream/2026-02-25T00:00:00Z completed"]);
    stage.until("2026-02-26T09:59:00Z".parse().unwrap());
    // A report about another day is not this slot's.
    stage.sensor("orders", "landed", complete("2026-02-27", 1));
    stage.until("2026-02-26T10:02:00Z".parse().unwrap());
    assert_eq!(stage.slots()[1], "stream/2026-02-26T00:00:00Z skipped(no_sensor)");
}

#[test]
fn a_slot_with_a_deadline_that_began_while_nobody_was_up_still_waits_for_its_sensor() {
    let mut stage = stream(", deadline: \"10:00\"");
    stage.until("2026-02-24T23:00:00Z".parse().unwrap());
    stage.crash();
    stage.world.pass(SignedDuration::from_hours(4));
    stage.until("2026-02-25T05:00:00Z".parse().unwrap());
    assert_eq!(stage.slots(), ["stream/2026-02-25T00:00:00Z open(waiting)"]);
    stage.sensor("orders", "landed", complete("2026-02-25", 1));
    stage.until("2026-02-25T06:00:00Z".parse().unwrap());
    assert_eq!(stage.slots(), ["stream/2026-02-25T00:00:00Z completed"]);
}

#[test]
fn a_deadline_that_passed_while_nobody_was_up_is_told() {
    let mut stage = stream(", deadline: \"10:00\"");
    stage.until("2026-02-24T23:00:00Z".parse().unwrap());
    stage.crash();
    stage.world.pass(SignedDuration::from_hours(12));
    stage.until("2026-02-25T12:00:00Z".parse().unwrap());
    assert_eq!(stage.slots(), ["stream/2026-02-25T00:00:00Z skipped(no_sensor)"]);
    let told = stage.told(&["SENSOR_DEADLINE_EXPIRED"]);
    assert_eq!(told.len(), 1, "{told:?}");
}

/// Posts the report of a day, behind more than is applied in one go.
fn bury(stage: &Stage, date: &str) {
    let sensor = |key: &str, number| InboxRecord::Sensor {
        key: key.to_owned(),
        value: complete(date, number),
        at: format!("{date}T01:00:00Z").parse().unwrap(),
    };
    let before = (0..250).map(|number| sensor("something-else", number));
    post(stage, before.chain([sensor("landed", 250)]));
}

/// Posts to the inbox, once in a test; nobody applies it yet.
fn post(stage: &Stage, records: impl IntoIterator<Item = InboxRecord>) {
    let name = PipelineId::parse("orders").unwrap();
    for (number, record) in records.into_iter().enumerate() {
        block_on(stage.store.post(&name, &format!("posted {number:04}"), &record)).unwrap();
    }
}

#[test]
fn a_slot_is_not_given_up_while_its_report_lies_far_back_in_the_inbox() {
    let mut stage = stream(", deadline: \"10:00\"");
    stage.until("2026-02-24T23:00:00Z".parse().unwrap());
    stage.crash();
    bury(&stage, "2026-02-25");
    stage.world.pass(SignedDuration::from_hours(12));
    stage.until("2026-02-25T12:00:00Z".parse().unwrap());
    assert_eq!(stage.slots(), ["stream/2026-02-25T00:00:00Z completed"]);
}

#[test]
fn a_slot_that_was_open_before_an_outage_is_put_off_until_the_whole_inbox_was_applied() {
    let mut stage = stream(", deadline: \"10:00\"");
    stage.until("2026-02-25T00:30:00Z".parse().unwrap());
    assert_eq!(stage.slots(), ["stream/2026-02-25T00:00:00Z open(waiting)"]);
    stage.crash();
    bury(&stage, "2026-02-25");
    stage.world.pass(SignedDuration::from_hours(11));
    stage.until("2026-02-25T12:00:00Z".parse().unwrap());
    assert_eq!(stage.slots(), ["stream/2026-02-25T00:00:00Z completed"]);
    // Put off, not let off: a day that nobody reports is given up in its time.
    stage.until("2026-02-26T10:02:00Z".parse().unwrap());
    assert_eq!(stage.slots()[1], "stream/2026-02-26T00:00:00Z skipped(no_sensor)");
}

#[test]
fn an_owner_that_rarely_looks_into_the_inbox_looks_before_it_gives_a_slot_up() {
    let file = daily(", deadline: \"10:00\"");
    let stage = Stage::new(at("09:30"), &[&file], |_| SUCCEEDS);
    // At half past every hour: not in the minute that it waits after a deadline.
    let parts = stage.parts("test");
    let pace = Pace { inbox: SignedDuration::from_hours(1), ..parts.pace };
    let mut life = engine(Parts { pace, ..parts }, &[&file]);
    live(&stage, &mut life, "2026-02-25T09:59:45Z".parse().unwrap());
    let (value, at) = (complete("2026-02-25", 1), stage.world.time());
    post(&stage, [InboxRecord::Sensor { key: "landed".to_owned(), value, at }]);
    live(&stage, &mut life, "2026-02-25T09:59:59Z".parse().unwrap());
    assert_eq!(stage.slots(), ["stream/2026-02-25T00:00:00Z open(waiting)"], "nobody looked yet");
    live(&stage, &mut life, "2026-02-25T10:02:00Z".parse().unwrap());
    assert_eq!(stage.slots(), ["stream/2026-02-25T00:00:00Z completed"]);
    // Where it finds nothing, the slot is given up in its time all the same.
    live(&stage, &mut life, "2026-02-26T10:02:00Z".parse().unwrap());
    assert_eq!(stage.slots()[1], "stream/2026-02-26T00:00:00Z skipped(no_sensor)");
}

#[test]
fn a_pause_that_was_over_before_it_was_applied_gives_nothing_up_whose_report_lies_behind_it() {
    let mut stage = stream(", deadline: \"10:00\"");
    stage.until("2026-02-24T23:00:00Z".parse().unwrap());
    stage.crash();
    let at = "2026-02-25T01:00:00Z".parse().unwrap();
    let value = complete("2026-02-25", 1);
    let records = [
        InboxRecord::Pause { reason: "moving".into(), until: None },
        InboxRecord::Resume { catchup: None },
        InboxRecord::Sensor { key: "landed".into(), value, at },
    ];
    post(&stage, records);
    stage.world.pass(SignedDuration::from_hours(12));
    stage.until("2026-02-25T12:00:00Z".parse().unwrap());
    assert_eq!(stage.slots(), ["stream/2026-02-25T00:00:00Z completed"]);
}

#[test]
fn s11_a_report_about_a_slot_that_was_given_up_among_others_opens_nothing() {
    let mut stage = stream(", deadline: \"10:00\"");
    let pause = InboxRecord::Pause { reason: "moving".into(), until: None };
    assert!(stage.ask("orders", &pause).accepted);
    stage.until("2026-02-27T12:00:00Z".parse().unwrap());
    assert!(stage.ask("orders", &InboxRecord::Resume { catchup: None }).accepted);
    stage.until("2026-02-27T12:01:00Z".parse().unwrap());
    let before = stage.slots();
    stage.sensor("orders", "landed", complete("2026-02-26", 1));
    stage.until("2026-02-27T13:00:00Z".parse().unwrap());
    assert_eq!(stage.slots(), before, "they are skipped(paused) in one span");
    assert_eq!(stage.started().len(), 0);
}

#[test]
fn a_paused_pipeline_keeps_reports_and_opens_nothing() {
    let mut stage = stream("");
    let pause = InboxRecord::Pause { reason: "moving".into(), until: None };
    assert!(stage.ask("orders", &pause).accepted);
    stage.sensor("orders", "landed", complete("2026-02-24", 1));
    assert_eq!(stage.slots(), Vec::<String>::new());
    assert_eq!(stage.told(&["SENSOR_REPORTED"]), ["SENSOR_REPORTED landed"]);
}

/// A job at ten whose row count is checked afterwards.
fn checked() -> Stage {
    let pipeline = format!(
        "name: orders\nschedule: \"0 10 * * *\"\n{COMMAND}\
         postRun: {{rules: [{{key: rows, check: exists}}], driftField: count, driftThreshold: 5}}\n"
    );
    let mut stage = Stage::new(at("09:00"), &[&pipeline], |_| SUCCEEDS);
    stage.until(at("09:30"));
    stage.sensor("orders", "rows", json!({ "count": 0 }));
    stage.until(at("10:01"));
    stage
}

#[test]
fn d1_23_drift_after_the_job_runs_it_again_and_zero_is_a_baseline() {
    let mut stage = checked();
    let run = stage.run_rows().pop().unwrap().record;
    assert_eq!(run.metadata["baseline"], json!({ "rows": { "count": 0 } }));
    stage.sensor("orders", "rows", json!({ "count": 5 }));
    assert_eq!(stage.told(&["POST_RUN_PASSED", "POST_RUN_DRIFT"]), ["POST_RUN_PASSED rows"]);
    stage.sensor("orders", "rows", json!({ "count": 6 }));
    assert_eq!(stage.told(&["POST_RUN_DRIFT"]), ["POST_RUN_DRIFT rows: 6 was 0"]);
    stage.until(at("10:10"));
    assert_eq!(stage.runs()[1], "orders~cron~20260224T100000Z~2~1 COMPLETED reconcile");
    // The next generation has its own baseline.
    stage.sensor("orders", "rows", json!({ "count": 7 }));
    stage.until(at("10:20"));
    assert_eq!(stage.started().len(), 2);
}

#[test]
fn s18_a_job_out_of_sight_is_looked_for_before_anything_is_decided() {
    let pipeline = format!("name: orders\nschedule: \"0 10 * * *\"\n{COMMAND}");
    let mut found = Stage::new(at("09:00"), &[&pipeline], |_| Job::OutOfSight(45));
    found.until(at("10:00") + SignedDuration::from_secs(30));
    assert_eq!(found.slots(), ["cron/2026-02-24T10:00:00Z open(running)"]);
    assert!(found.slot().marks.uncertain);
    found.until(at("10:02"));
    assert_eq!(found.slots(), ["cron/2026-02-24T10:00:00Z completed"]);
    assert!(found.slot().marks.uncertain, "the mark stays");
    assert_eq!(found.told(&["RUN_UNCERTAIN"]).len(), 1);

    // A crash in the middle does not begin the minute anew.
    let mut lost = Stage::new(at("09:00"), &[&pipeline], |_| Job::OutOfSight(86_400));
    lost.until(at("10:00") + SignedDuration::from_secs(30));
    lost.crash();
    lost.until(at("10:03") + SignedDuration::from_secs(45));
    assert_eq!(lost.slots(), ["cron/2026-02-24T10:00:00Z failed"]);
    assert_eq!(lost.started().len(), 1);
}

#[test]
fn an_upstream_that_ends_wakes_who_waits_for_it() {
    let upstream = format!("name: raw\nschedule: \"0 10 * * *\"\n{COMMAND}");
    let downstream = format!("name: report\nschedule: \"0 10 * * *\"\ndependsOn: [raw]\n{COMMAND}");
    let mut stage = Stage::new(at("09:00"), &[&upstream, &downstream], |_| Job::Succeeds(20));
    stage.until(at("10:00") + SignedDuration::from_secs(21));
    assert_eq!(
        stage.started(),
        ["raw~cron~20260224T100000Z~1~1", "report~cron~20260224T100000Z~1~1"],
        "at once, not at the next evaluation"
    );
}

#[test]
fn s6_runs_are_limited_over_all_pipelines_and_the_oldest_slot_goes_first() {
    let pipelines: Vec<_> = ["d", "c", "b", "a"]
        .iter()
        .zip(0..)
        .map(|(name, minute)| {
            format!("name: {name}-job\nschedule: \"{minute} 10 * * *\"\n{COMMAND}")
        })
        .collect();
    let files: Vec<_> = pipelines.iter().map(String::as_str).collect();
    let mut stage = Stage::new(at("09:00"), &files, |_| Job::Succeeds(600));
    stage.limits.runs_max = 2;
    stage.until(at("10:09"));
    assert_eq!(
        stage.started(),
        ["d-job~cron~20260224T100000Z~1~1", "c-job~cron~20260224T100100Z~1~1"]
    );
    stage.until(at("10:25"));
    let started = stage.started();
    assert_eq!(
        started[2..],
        ["b-job~cron~20260224T100200Z~1~1", "a-job~cron~20260224T100300Z~1~1"]
    );
}

#[test]
fn work_done_by_hand_since_the_last_slot_is_not_done_again() {
    let pipeline =
        format!("name: orders\nschedule: \"0 10 * * *\"\nskipIfSuccessful: true\n{COMMAND}");
    let mut stage = Stage::new(at("09:00"), &[&pipeline], |_| SUCCEEDS);
    stage.until(at("09:30"));
    let run = InboxRecord::Run { slot: None, force: false, params: [].into(), webhook: false };
    assert!(stage.ask("orders", &run).accepted);
    stage.until(at("10:01"));
    assert_eq!(stage.slots()[1], "cron/2026-02-24T10:00:00Z skipped(superseded)");
    stage.until("2026-02-25T10:01:00Z".parse().unwrap());
    assert_eq!(stage.slots()[2], "cron/2026-02-25T10:00:00Z completed");
}

/// Slots before an instant may be gone from now on.
fn keeps_since(stage: &Stage, floor: Timestamp) {
    let floor = Some(floor);
    block_on(stage.store.forget(Forgetting { floor, ..Forgetting::default() })).unwrap();
}

/// The keys under which the store has reports.
fn reported(stage: &Stage) -> Vec<String> {
    let name = PipelineId::parse("orders").unwrap();
    block_on(stage.store.sensors(&name)).unwrap().into_keys().collect()
}

#[test]
fn s17_reports_about_periods_that_are_not_kept_go_with_later_ones() {
    let mut stage = stream("");
    for day in 1..=12 {
        let (key, value) = (format!("landed#2026-02-{day:02}"), complete("2026-02-24", day));
        stage.sensor("orders", &key, value);
    }
    // How things are, and a name that looks like a period to nobody: they stay.
    for key in ["landed", "landed#eu"] {
        stage.sensor("orders", key, complete("2026-02-24", 20));
    }
    // It came late, and may be asked for as long as what came with it.
    stage.until("2026-02-27T09:00:00Z".parse().unwrap());
    stage.sensor("orders", "landed#2026-02-20", complete("2026-02-27", 1));
    keeps_since(&stage, "2026-02-26T00:00:00Z".parse().unwrap());
    stage.sensor("orders", "landed#2026-02-28", complete("2026-02-28", 2));
    assert_eq!(reported(&stage).len(), 16, "they were looked through a moment ago");
    stage.until(stage.world.time() + SignedDuration::from_hours(7));
    stage.sensor("orders", "landed#2026-03-01", complete("2026-03-01", 3));
    assert_eq!(reported(&stage).len(), 9, "some at once");
    stage.sensor("orders", "landed#2026-03-02", complete("2026-03-02", 4));
    let left = ["", "#2026-02-20", "#2026-02-28", "#2026-03-01", "#2026-03-02", "#eu"];
    assert_eq!(reported(&stage), left.map(|period| format!("landed{period}")));
}

#[test]
fn reports_stay_while_a_slot_of_their_time_is_open() {
    let mut stage = Stage::new(at("09:00"), &[&daily("")], |_| Job::Succeeds(10 * 3_600));
    stage.until(at("09:01"));
    stage.sensor("orders", "landed#2026-02-21", json!({ "complete": false }));
    stage.sensor("orders", "landed", complete("2026-02-24", 1));
    stage.until(at("16:00"));
    keeps_since(&stage, at("12:00"));
    stage.sensor("orders", "else", json!({}));
    assert_eq!(stage.slots(), ["stream/2026-02-24T00:00:00Z open(running)"]);
    assert_eq!(reported(&stage), ["else", "landed", "landed#2026-02-21"]);
    stage.until(at("23:00"));
    stage.sensor("orders", "else", json!({ "again": true }));
    assert_eq!(stage.slots(), ["stream/2026-02-24T00:00:00Z completed"]);
    assert_eq!(reported(&stage), ["else", "landed"]);
}

#[test]
fn a_report_that_came_in_a_pause_is_marked_for_the_watchdog() {
    let mut stage = stream("");
    let unheeded = |stage: &Stage| {
        let name = PipelineId::parse("orders").unwrap();
        block_on(stage.store.sensors(&name)).unwrap()["landed"].record.unheeded
    };
    let pause = InboxRecord::Pause { reason: "moving".to_owned(), until: None };
    assert!(stage.ask("orders", &pause).accepted);
    stage.sensor("orders", "landed", complete("2026-02-24", 1));
    assert!(unheeded(&stage), "the pause may be forgotten before the report is");
    assert!(stage.ask("orders", &InboxRecord::Resume { catchup: None }).accepted);
    stage.until(at("09:30"));
    assert_eq!(stage.slots(), Vec::<String>::new());
    // The next one is heeded.
    stage.sensor("orders", "landed", complete("2026-02-24", 2));
    assert!(!unheeded(&stage));
    stage.until(at("09:40"));
    assert_eq!(stage.slots(), ["stream/2026-02-24T00:00:00Z completed"]);
}
