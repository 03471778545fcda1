//! Faults, injected into real processes: what hangs is named, what must end ends, and nothing ends too early.
//!
//! The numbers in the tests' names are those of the research's list of faults. A sick process is this program itself, started
//! again to play one part (`patient`); it says what happens to it on its standard output.
//!
//! | # | fault | where its test is |
//! |---|---|---|
//! | 1, 2 | deadlock; endless loop | `ends`, `dumps` |
//! | 3 | kicks on a timer | no such function; `supervised`: beats stop when the loop does |
//! | 4, 5, 6, 7 | one, all workers blocked; saturated runtime; exhausted blocking pool | `tests/runtime.rs` |
//! | 8 | thread with all signals blocked | `dumps` |
//! | 9 | wedged allocator | `src/sys/wedge.rs` |
//! | 10, 11, 12 | monitor, hook, log hang | `ends` |
//! | 13 | process stopped | `ends`, `well`, `supervised`, `src/roster/tests.rs` |
//! | 14 | stopped between check and write | the stores' conformance suite (`a_commit_that_races_a_takeover_…` and the other cases of S9), on every store |
//! | 15 | supervisor stopped | `supervised` |
//! | 16 | wall clock set (times in and of files jump: the machine's own clock is not ours to set) | `supervised`, `src/heartbeat` |
//! | 17 | sleep of the machine (made up: none here sleeps) | `src/roster/tests.rs` |
//! | 18 | CPU quota | `grouped` |
//! | 19 | process 1 of a namespace | `ends` |
//! | 20, 21 | full disk; file removed or replaced | `supervised`, `src/heartbeat` |
//! | 22 | heartbeat disk hangs (a pipe that nobody reads; a file system whose server never answers) | `well`, `supervised` |
//! | 23 | leftovers of an earlier boot or process | `src/heartbeat` |
//! | 24 | out of memory | `grouped` |
//! | 25, 26, 27, 28 | crash loop, hang loop, survivors and orphans by the hundred, supervisor killed | `supervised`, `src/supervise/backoff.rs` |
//! | 29, 30 | systemd's socket and periods (a socket of our own: there is no systemd here) | `src/systemd.rs` |
//! | 31, 32, 34 | renewal fails, or is slow; leader hangs | `crates/interlock/tests/serve/leader.rs`, with real servers |
//! | 33 | candidates race | the stores' conformance suite (`races_of_threads_…`, 200 rounds of 16), on every store |
//! | 35 | debugger | `ends`, with strace |
//! | 36 | watches that come and go | `well`, `src/roster/tests.rs` |
//! | 37 | pauses | `ends`, `src/roster/tests.rs` |
//! | 38 | false alarms | `soak`, for longer by `cargo xtask soak --liveness MINUTES` (not 24 h); the suggested limit in `src/roster/tests.rs` |
//! | 39 | budgets | `dumps`; `cargo xtask bench liveness` |

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]
#![expect(clippy::print_stdout, reason = "a patient says how it does")]
#![expect(clippy::disallowed_methods, reason = "a real process in real time is what is tested")]

mod dumps;
mod ends;
mod grouped;
mod patient;
mod probed;
mod soak;
mod supervised;
mod well;

use std::{
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use interlock_wait::{BOUND, ChildWithin as _, CommandWithin as _, Lines};

/// Which part a process plays.
const PART: &str = "LIVENESS_PART";

/// Not a test: what a patient does.
#[test]
fn patient() {
    if let Ok(part) = std::env::var(PART) {
        patient::play(&part);
    }
}

/// A process that is about to be sick.
struct Patient {
    child: Child,
    says: Lines,
    began: Instant,
}

impl Patient {
    fn start(part: &str) -> Self {
        Self::start_by(&[], part)
    }

    /// Starts it through another program, such as `unshare`.
    fn start_by(program: &[&str], part: &str) -> Self {
        Self::spawn(&mut Self::command(program, part))
    }

    fn command(program: &[&str], part: &str) -> Command {
        let this = std::env::current_exe().unwrap();
        let mut command = match program {
            [] => Command::new(this),
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments).arg(this);
                command
            }
        };
        command.args(["--exact", "patient", "--nocapture"]).env(PART, part);
        command
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let says = Lines::of(child.stdout.take().unwrap());
        Self { child, says, began: Instant::now() }
    }

    /// Waits until it says something that begins so; answers with the rest of the line.
    #[track_caller]
    fn until(&mut self, start: &str) -> String {
        self.find(start)
            .unwrap_or_else(|| panic!("it ended without saying `{start}`: {:#?}", self.heard()))
    }

    /// The rest of the next line that begins so; none if it ends before.
    #[track_caller]
    fn find(&mut self, start: &str) -> Option<String> {
        let what = format!("the patient to say `{start}`");
        // The harness may have begun a line of its own.
        let line = self.says.find_within(&what, BOUND, |line| line.contains(start))?;
        line.split_once(start).map(|(_, rest)| rest.trim().to_owned())
    }

    /// Waits for its end; answers with how it ended and all that it said.
    #[track_caller]
    fn ends(&mut self) -> ExitStatus {
        self.says.rest_within("the end of what the patient says", BOUND);
        self.child.wait_within("the end of the patient", BOUND)
    }

    /// What it said so far.
    fn heard(&self) -> &[String] {
        self.says.heard()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status_within(BOUND).unwrap().success());
    }

    fn said(&self, text: &str) -> bool {
        self.heard().iter().any(|line| line.contains(text))
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        self.child.kill_and_wait();
    }
}

/// The signal that ended it.
fn signal_of(status: ExitStatus) -> Option<i32> {
    status.signal()
}

/// Whether a time is at least one and less than another.
fn is_between(time: Duration, least: Duration, most: Duration) -> bool {
    time >= least && time < most
}
