//! `interlock catchup`: what is owed from before and what becomes of it, slot by slot; and, without `--dry-run`,
//! that it be done now.
//!
//! The plan is the engine's own, made from the same rows (S5).

mod there;

use std::{io::Write as _, path::Path};

use interlock_answers::{Reader, line_answers};
use interlock_engine::PlanLine;
use interlock_store::{block_on, record::InboxRecord};
use jiff::Timestamp;
use serde_json::to_value;

use crate::{
    arguments::Catchup,
    clock,
    exit::{Failure, SUCCESS},
    inbox::Inbox,
    ledger::Ledger,
    output::{Output, instant},
    place::Place,
    project, slot_name,
    target::Target,
};

pub(super) fn run(target: &Target, catchup: &Catchup, output: &mut Output) -> Result<u8, Failure> {
    let directory = match target {
        Target::Project(directory) => directory,
        Target::Server(address) => return there::run(address, catchup, output),
    };
    if catchup.dry_run && !Place::of(directory)?.exists()? {
        return nothing_recorded(directory, catchup, output);
    }
    let ledger = Ledger::open(directory)?;
    let only = catchup.pipeline.as_ref().map(|it| ledger.known(directory, it)).transpose()?;
    let declared = only.as_ref().and_then(|only| ledger.project().pipeline(only));
    let now = clock::now();
    let at = catchup.at.map_or(now, |at| at.at(now, &slot_name::first_zone(declared.as_ref())));
    let reader = Reader { now: at, ..ledger.reader() };
    let found = block_on(reader.catchup_lines(only.as_ref()))?;
    for (pipeline, since) in &found.paused {
        say_paused(pipeline.as_str(), *since, output)?;
    }
    let lines = found.lines;
    if catchup.json {
        let answers = block_on(line_answers(&reader, &lines, u64::MAX));
        output.json(&to_value(&answers).unwrap_or_default())?;
    } else {
        print(&lines, output)?;
    }
    let code = ledger.conclude(only.as_ref(), output)?;
    if !(catchup.dry_run || catchup.at.is_some() || lines.iter().all(PlanLine::is_queued)) {
        ask(directory, &ledger, &lines, output)?;
    }
    Ok(code)
}

/// Where nothing was ever recorded, nothing is owed: history from before the first sight is not replayed.
fn nothing_recorded(
    directory: &Path,
    catchup: &Catchup,
    output: &mut Output,
) -> Result<u8, Failure> {
    let loaded = project::load(directory)?;
    if let Some(name) = &catchup.pipeline {
        project::pipeline(&loaded, name)?;
    }
    if catchup.json {
        output.json(&serde_json::json!([]))?;
    } else {
        print(&[], output)?;
    }
    Ok(SUCCESS)
}

/// Asks the owner to do it now.
fn ask(
    directory: &Path,
    ledger: &Ledger,
    lines: &[PlanLine],
    output: &mut Output,
) -> Result<(), Failure> {
    if !ledger.is_served() {
        return Err(Failure::refused(
            "nothing is caught up: `interlock serve` is not running",
            "Start it: it does what is listed above. `--dry-run` only lists.",
        ));
    }
    let mut pipelines: Vec<_> = lines.iter().map(|line| &line.pipeline).collect();
    pipelines.dedup();
    for pipeline in pipelines {
        Inbox::open(directory, pipeline.as_str())?.post_only(&InboxRecord::Catchup {})?;
    }
    writeln!(output.err, "`interlock serve` was asked to do it now")?;
    Ok(())
}

/// Prints the lines of a server for people.
pub(crate) use self::there::print as print_answers;

/// Says that what a pipeline owes is not decided now.
fn say_paused(pipeline: &str, since: Timestamp, output: &mut Output) -> Result<(), Failure> {
    let since = instant(since);
    Ok(writeln!(
        output.err,
        "{pipeline} is paused since {since}: what it owes is decided by its `resume`, which shows it"
    )?)
}

fn say_nothing_missed(output: &mut Output) -> Result<(), Failure> {
    Ok(writeln!(output.out, "nothing was missed")?)
}

/// Prints lines for people.
pub(crate) fn print(lines: &[PlanLine], output: &mut Output) -> Result<(), Failure> {
    if lines.is_empty() {
        return say_nothing_missed(output);
    }
    let rows: Vec<_> = lines.iter().map(PlanLine::to_row).collect();
    output.table(PlanLine::HEADINGS, &rows)
}
