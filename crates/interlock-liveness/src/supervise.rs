//! Keeps another program running: notices when it dies or hangs, ends what is left of it, and starts it again.
//!
//! The program is a group of its own, whose orphans come to us; it is signalled through a descriptor that means it and nobody
//! else. Whether it hangs is judged by changes of its heartbeat, by our own clock; a time in which we did not run ourselves is
//! forgiven. Restarts come slower each time until it has been well for long, and not at all when it dies too often: that is
//! remembered beyond our own end.
//!
//! **Invariant:** whoever calls [`run`] has no other children: at the end of each life all children of this process are ended.

mod backoff;
mod examine;
mod life;
mod memory;
mod orphans;

use std::{
    ffi::OsString,
    fmt,
    fs::{File, TryLockError},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

pub use self::backoff::{Backoff, Deaths, GiveUp};
use self::{
    backoff::{History, Next},
    life::Life,
};
use crate::{
    aside::within,
    clock::monotonic,
    forensics::{Fate, report_end},
    heartbeat::{self, Ear},
    signals, sys,
};

/// The exit code of a supervisor that gave up.
pub const GAVE_UP: u8 = 125;
/// The exit code when the program cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The exit code when there is no such program.
pub const NOT_FOUND: u8 = 127;

/// What is to be kept running, and how.
#[derive(Debug, Clone)]
pub struct Supervision {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// What it is called in the folder of states.
    pub name: String,
    /// A file that it changes as long as it is well.
    pub heartbeat: Option<PathBuf>,
    /// How long it may give no sign of life; without one only its end is noticed.
    pub max_age: Option<Duration>,
    /// How long it may take to give the first one.
    pub first_beat: Duration,
    /// How long it may take to end when it is asked to.
    pub grace: Duration,
    /// When it is started again.
    pub restart: Restart,
    /// How restarts slow down.
    pub backoff: Backoff,
    /// When to give up.
    pub give_up: GiveUp,
    /// Where the lock, the memory of deaths and the reports are.
    pub folder: PathBuf,
}

/// After which ends a program is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// After every end but a clean one.
    OnFailure,
    /// After every end.
    Always,
    /// After none.
    Never,
}

/// How a life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ended {
    /// By itself, with a code.
    Exited(i32),
    /// By a signal.
    Signalled(i32),
    /// It gave no sign of life, and was ended.
    Hung,
    /// The kernel ended it because memory was short.
    OutOfMemory,
    /// Somebody asked for it; with this exit code.
    Stopped(i32),
    /// It could not be started again.
    #[default]
    NotStarted,
}

impl Ended {
    /// The exit code that stands for it.
    pub fn code(self) -> u8 {
        let code = match self {
            Self::Exited(code) | Self::Stopped(code) => code,
            Self::Signalled(signal) => 128 + signal,
            Self::Hung => crate::EXIT_CODE,
            Self::OutOfMemory => 128 + libc::SIGKILL,
            Self::NotStarted => i32::from(NOT_EXECUTABLE),
        };
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with {code}"),
            Self::Signalled(signal) => write!(f, "was ended by signal {signal}"),
            Self::Hung => f.write_str("gave no sign of life and was ended"),
            Self::OutOfMemory => f.write_str("was ended because memory was short"),
            Self::Stopped(_) => f.write_str("was asked to end"),
            Self::NotStarted => f.write_str("could not be started"),
        }
    }
}

/// What the supervisor has to say.
#[derive(Debug)]
pub enum Note<'a> {
    /// A life began.
    Started(u32),
    /// No sign of life for so long.
    Silent(Duration),
    /// What it was doing, and where that is written; or why it is not.
    Reported {
        /// All of it.
        text: &'a str,
        /// The file.
        kept: Result<&'a Path, &'a io::Error>,
    },
    /// It does not end: not even SIGKILL reaches it.
    Unkillable,
    /// A life ended.
    Ended(Ended),
    /// It ran before, and cannot be started again now.
    NotStarted(&'a io::Error),
    /// The next begins after this.
    Waits(Duration),
    /// It died too often.
    GaveUp(&'a Deaths),
    /// Its heartbeat file cannot be written where it is, as things stand: it is to make the folder itself, or has another way.
    NoHeartbeat(&'a Path, &'a io::Error),
    /// How it died is not told to whoever serves: that could not be written down.
    Untold(&'a io::Error),
    /// We did not run ourselves for so long: nobody is blamed.
    Stalled(Duration),
    /// The deaths cannot be remembered beyond our own end.
    Forgetful(&'a io::Error),
}

/// Why nothing is supervised.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// There is another supervisor, or what it left behind runs.
    #[error("`{name}` runs already{}", Holder::words(.holder.as_ref()))]
    Running {
        /// What is supervised.
        name: String,
        /// Who took it; nothing, if that cannot be read.
        holder: Option<Holder>,
    },
    /// The folder of states cannot be used.
    #[error("the folder {0} cannot be used")]
    Folder(PathBuf, #[source] io::Error),
    /// The program cannot be started.
    #[error("{0} cannot be started")]
    Start(String, #[source] io::Error),
    /// What is to be the heartbeat file is none.
    #[error("{0} cannot be a heartbeat")]
    Heartbeat(PathBuf, #[source] io::Error),
    /// The kernel refused something that supervision needs.
    #[error("the kernel refused what supervision needs")]
    Kernel(#[source] io::Error),
}

/// The supervisor that took a program first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its process.
    pub pid: u32,
    /// Since when.
    pub since: SystemTime,
    /// Whether it is still there. If not, what it started is.
    pub is_there: bool,
}

impl Holder {
    /// Who says so in the file of the lock, and since when, as the file system has it.
    fn read(file: &File) -> Option<Self> {
        let mut text = String::new();
        file.take(HOLDER_MAX).read_to_string(&mut text).ok()?;
        let pid: u32 = text.trim().parse().ok()?;
        let since = file.metadata().ok()?.modified().ok()?;
        let is_there = std::path::Path::new(&format!("/proc/{pid}")).exists();
        Some(Self { pid, since, is_there })
    }

    /// Says in the file of the lock that it is us.
    fn write(mut file: &File) -> io::Result<()> {
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())
    }

    fn words(holder: Option<&Self>) -> String {
        match holder {
            Some(Self { pid, is_there: true, .. }) => format!(", under process {pid}"),
            Some(Self { pid, is_there: false, .. }) => {
                format!(": what process {pid} started is still there, although that is gone")
            }
            None => ", or what an earlier supervisor started does".to_owned(),
        }
    }
}

/// Keeps a program running until it ends for good; answers with the exit code that stands for that.
pub fn run(
    supervision: &Supervision,
    tell: &mut dyn FnMut(Note<'_>),
) -> Result<u8, SuperviseError> {
    let silent = hearing(supervision)?;
    let _held = lock(supervision)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| SuperviseError::Kernel(error.into()))?;
    signals::hear_of_children();
    let signals = sys::Signals::take().map_err(SuperviseError::Kernel)?;
    let mut history =
        History::load(supervision.folder.join(format!("{}.deaths", supervision.name)));
    if let Some(error) = &silent {
        tell(Note::NoHeartbeat(supervision.heartbeat.as_deref().unwrap_or(Path::new("")), error));
    }
    if let Some(deaths) = history.is_hopeless(supervision.give_up) {
        tell(Note::GaveUp(&deaths));
        return Ok(GAVE_UP);
    }
    let file = supervision.heartbeat.clone().map(Ear::aside).transpose();
    let mut file = file.map_err(SuperviseError::Kernel)?;
    let mut is_first = true;
    loop {
        let lived = match live(supervision, &signals, file.as_mut(), tell) {
            Ok(lived) => lived,
            // It may be there again in a moment: it is being replaced, or there were too many processes.
            Err(SuperviseError::Start(_, error) | SuperviseError::Kernel(error)) if !is_first => {
                tell(Note::NotStarted(&error));
                Lived { ended: Ended::NotStarted, ..Lived::default() }
            }
            Err(error) => return Err(error),
        };
        is_first = false;
        let ended = lived.ended;
        let is_over = match (supervision.restart, ended) {
            (_, Ended::Stopped(_)) | (Restart::Never, _) => true,
            (Restart::OnFailure, ended) => ended == Ended::Exited(0),
            (Restart::Always, _) => false,
        };
        if is_over {
            return Ok(ended.code());
        }
        let mut told = |fate: Fate, why: &str| {
            let about = (supervision.name.as_str(), why);
            if let Err(error) = report_end(lived.pid, &supervision.folder, fate, about) {
                tell(Note::Untold(&error));
            }
        };
        let pause = if lived.is_death() {
            match history.died(&lived, supervision.backoff, supervision.give_up) {
                (Next::GiveUp(deaths), kept) => {
                    let number = deaths.number;
                    let why = format!("it {ended}, death {number} of late, and stays down");
                    told(Fate::GivenUp, &why);
                    note_kept(kept, tell);
                    tell(Note::GaveUp(&deaths));
                    return Ok(GAVE_UP);
                }
                (Next::After(pause), kept) => {
                    // Of a hang there is a better report.
                    if ended != Ended::Hung {
                        told(Fate::Died, &format!("it {ended}, and was started again"));
                    }
                    note_kept(kept, tell);
                    pause
                }
            }
        } else {
            supervision.backoff.first
        };
        tell(Note::Waits(pause));
        if signals.wait(pause).is_some() {
            return Ok(ended.code());
        }
    }
}

/// What there is to say of a life that is over.
#[derive(Debug, Default)]
struct Lived {
    pid: u32,
    ended: Ended,
    /// How long it was, …
    length: Duration,
    /// … and for how much of that, at its end, it hung.
    silent: Duration,
    /// Whether it was ended by a signal that somebody had passed on to it.
    is_wanted: bool,
}

impl Lived {
    /// Whether that counts against the program: not if it was done, nor if somebody wanted it so.
    fn is_death(&self) -> bool {
        self.ended != Ended::Exited(0) && !self.is_wanted
    }
}

/// One life, from its start until nothing is left of it.
fn live(
    supervision: &Supervision,
    signals: &sys::Signals,
    file: Option<&mut Ear>,
    tell: &mut dyn FnMut(Note<'_>),
) -> Result<Lived, SuperviseError> {
    let mut life = Life::begin(supervision, signals, file)?;
    let pid = life.pid();
    tell(Note::Started(pid));
    let began = monotonic();
    let ended = life.attend(tell).map_err(SuperviseError::Kernel)?;
    orphans::end_all();
    tell(Note::Ended(ended));
    let length = Duration::from_nanos(monotonic().saturating_sub(began));
    let is_wanted = matches!(ended, Ended::Signalled(signal) if life.was_passed(signal));
    Ok(Lived { pid, ended, length, silent: life.was_silent_for(), is_wanted })
}

/// Refuses a heartbeat that can be none; answers with why one cannot be written as things stand.
fn hearing(supervision: &Supervision) -> Result<Option<io::Error>, SuperviseError> {
    let Some(path) = supervision.heartbeat.clone() else { return Ok(None) };
    let refused = |error| SuperviseError::Heartbeat(path.clone(), error);
    let looked_at = path.clone();
    match within(LOOKED_AT_IN, move || can_be_written(&looked_at)) {
        Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => Err(refused(error)),
        Ok(written) => Ok(written.err()),
        Err(error) => Ok(Some(error)),
    }
}

/// Whether a heartbeat file is there, or can be made by somebody like us.
fn can_be_written(path: &Path) -> io::Result<()> {
    match heartbeat::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
            let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
            Ok(rustix::fs::access(folder.unwrap_or(Path::new(".")), access)?)
        }
        opened => opened.map(drop),
    }
}

fn note_kept(kept: io::Result<()>, tell: &mut dyn FnMut(Note<'_>)) {
    if let Err(error) = kept {
        tell(Note::Forgetful(&error));
    }
}

/// Takes the lock that the program inherits: it is held until both are gone.
fn lock(supervision: &Supervision) -> Result<File, SuperviseError> {
    let failed = |error| SuperviseError::Folder(supervision.folder.clone(), error);
    std::fs::create_dir_all(&supervision.folder).map_err(failed)?;
    let path = supervision.folder.join(format!("{}.lock", supervision.name));
    let mut open = File::options();
    let file = open.read(true).write(true).create(true).truncate(false).open(path);
    let file = file.map_err(failed)?;
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => {
                // The program gets it too.
                rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty())
                    .map_err(|error| failed(error.into()))?;
                // A disk that is full is no reason not to keep a program running.
                let _nameless = Holder::write(&file);
                return Ok(file);
            }
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_AFTER),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
    Err(SuperviseError::Running { name: supervision.name.clone(), holder: Holder::read(&file) })
}

/// How long a heartbeat file may take to be looked at before anything is started.
const LOOKED_AT_IN: Duration = Duration::from_secs(2);
/// A program whose supervisor was just killed takes a moment to die.
const LOCK_TRIES: u32 = 10;
const LOCK_AFTER: Duration = Duration::from_millis(50);
/// More is no number of a process.
const HOLDER_MAX: u64 = 32;
