//! `interlock logs`: what a run's job wrote.

mod there;

use std::{
    io::{self, Write as _},
    path::Path,
    thread,
    time::Duration,
};

use interlock_answers::{
    FoundLog, LogContent, LogSource, LogStart, PIECE_BYTES, RunLog, model::log::LogQuery,
};
use interlock_store::{RunKey, block_on};

use crate::{
    exit::{Failure, SUCCESS},
    ledger::Ledger,
    output::Output,
    source::Source,
    target::Target,
};

/// How often a growing log is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) fn run(
    target: &Target,
    run: &str,
    asked: &LogQuery,
    output: &mut Output,
) -> Result<u8, Failure> {
    RunKey::parse(run).map_err(|error| Failure::usage(error.message, error.help))?;
    let start = asked.start()?;
    let directory = match target {
        Target::Project(directory) => directory,
        Target::Server(address) => {
            let source = Source::at(address, output)?;
            return there::run(&source, run, asked, output);
        }
    };
    let ledger = Ledger::open(directory)?;
    let mut printed = None;
    loop {
        // Asked before the log is read, so that what its job wrote at its end is printed.
        let log = block_on(ledger.reader().run_log(run))?;
        if let Some(FoundLog { source, content }) = find_log(&ledger, &log)? {
            if source == LogSource::Kept {
                writeln!(output.err, "the log itself is not here: these are its last lines")?;
            }
            let begin = match (printed, start) {
                (Some(offset), _) | (None, LogStart::Offset(offset)) => content.resume(offset),
                (None, LogStart::Lines(lines)) => content.tail(lines),
            };
            printed = Some(print(&content, begin.map_err(unreadable)?, output)?);
        }
        if log.has_ended || !asked.follow {
            return if printed.is_some() { Ok(SUCCESS) } else { Err(log.absence().into()) };
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// What there is of a log on this machine, or in the run itself.
fn find_log(ledger: &Ledger, log: &RunLog) -> Result<Option<FoundLog>, Failure> {
    let path = ledger.place().log_path(&log.pipeline, &log.run);
    let found = LogContent::open(&path).map_err(|error| Failure::file("read", &path, &error))?;
    if let Some(content) = found {
        return Ok(Some(FoundLog { source: LogSource::File, content }));
    }
    match (log.left(), &log.host) {
        (None, Some(host)) if ledger.place().known_host().as_ref() != Some(host) => {
            Err(log.elsewhere(host, "").into())
        }
        (left, _) => Ok(left),
    }
}

/// Prints a log from an offset on and answers where it ends; `None` if there is none.
pub(crate) fn print_from(
    path: &Path,
    offset: u64,
    output: &mut Output,
) -> Result<Option<u64>, Failure> {
    let Some(content) = LogContent::open(path).map_err(unreadable)? else { return Ok(None) };
    let begin = content.resume(offset).map_err(unreadable)?;
    print(&content, begin, output).map(Some)
}

/// Prints what there is from a byte on and answers where it ends.
fn print(content: &LogContent, mut offset: u64, output: &mut Output) -> Result<u64, Failure> {
    loop {
        let piece = content.piece(offset, PIECE_BYTES).map_err(unreadable)?;
        if piece.is_empty() {
            return Ok(offset);
        }
        offset += piece.len() as u64;
        output.bytes(&piece)?;
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is left by a failed read")]
fn unreadable(error: io::Error) -> Failure {
    Failure::failed(format!("cannot read the log: {error}"), "")
}
