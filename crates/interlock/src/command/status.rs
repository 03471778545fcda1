//! `interlock status`: where each pipeline stands.

use std::{collections::BTreeMap, io::Write as _, path::Path};

use interlock_answers::{
    model::pipeline::{PipelineAnswer, SlotStateAnswer},
    table,
};
use interlock_core::id::PipelineId;
use interlock_store::block_on;
use serde_json::{Value, to_value};

use crate::{
    exit::Failure,
    ledger::Ledger,
    output::{Form, Output, instant},
    owners,
};

pub(super) fn run(
    directory: &Path,
    pipeline: Option<&str>,
    form: Form,
    output: &mut Output,
) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    ledger.declarations().mention_errors(output)?;
    let only = pipeline.map(|name| ledger.known(directory, name)).transpose()?;
    let standings = block_on(ledger.reader().standings(only.as_ref()))?;
    if form == Form::Json {
        // Of what nobody can tell, nothing is said: all fields would be those of one that was never seen.
        let told = standings.iter().filter(|standing| !is_away(&ledger, standing));
        let told = told.map(|standing| to_value(standing).unwrap_or_default());
        output.json(&Value::Array(told.collect()))?;
    } else {
        print(&standings, &ledger, output)?;
    }
    ledger.conclude(only.as_ref(), output)
}

/// Whether its records cannot be read now.
fn is_away(ledger: &Ledger, standing: &PipelineAnswer) -> bool {
    let name = PipelineId::parse(&standing.declared.pipeline);
    name.is_ok_and(|name| ledger.away(&name).is_some())
}

fn to_row(standing: &PipelineAnswer, ledger: &Ledger) -> [String; 6] {
    let last = standing.last.as_ref();
    [
        standing.declared.pipeline.clone(),
        last.map_or_else(String::new, |slot| slot.utc.to_string()),
        last.map_or_else(String::new, table::state),
        open_states(&standing.open),
        standing.declared.next.as_ref().map_or_else(String::new, |next| next.utc.to_string()),
        notes(standing, ledger).join("; "),
    ]
}

/// What is out of the ordinary about it.
fn notes(standing: &PipelineAnswer, ledger: &Ledger) -> Vec<String> {
    let mut notes = Vec::new();
    if is_away(ledger, standing) {
        notes.push("cannot be read: its shard cannot be reached".to_owned());
    } else if standing.first_seen.is_none() {
        notes.push("not seen by `interlock serve` yet".to_owned());
    }
    if standing.retired_at.is_some() {
        notes.push("retired".to_owned());
    }
    if standing.disabled {
        notes.push("disabled in its file".to_owned());
    }
    notes.extend(standing.paused.as_ref().map(|pause| match pause.until {
        Some(until) => format!("paused until {}: {}", instant(until), pause.reason),
        None => format!("paused: {}", pause.reason),
    }));
    notes.extend(standing.backfills.iter().map(|it| {
        format!("backfill {} is {}, {} of {} ended", it.id, it.state, it.ended, it.total)
    }));
    notes
}

/// How many slots are open, by state: `2 waiting, 1 running`.
fn open_states(open: &[SlotStateAnswer]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for slot in open {
        *counts.entry(table::state(slot)).or_default() += 1;
    }
    counts.iter().map(|(state, count)| format!("{count} {state}")).collect::<Vec<_>>().join(", ")
}

fn print(
    standings: &[PipelineAnswer],
    ledger: &Ledger,
    output: &mut Output,
) -> Result<(), Failure> {
    if !ledger.is_served() {
        writeln!(output.err, "no `interlock serve` is running here; this is what was recorded")?;
    }
    if standings.is_empty() {
        writeln!(output.out, "there are no pipelines")?;
        return Ok(());
    }
    let rows: Vec<_> = standings.iter().map(|standing| to_row(standing, ledger)).collect();
    output.table(["PIPELINE", "LAST SLOT", "STATE", "OPEN", "NEXT SLOT", "NOTE"], &rows)?;
    let owners = owners::sentence(ledger.roll()?.as_ref(), ledger.store().shard_count());
    if let Some(owners) = owners {
        writeln!(output.out, "shards {owners}")?;
    }
    Ok(())
}
