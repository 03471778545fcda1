//! Waits for a process that the test started.

use std::{
    process::{Child, ExitStatus, Output},
    thread,
    time::{Duration, Instant},
};

use crate::{
    expired,
    pipe::{Collector, tail},
    poll,
};

/// How long a process may take to be gone after SIGKILL, and what it printed to arrive.
const GONE_IN: Duration = Duration::from_secs(30);

/// `wait` and `wait_with_output` with a bound.
pub trait ChildWithin {
    /// Waits for the end. At the bound the process is killed, and what it printed into pipes that the test has not taken is
    /// shown.
    #[track_caller]
    fn wait_within(&mut self, what: &str, bound: Duration) -> ExitStatus;

    /// Waits for the end and for everything that was printed into pipes. At the bound the process is killed, and what it
    /// printed is shown.
    #[track_caller]
    fn output_within(self, what: &str, bound: Duration) -> Output;

    /// Kills it, if it still runs, and waits until it is gone. For a `Drop` too: it does not panic while the test does.
    #[track_caller]
    fn kill_and_wait(&mut self);
}

impl ChildWithin for Child {
    #[track_caller]
    fn wait_within(&mut self, what: &str, bound: Duration) -> ExitStatus {
        // As `wait` does: a program that reads until its input ends would never end.
        drop(self.stdin.take());
        let Some(status) = poll(bound, || ended(self)) else {
            let said = Said::begin(self);
            expired(what, bound, &said.last_words(self));
        };
        status
    }

    #[track_caller]
    fn output_within(mut self, what: &str, bound: Duration) -> Output {
        drop(self.stdin.take());
        let (said, began) = (Said::begin(&mut self), Instant::now());
        let is_over = || (said.is_complete()).then(|| ended(&mut self)).flatten();
        let Some(status) = poll(bound.saturating_sub(began.elapsed()), is_over) else {
            expired(what, bound, &said.last_words(&mut self));
        };
        Output { status, stdout: said.stdout.taken(), stderr: said.stderr.taken() }
    }

    #[track_caller]
    fn kill_and_wait(&mut self) {
        // It may have ended by itself.
        let _already_gone = self.kill();
        let gone = poll(GONE_IN, || ended(self));
        if gone.is_none() && !thread::panicking() {
            expired(&format!("the end of process {} after SIGKILL", self.id()), GONE_IN, "");
        }
    }
}

/// How a process ended, if it has.
#[track_caller]
fn ended(child: &mut Child) -> Option<ExitStatus> {
    match child.try_wait() {
        Ok(status) => status,
        Err(error) => panic!("cannot wait for process {}: {error}", child.id()),
    }
}

/// What a process prints into the pipes of the test.
struct Said {
    stdout: Collector,
    stderr: Collector,
}

impl Said {
    fn begin(child: &mut Child) -> Self {
        let stdout = child.stdout.take().map_or_else(Collector::nothing, Collector::begin);
        let stderr = child.stderr.take().map_or_else(Collector::nothing, Collector::begin);
        Self { stdout, stderr }
    }

    fn is_complete(&self) -> bool {
        self.stdout.is_complete() && self.stderr.is_complete()
    }

    /// Ends a process that is over its bound, and says what is known about it.
    fn last_words(&self, child: &mut Child) -> String {
        let pid = child.id();
        let state = if let Ok(Some(status)) = child.try_wait() {
            format!("process {pid} ended ({status}), but another holds its output")
        } else {
            let _already_gone = child.kill();
            let _gone = poll(GONE_IN, || child.try_wait().ok().flatten());
            // Only what is in the pipes now: a process that it started may hold them open.
            let _complete = poll(Duration::from_secs(1), || self.is_complete().then_some(()));
            format!("process {pid} still ran and was killed")
        };
        let text = |pipe: &Collector| tail(&String::from_utf8_lossy(&pipe.taken()));
        format!("{state}\nstdout: {}\nstderr: {}", text(&self.stdout), text(&self.stderr))
    }
}
