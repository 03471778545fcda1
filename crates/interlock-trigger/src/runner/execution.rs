//! One job under way: its steps, then its handlers.
//!
//! Every event (a process ended, time passed, somebody asked for the end) changes a little and then
//! goes through [`Execution::settle`], which starts what may begin and says when all is over. The
//! outcome is decided when the steps are over and journalled before the first handler runs: what
//! happens to a handler is recorded and changes nothing.

use std::{collections::VecDeque, path::PathBuf, process::Stdio, time::Duration};

use serde_json::Value;

use super::{
    book::Record,
    desk::Desk,
    job::{Exec, Job},
    log,
    process::{Exit, Process, SpawnFailure},
    progress::{AfterFailure, Progress},
    protocol::{Category, End, News},
    time::{self, Moment},
};
use interlock_ports::trigger::{Metadata, StepStatus};

/// Between two attempts at a step.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A handler that takes longer holds up nobody's outcome any more.
const HANDLER_TIMEOUT: Duration = Duration::from_mins(10);

/// A job under way.
#[derive(Debug)]
pub(crate) struct Execution {
    job: Job,
    log: PathBuf,
    progress: Progress,
    running: Vec<Running>,
    /// Steps that pause before their next attempt.
    pauses: Vec<(Moment, usize)>,
    began: Moment,
    deadline: Option<Moment>,
    forced: Option<Forced>,
    failure: Option<Failure>,
    exit_code: Option<i32>,
    is_started_told: bool,
    /// Once the steps are over.
    ending: Option<Ending>,
    /// For when the runner has set its timer; kept here for the runner.
    pub(crate) armed: Option<Moment>,
    /// What probably follows it; kept here for the runner.
    pub(crate) next: Option<Box<Job>>,
}

#[derive(Debug)]
struct Running {
    part: Part,
    process: Process,
    is_out_of_time: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Step(usize),
    Handler(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forced {
    Cancelled,
    OutOfTime,
}

#[derive(Debug)]
struct Failure {
    message: String,
    category: Category,
    /// Trying again is of no use.
    is_hopeless: bool,
}

/// What to start.
struct Launch {
    part: Part,
    exec: Exec,
    timeout: Option<Duration>,
}

#[derive(Debug)]
struct Ending {
    end: End,
    handlers: VecDeque<(&'static str, Exec)>,
    results: Metadata,
}

/// Whether a job is over and told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progressed {
    Goes,
    Over,
}

impl Execution {
    /// A job that is about to start; its intent is in the journal.
    pub(crate) fn new(job: Job, desk: &Desk, now: Moment) -> Self {
        Self {
            log: log::log_path(&desk.dir, &job.pipeline, &job.run_id),
            progress: Progress::new(&job.steps),
            running: Vec::new(),
            pauses: Vec::new(),
            began: now,
            deadline: job.timeout_ms.map(|timeout| now.after(Duration::from_millis(timeout))),
            forced: None,
            failure: None,
            exit_code: None,
            is_started_told: false,
            ending: None,
            armed: None,
            next: None,
            job,
        }
    }

    /// Starts what may begin, hears what has ended, and tells the end.
    pub(crate) fn settle(&mut self, desk: &mut Desk, now: Moment) -> Progressed {
        while let Some(index) =
            self.running.iter().position(|running| running.process.over().is_some())
        {
            let running = self.running.swap_remove(index);
            self.part_over(&running, desk, now);
        }
        if self.ending.is_none() {
            self.begin_ready(desk, now);
            if self.progress.is_over() && self.running.is_empty() {
                self.decide(desk, now);
            }
        }
        if self.ending.is_some() && self.running.is_empty() {
            return self.next_handler(desk, now);
        }
        Progressed::Goes
    }

    /// A child was waited for.
    pub(crate) fn exited(&mut self, pid: i32, exit: Exit) {
        let found = self.running.iter_mut().find(|running| running.process.pid == pid);
        if let Some(running) = found {
            running.process.exited(exit);
        }
    }

    /// Somebody wants it to end.
    pub(crate) fn cancel(&mut self, now: Moment) {
        if self.ending.is_none() {
            self.force(Forced::Cancelled, now);
        } else if let Some(ending) = &mut self.ending {
            ending.handlers.clear();
            let grace = self.grace();
            self.running.iter_mut().for_each(|running| running.process.terminate(now, grace));
        }
    }

    /// Does what time demands.
    pub(crate) fn on_time(&mut self, now: Moment) {
        if self.ending.is_none() && self.deadline.is_some_and(|at| at <= now) {
            self.force(Forced::OutOfTime, now);
        }
        let grace = self.grace();
        for running in &mut self.running {
            if running.process.is_out_of_time(now) {
                running.is_out_of_time = true;
                running.process.terminate(now, grace);
            }
            running.process.on_time(now);
        }
        let progress = &mut self.progress;
        self.pauses.retain(|(at, index)| {
            if *at <= now {
                progress.unpause(*index);
            }
            *at > now
        });
    }

    /// When it wants to be looked at next.
    pub(crate) fn wake(&self) -> Option<Moment> {
        let deadline = self.deadline.filter(|_| self.forced.is_none() && self.ending.is_none());
        let processes = self.running.iter().filter_map(|running| running.process.wake());
        processes.chain(deadline).chain(self.pauses.iter().map(|(at, _)| *at)).min()
    }

    /// Its log and how long that may be.
    pub(crate) fn log(&self) -> (&PathBuf, u64) {
        (&self.log, self.job.log_bytes_max)
    }

    fn grace(&self) -> Duration {
        Duration::from_millis(self.job.grace_ms)
    }

    fn force(&mut self, forced: Forced, now: Moment) {
        if self.forced.is_some() {
            return;
        }
        self.forced = Some(forced);
        self.pauses.clear();
        let grace = self.grace();
        self.running.iter_mut().for_each(|running| running.process.terminate(now, grace));
    }

    fn begin_ready(&mut self, desk: &mut Desk, now: Moment) {
        if self.forced.is_some() {
            let left_out = self.progress.leave_out_all();
            self.tell_left_out(&left_out, "the job was ended before it", desk);
            return;
        }
        loop {
            let ready = self.progress.ready();
            for index in &ready {
                self.begin(*index, desk, now);
            }
            let left_out = self.progress.leave_out();
            self.tell_left_out(&left_out, "something it depends on failed", desk);
            // A step that could not be started may have settled others.
            if ready.is_empty() {
                return;
            }
        }
    }

    fn tell_left_out(&self, steps: &[usize], why: &str, desk: &mut Desk) {
        for index in steps {
            self.tell_step(*index, StepStatus::Skipped, Some(why.to_owned()), desk);
        }
    }

    fn begin(&mut self, index: usize, desk: &mut Desk, now: Moment) {
        let attempt = self.progress.begin(index);
        let Some(step) = self.job.steps.get(index) else { return };
        let launch = Launch {
            part: Part::Step(index),
            exec: step.exec.clone(),
            timeout: step.timeout_ms.map(Duration::from_millis),
        };
        if let Some(name) = &step.name {
            self.write_note(&format!("step {name}, attempt {attempt}"));
        }
        match self.spawn(&launch, desk, now) {
            Ok(()) => {
                if !self.is_started_told {
                    self.is_started_told = true;
                    let metadata = desk.metadata(&self.job.run_id);
                    desk.tell(&self.job.run_id, News::Started { metadata });
                }
                self.tell_step(index, StepStatus::Running, None, desk);
            }
            Err(failure) => {
                self.write_note(&failure.message);
                let SpawnFailure { message, category } = failure;
                let is_hopeless = category == Category::Permanent;
                self.step_failed(index, Failure { message, category, is_hopeless }, desk, now);
            }
        }
    }

    fn spawn(&mut self, launch: &Launch, desk: &mut Desk, now: Moment) -> Result<(), SpawnFailure> {
        let part = launch.part;
        let parked = desk.parked.release(&self.job.run_id, &launch.exec, &self.job.env);
        let mut process = parked.map_or_else(|| self.spawn_anew(&launch.exec, desk), Ok)?;
        process.deadline = launch.timeout.map(|timeout| now.after(timeout));
        let run_id = self.job.run_id.clone();
        desk.take_charge_of(process.pid, run_id.clone());
        let step = match part {
            Part::Step(index) => self.job.steps.get(index).and_then(|step| step.name.clone()),
            Part::Handler(name) => Some(name.to_owned()),
        };
        desk.note(Record::Spawned { run_id, step, pid: process.pid, start: process.start });
        self.running.push(Running { part, process, is_out_of_time: false });
        Ok(())
    }

    fn spawn_anew(&self, exec: &Exec, desk: &mut Desk) -> Result<Process, SpawnFailure> {
        let output = desk.spare.open(&self.log).map_err(|error| SpawnFailure {
            message: format!("the log {} cannot be written: {error}", self.log.display()),
            category: Category::Transient,
        })?;
        Process::spawn(exec, &self.job.env, Stdio::null(), output)
    }

    fn part_over(&mut self, running: &Running, desk: &mut Desk, now: Moment) {
        let exit = running.process.over().unwrap_or(Exit::Unknown);
        // The last process of a plain job: its end is recorded with the job's.
        if self.job.steps.len() > 1 || matches!(running.part, Part::Handler(_)) {
            let run_id = self.job.run_id.clone();
            desk.note(Record::Exited { run_id, pid: running.process.pid });
        }
        match running.part {
            Part::Step(index) => self.step_over(index, running, desk, now),
            Part::Handler(name) => {
                let result = if running.is_out_of_time {
                    "took longer than ten minutes and was ended".to_owned()
                } else {
                    exit.sentence()
                };
                if let Some(ending) = &mut self.ending {
                    ending.results.insert(name.to_owned(), result.into());
                }
            }
        }
    }

    fn step_over(&mut self, index: usize, running: &Running, desk: &mut Desk, now: Moment) {
        let exit = running.process.over().unwrap_or(Exit::Unknown);
        self.exit_code = exit.code();
        if exit == Exit::Code(0) && !running.is_out_of_time && self.forced.is_none() {
            self.progress.succeed(index);
            self.tell_step(index, StepStatus::Succeeded, None, desk);
            return;
        }
        let (message, category) = if running.is_out_of_time {
            ("was ended after its timeout".to_owned(), Category::Timeout)
        } else {
            (exit.sentence(), exit.category())
        };
        let is_hopeless = self.forced.is_some();
        self.step_failed(index, Failure { message, category, is_hopeless }, desk, now);
    }

    fn step_failed(&mut self, index: usize, failure: Failure, desk: &mut Desk, now: Moment) {
        let after = if failure.is_hopeless {
            self.progress.give_up(index)
        } else {
            self.progress.fail(index)
        };
        match after {
            AfterFailure::Retry => {
                self.pauses.push((now.after(RETRY_PAUSE), index));
                self.tell_step(index, StepStatus::Pending, Some(failure.message), desk);
            }
            AfterFailure::Failed => {
                self.tell_step(index, StepStatus::Failed, Some(failure.message.clone()), desk);
                let tolerated = self.job.steps.get(index).is_some_and(|s| s.continue_on_failure);
                if !tolerated {
                    let message = self.blame(index, &failure.message);
                    self.failure.get_or_insert(Failure { message, ..failure });
                }
            }
        }
    }

    /// The sentence that explains the whole job's failure.
    fn blame(&self, index: usize, message: &str) -> String {
        let is_sentence = message.starts_with("the ");
        match self.job.steps.get(index).and_then(|step| step.name.as_deref()) {
            Some(name) if is_sentence => format!("the step `{name}` failed: {message}"),
            Some(name) => format!("the step `{name}` {message}"),
            None if is_sentence => message.to_owned(),
            None => format!("the command {message}"),
        }
    }

    fn tell_step(
        &self,
        index: usize,
        status: StepStatus,
        message: Option<String>,
        desk: &mut Desk,
    ) {
        let Some(step) = self.job.steps.get(index).and_then(|step| step.name.clone()) else {
            return;
        };
        let attempt = self.progress.attempt(index);
        desk.tell(&self.job.run_id, News::Step { step, status, attempt, message });
    }

    /// The steps are over: how does the job end?
    fn decide(&mut self, desk: &mut Desk, now: Moment) {
        let metadata = self.metadata(desk, now);
        let own = &self.job.handlers;
        let (end, handler) = match (self.forced, self.failure.take()) {
            (Some(Forced::Cancelled), _) => {
                (End::Cancelled { message: "it was cancelled".to_owned() }, None)
            }
            (Some(Forced::OutOfTime), _) => {
                let timeout = Duration::from_millis(self.job.timeout_ms.unwrap_or(0));
                let message = format!("it was ended after its timeout of {timeout:?}");
                let end = End::Failure { message, category: Category::Timeout, metadata };
                (end, own.failure.clone().map(|exec| ("failure", exec)))
            }
            (None, Some(Failure { message, category, .. })) if self.progress.has_failed() => (
                End::Failure { message, category, metadata },
                own.failure.clone().map(|exec| ("failure", exec)),
            ),
            (None, _) => {
                (End::Success { metadata }, own.success.clone().map(|exec| ("success", exec)))
            }
        };
        let exit = own.exit.clone().map(|exec| ("exit", exec));
        let handlers: VecDeque<_> = handler.into_iter().chain(exit).collect();
        if !handlers.is_empty() {
            let run_id = self.job.run_id.clone();
            desk.note(Record::Decided { run_id, end: end.clone() });
        }
        self.ending = Some(Ending { end, handlers, results: Metadata::new() });
    }

    fn metadata(&self, desk: &Desk, now: Moment) -> Metadata {
        let mut metadata = desk.metadata(&self.job.run_id);
        metadata.remove("pid");
        let duration = self.began.until(now).as_millis() as u64;
        metadata.insert("durationMs".to_owned(), duration.into());
        if let Some(code) = self.exit_code {
            metadata.insert("exitCode".to_owned(), code.into());
        }
        let standings = self.progress.standings();
        let steps: serde_json::Map<String, Value> =
            standings.map(|(name, status)| (name.to_owned(), status.as_str().into())).collect();
        if !steps.is_empty() {
            metadata.insert("steps".to_owned(), steps.into());
        }
        metadata
    }

    /// Starts the next handler, or tells the end when there is none left.
    fn next_handler(&mut self, desk: &mut Desk, now: Moment) -> Progressed {
        loop {
            let Some(ending) = &mut self.ending else { return Progressed::Goes };
            let Some((name, mut exec)) = ending.handlers.pop_front() else {
                self.tell_end(desk);
                return Progressed::Over;
            };
            exec.env.insert("INTERLOCK_OUTCOME".to_owned(), outcome_word(&ending.end).to_owned());
            self.write_note(&format!("handler {name}"));
            let timeout = Some(HANDLER_TIMEOUT);
            match self.spawn(&Launch { part: Part::Handler(name), exec, timeout }, desk, now) {
                Ok(()) => return Progressed::Goes,
                Err(failure) => {
                    self.write_note(&failure.message);
                    if let Some(ending) = &mut self.ending {
                        ending.results.insert(name.to_owned(), failure.message.into());
                    }
                }
            }
        }
    }

    fn tell_end(&mut self, desk: &mut Desk) {
        let Some(Ending { mut end, results, .. }) = self.ending.take() else { return };
        let run_id = &self.job.run_id;
        match &mut end {
            End::Success { metadata } | End::Failure { metadata, .. } if !results.is_empty() => {
                let results: serde_json::Map<String, Value> = results.into_iter().collect();
                metadata.insert("handlers".to_owned(), results.into());
            }
            End::Success { .. }
            | End::Failure { .. }
            | End::Cancelled { .. }
            | End::Lost { .. } => {}
        }
        desk.note(Record::Ended { run_id: run_id.clone(), at: time::wall(), end: end.clone() });
        desk.tell(run_id, News::Ended(end));
    }

    fn write_note(&self, text: &str) {
        // The log is the job's; where it cannot be written the job will not start either.
        let _full = log::note(&self.log, text);
    }
}

fn outcome_word(end: &End) -> &'static str {
    match end {
        End::Success { .. } => "success",
        End::Failure { .. } => "failure",
        End::Cancelled { .. } => "cancelled",
        End::Lost { .. } => "lost",
    }
}
