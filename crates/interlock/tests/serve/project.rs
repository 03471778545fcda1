//! A project on disk, jobs that say what they did, and the processes around them.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use interlock_wait::{BOUND, CommandWithin as _, wait_for_seeing};

use crate::{end_the_runner, log};

/// A job that writes when it begins and how it ends, one line each. A line is one write to the end of the
/// file, so lines never mix; what was written outlives every process, so nothing needs to be synced.
///
/// `sh job.sh PART SECONDS CODE`
const JOB: &str = r#"
say() { printf '%s %s %s %s %s\n' "$1" "$INTERLOCK_RUN_ID" "$INTERLOCK_SLOT" "$INTERLOCK_ATTEMPT" "$2" >> ran.log; }
say start "$1"
sleep "$2"
say end "$1=$3"
exit "$3"
"#;

/// A run each second, none of which is ever left out.
pub(crate) const TICKER: &str = "
name: ticker
schedule: {cron: '* * * * * *', seconds: true}
startGrace: 5s
catchupWindow: 1h
overlapPolicy: all
trigger: {type: command, command: sh job.sh whole 0 0}
";

/// A project in a directory of its own; its runner and its jobs' folder go with it.
pub(crate) struct Project {
    dir: tempfile::TempDir,
}

/// What a command of the real binary did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let killed = || -output.status.signal().unwrap_or(0);
        Self {
            code: output.status.code().unwrap_or_else(killed),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

impl Project {
    /// A project of these pipelines, by name and text.
    pub(crate) fn new(pipelines: &[(&str, &str)]) -> Self {
        let project = Self { dir: tempfile::tempdir().unwrap() };
        fs::write(project.path().join("job.sh"), JOB).unwrap();
        fs::create_dir(project.path().join("pipelines")).unwrap();
        for (name, text) in pipelines {
            project.write(name, text);
        }
        project
    }

    /// Writes a pipeline's file.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(format!("pipelines/{name}.yaml")), text).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Where the ledger is.
    pub(crate) fn folder(&self) -> PathBuf {
        self.path().join(".interlock")
    }

    /// Runs a command of the real binary on this project.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        interlock(self.path(), arguments)
    }

    /// The runners of this project: one, none, or two for the moment in which the second one gives way.
    pub(crate) fn runners(&self) -> Vec<u32> {
        let Ok(ours) = self.folder().join("runner").canonicalize() else { return vec![] };
        let ours = ours.display().to_string();
        processes(|words| words.get(1) == Some(&"runner") && words.get(2) == Some(&ours.as_str()))
    }

    /// Kills what a dead daemon has left: its runner, and one that it had forked and that had not become a runner yet. That
    /// one still has the daemon's command line, comes up later, and answers in the place of the next runner.
    pub(crate) fn kill_what_the_daemon_left(&self) {
        let ours = self.path().display().to_string();
        let forked = processes(|words| words.get(1) == Some(&"serve") && words.contains(&&*ours));
        for pid in forked.into_iter().chain(self.runners()) {
            kill(pid);
        }
    }

    /// Kills the runner, if there is one.
    pub(crate) fn kill_runner(&self) -> usize {
        self.runners().into_iter().filter(|pid| kill(*pid)).count()
    }

    /// Waits until something holds, and shows the daemon's log when it does not.
    ///
    /// Two minutes are long, because what became of a lost job is looked for for one (S18).
    #[track_caller]
    pub(crate) fn until<T>(&self, what: &str, holds: impl FnMut() -> Option<T>) -> T {
        let seen = || tail(&log(self.path())).to_owned();
        wait_for_seeing(what, Duration::from_mins(2), holds, seen)
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        if self.folder().join("runner").exists() {
            end_the_runner(self.path());
        }
    }
}

/// Runs a command of the real binary, for a while at most.
pub(crate) fn interlock(directory: &Path, arguments: &[&str]) -> Ran {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "30", env!("CARGO_BIN_EXE_interlock")]);
    command.args(arguments).arg("-C").arg(directory).output_within(BOUND).unwrap().into()
}

/// Sends SIGKILL; says whether there was somebody to send it to.
pub(crate) fn kill(pid: u32) -> bool {
    signal(pid, "-9")
}

/// Sends a signal, such as `-TERM`; says whether there was somebody to send it to.
pub(crate) fn signal(pid: u32, name: &str) -> bool {
    Command::new("kill")
        .args([name, &pid.to_string()])
        .status_within(BOUND)
        .is_ok_and(|s| s.success())
}

/// The end of a long text.
pub(crate) fn tail(text: &str) -> &str {
    let from = text.len().saturating_sub(6_000);
    text.get(from..).unwrap_or(text)
}

/// Numbers that look random and repeat with their seed (`splitmix64`).
pub(crate) struct Dice(u64);

impl Dice {
    /// Chance of this run; `INTERLOCK_TEST_SEED` repeats another one. It is printed, and so shown with a
    /// failure.
    pub(crate) fn new() -> Self {
        let given = std::env::var("INTERLOCK_TEST_SEED").ok().map(|text| text.parse().unwrap());
        let seed = given.unwrap_or_else(|| jiff::Timestamp::now().as_nanosecond() as u64);
        println!("INTERLOCK_TEST_SEED={seed}");
        Self(seed)
    }

    /// A number from `0` to `below - 1`.
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}

/// The processes whose command lines are such.
fn processes(is_wanted: impl Fn(&[&str]) -> bool) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let found = entries.filter(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        is_wanted(&line.split('\0').collect::<Vec<_>>())
    });
    found.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
