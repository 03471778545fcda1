//! The log of a run, from a server: piece by piece, taken up again at the byte where it broke off.

use std::{io::Write as _, thread, time::Duration};

use interlock_answers::{LogSource, model::log::LogQuery};
use interlock_core::run::RunState;
use interlock_trigger::web::OpenAnswer;

use crate::{
    exit::{Failure, SUCCESS},
    output::Output,
    remote::{
        Opened, RemoteServer,
        query::{self, path},
    },
    source::Source,
};

/// A log that is followed may be silent for so long; then it is asked for again.
const SILENT_FOR: Duration = Duration::from_mins(1);
/// How long is waited before it is asked for again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// So often in a row it may fail.
const FAILURES_MAX: u32 = 30;

/// How a part of it ended.
enum Part {
    Whole,
    /// It may go on.
    Broken,
}

/// How far it was printed.
struct Printed {
    offset: u64,
    is_told_partial: bool,
}

pub(super) fn run(
    source: &Source,
    run: &str,
    asked: &LogQuery,
    output: &mut Output,
) -> Result<u8, Failure> {
    let server = source.server()?;
    let mut asked = asked.clone();
    let mut printed = Printed { offset: 0, is_told_partial: false };
    let mut failures = 0;
    loop {
        let path = format!("{}{}", path(&["runs", run, "log"]), query::text(&asked));
        let failure = match server.open(&path, &[]) {
            Ok(Opened::Answer(answer)) => {
                let before = printed.offset;
                let part = print(server, answer, &mut printed, output)?;
                // Behind what was printed, whatever was asked for first.
                asked = LogQuery { lines: None, offset: Some(printed.offset), ..asked };
                let is_over = match part {
                    Part::Whole => !asked.follow || has_ended(source, run)?,
                    Part::Broken => false,
                };
                if is_over {
                    return Ok(SUCCESS);
                }
                failures = if printed.offset > before { 0 } else { failures };
                // A silence, or a server that was replaced by another: no failure of its own.
                if asked.follow {
                    continue;
                }
                Failure::failed(format!("the log of {run} broke off"), "")
            }
            Ok(Opened::Refused(reply)) if !reply.may_pass() => return Err(server.refusal(reply)),
            Ok(Opened::Refused(reply)) => server.refusal(reply),
            Err(failure) => failure,
        };
        failures += 1;
        if failures >= FAILURES_MAX || (failures > 1 && !asked.follow) {
            return Err(failure);
        }
        thread::sleep(AGAIN_AFTER);
    }
}

fn has_ended(source: &Source, run: &str) -> Result<bool, Failure> {
    let run = source.run(run)?;
    Ok(RunState::parse(&run.status).map_or(true, RunState::is_terminal))
}

/// Prints what comes.
fn print(
    server: &RemoteServer,
    mut answer: OpenAnswer,
    printed: &mut Printed,
    output: &mut Output,
) -> Result<Part, Failure> {
    let is_partial = answer.header("interlock-log-source") == Some(LogSource::Kept.as_str());
    if is_partial && !printed.is_told_partial {
        printed.is_told_partial = true;
        writeln!(output.err, "the log itself is not here: these are its last lines")?;
    }
    let start = answer.header("interlock-log-start").and_then(|text| text.parse().ok());
    printed.offset = start.unwrap_or(printed.offset);
    loop {
        match server.piece(&mut answer, SILENT_FOR) {
            Ok(Some(piece)) => {
                printed.offset += piece.len() as u64;
                output.bytes(&piece)?;
            }
            Ok(None) => return Ok(Part::Whole),
            Err(_broken) => return Ok(Part::Broken),
        }
    }
}
