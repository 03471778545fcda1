//! `serve` deletes the output of jobs that `retention.logs` has run out for, and takes old slots, incidents and
//! answers out of the ledger.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![expect(clippy::disallowed_methods, reason = "a real process in real time is what is tested")]

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    EventRow, Freight, Key, Record, Row, Store as _, StoredRow, block_on,
    record::{AppliedRecord, EventRecord, IncidentRecord},
};
use interlock_store_conformance::{START, closed_slot, open_incident};
use interlock_store_embedded::EmbeddedStore;
use interlock_wait::{BOUND, ChildWithin as _, CommandWithin as _, wait_for_seeing};
use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

const TICKER: &str = "
name: ticker
schedules: [{id: second, every: 1s}]
trigger: {type: command, command: echo ran}
";

/// What an answer was given to, and no pipeline is called.
const UNKNOWN: &str = "nobody-declares-it";

fn serve(project: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["serve", "--log", "json"])
        .arg(project)
        .stdout(Stdio::null())
        .stderr(File::options().create(true).append(true).open(project.join("serve.log")).unwrap())
        .spawn()
        .unwrap()
}

#[track_caller]
fn until<T>(project: &Path, what: &str, look: impl FnMut() -> Option<T>) -> T {
    let log = || fs::read_to_string(project.join("serve.log")).unwrap_or_default();
    wait_for_seeing(what, Duration::from_mins(1), look, log)
}

fn logs(project: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(project.join(".interlock/runner/logs/ticker")).into_iter();
    entries.flatten().map(|entry| entry.unwrap().path()).collect()
}

/// The runner is meant to outlive the daemon; a test must not leave it behind.
fn end_the_runner(project: &Path) {
    let stream = UnixStream::connect(project.join(".interlock/runner/runner.sock")).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    let mut greeting = String::new();
    BufReader::new(stream).read_line(&mut greeting).unwrap();
    let greeting: serde_json::Value = serde_json::from_str(&greeting).unwrap();
    let pid = greeting["hello"]["pid"].to_string();
    assert!(Command::new("kill").args(["-9", &pid]).status_within(BOUND).unwrap().success());
}

#[test]
fn old_output_goes_and_new_output_stays() {
    let dir = tempfile::tempdir().unwrap();
    let project = dir.path();
    fs::create_dir(project.join("pipelines")).unwrap();
    fs::write(project.join("pipelines/ticker.yaml"), TICKER).unwrap();
    fs::write(project.join("interlock.yaml"), "retention: {logs: 1d}\n").unwrap();
    let mut daemon = serve(project);
    let acknowledged = || {
        let journal = fs::read_to_string(project.join(".interlock/runner/journal")).ok()?;
        (journal.matches("\"acknowledged\"").count() >= 2).then_some(())
    };
    until(project, "a second end that is stored", acknowledged);
    daemon.kill_and_wait();

    // The oldest is one whose end was stored: ends are stored in the order of the slots.
    let mut found = logs(project);
    found.sort();
    let (old, new) = (&found[0], &found[1]);
    let file = File::options().append(true).open(old).unwrap();
    file.set_modified(file.metadata().unwrap().modified().unwrap() - Duration::from_hours(25))
        .unwrap();
    let mut daemon = serve(project);
    until(project, "the end of the old log", || (!old.exists()).then_some(()));
    assert!(new.exists());
    daemon.kill_and_wait();
    end_the_runner(project);
}

fn says(project: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(arguments)
        .arg("--dir")
        .arg(project)
        .output_within(BOUND)
        .unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

/// A slot of the distant past that was completed, and an event, an incident and an answer of then.
fn plant(project: &Path) {
    let now = || jiff::Timestamp::now();
    let store = EmbeddedStore::open_daemon(&project.join(".interlock"), std::sync::Arc::new(now));
    let store = store.unwrap();
    let pipeline = PipelineId::parse("yearly").unwrap();
    let key = Key::Slot(ScheduleId::parse("cron").unwrap(), START);
    let row = Row { record: Record::Slot(closed_slot("completed").into()), revision: 3 };
    let record = EventRecord {
        kind: "SLOT_CLOSED".into(),
        at: START,
        slot: None,
        run_id: None,
        message: "of the distant past".into(),
        details: [].into(),
    };
    let answer = AppliedRecord { at: START, accepted: true, result: "done".into(), request: None };
    let answer = StoredRow {
        pipeline: PipelineId::parse(UNKNOWN).unwrap(),
        key: Key::Applied("of old".to_owned()),
        row: Row { record: Record::Applied(answer.into()), revision: 1 },
    };
    let incident = IncidentRecord { state: "resolved".into(), ..open_incident(START) };
    let incident = StoredRow {
        pipeline: pipeline.clone(),
        key: Key::Incident("of old".to_owned()),
        row: Row { record: Record::Incident(incident.into()), revision: 2 },
    };
    let rows = vec![StoredRow { pipeline: pipeline.clone(), key, row }, incident, answer];
    let events = vec![EventRow { number: 1, pipeline, record: record.into() }];
    block_on(store.import(Freight { rows, events, ..Freight::default() })).unwrap();
}

/// Whether a row of a pipeline is there.
fn is_there(project: &Path, name: &str, key: Key) -> bool {
    let now = || jiff::Timestamp::now();
    let store = EmbeddedStore::open_reader(&project.join(".interlock"), std::sync::Arc::new(now));
    let store = store.unwrap();
    let rows = block_on(store.read(&PipelineId::parse(name).unwrap(), &[key]));
    rows.unwrap()[0].is_some()
}

#[test]
fn what_was_decided_long_ago_leaves_the_ledger_and_is_not_taken_for_never() {
    let dir = tempfile::tempdir().unwrap();
    let project = dir.path();
    fs::create_dir(project.join("pipelines")).unwrap();
    let yearly = "name: yearly\nschedules: [{id: cron, cron: '0 9 25 2 *'}]\ntrigger: {type: command, command: 'true'}\n";
    fs::write(project.join("pipelines/yearly.yaml"), yearly).unwrap();
    fs::write(project.join("interlock.yaml"), "retention: {slots: 30d, events: 30d}\n").unwrap();
    plant(project);
    let (long_ago, slot) = (START.to_string(), format!("cron/{START}"));
    let why = || says(project, &["why", "yearly", &slot]);
    assert!(why().contains("completed"), "{}", why());
    let is_answered = || is_there(project, UNKNOWN, Key::Applied("of old".to_owned()));
    let is_told_of = || is_there(project, "yearly", Key::Incident("of old".to_owned()));
    assert!(is_answered() && is_told_of());

    let mut daemon = serve(project);
    until(project, "the end of the old slot", || (!why().contains("is completed")).then_some(()));
    assert!(why().contains("older than what is kept"), "{}", why());
    until(project, "the end of the old event", || {
        (!says(project, &["events", "yearly"]).contains("distant past")).then_some(())
    });
    until(project, "the end of the old answer", || (!is_answered()).then_some(()));
    until(project, "the end of the old incident", || (!is_told_of()).then_some(()));
    let run = says(project, &["run", "yearly", "--slot", &slot]);
    assert!(run.contains("is older than the ledger keeps"), "{run}");
    let backfill = ["backfill", "start", "yearly", "--from", &long_ago, "--to", "now", "--dry-run"];
    let refused = says(project, &backfill);
    assert!(refused.contains("may have been taken out"), "{refused}");
    let anyway = says(project, &[&backfill[..], &["--assume-missing"]].concat());
    assert!(anyway.contains(&long_ago), "{anyway}");
    daemon.kill_and_wait();
}
