//! `interlock explain`.

use std::fs;

use super::{interlock, project};

fn explain(sensors: &str, at: &str) -> super::Ran {
    let dir = project(&[("sensors.json", sensors)]);
    let file = dir.path().join("sensors.json");
    let file = file.to_str().unwrap();
    interlock(&["explain", "orders", "-C", "examples/quickstart", "--sensors", file, "--at", at])
}

#[test]
fn a_ready_slot_says_so_rule_by_rule() {
    let sensors = r#"{"orders-ready": {"count": 1200, "updatedAt": "2026-11-15T09:00:00Z"}}"#;
    let ran = explain(sensors, "2026-11-15T09:05:10Z");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout
            .starts_with("orders/ten-seconds/2026-11-15T09:05:10Z at 2026-11-15T09:05:10Z\n✓ "),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("1200"), "{}", ran.stdout);
}

#[test]
fn what_blocks_is_named_with_the_value_seen() {
    let sensors = r#"{"orders-ready": {"count": 7, "updatedAt": "2026-11-15T08:00:00Z"}}"#;
    let ran = explain(sensors, "2026-11-15T09:05:10Z");
    assert!(ran.stdout.contains("7 gte 1000 is false"), "{}", ran.stdout);
    let ran = explain("{}", "2026-11-15T09:05:10Z");
    assert!(ran.stdout.contains("has not been reported"), "{}", ran.stdout);
}

#[test]
fn the_verdict_is_also_json() {
    let ran = interlock(&[
        "explain",
        "orders",
        "2026-11-15T09:00Z",
        "--json",
        "-C",
        "examples/quickstart",
        "--at",
        "2026-11-15T09:00:05Z",
    ]);
    let answer = ran.json();
    assert_eq!(answer["slot"], "orders/ten-seconds/2026-11-15T09:00:00Z");
    assert_eq!(
        (&answer["mayRun"], &answer["verdict"]["outcome"]),
        (&false.into(), &"not ready".into())
    );
    assert_eq!(answer["verdict"]["parts"].as_array().unwrap().len(), 2);
}

#[test]
fn an_instant_that_is_no_slot_is_answered_with_the_next_one() {
    let ran =
        interlock(&["explain", "orders", "2026-11-15T09:00:01Z", "-C", "examples/quickstart"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("2026-11-15T09:00:10Z"), "{}", ran.stderr);
}

#[test]
fn a_bad_sensor_file_is_named() {
    for (text, reason) in [
        ("[1]", "not a JSON object"),
        ("{\"a\": ", "EOF"),
        (r#"{"a": {"value": 1, "at": "soon"}}"#, "soon"),
    ] {
        let ran = explain(text, "2026-11-15T09:00:00Z");
        assert_eq!(ran.code, 3, "{text}");
        assert!(
            ran.stderr.contains("sensors.json") && ran.stderr.contains(reason),
            "{}",
            ran.stderr
        );
    }
    let gone = project(&[]);
    let gone = gone.path().join("none.json");
    assert!(fs::metadata(&gone).is_err());
    let ran = interlock(&[
        "explain",
        "orders",
        "-C",
        "examples/quickstart",
        "--sensors",
        gone.to_str().unwrap(),
    ]);
    assert_eq!(ran.code, 3);
}
