//! `interlock catchup` and the question that `interlock resume` asks.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use interlock_store::record::InboxRecord;
use serde_json::Value;

use super::{
    Ran, interlock,
    recorded::{Daemon, pause, story},
};

#[track_caller]
fn ask(directory: &Path, arguments: &[&str]) -> Ran {
    interlock(&[&["-C", directory.to_str().unwrap()], arguments].concat())
}

/// The story with a policy: its schedule is recorded up to noon.
fn with(policy: &str) -> tempfile::TempDir {
    let directory = story();
    let file = directory.path().join("pipelines/orders.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}{policy}")).unwrap();
    directory
}

/// The plan for half past four, as `slot action reason`.
#[track_caller]
fn planned(policy: &str) -> Vec<String> {
    let directory = with(policy);
    let arguments = ["catchup", "--dry-run", "orders", "--at", "2026-02-25T16:30:00Z", "--json"];
    let ran = ask(directory.path(), &arguments);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let Value::Array(objects) = ran.json() else { panic!("{}", ran.stdout) };
    let text = |object: &Value, key: &str| object[key].as_str().unwrap().to_owned();
    let line = |object: &Value| {
        assert_eq!(
            (text(object, "pipeline"), text(object, "schedule")),
            ("orders".into(), "hourly".into())
        );
        format!(
            "{} {} {}",
            &text(object, "slot")[11..13],
            text(object, "action"),
            text(object, "reason")
        )
    };
    objects.iter().map(line).collect()
}

#[test]
fn the_dry_run_shows_slot_by_slot_what_would_be_done_and_why() {
    let same = |fate: &str| ["13", "14", "15", "16"].map(|hour| format!("{hour} {fate}"));
    assert_eq!(planned(""), same("skip no_catchup"));
    assert_eq!(planned("catchupWindow: 1d\noverlapPolicy: all\n"), same("run catchup"));
    let skip = ["13 skip expired", "14 run catchup", "15 skip overlap", "16 skip overlap"];
    assert_eq!(planned("catchupWindow: 3h\n"), skip);
    let latest =
        ["13 skip superseded", "14 skip superseded", "15 skip superseded", "16 run catchup"];
    assert_eq!(planned("catchupWindow: 1d\noverlapPolicy: latest\n"), latest);
}

#[test]
fn people_read_a_stretch_as_a_range() {
    let directory = with("");
    let ran = ask(directory.path(), &["catchup", "--dry-run", "--at", "2026-02-25T16:30:00Z"]);
    let expected = "\
PIPELINE  SCHEDULE  SLOT                                                    ACTION  REASON
orders    hourly    2026-02-25T13:00:00Z to 2026-02-25T16:00:00Z (4 slots)  skip    no_catchup
";
    assert_eq!(ran.stdout, expected);
    // The instant of the watermark: nothing is owed.
    let none = ask(directory.path(), &["catchup", "--dry-run", "--at", "2026-02-25T12:10:00Z"]);
    assert_eq!((none.code, none.stdout.as_str()), (0, "nothing is owed from before\n"));
}

#[test]
fn a_plan_changes_nothing_and_without_serve_nothing_is_done() {
    let directory = with("");
    let before = ask(directory.path(), &["watermark", "show", "--json"]).stdout;
    let ran = ask(directory.path(), &["catchup"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("no `interlock serve` is running"), "{}", ran.stderr);
    assert_eq!(ask(directory.path(), &["watermark", "show", "--json"]).stdout, before);
    // An instant without `--dry-run` would do at once what it shows for then.
    assert_eq!(ask(directory.path(), &["catchup", "--at", "+1h"]).code, 2);
    assert_eq!(ask(directory.path(), &["catchup", "--dry-run", "nobody"]).code, 2);
}

#[test]
fn resume_shows_what_was_missed_and_a_script_must_say_yes() {
    let directory = with("");
    pause(directory.path());
    let ran = ask(directory.path(), &["resume", "orders"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stdout.contains("skip    paused"), "{}", ran.stdout);
    assert!(ran.stderr.contains("`--yes` if what is listed above"), "{}", ran.stderr);
    let ran = ask(directory.path(), &["resume", "orders", "--json"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("`--yes` if the pipeline's policy"), "{}", ran.stderr);
    assert_eq!(ask(directory.path(), &["resume", "orders", "--catchup", "some"]).code, 2);
    let daemon = Daemon::start(directory.path(), None);
    let ran = ask(directory.path(), &["resume", "orders", "--yes"]);
    assert_eq!((ran.code, ran.stdout.contains("paused")), (0, false), "{}", ran.stderr);
    assert_eq!(daemon.stop(), [InboxRecord::Resume { catchup: None }]);
}

#[test]
fn who_chooses_what_is_caught_up_has_answered() {
    for what in ["none", "latest", "all", "policy"] {
        for form in ["", "--json"] {
            let directory = with("");
            pause(directory.path());
            let daemon = Daemon::start(directory.path(), None);
            let mut arguments = vec!["resume", "orders", "--catchup", what];
            arguments.extend(Some(form).filter(|form| !form.is_empty()));
            let ran = ask(directory.path(), &arguments);
            assert_eq!(ran.code, 0, "{what} {form}: {}", ran.stderr);
            assert!(!ran.stdout.contains("SCHEDULE") || form.is_empty(), "{}", ran.stdout);
            let catchup = Some(what.to_owned()).filter(|what| what != "policy");
            assert_eq!(daemon.stop(), [InboxRecord::Resume { catchup }]);
        }
    }
}

/// Types an answer at a terminal; what the terminal shows.
#[track_caller]
fn typed(directory: &Path, answer: &str) -> String {
    let binary = env!("CARGO_BIN_EXE_interlock");
    let command = format!("'{binary}' -C '{}' resume orders", directory.display());
    let mut terminal = Command::new("script")
        .args(["-q", "-e", "-c", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("`script` lends a terminal");
    terminal.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
    let shown = terminal.wait_with_output().unwrap();
    assert!(shown.status.success(), "{shown:?}");
    String::from_utf8(shown.stdout).unwrap()
}

#[test]
fn a_person_at_a_terminal_is_asked_before_a_pause_ends() {
    let directory = with("");
    pause(directory.path());
    for answer in ["n\n", "\n", "yesterday\n"] {
        let shown = typed(directory.path(), answer);
        assert!(shown.contains("skip    paused"), "{shown}");
        assert!(shown.contains("resume orders and do that? [y/N]"), "{shown}");
        assert!(shown.contains("it stays paused"), "{shown}");
    }
    let daemon = Daemon::start(directory.path(), None);
    let shown = typed(directory.path(), "y\n");
    assert!(!shown.contains("it stays paused"), "{shown}");
    assert_eq!(daemon.stop(), [InboxRecord::Resume { catchup: None }]);
}
