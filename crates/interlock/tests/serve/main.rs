//! `interlock serve` as a process that is killed again and again: nothing is lost, nothing is doubled.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]
#![expect(clippy::disallowed_methods, reason = "a real process in real time is what is tested")]

mod alerts;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use interlock_core::id::PipelineId;
use interlock_store::{
    LedgerEntry, LedgerQuery, Store as _, conformance::block_on, record::SlotRecord,
};
use interlock_store_embedded::EmbeddedStore;
use jiff::Timestamp;

const TICKER: &str = r#"
name: ticker
schedules: [{id: second, every: 1s}]
overlapPolicy: all
trigger:
  type: command
  command: echo "$INTERLOCK_RUN_ID" >> ran.log
"#;

/// A daemon, and the end of it when the test is over.
struct Daemon(Child);

impl Daemon {
    fn start(project: &Path) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_interlock"))
            .args(["serve", "--log", "json"])
            .arg(project)
            .stdout(Stdio::null())
            .stderr(
                fs::OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(project.join("serve.log"))
                    .unwrap(),
            )
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // SIGKILL: what a crash looks like.
        let _already_gone = self.0.kill();
        let _already_gone = self.0.wait();
    }
}

/// The recorded slots of the ticker, by instant.
fn ledger(project: &Path) -> BTreeMap<Timestamp, SlotRecord> {
    let Ok(store) =
        EmbeddedStore::open_reader(&project.join(".interlock"), Arc::new(Timestamp::now))
    else {
        return BTreeMap::new();
    };
    let ticker = PipelineId::parse("ticker").unwrap();
    let query = LedgerQuery { pipeline: Some(ticker), ..LedgerQuery::everything(100_000) };
    let rows = block_on(store.ledger(&query)).unwrap();
    let slots = rows.items.into_iter().map(|row| match row.entry {
        LedgerEntry::Slot(slot) => (row.nominal, slot),
        LedgerEntry::Span(span) => panic!("nothing is old enough to be missed: {span:?}"),
    });
    slots.collect()
}

fn completed(slots: &BTreeMap<Timestamp, SlotRecord>) -> usize {
    slots.values().filter(|slot| slot.disposition.as_deref() == Some("completed")).count()
}

fn log(project: &Path) -> String {
    fs::read_to_string(project.join("serve.log")).unwrap_or_default()
}

/// Waits until something holds, and says what was seen when it does not.
fn wait_until(
    project: &Path,
    what: &str,
    holds: impl Fn(&BTreeMap<Timestamp, SlotRecord>) -> bool,
) {
    let start = Instant::now();
    loop {
        let slots = ledger(project);
        if holds(&slots) {
            return;
        }
        let is_in_time = start.elapsed() < Duration::from_mins(1);
        assert!(is_in_time, "not in a minute: {what}\n{slots:#?}\n{}", log(project));
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn killed_at_random_moments_every_slot_runs_once() {
    let dir = tempfile::tempdir().unwrap();
    let project = dir.path();
    fs::create_dir(project.join("pipelines")).unwrap();
    fs::write(project.join("pipelines/ticker.yaml"), TICKER).unwrap();
    // Moments spread over a second and a half, the same in every run of the test.
    for kill in 0..20_u64 {
        let mut daemon = Daemon::start(project);
        thread::sleep(Duration::from_millis(150 + kill * 733 % 1_400));
        let ended = daemon.0.try_wait().unwrap();
        assert!(ended.is_none(), "it gave up by itself: {}", log(project));
        drop(daemon);
    }
    let last = Daemon::start(project);
    let killed_at = Timestamp::now();
    wait_until(project, "three slots after the last kill completed", |slots| {
        completed(&slots.range(killed_at..).map(|(at, slot)| (*at, slot.clone())).collect()) >= 3
    });
    wait_until(project, "what was open before is decided", |slots| {
        slots.range(..killed_at).all(|(_, slot)| !slot.is_open())
    });
    drop(last);

    let slots = ledger(project);
    // S3: from the first to the last, every second is recorded.
    let (first, last) = (slots.keys().next().unwrap(), slots.keys().last().unwrap());
    let seconds = last.as_second() - first.as_second() + 1;
    assert_eq!(i64::try_from(slots.len()).unwrap(), seconds, "a slot vanished");
    // S2: what really ran, ran once; and what the ledger calls completed really ran.
    let ran = fs::read_to_string(project.join("ran.log")).unwrap();
    let lines: Vec<_> = ran.lines().collect();
    let distinct: BTreeSet<_> = lines.iter().copied().collect();
    assert_eq!(distinct.len(), lines.len(), "a run was started twice");
    let decided = completed(&slots);
    assert!(decided <= distinct.len(), "{decided} completed, {} ran", distinct.len());
    let uncertain = slots.values().filter(|slot| slot.marks.uncertain).count();
    assert_eq!(uncertain, 0, "the runner outlives the daemon, so every outcome is known");
    end_the_runner(project);
}

/// The runner is meant to outlive the daemon; a test must not leave it behind.
fn end_the_runner(project: &Path) {
    let ours = format!("{}", project.join(".interlock/runner").canonicalize().unwrap().display());
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command);
        if command.contains("runner") && command.contains(&ours) {
            let pid = entry.file_name().to_string_lossy().into_owned();
            let ended = Command::new("kill").args(["-9", &pid]).status();
            assert!(ended.is_ok_and(|status| status.success()), "the runner {pid} is left behind");
        }
    }
}
