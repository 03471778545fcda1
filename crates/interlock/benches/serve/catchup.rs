//! A start after downtime: how soon what was missed is on disk, how soon the first of it runs, how fast it is
//! worked off, and what it weighs.
//!
//! The downtime is made in the stopped ledger: its watermarks are set back. `serve` cannot tell that from a
//! machine that was off.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp, Unit};
use rusqlite::Connection;

use crate::served::{Served, now, project};

/// A pipeline that missed every hour of three days, and catches all of it up; it waits for a run that does not end.
const HOURLY: &str = "name: hourly-N\nschedule: \"0 * * * *\"\ncatchupWindow: \"4d\"\noverlapPolicy: all\ntrigger: \
                      {type: command, command: sleep 60}\n";

/// Declares a project, and lets it have been off for so long.
fn downtime(project: &Path, off: SignedDuration) {
    drop(Served::start(project));
    let ledger = Connection::open(project.join(".interlock/ledger.db")).expect("the ledger");
    let at = (now() - off).round(Unit::Second).expect("an instant");
    let moved = ledger
        .execute("UPDATE watermarks SET body = json_set(body, '$.at', ?1)", [at.to_string()])
        .expect("the watermarks can be set back");
    assert!(moved > 0, "there are no watermarks");
    // As after a clean end: nobody writes it any more.
    ledger.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("a checkpoint");
}

fn count(ledger: &Connection, what: &str) -> usize {
    let query = format!("SELECT count(*) FROM {what}");
    let count: i64 = ledger.query_row(&query, [], |row| row.get(0)).expect("a count");
    usize::try_from(count).expect("a count")
}

fn reading(project: &Path) -> Connection {
    Connection::open(project.join(".interlock/ledger.db")).expect("the ledger")
}

/// From the start of the process until 72 missed hours of so many pipelines are on disk, one row each.
pub(crate) fn durable(label: &str, pipelines: usize) {
    let folder = project(pipelines, &[HOURLY]);
    downtime(folder.path(), SignedDuration::from_hours(72));
    let ledger = reading(folder.path());
    let began = now();
    let served = Served::start(folder.path());
    let slots = loop {
        let slots = count(&ledger, "slots");
        if slots >= pipelines * 72 {
            break slots;
        }
        assert!(now().duration_since(began).as_secs() < 120, "{slots} slots after two minutes");
        thread::sleep(Duration::from_millis(2));
    };
    let seconds = now().duration_since(began).as_secs_f64();
    drop(served);
    assert!(slots <= pipelines * 73, "{slots} slots are more than were missed");
    println!("RESULT name=serve/catchup_durable_{label} seconds={seconds:.3}");
}

/// From the start of the process until the first missed slot's job runs, by its own clock.
pub(crate) fn first_run() {
    let text = HOURLY.replace("sleep 60", "\"date +%s.%N >> started; sleep 60\"");
    let folder = project(50, &[&text]);
    downtime(folder.path(), SignedDuration::from_hours(72));
    let began = now();
    let served = Served::start(folder.path());
    let started = folder.path().join("started");
    let first = loop {
        let text = fs::read_to_string(&started).unwrap_or_default();
        if let Some(first) = text.lines().next().and_then(|line| line.parse::<f64>().ok()) {
            break first;
        }
        assert!(now().duration_since(began).as_secs() < 30, "nothing ran in 30 s");
        thread::sleep(Duration::from_millis(2));
    };
    drop(served);
    let began = began.duration_since(Timestamp::UNIX_EPOCH).as_secs_f64();
    println!("RESULT name=serve/catchup_first_run seconds={:.3}", first - began);
}

/// One pipeline works off so many missed minutes, one run after the other; and the same commands in a shell's loop.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub(crate) fn drain(slots: usize) {
    let text = "name: minutely-N\nschedule: \"* * * * *\"\ncatchupWindow: \"2d\"\noverlapPolicy: all\ntrigger: {type: \
                command, command: \"true\"}\n";
    let folder = project(1, &[text]);
    let minutes = i64::try_from(slots).expect("a count") + 1;
    downtime(folder.path(), SignedDuration::from_mins(minutes));
    let ledger = reading(folder.path());
    let served = Served::start(folder.path());
    let done = || count(&ledger, "slots WHERE disposition = 'completed'");
    while done() == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let (began, first) = (Instant::now(), done());
    while done() < slots {
        assert!(began.elapsed() < Duration::from_mins(2), "{} of {slots} were worked off", done());
        thread::sleep(Duration::from_millis(50));
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of runs")]
    let speed = (slots - first) as f64 / began.elapsed().as_secs_f64();
    drop(served);
    // What a shell does with the same command: a new shell for each, as the trigger has.
    let began = Instant::now();
    let script = format!("i=0; while [ $i -lt {slots} ]; do sh -c true; i=$((i+1)); done");
    let ended = Command::new("sh").args(["-c", &script]).status().expect("a shell");
    assert!(ended.success(), "the shell's loop failed");
    #[expect(clippy::cast_precision_loss, reason = "a count of runs")]
    let loops = slots as f64 / began.elapsed().as_secs_f64();
    println!("RESULT name=serve/catchup_drain per_second={speed:.0}");
    println!("RESULT name=serve/catchup_drain@limit per_second={loops:.0}");
    println!("RESULT name=serve/catchup_drain_share percent={:.0}", speed / loops * 100.0);
}

/// What so many missed slots of each of so many pipelines weigh, beside the same pipelines that missed nothing.
pub(crate) fn memory(label: &str, pipelines: usize, slots: usize) {
    let text = "name: minutely-N\nschedule: \"* * * * *\"\ncatchupWindow: \"8d\"\noverlapPolicy: all\ntrigger: {type: \
                command, command: sleep 60}\n";
    let folder = project(pipelines, &[text]);
    let idle = {
        let served = Served::start(folder.path());
        thread::sleep(Duration::from_secs(2));
        served.rss_mb()
    };
    downtime(folder.path(), SignedDuration::from_mins(i64::try_from(slots).expect("a count")));
    let ledger = reading(folder.path());
    let served = Served::start(folder.path());
    let (began, mut most) = (now(), 0.0_f64);
    while count(&ledger, "slots") < pipelines * slots {
        most = most.max(served.rss_mb());
        assert!(now().duration_since(began).as_secs() < 300, "not recorded in five minutes");
        thread::sleep(Duration::from_millis(100));
    }
    let seconds = now().duration_since(began).as_secs_f64();
    most = most.max(served.rss_mb());
    drop(served);
    let again = Served::start(folder.path());
    thread::sleep(Duration::from_secs(2));
    println!("RESULT name=serve/{label} rss_mb={:.1}", most - idle);
    println!("RESULT name=serve/{label}_recorded seconds={seconds:.2}");
    println!("RESULT name=serve/{label}_restart rss_mb={:.1}", again.rss_mb() - idle);
    println!("RESULT name=serve/{label}_restart seconds={:.2}", again.ready_seconds());
}
