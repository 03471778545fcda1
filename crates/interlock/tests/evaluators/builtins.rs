//! What the earlier Interlock's built-in evaluators answered, written as rules on sensors (case 43).

use std::{collections::BTreeMap, path::Path};

use interlock_config::{Context, SystemZones, parse_pipeline};
use interlock_core::{
    readiness::{Evidence, Outcome, evaluate},
    sensor::{Sensor, Sensors},
};
use jiff::Timestamp;
use serde_json::{Value, json};

const NOW: &str = "2026-02-25T12:00:00Z";

/// Whether a slot may run by these rules, with this sensor or without one.
fn outcome(rules: &str, sensor: Option<(&str, Value)>) -> Outcome {
    let text = format!(
        "name: orders\nschedule: \"0 9 * * *\"\ntrigger: {{type: external}}\nvalidation: {{rules: [{rules}]}}\n"
    );
    let path = Path::new("orders.yaml");
    let (context, zones) = (Context::default(), SystemZones::new());
    let (loaded, problems) = parse_pipeline(path, &text, &context, &zones, &|_| None);
    let pipeline = loaded.unwrap_or_else(|| panic!("{problems:?}")).pipeline;
    let now: Timestamp = NOW.parse().unwrap();
    let sensors: Sensors = sensor
        .map(|(key, value)| (key.to_owned(), Sensor { value, at: now }))
        .into_iter()
        .collect();
    let evidence = Evidence {
        sensors: &sensors,
        traits: &BTreeMap::new(),
        upstreams: &BTreeMap::new(),
        period: None,
        now,
    };
    evaluate(&pipeline.readiness, &evidence).outcome
}

#[test]
fn case_43_sensor_threshold() {
    let rules = "{key: lag, field: value, check: gte, value: 10}, {key: lag, field: value, check: lte, value: 20}";
    for (value, expected) in [
        (Some(json!({"value": 15})), Outcome::Ready),
        (Some(json!({"value": 10})), Outcome::Ready),
        (Some(json!({"value": 9.5})), Outcome::NotReady),
        (Some(json!({"value": 21})), Outcome::NotReady),
        (Some(json!({"value": "many"})), Outcome::CannotTell),
        (None, Outcome::NotReady),
    ] {
        assert_eq!(outcome(rules, value.clone().map(|v| ("lag", v))), expected, "{value:?}");
    }
}

#[test]
fn case_43_sensor_freshness() {
    let rule = "{key: landing, field: updatedAt, check: age_lt, value: 1h}";
    for (value, expected) in [
        (Some(json!({"updatedAt": "2026-02-25T11:30:00Z"})), Outcome::Ready),
        (Some(json!({"updatedAt": "2026-02-25T10:30:00Z"})), Outcome::NotReady),
        (Some(json!({"updatedAt": 1_772_019_000})), Outcome::Ready),
        (Some(json!({"updatedAt": "yesterday"})), Outcome::CannotTell),
        (None, Outcome::NotReady),
    ] {
        assert_eq!(outcome(rule, value.clone().map(|v| ("landing", v))), expected, "{value:?}");
    }
    // A limit that is no duration is an error in the file, before anything is asked.
    let text = "name: orders\nschedule: \"0 9 * * *\"\nvalidation: {rules: [{key: a, check: age_lt, value: soon}]}\n";
    let (context, zones) = (Context::default(), SystemZones::new());
    let (_, problems) = parse_pipeline(Path::new("a.yaml"), text, &context, &zones, &|_| None);
    assert!(problems.iter().any(|problem| problem.code.as_str() == "IL0301"), "{problems:?}");
}

#[test]
fn case_43_window_completeness_by_count() {
    let rule = "{key: windows, field: count, check: gte, value: 24}";
    for (value, expected) in [
        (Some(json!({"count": 24})), Outcome::Ready),
        (Some(json!({"count": 23})), Outcome::NotReady),
        (None, Outcome::NotReady),
    ] {
        assert_eq!(outcome(rule, value.clone().map(|v| ("windows", v))), expected, "{value:?}");
    }
}

#[test]
fn case_43_data_quality() {
    let nulls = "{key: quality, field: nullRate, check: lte, value: 0.05}";
    let both =
        format!("{nulls}, {{key: quality, field: schemaDrift, check: equals, value: false}}");
    let drifted = json!({"nullRate": 0.01, "schemaDrift": true});
    for (rules, value, expected) in [
        (both.as_str(), Some(json!({"nullRate": 0.01, "schemaDrift": false})), Outcome::Ready),
        (&both, Some(json!({"nullRate": 0.2, "schemaDrift": false})), Outcome::NotReady),
        (&both, Some(drifted.clone()), Outcome::NotReady),
        (nulls, Some(drifted), Outcome::Ready),
        (&both, None, Outcome::NotReady),
    ] {
        assert_eq!(outcome(rules, value.clone().map(|v| ("quality", v))), expected, "{value:?}");
    }
}
