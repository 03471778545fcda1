//! Versions, decoded again: what the store keeps of a declaration becomes the declaration.
//!
//! A recorded slot keeps the version that it was recorded under (S16), so a version outlives its file. The
//! store keeps the file's text and what it referred to, by kind and name: `defaults` and `timezone` of
//! `interlock.yaml`, `archetype/NAME`, `calendar/NAME`. Only what the file uses is kept.
//!
//! Zone data is not kept: a version from before a change of it is read with today's.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use super::{
    CONFIG_FILE, Context, Defaults, LoadedPipeline, checked, decoder, move_to, read_pipeline,
    surroundings,
};
use crate::{
    decode::{self, Environment},
    problem::{Problem, Problems, Severity, Text},
    shape::FileKind,
    source::{Origin, SourceFile},
    yaml::{Node, Value},
    zones::{self, ZoneSource},
};

const DEFAULTS: &str = "defaults";
const ZONE: &str = "timezone";

pub(super) fn calendar_key(name: &str) -> String {
    format!("calendar/{name}")
}

pub(super) fn archetype_key(name: &str) -> String {
    format!("archetype/{name}")
}

/// What a pipeline refers to, with `defaults:` already filled in.
pub(super) fn context_of(root: &Node, around: &Context) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    if let Some(defaults) = &around.defaults {
        // JSON is YAML without its surprises: what is read from it is what was written.
        found.insert(DEFAULTS.to_owned(), decode::json(&defaults.node).to_string());
    }
    if around.zone.name() != "UTC" {
        found.insert(ZONE.to_owned(), around.zone.name().to_owned());
    }
    let mut keys = Vec::new();
    keys.extend(root.get("archetype").and_then(Node::text).map(archetype_key));
    calendars(root, &mut keys);
    for key in keys {
        if let Some(text) = around.texts.get(&key) {
            found.insert(key, text.to_string());
        }
    }
    found
}

/// The calendars that a tree names, wherever. Too many do no harm.
fn calendars(node: &Node, keys: &mut Vec<String>) {
    match &node.value {
        Value::List(items) => items.iter().for_each(|item| calendars(item, keys)),
        Value::Map(entries) => {
            for entry in entries {
                if entry.key == "calendar" {
                    let names = entry.value.items().iter().filter_map(Node::text);
                    keys.extend(names.map(calendar_key));
                }
                calendars(&entry.value, keys);
            }
        }
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => {}
    }
}

/// Reads a version from what was kept of it; a sentence when that cannot be done.
pub fn decode_version(
    source: &str,
    context: &BTreeMap<String, String>,
    zones: &dyn ZoneSource,
    environment: Environment<'_>,
) -> Result<LoadedPipeline, String> {
    let mut around = Context::default();
    for (key, text) in context {
        add(&mut around, (key, text), zones, environment)?;
    }
    let path = Path::new("the stored version");
    let here = surroundings(zones, environment, &around);
    let read = read_pipeline((path, source), Text::Stored, &here, &around);
    read.pipeline.ok_or_else(|| complaint("the stored declaration", &read.problems))
}

fn add(
    around: &mut Context,
    (key, text): (&str, &str),
    zones: &dyn ZoneSource,
    environment: Environment<'_>,
) -> Result<(), String> {
    if key == ZONE {
        around.zone = zones::resolve(zones, text).map_err(|error| error.message)?;
        return Ok(());
    }
    let mut problems = Problems::of(Text::Stored);
    if key == DEFAULTS {
        let whole = format!("{{\"{DEFAULTS}\": {text}}}");
        let root = checked(&whole, FileKind::Config, &mut problems);
        if let Some(mut node) = root.and_then(|root| root.get(DEFAULTS).cloned()) {
            move_to(&mut node, Origin::Defaults);
            let file = Arc::new(SourceFile::unread(CONFIG_FILE));
            around.defaults = Some(Defaults { node, file });
        }
    } else if key.starts_with("calendar/") {
        let root = checked(text, FileKind::Calendar, &mut problems);
        let here = surroundings(zones, environment, around);
        let read = root.and_then(|root| decoder(&here, &mut problems).calendar(&root));
        if let Some(read) = read {
            around.calendars.insert(read.name.clone(), Arc::new(read));
        }
    } else if key.starts_with("archetype/") {
        let root = checked(text, FileKind::Archetype, &mut problems);
        let here = surroundings(zones, environment, around);
        let read = root.and_then(|root| decoder(&here, &mut problems).archetype(&root));
        if let Some(read) = read {
            around.archetypes.insert(read.name.clone(), read);
        }
    } else {
        return Err(format!("it refers to `{key}`, which this version does not know"));
    }
    around.texts.insert(key.to_owned(), text.into());
    if problems.has_errors() {
        let file = problems.source(Path::new(key), text);
        return Err(complaint(key, &problems.finish(&file, None)));
    }
    Ok(())
}

fn complaint(what: &str, problems: &[Problem]) -> String {
    let error = problems.iter().find(|problem| problem.severity == Severity::Error);
    let reason = error.map_or("it is empty", |problem| problem.message.as_str());
    format!("{what} cannot be read: {reason}")
}
