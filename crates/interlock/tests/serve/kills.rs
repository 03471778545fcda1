//! Two hundred random `kill -9` under load: of the daemon, of the runner, of both.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    Daemon,
    checker::{JobLog, Ledger, Owed, Witness, check},
    log,
    project::{Dice, Project, Ran, tail},
};

const KILLS: usize = 200;

/// Every second, beside itself: a lost run holds its place for a minute while it is looked for.
const TICKER: &str = "
name: ticker
schedules: [{id: second, every: 1s}]
overlapPolicy: all
maxActiveRuns: 20
trigger: {type: command, command: sh job.sh whole 0.1 0}
";

/// Its first attempt fails; what a crash hides is tried again.
const FLAKY: &str = "
name: flaky
schedules: [{id: second, every: 2s}]
overlapPolicy: all
maxActiveRuns: 20
retry: {maxAttempts: 4, backoffSeconds: 0}
trigger:
  type: command
  command: sh job.sh whole 0.05 $((INTERLOCK_ATTEMPT < 2))
  onUncertain: retry
";

/// Two steps in a row, by cron.
const STEPS: &str = "
name: steps
schedules: [{id: third, cron: '*/3 * * * * *', seconds: true}]
overlapPolicy: all
maxActiveRuns: 20
steps:
  - {name: extract, command: sh job.sh extract 0.1 0}
  - {name: load, command: sh job.sh load 0.1 0, depends: [extract]}
";

/// Takes longer than its gap: one at a time, what comes meanwhile is skipped.
const SLOW: &str = "
name: slow
schedules: [{id: second, every: 1s}]
overlapPolicy: skip
trigger: {type: command, command: sh job.sh whole 1.3 0}
";

/// Waits for a sensor that another process opens and shuts.
const GATED: &str = "
name: gated
schedules: [{id: second, every: 1s}]
overlapPolicy: all
maxActiveRuns: 20
evaluation: {window: 3s, interval: 1s}
validation:
  trigger: ALL
  rules: [{key: gate, check: equals, field: open, value: true}]
trigger: {type: command, command: sh job.sh whole 0 0}
";

/// Paused and resumed by another process.
const PAUSED: &str = "
name: paused
schedules: [{id: second, every: 1s}]
overlapPolicy: all
maxActiveRuns: 20
trigger: {type: command, command: sh job.sh whole 0 0}
";

const OWED: [Owed; 6] = [
    Owed { pipeline: "ticker", schedule: "second", every: 1, at_once_max: 20 },
    Owed { pipeline: "flaky", schedule: "second", every: 2, at_once_max: 20 },
    Owed { pipeline: "steps", schedule: "third", every: 3, at_once_max: 20 },
    Owed { pipeline: "slow", schedule: "second", every: 1, at_once_max: 1 },
    Owed { pipeline: "gated", schedule: "second", every: 1, at_once_max: 20 },
    Owed { pipeline: "paused", schedule: "second", every: 1, at_once_max: 20 },
];

/// Another process that asks for things, as long as there is a ledger to ask.
struct Asker<'a> {
    project: &'a Project,
    is_over: AtomicBool,
    /// The last report of the sensor that was accepted.
    reported: Mutex<u64>,
}

/// Ends the asking, also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Asker<'_> {
    /// Opens and shuts the gate, pauses and resumes. A report that was taken in is a promise, applied or not.
    fn ask(&self) {
        for number in 0_u64.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let value = format!("{{\"open\": {}, \"number\": {number}}}", number % 4 != 0);
            let put = ["sensor", "put", "gated", "gate", &value, "--wait", "1s"];
            match self.project.run(&put) {
                Ran { code: 0 | 4, .. } => *self.reported.lock().unwrap() = number,
                // The daemon has not got as far as making the ledger.
                refused => assert_eq!(refused.code, 3, "{refused:?}"),
            }
            if number % 20 == 10 {
                self.project.run(&["pause", "paused", "--reason", "to see", "--wait", "1s"]);
            }
            if number % 20 == 15 {
                self.project.run(&["resume", "paused", "--yes", "--wait", "1s"]);
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Who dies.
fn kill_somebody(project: &Project, daemon: Option<Daemon>, dice: &mut Dice) -> Option<Daemon> {
    match dice.below(10) {
        0 => {
            project.kill_runner();
            daemon
        }
        1 => {
            project.kill_runner();
            drop(daemon);
            None
        }
        2 => {
            drop(daemon);
            project.kill_runner();
            None
        }
        _ => {
            drop(daemon);
            None
        }
    }
}

/// Kills, and looks at the ledger in between.
fn kill_again_and_again(project: &Project, dice: &mut Dice) -> Witness {
    let mut witness = Witness::default();
    let mut daemon: Option<Daemon> = None;
    for kill in 0..KILLS {
        let mut living = daemon.unwrap_or_else(|| Daemon::start(project.path()));
        // Half a second; now and then one lives longer than its jobs, now and then hardly at all.
        let life = match dice.below(10) {
            0 => dice.below(150),
            1 => 800 + dice.below(800),
            _ => 150 + dice.below(600),
        };
        thread::sleep(Duration::from_millis(life));
        let ended = living.0.try_wait().unwrap();
        assert!(ended.is_none(), "it gave up by itself: {}", tail(&log(project.path())));
        daemon = kill_somebody(project, Some(living), dice);
        if kill % 10 == 0 {
            witness.look(&project.folder(), &OWED);
        }
    }
    witness
}

/// Waits until what was open at an instant is closed, and the jobs' log has nothing more to say.
fn settle(project: &Project) {
    let killed_at = Timestamp::now();
    let _last = Daemon::start(project.path());
    let _unpaused = project.run(&["resume", "paused", "--yes"]);
    project.until("every schedule is past the kills", || {
        let ledger = Ledger::read(&project.folder())?;
        let marks = ledger.agenda.values().flat_map(|row| row.watermarks.values());
        marks.into_iter().all(|mark| mark.record.at > killed_at).then_some(())
    });
    project.until("what was open is decided", || {
        let ledger = Ledger::read(&project.folder())?;
        let open = ledger.slots().any(|(row, slot)| row.nominal <= killed_at && slot.is_open());
        (!open).then_some(())
    });
}

#[test]
fn two_hundred_random_kills_lose_and_double_nothing() {
    let project = Project::new(&[
        ("ticker", TICKER),
        ("flaky", FLAKY),
        ("steps", STEPS),
        ("slow", SLOW),
        ("gated", GATED),
        ("paused", PAUSED),
    ]);
    let mut dice = Dice::new();
    let asker =
        Asker { project: &project, is_over: AtomicBool::new(false), reported: Mutex::new(0) };
    let witness = thread::scope(|scope| {
        scope.spawn(|| asker.ask());
        let _until_then = Over(&asker.is_over);
        kill_again_and_again(&project, &mut dice)
    });
    settle(&project);

    let (ledger, jobs) = (Ledger::read(&project.folder()).unwrap(), JobLog::read(project.path()));
    let mut found = witness.found;
    found.extend(check(&ledger, &jobs, &OWED));
    assert!(found.is_empty(), "{}\n{}", found.join("\n"), tail(&log(project.path())));
    // What was reported arrived, in its order.
    let gate = project.run(&["sensor", "get", "gated", "gate"]);
    let gate: Value = serde_json::from_str(&gate.stdout).unwrap_or_else(|_| panic!("{gate:?}"));
    assert_eq!(gate["value"]["number"], *asker.reported.lock().unwrap(), "{gate}");
    // And it was a load: all of this happened.
    let uncertain = ledger.slots().filter(|(_, slot)| slot.marks.uncertain).count();
    let count = |disposition| {
        ledger.slots().filter(|(_, slot)| slot.disposition.as_deref() == Some(disposition)).count()
    };
    let (completed, skipped) = (count("completed"), count("skipped"));
    println!(
        "{} looks, {completed} completed, {skipped} skipped, {uncertain} uncertain, {} runs",
        witness.looks,
        jobs.runs.len()
    );
    assert!(witness.looks > 10 && completed > 100 && skipped > 10 && uncertain > 0);
    let retried = ledger.runs.values().filter(|run| run.key.attempt > 1).count();
    assert!(retried > 10, "only {retried} were tried again");
}
