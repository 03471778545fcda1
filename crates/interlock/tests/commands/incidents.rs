//! `interlock incidents`: open ones first, and dead letters.

use std::path::Path;

use interlock_store::{
    Key, Record,
    record::{IncidentRecord, OutboxRecord},
};
use serde_json::{Value, json};

use super::{
    Ran, interlock, project,
    recorded::{ORDERS, Written, at, create, story},
};

#[track_caller]
fn ask(directory: &Path, arguments: &[&str]) -> Ran {
    let ran = interlock(&[&["-C", directory.to_str().unwrap(), "incidents"], arguments].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran
}

fn incident(state: &str, opened_at: &str, message: &str) -> Record {
    Record::Incident(IncidentRecord {
        state: state.into(),
        kind: "RETRY_EXHAUSTED".into(),
        level: "error".into(),
        message: message.into(),
        details: [("scheduleId".to_owned(), json!("hourly"))].into(),
        opened_at: at(opened_at),
        updated_at: at("2026-02-25T12:00:00Z"),
        count: 3,
        told: Some("a".into()),
    })
}

/// A notification that is still tried.
fn letter() -> OutboxRecord {
    OutboxRecord {
        channel: "hook".into(),
        alert: json!({"alertType": "job_failed", "message": "it\nfailed", "level": "error"}),
        tries: 12,
        not_before: at("2026-02-25T12:00:00Z"),
        claimed_until: None,
        last_error: Some("the server answered 503".into()),
        dead: false,
        after: None,
    }
}

/// The story, with three incidents and two notifications, one of them dead.
fn told() -> tempfile::TempDir {
    let directory = story();
    Written::open(directory.path()).commit(vec![
        create(
            Key::Incident("old".into()),
            incident("open", "2026-02-24T09:00:00Z", "exit 3\n\u{1b}[31mred"),
        ),
        create(
            Key::Incident("over".into()),
            incident("resolved", "2026-02-25T11:00:00Z", "exit 4"),
        ),
        create(
            Key::Incident("seen".into()),
            incident("acknowledged", "2026-02-25T09:00:00Z", "exit 5"),
        ),
        create(
            Key::Outbox("x~1~opened@hook".into()),
            Record::Outbox(OutboxRecord { dead: true, ..letter() }),
        ),
        create(Key::Outbox("y~1~opened@hook".into()), Record::Outbox(letter())),
    ]);
    directory
}

#[test]
fn open_incidents_come_first_newest_first() {
    let directory = told();
    for arguments in [&[][..], &["list"], &["list", "--pipeline", "orders"]] {
        let ran = ask(directory.path(), arguments);
        assert_eq!(
            ran.stdout,
            "\
STATE         LEVEL  KIND             PIPELINE  SINCE                 COUNT  KEY   MESSAGE
acknowledged  error  RETRY_EXHAUSTED  orders    2026-02-25T09:00:00Z  3      seen  exit 5
open          error  RETRY_EXHAUSTED  orders    2026-02-24T09:00:00Z  3      old   exit 3  [31mred
resolved      error  RETRY_EXHAUSTED  orders    2026-02-25T11:00:00Z  3      over  exit 4
",
            "{arguments:?}"
        );
    }
    let ran = ask(directory.path(), &["--limit", "0"]);
    assert!(!ran.stdout.contains("resolved") && ran.stdout.contains("old"), "{}", ran.stdout);
    assert!(ran.stderr.contains("there are more"), "{}", ran.stderr);
    assert_eq!(ask(directory.path(), &["--pipeline", "_system"]).stdout, "no incidents\n");
}

#[test]
fn incidents_as_json() {
    let directory = told();
    let found = ask(directory.path(), &["--json"]).json();
    let keys: Vec<&Value> = found.as_array().unwrap().iter().map(|one| &one["key"]).collect();
    assert_eq!(keys, ["seen", "old", "over"]);
    assert_eq!(
        found[0],
        json!({
            "key": "seen",
            "pipeline": "orders",
            "state": "acknowledged",
            "level": "error",
            "kind": "RETRY_EXHAUSTED",
            "message": "exit 5",
            "details": {"scheduleId": "hourly"},
            "count": 3,
            "openedAt": "2026-02-25T09:00:00Z",
            "updatedAt": "2026-02-25T12:00:00Z",
        })
    );
}

#[test]
fn dead_letters_are_listed_and_living_ones_are_not() {
    let directory = told();
    assert_eq!(
        ask(directory.path(), &["dead"]).stdout,
        "\
CHANNEL  PIPELINE  TYPE        TRIES  ERROR                    MESSAGE
hook     orders    job_failed  12     the server answered 503  it failed
"
    );
    assert_eq!(
        ask(directory.path(), &["dead", "--json"]).json(),
        json!([{
            "name": "x~1~opened@hook",
            "pipeline": "orders",
            "channel": "hook",
            "tries": 12,
            "error": "the server answered 503",
            "alert": {"alertType": "job_failed", "message": "it\nfailed", "level": "error"},
        }])
    );
}

#[test]
fn nothing_to_tell_is_said() {
    let directory = story();
    assert_eq!(ask(directory.path(), &[]).stdout, "no incidents\n");
    assert_eq!(ask(directory.path(), &["dead"]).stdout, "no dead letters\n");
    assert_eq!(ask(directory.path(), &["--json"]).json(), json!([]));
    let empty = project(&[("pipelines/orders.yaml", ORDERS)]);
    let ran = interlock(&["-C", empty.path().to_str().unwrap(), "incidents"]);
    assert_eq!(ran.code, 3);
    assert!(ran.stderr.starts_with("error: nothing was recorded yet"), "{}", ran.stderr);
}
