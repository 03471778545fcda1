//! The commands that ask for something: what reaches the one who writes the ledger, and what is said about
//! the answer.

use std::path::Path;

use interlock_store::record::{InboxRecord, SlotName};
use serde_json::{Value, json};

use super::{
    Ran, interlock,
    recorded::{Daemon, Written, at, story},
};

#[track_caller]
fn ask(directory: &Path, arguments: &[&str]) -> Ran {
    interlock(&[&["-C", directory.to_str().unwrap()], arguments].concat())
}

#[track_caller]
fn check_request(arguments: &[&str], expected: &InboxRecord) {
    let directory = story();
    let daemon = Daemon::start(directory.path(), None);
    let ran = ask(directory.path(), arguments);
    let seen = daemon.stop();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.stdout, "done: slot orders/manual/2026-02-25T12:30:00Z\n");
    assert_eq!(seen.as_slice(), std::slice::from_ref(expected));
}

fn eleven() -> SlotName {
    SlotName { schedule: "hourly".into(), nominal: at("2026-02-25T11:00:00Z") }
}

#[test]
fn a_sensor_is_reported() {
    let expected = InboxRecord::Sensor {
        key: "rows".into(),
        value: json!({ "count": -3 }),
        at: at("2026-02-25T09:00:00Z"),
    };
    let arguments =
        ["sensor", "put", "orders", "rows", r#"{"count": -3}"#, "--at", "2026-02-25T09:00"];
    check_request(&arguments, &expected);
}

#[test]
fn a_run_is_asked_for() {
    let params = [("a".to_owned(), "b=c".to_owned())].into();
    check_request(
        &["run", "orders", "--detach", "--force", "-p", "a=b=c"],
        &InboxRecord::Run { slot: None, force: true, params, webhook: false },
    );
    let of_slot = InboxRecord::Run {
        slot: Some(eleven()),
        force: false,
        params: std::collections::BTreeMap::new(),
        webhook: false,
    };
    check_request(&["run", "orders", "--detach", "--slot", "2026-02-25T11:00Z"], &of_slot);
    let named = ["run", "orders", "--detach", "--slot", "2026-02-25T11:00", "--schedule", "hourly"];
    check_request(&named, &of_slot);
}

#[test]
fn a_slot_is_run_again_or_cancelled() {
    check_request(
        &["rerun", "orders", "orders/hourly/2026-02-25T11:00:00Z", "--reason", "new data"],
        &InboxRecord::Rerun { slot: eleven(), reason: "new data".into() },
    );
    check_request(
        &["cancel", "orders", "2026-02-25T11:00:00Z", "--reason", "mistake"],
        &InboxRecord::Cancel { slot: eleven(), reason: "mistake".into() },
    );
}

#[test]
fn a_pipeline_is_paused_and_resumed() {
    let until = Some(at("2199-01-01T00:00:00Z"));
    check_request(
        &["pause", "orders", "--reason", "maintenance", "--until", "2199-01-01"],
        &InboxRecord::Pause { reason: "maintenance".into(), until },
    );
    check_request(&["resume", "orders"], &InboxRecord::Resume { catchup: None });
}

#[test]
fn a_jobs_end_is_reported() {
    let run_id = "orders~hourly~20260225T120000Z~1~1";
    let expected = InboxRecord::Complete {
        run_id: run_id.into(),
        success: false,
        message: Some("no rows".into()),
        category: None,
        metadata: std::collections::BTreeMap::new(),
    };
    check_request(&["complete", run_id, "--failed", "--message", "no rows"], &expected);
}

#[test]
fn a_refusal_is_told_with_its_reason() {
    let directory = story();
    let daemon = Daemon::start(directory.path(), Some("orders is not paused"));
    let text = ask(directory.path(), &["resume", "orders"]);
    let json = ask(directory.path(), &["resume", "orders", "--json"]);
    daemon.stop();
    assert_eq!((text.code, text.stderr.as_str()), (1, "error: orders is not paused\n"));
    assert_eq!(json.code, 1);
    assert_eq!(json.json()["accepted"], false);
    assert_eq!(json.json()["result"], json!({ "reason": "orders is not paused" }));
}

#[test]
fn a_request_that_nobody_applies_is_kept_and_says_so() {
    let directory = story();
    // Somebody has the ledger, and does nothing.
    let idle = Written::open(directory.path());
    let ran = ask(directory.path(), &["resume", "orders", "--wait", "1ms"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(ran.stdout.starts_with("accepted, not yet applied"), "{}", ran.stdout);
    assert!(ran.stdout.contains("`interlock serve` has not applied it yet"), "{}", ran.stdout);
    let json = ask(directory.path(), &["resume", "orders", "--wait", "1ms", "--json"]);
    assert_eq!(json.code, 4);
    let answer = json.json();
    assert_eq!((&answer["applied"], &answer["result"]), (&json!(false), &Value::Null));
    drop(idle);
    // Whoever comes next finds both.
    let daemon = Daemon::start(directory.path(), None);
    assert_eq!(ask(directory.path(), &["resume", "orders"]).code, 0);
    assert_eq!(daemon.stop().len(), 3);
}

#[test]
fn a_request_that_makes_no_sense_is_not_sent() {
    let directory = story();
    for arguments in [
        &["run", "nobody"][..],
        &["run", "orders", "--slot", "2026-02-25T11:10Z"],
        &["run", "orders", "-p", "novalue"],
        &["run", "orders", "--schedule", "hourly"],
        &["sensor", "put", "orders", "rows", "{"],
        &["sensor", "put", "orders", "rows", "1", "--at", "soon"],
        &["pause", "orders"],
        &["pause", "orders", "--reason", " "],
        &["pause", "orders", "--reason", "late", "--until", "2020-01-01"],
        &["rerun", "orders", "2026-02-25T11:00Z"],
        &["complete", "orders~hourly~20260225T120000Z~1~1"],
        &["complete", "orders~hourly~20260225T120000Z~1~1", "--success", "--failed"],
        &["complete", "nonsense", "--success"],
    ] {
        let ran = ask(directory.path(), arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{arguments:?}: {}", ran.stderr);
    }
    let daemon = Daemon::start(directory.path(), None);
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(daemon.stop().is_empty());
}
