//! Records as text, for engines that keep text.
//!
//! The text is compact JSON, and `"v"` comes first: the format. A reader refuses a format later than its
//! own ([`Unreadable::Newer`]), because it cannot know what it would lose; within a format it ignores
//! fields that it does not know. So a field may be added as long as old readers may overlook it and new
//! ones may miss it; anything else is a new format. Events, inbox entries and what instances say of
//! themselves are not rows, and have their own way in and out.

use std::sync::Arc;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    key::Key,
    record::{EventRecord, FORMAT, InboxRecord, InstanceRecord, Record, Unreadable},
};

impl Record {
    /// Its text.
    pub fn encode(&self) -> String {
        match self {
            Self::Pipeline(record) => write(record.as_ref()),
            Self::Version(record) => write(record.as_ref()),
            Self::Watermark(record) => write(record),
            Self::Slot(record) => write(record.as_ref()),
            Self::Span(record) => write(record.as_ref()),
            Self::Run(record) => write(record.as_ref()),
            Self::Sensor(record) => write(record.as_ref()),
            Self::Incident(record) => write(record.as_ref()),
            Self::Due(record) => write(record),
            Self::Outbox(record) => write(record.as_ref()),
            Self::Applied(record) => write(record.as_ref()),
            Self::Backfill(record) => write(record.as_ref()),
        }
    }

    /// The record of a row; its kind is the key's.
    pub fn decode(key: &Key, text: &str) -> Result<Self, Unreadable> {
        let what = key.kind();
        match key {
            Key::Pipeline => read(what, text).map(Arc::new).map(Self::Pipeline),
            Key::Version(_) => read(what, text).map(Arc::new).map(Self::Version),
            Key::Watermark(_) => read(what, text).map(Self::Watermark),
            Key::Slot(..) => read(what, text).map(Arc::new).map(Self::Slot),
            Key::Span(..) => read(what, text).map(Arc::new).map(Self::Span),
            Key::Run(_) => read(what, text).map(Arc::new).map(Self::Run),
            Key::Sensor(_) => read(what, text).map(Arc::new).map(Self::Sensor),
            Key::Incident(_) => read(what, text).map(Arc::new).map(Self::Incident),
            Key::Due(..) => read(what, text).map(Self::Due),
            Key::Outbox(_) => read(what, text).map(Arc::new).map(Self::Outbox),
            Key::Applied(_) => read(what, text).map(Arc::new).map(Self::Applied),
            Key::Backfill(_) => read(what, text).map(Arc::new).map(Self::Backfill),
        }
    }
}

impl EventRecord {
    /// Its text.
    pub fn encode(&self) -> String {
        write(self)
    }

    /// The event that a text stands for.
    pub fn decode(text: &str) -> Result<Self, Unreadable> {
        read("event", text)
    }
}

impl InstanceRecord {
    /// Its text.
    pub fn encode(&self) -> String {
        write(self)
    }

    /// What an instance said, of a text.
    pub fn decode(text: &str) -> Result<Self, Unreadable> {
        read("report of an instance", text)
    }
}

impl InboxRecord {
    /// Its text; of what could not be read, what was found.
    pub fn encode(&self) -> String {
        if let Self::Unreadable { text, .. } = self { text.clone() } else { write(self) }
    }

    /// The entry that a text of an inbox stands for, whatever that is: one that nobody can read must not be in the way of
    /// the others.
    pub fn read(text: &str) -> Self {
        Self::decode(text).unwrap_or_else(|unreadable| Self::Unreadable {
            text: text.to_owned(),
            reason: unreadable.to_string(),
        })
    }

    /// What tells it from another request under the same idempotency key; none of what no caller waits for. Of a sensor it has two
    /// parts, without and with its time (`value.time`): the receiver fills in the time that a caller leaves out, so a repeat
    /// without a time is compared by the first part alone. See [`Self::is_repeat`].
    pub fn fingerprint(&self) -> Option<String> {
        let hash =
            |it: &Self| format!("{:016x}", interlock_core::id::fnv1a(it.encode().as_bytes()));
        if let Self::Report(report) = self {
            return report.fingerprint.clone();
        }
        if let Self::Asked { asker, what } = self {
            return asker.fingerprint.clone().or_else(|| what.fingerprint());
        }
        if let Self::Sensor { key, value, at: _ } = self {
            let (key, value, at) = (key.clone(), value.clone(), jiff::Timestamp::UNIX_EPOCH);
            let untimed = Self::Sensor { key, value, at };
            return Some(format!("{}.{}", hash(&untimed), hash(self)));
        }
        (!matches!(self, Self::Job { .. })).then(|| hash(self))
    }

    /// Whether a request with this fingerprint may be the repeat of an earlier one.
    pub fn is_repeat(earlier: &str, fingerprint: &str) -> bool {
        earlier == fingerprint
            || earlier.split_once('.').is_some_and(|(first, _)| first == fingerprint)
    }

    /// The report or request that a text stands for.
    pub fn decode(text: &str) -> Result<Self, Unreadable> {
        read("inbox entry", text)
    }
}

/// The part of every record that is read first.
#[derive(Deserialize)]
struct Head {
    v: u16,
}

fn write<T: Serialize>(record: &T) -> String {
    let body = serde_json::to_string(record).expect("records hold only what JSON can say");
    match body.strip_prefix('{') {
        Some("}") | None => format!(r#"{{"v":{FORMAT}}}"#),
        Some(fields) => format!(r#"{{"v":{FORMAT},{fields}"#),
    }
}

fn read<T: DeserializeOwned>(what: &'static str, text: &str) -> Result<T, Unreadable> {
    let broken = |error: serde_json::Error| Unreadable::Broken { what, reason: error.to_string() };
    let head: Head = serde_json::from_str(text).map_err(broken)?;
    if head.v > FORMAT {
        return Err(Unreadable::Newer { found: head.v, known: FORMAT });
    }
    serde_json::from_str(text).map_err(broken)
}
