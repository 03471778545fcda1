//! The cases of monitoring after completion: those of the Go watchdog (20–22) and of its watcher (56–59).
//!
//! What goes by another name here: `monitoringStartedAt` is the end of the run, and the window's end is the
//! slot's `closesAt`.
//!
//! Superseded, each with its reason:
//! - Case 20's action `expired` and its run log without its run: slot and run end in one group, and there
//!   is no second place that could disagree.
//! - Case 58's rerun record that nobody executed: the next generation of the slot opens in the same group.

use serde_json::json;

use crate::stage::{Job, Stage, at};

const MONITORED: &str = "watch: {interval: 5m, monitoring: {enabled: true, duration: 20m}}\n";
const MONITORING: [&str; 3] =
    ["MONITORING_STARTED", "MONITORING_DRIFT_DETECTED", "MONITORING_COMPLETED"];

/// A pipeline that ran at ten, when its data was good.
fn completed_at_ten(more: &str) -> Stage {
    let pipeline = format!(
        "name: orders\nschedule: \"0 10 * * *\"\ntrigger: {{type: command, command: 'true'}}\n\
         validation: {{rules: [{{key: landed, check: equals, field: good, value: true}}]}}\n{more}"
    );
    let mut stage = Stage::new(at("09:00"), &[&pipeline], |_| Job::Succeeds(5));
    stage.until(at("09:30"));
    stage.sensor("orders", "landed", json!({"good": true}));
    stage.until(at("10:01"));
    assert_eq!(stage.started(), ["orders~cron~20260224T100000Z~1~1"]);
    stage
}

/// Everything that is stored about slots, runs and events.
fn stored(stage: &Stage) -> String {
    format!("{:?} {:?} {:?}", stage.slot(), stage.run_rows(), stage.events())
}

#[test]
fn case_56_monitoring_begins_when_the_job_has_ended() {
    let stage = completed_at_ten(MONITORED);
    let slot = stage.slot();
    let run = &stage.run_rows()[0].record;
    assert_eq!((slot.state.as_str(), run.status.as_str()), ("monitoring", "COMPLETED_MONITORING"));
    let since = at("10:00") + jiff::SignedDuration::from_secs(5);
    assert_eq!(run.ended_at, Some(since));
    assert_eq!(slot.closes_at, since + jiff::SignedDuration::from_mins(20));
    assert_eq!(stage.told(&MONITORING).len(), 1, "{:?}", stage.told(&MONITORING));
    assert!(stage.told(&MONITORING)[0].starts_with("MONITORING_STARTED"));
}

#[test]
fn cases_20_and_57_monitoring_ends_with_its_window_also_after_a_crash() {
    let mut stage = completed_at_ten(MONITORED);
    stage.until(at("10:10"));
    stage.crash();
    stage.until(at("10:20"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z open(monitoring)"]);
    stage.until(at("10:21"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z completed"]);
    assert_eq!(stage.runs(), ["orders~cron~20260224T100000Z~1~1 COMPLETED scheduler"]);
    let ended = stage.run_rows()[0].record.ended_at;
    assert_eq!(ended, Some(at("10:00") + jiff::SignedDuration::from_secs(5)), "the job's own end");
    stage.until(at("23:00"));
    let told = stage.told(&["MONITORING_COMPLETED"]);
    assert_eq!(told.len(), 1, "once: {told:?}");
}

#[test]
fn case_21_nothing_is_written_within_the_window_while_the_data_stays_good() {
    let mut stage = completed_at_ten(MONITORED);
    let before = stored(&stage);
    stage.until(at("10:19"));
    assert_eq!(stored(&stage), before);
}

#[test]
fn case_22_nothing_is_written_after_the_end() {
    let mut stage = completed_at_ten(MONITORED);
    stage.until(at("10:21"));
    let before = stored(&stage);
    stage.until(at("23:00"));
    assert_eq!(stored(&stage), before);
    // What is not good any more comes too late to be drift.
    stage.sensor("orders", "landed", json!({"good": false}));
    stage.until(at("23:30"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z completed"]);
    assert_eq!(stage.started().len(), 1);
}

#[test]
fn case_58_drift_completes_the_run_and_opens_the_next_generation() {
    let mut stage = completed_at_ten(MONITORED);
    stage.until(at("10:10"));
    stage.sensor("orders", "landed", json!({"good": false}));
    let slot = stage.slot();
    assert_eq!((slot.state.as_str(), slot.generation), ("waiting", 2));
    assert_eq!(stage.runs(), ["orders~cron~20260224T100000Z~1~1 COMPLETED scheduler"]);
    let drift: Vec<_> = stage
        .events()
        .into_iter()
        .filter(|row| row.record.kind == "MONITORING_DRIFT_DETECTED")
        .collect();
    assert_eq!(drift.len(), 1);
    let told = serde_json::to_string(drift[0].record.as_ref()).unwrap();
    assert_eq!(
        stage.told(&["RERUN_ACCEPTED"]),
        ["RERUN_ACCEPTED monitoring_drift_detected, generation 2"]
    );
    assert!(told.contains("orders~cron~20260224T100000Z~1~1"), "which run: {told}");
    // The rerun waits until the data is good, and is told what it repeats.
    stage.until(at("10:15"));
    stage.sensor("orders", "landed", json!({"good": true}));
    stage.until(at("10:16"));
    let rerun = stage.run_rows().pop().unwrap();
    assert_eq!((rerun.key.generation, rerun.key.attempt), (2, 1));
    let original = json!("orders~cron~20260224T100000Z~1~1");
    assert_eq!(rerun.record.metadata.get("originalRunId"), Some(&original));
    assert_eq!(stage.slot().state, "monitoring", "and it is monitored in its turn");
}

#[test]
fn case_58_drift_has_a_budget_of_its_own() {
    let mut stage = completed_at_ten(MONITORED);
    for (time, good) in [("10:05", false), ("10:10", true), ("10:15", false)] {
        stage.until(at(time));
        stage.sensor("orders", "landed", json!({"good": good}));
    }
    stage.until(at("10:20"));
    assert_eq!(stage.told(&["RERUN_REJECTED"]).len(), 1, "one rerun is the default");
    stage.until(at("11:00"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z completed"]);
    assert_eq!(stage.started().len(), 2);
}

#[test]
fn case_58_what_cannot_be_told_is_no_drift() {
    let mut stage =
        completed_at_ten(&format!("{MONITORED}traits: {{fresh: {{evaluator: a.sh}}}}\n"));
    stage
        .cast
        .answer("fresh", crate::stage::Answer::Is(interlock_core::readiness::TraitStatus::Error));
    stage.until(at("10:19"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z open(monitoring)"]);
    stage.until(at("10:21"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z completed"]);
    assert_eq!(stage.started().len(), 1);
}

#[test]
fn case_59_without_monitoring_the_end_of_the_job_is_the_end() {
    for more in ["", "watch: {monitoring: {enabled: false, duration: 20m}}\n"] {
        let mut stage = completed_at_ten(more);
        assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z completed"]);
        stage.sensor("orders", "landed", json!({"good": false}));
        stage.until(at("12:00"));
        assert_eq!(stage.told(&MONITORING), Vec::<String>::new());
        assert_eq!(stage.started().len(), 1);
    }
}
