//! `interlock incidents`: what people should know, and what nobody could be told.

use std::{io::Write as _, path::Path};

use interlock_core::{id::PipelineId, incident::Alert};
use interlock_store::OutboxRow;
use serde_json::Value;

use crate::{
    arguments::{IncidentsCommand, ListIncidents},
    exit::{Failure, SUCCESS},
    ledger::{IncidentRow, Ledger},
    ledger_json,
    output::{Form, Output, instant},
};

pub(super) fn run(
    directory: &Path,
    command: Option<&IncidentsCommand>,
    asked: &ListIncidents,
    output: &mut Output,
) -> Result<u8, Failure> {
    match command {
        None => list(directory, asked, output),
        Some(IncidentsCommand::List(asked)) => list(directory, asked, output),
        Some(IncidentsCommand::Dead { json }) => dead(directory, Form::asked(*json), output),
    }
}

fn list(directory: &Path, asked: &ListIncidents, output: &mut Output) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    let system = PipelineId::system();
    let pipeline = match asked.pipeline.as_deref() {
        Some(name) if name == system.as_str() => Some(system),
        Some(name) => Some(ledger.known(directory, name)?),
        None => None,
    };
    let page = ledger.incidents(pipeline.as_ref(), asked.limit as usize)?;
    if asked.json {
        output.json(&Value::Array(page.items.iter().map(ledger_json::incident).collect()))?;
        return Ok(SUCCESS);
    }
    if page.items.is_empty() {
        writeln!(output.out, "no incidents")?;
        return Ok(SUCCESS);
    }
    let rows: Vec<_> = page.items.iter().map(incident).collect();
    let headings = ["STATE", "LEVEL", "KIND", "PIPELINE", "SINCE", "COUNT", "KEY", "MESSAGE"];
    output.table(headings, &rows)?;
    if page.more {
        writeln!(output.err, "there are more; `--limit` says how many resolved ones are listed")?;
    }
    Ok(SUCCESS)
}

fn incident((pipeline, key, row): &IncidentRow) -> [String; 8] {
    let record = &row.record;
    [
        record.state.clone(),
        record.level.clone(),
        record.kind.clone(),
        pipeline.to_string(),
        instant(record.opened_at),
        record.count.to_string(),
        key.clone(),
        one_line(&record.message),
    ]
}

fn dead(directory: &Path, form: Form, output: &mut Output) -> Result<u8, Failure> {
    let page = Ledger::open(directory)?.dead_letters()?;
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
    Ok(SUCCESS)
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

/// What others wrote, in one line and without control characters.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
