//! `interlock heartbeat`.

use std::{io::Write as _, path::Path, time::Duration};

use interlock_liveness::heartbeat::{Fresh, check};

#[cfg(feature = "redis")]
use crate::redis_beat::Key;
use crate::{
    arguments::HeartbeatCommand,
    exit::{Failure, PROBLEMS, SUCCESS},
    output::Output,
};

pub(super) fn run(command: &HeartbeatCommand, output: &mut Output) -> Result<u8, Failure> {
    let HeartbeatCommand::Check { file, max_age } = command;
    let max_age = max_age.unsigned_abs();
    let found = match file.to_str().filter(|address| is_key(address)) {
        Some(address) => check_key(address, max_age)?,
        None => check(file, max_age).map_err(|error| {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            Failure::failed(format!("{error}{}", source.unwrap_or_default()), "")
        })?,
    };
    let (code, says) = match found {
        Fresh::Yes(age) => (SUCCESS, format!("alive: the last sign is {} old", seconds(age))),
        Fresh::Stale(age) => {
            let most = seconds(max_age);
            (
                PROBLEMS,
                format!("stale: the last sign is {} old, at most {most} are allowed", seconds(age)),
            )
        }
        Fresh::FirstLook => (
            SUCCESS,
            "not known yet: this is the first check; the next one sees whether it changes"
                .to_owned(),
        ),
        Fresh::Damaged => (PROBLEMS, "stale: the content is not a heartbeat".to_owned()),
        Fresh::Gone => (PROBLEMS, "stale: the process that wrote it is gone".to_owned()),
        Fresh::Missing => (PROBLEMS, format!("stale: there is no {}", without_password(file))),
    };
    writeln!(output.out, "{says}")?;
    Ok(code)
}

/// Whether it is a key on a server, and no file.
pub(super) fn is_key(address: &str) -> bool {
    address.starts_with("redis://") || address.starts_with("rediss://")
}

#[cfg(feature = "redis")]
fn check_key(address: &str, max_age: Duration) -> Result<Fresh, Failure> {
    let key = Key::parse(address).map_err(|error| Failure::usage(error, ""))?;
    key.check(max_age).map_err(|error| {
        let help = "Cannot tell from here whether it is alive.";
        Failure::failed(format!("{key} cannot be asked: {error}"), help)
    })
}

#[cfg(not(feature = "redis"))]
fn check_key(_address: &str, _max_age: Duration) -> Result<Fresh, Failure> {
    Err(Failure::usage("this `interlock` was built without Redis", "Check a file instead."))
}

/// What was asked for, as people may see it.
fn without_password(file: &Path) -> String {
    let shown = file.display().to_string();
    match (is_key(&shown), shown.split_once("://"), shown.rsplit_once('@')) {
        (true, Some((scheme, _)), Some((_, server))) => format!("{scheme}://{server}"),
        _ => shown,
    }
}

fn seconds(length: Duration) -> String {
    format!("{:.1} s", length.as_secs_f64())
}
