//! `interlock logs`: what a run's job wrote.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use interlock_core::id::PipelineId;
use interlock_engine::host::HOST;
use interlock_store::{RunKey, record::RunRecord};
use interlock_trigger::runner::log_path;

use crate::{
    exit::{Failure, SUCCESS},
    ledger::Ledger,
    output::Output,
};

/// How often a growing log is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// What is there.
    Now,
    /// Until the run has ended.
    Ended,
}

pub(super) fn run(
    directory: &Path,
    run: &str,
    until: Until,
    output: &mut Output,
) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    let (pipeline, key, record) = find(&ledger, run)?;
    let path = path(&ledger, (&pipeline, run), &record);
    let mut printed = print_from(&path, 0, output)?;
    // Of a job that ran elsewhere there is what it sent.
    let sent = record.metadata.get("body").and_then(|body| body.as_str());
    if let (None, Some(sent)) = (printed, sent) {
        output.bytes(sent.as_bytes())?;
        return Ok(SUCCESS);
    }
    if until == Until::Now {
        return match printed {
            Some(_) => Ok(SUCCESS),
            None => Err(Failure::refused(
                format!("{run} has no log here"),
                match elsewhere(&ledger, &record) {
                    Some(host) => format!(
                        "It ran on {host}, and what a job writes stays on its host: {}",
                        path.display()
                    ),
                    None => format!(
                        "It would be {}; a job that runs elsewhere has what it sent, and this one sent nothing.",
                        path.display()
                    ),
                },
            )),
        };
    }
    loop {
        // Asked before the log is read, so that what it wrote at its end is printed.
        let ended = has_ended(&ledger, &pipeline, &key)?;
        printed = print_from(&path, printed.unwrap_or(0), output)?;
        if ended {
            return Ok(SUCCESS);
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// The run with an id.
pub(super) fn find(ledger: &Ledger, run: &str) -> Result<(PipelineId, RunKey, RunRecord), Failure> {
    let parsed = RunKey::parse(run);
    let (pipeline, key) = parsed.map_err(|error| Failure::usage(error.message, error.help))?;
    match ledger.run(&pipeline, &key)? {
        Some(record) => Ok((pipeline, key, record)),
        None => Err(Failure::refused(
            format!("there is no run {run}"),
            format!("`interlock runs --pipeline {pipeline}` lists them."),
        )),
    }
}

/// The host of the job, if that is another one.
fn elsewhere<'a>(ledger: &Ledger, record: &'a RunRecord) -> Option<&'a str> {
    let host = record.metadata.get(HOST)?.as_str()?;
    let here = ledger.place().known_host();
    (here.as_deref() != Some(host)).then_some(host)
}

/// Where the log is by the run's own word, else where the runner would put it.
fn path(ledger: &Ledger, (pipeline, run): (&PipelineId, &str), record: &RunRecord) -> PathBuf {
    let said = record.metadata.get("log").and_then(|log| log.as_str());
    said.map_or_else(|| log_path(&ledger.runner_folder(), pipeline.as_str(), run), PathBuf::from)
}

fn has_ended(ledger: &Ledger, pipeline: &PipelineId, key: &RunKey) -> Result<bool, Failure> {
    let record = ledger.run(pipeline, key)?;
    let state = record.and_then(|record| record.state().ok());
    Ok(state.is_none_or(interlock_core::run::RunState::is_terminal))
}

/// Prints a log from an offset on and answers where it ends; `None` if there is none.
pub(crate) fn print_from(
    path: &Path,
    offset: u64,
    output: &mut Output,
) -> Result<Option<u64>, Failure> {
    let failed = |error: io::Error| Failure::file("read", path, &error);
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let length = file.metadata().map_err(failed)?.len();
    // A log that became shorter was cut to its tail: that is printed whole.
    let start = if length < offset { 0 } else { offset };
    file.seek(SeekFrom::Start(start)).map_err(failed)?;
    let mut buffer = vec![0; 64 * 1024];
    let mut end = start;
    loop {
        let count = file.read(&mut buffer).map_err(failed)?;
        if count == 0 {
            return Ok(Some(end));
        }
        end += count as u64;
        output.bytes(buffer.get(..count).unwrap_or_default())?;
    }
}
