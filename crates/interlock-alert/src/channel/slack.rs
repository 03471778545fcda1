//! Slack: by an incoming webhook, or by a bot that keeps one thread per pipeline and day.
//!
//! A thread that is not known begins anew: a message that stands by itself is better than one that waits for its thread.

use interlock_config::server::Slack as Declared;
use interlock_core::{
    incident::{Alert, IncidentState},
    pipeline::Secret,
};
use interlock_trigger::web::{Call, Web};
use jiff::{SignedDuration, tz::TimeZone};
use serde_json::{Value, json};

use super::{
    post::post,
    threads::{Place, Threads},
};
use interlock_ports::channel::{AlertMessage, Delivery};

const API: &str = "https://slack.com/api/chat.postMessage";
/// Answers of the API that pass by themselves.
const PASSING: [&str; 6] = [
    "ratelimited",
    "rate_limited",
    "internal_error",
    "fatal_error",
    "service_unavailable",
    "request_timeout",
];

/// Where to, and as whom.
pub(crate) struct Slack {
    pub(crate) declared: Declared,
    /// The channel's name in `interlock.yaml`.
    pub(crate) name: String,
    pub(crate) threads: Threads,
    pub(crate) time_limit: SignedDuration,
}

impl Slack {
    /// Posts an alert.
    pub(crate) async fn deliver(self, web: Web, notice: AlertMessage) -> Delivery {
        match (&self.declared.token, &self.declared.url) {
            (Some(token), url) => {
                let url = url.as_ref().map_or(API, Secret::expose);
                self.by_bot(&web, (token, url), &notice).await
            }
            (None, Some(url)) => {
                let body = json!({ "text": text(&notice.alert) });
                match post(&web, &self.call(url.expose(), None, &body), notice.at).await {
                    Ok(_taken) => Delivery::Delivered,
                    Err(delivery) => delivery,
                }
            }
            (None, None) => {
                let reason = "the channel has neither a url nor a token".to_owned();
                Delivery::Refused { reason }
            }
        }
    }

    async fn by_bot(
        &self,
        web: &Web,
        (token, url): (&Secret, &str),
        notice: &AlertMessage,
    ) -> Delivery {
        let place = (day(&notice.alert), self.name.clone(), notice.alert.pipeline_id.clone());
        let thread = self.threads.get(&place);
        let mut body = json!({ "channel": self.declared.channel, "text": text(&notice.alert) });
        if let Some(thread) = &thread {
            body["thread_ts"] = thread.as_str().into();
            // An end, and what is new, is worth more than a line in a thread that nobody follows.
            body["reply_broadcast"] =
                (notice.alert.state() != Some(IncidentState::Acknowledged)).into();
        }
        let answer = match post(web, &self.call(url, Some(token), &body), notice.at).await {
            Ok(answer) => answer,
            Err(delivery) => return delivery,
        };
        // The API says no with a 200, too.
        let said: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        if said.get("ok").and_then(Value::as_bool) != Some(true) {
            return self.refused(&place, said.get("error").and_then(Value::as_str));
        }
        if let Some(ts) = said.get("ts").and_then(Value::as_str).filter(|_| thread.is_none()) {
            self.threads.begin(place, ts.to_owned());
        }
        Delivery::Delivered
    }

    fn refused(&self, place: &Place, error: Option<&str>) -> Delivery {
        let Some(error) = error else {
            let reason = "Slack gave an answer that cannot be read".to_owned();
            return Delivery::Failed { reason, retry_after: None };
        };
        let reason = format!("Slack said no: {error}");
        if error == "thread_not_found" {
            // Somebody deleted it: the next try begins a new one.
            self.threads.forget(place);
            return Delivery::Failed { reason, retry_after: None };
        }
        if PASSING.contains(&error) {
            Delivery::Failed { reason, retry_after: None }
        } else {
            Delivery::Refused { reason }
        }
    }

    fn call(&self, url: &str, token: Option<&Secret>, body: &Value) -> Call {
        let bearer =
            |token: &Secret| ("Authorization".to_owned(), format!("Bearer {}", token.expose()));
        let mut headers: Vec<(String, String)> = token.map(bearer).into_iter().collect();
        let json = "application/json; charset=utf-8".to_owned();
        headers.push(("Content-Type".to_owned(), json));
        Call {
            method: "POST".to_owned(),
            url: url.to_owned(),
            headers,
            body: Some(body.to_string()),
            timeout: self.time_limit,
        }
    }
}

/// The day that an alert is about: its slot's own, else that of its instant.
fn day(alert: &Alert) -> String {
    let date = alert.details.get("date").and_then(Value::as_str).map(str::to_owned);
    date.unwrap_or_else(|| alert.timestamp.to_zoned(TimeZone::UTC).date().to_string())
}

/// What stands in Slack: what and whose, what happened, what to do.
fn text(alert: &Alert) -> String {
    let mark = match (alert.state(), alert.level.as_str()) {
        (Some(IncidentState::Resolved), _) => ":white_check_mark:",
        (Some(IncidentState::Acknowledged), _) => ":eyes:",
        (_, "error" | "critical") => ":red_circle:",
        (_, "warning") => ":large_yellow_circle:",
        _ => ":information_source:",
    };
    let detail = |key: &str| alert.details.get(key).and_then(Value::as_str);
    let day = detail("date").map(|date| format!(" | {date}")).unwrap_or_default();
    let action = alert.action().map(|action| format!("\n→ {}", plain(action)));
    let runbook = alert.runbook().filter(|_| !alert.is_resolution());
    let runbook = runbook.map(|runbook| format!("\nRunbook: {}", plain(runbook)));
    format!(
        "{mark} *{} {}* | {}{day}\n{}{}{}",
        plain(alert.word()),
        plain(&alert.alert_type),
        plain(&alert.pipeline_id),
        plain(&alert.line()),
        action.unwrap_or_default(),
        runbook.unwrap_or_default()
    )
}

/// A text that Slack shows as it is: no link, no mention of everybody.
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
