//! `interlock status`: where each pipeline stands.

use std::{collections::BTreeMap, io::Write as _};

use interlock_answers::{
    model::pipeline::{PipelineAnswer, SlotStateAnswer},
    table,
};
use serde_json::{Value, to_value};

use crate::{
    exit::Failure,
    output::{Form, Output, instant},
    source::Source,
    target::Target,
};

pub(super) fn run(
    target: &Target,
    pipeline: Option<&str>,
    form: Form,
    output: &mut Output,
) -> Result<u8, Failure> {
    let source = Source::open(target, output)?;
    source.mention_errors(output)?;
    let only = pipeline.map(|name| source.known(name)).transpose()?;
    let standings = source.standings(only.as_ref())?;
    if form == Form::Json {
        // Of what nobody can tell, nothing is said: all fields would be those of one that was never seen.
        let told = standings.iter().filter(|standing| !is_away(&source, standing));
        let told = told.map(|standing| to_value(standing).unwrap_or_default());
        output.json(&Value::Array(told.collect()))?;
    } else {
        print(&standings, &source, output)?;
    }
    source.conclude(only.as_ref(), output)
}

/// Whether its records cannot be read now.
fn is_away(source: &Source, standing: &PipelineAnswer) -> bool {
    source.is_away(&standing.declared.pipeline)
}

fn to_row(standing: &PipelineAnswer, source: &Source) -> [String; 6] {
    let last = standing.last.as_ref();
    [
        standing.declared.pipeline.clone(),
        last.map_or_else(String::new, |slot| slot.utc.to_string()),
        last.map_or_else(String::new, table::state),
        open_states(&standing.open),
        standing.declared.next.as_ref().map_or_else(String::new, |next| next.utc.to_string()),
        notes(standing, source).join("; "),
    ]
}

/// What is out of the ordinary about it.
fn notes(standing: &PipelineAnswer, source: &Source) -> Vec<String> {
    let mut notes = Vec::new();
    if is_away(source, standing) {
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
    source: &Source,
    output: &mut Output,
) -> Result<(), Failure> {
    if !source.is_served() {
        writeln!(output.err, "no `interlock serve` is running here; this is what was recorded")?;
    }
    if standings.is_empty() {
        writeln!(output.out, "there are no pipelines")?;
        return Ok(());
    }
    let rows: Vec<_> = standings.iter().map(|standing| to_row(standing, source)).collect();
    output.table(["PIPELINE", "LAST SLOT", "STATE", "OPEN", "NEXT SLOT", "NOTE"], &rows)?;
    if let Some(owners) = source.owners()? {
        writeln!(output.out, "shards {owners}")?;
    }
    Ok(())
}
