//! `interlock heartbeat`, and the helper that writes reports.

use std::{io::Write as _, time::Duration};

use interlock_liveness::heartbeat::{Fresh, check};

use crate::{
    arguments::HeartbeatCommand,
    exit::{FAILED, Failure, PROBLEMS, SUCCESS},
    output::Output,
};

pub(super) fn run(command: &HeartbeatCommand, output: &mut Output) -> Result<u8, Failure> {
    let HeartbeatCommand::Check { file, max_age } = command;
    let max_age = max_age.unsigned_abs();
    let found = check(file, max_age).map_err(|error| {
        let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
        Failure::failed(format!("{error}{}", source.unwrap_or_default()), "")
    })?;
    let (code, says) = match found {
        Fresh::Yes(age) => (SUCCESS, format!("alive: the last sign is {} old", seconds(age))),
        Fresh::Stale(age) => {
            let most = seconds(max_age);
            (
                PROBLEMS,
                format!("stale: the last sign is {} old, at most {most} are allowed", seconds(age)),
            )
        }
        Fresh::Gone => (PROBLEMS, "stale: the process that wrote it is gone".to_owned()),
        Fresh::Missing => (PROBLEMS, format!("stale: there is no {}", file.display())),
    };
    writeln!(output.out, "{says}")?;
    Ok(code)
}

fn seconds(length: Duration) -> String {
    format!("{:.1} s", length.as_secs_f64())
}

/// Is the helper of a process that may hang, until that process ends.
pub(super) fn help(arguments: &[String]) -> u8 {
    match interlock_liveness::forensics::help(arguments) {
        Ok(()) => SUCCESS,
        Err(_nobody_reads) => FAILED,
    }
}
