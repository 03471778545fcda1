//! The same binary on a store that several instances share: one serves, another stands by and follows it.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use interlock_private_server::{PrivatePostgres, PrivateRedis};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{Daemon, log, project::Project};

/// Every two seconds, and what nobody was there for is caught up.
const TICKER: &str = "
name: ticker
schedule: {cron: '*/2 * * * * *', seconds: true}
startGrace: 5s
catchupWindow: 1h
overlapPolicy: all
trigger: {type: command, command: sh job.sh whole 0 0}
";

/// The lease and a second, as issue 7 asks for, and what a busy machine takes besides.
const FOLLOWED_IN: Duration = Duration::from_secs(5 + 10);

/// A machine of its own: another folder, the same pipelines and the same store.
fn machine(settings: &str) -> Project {
    let project = Project::new(&[("ticker", TICKER)]);
    // Both on one machine: no fixed port.
    let text = format!("{settings}server: {{addr: '127.0.0.1:0'}}\n");
    fs::write(project.path().join("interlock.yaml"), text).unwrap();
    project
}

/// The recorded slots and their dispositions, as the command tells.
fn slots(project: &Project) -> BTreeMap<String, String> {
    let ran = project.run(&["slots", "ticker", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let rows: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    rows.iter().map(|row| (text(row, "slot"), text(row, "disposition"))).collect()
}

/// How often a job of each slot began, on all machines.
fn begun(machines: &[&Project]) -> BTreeMap<String, usize> {
    let mut begun = BTreeMap::new();
    for machine in machines {
        let text = fs::read_to_string(machine.path().join("ran.log")).unwrap_or_default();
        for line in text.lines().filter(|line| line.starts_with("start ")) {
            let slot = line.split(' ').nth(2).unwrap().to_owned();
            *begun.entry(slot).or_insert(0) += 1;
        }
    }
    begun
}

fn all_completed(slots: &BTreeMap<String, String>) -> bool {
    !slots.is_empty() && slots.values().all(|word| word == "completed")
}

/// One instance is killed; the other follows, and every slot ran exactly once.
fn follow(settings: &str) {
    let (one, other) = (machine(settings), machine(settings));
    let first = Daemon::start(one.path());
    one.until("it runs", || (slots(&one).len() > 1).then_some(()));
    let second = Daemon::start(other.path());
    other.until("it stands by", || log(other.path()).contains("standing by").then_some(()));
    assert!(!begun(&[&one]).is_empty() && begun(&[&other]).is_empty());
    commands_are_answered(&other);
    // Between two slots, so that no run is in flight.
    one.until("all are done", || all_completed(&slots(&other)).then_some(()));
    drop(first);
    let killed = Instant::now();
    other.until("it has followed", || (!begun(&[&other]).is_empty()).then_some(()));
    assert!(killed.elapsed() < FOLLOWED_IN, "{:?}", killed.elapsed());
    let before = begun(&[&other]).len();
    other.until("it goes on", || (begun(&[&other]).len() > before + 1).then_some(()));
    drop(second);
    let begun = begun(&[&one, &other]);
    assert!(begun.values().all(|times| *times == 1), "{begun:?}");
    let instants: Vec<Timestamp> = begun.keys().map(|slot| slot.parse().unwrap()).collect();
    let two = SignedDuration::from_secs(2);
    let gaps = instants.windows(2).filter(|pair| pair[1].duration_since(pair[0]) != two);
    assert_eq!(gaps.count(), 0, "no slot is lost: {instants:?}");
}

/// A request from the machine that stands by is applied by the one that serves.
fn commands_are_answered(project: &Project) {
    let ran = project.run(&["sensor", "put", "ticker", "landed", "1"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for arguments in [&["status"][..], &["runs"], &["doctor"], &["incidents", "list"]] {
        let ran = project.run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
    }
}

#[test]
fn redis_is_shared_by_instances_that_follow_each_other() {
    let server = PrivateRedis::start();
    follow(&format!("provider: redis\nredis: {{addr: '{}', shards: 1}}\n", server.address()));
}

#[test]
fn postgres_is_shared_by_instances_that_follow_each_other() {
    let server = PrivatePostgres::start();
    follow(&format!("provider: postgres\npostgres: {{dsn: '{}', shards: 1}}\n", server.dsn()));
}

#[test]
fn second_serve_of_one_folder_is_refused() {
    let server = PrivateRedis::start();
    let project = machine(&format!("redis: {{addr: '{}'}}\n", server.address()));
    let _daemon = Daemon::start(project.path());
    project.until("it runs", || (!slots(&project).is_empty()).then_some(()));
    let ran = project.run(&["serve"]);
    assert!(ran.code != 0 && ran.stderr.contains("runs here already"), "{ran:?}");
}
