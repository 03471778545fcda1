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

fn incident(state: &'static str, opened_at: &str, message: &str) -> Record {
    Record::Incident(
        IncidentRecord {
            state: state.into(),
            kind: "RETRY_EXHAUSTED".into(),
            level: "error".into(),
            message: message.into(),
            details: [("scheduleId".to_owned(), json!("hourly"))].into(),
            opened_at: at(opened_at),
            updated_at: at("2026-02-25T12:00:00Z"),
            count: 3,
            told: Some("a".into()),
            acknowledged: None,
            resolved: None,
            openings: Box::default(),
        }
        .into(),
    )
}

/// A notification that is still tried.
fn letter() -> OutboxRecord {
    OutboxRecord {
        channel: "hook".into(),
        alert: json!({"alertType": "job_failed", "message": "it\nfailed", "level": "error"}).into(),
        tries: 12,
        not_before: at("2026-02-25T12:00:00Z"),
        claimed_until: None,
        last_error: Some("the server answered 503".into()),
        dead: false,
        after: None,
        held: None,
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
            Record::Outbox(OutboxRecord { dead: true, ..letter() }.into()),
        ),
        create(Key::Outbox("y~1~opened@hook".into()), Record::Outbox(letter().into())),
    ]);
    directory
}

#[test]
fn open_incidents_are_listed_newest_first_and_resolved_ones_on_request_after_them() {
    let directory = told();
    let open = "\
STATE         LEVEL  KIND             PIPELINE  SINCE                 COUNT  KEY   MESSAGE
acknowledged  error  RETRY_EXHAUSTED  orders    2026-02-25T09:00:00Z  3      seen  exit 5
open          error  RETRY_EXHAUSTED  orders    2026-02-24T09:00:00Z  3      old   exit 3  [31mred
";
    for arguments in [&[][..], &["list"], &["list", "--pipeline", "orders"]] {
        assert_eq!(ask(directory.path(), arguments).stdout, open, "{arguments:?}");
    }
    let over = "resolved      error  RETRY_EXHAUSTED  orders    2026-02-25T11:00:00Z  3      over  exit 4\n";
    assert_eq!(ask(directory.path(), &["--all"]).stdout, format!("{open}{over}"));
    let ran = ask(directory.path(), &["--all", "--limit", "0"]);
    assert!(!ran.stdout.contains("resolved") && ran.stdout.contains("old"), "{}", ran.stdout);
    assert!(ran.stderr.contains("there are more"), "{}", ran.stderr);
    assert_eq!(ask(directory.path(), &["--pipeline", "_system"]).stdout, "no open incidents\n");
}

/// Runs a command about incidents that may be refused.
fn deal(directory: &Path, arguments: &[&str]) -> Ran {
    interlock(&[&["-C", directory.to_str().unwrap(), "incidents"], arguments].concat())
}

#[test]
fn hands_without_a_daemon_are_kept_with_who_and_why_and_refused_with_a_reason() {
    let directory = told();
    let ran = deal(directory.path(), &["ack", ""]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("several incidents begin with"), "{}", ran.stderr);
    let ran = deal(directory.path(), &["ack", "old", "--note", "mine", "--by", "ann"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "done: incident old, state acknowledged\n"));
    let list = ask(directory.path(), &[]).stdout;
    assert!(list.contains("acknowledged  error") && list.contains("[ann: mine]"), "{list}");
    // A beginning is enough while it is the only one; the note can be changed.
    let ran = deal(directory.path(), &["ack", "ol", "--by", "ben"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let ran = deal(directory.path(), &["resolve", "old", "--by", "ben", "--json"]);
    assert_eq!(ran.json()["result"], json!({"incident": "old", "state": "resolved"}));
    let found = ask(directory.path(), &["--all", "--json"]).json();
    let old = found.as_array().unwrap().iter().find(|one| one["key"] == "old").unwrap();
    assert_eq!((&old["state"], &old["resolved"]["by"]), (&json!("resolved"), &json!("ben")));
    assert_eq!(old["acknowledged"]["by"], "ben");
    for (arguments, reason) in [
        (["resolve", "over"], "over: the incident is already resolved"),
        (["ack", "gone"], "there is no incident `gone`"),
    ] {
        let ran = deal(directory.path(), &arguments);
        assert_eq!(ran.code, 1, "{arguments:?}");
        assert!(ran.stderr.contains(reason), "{arguments:?}: {}", ran.stderr);
    }
    let events = interlock(&["-C", directory.path().to_str().unwrap(), "events", "orders"]);
    let hands = events.stdout.lines().filter(|line| line.contains("INCIDENT_"));
    assert_eq!(hands.count(), 3, "{}", events.stdout);
}

#[test]
fn incidents_as_json() {
    let directory = told();
    let found = ask(directory.path(), &["--all", "--json"]).json();
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
            "acknowledged": null,
            "resolved": null,
            "held": null,
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
    assert_eq!(ask(directory.path(), &[]).stdout, "no open incidents\n");
    assert_eq!(ask(directory.path(), &["--all"]).stdout, "no incidents\n");
    assert_eq!(ask(directory.path(), &["dead"]).stdout, "no dead letters\n");
    assert_eq!(ask(directory.path(), &["--json"]).json(), json!([]));
    let empty = project(&[("pipelines/orders.yaml", ORDERS)]);
    let ran = interlock(&["-C", empty.path().to_str().unwrap(), "incidents"]);
    assert_eq!(ran.code, 3);
    assert!(ran.stderr.starts_with("error: nothing was recorded yet"), "{}", ran.stderr);
}
