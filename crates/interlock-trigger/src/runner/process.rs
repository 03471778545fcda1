//! One process of a job, the leader of its own group.
//!
//! Ending it means ending the group: TERM, a grace, then KILL, repeated until nobody is left (a
//! fork in flight escapes a single one). A process that is over but not waited for keeps its pid,
//! and only the runner's main thread waits: so a pid that is signalled here is never somebody
//! else's. Once the leader is waited for, its number stays taken while its group has members.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitStatus, kill_process_group, test_kill_process_group,
    waitid,
};

use super::{host, job::Exec, protocol::Category, time::Moment};

/// How often a dying group is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// After this many KILLs in vain what is left cannot be killed: it waits inside the kernel.
const KILLS_MAX: u32 = 40;

/// A running process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) start: u64,
    /// When it has used up its time.
    pub(crate) deadline: Option<Moment>,
    stop: Option<Stop>,
    exit: Option<Exit>,
}

#[derive(Debug)]
struct Stop {
    kill_at: Moment,
    look_at: Moment,
    kills: u32,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
    /// It was somebody else's child.
    Unknown,
}

/// Why a process could not be started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SpawnFailure {
    pub(crate) message: String,
    pub(crate) category: Category,
}

impl Process {
    /// Starts a program in a group of its own, its output going to the log.
    pub(crate) fn spawn(
        exec: &Exec,
        env: &BTreeMap<String, String>,
        input: Stdio,
        output: File,
    ) -> Result<Self, SpawnFailure> {
        let workdir = Path::new(&exec.workdir);
        if !fs::metadata(workdir).is_ok_and(|found| found.is_dir()) {
            let message = format!("the working directory `{}` does not exist", exec.workdir);
            return Err(SpawnFailure { message, category: Category::Permanent });
        }
        let Some((name, arguments)) = exec.argv.split_first() else {
            let message = "the command is empty".to_owned();
            return Err(SpawnFailure { message, category: Category::Permanent });
        };
        let search = exec.env.get("PATH").or_else(|| env.get("PATH"));
        let program = resolve(name, search.map_or(PATH_DEFAULT, String::as_str), workdir)?;
        let errors = output.try_clone().map_err(|error| spawn_failure(name, &error))?;
        let mut command = Command::new(program);
        command.arg0(name).args(arguments).current_dir(workdir);
        // Together with an absolute program this keeps to the standard library's `posix_spawn`.
        command.env_clear().envs(env).envs(&exec.env).process_group(0);
        command.stdin(input).stdout(output).stderr(errors);
        let child = command.spawn().map_err(|error| spawn_failure(name, &error))?;
        let pid = child.id().cast_signed();
        Ok(Self {
            pid,
            start: host::start(pid).unwrap_or(0),
            deadline: None,
            stop: None,
            exit: None,
        })
    }

    /// A process that another runner started and that still runs.
    pub(crate) fn adopt(pid: i32, start: u64) -> Option<Self> {
        (host::live_start(pid) == Some(start)).then_some(Self {
            pid,
            start,
            deadline: None,
            stop: None,
            exit: None,
        })
    }

    /// Asks the group to end, once.
    pub(crate) fn terminate(&mut self, now: Moment, grace: Duration) {
        if self.stop.is_none() {
            self.signal(Signal::TERM);
            // A stopped process cannot obey.
            self.signal(Signal::CONT);
            self.stop =
                Some(Stop { kill_at: now.after(grace), look_at: now.after(LOOK), kills: 0 });
        }
    }

    /// Whether the leader is not over yet, be it waited for or not.
    pub(crate) fn is_there(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.group().is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), options), Ok(None)))
    }

    /// Ends the group at once.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// The leader was waited for, or is gone.
    pub(crate) fn exited(&mut self, exit: Exit) {
        self.exit = Some(exit);
    }

    /// How it ended, once it is over: the leader, and where it is being ended the whole group.
    pub(crate) fn over(&self) -> Option<Exit> {
        let exit = self.exit?;
        match &self.stop {
            Some(stop) if stop.kills < KILLS_MAX && self.group_lives() => None,
            _ => Some(exit),
        }
    }

    /// Goes on with what time demands.
    pub(crate) fn on_time(&mut self, now: Moment) {
        let Some(stop) = &mut self.stop else { return };
        stop.look_at = now.after(LOOK);
        if stop.kill_at <= now && stop.kills < KILLS_MAX {
            stop.kills += 1;
            self.signal(Signal::KILL);
        }
    }

    /// When it wants to be looked at next.
    pub(crate) fn wake(&self) -> Option<Moment> {
        match (&self.stop, self.exit) {
            (Some(stop), _) if stop.kills >= KILLS_MAX => None,
            (Some(stop), Some(_)) => Some(stop.look_at),
            (Some(stop), None) => Some(stop.look_at.max(stop.kill_at)),
            (None, _) => self.deadline,
        }
    }

    /// Whether it used up its time and nobody has ended it yet.
    pub(crate) fn is_out_of_time(&self, now: Moment) -> bool {
        self.stop.is_none() && self.exit.is_none() && self.deadline.is_some_and(|at| at <= now)
    }

    /// Whether somebody of its group is left.
    pub(crate) fn group_lives(&self) -> bool {
        self.group().is_some_and(|group| test_kill_process_group(group).is_ok())
    }

    /// An adopted process cannot be waited for: it is over when its entry is gone.
    pub(crate) fn look(&mut self) {
        if self.exit.is_none() && host::live_start(self.pid) != Some(self.start) {
            self.exit = Some(Exit::Unknown);
        }
    }

    fn group(&self) -> Option<Pid> {
        Pid::from_raw(self.pid)
    }

    fn signal(&self, signal: Signal) {
        // A group that is gone cannot be told; nothing is lost by that.
        let _gone = self.group().map(|group| kill_process_group(group, signal));
    }
}

impl Exit {
    pub(crate) fn of(status: WaitStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }

    /// The code as a shell would say it: 128 + n for signal n.
    pub(crate) fn code(self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal(signal) => Some(128 + signal),
            Self::Unknown => None,
        }
    }

    /// What happened, to follow "it".
    pub(crate) fn sentence(self) -> String {
        match self {
            Self::Code(126) => {
                "found its command, which cannot be executed (exit code 126)".to_owned()
            }
            Self::Code(127) => "did not find its command (exit code 127)".to_owned(),
            Self::Code(code) => format!("ended with exit code {code}"),
            Self::Signal(signal) => {
                format!("was ended by {} (exit code {})", signal_name(signal), 128 + signal)
            }
            Self::Unknown => "ended, its exit code is unknown".to_owned(),
        }
    }

    /// Whether a repetition makes sense: a shell's 126 and 127 will come again.
    pub(crate) fn category(self) -> Category {
        match self {
            Self::Code(126 | 127) => Category::Permanent,
            Self::Code(_) | Self::Signal(_) | Self::Unknown => Category::Transient,
        }
    }
}

/// The names of signals that end jobs.
const SIGNALS: [(i32, &str); 12] = [
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (11, "SIGSEGV"),
    (13, "SIGPIPE"),
    (14, "SIGALRM"),
    (15, "SIGTERM"),
];

fn signal_name(signal: i32) -> String {
    let found = SIGNALS.iter().find(|(number, _)| *number == signal);
    found.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

/// Where programs are looked for when the job has no `PATH`.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// Finds the program. It is done here and not by the standard library, because a job has its own
/// `PATH`, because that would cost a full fork, and because "not found" deserves a sentence.
fn resolve(name: &str, search: &str, workdir: &Path) -> Result<PathBuf, SpawnFailure> {
    let refuse = |message| SpawnFailure { message, category: Category::Permanent };
    let candidates: Vec<PathBuf> = if name.contains('/') {
        vec![workdir.join(name)]
    } else {
        search.split(':').map(|dir| workdir.join(dir).join(name)).collect()
    };
    let files = || candidates.iter().filter_map(|path| Some((path, fs::metadata(path).ok()?)));
    let executable =
        |found: &fs::Metadata| found.is_file() && found.permissions().mode() & 0o111 != 0;
    if let Some((path, _)) = files().find(|(_, found)| executable(found)) {
        return Ok(path.clone());
    }
    Err(refuse(match files().next() {
        Some((path, _)) => format!("the program `{}` is not executable", path.display()),
        None if name.contains('/') => format!("the program `{name}` does not exist"),
        None => format!("the program `{name}` is not in PATH ({search})"),
    }))
}

fn spawn_failure(name: &str, error: &io::Error) -> SpawnFailure {
    use io::ErrorKind as Kind;
    let permanent = matches!(
        error.kind(),
        Kind::NotFound | Kind::PermissionDenied | Kind::InvalidInput | Kind::ArgumentListTooLong
    ) || error.raw_os_error() == Some(ENOEXEC);
    let category = if permanent { Category::Permanent } else { Category::Transient };
    SpawnFailure { message: format!("the program `{name}` cannot be started: {error}"), category }
}

const ENOEXEC: i32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str) -> String {
        resolve(name, "/nowhere:/etc:/usr/bin:/bin", Path::new("/etc")).unwrap_err().message
    }

    #[test]
    fn programs_are_found_in_the_jobs_path() {
        let found = resolve("sh", "/nowhere:/bin", Path::new("/")).unwrap();
        assert_eq!(found, Path::new("/bin/sh"));
        assert_eq!(resolve("./sh", "", Path::new("/bin")).unwrap(), Path::new("/bin/./sh"));
    }

    #[test]
    fn a_program_that_cannot_run_is_named() {
        let search = "/nowhere:/etc:/usr/bin:/bin";
        assert_eq!(refusal("no-such"), format!("the program `no-such` is not in PATH ({search})"));
        assert_eq!(refusal("./no-such"), "the program `./no-such` does not exist");
        assert_eq!(refusal("./passwd"), "the program `/etc/./passwd` is not executable");
    }

    #[test]
    fn exits_are_told_as_a_shell_tells_them() {
        for (exit, code, sentence) in [
            (Exit::Code(3), Some(3), "ended with exit code 3"),
            (Exit::Signal(9), Some(137), "was ended by SIGKILL (exit code 137)"),
            (Exit::Signal(34), Some(162), "was ended by signal 34 (exit code 162)"),
            (Exit::Unknown, None, "ended, its exit code is unknown"),
        ] {
            assert_eq!((exit.code(), exit.sentence().as_str()), (code, sentence));
        }
        assert_eq!(Exit::Code(127).category(), Category::Permanent);
        assert_eq!(Exit::Code(2).category(), Category::Transient);
    }
}
