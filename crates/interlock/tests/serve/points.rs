//! One run, and a `kill -9` at every system call that it needs, one after the other (S18).
//!
//! `strace` kills a process as it enters its n-th call of a kind, before the call does anything; the binary is
//! the one that users have. The runs are asked for by hand, so that there is one at a time. What a process does
//! between two calls nobody can see, so that a kill at each call is a kill everywhere.
//!
//! Of the daemon: every sync of the ledger (commits of "opened", "about to trigger", "started", "ended"), the
//! writes before it, the line in the log between commit and act, connecting and talking to the runner. Of the
//! runner: every record of its journal, the fork, the wait, both directions of the socket, and then every call of
//! whatever kind.

use std::{
    collections::BTreeMap,
    fs,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use interlock_core::id::PipelineId;
use interlock_store::{LedgerRow, RunRow, Store as _, block_on, record::InboxRecord};
use interlock_store_embedded::EmbeddedStore;
use interlock_wait::{BOUND, ChildWithin as _};
use jiff::Timestamp;

use crate::{
    Daemon,
    checker::{JobLog, Ledger, check, is_uncertain},
    log, open_log,
    project::{Project, kill, tail},
};

/// What a crash has hidden is a failure.
const CAREFUL: &str = "
name: careful
schedule: '0 0 1 1 *'
maxActiveRuns: 100
retry: {maxAttempts: 1}
trigger: {type: command, command: sh job.sh whole 0.05 0, onUncertain: fail}
";

/// What a crash has hidden is tried again.
const EAGER: &str = "
name: eager
schedule: '0 0 1 1 *'
maxActiveRuns: 100
retry: {maxAttempts: 5, backoffSeconds: 0}
trigger: {type: command, command: sh job.sh whole 0.05 0, onUncertain: retry}
";

/// Calls to die at.
struct Aim {
    /// The calls, as strace names them.
    calls: &'static str,
    /// Only those about this file of the project.
    file: Option<&'static str>,
    /// The first to die at.
    from: usize,
    /// Whether there is a runner already.
    runner: Runner,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Runner {
    Lives,
    IsMissing,
}

const fn every(calls: &'static str, file: Option<&'static str>) -> Aim {
    Aim { calls, file, from: 1, runner: Runner::Lives }
}

const DAEMON: [Aim; 6] = [
    every("fsync,fdatasync", Some(".interlock/ledger.db-wal")),
    every("pwrite64", Some(".interlock/ledger.db-wal")),
    every("write", Some("serve.log")),
    every("connect", None),
    every("sendto,recvfrom", None),
    // Connects in vain, starts one, connects again until it answers.
    Aim { runner: Runner::IsMissing, ..every("connect,sendto", None) },
];

const RUNNER: [Aim; 5] = [
    every("write,rename", Some(".interlock/runner/journal")),
    every("clone3,clone,vfork,wait4,waitid", None),
    every("sendto", None),
    every("recvfrom", None),
    // The first belong to the loader. A new process of a job resets its signals before it is let go; it is not
    // the one who shall die.
    Aim { from: 30, ..every("!rt_sigaction", None) },
];

/// What became of the process.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Died,
    /// It made fewer calls of the kind.
    Survived,
}

/// What became of the runs.
#[derive(Debug, Default)]
struct Tally {
    points: usize,
    ran_once: usize,
    uncertain: usize,
    /// The slots that were asked for.
    asked: Vec<(&'static str, Timestamp)>,
}

/// A process under strace, which dies at the n-th call.
fn traced(project: &Project, aim: &Aim, number: usize, arguments: &[&str]) -> Child {
    let mut strace = Command::new("strace");
    // `-b execve`: children are let go when they become another program.
    strace.args(["-f", "-b", "execve", "-qq", "-o", "/dev/null"]);
    strace.args(["-e", &format!("trace={}", aim.calls)]);
    strace.args(["-e", &format!("inject={}:signal=SIGKILL:when={number}", aim.calls)]);
    if let Some(file) = aim.file {
        strace.arg("-P").arg(project.path().canonicalize().unwrap().join(file));
    }
    strace.arg(env!("CARGO_BIN_EXE_interlock")).args(arguments);
    // Calls are counted per thread: with one thread for tasks the count is the same in every run.
    strace.env("TOKIO_WORKER_THREADS", "1").stdin(Stdio::null()).stdout(Stdio::null());
    let missing = "strace kills at a chosen call; `cargo xtask test` installs it";
    strace.stderr(open_log(project.path())).spawn().expect(missing)
}

/// Asks for one run; it is in the inbox when this returns.
fn ask(project: &Project, pipeline: &str) -> Timestamp {
    // Not by the command, which would run the job itself while nobody serves.
    let asked_at = Timestamp::now();
    let store = EmbeddedStore::open_reader(&project.folder(), Arc::new(Timestamp::now)).unwrap();
    let record =
        InboxRecord::Run { slot: None, force: false, params: BTreeMap::new(), webhook: false };
    let name = PipelineId::parse(pipeline).unwrap();
    block_on(store.post(&name, &format!("test-{asked_at}"), &record)).unwrap();
    asked_at
}

/// The pipeline's newest slot, if it is decided and was asked for since then.
fn decided(project: &Project, pipeline: &str, since: Timestamp) -> Option<Timestamp> {
    let ledger = Ledger::read(&project.folder())?;
    let (row, slot) = ledger.slots().filter(|(row, _)| row.pipeline.as_str() == pipeline).last()?;
    (row.nominal.as_millisecond() >= since.as_millisecond() && !slot.is_open())
        .then_some(row.nominal)
}

/// The same, once the runner was told that it may forget it: the last thing that is done for a run.
fn acknowledged(project: &Project, pipeline: &str, since: Timestamp) -> Option<Timestamp> {
    let nominal = decided(project, pipeline, since)?;
    let journal = fs::read_to_string(project.folder().join("runner/journal")).unwrap_or_default();
    let of_run = format!("{pipeline}~manual~{}", nominal.strftime("%Y%m%dT%H%M%S"));
    let is_last = |line: &str| line.contains("acknowledged") && line.contains(&of_run);
    journal.lines().any(is_last).then_some(nominal)
}

/// The same, or as soon as its run is looked for, which takes a minute.
fn acknowledged_or_lost(project: &Project, pipeline: &str, since: Timestamp) -> Option<Timestamp> {
    let ledger = Ledger::read(&project.folder())?;
    let (row, slot) = ledger.slots().filter(|(row, _)| row.pipeline.as_str() == pipeline).last()?;
    let is_lost = row.nominal.as_millisecond() >= since.as_millisecond() && slot.marks.uncertain;
    let lost = is_lost.then_some(row.nominal);
    lost.or_else(|| acknowledged(project, pipeline, since))
}

/// S18 for every run: it ran once and is completed, or nobody can know and the policy was followed.
fn judge(project: &Project, tally: &mut Tally) {
    let ledger = Ledger::read(&project.folder()).unwrap();
    let jobs = JobLog::read(project.path());
    let found = check(&ledger, &jobs, &[]);
    assert!(found.is_empty(), "{}\n{}", found.join("\n"), tail(&log(project.path())));
    for (pipeline, nominal) in &tally.asked {
        let is_it = |row: &LedgerRow| row.pipeline.as_str() == *pipeline && row.nominal == *nominal;
        let (_, slot) = ledger.slots().find(|(row, _)| is_it(row)).unwrap();
        let of_slot =
            |run: &RunRow| run.pipeline.as_str() == *pipeline && run.key.nominal == *nominal;
        let runs: Vec<_> = ledger.runs.iter().filter(|(_, run)| of_slot(run)).collect();
        let ran: Vec<_> = runs.iter().filter_map(|(id, _)| jobs.runs.get(*id)).collect();
        let starts: usize = ran.iter().flat_map(|ran| ran.starts.values()).sum();
        let disposition = slot.disposition.as_deref();
        let unclear = runs.iter().filter(|(_, run)| is_uncertain(run)).count();
        if unclear > 0 {
            tally.uncertain += 1;
            // A second attempt comes a minute later; should it meet the death of another point, a third follows.
            let policy =
                if *pipeline == "careful" { (1, "failed") } else { (1 + unclear, "completed") };
            assert_eq!(
                (slot.attempt as usize, disposition),
                (policy.0, Some(policy.1)),
                "{runs:#?} {ran:?}"
            );
            assert!(slot.marks.uncertain && starts <= policy.0, "{slot:?} {ran:?}");
        } else {
            tally.ran_once += 1;
            assert_eq!((starts, disposition), (1, Some("completed")), "{slot:?} {ran:?}");
        }
    }
}

fn pipeline_of(number: usize) -> &'static str {
    if number.is_multiple_of(2) { "careful" } else { "eager" }
}

fn project() -> Project {
    let project = Project::new(&[("careful", CAREFUL), ("eager", EAGER)]);
    let _daemon = Daemon::start(project.path());
    let declared = || Ledger::read(&project.folder()).filter(|ledger| ledger.agenda.len() == 2);
    project.until("both pipelines are declared", declared);
    project
}

/// Ends what strace has not killed.
fn end(project: &Project, mut strace: Child) {
    let lock = fs::read_to_string(project.folder().join("daemon.lock")).unwrap_or_default();
    if strace.try_wait().unwrap().is_none() {
        kill(lock.lines().next().unwrap().trim().parse().unwrap());
    }
    strace.wait_within("the end of the traced daemon", BOUND);
}

/// One death of the daemon.
fn daemon_dies_at(project: &Project, aim: &Aim, number: usize, tally: &mut Tally) -> Fate {
    if aim.runner == Runner::IsMissing {
        project.kill_runner();
    }
    let pipeline = pipeline_of(number);
    let since = ask(project, pipeline);
    let directory = project.path().display().to_string();
    let mut daemon = traced(project, aim, number, &["serve", "--log", "json", &directory]);
    let fate = project.until("it died, or did it all", || {
        if daemon.try_wait().unwrap().is_some() {
            return Some(Fate::Died);
        }
        acknowledged(project, pipeline, since).map(|_| Fate::Survived)
    });
    end(project, daemon);
    let next = Daemon::start(project.path());
    let nominal = project.until("it is over", || acknowledged(project, pipeline, since));
    drop(next);
    tally.asked.push((pipeline, nominal));
    fate
}

/// One death of the runner, beside a daemon that lives.
fn runner_dies_at(project: &Project, aim: &Aim, number: usize, tally: &mut Tally) -> Fate {
    project.kill_runner();
    let pipeline = pipeline_of(number);
    let since = ask(project, pipeline);
    let folder = project.folder().join("runner").canonicalize().unwrap();
    let mut runner = traced(project, aim, number, &["runner", &folder.display().to_string()]);
    // One that dies before it can be reached tells nothing about runs.
    project.until("the runner answers or is dead", || {
        let answers = std::os::unix::net::UnixStream::connect(folder.join("runner.sock")).is_ok();
        (answers || runner.try_wait().unwrap().is_some()).then_some(())
    });
    let daemon = Daemon::start(project.path());
    let nominal = project.until("it is over", || acknowledged_or_lost(project, pipeline, since));
    let fate = runner.try_wait().unwrap().map_or(Fate::Survived, |_| Fate::Died);
    drop(daemon);
    project.kill_what_the_daemon_left();
    runner.wait_within("the end of the traced runner", BOUND);
    tally.asked.push((pipeline, nominal));
    fate
}

/// Dies at one call after the other, until there are no more of its kind.
fn die_everywhere(
    aims: &[Aim],
    dies_at: impl Fn(&Project, &Aim, usize, &mut Tally) -> Fate,
) -> Tally {
    let project = project();
    let mut tally = Tally::default();
    for aim in aims {
        let before = tally.points;
        for number in aim.from.. {
            if dies_at(&project, aim, number, &mut tally) == Fate::Survived {
                break;
            }
            tally.points += 1;
        }
        let (points, Aim { calls, file, runner, .. }) = (tally.points - before, aim);
        println!("{calls} of {file:?} (the runner {runner:?}): {points} points");
        assert!(points > 0, "{calls} was never called\n{}", tail(&log(project.path())));
    }
    let _last = Daemon::start(project.path());
    project.until("every run is decided", || {
        let ledger = Ledger::read(&project.folder())?;
        (!ledger.slots().any(|(_, slot)| slot.is_open())).then_some(())
    });
    judge(&project, &mut tally);
    let Tally { points, ran_once, uncertain, .. } = tally;
    println!("{points} points: {ran_once} ran once, {uncertain} are uncertain");
    tally
}

#[test]
fn a_daemon_killed_at_any_call_around_a_trigger_runs_the_job_once() {
    let tally = die_everywhere(&DAEMON, daemon_dies_at);
    assert!(tally.points > 60, "{tally:?}");
    // The runner lives on, so that every outcome is known.
    assert_eq!(tally.uncertain, 0, "{tally:?}");
}

#[test]
fn a_runner_killed_at_any_call_doubles_nothing_and_hides_nothing() {
    let tally = die_everywhere(&RUNNER, runner_dies_at);
    assert!(tally.points > 30 && tally.uncertain > 3 && tally.ran_once > 3, "{tally:?}");
}
