//! The names of keys, and where the row of a key is.
//!
//! A row is a field of a hash: `{prefix}:{kind}:{pipeline}`, by its key; pipelines and runs have a hash of their
//! own, as in the first Interlock, with the row in its field `row`. What is listed stands in sorted sets,
//! `{prefix}:index:…`, whose members begin with the pipeline and say where the row is. A space parts what they
//! are made of: it sorts before every character of a name, so that members sort like what they stand for.

use interlock_core::id::PipelineId;
use interlock_store::{Key, Role, RunKey, Shard, StoreError};
use interlock_store_remote::{Found, Stored, key_text, micros};
use jiff::Timestamp;

/// An entry of an index: the set, the member, and its score if it is to be there.
pub(crate) struct Entry {
    pub(crate) set: String,
    pub(crate) member: String,
    pub(crate) score: Option<i64>,
}

/// Names keys.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    pub(crate) prefix: String,
}

/// An instant with milliseconds, always: its text sorts by time.
pub(crate) fn fixed(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

impl Keys {
    /// A key with its prefix.
    pub(crate) fn name(&self, rest: &str) -> String {
        format!("{}:{rest}", self.prefix)
    }

    /// The keys of a shard on a cluster, given those of the home: another hash tag, so another slot.
    pub(crate) fn of_shard(&self, shard: Shard) -> Self {
        let tag = self.prefix.trim_end_matches('}');
        Self { prefix: format!("{tag}:{}}}", shard.0) }
    }

    pub(crate) fn index(&self, rest: &str) -> String {
        format!("{}:index:{rest}", self.prefix)
    }

    /// The lease of a role's shard, and the lock that shows it.
    pub(crate) fn lease(&self, role: Role, shard: Shard) -> [String; 2] {
        let place = format!("{}:{}", role.as_str(), shard.0);
        [self.name(&format!("lease:{place}")), self.name(&format!("lock:{place}"))]
    }

    /// Where a row is: its hash and field.
    pub(crate) fn address(&self, pipeline: &PipelineId, key: &Key) -> [String; 2] {
        match key {
            Key::Pipeline => [self.name(&format!("pipeline:{pipeline}")), "row".to_owned()],
            Key::Run(run) => [self.name(&format!("run:{}", run.id(pipeline))), "row".to_owned()],
            Key::Version(_)
            | Key::Watermark(_)
            | Key::Slot(..)
            | Key::Span(..)
            | Key::Sensor(_)
            | Key::Incident(_)
            | Key::Due(..)
            | Key::Outbox(_)
            | Key::Applied(_)
            | Key::Backfill(_) => [self.name(&format!("{}:{pipeline}", key.kind())), field(key)],
        }
    }

    /// The entries of a row in the indexes; all of them to be removed if nothing is stored.
    pub(crate) fn entries(
        &self,
        (pipeline, shard): (&PipelineId, Shard),
        key: &Key,
        stored: Option<&Stored>,
    ) -> Vec<Entry> {
        let member = member(pipeline, key);
        let at = stored.map(|stored| stored.at);
        let word = stored.map_or("", |stored| stored.word.as_str());
        let entry = |name: &str, score: Option<i64>| Entry {
            set: self.index(name),
            member: member.clone(),
            score,
        };
        let of = |name: &str| format!("{name}:{pipeline}");
        let here = |name: &str| format!("{name}:{}", shard.0);
        let zero = stored.map(|_| 0);
        match key {
            Key::Pipeline => vec![Entry {
                set: self.index(&here("pipelines")),
                member: pipeline.to_string(),
                score: zero,
            }],
            Key::Slot(schedule, nominal) => {
                let open = Entry {
                    set: self.index(&here("open")),
                    member: format!("{pipeline} {} {schedule}", fixed(*nominal)),
                    score: zero.filter(|_| word == "open"),
                };
                vec![entry("slots", at), entry(&of("slots"), at), open]
            }
            Key::Span(..) => {
                let last = stored.and_then(|stored| stored.until);
                vec![entry("spans", last), entry(&of("spans"), last)]
            }
            Key::Run(_) => {
                vec![entry("runs", at), entry(&of("runs"), at), entry(&of("attempts"), zero)]
            }
            Key::Incident(_) => {
                let open = entry(&here("incidents:open"), zero.filter(|_| word != "resolved"));
                vec![entry("incidents", at), entry(&of("incidents"), at), open]
            }
            Key::Due(..) => vec![entry(&here("due"), at)],
            Key::Outbox(_) => {
                let waiting = at.filter(|_| word == "waiting");
                vec![entry("outbox", waiting), entry("dead", at.filter(|_| word == "dead"))]
            }
            Key::Backfill(_) => vec![entry("backfills", zero)],
            Key::Version(_) | Key::Watermark(_) | Key::Sensor(_) | Key::Applied(_) => vec![],
        }
    }
}

/// The field of a row in its hash.
fn field(key: &Key) -> String {
    match key {
        Key::Slot(schedule, at) | Key::Span(schedule, at) => format!("{schedule} {}", fixed(*at)),
        Key::Pipeline
        | Key::Version(_)
        | Key::Watermark(_)
        | Key::Run(_)
        | Key::Sensor(_)
        | Key::Incident(_)
        | Key::Due(..)
        | Key::Outbox(_)
        | Key::Applied(_)
        | Key::Backfill(_) => key_text(key),
    }
}

/// The member that stands for a row, in all sets but those of pipelines and open slots.
pub(crate) fn member(pipeline: &PipelineId, key: &Key) -> String {
    match key {
        Key::Run(RunKey { schedule, nominal, generation, attempt }) => {
            format!("{pipeline} {schedule} {} {generation:010} {attempt:010}", fixed(*nominal))
        }
        Key::Pipeline
        | Key::Version(_)
        | Key::Watermark(_)
        | Key::Slot(..)
        | Key::Span(..)
        | Key::Sensor(_)
        | Key::Incident(_)
        | Key::Due(..)
        | Key::Outbox(_)
        | Key::Applied(_)
        | Key::Backfill(_) => format!("{pipeline} {}", field(key)),
    }
}

/// A row as it is written: the words that are searched, then the text.
pub(crate) fn rest(stored: &Stored) -> String {
    let word = |word: &str| if word.is_empty() { "-".to_owned() } else { word.replace(' ', "_") };
    format!("{} {} {}", word(&stored.word), word(&stored.more), stored.body)
}

/// Until when it is claimed, as it is written.
pub(crate) fn claimed(key: &Key, stored: &Stored) -> String {
    match (key, stored.until) {
        (Key::Outbox(_), Some(until)) => until.to_string(),
        _ => "-".to_owned(),
    }
}

/// Reads a row: its kind, the member that stands for it, and its value.
pub(crate) fn found(kind: &str, member: &str, value: &str) -> Result<Found, StoreError> {
    let (pipeline, place) = member.split_once(' ').unwrap_or((member, ""));
    let words: Vec<&str> = place.split(' ').collect();
    let text = match (kind, words.as_slice()) {
        ("slot" | "span", [schedule, instant]) | ("open", [instant, schedule]) => {
            format!("{schedule}/{instant}")
        }
        ("run", [schedule, instant, generation, attempt]) => {
            let plain = |number: &str| number.trim_start_matches('0').to_owned();
            let (generation, attempt) = (plain(generation), plain(attempt));
            let zero = |text: String| if text.is_empty() { "0".to_owned() } else { text };
            format!("{schedule}/{instant}/{}/{}", zero(generation), zero(attempt))
        }
        _ => place.to_owned(),
    };
    let kind = if kind == "open" { "slot" } else { kind };
    read(pipeline, (kind, &text), value)
}

/// Reads a row whose key is known.
pub(crate) fn read(
    pipeline: &str,
    (kind, text): (&str, &str),
    value: &str,
) -> Result<Found, StoreError> {
    let mut parts = value.splitn(5, ' ');
    let mut next = || parts.next().unwrap_or_default();
    let (revision, claimed, _word, _more, body) = (next(), next(), next(), next(), next());
    let revision = revision.parse().map_err(|_broken| {
        StoreError::permanent(format!(
            "the store holds what cannot be read: {kind}/{text} of {pipeline}"
        ))
    })?;
    Found::read(pipeline, (kind, text), revision, claimed.parse().ok(), body)
}

/// The score of an instant, as a bound.
pub(crate) fn score(at: Timestamp) -> String {
    micros(at).to_string()
}
