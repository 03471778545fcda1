//! The table, and the steps of an incident.

use std::collections::BTreeMap;

use jiff::civil::date;
use serde_json::json;

use super::*;

fn fact<'a>(kind: &'a str, pipeline: &'a PipelineId, schedule: &'a ScheduleId) -> Fact<'a> {
    Fact { kind, pipeline, day: Some((schedule, date(2026, 2, 25))), thing: Some("orders.yaml") }
}

/// What an event of `orders/daily` on 25 February does: `+key level type` or `-key`, one a line.
fn check(kind: &str, expected: &[&str]) {
    let (orders, daily) =
        (PipelineId::parse("orders").unwrap(), ScheduleId::parse("daily").unwrap());
    let found: Vec<String> = consequences(&fact(kind, &orders, &daily))
        .iter()
        .map(|consequence| match consequence {
            Consequence::Open(Finding { key, level, alert_type, .. }) => {
                format!("+{key} {} {alert_type}", level.as_str())
            }
            Consequence::Resolve { key } => format!("-{key}"),
            Consequence::Acknowledge { key } => format!("?{key}"),
        })
        .collect();
    assert_eq!(found, expected, "{kind}");
}

#[test]
fn events_open_and_resolve_by_the_table() {
    check("RETRY_EXHAUSTED", &["+failed:orders:daily:2026-02-25 error job_failed"]);
    check("SFN_TIMEOUT", &["+failed:orders:daily:2026-02-25 error job_timeout"]);
    check("RUN_UNCERTAIN", &["+uncertain:orders:daily:2026-02-25 error run_uncertain"]);
    check(
        "VALIDATION_EXHAUSTED",
        &["+not-ready:orders:daily:2026-02-25 error validation_exhausted"],
    );
    check("SCHEDULE_MISSED", &["+watchdog:orders:daily:2026-02-25 error schedule_missed"]);
    check("SCHEDULE_UNKNOWN", &["+unknown:orders:daily:2026-02-25 warning schedule_unknown"]);
    check("CONFIG_BROKEN", &["+config:orders.yaml warning config_broken"]);
    check("CONFIG_RESTORED", &["-config:orders.yaml"]);
    check("PIPELINE_SET_ASIDE", &["+aside:orders error pipeline_set_aside"]);
    check("PIPELINE_TAKEN_BACK", &["-aside:orders"]);
    check("BARK", &["+bark:orders.yaml error schedule_missed"]);
    check("INCIDENT_RESOLVED", &["-orders.yaml"]);
    check("INCIDENT_ACKNOWLEDGED", &["?orders.yaml"]);
    check("RUN_FOUND", &["-uncertain:orders:daily:2026-02-25"]);
    check(
        "JOB_COMPLETED",
        &[
            "-failed:orders:daily:2026-02-25",
            "-uncertain:orders:daily:2026-02-25",
            "-not-ready:orders:daily:2026-02-25",
            "-watchdog:orders:daily:2026-02-25",
            "-unknown:orders:daily:2026-02-25",
            "-watchdog:stuck:orders:daily:2026-02-25",
            "-sla-warning:orders:daily:2026-02-25",
            "-sla:orders:daily:2026-02-25",
            "-relative-sla-warning:orders:daily:2026-02-25",
            "-relative-sla:orders:daily:2026-02-25",
            "-no-sensor:orders:daily:2026-02-25",
            "-recovered:orders:daily:2026-02-25",
            "-extra:orders:daily:2026-02-25",
        ],
    );
    check("JOB_FAILED", &["-watchdog:stuck:orders:daily:2026-02-25"]);
    for quiet in ["JOB_TRIGGERED", "RETRY_SCHEDULED", "SLOT_OPENED", "NEVER_HEARD_OF"] {
        check(quiet, &[]);
    }
}

#[test]
fn what_the_watchdog_finds_opens_by_the_table() {
    let day = "orders:daily:2026-02-25";
    for (kind, expected) in [
        ("IRREGULAR_SCHEDULE_MISSED", format!("+watchdog:{day} error irregular_schedule_missed")),
        ("RUN_STUCK", format!("+watchdog:stuck:{day} error stuck_run")),
        ("SLA_WARNING", format!("+sla-warning:{day} warning sla_warning")),
        ("SLA_BREACH", format!("+sla:{day} error sla_breach")),
        ("RELATIVE_SLA_BREACH", format!("+relative-sla:{day} error relative_sla_breach")),
        ("SENSOR_DEADLINE_EXPIRED", format!("+no-sensor:{day} error sensor_deadline_expired")),
        ("POST_RUN_SENSOR_MISSING", format!("+post-run:{day} warning post_run_sensor_missing")),
        ("POST_RUN_FAILED", format!("+post-run-failed:{day} error post_run_failed")),
        ("POST_RUN_SENSORS_ARRIVED", format!("-post-run:{day}")),
        ("REPORT_EXTRA", format!("+extra:{day} warning report_extra")),
        ("JOB_NOT_WATCHED", "+not-watched:orders warning job_not_watched".to_owned()),
        ("PIPELINE_DECLARED", "-not-watched:orders".to_owned()),
        ("PIPELINE_CHANGED", "-not-watched:orders".to_owned()),
        ("TRIGGER_RECOVERED", format!("+recovered:{day} info trigger_recovered")),
        ("PIPELINE_PAUSED", "+paused:orders.yaml warning pipeline_paused".to_owned()),
        ("PIPELINE_RESUMED", "-paused:orders.yaml".to_owned()),
        ("WATCHDOG_DEGRADED", "+watchdog-degraded:orders error watchdog_degraded".to_owned()),
        ("WATCHDOG_RECOVERED", "-watchdog-degraded:orders".to_owned()),
    ] {
        check(kind, &[&expected]);
    }
}

#[test]
fn an_event_that_does_not_say_what_it_is_about_opens_nothing() {
    let orders = PipelineId::parse("orders").unwrap();
    for kind in ["RETRY_EXHAUSTED", "CONFIG_BROKEN", "JOB_COMPLETED"] {
        let fact = Fact { kind, pipeline: &orders, day: None, thing: None };
        assert_eq!(consequences(&fact), [], "{kind}");
    }
}

#[test]
fn no_event_is_listed_twice() {
    let mut events: Vec<&str> = OPENS.iter().map(|rule| rule.event).collect();
    events.extend(RESOLVES.iter().map(|(event, _)| *event));
    let all = events.len();
    events.sort_unstable();
    events.dedup();
    assert_eq!(events.len(), all);
}

#[test]
fn every_incident_can_be_resolved_by_some_event() {
    // A bark is ended by whoever barked; what a store forgot, or was damaged of it, does not come back: a person ends it.
    let by_hand = [BARK, ROLLBACK, DAMAGED];
    for rule in OPENS.iter().filter(|rule| !by_hand.contains(&rule.family)) {
        let mut resolved = RESOLVES.iter().flat_map(|(_, families)| *families);
        assert!(resolved.any(|family| *family == rule.family), "{}", rule.event);
    }
}

#[test]
fn further_findings_join_and_a_resolved_incident_opens_again() {
    let open = Consequence::Open(Finding {
        key: "k".into(),
        level: Level::Error,
        alert_type: "t",
        summary: "s".into(),
    });
    let resolve = Consequence::Resolve { key: "k".into() };
    let (is_open, seen, over) =
        (IncidentState::Open, IncidentState::Acknowledged, IncidentState::Resolved);
    for (state, opened, resolved) in [
        (None, Step::Open, Step::Nothing),
        (Some(is_open), Step::Join, Step::Resolve),
        (Some(seen), Step::Join, Step::Resolve),
        (Some(over), Step::Open, Step::Nothing),
    ] {
        assert_eq!((step(state, &open), step(state, &resolve)), (opened, resolved), "{state:?}");
    }
}

#[test]
fn hands_are_taken_while_it_is_open_and_refused_with_a_reason_otherwise() {
    let seen = Consequence::Acknowledge { key: "a".into() };
    for state in [IncidentState::Open, IncidentState::Acknowledged] {
        assert_eq!(by_hand(Some(state), Hand::Acknowledge), Ok("INCIDENT_ACKNOWLEDGED"));
        assert_eq!(by_hand(Some(state), Hand::Resolve), Ok("INCIDENT_RESOLVED"));
        assert_eq!(step(Some(state), &seen), Step::Acknowledge);
    }
    for hand in [Hand::Acknowledge, Hand::Resolve] {
        let over = Some(IncidentState::Resolved);
        assert_eq!(by_hand(over, hand), Err("the incident is already resolved"));
        assert_eq!(by_hand(None, hand), Err("there is no such incident"));
        assert_eq!(Hand::parse(hand.as_str()), Some(hand));
    }
    for state in [IncidentState::Open, IncidentState::Acknowledged, IncidentState::Resolved] {
        assert_eq!(by_hand(Some(state), Hand::Note), Ok("INCIDENT_NOTED"), "{state:?}");
    }
    assert_eq!(by_hand(None, Hand::Note), Err("there is no such incident"));
    assert!(!has_consequences("INCIDENT_NOTED"), "a note changes nothing");
    assert_eq!(Hand::parse("note"), Some(Hand::Note));
    assert_eq!(step(None, &seen), Step::Nothing);
    assert_eq!(step(Some(IncidentState::Resolved), &seen), Step::Nothing);
}

#[test]
fn a_good_slot_ends_the_days_before_and_nothing_else_does() {
    let key = "failed:orders:daily:2026-02-25";
    assert_eq!(older_days("JOB_COMPLETED", key), Some("failed:orders:daily:"));
    assert_eq!(older_days("JOB_COMPLETED", "config:a.yaml"), None);
    assert_eq!(older_days("RUN_FOUND", key), None);
}

#[test]
fn a_summary_names_what_and_when() {
    let (orders, daily) =
        (PipelineId::parse("orders").unwrap(), ScheduleId::parse("daily").unwrap());
    for (kind, expected) in [
        ("SCHEDULE_MISSED", "Pipeline orders schedule daily missed on 2026-02-25"),
        ("CONFIG_BROKEN", "orders.yaml is broken; the last good version stays in force"),
        ("PIPELINE_SET_ASIDE", "Pipeline orders is in quarantine"),
    ] {
        let found = consequences(&fact(kind, &orders, &daily));
        let [Consequence::Open(finding)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(finding.summary, expected);
    }
}

#[test]
fn an_alert_comes_back_from_its_json_and_is_one_line() {
    let alert = Alert {
        level: "error".into(),
        alert_type: "job_failed".into(),
        pipeline_id: "orders".into(),
        message: "it said\n\u{1b}[31mno".into(),
        details: BTreeMap::from([("state".into(), json!("open"))]),
        timestamp: "2026-02-25T09:25:00Z".parse().unwrap(),
    };
    assert_eq!(Alert::from_json(&alert.to_json()), alert);
    assert_eq!(alert.to_string(), "ALERT error job_failed orders: it said  [31mno");
    let by_ann = [("state", "acknowledged"), ("by", "ann"), ("note", "my\nfault")];
    let by_ann = by_ann.map(|(key, value)| (key.to_owned(), json!(value)));
    let seen = Alert { details: BTreeMap::from(by_ann), ..alert.clone() };
    assert_eq!(
        seen.to_string(),
        "ALERT acknowledged job_failed orders: it said  [31mno (acknowledged by ann: my fault)"
    );
    let over = Alert { details: BTreeMap::from([("state".into(), json!("resolved"))]), ..alert };
    assert_eq!(over.to_string(), "ALERT resolved job_failed orders: it said  [31mno");
}
