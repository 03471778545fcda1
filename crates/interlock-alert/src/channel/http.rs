//! Any HTTP receiver: a request whose body is a template.

use std::collections::BTreeMap;

use interlock_config::server::AlertFormat;
use interlock_core::{incident::Alert, pipeline::Secret};
use interlock_trigger::web::{Call, Web};
use jiff::SignedDuration;
use serde_json::Value;

use super::{
    payload,
    post::{idempotency_key, post},
};
use interlock_ports::channel::{AlertMessage, Delivery};

/// Where to, and what.
pub(crate) struct Http {
    pub(crate) url: Secret,
    pub(crate) method: String,
    pub(crate) headers: BTreeMap<String, Secret>,
    pub(crate) body: Option<String>,
    pub(crate) format: AlertFormat,
    pub(crate) time_limit: SignedDuration,
}

impl Http {
    /// Sends an alert.
    pub(crate) async fn deliver(self, web: Web, notice: AlertMessage) -> Delivery {
        let body = match &self.body {
            Some(template) => fill(template, &notice, self.format),
            None => payload(self.format, &notice.alert).to_string(),
        };
        let headers = self.headers.iter();
        let mut headers: Vec<(String, String)> =
            headers.map(|(name, value)| (name.clone(), value.expose().to_owned())).collect();
        headers.push(idempotency_key(&notice));
        let call = Call {
            method: self.method.clone(),
            url: self.url.expose().to_owned(),
            headers,
            body: Some(body),
            timeout: self.time_limit,
        };
        match post(&web, &call, notice.at).await {
            Ok(_taken) => Delivery::Delivered,
            Err(delivery) => delivery,
        }
    }
}

/// Replaces `{{name}}` by what the alert says. In a body that is JSON a value is escaped so that it stays a part of a
/// text; a name that says nothing leaves nothing.
fn fill(template: &str, notice: &AlertMessage, format: AlertFormat) -> String {
    let is_json = template.trim_start().starts_with(['{', '[']) && !template.starts_with("{{");
    let (mut filled, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once("{{") {
        filled.push_str(before);
        let Some((name, after)) = after.split_once("}}") else {
            filled.push_str("{{");
            rest = after;
            continue;
        };
        let name = name.trim();
        match value(name, notice, format) {
            Some(text) if is_json && name != "json" => filled.push_str(&escaped(&text)),
            Some(text) => filled.push_str(&text),
            None => {}
        }
        rest = after;
    }
    filled + rest
}

fn value(name: &str, notice: &AlertMessage, format: AlertFormat) -> Option<String> {
    let AlertMessage { alert, key, .. } = notice;
    let Alert { level, alert_type, pipeline_id, message, timestamp, .. } = alert;
    Some(match name {
        "level" => level.clone(),
        "alertType" => alert_type.clone(),
        "pipelineId" => pipeline_id.clone(),
        "message" => message.clone(),
        "timestamp" => timestamp.to_string(),
        "state" => alert.state().map(|state| state.as_str().to_owned())?,
        "key" => alert.incident().map_or_else(|| key.clone(), str::to_owned),
        "json" => payload(format, alert).to_string(),
        other => {
            let value = alert.details.get(other.strip_prefix("details.")?)?;
            value.as_str().map_or_else(|| value.to_string(), str::to_owned)
        }
    })
}

/// A text as it stands between the quotes of JSON.
fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_filled_and_stays_json() {
        let alert = Alert {
            level: "error".into(),
            alert_type: "job_failed".into(),
            pipeline_id: "orders".into(),
            message: "it said \"no\"\n{{level}}".into(),
            details: BTreeMap::from([
                ("runs".to_owned(), Value::from(3)),
                ("incident".to_owned(), Value::from("failed:orders")),
            ]),
            timestamp: "2026-02-25T09:25:00Z".parse().unwrap(),
        };
        let notice = AlertMessage { alert, key: "k".into(), at: jiff::Timestamp::UNIX_EPOCH };
        let body = fill(
            r#"{"text": "{{ message }}", "runs": {{details.runs}}, "no": "{{details.no}}{{what}}", "k": "{{key}}", "a": {{json}}}"#,
            &notice,
            AlertFormat::Alert,
        );
        let json: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            json["text"], "it said \"no\"\n{{level}}",
            "what is filled in is not filled in again"
        );
        assert_eq!((&json["runs"], &json["no"]), (&Value::from(3), &Value::from("")));
        assert_eq!(
            (&json["k"], &json["a"]),
            (&Value::from("failed:orders"), &notice.alert.to_json())
        );
        assert_eq!(
            fill("{{level}}: {{pipelineId}} {{open", &notice, AlertFormat::Alert),
            "error: orders {{open"
        );
    }
}
