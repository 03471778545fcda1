//! `interlock supervise -- CMD`: keeps any program running.

use std::{ffi::OsString, fs, io, path::Path, time::Duration};

use interlock_core::id::fnv1a;
use interlock_liveness::{
    Voice,
    supervise::{
        Backoff, GiveUp, Holder, NOT_EXECUTABLE, NOT_FOUND, Note, Restart, SuperviseError,
        Supervision, run as keep,
    },
};

use crate::{
    arguments::{RestartWhen, Supervise},
    command::heartbeat::is_key,
    exit::Failure,
    place::Place,
    serve::reports,
};

/// How long a program may take to give its first sign of life.
const FIRST_BEAT: Duration = Duration::from_mins(1);
/// Whoever may be silent for less is ended by chance.
const MAX_AGE_MIN: Duration = Duration::from_millis(100);
/// So much of a report goes where our own words go.
const LOGGED_MAX: usize = 8_000;
/// How long is waited at the end for whoever reads our last words.
const HEARD_IN: Duration = Duration::from_secs(1);

pub(super) fn run(directory: &Path, asked: &Supervise) -> Result<u8, Failure> {
    let supervision = supervision(directory, asked)?;
    let lost = |count: u64| {
        format!("interlock supervise: {count} lines were dropped: the reader was too slow")
    };
    let voice = Voice::start("voice", io::stderr(), lost);
    let ended = keep_with(&supervision, &voice);
    voice.finish(HEARD_IN);
    ended
}

fn keep_with(supervision: &Supervision, voice: &Voice) -> Result<u8, Failure> {
    let mut tell = |note: Note<'_>| {
        voice.say(format!("interlock supervise: {}\n", said(&note, &supervision.name)));
        if let Note::Reported { text, .. } = note {
            for part in reports::excerpt(text, LOGGED_MAX) {
                voice.say(format!("{part}\n"));
            }
        }
    };
    match keep(supervision, &mut tell) {
        Ok(code) => Ok(code),
        Err(SuperviseError::Start(program, error)) => {
            voice.say(format!("interlock supervise: {program} cannot be started: {error}\n"));
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            Ok(if is_missing { NOT_FOUND } else { NOT_EXECUTABLE })
        }
        Err(SuperviseError::Running { name, holder }) => Err(is_running(&name, holder)),
        Err(error @ (SuperviseError::Folder(..) | SuperviseError::Kernel(_))) => {
            Err(failure(&error, ""))
        }
        Err(error @ SuperviseError::Heartbeat(..)) => {
            let help = "Name a file that CMD may write; a pipe of its own is in $INTERLOCK_HEARTBEAT_PIPE.";
            Err(failure(&error, help))
        }
    }
}

fn failure(error: &SuperviseError, help: &str) -> Failure {
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    Failure::failed(format!("{error}{}", source.unwrap_or_default()), help)
}

/// What a program is called that nobody named: one name for one command, so that two that only share their interpreter do not share
/// their deaths and their lock.
fn name_of(command: &[OsString]) -> String {
    let Some((program, arguments)) = command.split_first() else { return String::new() };
    let path = Path::new(program);
    let is_path = path.components().count() > 1;
    let place = fs::canonicalize(path).ok().filter(|_| is_path);
    let place = place.map_or_else(|| program.clone(), OsString::from);
    let parts = [&place].into_iter().chain(arguments);
    let bytes: Vec<u8> =
        parts.flat_map(|part| part.as_encoded_bytes().iter().chain([&0]).copied()).collect();
    // The same in every version of this program: a supervisor that was upgraded is not to forget.
    let mark = fnv1a(&bytes) & 0xffff_ffff;
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    if name.is_empty() { String::new() } else { format!("{name}-{mark:08x}") }
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
    let name = asked.name.clone().unwrap_or_else(|| name_of(&asked.command));
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0', '\n']) {
        let help = "Give it one with `--name`: letters, no `/`, and no `.` at its beginning.";
        return Err(Failure::usage(format!("`{name}` cannot be the name of files"), help));
    }
    if asked.heartbeat.as_deref().and_then(Path::to_str).is_some_and(is_key) {
        let help = "Have it write a file, or ask the key with `interlock heartbeat check`.";
        return Err(Failure::usage("a supervisor listens to no key on Redis", help));
    }
    let max_age = asked.max_age.map(jiff::SignedDuration::unsigned_abs);
    if max_age.is_some_and(|max_age| max_age < MAX_AGE_MIN) {
        let help = "Signs of life are looked for every 25 ms.";
        return Err(Failure::usage("`--max-age` is at least 100ms", help));
    }
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

fn said(note: &Note<'_>, name: &str) -> String {
    match note {
        Note::Started(pid) => format!("started, process {pid}"),
        Note::Silent(age) => format!("no sign of life for {:.1} s: ending it", age.as_secs_f64()),
        Note::Reported { kept: Ok(path), .. } => {
            format!("what it was doing is in {}", path.display())
        }
        Note::Reported { kept: Err(error), text: "" } => {
            format!("what it was doing could not be found out: {error}")
        }
        Note::Reported { kept: Err(error), .. } => {
            format!("what it was doing could not be written down: {error}; in short it follows")
        }
        Note::Unkillable => "not even SIGKILL ends it; waiting, for two would be worse".to_owned(),
        Note::Ended(ended) => format!("it {ended}"),
        Note::NotStarted(error) => format!("it cannot be started again: {error}"),
        Note::Waits(pause) => format!("starting it again in {:.1} s", pause.as_secs_f64()),
        Note::GaveUp(deaths) => {
            let times =
                if deaths.number == 1 { "once" } else { &format!("{} times", deaths.number) };
            let (left, file) = (deaths.again_in.as_secs() + 1, deaths.kept_in.display());
            format!(
                "`{name}` died {times} of late: giving up; start it again in {left} s, or at once after `rm {file}`"
            )
        }
        Note::NoHeartbeat(path, error) => format!(
            "{} cannot be written as things stand ({error}): without another sign of life it will be ended",
            path.display()
        ),
        Note::Untold(error) => format!("how it ended could not be written down: {error}"),
        Note::Stalled(length) => {
            format!(
                "this process itself stood still for {:.1} s: not counted as a hang",
                length.as_secs_f64()
            )
        }
        Note::Forgetful(error) => format!("its deaths cannot be remembered: {error}"),
    }
}
