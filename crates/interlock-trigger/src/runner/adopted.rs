//! Runs that an earlier runner left behind.
//!
//! A process is recognised by its pid and its start time. One that still runs is watched until it
//! ends, and ended when its time is up or somebody asks. How it ended cannot be learnt, because a
//! process tells its exit code to its parent alone: the run is lost (S18), unless it was ended from
//! here, or its outcome had been decided before its handlers ran.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    book::{Entry, Record},
    desk::Desk,
    journal::Boot,
    process::Process,
    protocol::{Category, End, News},
    time::{self, Moment},
};

/// How often a process that is nobody's child is looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(200);

/// One run that was left behind.
#[derive(Debug)]
pub(crate) struct Adopted {
    run_id: String,
    processes: Vec<Process>,
    deadline: Option<Moment>,
    grace: Duration,
    /// How it ends if it was ended from here.
    forced: Option<End>,
    decided: Option<End>,
    reason: &'static str,
}

impl Adopted {
    /// Looks for what is left of a run.
    pub(crate) fn new(entry: &Entry, boot: Boot, now: Moment, wall: Timestamp) -> Self {
        let left = entry.live.iter().filter(|_| boot == Boot::Same);
        let processes = left.filter_map(|left| Process::adopt(left.pid, left.start)).collect();
        let reason = match (boot, entry.spawned) {
            (Boot::Other, _) => "the host was restarted while it ran",
            (Boot::Same, false) => "the runner ended while it was starting the job",
            (Boot::Same, true) => {
                "the runner was restarted while it ran, so its exit code is unknown"
            }
        };
        let left = |at: Timestamp| at.duration_since(wall).try_into().unwrap_or(Duration::ZERO);
        Self {
            run_id: entry.intent.run_id.clone(),
            processes,
            deadline: entry.intent.deadline.map(|at| now.after(left(at))),
            grace: Duration::from_millis(entry.intent.grace_ms),
            forced: None,
            decided: entry.decided.clone(),
            reason,
        }
    }

    /// Asks what is left to end.
    pub(crate) fn cancel(&mut self, now: Moment) {
        let message = "it was cancelled".to_owned();
        self.end(End::Cancelled { message }, now);
    }

    fn end(&mut self, end: End, now: Moment) {
        self.forced.get_or_insert(end);
        self.processes.iter_mut().for_each(|process| process.terminate(now, self.grace));
    }

    /// Looks after it; true once it is over and told.
    pub(crate) fn on_time(&mut self, desk: &mut Desk, now: Moment) -> bool {
        if self.forced.is_none() && self.deadline.is_some_and(|at| at <= now) {
            let message = "it was ended after its timeout".to_owned();
            let metadata = desk.metadata(&self.run_id);
            let end = End::Failure { message, category: Category::Timeout, metadata };
            self.end(end, now);
        }
        for process in &mut self.processes {
            process.look();
            process.on_time(now);
        }
        let still_runs = self.processes.iter().any(|process| process.over().is_none());
        if !still_runs {
            self.tell_end(desk);
        }
        !still_runs
    }

    fn tell_end(&mut self, desk: &mut Desk) {
        let lost = || End::Lost { reason: self.reason.to_owned() };
        // Without a process there was nothing to end, so a cancellation proves nothing.
        let forced = self.forced.take().filter(|_| !self.processes.is_empty());
        let end = self.decided.take().or(forced).unwrap_or_else(lost);
        let run_id = self.run_id.clone();
        desk.note(Record::Ended { run_id, at: time::wall(), end: end.clone() });
        desk.tell(&self.run_id, News::Ended(end));
    }

    /// Whose it is.
    pub(crate) fn run_id(&self) -> &str {
        &self.run_id
    }
}
