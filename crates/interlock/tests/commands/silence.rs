//! `interlock silence`: added, listed, previewed and removed; and `incidents test`.

use std::path::Path;

use interlock_store::{Key, Record, record::IncidentRecord};
use serde_json::json;

use super::{
    Ran, interlock, project,
    recorded::{ORDERS, Written, at, create, story},
};

fn ask(directory: &Path, arguments: &[&str]) -> Ran {
    interlock(&[&["-C", directory.to_str().unwrap()], arguments].concat())
}

#[test]
fn a_silence_is_added_listed_and_removed_without_a_daemon() {
    let directory = story();
    let path = directory.path();
    let add = ["silence", "add", "move", "--pipeline", "ord*", "--level", "error"];
    let ran =
        ask(path, &[&add[..], &["--for", "2h", "--reason", "moving", "--by", "ann"]].concat());
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "done: silence move\n"), "{}", ran.stderr);
    let listed = ask(path, &["silence", "list"]).stdout;
    assert!(listed.contains("move  silent  pipeline=ord* level=error  until "), "{listed}");
    let listed = ask(path, &["silence", "list", "--json"]).json();
    assert_eq!((&listed[0]["id"], &listed[0]["by"]), (&json!("move"), &json!("ann")));
    assert_eq!(listed[0]["when"]["pipelines"], json!(["ord*"]));
    // A name is taken until it is removed.
    let ran =
        ask(path, &[&add[..], &["--for", "2h", "--reason", "moving", "--by", "ann"]].concat());
    assert!(ran.code == 1 && ran.stderr.contains("there is a silence `move` already"));
    assert_eq!(ask(path, &["silence", "remove", "move"]).code, 0);
    assert_eq!(ask(path, &["silence", "list"]).stdout, "no silences\n");
    assert_eq!(ask(path, &["silence", "remove", "move"]).code, 1);
    let events = ask(path, &["events", "_system"]).stdout;
    let kinds: Vec<&str> = events.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(
        kinds,
        ["SILENCE_ADDED", "REQUEST_REJECTED", "SILENCE_REMOVED", "REQUEST_REJECTED"],
        "{events}"
    );
}

#[test]
fn a_recurring_silence_says_when_and_a_wrong_one_is_refused_before_anything_is_kept() {
    let directory = story();
    let path = directory.path();
    let weekly = ["--weekly", "sat-sun 02:00-06:00", "--tz", "Europe/Riga", "--reason", "backups"];
    let ran = ask(path, &[&["silence", "add", "nights", "--owner", "ann"], &weekly[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let listed = ask(path, &["silence", "list", "--json"]).json();
    assert_eq!(
        listed[0]["windows"],
        json!({"cron": "0 2 * * sat-sun", "for": "4h", "timezone": "Europe/Riga"})
    );
    for (arguments, reason) in [
        (&["--pipeline", "a", "--reason", "r"][..], "a silence needs an end"),
        (&["--for", "1h", "--reason", "r"], "what is to be kept back?"),
        (&["--pipeline", "a", "--until", "-1h", "--reason", "r"], "is already over"),
        (&["--pipeline", "a", "--weekly", "never", "--reason", "r"], "is not a weekly window"),
        (
            &["--pipeline", "a", "--for", "1h", "--tz", "Mars", "--reason", "r"],
            "no time zone `Mars`",
        ),
        (&["--pipeline", "a", "--cron", "61 * * * *", "--for", "1h", "--reason", "r"], "61"),
    ] {
        let ran = ask(path, &[&["silence", "add"], arguments].concat());
        assert!(ran.code == 2 && ran.stderr.contains(reason), "{arguments:?}: {}", ran.stderr);
    }
    assert_eq!(ask(path, &["silence", "list", "--json"]).json().as_array().unwrap().len(), 1);
}

fn incident(alert_type: &str) -> Record {
    Record::Incident(
        IncidentRecord {
            state: "open".into(),
            kind: "RETRY_EXHAUSTED".into(),
            level: "error".into(),
            message: "exit 3".into(),
            details: [("type".to_owned(), json!(alert_type))].into(),
            opened_at: at("2026-02-24T09:00:00Z"),
            updated_at: at("2026-02-25T12:00:00Z"),
            count: 1,
            told: None,
            acknowledged: None,
            resolved: None,
            openings: Box::default(),
        }
        .into(),
    )
}

#[test]
fn a_preview_shows_what_would_be_kept_back_and_adds_nothing() {
    let directory = story();
    let path = directory.path();
    Written::open(path).commit(vec![
        create(Key::Incident("a".into()), incident("job_failed")),
        create(Key::Incident("b".into()), incident("job_timeout")),
    ]);
    let add =
        ["silence", "add", "--type", "job_failed", "--for", "1h", "--reason", "r", "--preview"];
    let ran = ask(path, &add);
    assert_eq!(
        ran.stdout,
        "STATE  PIPELINE  SINCE                 KEY\nopen   orders    2026-02-24T09:00:00Z  a\n"
    );
    let preview = ask(path, &[&add[..], &["--json"]].concat()).json();
    assert_eq!(preview["incidents"].as_array().unwrap().len(), 1);
    assert_eq!(ask(path, &["silence", "list"]).stdout, "no silences\n");
    let none = ["silence", "add", "--pipeline", "x", "--for", "1h", "--reason", "r", "--preview"];
    assert!(ask(path, &none).stdout.starts_with("nothing that is open now"));
}

#[test]
fn a_channel_is_tested_from_here_and_the_answer_is_told() {
    let config = "alerts:\n- {type: file, name: log, path: alerts.jsonl}\n\
                  - {type: webhook, name: hook, url: 'http://127.0.0.1:1/x?token=hush'}\n";
    let directory = project(&[("interlock.yaml", config), ("pipelines/orders.yaml", ORDERS)]);
    let path = directory.path();
    let ran = ask(path, &["incidents", "test", "log"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "log: delivered\n"), "{}", ran.stderr);
    let line = std::fs::read_to_string(path.join("alerts.jsonl")).unwrap();
    assert!(line.contains(r#""alertType":"test""#), "{line}");
    let ran = ask(path, &["incidents", "test", "hook"]);
    assert!(ran.code == 1 && ran.stderr.contains("hook: 127.0.0.1 cannot be reached"));
    assert!(!ran.stderr.contains("hush"), "{}", ran.stderr);
    let ran = ask(path, &["incidents", "test", "hook", "--json"]);
    assert_eq!((ran.code, &ran.json()["delivered"]), (1, &json!(false)));
    let ran = ask(path, &["incidents", "test", "gone"]);
    assert!(ran.code == 2 && ran.stderr.contains("There are log, hook."), "{}", ran.stderr);
}

#[test]
fn a_bark_needs_somebody_who_delivers() {
    let ran = ask(story().path(), &["bark"]);
    assert!(ran.code == 3 && ran.stderr.contains("no alert is delivered"), "{}", ran.stderr);
}
