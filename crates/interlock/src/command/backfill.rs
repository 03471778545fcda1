//! `interlock backfill`: ranges of history, run a few slots at a time.

mod follow;
mod start;

use std::io::Write as _;

use interlock_answers::{
    LIMIT_MAX,
    model::backfill::{BackfillAnswer, BackfillsQuery},
};
use interlock_store::record::InboxRecord;
use jiff::SignedDuration;
use serde_json::to_value;

use crate::{
    arguments::{BackfillCommand, Sending},
    exit::{Failure, SUCCESS},
    output::{Form, Output, instant},
    place::Place,
    project,
    source::{RequestSource, Source},
    target::Target,
};

pub(super) fn run(
    target: &Target,
    command: &BackfillCommand,
    output: &mut Output,
) -> Result<u8, Failure> {
    match command {
        BackfillCommand::Start(asked) => start::run(target, asked, output),
        BackfillCommand::List { pipeline, json } => {
            list(target, pipeline.as_deref(), Form::asked(*json), output)
        }
        BackfillCommand::Follow { pipeline, backfill, sending } => {
            let requests = open(target, pipeline, *backfill, output)?;
            follow::attach(&requests, *backfill, *sending, output)
        }
        BackfillCommand::Pause { pipeline, backfill, sending } => {
            let asked = InboxRecord::PauseBackfill { backfill: *backfill };
            steer(&open(target, pipeline, *backfill, output)?, &asked, *sending, output)
        }
        BackfillCommand::Resume { pipeline, backfill, sending } => {
            let asked = InboxRecord::ResumeBackfill { backfill: *backfill };
            steer(&open(target, pipeline, *backfill, output)?, &asked, *sending, output)
        }
        BackfillCommand::Cancel { pipeline, backfill, reason, end_runs, sending } => {
            let asked = InboxRecord::CancelBackfill {
                backfill: *backfill,
                reason: reason.clone(),
                ends_runs: *end_runs,
            };
            steer(&open(target, pipeline, *backfill, output)?, &asked, *sending, output)
        }
    }
}

/// The inbox of a pipeline that has backfills. Where nothing was ever recorded there are none, and asking in vain
/// must not make a ledger.
fn open(
    target: &Target,
    pipeline: &str,
    backfill: u64,
    output: &mut Output,
) -> Result<RequestSource, Failure> {
    if let Target::Project(directory) = target
        && !Place::of(directory)?.exists()?
    {
        project::pipeline(&project::load(directory)?, pipeline)?;
        return Err(Failure::refused(format!("{pipeline} has no backfill {backfill}"), ""));
    }
    RequestSource::open(target, pipeline, output)
}

fn steer(
    requests: &RequestSource,
    asked: &InboxRecord,
    sending: Sending,
    output: &mut Output,
) -> Result<u8, Failure> {
    let code = requests.send(asked, sending, output)?;
    let goes_on = matches!(asked, InboxRecord::ResumeBackfill { .. });
    if code == SUCCESS && goes_on && !requests.is_served() {
        writeln!(output.err, "no `interlock serve` is running: it goes on when one does")?;
    }
    Ok(code)
}

fn list(
    target: &Target,
    pipeline: Option<&str>,
    form: Form,
    output: &mut Output,
) -> Result<u8, Failure> {
    let source = Source::open(target, output)?;
    let only = pipeline.map(|name| source.known(name)).transpose()?;
    let mut asked = BackfillsQuery {
        pipeline: only.as_ref().map(ToString::to_string),
        limit: Some(LIMIT_MAX),
        ..BackfillsQuery::default()
    };
    let mut found = Vec::new();
    loop {
        let page = source.backfills(&asked)?;
        found.extend(page.items);
        asked.after = page.next;
        if asked.after.is_none() {
            break;
        }
    }
    match form {
        Form::Json => output.json(&to_value(&found).unwrap_or_default())?,
        Form::Text if found.is_empty() => writeln!(output.out, "there are no backfills")?,
        Form::Text => {
            let rows: Vec<_> = found.into_iter().map(line).collect();
            let headings = [
                "PIPELINE", "ID", "STATE", "FROM", "TO", "WHICH", "DONE", "FAILED", "OTHER", "LEFT",
            ];
            output.table(headings, &rows)?;
        }
    }
    source.conclude(only.as_ref(), output)
}

fn line(it: BackfillAnswer) -> [String; 10] {
    let left = it.eta_seconds.map(|eta| format!("{:#}", SignedDuration::from_secs(eta)));
    [
        it.pipeline,
        it.id.to_string(),
        it.state,
        instant(it.from),
        instant(it.to),
        it.reprocess,
        format!("{}/{}", it.completed, it.total),
        it.failed.to_string(),
        (it.cancelled + it.skipped).to_string(),
        left.unwrap_or_default(),
    ]
}
