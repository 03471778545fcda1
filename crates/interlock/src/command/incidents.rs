//! `interlock incidents`: what people should know, and what nobody could be told.

mod bulk;
mod groups;
mod matching;
mod test;
mod there;

use std::{io::Write as _, path::Path};

use interlock_answers::{
    LIMIT_MAX, StoredIncident,
    model::{incident::IncidentAnswer, page::PageQuery},
    table,
};
use interlock_core::{id::PipelineId, incident::Hand};
use interlock_store::{block_on, record::InboxRecord};
use serde_json::to_value;

use crate::{
    arguments::{HandleIncident, IncidentsCommand, ListIncidents},
    exit::Failure,
    inbox::Inbox,
    ledger::Ledger,
    output::{Form, Output},
    project_summary::Project,
    source::Source,
    target::Target,
};

use self::{groups::Groups, matching::Matching};

/// So many open ones are listed line by line; of more, a person first sees groups.
const LISTED_MAX: usize = 50;

/// So many resolved ones are looked through for a key.
const RESOLVED_LOOKED_AT: usize = 1_000;

pub(super) fn run(
    target: &Target,
    command: Option<&IncidentsCommand>,
    asked: &ListIncidents,
    output: &mut Output,
) -> Result<u8, Failure> {
    let directory: &Path = match target {
        Target::Project(directory) => directory,
        Target::Server(address) => {
            return there::run((address, target), command, asked, output);
        }
    };
    match command {
        None => list(directory, asked, output),
        Some(IncidentsCommand::List(asked)) => list(directory, asked, output),
        Some(IncidentsCommand::Ack(asked)) => handle(directory, Hand::Acknowledge, asked, output),
        Some(IncidentsCommand::Resolve(asked)) => handle(directory, Hand::Resolve, asked, output),
        Some(IncidentsCommand::Note(asked)) => note(directory, asked, output),
        Some(IncidentsCommand::Dead { json }) => dead(target, Form::asked(*json), output),
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
    let found = block_on(ledger.reader().incident_answers(&rows))?;
    print(&found, more, asked, output)?;
    ledger.conclude(matching.pipeline.as_ref(), output)
}

/// Prints a list, and whether there is more of it.
#[expect(clippy::fn_params_excessive_bools, reason = "one fact about the list")]
fn print(
    found: &[IncidentAnswer],
    more: bool,
    asked: &ListIncidents,
    output: &mut Output,
) -> Result<(), Failure> {
    if asked.json {
        output.json(&to_value(found).unwrap_or_default())?;
    } else if found.is_empty() {
        let which = if asked.all { "" } else { "open " };
        let that = if asked.filter.is_about_declarations() || !asked.filter.kinds.is_empty() {
            " match"
        } else {
            ""
        };
        writeln!(output.out, "no {which}incidents{that}")?;
    } else {
        let lines: Vec<_> = found.iter().map(table::incident_row).collect();
        output.table(table::INCIDENTS, &lines)?;
        if more {
            writeln!(
                output.err,
                "there are more; `--limit` says how many resolved ones are listed"
            )?;
        }
    }
    Ok(())
}

/// Adds a note.
fn note(directory: &Path, asked: &HandleIncident, output: &mut Output) -> Result<u8, Failure> {
    check_note(asked)?;
    handle(directory, Hand::Note, asked, output)
}

fn check_note(asked: &HandleIncident) -> Result<(), Failure> {
    if asked.note.is_none() {
        return Err(Failure::usage("a note needs a text", "Write it with `--note TEXT`."));
    }
    Ok(())
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
    let exact: Vec<&StoredIncident> = all.iter().filter(|(_, key, _)| key == id).collect();
    let found = if exact.is_empty() {
        let begins = |row: &&StoredIncident| row.1.starts_with(id) && row.2.record.is_open();
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

fn dead(target: &Target, form: Form, output: &mut Output) -> Result<u8, Failure> {
    let source = Source::open(target, output)?;
    let asked = PageQuery { after: None, limit: Some(LIMIT_MAX) };
    let page = source.dead_letters(&asked)?;
    match form {
        Form::Json => output.json(&to_value(&page.items).unwrap_or_default())?,
        Form::Text if page.items.is_empty() => writeln!(output.out, "no dead letters")?,
        Form::Text => {
            let rows: Vec<_> = page.items.iter().map(table::dead_letter_row).collect();
            output.table(table::DEAD_LETTERS, &rows)?;
        }
    }
    if page.next.is_some() {
        writeln!(output.err, "there are more; only the first are listed")?;
    }
    source.conclude(None, output)
}
