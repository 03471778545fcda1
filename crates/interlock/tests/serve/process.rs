//! Real processes, for several test binaries: each test says which signals they inherit as ignored or blocked, instead of
//! handing on what the tests were started with (by `nohup`, CI, a script's `&`), and every wait for them has a bound and says what it waited for.

use std::{
    io::Read,
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitStatus, Output},
    time::Duration,
};

use interlock_wait::{ChildWithin as _, CommandWithin as _};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Long enough for anything that should happen at all.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

/// Starts a program with every signal's default action, and none blocked.
pub(crate) const PLAIN: &[&str] = &["env", "--default-signal"];

/// Start a program with signals ignored or blocked, as its callers do: the `nohup` of a shell, the `&` of a script, a parent that
/// ignores SIGPIPE (Python, a unit of systemd), and one that leaves as much as it can.
pub(crate) const UNUSUAL: [&[&str]; 4] = [
    &["nohup"],
    &["sh", "-c", "\"$@\" & wait $!", "sh"],
    &["env", "--ignore-signal=PIPE"],
    &[
        "env",
        "--ignore-signal=HUP,INT,QUIT,PIPE,USR1,TERM,CHLD,RTMIN",
        "--block-signal=TERM,USR2,HUP,CHLD",
    ],
];

/// Prints what it ignores, blocks and catches itself, for [`signals`].
pub(crate) const SHOW: [&str; 2] = ["cat", "/proc/self/status"];

/// The two numbers that the C library keeps for itself: its `posix_spawn` has them ignored in every program.
const OF_THE_C_LIBRARY: u64 = 0b11 << 31;

/// The blocked, ignored and caught signals in what [`SHOW`] printed; signal n is bit n - 1.
#[track_caller]
pub(crate) fn signals(shown: &[u8]) -> [u64; 3] {
    let shown = String::from_utf8_lossy(shown);
    ["SigBlk:", "SigIgn:", "SigCgt:"].map(|name| {
        let mask = shown.lines().find_map(|line| line.strip_prefix(name));
        let mask = mask.unwrap_or_else(|| panic!("no {name} in {shown:?}"));
        u64::from_str_radix(mask.trim(), 16).unwrap() & !OF_THE_C_LIBRARY
    })
}

/// The same command, started by other words before it; its streams are yet to be set.
pub(crate) fn started_by(words: &[&[&str]], command: &Command) -> Command {
    let words = words.concat();
    let (first, rest) = words.split_first().unwrap();
    let mut whole = Command::new(first);
    whole.args(rest).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => whole.env(name, value),
            None => whole.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        whole.current_dir(directory);
    }
    whole
}

/// A process in a group of its own, which ends with the test.
pub(crate) struct Started {
    pub(crate) child: Child,
    is_over: bool,
}

impl Started {
    #[track_caller]
    pub(crate) fn new(command: &mut Command) -> Self {
        let child = command.process_group(0).spawn();
        let child = child.unwrap_or_else(|e| panic!("{}: {e}", command.get_program().display()));
        Self { child, is_over: false }
    }

    #[track_caller]
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn ends(&mut self, what: &str) -> ExitStatus {
        let status = self.child.wait_within(&format!("the end of {what}"), BOUND);
        self.is_over = true;
        status
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.is_over {
            let _already_gone = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            self.child.kill_and_wait();
        }
    }
}

/// What a process prints, line by line.
pub(crate) struct Lines(interlock_wait::Lines);

impl Lines {
    pub(crate) fn of(stream: impl Read + Send + 'static) -> Self {
        Self(interlock_wait::Lines::of(stream))
    }

    /// Reads until something was said so often.
    #[track_caller]
    pub(crate) fn until(&mut self, words: &str, times: usize) {
        let mut missing = times.saturating_sub(self.said().matches(words).count());
        if missing == 0 {
            return;
        }
        let what = format!("`{words}` to be said {times} times");
        let found = self.0.find_within(&what, BOUND, |line| {
            missing = missing.saturating_sub(line.matches(words).count());
            missing == 0
        });
        assert!(found.is_some(), "the output ended without {what}: {}", self.said());
    }

    /// Reads to the end; says all that was read from the beginning.
    #[track_caller]
    pub(crate) fn rest(mut self, what: &str) -> String {
        self.0.rest_within(&format!("the end of what {what} says"), BOUND);
        self.said()
    }

    /// All that was read so far.
    pub(crate) fn said(&self) -> String {
        self.0.heard().join("\n")
    }
}

/// Runs a command to its end, in a group of its own, with nothing to read.
#[track_caller]
pub(crate) fn output(command: &mut Command) -> Output {
    let ran = command.process_group(0).output_within(BOUND);
    ran.unwrap_or_else(|e| panic!("{}: {e}", command.get_program().display()))
}
