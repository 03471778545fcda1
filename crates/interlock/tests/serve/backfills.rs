//! A backfill under a daemon that is killed again and again, and one that is cancelled while it runs.

use std::{collections::BTreeMap, fs, thread, time::Duration};

use serde_json::Value;

use crate::{
    Daemon,
    checker::{JobLog, Ledger},
    log,
    project::{Dice, Project, tail},
};

/// Nothing of it is due for long, and its jobs are short.
const HISTORY: &str = "
name: history
schedules: [{id: hourly, cron: '0 * * 1 *', timezone: UTC}]
maxActiveRuns: 3
trigger: {type: command, command: sh job.sh whole 0.05 0}
";

/// Its jobs wait for a file.
const PATIENT: &str = "
name: patient
schedules: [{id: hourly, cron: '0 * * 1 *', timezone: UTC}]
maxActiveRuns: 2
trigger: {type: command, command: 'until [ -e go ]; do sleep 0.02; done; sh job.sh whole 0 0'}
";

const KILLS: usize = 15;

/// The only backfill, once there is one.
fn backfill(project: &Project) -> Option<Value> {
    let listed = project.run(&["backfill", "list", "--json"]);
    let all: Value = serde_json::from_str(&listed.stdout).ok()?;
    let all = all.as_array()?;
    assert!(all.len() <= 1, "{all:?}");
    all.first().cloned()
}

fn start(project: &Project, pipeline: &str, concurrency: &str) {
    let range = ["--from", "2026-01-01", "--to", "2026-01-03", "--concurrency", concurrency];
    let ran = project.run(&[&["backfill", "start", pipeline][..], &range].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn a_backfill_whose_daemon_is_killed_again_and_again_loses_and_doubles_nothing() {
    let project = Project::new(&[("history", HISTORY)]);
    let mut dice = Dice::new();
    let first = Daemon::start(project.path());
    project
        .until("it serves", || Ledger::read(&project.folder())?.agenda.first_key_value().map(drop));
    start(&project, "history", "3");
    drop(first);
    for _ in 0..KILLS {
        let mut daemon = Daemon::start(project.path());
        thread::sleep(Duration::from_millis(150 + dice.below(500)));
        let ended = daemon.0.try_wait().unwrap();
        assert!(ended.is_none(), "it gave up by itself: {}", tail(&log(project.path())));
    }
    let killed_in_the_middle = backfill(&project).unwrap();
    let _last = Daemon::start(project.path());
    let done = project
        .until("the backfill is done", || backfill(&project).filter(|it| it["state"] == "done"));
    println!("after the kills: {}", killed_in_the_middle["completed"]);
    assert_eq!(
        (&done["completed"], &done["opened"], &done["total"]),
        (&48.into(), &48.into(), &48.into())
    );
    let jobs = JobLog::read(project.path());
    assert_eq!(jobs.runs.len(), 48, "{}", tail(&log(project.path())));
    for (run, execution) in &jobs.runs {
        assert_eq!(execution.starts, BTreeMap::from([("whole".to_owned(), 1)]), "{run}");
    }
    let ledger = Ledger::read(&project.folder()).unwrap();
    assert_eq!(ledger.slots().count(), 48);
    assert!(ledger.slots().all(|(_, slot)| slot.generation == 1 && slot.opened_by == "backfill"));
    assert!(ledger.runs.values().all(|run| run.record.trigger_type == "backfill"));
}

#[test]
fn a_cancelled_backfill_leaves_nothing_open_and_the_next_one_takes_it_up() {
    let project = Project::new(&[("patient", PATIENT)]);
    let daemon = Daemon::start(project.path());
    project
        .until("it serves", || Ledger::read(&project.folder())?.agenda.first_key_value().map(drop));
    start(&project, "patient", "2");
    let is_open = |count: usize| {
        move |project: &Project| {
            let ledger = Ledger::read(&project.folder())?;
            (ledger.slots().filter(|(_, slot)| slot.is_open()).count() == count).then_some(())
        }
    };
    project.until("two run and three are ahead", || is_open(5)(&project));
    drop(daemon);
    // Nobody serves: the command itself closes what has not begun.
    assert_eq!(project.run(&["backfill", "cancel", "patient", "1"]).code, 0);
    is_open(2)(&project).expect("only what runs is left");
    fs::write(project.path().join("go"), "").unwrap();
    let _next = Daemon::start(project.path());
    project.until("what ran has ended", || is_open(0)(&project));
    let cancelled = backfill(&project).unwrap();
    assert_eq!(cancelled["state"], "cancelled");
    let ended = project.until("it is counted", || {
        backfill(&project).filter(|it| it["open"] == Value::Array(vec![]))
    });
    assert_eq!((&ended["completed"], &ended["cancelled"]), (&2.into(), &3.into()));
    let again =
        ["backfill", "start", "patient", "--from", "2026-01-01", "--to", "2026-01-01T05:00Z"];
    let ran = project.run(&[&again[..], &["--follow"]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("backfill 2 is done: 3/3 completed"), "{}", ran.stderr);
    let ledger = Ledger::read(&project.folder()).unwrap();
    assert!(ledger.slots().all(|(_, slot)| slot.disposition.as_deref() == Some("completed")));
}
