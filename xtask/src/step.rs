//! A run of several steps: each under its heading, each timed, all of them always run.

use std::time::{Duration, Instant};

use crate::progress;

/// What became of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It held.
    Passed,
    /// It was not tried, because the caller said so; the reason is shown.
    LeftOut(String),
    /// It did not hold; the reason is shown.
    Failed(String),
}

impl From<Result<(), String>> for Outcome {
    fn from(result: Result<(), String>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(reason) => Self::Failed(reason),
        }
    }
}

/// The steps that were run so far.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    done: Vec<(String, Outcome, Duration)>,
}

impl Steps {
    /// Runs one step under its heading.
    pub(crate) fn run(&mut self, name: &str, body: impl FnOnce() -> Outcome) {
        println!("\n── {name}");
        let clock = start();
        let outcome = body();
        if let Outcome::Failed(reason) | Outcome::LeftOut(reason) = &outcome {
            println!("{reason}");
        }
        self.done.push((name.to_owned(), outcome, clock.elapsed()));
    }

    /// Prints what became of every step; fails when one failed.
    pub(crate) fn finish(self) -> Result<(), String> {
        println!("\n── summary");
        for (name, outcome, took) in &self.done {
            println!("{:<8} {:>7.1} s  {name}", word(outcome), took.as_secs_f64());
        }
        let (passed, failed, left_out) = self.counts();
        let took = self.done.iter().map(|(_, _, took)| *took).sum();
        println!("{:<8} {:>9}  in all", "", progress::spoken(took));
        let left_out = if left_out == 0 { String::new() } else { format!(", {left_out} left out") };
        println!("steps: {passed} passed, {failed} failed{left_out}");
        if failed == 0 { Ok(()) } else { Err(format!("{failed} of the steps above failed")) }
    }

    fn counts(&self) -> (usize, usize, usize) {
        let count = |wanted: &str| {
            self.done.iter().filter(|(_, outcome, _)| word(outcome) == wanted).count()
        };
        (count("ok"), count("FAILED"), count("left out"))
    }
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "ok",
        Outcome::LeftOut(_) => "left out",
        Outcome::Failed(_) => "FAILED",
    }
}

#[expect(clippy::disallowed_methods, reason = "how long a build step took is real time")]
fn start() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_runs_though_one_failed() {
        let mut steps = Steps::default();
        steps.run("first", || Outcome::Failed("no".to_owned()));
        steps.run("second", || Outcome::LeftOut("not here".to_owned()));
        steps.run("third", || Outcome::Passed);
        assert_eq!(steps.counts(), (1, 1, 1));
        assert!(steps.finish().is_err());
    }

    #[test]
    fn a_step_that_is_left_out_does_not_fail_the_run() {
        let mut steps = Steps::default();
        steps.run("only", || Outcome::LeftOut("not here".to_owned()));
        assert!(steps.finish().is_ok());
    }
}
