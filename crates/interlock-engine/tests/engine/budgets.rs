//! How long the work of a slot may take (`sla.maxDuration`): from which moment it counts, and for whom.

use interlock_store::{
    Store as _, block_on,
    record::{InboxRecord, SlotName},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::{
    stage::{Job, Stage, at},
    watched::watch,
};

const DAILY: &str = "
name: orders
schedules: [{name: nine, cron: '0 9 * * *'}]
sla: {maxDuration: 30m, expectedDuration: 5m}
trigger: {type: command, command: 'true'}
";

/// The minutes in which a budget was overdrawn.
fn breaches(lines: &[String]) -> Vec<String> {
    let lines = lines.iter().filter(|line| line.ends_with("relative_sla_breach open"));
    lines.map(|line| line[..5].to_owned()).collect()
}

#[test]
fn a_rerun_has_a_budget_of_its_own_and_the_first_one_is_over() {
    // Short at nine, long when it is asked for again.
    let job = |request: &interlock_ports::trigger::StartRequest| {
        if request.run_id.contains("~2~") { Job::Succeeds(4_000) } else { Job::Succeeds(5) }
    };
    let mut stage = Stage::new(at("08:00"), &[DAILY], job);
    assert!(stage.until(at("08:05")).is_none());
    let heard = watch(&stage);
    assert!(stage.until(at("09:20")).is_none());
    let slot = SlotName { schedule: "nine".into(), nominal: at("09:00") };
    let rerun = InboxRecord::Rerun { slot, reason: "again".into() };
    assert!(stage.ask("orders", &rerun).accepted);
    assert!(stage.until(at("11:00")).is_none());
    assert_eq!(breaches(&heard.lines()), ["09:50"]);
}

const STREAM: &str = "
name: orders
schedules: [{name: stream, sensor: {key: ready, check: exists, period: day}}]
validation: {trigger: ALL, rules: [{key: second, check: exists}]}
sla: {maxDuration: 30m}
trigger: {type: command, command: 'true'}
";

#[test]
fn a_budget_counts_from_when_the_sensor_came_also_while_nobody_was_up() {
    let mut stage = Stage::new(at("08:00"), &[STREAM], |_| Job::Succeeds(5));
    assert!(stage.until(at("08:05")).is_none());
    stage.crash();
    let came: Timestamp = stage.world.time();
    let sensor = InboxRecord::Sensor {
        key: "ready".to_owned(),
        value: json!({"date": "2026-02-24"}),
        at: came,
    };
    let orders = interlock_core::id::PipelineId::parse("orders").unwrap();
    block_on(stage.store.post(&orders, "left", &sensor)).unwrap();
    stage.world.pass(SignedDuration::from_mins(20));
    let heard = watch(&stage);
    assert!(stage.until(at("10:00")).is_none());
    let breach = came + SignedDuration::from_mins(30);
    assert_eq!(breaches(&heard.lines()), [breach.strftime("%H:%M").to_string()]);
}

const WATCHED: &str = "
name: backup
schedules: [{name: h, cron: '0 9 * * *'}]
sla: {maxDuration: 30m}
trigger: {type: external}
";

#[test]
fn the_budget_of_a_job_that_runs_elsewhere_begins_with_its_start() {
    let mut stage = Stage::new(at("08:00"), &[WATCHED], |_| Job::Succeeds(5));
    assert!(stage.until(at("08:05")).is_none());
    let heard = watch(&stage);
    assert!(stage.until(at("09:01")).is_none());
    assert_eq!(stage.hears("start", Some("a")), "began");
    assert!(stage.until(at("10:00")).is_none());
    assert_eq!(breaches(&heard.lines()), ["09:31"]);
}
