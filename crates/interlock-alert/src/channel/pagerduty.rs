//! `PagerDuty`, by its Events API v2: an incident here is an alert there, under the same key.
//!
//! `trigger`, `acknowledge` and `resolve` carry the incident's dedup key, so that a repetition changes nothing and an
//! end closes what the beginning opened.

use interlock_core::{
    id::fnv1a,
    incident::{Alert, IncidentState},
    pipeline::Secret,
};
use interlock_trigger::web::{Call, Web};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::post::post;
use interlock_ports::channel::{AlertMessage, Delivery};

const EVENTS_API: &str = "https://events.pagerduty.com/v2/enqueue";
/// What the API takes at most, in characters.
const DEDUP_KEY_MAX: usize = 255;
const SUMMARY_MAX: usize = 1_024;

/// Where to, and as whom.
pub(crate) struct Pagerduty {
    pub(crate) routing_key: Secret,
    pub(crate) url: Option<Secret>,
    pub(crate) time_limit: SignedDuration,
}

impl Pagerduty {
    /// Sends an event.
    pub(crate) async fn deliver(self, web: Web, notice: AlertMessage) -> Delivery {
        let url = self.url.as_ref().map_or(EVENTS_API, Secret::expose).to_owned();
        let mut event = event(&notice);
        event["routing_key"] = self.routing_key.expose().into();
        let call = Call {
            method: "POST".to_owned(),
            url,
            headers: vec![],
            body: Some(event.to_string()),
            timeout: self.time_limit,
        };
        match post(&web, &call, notice.at).await {
            Ok(_taken) => Delivery::Delivered,
            Err(delivery) => delivery,
        }
    }
}

fn event(notice: &AlertMessage) -> Value {
    let Alert { level, alert_type, pipeline_id, details, timestamp, .. } = &notice.alert;
    let action = match notice.alert.state() {
        Some(IncidentState::Resolved) => "resolve",
        Some(IncidentState::Acknowledged) => "acknowledge",
        Some(IncidentState::Open) | None => "trigger",
    };
    let key = match notice.alert.incident() {
        Some(key) => format!("{pipeline_id}/{key}"),
        None => notice.key.clone(),
    };
    let severity = match level.as_str() {
        "critical" | "error" | "warning" | "info" => level.as_str(),
        _ => "error",
    };
    let is_link = |text: &&str| text.starts_with("https://") || text.starts_with("http://");
    let links = notice.alert.runbook().filter(is_link);
    let links: Vec<_> =
        links.map(|href| json!({ "href": href, "text": "Runbook" })).into_iter().collect();
    json!({
        "event_action": action,
        "dedup_key": shortened(&key),
        "client": "Interlock",
        "links": links,
        "payload": {
            "summary": notice.alert.line().chars().take(SUMMARY_MAX).collect::<String>(),
            "source": pipeline_id,
            "severity": severity,
            "timestamp": timestamp.to_string(),
            "component": pipeline_id,
            "class": alert_type,
            "custom_details": details,
        },
    })
}

/// A key that is too long keeps its beginning, and stays the only one of its kind.
fn shortened(key: &str) -> String {
    if key.chars().count() <= DEDUP_KEY_MAX {
        return key.to_owned();
    }
    let beginning: String = key.chars().take(DEDUP_KEY_MAX - 17).collect();
    format!("{beginning}~{:016x}", fnv1a(key.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_key_fits_and_stays_its_own() {
        let long = |end: &str| shortened(&format!("{}{end}", "é".repeat(300)));
        assert_eq!(long("a").chars().count(), DEDUP_KEY_MAX);
        assert_ne!(long("a"), long("b"));
        assert_eq!(shortened("orders/failed:a"), "orders/failed:a");
    }
}
