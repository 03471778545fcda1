//! `interlock evaluate` and `explain` over a real ledger: sensors, upstreams and evaluators are asked for
//! real, and what was decided is explained by what was stored with it.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::{Value, json};

use super::{Ran, interlock, project};

const ORDERS: &str = "\
name: orders
schedules:
  - {id: yearly, cron: '0 0 1 1 *'}
  - {id: weekdays, at: '09:00', days: [mon], from: '2026-01-01T00:00:00Z'}
exclusions: {dates: ['2026-02-23']}
dependsOn: stock
validation: {trigger: ALL, rules: [{key: rows, check: gte, field: count, value: 10}]}
trigger: {type: command, command: 'true'}
";

const STOCK: &str = "\
name: stock
schedules: [{id: yearly, cron: '0 0 1 1 *'}]
trigger: {type: command, command: 'true'}
";

const TRAITS: &str = "\
name: traits
archetype: gate
traits: {fresh: {evaluator: fresh.sh}}
schedules: [{id: yearly, cron: '0 0 1 1 *'}]
trigger: {type: command, command: 'true'}
";

const GATE: &str = "\
name: gate
requiredTraits:
  - {type: fresh}
readinessRule: {type: all-required-pass}
";

const SLOT: &str = "yearly/2026-01-01T00:00:00Z";

fn world() -> tempfile::TempDir {
    project(&[
        ("pipelines/orders.yaml", ORDERS),
        ("pipelines/stock.yaml", STOCK),
        ("pipelines/traits.yaml", TRAITS),
        ("archetypes/gate.yaml", GATE),
    ])
}

#[track_caller]
fn ask(directory: &Path, arguments: &[&str]) -> Ran {
    interlock(&[&["-C", directory.to_str().unwrap()], arguments].concat())
}

/// Does something that must succeed.
#[track_caller]
fn done(directory: &Path, arguments: &[&str]) {
    let ran = ask(directory, arguments);
    assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
}

fn evaluator(directory: &Path, script: &str) {
    let path = directory.join("evaluators/fresh.sh");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn evaluate_asks_sensors_and_upstreams_and_writes_nothing() {
    let directory = world();
    let directory = directory.path();
    let before = ask(directory, &["evaluate", "orders", SLOT]);
    assert_eq!(before.code, 1, "{}", before.stderr);
    assert!(before.stdout.contains("sensor `rows` has not been reported"), "{}", before.stdout);
    assert!(!directory.join(".interlock").exists(), "asking leaves nothing behind");

    done(directory, &["sensor", "put", "orders", "rows", r#"{"count": 12}"#]);
    let ran = ask(directory, &["evaluate", "orders", SLOT, "--json"]);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    let json = ran.json();
    assert_eq!(json["slot"], format!("orders/{SLOT}"));
    assert_eq!(json["mayRun"], false);
    assert_eq!(json["verdict"]["outcome"], "not ready");
    assert!(ran.stdout.contains("\"outcome\": \"ready\""), "the sensor holds: {}", ran.stdout);

    done(directory, &["run", "stock", "--slot", SLOT]);
    let ready = ask(directory, &["evaluate", "orders", SLOT]);
    assert_eq!(ready.code, 0, "{}", ready.stdout);
    assert!(ready.stdout.contains("12"), "{}", ready.stdout);
    let events = ask(directory, &["events", "orders"]).stdout;
    assert_eq!(events.lines().count(), 2, "declared and reported, nothing else: {events}");
}

#[test]
fn evaluate_runs_the_evaluators() {
    let directory = world();
    let directory = directory.path();
    let missing = ask(directory, &["evaluate", "traits"]);
    assert_eq!(missing.code, 5, "{}", missing.stdout);
    assert!(missing.stdout.contains("there is no evaluator `fresh.sh`"), "{}", missing.stdout);
    for (script, code, said) in [
        (r#"cat >/dev/null; echo '{"status": "PASS", "value": 41}'"#, 0, "✓"),
        (r#"echo '{"status": "FAIL", "reason": "too old"}'"#, 1, "too old"),
        ("echo nonsense", 5, "EVALUATOR_OUTPUT_INVALID"),
        ("exit 3", 5, "EVALUATOR_ERROR"),
    ] {
        evaluator(directory, script);
        let ran = ask(directory, &["evaluate", "traits"]);
        assert_eq!(ran.code, code, "{script}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains(said), "{script}: {}", ran.stdout);
    }
}

#[test]
fn explain_prints_the_verdict_that_was_stored_with_the_decision() {
    let directory = world();
    let directory = directory.path();
    done(directory, &["sensor", "put", "orders", "rows", r#"{"count": 12}"#]);
    done(directory, &["run", "stock", "--slot", SLOT]);
    done(directory, &["run", "orders", "--slot", SLOT]);
    // What is so today does not change what was seen then.
    done(directory, &["sensor", "put", "orders", "rows", r#"{"count": 3}"#]);
    let ran = ask(directory, &["explain", "orders", SLOT]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.starts_with(&format!("orders/{SLOT} is completed.\n")), "{}", ran.stdout);
    assert!(ran.stdout.contains("JOB_TRIGGERED orders~yearly~20260101T000000Z~1~1:\n  ✓"));
    assert!(ran.stdout.contains("12 gte 10"), "{}", ran.stdout);
    let json = ask(directory, &["explain", "orders", SLOT, "--json"]).json();
    assert_eq!((&json["state"], &json["verdict"]), (&json!("completed"), &Value::Null));
    assert_eq!(json["decisions"][0]["kind"], "JOB_TRIGGERED");
    assert!(json["decisions"][0]["verdict"][0].as_str().unwrap().starts_with('✓'));
    let stock = ask(directory, &["explain", "stock", SLOT]).stdout;
    assert!(stock.contains("It has no conditions."), "{stock}");
}

#[test]
fn explain_judges_a_slot_that_waits_and_says_what_was_forced() {
    let directory = world();
    let directory = directory.path();
    done(directory, &["run", "orders", "--slot", SLOT, "--force"]);
    let forced = ask(directory, &["explain", "orders", SLOT]).stdout;
    assert!(forced.contains("started with `--force`"), "{forced}");
    done(directory, &["rerun", "orders", SLOT, "--reason", "a test"]);
    for slot in [&[SLOT][..], &[]] {
        let waits = ask(directory, &[&["explain", "orders"], slot].concat());
        let expected = format!("orders/{SLOT} is waiting; now:\n✗");
        assert!(waits.stdout.starts_with(&expected), "{}", waits.stdout);
    }
    let json = ask(directory, &["explain", "orders", SLOT, "--json"]).json();
    assert_eq!(json["verdict"]["outcome"], "not ready");
    done(directory, &["cancel", "orders", SLOT]);
    let cancelled = ask(directory, &["explain", "orders", SLOT]).stdout;
    assert!(cancelled.starts_with(&format!("orders/{SLOT} is cancelled.\n")), "{cancelled}");
}

#[test]
fn explain_says_why_there_is_no_slot() {
    let directory = world();
    let directory = directory.path();
    done(directory, &["sensor", "put", "orders", "rows", "1"]);
    for (slot, reason) in [
        (SLOT, "was first seen at"),
        ("2199-01-01T00:00Z", "it is not due yet"),
        ("weekdays/2026-02-23T09:00Z", "2026-02-23 is"),
        ("weekdays/2026-02-24T09:00Z", "the schedule owes none then"),
        ("nothing/2026-02-24T09:00Z", "has no such schedule"),
    ] {
        let ran = ask(directory, &["explain", "orders", slot]);
        assert_eq!(ran.code, 0, "{slot}: {}", ran.stderr);
        assert!(ran.stdout.contains(reason), "{slot}: {}", ran.stdout);
        let json = ask(directory, &["explain", "orders", slot, "--json"]).json();
        assert_eq!(json["slot"], Value::Null, "{slot}");
        assert!(json["reasons"][0].as_str().unwrap().contains(reason), "{slot}: {json}");
    }
}

#[test]
fn nonsense_is_refused_with_what_to_write() {
    let directory = world();
    for arguments in [
        &["evaluate", "nobody"][..],
        &["evaluate", "orders", "soon"],
        &["evaluate", "orders", "2026-13-01"],
        &["evaluate", "orders", SLOT, "--at", "soon"],
        &["explain", "orders", "soon"],
        &["explain", "nobody"],
    ] {
        let ran = ask(directory.path(), arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{arguments:?}: {}", ran.stderr);
    }
}
