//! What is sent to people and programs about an incident.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{ACKNOWLEDGED_BY_HAND, IncidentState, RESOLVED_BY_HAND, event_json};
use crate::message::{ACTION, RUNBOOK};

/// What is sent to people and programs.
#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    /// How bad it is: the word of a [`Level`](super::Level).
    pub level: String,
    /// Such as `schedule_missed`.
    pub alert_type: String,
    /// Whose it is.
    pub pipeline_id: String,
    /// For people.
    pub message: String,
    /// For programs.
    pub details: BTreeMap<String, Value>,
    /// When it happened.
    pub timestamp: Timestamp,
}

/// The detail that names the kind of the event that an alert tells of.
pub const EVENT: &str = "event";
/// The detail with that event's own sentence.
pub const EVENT_MESSAGE: &str = "eventMessage";

impl Alert {
    /// The JSON of an alert: receivers rely on it.
    pub fn to_json(&self) -> Value {
        json!({
            "level": self.level,
            "alertType": self.alert_type,
            "pipelineId": self.pipeline_id,
            "message": self.message,
            "details": self.details,
            "timestamp": self.timestamp.to_string(),
        })
    }

    /// Reads what [`Alert::to_json`] writes; whatever is missing is empty.
    pub fn from_json(json: &Value) -> Self {
        let text = |key: &str| json.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let details = json.get("details").and_then(Value::as_object);
        Self {
            level: text("level"),
            alert_type: text("alertType"),
            pipeline_id: text("pipelineId"),
            message: text("message"),
            details: details
                .map(|map| map.iter().map(|(k, v)| (k.clone(), v.clone())).collect())
                .unwrap_or_default(),
            timestamp: text("timestamp").parse().unwrap_or(Timestamp::UNIX_EPOCH),
        }
    }

    /// The event that it tells of as `{source, detail-type, detail}`. An end, or that somebody looks, is an event of its own,
    /// which names the incident and the event that opened it.
    pub fn to_event_json(&self) -> Value {
        let text = |key: &str| self.details.get(key).and_then(Value::as_str);
        let opened = text(EVENT).map_or_else(|| self.alert_type.to_uppercase(), str::to_owned);
        let about = |kind: &str, message: &str| {
            event_json(kind, &self.pipeline_id, &self.details, (message, self.timestamp))
        };
        let kind = match self.state() {
            Some(IncidentState::Resolved) => RESOLVED_BY_HAND,
            Some(IncidentState::Acknowledged) => ACKNOWLEDGED_BY_HAND,
            Some(IncidentState::Open) | None => {
                return about(&opened, text(EVENT_MESSAGE).unwrap_or(&self.message));
            }
        };
        let mut event = about(kind, &self.line());
        event["detail"]["event"] = opened.into();
        event["detail"]["incident"] = self.incident().into();
        event
    }

    /// How the incident stands that it tells of; `None` for what is no incident, such as a dead letter.
    pub fn state(&self) -> Option<IncidentState> {
        self.details.get("state").and_then(Value::as_str).and_then(IncidentState::parse)
    }

    /// Whether it says that something is over.
    pub fn is_resolution(&self) -> bool {
        self.state() == Some(IncidentState::Resolved)
    }

    /// The dedup key of the incident that it tells of.
    pub fn incident(&self) -> Option<&str> {
        self.details.get("incident").and_then(Value::as_str)
    }

    /// What to do, in a sentence: of what is open, because of the rest nothing is to be done.
    pub fn action(&self) -> Option<&str> {
        if matches!(self.state(), Some(IncidentState::Resolved | IncidentState::Acknowledged)) {
            return None;
        }
        self.details.get(ACTION).and_then(Value::as_str)
    }

    /// Where it stands what to do.
    pub fn runbook(&self) -> Option<&str> {
        self.details.get(RUNBOOK).and_then(Value::as_str)
    }

    /// One word for what it says: how bad it is, or that somebody looks, or that it is over.
    pub fn word(&self) -> &str {
        match self.state() {
            Some(state @ (IncidentState::Resolved | IncidentState::Acknowledged)) => state.as_str(),
            Some(IncidentState::Open) | None => &self.level,
        }
    }

    /// What it says, in one line without control characters: a message may quote what a job printed. Who did it,
    /// and why, if a person did.
    pub fn line(&self) -> String {
        let text = |key: &str| self.details.get(key).and_then(Value::as_str);
        let mut line = self.message.clone();
        if let Some(by) = text("by") {
            line = format!("{line} ({} by {by}", self.word());
            line += &text("note").map_or_else(|| ")".to_owned(), |note| format!(": {note})"));
        }
        one_line(&line)
    }
}

/// What others wrote, without control characters.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// One line for people: what happened, what to do, and where more is said.
impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, line) = (self.word(), self.line());
        write!(f, "ALERT {word} {} {}: {line}", self.alert_type, self.pipeline_id)?;
        if let Some(action) = self.action() {
            write!(f, " -> {}", one_line(action))?;
        }
        match self.runbook().filter(|_| !self.is_resolution()) {
            Some(runbook) => write!(f, " [{}]", one_line(runbook)),
            None => Ok(()),
        }
    }
}
