//! A row as it is kept on a server.

use interlock_store::{
    Key, Record,
    record::{OutboxRecord, SlotRecord},
};
use jiff::Timestamp;

/// A row's text, and what it is ordered and searched by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// When: a slot's instant, a run's creation, an incident's opening, when something is due or may be tried.
    pub at: i64,
    /// A second instant: a span's last, the slot of a run, until when a notification is claimed.
    pub until: Option<i64>,
    /// The schedule, or the name that is the key.
    pub name: String,
    /// A number: of a version or backfill, or generation and attempt of a run.
    pub rank: i64,
    /// How it stands: `open` or the disposition, a run's status, an incident's state, what is due.
    pub word: String,
    /// A run's trigger type.
    pub more: String,
    /// The record's text. That a notification is claimed is not in it: a claim changes no text.
    pub body: String,
}

impl Stored {
    /// What is kept of a row.
    pub fn of(key: &Key, record: &Record) -> Self {
        let mut stored = Self {
            at: key.instant().map_or(0, micros),
            until: None,
            name: String::new(),
            rank: 0,
            word: String::new(),
            more: String::new(),
            body: String::new(),
        };
        stored.address(key);
        stored.search(record);
        stored.body = match record {
            Record::Outbox(outbox) => unclaimed(outbox),
            Record::Pipeline(_)
            | Record::Version(_)
            | Record::Watermark(_)
            | Record::Slot(_)
            | Record::Span(_)
            | Record::Run(_)
            | Record::Sensor(_)
            | Record::Incident(_)
            | Record::Due(_)
            | Record::Applied(_)
            | Record::Backfill(_) => record.encode(),
        };
        stored
    }

    fn address(&mut self, key: &Key) {
        match key {
            Key::Pipeline => {}
            Key::Version(number) | Key::Backfill(number) => self.rank = *number as i64,
            Key::Watermark(schedule) | Key::Slot(schedule, _) | Key::Span(schedule, _) => {
                schedule.as_str().clone_into(&mut self.name);
            }
            Key::Run(run) => {
                run.schedule.as_str().clone_into(&mut self.name);
                self.until = Some(micros(run.nominal));
                self.rank = (i64::from(run.generation) << 32) | i64::from(run.attempt);
            }
            Key::Sensor(name) | Key::Incident(name) | Key::Outbox(name) | Key::Applied(name) => {
                name.clone_into(&mut self.name);
            }
            Key::Due(_, kind, name) => {
                name.clone_into(&mut self.name);
                kind.as_str().clone_into(&mut self.word);
            }
        }
    }

    fn search(&mut self, record: &Record) {
        match record {
            Record::Slot(slot) => standing(slot).clone_into(&mut self.word),
            Record::Span(span) => {
                self.until = Some(micros(span.last));
                self.word = span.disposition.to_string();
            }
            Record::Run(run) => {
                self.at = micros(run.created_at);
                self.word = run.status.to_string();
                self.more = run.trigger_type.to_string();
            }
            Record::Incident(incident) => {
                self.at = micros(incident.opened_at);
                self.word = incident.state.to_string();
            }
            Record::Outbox(outbox) => {
                self.at = micros(outbox.not_before);
                self.until = outbox.claimed_until.map(micros);
                let word = if outbox.dead { "dead" } else { "waiting" };
                word.clone_into(&mut self.word);
            }
            Record::Backfill(backfill) => {
                let word = if backfill.is_unfinished() { "unfinished" } else { "over" };
                word.clone_into(&mut self.word);
            }
            Record::Pipeline(_)
            | Record::Version(_)
            | Record::Watermark(_)
            | Record::Sensor(_)
            | Record::Due(_)
            | Record::Applied(_) => {}
        }
    }
}

fn unclaimed(outbox: &OutboxRecord) -> String {
    Record::Outbox(OutboxRecord { claimed_until: None, ..outbox.clone() }.into()).encode()
}

/// How a slot stands: `open`, or its disposition.
fn standing(slot: &SlotRecord) -> &str {
    if slot.is_open() { "open" } else { slot.disposition.as_deref().unwrap_or_default() }
}

/// The text of a key within its kind and pipeline.
pub fn key_text(key: &Key) -> String {
    let text = key.to_string();
    text.split_once('/').map(|(_, rest)| rest.to_owned()).unwrap_or_default()
}

/// An instant as it is kept: microseconds since 1970.
pub fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

/// The first kept instant that is not before this one, so that `from ≤ kept` stays true.
pub fn rounded_up(at: Timestamp) -> i64 {
    let whole = micros(at);
    let is_whole = Timestamp::from_microsecond(whole).is_ok_and(|whole| whole >= at);
    if is_whole { whole } else { whole.saturating_add(1) }
}
