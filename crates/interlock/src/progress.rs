//! How far something is that takes a while: done, of how many, how long still; on a terminal alone, and not in the first two seconds.
//!
//! One line of standard error is written over again and again, and gone when the work has ended: what a command prints is the same with
//! and without it.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use jiff::SignedDuration;

use crate::{clock, exit::Failure, output::Output};

/// What ends sooner says nothing.
const QUIET_FOR: Duration = Duration::from_secs(2);
/// How often the line is written.
const EVERY: Duration = Duration::from_millis(250);
/// No estimate is made from less than this share of the work.
const ESTIMATED_FROM: u64 = 100;

/// Work on its way.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    /// How many there are, where that is known.
    total: Option<u64>,
    /// How it goes on after an interrupt, if it does.
    resumed_by: Option<&'static str>,
    is_shown: bool,
    since: Duration,
    written_at: Option<Duration>,
}

impl Progress {
    /// Of so many things.
    pub(crate) fn of(what: &'static str, total: u64) -> Self {
        Self { total: Some(total), ..Self::unbounded(what) }
    }

    /// Of things that cannot be counted beforehand.
    pub(crate) fn unbounded(what: &'static str) -> Self {
        let is_shown = io::stderr().is_terminal();
        let since = now();
        Self { what, total: None, resumed_by: None, is_shown, since, written_at: None }
    }

    /// The same, which goes on where it was when it is begun again with this command.
    pub(crate) fn resumed_by(self, command: &'static str) -> Self {
        Self { resumed_by: Some(command), ..self }
    }

    /// Says that so many are done.
    pub(crate) fn step(&mut self, done: u64, output: &mut Output) -> Result<(), Failure> {
        let at = now();
        if !self.is_shown || !is_due(self.since, self.written_at, at) {
            return Ok(());
        }
        self.written_at = Some(at);
        let line = line(self.what, (done, self.total), at.saturating_sub(self.since));
        let how = self.resumed_by.map(|it| format!(" (Ctrl-C loses nothing: `{it}` goes on)"));
        write!(output.err, "\r\x1b[K{line}{}", how.unwrap_or_default())?;
        Ok(output.err.flush()?)
    }

    /// Takes the line away.
    pub(crate) fn finish(self, output: &mut Output) -> Result<(), Failure> {
        if self.written_at.is_some() {
            write!(output.err, "\r\x1b[K")?;
            output.err.flush()?;
        }
        Ok(())
    }
}

/// The time by the clock that is never set.
fn now() -> Duration {
    clock::boot().unwrap_or_default()
}

/// Whether something is to be said now.
fn is_due(since: Duration, written_at: Option<Duration>, at: Duration) -> bool {
    match written_at {
        None => at.saturating_sub(since) >= QUIET_FOR,
        Some(before) => at.saturating_sub(before) >= EVERY,
    }
}

/// `copied 1200 of 5000 rows, 24%, 40s left`.
fn line(what: &str, (done, total): (u64, Option<u64>), taken: Duration) -> String {
    let so_far = SignedDuration::from_secs(taken.as_secs() as i64);
    let Some(total) = total.filter(|total| *total > 0) else {
        return format!("{done} {what} so far, {so_far:#}");
    };
    let done = done.min(total);
    let percent = done.saturating_mul(100) / total;
    match left(done, total, taken) {
        Some(left) => format!("{done} of {total} {what}, {percent}%, {left:#} left"),
        None => format!("{done} of {total} {what}, {percent}%"),
    }
}

/// How long it will still take, if that can be told.
fn left(done: u64, total: u64, taken: Duration) -> Option<SignedDuration> {
    let is_enough = done.saturating_mul(ESTIMATED_FROM) >= total && done > 0;
    let rest = u128::from(total - done.min(total));
    let millis = is_enough.then(|| taken.as_millis().saturating_mul(rest) / u128::from(done))?;
    // Whole seconds, rounded up: nothing is left at the end alone.
    i64::try_from(millis.div_ceil(1_000)).ok().map(SignedDuration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_done_of_how_many_and_how_long_still() {
        let said = |done, total, seconds| line("rows", (done, total), Duration::from_secs(seconds));
        assert_eq!(said(1_200, Some(5_000), 12), "1200 of 5000 rows, 24%, 38s left");
        assert_eq!(said(5_000, Some(5_000), 50), "5000 of 5000 rows, 100%, 0s left");
        assert_eq!(said(3, Some(5_000), 3), "3 of 5000 rows, 0%", "too little to tell from");
        assert_eq!(said(7, None, 75), "7 rows so far, 1m 15s");
        assert_eq!(said(0, Some(0), 1), "0 rows so far, 1s");
        assert_eq!(said(9, Some(5), 10), "5 of 5 rows, 100%, 0s left", "more came meanwhile");
    }

    #[test]
    fn nothing_is_said_in_the_first_seconds_and_then_four_times_a_second() {
        let at = Duration::from_millis;
        assert!(!is_due(at(0), None, at(1_999)));
        assert!(is_due(at(0), None, at(2_000)));
        assert!(!is_due(at(0), Some(at(2_000)), at(2_249)));
        assert!(is_due(at(0), Some(at(2_000)), at(2_250)));
    }
}
