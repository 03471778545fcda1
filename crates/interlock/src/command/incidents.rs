//! `interlock incidents`: what people should know, and what nobody could be told.

mod bulk;
mod groups;
mod matching;
mod test;

use std::{io::Write as _, path::Path};

use interlock_core::{
    id::PipelineId,
    incident::{Alert, Hand},
};
use interlock_store::{
    OutboxRow,
    record::InboxRecord,
    story::{self, one_line},
};
use serde_json::Value;

use crate::{
    arguments::{HandleIncident, IncidentsCommand, ListIncidents},
    exit::Failure,
    inbox::Inbox,
    ledger::{IncidentRow, Ledger},
    ledger_json,
    output::{Form, Output},
    project_summary::Project,
};

use self::{groups::Groups, matching::Matching};

/// So many open ones are listed line by line; of more, a person first sees groups.
const LISTED_MAX: usize = 50;

/// So many resolved ones are looked through for a key.
const RESOLVED_LOOKED_AT: usize = 1_000;

pub(super) fn run(
    directory: &Path,
    command: Option<&IncidentsCommand>,
    asked: &ListIncidents,
    output: &mut Output,
) -> Result<u8, Failure> {
    match command {
        None => list(directory, asked, output),
        Some(IncidentsCommand::List(asked)) => list(directory, asked, output),
        Some(IncidentsCommand::Ack(asked)) => handle(directory, Hand::Acknowledge, asked, output),
        Some(IncidentsCommand::Resolve(asked)) => handle(directory, Hand::Resolve, asked, output),
        Some(IncidentsCommand::Dead { json }) => dead(directory, Form::asked(*json), output),
        Some(IncidentsCommand::Test { channel, json }) => {
            test::run(directory, channel, Form::asked(*json), output)
        }
    }
}

/// The pipeline that a command names: one that the ledger or the files know, or `_system`.
fn named(
    directory: &Path,
    ledger: &Ledger,
    name: Option<&str>,
) -> Result<Option<PipelineId>, Failure> {
    name.map(|name| ledger.known_or_system(directory, name)).transpose()
}

fn list(directory: &Path, asked: &ListIncidents, output: &mut Output) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    let matching = Matching::of(directory, &ledger, &asked.filter)?;
    let mut rows = ledger.open_incidents(matching.pipeline.as_ref())?;
    rows.retain(|row| matching.holds(row));
    let is_many = rows.len() > LISTED_MAX && !asked.all && !asked.filter.is_set() && !asked.json;
    if is_many || asked.group_by.is_some() {
        let project = Project::open(directory, ledger.place());
        let groups = Groups { project: &project.summary, rows: &rows, asked };
        groups.print(output)?;
        return ledger.conclude(matching.pipeline.as_ref(), output);
    }
    let mut more = false;
    if asked.all {
        let resolved = matching.resolved(&ledger, asked.limit as usize)?;
        more = resolved.more;
        rows.extend(resolved.items);
    }
    let held = ledger.held(&rows)?;
    let both = rows.iter().zip(&held);
    if asked.json {
        let objects = both.map(|(row, held)| ledger_json::incident(row, held.as_deref()));
        output.json(&Value::Array(objects.collect()))?;
    } else if rows.is_empty() {
        let which = if asked.all { "" } else { "open " };
        let that = if asked.filter.is_about_declarations() || !asked.filter.kinds.is_empty() {
            " match"
        } else {
            ""
        };
        writeln!(output.out, "no {which}incidents{that}")?;
    } else {
        let lines: Vec<_> = both.map(|(row, held)| incident(row, held.as_deref())).collect();
        output.table(story::INCIDENTS, &lines)?;
        if more {
            writeln!(
                output.err,
                "there are more; `--limit` says how many resolved ones are listed"
            )?;
        }
    }
    ledger.conclude(matching.pipeline.as_ref(), output)
}

fn incident((pipeline, key, row): &IncidentRow, held: Option<&str>) -> [String; 8] {
    story::incident_row(pipeline, key, &row.record, held)
}

/// Acknowledges or resolves one incident, or all that match.
fn handle(
    directory: &Path,
    hand: Hand,
    asked: &HandleIncident,
    output: &mut Output,
) -> Result<u8, Failure> {
    let Some(id) = &asked.id else { return bulk::run(directory, hand, asked, output) };
    let ledger = Ledger::open(directory)?;
    let pipeline = named(directory, &ledger, asked.filter.pipeline.as_deref())?;
    let (pipeline, key) = find(&ledger, pipeline.as_ref(), id)?;
    let record = hand_record(hand, asked, key);
    Inbox::of(directory, ledger, pipeline).send(&record, asked.sending, output)
}

fn hand_record(hand: Hand, asked: &HandleIncident, key: String) -> InboxRecord {
    InboxRecord::Incident {
        key,
        hand: hand.as_str().to_owned(),
        by: asked.by.name(),
        note: asked.note.clone(),
    }
}

/// The incident with a key, or the only open one whose key begins so.
fn find(
    ledger: &Ledger,
    pipeline: Option<&PipelineId>,
    id: &str,
) -> Result<(PipelineId, String), Failure> {
    let all = ledger.incidents(pipeline, RESOLVED_LOOKED_AT)?.items;
    let exact: Vec<&IncidentRow> = all.iter().filter(|(_, key, _)| key == id).collect();
    let found = if exact.is_empty() {
        let begins = |row: &&IncidentRow| row.1.starts_with(id) && row.2.record.is_open();
        all.iter().filter(begins).collect()
    } else {
        exact
    };
    match found.as_slice() {
        [(pipeline, key, _)] => Ok((pipeline.clone(), key.clone())),
        // It may be where nobody can look now.
        [] if !ledger.lacks().is_empty() => Err(Failure::failed(
            format!("there is no incident `{id}` among those that can be read now"),
            format!("Try again when all can be: {}.", ledger.lacks().join("; ")),
        )),
        [] => Err(Failure::refused(
            format!("there is no incident `{id}`"),
            "`interlock incidents` lists them by KEY.",
        )),
        several => {
            let keys: Vec<_> =
                several.iter().map(|(name, key, _)| format!("{key} of {name}")).collect();
            Err(Failure::refused(
                format!("several incidents begin with `{id}`: {}", keys.join(", ")),
                "Write more of the key, or name its pipeline with `--pipeline`.",
            ))
        }
    }
}

fn dead(directory: &Path, form: Form, output: &mut Output) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    let page = ledger.dead_letters()?;
    match form {
        Form::Json => {
            output
                .json(&Value::Array(page.items.iter().map(ledger_json::dead_letter).collect()))?;
        }
        Form::Text if page.items.is_empty() => writeln!(output.out, "no dead letters")?,
        Form::Text => {
            let rows: Vec<_> = page.items.iter().map(dead_letter).collect();
            output.table(["CHANNEL", "PIPELINE", "TYPE", "TRIES", "ERROR", "MESSAGE"], &rows)?;
        }
    }
    if page.more {
        writeln!(output.err, "there are more; only the first are listed")?;
    }
    ledger.conclude(None, output)
}

fn dead_letter(row: &OutboxRow) -> [String; 6] {
    let alert = Alert::from_json(&row.record.alert);
    [
        row.record.channel.clone(),
        row.pipeline.to_string(),
        alert.alert_type,
        row.record.tries.to_string(),
        one_line(row.record.last_error.as_deref().unwrap_or_default()),
        one_line(&alert.message),
    ]
}
