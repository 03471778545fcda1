//! The JSON of alerts and events: receivers rely on it, so it is pinned (seeds 000 and 002).

use std::{env, fs, path::Path};

use interlock_core::{
    incident::Alert,
    slot::{Disposition, OpenState, SlotState},
};
use interlock_store::{DueKind, Obligation, Shard, Store as _, Subject, block_on};
use interlock_watchdog::{CheckName, Finding, Snapshot, once::once, wire::event_json};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::house::{EngineTelling, House, instant, waiting};

/// Compares with the golden file; `UPDATE_GOLDEN=1` writes it.
pub(crate) fn check(name: &str, value: &Value) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.json"));
    let text = format!("{}\n", serde_json::to_string_pretty(value).unwrap());
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "{name}");
}

fn events(house: &House, kind: &str) -> Vec<Value> {
    let page = block_on(house.store.events(None, 0, 1_000)).unwrap();
    let found = page.items.into_iter().filter(|row| row.record.kind == kind);
    found.map(|row| event_json(&row.pipeline, &row.record)).collect()
}

/// What a channel for events is sent of the alert of a type.
fn told_as_event(house: &House, alert_type: &str) -> Value {
    let found = house.alerts().into_iter().find(|alert| alert["alertType"] == alert_type);
    Alert::from_json(&found.unwrap()).to_event_json()
}

pub(crate) fn silver() -> House {
    let file = "
name: earthquake-silver
schedules: [{name: daily, after: '09:00', deadline: '09:20'}]
trigger: {type: command, command: 'true'}
";
    House::new(&[file], instant("2026-02-25T08:00:00Z"))
}

/// What the seed prints, key by key; `details` may say more.
fn check_against_seed(alert: &Value, seed: &Value) {
    for (key, value) in seed.as_object().unwrap() {
        if let Value::Object(details) = value {
            for (name, detail) in details {
                assert_eq!(&alert[key][name], detail, "{key}.{name}");
            }
        } else {
            assert_eq!(&alert[key], value, "{key}");
        }
    }
    let keys: Vec<_> = alert.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["alertType", "details", "level", "message", "pipelineId", "timestamp"]);
}

#[test]
fn seed_000_a_missed_schedule() {
    let house = silver();
    house.pass(instant("2026-02-25T08:00:00Z"));
    house.pass(instant("2026-02-25T09:25:00Z"));
    let alert = house.alerts().remove(0);
    check_against_seed(
        &alert,
        &json!({
            "level": "error",
            "alertType": "schedule_missed",
            "pipelineId": "earthquake-silver",
            "message": "Pipeline earthquake-silver schedule daily missed: no evaluation started by deadline 09:20 on 2026-02-25",
            "details": {
                "scheduleId": "daily",
                "date": "2026-02-25",
                "deadline": "09:20",
                "type": "schedule_missed"
            },
            "timestamp": "2026-02-25T09:25:00Z"
        }),
    );
    check("alert-schedule-missed", &alert);
}

#[test]
fn seed_000_a_stuck_run() {
    let house = silver();
    let nominal = instant("2026-02-25T09:00:00Z");
    let began = instant("2026-02-25T12:00:00Z");
    let half = SignedDuration::from_mins(30);
    house.run("earthquake-silver", ("daily", nominal), ("RUNNING", began), half);
    house.pass(instant("2026-02-25T12:45:00Z"));
    let alert = house.alerts().into_iter().find(|it| it["alertType"] == "stuck_run").unwrap();
    check_against_seed(
        &alert,
        &json!({
            "level": "error",
            "alertType": "stuck_run",
            "pipelineId": "earthquake-silver",
            "message": "Pipeline earthquake-silver schedule daily run stuck in RUNNING for 45m0s on 2026-02-25",
            "details": {
                "scheduleId": "daily",
                "date": "2026-02-25",
                "status": "RUNNING",
                "duration": "45m0s",
                "runId": "earthquake-silver~daily~20260225T090000Z~1~1"
            },
            "timestamp": "2026-02-25T12:45:00Z"
        }),
    );
    check("alert-stuck-run", &alert);
}

#[test]
fn seed_002_events() {
    let file =
        "name: gold-revenue\nschedule: '0 9 * * *'\ntrigger: {type: command, command: 'true'}\n";
    let house = House::new(&[file], instant("2026-03-01T08:00:00Z"));
    house.pass(instant("2026-03-01T08:00:00Z"));
    house.pass(instant("2026-03-01T09:10:00Z"));
    let missed = events(&house, "SCHEDULE_MISSED").remove(0);
    assert_eq!(
        missed,
        json!({
            "source": "interlock",
            "detail-type": "SCHEDULE_MISSED",
            "detail": {
                "pipelineId": "gold-revenue",
                "scheduleId": "cron",
                "date": "2026-03-01",
                "message": "missed schedule for gold-revenue on 2026-03-01",
                "timestamp": "2026-03-01T09:10:00Z"
            }
        })
    );
    check("event-schedule-missed", &missed);
    check("event-schedule-missed", &told_as_event(&house, "schedule_missed"));
    let (timeout, missing) = silver_orders();
    check("event-sfn-timeout", &timeout);
    check("event-post-run-sensor-missing", &missing);
    let message = "post-run sensor not received within 2h of completion";
    assert_eq!(missing["detail"]["message"], message);
    assert_eq!(
        timeout["detail"]["message"],
        "step function timed out for silver-orders/stream/2026-03-01"
    );
}

/// A run that timed out, and a completion that nobody reported on.
fn silver_orders() -> (Value, Value) {
    let file = "
name: silver-orders
schedules: [{name: stream, sensor: {key: ready, check: exists, period: day}}]
trigger: {type: command, command: 'true'}
";
    let midnight = instant("2026-03-01T00:00:00Z");
    let house = House::new(&[file], midnight);
    let mut slot = waiting(midnight);
    slot.state = SlotState::Open(OpenState::Running);
    slot.closes_at = instant("2026-03-01T12:29:00Z");
    house.slot("silver-orders", ("stream", midnight), &slot);
    house.pass(instant("2026-03-01T12:30:00Z"));
    let timeout = events(&house, "SFN_TIMEOUT").remove(0);
    check("event-sfn-timeout", &told_as_event(&house, "job_timeout"));
    let house = House::new(&[file], midnight);
    let slot = slot.close(Disposition::Completed, instant("2026-03-01T12:29:00Z")).unwrap();
    house.slot("silver-orders", ("stream", midnight), &slot);
    let stream = interlock_core::id::ScheduleId::any("stream").unwrap();
    let subject = Subject::Slot(stream, midnight);
    let due = Obligation::new(instant("2026-03-01T14:29:00Z"), DueKind::PostRun, subject)
        .detail("completedAt", "2026-03-01T12:29:00Z")
        .detail("sensorTimeout", "2h")
        .detail("ruleKeys", json!(["output-row-count"]));
    house.due("silver-orders", due);
    house.pass(instant("2026-03-01T14:30:00Z"));
    let told = told_as_event(&house, "post_run_sensor_missing");
    check("event-post-run-sensor-missing", &told);
    (timeout, events(&house, "POST_RUN_SENSOR_MISSING").remove(0))
}

fn panicking(_: &Snapshot, _: Timestamp) -> Vec<Finding> {
    panic!("a fault in the check")
}

fn overflowing(snapshot: &Snapshot, _: Timestamp) -> Vec<Finding> {
    panic!("{} is too much", snapshot.pipeline)
}

#[test]
fn a_check_that_fails_is_named_and_the_others_run() {
    let file =
        "name: gold-revenue\nschedule: '0 9 * * *'\ntrigger: {type: command, command: 'true'}\n";
    let house = House::new(&[file], instant("2026-03-01T08:00:00Z"));
    house.pass(instant("2026-03-01T08:00:00Z"));
    let mut options = house.options(instant("2026-03-01T12:30:00Z"));
    options = options.telling(std::sync::Arc::new(EngineTelling));
    for (name, check) in &mut options.checks {
        if *name == CheckName::StaleTriggers {
            *check = panicking;
        } else if *name == CheckName::SlaScheduling {
            *check = overflowing;
        }
    }
    let report = block_on(once(&options, Shard(0))).unwrap().unwrap();
    assert_eq!(report.findings.len(), 1, "the miss was found all the same");
    assert_eq!(
        report.failed.iter().map(|(name, why)| format!("{name}: {why}")).collect::<Vec<_>>(),
        [
            "stale-triggers: gold-revenue: a fault in the check",
            "sla-scheduling: gold-revenue: gold-revenue is too much"
        ]
    );
    let degraded = events(&house, "WATCHDOG_DEGRADED").remove(0);
    assert_eq!(
        degraded,
        json!({
            "source": "interlock",
            "detail-type": "WATCHDOG_DEGRADED",
            "detail": {
                "message": "watchdog checks failed: stale-triggers, sla-scheduling",
                "timestamp": "2026-03-01T12:30:00Z"
            }
        })
    );
    check("event-watchdog-degraded", &degraded);
    check("event-watchdog-degraded", &told_as_event(&house, "watchdog_degraded"));
    assert!(house.incidents().contains_key("watchdog-degraded:_system"));
    // What could not be judged is not called judged.
    assert_eq!(house.found(instant("2026-03-01T12:31:00Z")), Vec::<String>::new());
}
