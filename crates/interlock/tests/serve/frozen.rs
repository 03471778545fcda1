//! A process that is stopped and continued, as by a suspended machine or a debugger, takes the same path as one that
//! was started again (issue 4: one path).

use std::{thread, time::Duration};

use interlock_store::record::SlotRecord;
use jiff::{SignedDuration, Timestamp};

use crate::{
    Daemon,
    checker::{JobLog, Ledger, check},
    log,
    project::{Project, signal, tail},
};

/// Every two seconds; what is older than the lease is missed.
const TICKER: &str = "
name: ticker
schedule: {cron: '*/2 * * * * *', seconds: true}
startGrace: 16s
catchupWindow: 1h
overlapPolicy: all
trigger: {type: command, command: sh job.sh whole 0 0}
";

/// Longer than the lease, and than a slot counts as live.
const FROZEN: Duration = Duration::from_secs(22);

fn completed(project: &Project) -> Vec<(Timestamp, SlotRecord)> {
    let Some(ledger) = Ledger::read(&project.folder()) else { return vec![] };
    let all = ledger.slots().map(|(row, slot)| (row.nominal, slot.clone()));
    all.filter(|(_, slot)| slot.disposition.as_deref() == Some("completed")).collect()
}

#[test]
fn a_daemon_that_was_stopped_and_continued_catches_up_what_it_slept_through() {
    let project = Project::new(&[("ticker", TICKER)]);
    let daemon = Daemon::start(project.path());
    project.until("it runs", || (!completed(&project).is_empty()).then_some(()));
    let signal = |name: &str| assert!(signal(daemon.0.id(), name));
    signal("-STOP");
    let stopped = Timestamp::now();
    // What is tested is that time goes by.
    thread::sleep(FROZEN);
    signal("-CONT");
    let continued = Timestamp::now();
    let slots = project.until("a slot after it ran", || {
        let slots = completed(&project);
        slots.last().is_some_and(|(nominal, _)| *nominal > continued).then_some(slots)
    });
    // Every slot of that time ran, the first of them as missed, without a gap.
    let caught_up = slots.iter().filter(|(_, slot)| slot.opened_by == "catchup");
    let caught_up: Vec<_> = caught_up.map(|(nominal, _)| *nominal).collect();
    assert!(!caught_up.is_empty(), "{}", tail(&log(project.path())));
    let slack = SignedDuration::from_secs(2);
    assert!(caught_up.iter().all(|at| *at > stopped - slack && *at < continued), "{caught_up:?}");
    for pair in slots.windows(2) {
        assert_eq!(pair[1].0.duration_since(pair[0].0), slack, "{pair:?}");
    }
    drop(daemon);
    let found =
        check(&Ledger::read(&project.folder()).unwrap(), &JobLog::read(project.path()), &[]);
    assert!(found.is_empty(), "{found:?}");
}
