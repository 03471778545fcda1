//! Faults, injected into real processes: what hangs is named, what must end ends, and nothing ends too early.
//!
//! The numbers in the tests' names are those of the list of faults in `docs/adr/0021-liveness.md`. A sick process is this
//! program itself, started again to play one part (`patient`); it says what happens to it on its standard output.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]
#![expect(clippy::print_stdout, reason = "a patient says how it does")]
#![expect(clippy::disallowed_methods, reason = "a real process in real time is what is tested")]

mod dumps;
mod ends;
mod patient;
mod probed;
mod supervised;
mod well;

use std::{
    io::{BufRead as _, BufReader, Lines},
    os::unix::process::ExitStatusExt as _,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

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
    says: Lines<BufReader<ChildStdout>>,
    heard: Vec<String>,
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
        let says = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, says, heard: vec![], began: Instant::now() }
    }

    /// Waits until it says something that begins so; answers with the rest of the line.
    fn until(&mut self, start: &str) -> String {
        for line in &mut self.says {
            let line = line.unwrap();
            self.heard.push(line.clone());
            // The harness may have begun a line of its own.
            if let Some(at) = line.find(start) {
                return line[at + start.len()..].trim().to_owned();
            }
        }
        panic!("it ended without saying `{start}`: {:#?}", self.heard);
    }

    /// Waits for its end; answers with how it ended and all that it said.
    fn ends(&mut self) -> ExitStatus {
        for line in &mut self.says {
            self.heard.push(line.unwrap());
        }
        self.child.wait().unwrap()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    fn said(&self, text: &str) -> bool {
        self.heard.iter().any(|line| line.contains(text))
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _already_gone = self.child.wait();
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
