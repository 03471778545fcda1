//! `interlock supervise -- CMD`: keeps any program running.

use std::{fs, io::Write as _, path::Path, time::Duration};

use interlock_liveness::supervise::{
    Backoff, GiveUp, Holder, NOT_EXECUTABLE, NOT_FOUND, Note, Restart, SuperviseError, Supervision,
    run as keep,
};

use crate::{
    arguments::{RestartWhen, Supervise},
    command::heartbeat::is_key,
    exit::Failure,
    output::Output,
    place::Place,
    serve::reports,
};

/// How long a program may take to give its first sign of life.
const FIRST_BEAT: Duration = Duration::from_mins(1);
/// So much of a report goes where our own words go.
const LOGGED_MAX: usize = 8_000;

pub(super) fn run(directory: &Path, asked: &Supervise, output: &mut Output) -> Result<u8, Failure> {
    let supervision = supervision(directory, asked)?;
    let mut tell = |note: Note<'_>| {
        let _nobody_reads = writeln!(output.err, "interlock supervise: {}", said(&note));
        if let Note::Reported(path) = note {
            let text = fs::read_to_string(path).unwrap_or_default();
            for part in reports::excerpt(&text, LOGGED_MAX) {
                let _nobody_reads = writeln!(output.err, "{part}");
            }
        }
    };
    match keep(&supervision, &mut tell) {
        Ok(code) => Ok(code),
        Err(SuperviseError::Start(program, error)) => {
            let _nobody_reads =
                writeln!(output.err, "interlock supervise: {program} cannot be started: {error}");
            let is_missing = error.kind() == std::io::ErrorKind::NotFound;
            Ok(if is_missing { NOT_FOUND } else { NOT_EXECUTABLE })
        }
        Err(SuperviseError::Running { name, holder }) => Err(is_running(&name, holder)),
        Err(error @ (SuperviseError::Folder(..) | SuperviseError::Kernel(_))) => {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            Err(Failure::failed(format!("{error}{}", source.unwrap_or_default()), ""))
        }
    }
}

/// Says who has it.
fn is_running(name: &str, holder: Option<Holder>) -> Failure {
    let since = holder.as_ref().and_then(|holder| jiff::Timestamp::try_from(holder.since).ok());
    let since = since.map(|at| format!(", since {}", at.strftime("%Y-%m-%d %H:%M:%SZ")));
    let help = match &holder {
        Some(Holder { pid, is_there: true, .. }) => {
            format!("Stop that one first (kill {pid}), or give this one another `--name`.")
        }
        Some(_) | None => "End that first, or give this one another `--name`.".to_owned(),
    };
    let error = SuperviseError::Running { name: name.to_owned(), holder };
    Failure::failed(format!("{error}{}", since.unwrap_or_default()), help)
}

fn supervision(directory: &Path, asked: &Supervise) -> Result<Supervision, Failure> {
    let program = asked.command.first().map(Path::new).and_then(Path::file_name);
    let program = program.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = asked.name.clone().unwrap_or(program);
    if name.is_empty() || name.contains('/') {
        let help = "Give it one with `--name`: letters, no `/`.";
        return Err(Failure::usage(format!("`{name}` cannot be the name of files"), help));
    }
    if asked.heartbeat.as_deref().and_then(Path::to_str).is_some_and(is_key) {
        let help = "Have it write a file, or ask the key with `interlock heartbeat check`.";
        return Err(Failure::usage("a supervisor listens to no key on Redis", help));
    }
    let max_age = asked.max_age.map(jiff::SignedDuration::unsigned_abs);
    let first_beat = asked.first_beat.map(jiff::SignedDuration::unsigned_abs);
    let longer = FIRST_BEAT.max(max_age.unwrap_or_default());
    let first = asked.backoff.unsigned_abs();
    Ok(Supervision {
        command: asked.command.clone(),
        name,
        heartbeat: asked.heartbeat.clone(),
        max_age,
        first_beat: first_beat.unwrap_or(longer),
        grace: asked.grace.unsigned_abs(),
        restart: match asked.restart {
            None | Some(RestartWhen::OnFailure) => Restart::OnFailure,
            Some(RestartWhen::Always) => Restart::Always,
            Some(RestartWhen::Never) => Restart::Never,
        },
        backoff: Backoff { first, ..Backoff::default() },
        give_up: GiveUp { deaths: asked.deaths.into(), within: asked.within.unsigned_abs() },
        folder: Place::of(directory)?.folder.join("supervise"),
    })
}

fn said(note: &Note<'_>) -> String {
    match note {
        Note::Started(pid) => format!("started, process {pid}"),
        Note::Silent(age) => format!("no sign of life for {:.1} s: ending it", age.as_secs_f64()),
        Note::Reported(path) => format!("what it was doing is in {}", path.display()),
        Note::Unkillable => "not even SIGKILL ends it; waiting, for two would be worse".to_owned(),
        Note::Ended(ended) => format!("it {ended}"),
        Note::Waits(pause) => format!("starting it again in {:.1} s", pause.as_secs_f64()),
        Note::GaveUp(deaths) => format!(
            "it died {deaths} times of late: giving up; it can be started again when that is over"
        ),
        Note::Stalled(length) => {
            format!("this did not run for {:.1} s itself: nobody is blamed", length.as_secs_f64())
        }
        Note::Forgetful(error) => format!("its deaths cannot be remembered: {error}"),
    }
}
