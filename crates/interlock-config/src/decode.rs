//! From a checked tree to core types, one file per section.
//!
//! The structural check has already removed what is unknown or of the wrong kind, so a decoder only
//! asks what texts mean. It reports every mistake at its exact characters and goes on; whether the
//! whole can be used is decided once, at the end, by whether an error was reported.

pub(crate) mod archetype;
pub(crate) mod days;
mod job;
mod moment;
pub(crate) mod pipeline;
mod readiness;
mod schedule;
pub(crate) mod server;

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::{
    calendar::Calendar,
    duration::{self, Units},
    pipeline::Secret,
    text::TextError,
    zone::Zone,
};
use jiff::SignedDuration;

use self::archetype::Archetype;
use crate::{
    placeholder::{self, Kind},
    problem::{Code, Problems},
    suggest,
    yaml::{Node, Value},
    zones::{self, ZoneSource},
};

/// Looks up an environment variable.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What files refer to.
pub(crate) struct Surroundings<'a> {
    pub(crate) zones: &'a dyn ZoneSource,
    pub(crate) environment: Environment<'a>,
    pub(crate) calendars: &'a BTreeMap<String, Arc<Calendar>>,
    pub(crate) archetypes: &'a BTreeMap<String, Archetype>,
    /// The zone of pipelines that name none.
    pub(crate) zone: Zone,
}

/// Reads meaning, and notes what has none.
pub(crate) struct Decoder<'a> {
    pub(crate) around: &'a Surroundings<'a>,
    pub(crate) problems: &'a mut Problems,
}

impl Decoder<'_> {
    /// Reads a text with a parser of short texts; a mistake is reported at its characters.
    fn read<T>(
        &mut self,
        node: &Node,
        code: Code,
        parse: impl FnOnce(&str) -> Result<T, TextError>,
    ) -> Option<T> {
        match parse(node.text()?) {
            Ok(value) => Some(value),
            Err(error) => {
                let span = node.span_within(error.span.clone());
                self.problems.add_text(span, code, error);
                None
            }
        }
    }

    /// A duration in `s m h d`.
    fn duration(&mut self, map: &Node, key: &str) -> Option<SignedDuration> {
        let node = map.get(key)?;
        self.read(node, Code::Duration, |text| duration::parse(text, Units::SecondsToDays))
    }

    /// A time limit: a duration down to milliseconds, or a number of seconds; none for zero.
    fn seconds(&mut self, map: &Node, key: &str) -> Option<SignedDuration> {
        let node = map.get(key)?;
        if let Value::Int(seconds) = node.value {
            return (seconds > 0).then(|| SignedDuration::from_secs(seconds));
        }
        self.read(node, Code::Duration, |text| duration::parse(text, Units::MillisecondsToDays))
    }

    /// A time zone.
    fn zone(&mut self, map: &Node, key: &str) -> Option<Zone> {
        let node = map.get(key)?;
        let around = self.around;
        // Looking for a similar name takes time for every zone there is.
        let explain = !self.problems.is_full();
        self.read(node, Code::Zone, |text| match around.zones.zone(text) {
            Some(zone) => Ok(zone),
            None if explain => Err(zones::refusal(around.zones, text)),
            None => Err(TextError::new(0..0, "", "")),
        })
    }

    /// Values whose `${ENV}` are replaced when they are used; one that is not set now is a warning,
    /// because the job may run on another host.
    fn hidden_values(&mut self, map: &Node, key: &str) -> BTreeMap<String, Secret> {
        let Some(node) = map.get(key) else { return BTreeMap::new() };
        for entry in node.entries() {
            self.warn_unset(&entry.value);
        }
        node.entries()
            .iter()
            .filter_map(|entry| Some((entry.key.clone(), Secret::new(entry.value.text()?))))
            .collect()
    }

    fn warn_unset(&mut self, node: &Node) {
        for found in placeholder::find(node.text().unwrap_or("")) {
            if found.kind == Kind::Environment && (self.around.environment)(found.name).is_none() {
                self.problems.add(
                    node.span_within(found.span),
                    Code::VariableMissingNow,
                    format!("the environment variable `{}` is not set here", found.name),
                    "It must be set where Interlock runs.",
                );
            }
        }
    }

    /// A reference to something that other files define.
    fn known<'n, T>(
        &mut self,
        node: &'n Node,
        what: &str,
        code: Code,
        known: &BTreeMap<String, T>,
    ) -> Option<&'n str> {
        let name = node.text()?;
        if known.contains_key(name) {
            return Some(name);
        }
        let names: Vec<_> = known.keys().map(String::as_str).collect();
        let help = if names.is_empty() {
            format!("No file defines any {what}.")
        } else {
            suggest::did_you_mean_or_list(name, "There are", &names)
        };
        self.problems.add(node.span, code, format!("there is no {what} `{name}`"), help);
        None
    }
}

/// A text of a map.
fn text(map: &Node, key: &str) -> Option<String> {
    map.get(key).and_then(Node::text).map(str::to_owned)
}

/// A boolean of a map.
fn flag(map: &Node, key: &str) -> Option<bool> {
    if let Value::Bool(value) = map.get(key)?.value { Some(value) } else { None }
}

/// A whole number of a map; the structural check has made sure of its range.
fn count(map: &Node, key: &str) -> Option<u32> {
    if let Value::Int(value) = map.get(key)?.value { u32::try_from(value).ok() } else { None }
}

/// Any number of a map.
#[expect(clippy::cast_precision_loss, reason = "thresholds are far below 2^52")]
fn number(map: &Node, key: &str) -> Option<f64> {
    match map.get(key)?.value {
        Value::Int(value) => Some(value as f64),
        Value::Float(value) => Some(value),
        Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => None,
    }
}

/// The texts of a list, or the one text.
fn texts(map: &Node, key: &str) -> Vec<String> {
    let items = map.get(key).map(Node::items).unwrap_or_default();
    items.iter().filter_map(|item| item.text().map(str::to_owned)).collect()
}

/// Texts by the user's keys.
fn dict(map: &Node, key: &str) -> BTreeMap<String, String> {
    let entries = map.get(key).map(Node::entries).unwrap_or_default();
    entries.iter().filter_map(|e| Some((e.key.clone(), e.value.text()?.to_owned()))).collect()
}

/// A value as JSON.
pub(crate) fn json(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(value) => (*value).into(),
        Value::Float(value) => (*value).into(),
        Value::Text(text) => text.value.clone().into(),
        Value::List(items) => items.iter().map(json).collect(),
        Value::Map(entries) => {
            entries.iter().map(|entry| (entry.key.clone(), json(&entry.value))).collect()
        }
    }
}

/// JSON by the user's keys.
fn json_dict(map: &Node, key: &str) -> BTreeMap<String, serde_json::Value> {
    let entries = map.get(key).map(Node::entries).unwrap_or_default();
    entries.iter().map(|entry| (entry.key.clone(), json(&entry.value))).collect()
}
