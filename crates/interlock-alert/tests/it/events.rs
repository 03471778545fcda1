//! `format: events`: programs that read the events of the AWS controller get them, as its golden files pin them.

use std::{collections::BTreeMap, fs, path::Path};

use interlock_alert::{AlertMessage, Channels as _, Delivery};
use interlock_config::server::{AlertFilter, AlertFormat, Channel};
use interlock_core::{incident::Alert, pipeline::Secret};
use serde_json::{Value, json};

use crate::{
    Bench, now,
    server::{Does, Server},
    webhook,
};

/// The events that the watchdog's own tests find.
const PINNED: [&str; 4] =
    ["schedule-missed", "sfn-timeout", "post-run-sensor-missing", "watchdog-degraded"];

fn pinned(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../interlock-watchdog/tests/golden");
    let text = fs::read_to_string(folder.join(format!("event-{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The alert that tells of an event.
fn alert(event: &Value, state: &str) -> Alert {
    let detail = event["detail"].as_object().unwrap();
    let text = |name: &str| detail.get(name).and_then(Value::as_str).map(str::to_owned);
    let mut details = BTreeMap::from([
        ("state".to_owned(), json!(state)),
        ("incident".to_owned(), json!("watchdog:gold-revenue:cron:2026-03-01")),
        ("event".to_owned(), event["detail-type"].clone()),
        ("eventMessage".to_owned(), detail["message"].clone()),
        ("check".to_owned(), json!("missed-schedules")),
    ]);
    for name in ["scheduleId", "date", "status"] {
        details.extend(detail.get(name).map(|value| (name.to_owned(), value.clone())));
    }
    Alert {
        level: "error".into(),
        alert_type: "schedule_missed".into(),
        pipeline_id: text("pipelineId").unwrap_or_else(|| "_system".into()),
        message: "A sentence for people".into(),
        details,
        timestamp: text("timestamp").unwrap().parse().unwrap(),
    }
}

fn http(url: &str, body: Option<&str>) -> Channel {
    Channel::Http {
        url: Secret::new(url),
        method: "POST".into(),
        headers: BTreeMap::new(),
        body: body.map(str::to_owned),
    }
}

async fn deliver(bench: &Bench, alert: Alert) {
    let delivery = bench.channels.deliver("it", AlertMessage { alert, key: "k".into(), at: now() });
    assert_eq!(delivery.await, Delivery::Delivered);
}

/// What a channel that is made with an address sends of an alert.
async fn sent(channel: impl Fn(&str) -> Channel, alert: Alert) -> Value {
    let server = Server::new(Does::Answer("200 OK")).await;
    let declared = vec![("it", channel(&server.url), AlertFilter::default())];
    deliver(&Bench::sending(AlertFormat::Events, declared), alert).await;
    let [asked] = server.asked().try_into().unwrap();
    serde_json::from_str(&asked.body).unwrap()
}

#[tokio::test]
async fn webhook_file_and_http_send_the_events_of_the_golden_files() {
    for name in PINNED {
        let event = pinned(name);
        assert_eq!(sent(webhook, alert(&event, "open")).await, event, "webhook {name}");
        assert_eq!(sent(|url| http(url, None), alert(&event, "open")).await, event, "http {name}");
        let wrapped =
            sent(|url| http(url, Some(r#"{"Entries": [{{json}}]}"#)), alert(&event, "open"));
        assert_eq!(wrapped.await, json!({ "Entries": [event] }), "template {name}");
        let file = Channel::File { path: "events.jsonl".into() };
        let declared = vec![("it", file, AlertFilter::default())];
        let bench = Bench::sending(AlertFormat::Events, declared);
        deliver(&bench, alert(&event, "open")).await;
        let line = fs::read_to_string(bench.folder.path().join("events.jsonl")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), event, "file {name}");
    }
}

#[tokio::test]
async fn an_end_is_an_event_of_its_own() {
    let event = pinned("schedule-missed");
    for (state, kind) in
        [("resolved", "INCIDENT_RESOLVED"), ("acknowledged", "INCIDENT_ACKNOWLEDGED")]
    {
        let mut expected = event.clone();
        expected["detail-type"] = json!(kind);
        expected["detail"]["message"] = json!("A sentence for people");
        expected["detail"]["event"] = json!("SCHEDULE_MISSED");
        expected["detail"]["incident"] = json!("watchdog:gold-revenue:cron:2026-03-01");
        assert_eq!(sent(webhook, alert(&event, state)).await, expected);
    }
    // What is no incident, such as a dead letter, is named by its type.
    let mut letter = alert(&event, "open");
    letter.details.clear();
    letter.alert_type = "alert_undelivered".into();
    assert_eq!(sent(webhook, letter).await["detail-type"], "ALERT_UNDELIVERED");
}
