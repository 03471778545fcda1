//! A daemon in a directory of its own, and how to wait for what it reports.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use interlock_core::{
    outbound::Outbound,
    pipeline::{CommandLine, JobContext, TriggerKind},
    run::TriggerType,
};
use interlock_trigger::{
    Clock, Environment, LocalTriggers, Options, Outcome, Report, StartRequest, Triggers, What,
    runner,
};
use jiff::{SignedDuration, Timestamp, civil::date};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Nothing that is waited for takes longer, however busy the machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct World {
    pub(crate) dir: PathBuf,
    pub(crate) triggers: LocalTriggers,
    pub(crate) reports: UnboundedReceiver<Report>,
    /// Owned by the world that began here.
    home: Option<TempDir>,
}

#[expect(clippy::disallowed_methods, reason = "the tests' one door to the wall clock")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

pub(crate) fn clock() -> Clock {
    Arc::new(now)
}

fn environment() -> Environment {
    Arc::new(|name| match name {
        "PATH" => Some("/usr/local/bin:/usr/bin:/bin".to_owned()),
        "TOKEN" => Some("s3cret".to_owned()),
        _ => None,
    })
}

fn options(dir: &Path) -> Options {
    Options {
        runner: crate::parts::runner_command(),
        workdir: dir.to_owned(),
        grace: SignedDuration::from_millis(300),
        log_bytes_max: 64 * 1024,
        outbound: Outbound::default(),
    }
}

impl World {
    /// A daemon in a new directory.
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut world = Self::join(home.path());
        world.home = Some(home);
        world
    }

    /// A daemon in a directory that may have a history.
    pub(crate) fn join(dir: &Path) -> Self {
        let (sender, reports) = unbounded_channel();
        let (runner_dir, options) = (dir.join("runner"), options(dir));
        let triggers =
            LocalTriggers::new(&runner_dir, sender, clock(), environment(), options).unwrap();
        Self { dir: dir.to_owned(), triggers, reports, home: None }
    }

    /// The same directory, seen by a daemon that has just been started. The old one is gone.
    pub(crate) fn restart(&mut self) {
        let home = self.home.take();
        *self = Self::join(&self.dir.clone());
        self.home = home;
    }

    pub(crate) async fn start(&self, run_id: &str, kind: TriggerKind) {
        self.triggers.start(request(run_id, kind)).await.unwrap();
    }

    /// Starts a job and waits for its end.
    pub(crate) async fn run(&mut self, request: StartRequest) -> What {
        let run_id = request.run_id.clone();
        self.triggers.start(request).await.unwrap();
        self.end_of(&run_id).await
    }

    pub(crate) async fn next(&mut self) -> Report {
        let report = tokio::time::timeout(PATIENCE, self.reports.recv()).await;
        report.expect("no report came").expect("the channel is closed")
    }

    /// Everything that is told about a run, until its end.
    pub(crate) async fn story_of(&mut self, run_id: &str) -> Vec<What> {
        let mut story = Vec::new();
        loop {
            let report = self.next().await;
            if report.run_id != run_id {
                continue;
            }
            let is_end = matches!(report.what, What::Finished(_) | What::Lost { .. });
            story.push(report.what);
            if is_end {
                return story;
            }
        }
    }

    pub(crate) async fn end_of(&mut self, run_id: &str) -> What {
        self.story_of(run_id).await.pop().unwrap()
    }

    /// Waits until a job is told to run.
    pub(crate) async fn started(&mut self, run_id: &str) {
        loop {
            let report = self.next().await;
            if report.run_id == run_id && matches!(report.what, What::Started { .. }) {
                return;
            }
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn log(&self, run_id: &str) -> String {
        fs::read_to_string(self.log_path(run_id)).unwrap_or_default()
    }

    pub(crate) fn log_path(&self, run_id: &str) -> PathBuf {
        runner::log_path(&self.path("runner").canonicalize().unwrap(), "orders", run_id)
    }

    /// Waits until a file has a full line, and returns the first.
    pub(crate) async fn line_in(&self, name: &str) -> String {
        let text = self.until(name, || self.read(name).split_once('\n').map(|(l, _)| l.to_owned()));
        text.await
    }

    /// Looks again and again until there is something.
    pub(crate) async fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let looking = async {
            // Bounded: the timeout below ends it.
            loop {
                if let Some(found) = look() {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, looking).await;
        found.unwrap_or_else(|_| panic!("waited in vain for {what}"))
    }

    /// The runner's process, if one answers.
    pub(crate) fn runner_pid(&self) -> Option<i32> {
        let stream = UnixStream::connect(self.path("runner/runner.sock")).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let mut greeting = String::new();
        BufReader::new(stream).read_line(&mut greeting).ok()?;
        let greeting: serde_json::Value = serde_json::from_str(&greeting).ok()?;
        greeting["hello"]["pid"].as_i64().map(|pid| pid as i32)
    }

    /// Kills the runner without warning.
    pub(crate) async fn kill_runner(&self) -> i32 {
        let pid = self.until("the runner", || self.runner_pid()).await;
        kill(pid);
        self.until("the runner's death", || (!is_alive(pid)).then_some(())).await;
        pid
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.home.is_some()
            && let Some(pid) = self.runner_pid()
        {
            kill(pid);
        }
    }
}

pub(crate) fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

/// Whether a process runs; one that nobody has waited for does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with(['Z', 'X']));
    state == Some(false)
}

pub(crate) fn shell(text: &str) -> TriggerKind {
    TriggerKind::Command(CommandLine::Shell(text.to_owned()))
}

pub(crate) fn argv(words: &[&str]) -> TriggerKind {
    TriggerKind::Command(CommandLine::Argv(words.iter().map(|&word| word.to_owned()).collect()))
}

pub(crate) fn request(run_id: &str, kind: TriggerKind) -> StartRequest {
    StartRequest {
        run_id: run_id.to_owned(),
        pipeline: "orders".to_owned(),
        schedule: "daily".to_owned(),
        slot: "2026-02-25T09:00:00Z".parse().unwrap(),
        date: date(2026, 2, 25),
        hour: 9,
        interval_end: None,
        attempt: 1,
        trigger_type: TriggerType::Scheduler,
        triggered_at: now(),
        params: BTreeMap::new(),
        kind,
        context: JobContext::default(),
        timeout: None,
        poll_interval: Some(SignedDuration::from_millis(50)),
        resume_from: None,
        host: None,
    }
}

/// The outcome of a report that must have one.
pub(crate) fn outcome(what: What) -> Outcome {
    match what {
        What::Finished(outcome) => outcome,
        other @ (What::Started { .. } | What::StepChanged { .. } | What::Lost { .. }) => {
            panic!("no outcome: {other:?}")
        }
    }
}

/// An end in one line.
pub(crate) fn sentence(what: &What) -> String {
    match what {
        What::Finished(Outcome::Success { .. }) => "success".to_owned(),
        What::Finished(Outcome::Failure { message, category, .. }) => {
            format!("{category}: {message}")
        }
        What::Finished(Outcome::Cancelled { message }) => format!("cancelled: {message}"),
        What::Lost { reason } => format!("lost: {reason}"),
        What::Started { .. } => "started".to_owned(),
        What::StepChanged { step, status, attempt, .. } => format!("{step} {status} {attempt}"),
    }
}
