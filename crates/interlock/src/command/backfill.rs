//! `interlock backfill`: ranges of history, run a few slots at a time.

mod follow;
mod plan;
mod start;

use std::{io::Write as _, path::Path};

use interlock_store::{
    BackfillQuery, BackfillRow,
    record::{BackfillRecord, InboxRecord},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    arguments::{BackfillCommand, Sending},
    clock,
    exit::{Failure, SUCCESS},
    inbox::Inbox,
    ledger::Ledger,
    ledger_json,
    output::{Form, Output, instant},
    place::Place,
    project,
};

pub(super) fn run(
    directory: &Path,
    command: &BackfillCommand,
    output: &mut Output,
) -> Result<u8, Failure> {
    match command {
        BackfillCommand::Start(asked) => start::run(directory, asked, output),
        BackfillCommand::List { pipeline, json } => {
            list(directory, pipeline.as_deref(), Form::asked(*json), output)
        }
        BackfillCommand::Follow { pipeline, backfill, sending } => {
            follow::attach(&open(directory, pipeline, *backfill)?, *backfill, *sending, output)
        }
        BackfillCommand::Pause { pipeline, backfill, sending } => {
            let asked = InboxRecord::PauseBackfill { backfill: *backfill };
            steer(&open(directory, pipeline, *backfill)?, &asked, *sending, output)
        }
        BackfillCommand::Resume { pipeline, backfill, sending } => {
            let asked = InboxRecord::ResumeBackfill { backfill: *backfill };
            steer(&open(directory, pipeline, *backfill)?, &asked, *sending, output)
        }
        BackfillCommand::Cancel { pipeline, backfill, reason, end_runs, sending } => {
            let asked = InboxRecord::CancelBackfill {
                backfill: *backfill,
                reason: reason.clone(),
                ends_runs: *end_runs,
            };
            steer(&open(directory, pipeline, *backfill)?, &asked, *sending, output)
        }
    }
}

/// The inbox of a pipeline that has backfills. Where nothing was ever recorded there are none, and asking in vain
/// must not make a ledger.
fn open(directory: &Path, pipeline: &str, backfill: u64) -> Result<Inbox, Failure> {
    if !Place::of(directory)?.exists()? {
        project::pipeline(&project::load(directory)?, pipeline)?;
        return Err(Failure::refused(format!("{pipeline} has no backfill {backfill}"), ""));
    }
    Inbox::open(directory, pipeline)
}

fn steer(
    inbox: &Inbox,
    asked: &InboxRecord,
    sending: Sending,
    output: &mut Output,
) -> Result<u8, Failure> {
    let code = inbox.send(asked, sending, output)?;
    let goes_on = matches!(asked, InboxRecord::ResumeBackfill { .. });
    if code == SUCCESS && goes_on && !inbox.ledger.is_served() {
        writeln!(output.err, "no `interlock serve` is running: it goes on when one does")?;
    }
    Ok(code)
}

fn list(
    directory: &Path,
    pipeline: Option<&str>,
    form: Form,
    output: &mut Output,
) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    let only = pipeline.map(|name| ledger.known(directory, name)).transpose()?;
    let query = BackfillQuery { pipeline: only.clone(), ..BackfillQuery::default() };
    let rows = ledger.backfills(query)?;
    let now = clock::now();
    match form {
        Form::Json => {
            let objects = rows.iter().map(|row| ledger_json::backfill(row, eta(&row.record, now)));
            output.json(&Value::Array(objects.collect()))?;
        }
        Form::Text if rows.is_empty() => writeln!(output.out, "there are no backfills")?,
        Form::Text => {
            let rows: Vec<_> = rows.iter().map(|row| line(row, now)).collect();
            let headings = [
                "PIPELINE", "ID", "STATE", "FROM", "TO", "WHICH", "DONE", "FAILED", "OTHER", "LEFT",
            ];
            output.table(headings, &rows)?;
        }
    }
    ledger.conclude(only.as_ref(), output)
}

fn line(row: &BackfillRow, now: Timestamp) -> [String; 10] {
    let BackfillRow { pipeline, number, record, .. } = row;
    let left = match eta(record, now) {
        Some(eta) => format!("{eta:#}"),
        None => String::new(),
    };
    [
        pipeline.to_string(),
        number.to_string(),
        record.state.clone(),
        instant(record.from),
        instant(record.to),
        record.reprocess.clone(),
        format!("{}/{}", record.counts.completed, record.total),
        record.counts.failed.to_string(),
        (record.counts.cancelled + record.counts.skipped).to_string(),
        left,
    ]
}

/// How long it may still take, going by how long it took so far.
fn eta(record: &BackfillRecord, now: Timestamp) -> Option<SignedDuration> {
    let ended = record.counts.ended();
    if record.state != "running" || ended == 0 {
        return None;
    }
    let left = i128::from(record.total.saturating_sub(ended));
    let seconds = i128::from(now.duration_since(record.since).as_secs()) * left / i128::from(ended);
    Some(SignedDuration::from_secs(i64::try_from(seconds).ok()?))
}
