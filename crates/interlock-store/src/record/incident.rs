//! Incidents and the notifications that tell of them, as stored.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::{id::ScheduleId, incident::IncidentState};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Unreadable, Word};

/// Something a person should know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IncidentRecord {
    /// `open`, `acknowledged` or `resolved`.
    pub state: Word,
    /// The event type that opened it.
    pub kind: Word,
    /// `error`, `warning` or `info`.
    pub level: Word,
    /// For people.
    pub message: String,
    /// What it is about.
    #[serde(default)]
    pub details: BTreeMap<String, Value>,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// How many findings joined it.
    pub count: u64,
    /// The notification that tells of its opening, by name; a resolve is told if and only if there is one
    /// (S12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<String>,
    /// Who looks at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Box<HandRecord>>,
    /// Who called it over; nobody if that was found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Box<HandRecord>>,
    /// When it was opened before, the last few times.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub openings: Box<[Timestamp]>,
}

/// What a person did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandRecord {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: String,
    /// Why, or what else there is to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl IncidentRecord {
    /// Whether somebody should still look, or looks.
    pub fn is_open(&self) -> bool {
        self.standing() != Ok(IncidentState::Resolved)
    }

    /// How it stands.
    pub fn standing(&self) -> Result<IncidentState, Unreadable> {
        IncidentState::parse(&self.state).ok_or_else(|| Unreadable::Word(self.state.to_string()))
    }

    /// The slots that it tells of, if it tells of any: from its first, or that of its span, to the last that joined it.
    pub fn tells_of(&self) -> Option<TellsOf> {
        let text = |name| self.details.get(name).and_then(Value::as_str);
        let (schedule, slot) = text("slot")?.split_once('/')?;
        let slot: Timestamp = slot.parse().ok()?;
        let joined = text("lastSlot").and_then(|it| it.split_once('/')?.1.parse().ok());
        let first = text("span").and_then(|it| it.parse().ok()).unwrap_or(slot);
        let schedule = ScheduleId::any(schedule).ok()?;
        Some(TellsOf { schedule, first, last: joined.unwrap_or(slot).max(slot) })
    }
}

/// The slots that an incident tells of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TellsOf {
    /// Of which schedule.
    pub schedule: ScheduleId,
    /// The first of them.
    pub first: Timestamp,
    /// The last.
    pub last: Timestamp,
}

impl TellsOf {
    /// Whether a slot is one of them.
    pub fn holds(&self, nominal: Timestamp, schedule: &ScheduleId) -> bool {
        *schedule == self.schedule && (self.first..=self.last).contains(&nominal)
    }
}

/// A notification on its way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutboxRecord {
    /// Which channel; empty until the one who delivers has asked who gets it.
    pub channel: String,
    /// The alert as it is sent; those of its channels share it.
    #[serde(with = "shared")]
    pub alert: Arc<Value>,
    /// How often it was tried.
    pub tries: u32,
    /// Not to be tried before this.
    pub not_before: Timestamp,
    /// Who is trying, and until when nobody else may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_until: Option<Timestamp>,
    /// Why the last try failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Given up; visible until somebody deals with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dead: bool,
    /// The notification, as it was named before it had a channel, that must go out on a channel first; if
    /// that one is dead there, this one is not sent either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Why nobody is told yet: it is told only if the incident is still open when the reason is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
}

/// What is shared, written as if it were not.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::Value;

    pub(super) fn serialize<S: Serializer>(value: &Arc<Value>, to: S) -> Result<S::Ok, S::Error> {
        value.as_ref().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Value>, D::Error> {
        Value::deserialize(from).map(Arc::new)
    }
}
