//! Each alert says what to do, and where more of it stands: by the pipeline, else by the route, else by the page of all messages.

use std::{collections::BTreeMap, sync::Arc};

use interlock_alert::{AlertMessage, Channels as _, Delivery};
use interlock_config::{
    SystemZones, decode_version,
    server::{AlertFilter, Channel},
};
use interlock_core::pipeline::Pipeline;
use serde_json::Value;

use super::{Bench, Declared, Fixed, alert, declared_as, now};

const WIKI: &str = "https://wiki.example/orders";
const TEAM: &str = "https://wiki.example/data";

fn pipeline(more: &str) -> Arc<Pipeline> {
    let text = format!(
        "name: earthquake-silver\nschedule: '0 9 * * *'\ntrigger: {{type: external}}\n{more}"
    );
    let none = |_name: &str| None;
    decode_version(&text, &BTreeMap::new(), &SystemZones::new(), &none).unwrap().pipeline.into()
}

/// What the console prints of an alert with these details.
async fn printed(of_pipeline: &str, of_route: Option<&str>, details: &[(&str, &str)]) -> String {
    let route = declared_as("console", Channel::Console, AlertFilter::default());
    let route = Declared { runbook: of_route.map(str::to_owned), ..route };
    let bench = Bench::of(Fixed([route].into(), Some(pipeline(of_pipeline))));
    let mut alert = alert();
    let details = details.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
    alert.details.extend(details);
    let notice = AlertMessage { alert, key: "k".into(), at: now() };
    assert_eq!(bench.channels.deliver("console", notice).await, Delivery::Delivered);
    bench.printed.lock().unwrap().remove(0)
}

#[tokio::test]
async fn the_runbook_of_the_pipeline_comes_before_that_of_the_route_and_of_the_kind() {
    let missed = [("event", "SCHEDULE_MISSED"), ("state", "open")];
    let line = printed("", None, &missed).await;
    assert!(line.contains(" -> Run `interlock why` for the slot"), "{line}");
    assert!(line.ends_with("[docs/messages.md#schedule_missed]"), "{line}");
    let line = printed("", Some(TEAM), &missed).await;
    assert!(line.ends_with(&format!("[{TEAM}]")), "{line}");
    let line = printed(&format!("runbook: {WIKI}\n"), Some(TEAM), &missed).await;
    assert!(line.ends_with(&format!("[{WIKI}]")), "{line}");
}

#[tokio::test]
async fn what_a_check_says_of_a_slot_stays_and_what_is_over_asks_for_nothing() {
    let said = [("event", "SCHEDULE_MISSED"), ("state", "open"), ("actionHint", "Ask ann.")];
    let line = printed("", None, &said).await;
    assert!(line.contains(" -> Ask ann. ["), "{line}");
    let over = [("event", "SCHEDULE_MISSED"), ("state", "resolved")];
    let line = printed("", None, &over).await;
    assert!(!line.contains("->") && !line.contains("runbook"), "{line}");
    assert!(line.ends_with("on 2026-02-25"), "{line}");
}
