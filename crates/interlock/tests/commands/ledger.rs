//! The commands that read the ledger: `slots`, `runs`, `status`, `events`, `why`, `watermark`, `logs`, `wait`,
//! `store`, `list`, `show`, `doctor` and `version`.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use interlock_wait::{BOUND, ChildWithin as _, Lines};
use serde_json::{Value, json};

use super::{
    Ran, interlock, project,
    recorded::{Daemon, ORDERS, attempt, ends, happens, orders, pause, runs, story},
};

const FROM: &str = "2026-02-25T00:00Z";
const TO: &str = "2026-02-26T00:00Z";

#[track_caller]
fn ask(directory: &Path, arguments: &[&str]) -> Ran {
    interlock(&[&["-C", directory.to_str().unwrap()], arguments].concat())
}

#[track_caller]
fn slots(directory: &Path, arguments: &[&str]) -> Vec<Value> {
    let base = ["slots", "orders", "--from", FROM, "--to", TO, "--json"];
    let ran = ask(directory, &[&base, arguments].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.json().as_array().unwrap().clone()
}

fn run_id(number: u32) -> String {
    attempt(number).id(&orders())
}

#[test]
fn without_a_store_every_question_gets_the_same_clear_answer() {
    let directory = project(&[("pipelines/orders.yaml", ORDERS)]);
    for arguments in [
        &["slots"][..],
        &["runs"],
        &["status"],
        &["events"],
        &["why", "orders", "2026-02-25T09:00Z"],
        &["watermark", "show"],
        &["sensor", "list", "orders"],
        &["store", "check"],
    ] {
        let ran = ask(directory.path(), arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{arguments:?}");
        assert!(ran.stderr.starts_with("error: nothing was recorded yet in "), "{}", ran.stderr);
        assert!(ran.stderr.contains("Start `interlock serve`"), "{}", ran.stderr);
    }
    assert!(!directory.path().join(".interlock").exists(), "asking leaves nothing behind");
}

#[test]
fn slots_as_json_have_the_documented_shape() {
    let directory = story();
    let mut all = slots(directory.path(), &[]);
    // What people read depends on the day on which they read it.
    let mut said = |index: usize, field: &str| {
        let said = all[index].as_object_mut().unwrap().remove(field).unwrap();
        said.as_str().unwrap().to_owned()
    };
    let headline = said(0, "headline");
    assert!(headline.ends_with("the pipeline does not catch up on missed slots."), "{headline}");
    let headline = said(3, "headline");
    assert!(headline.starts_with("Waiting until it is ready; it gives up at "), "{headline}");
    let reason = said(3, "shortReason");
    assert!(reason.starts_with("not ready yet; gives up "), "{reason}");
    let span = json!({
        "pipeline": "orders", "schedule": "hourly",
        "first": "2026-02-25T07:00:00Z", "last": "2026-02-25T10:00:00Z", "count": 4,
        "state": "closed", "disposition": "skipped", "reason": "no_catchup",
        "status": "SKIPPED", "version": "00000000000000ab", "recordedAt": "2026-02-25T10:30:00Z",
    });
    let no_marks = json!({
        "missedAt": null, "late": false, "uncertain": false, "recovered": false,
    });
    let waiting = json!({
        "pipeline": "orders", "schedule": "hourly",
        "slot": "orders/hourly/2026-02-25T12:00:00Z", "utc": "2026-02-25T12:00:00Z",
        "date": "2026-02-25", "state": "waiting", "disposition": null, "reason": null,
        "status": "PENDING", "marks": no_marks, "generation": 1, "attempt": 0, "openedBy": "scheduler",
        "openedAt": "2026-02-25T12:00:00Z", "closesAt": "2026-02-25T13:00:00Z",
        "retryAt": null, "version": "00000000000000ab", "runs": [], "blocking": [], "message": null,
        "waitsUntil": "2026-02-25T13:00:00Z",
        "sla": {
            "evaluationAt": null, "warningAt": "2026-02-25T12:40:00Z",
            "breachAt": "2026-02-25T13:10:00Z", "maxDurationSeconds": 7200,
            "expectedDurationSeconds": 1800,
        },
    });
    assert_eq!(all.len(), 4, "{all:#?}");
    assert_eq!(all[0], span);
    assert_eq!(all[3], waiting);
    let completed = &all[2];
    assert_eq!(completed["disposition"], "completed");
    assert_eq!(completed["marks"]["late"], true);
    assert_eq!(completed["closesAt"], Value::Null);
    let second = json!({
        "id": "orders~hourly~20260225T110000Z~1~2", "generation": 1, "attempt": 2,
        "status": "COMPLETED", "triggerType": "retry",
        "startedAt": "2026-02-25T11:05:01Z", "endedAt": "2026-02-25T11:05:09Z",
    });
    assert_eq!(completed["runs"][0]["status"], "FAILED");
    assert_eq!(completed["runs"][1], second);
}

#[test]
fn an_expanded_span_lists_each_slot_and_a_row_wins_over_it() {
    let directory = story();
    let summary = |slots: &[Value]| -> Vec<String> {
        let line = |slot: &Value| {
            let (utc, how) = (slot["utc"].as_str().unwrap(), slot["disposition"].as_str());
            format!("{} {}", &utc[11..16], how.unwrap_or("open"))
        };
        slots.iter().map(line).collect()
    };
    let all = slots(directory.path(), &["--expand"]);
    let expected = [
        "07:00 skipped",
        "08:00 cancelled",
        "09:00 skipped",
        "10:00 skipped",
        "11:00 completed",
        "12:00 open",
    ];
    assert_eq!(summary(&all), expected);
    assert_eq!(all[0]["date"], "2026-02-25");
    // The same keys, whether it has a row or not.
    let keys = |slot: &Value| slot.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&all[0]), keys(&all[5]));
    // The row that wins does so also when it is not asked for.
    let skipped = slots(directory.path(), &["--expand", "--disposition", "skipped"]);
    assert_eq!(summary(&skipped), ["07:00 skipped", "09:00 skipped", "10:00 skipped"]);
    let from = ["slots", "--from", "2026-02-25T09:30Z", "--to", TO, "--expand", "--json"];
    let late = ask(directory.path(), &from).json();
    assert_eq!(
        summary(late.as_array().unwrap()),
        ["10:00 skipped", "11:00 completed", "12:00 open"]
    );
}

#[test]
fn a_span_whose_schedule_changed_stays_one_and_says_so() {
    let directory = story();
    let changed = ORDERS.replace("0 * * * *", "*/30 * * * *");
    fs::write(directory.path().join("pipelines/orders.yaml"), changed).unwrap();
    let ran = ask(directory.path(), &["slots", "--from", FROM, "--to", TO, "--expand", "--json"]);
    assert_eq!(ran.json()[0]["count"], 4);
    assert!(ran.stderr.contains("its schedule has changed"), "{}", ran.stderr);
}

#[test]
fn slots_are_filtered_by_disposition_and_time() {
    let directory = story();
    let count = |arguments: &[&str]| slots(directory.path(), arguments).len();
    assert_eq!(count(&["--disposition", "open"]), 1);
    assert_eq!(count(&["--disposition", "completed"]), 1);
    assert_eq!(count(&["--disposition", "missed"]), 0);
    let recent = ask(directory.path(), &["slots", "--json"]);
    assert_eq!(recent.json(), json!([]), "only a day around now, unless asked for more");
    let wrong = ask(directory.path(), &["slots", "--disposition", "great"]);
    assert_eq!(wrong.code, 2);
    let unknown = ask(directory.path(), &["slots", "order"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.stderr.contains("There are orders."), "{}", unknown.stderr);
}

#[test]
fn slots_are_a_table_for_people() {
    let directory = story();
    let ran = ask(directory.path(), &["slots", "--from", FROM, "--to", TO]);
    let expected = "\
PIPELINE  SCHEDULE  SLOT                  STATE                 RUNS  NOTE
orders    hourly    2026-02-25T07:00:00Z  skipped (no_catchup)        4 slots, until 2026-02-25T10:00:00Z
orders    hourly    2026-02-25T08:00:00Z  cancelled             0     late
orders    hourly    2026-02-25T11:00:00Z  completed             2     late
orders    hourly    2026-02-25T12:00:00Z  waiting               0     closes at 2026-02-25T13:00:00Z
";
    assert_eq!(ran.stdout, expected);
}

#[test]
fn runs_are_listed_newest_first_and_filtered() {
    let directory = story();
    let runs = ask(directory.path(), &["runs", "--json"]).json();
    let failed = json!({
        "id": "orders~hourly~20260225T110000Z~1~1", "pipeline": "orders", "schedule": "hourly",
        "slot": "orders/hourly/2026-02-25T11:00:00Z", "utc": "2026-02-25T11:00:00Z",
        "generation": 1, "attempt": 1, "status": "FAILED", "triggerType": "scheduler",
        "createdAt": "2026-02-25T11:00:00Z", "startedAt": "2026-02-25T11:00:01Z",
        "endedAt": "2026-02-25T11:00:09Z", "message": "exit code 7", "category": "TRANSIENT",
        "metadata": { "exitCode": 7 },
    });
    assert_eq!(runs[0]["status"], "COMPLETED");
    assert_eq!(runs[1], failed);
    for (arguments, expected) in [
        (&["--status", "failed"][..], 1),
        (&["--trigger-type", "retry"], 1),
        (&["--pipeline", "orders"], 2),
        (&["--limit", "1"], 1),
        (&["--status", "RUNNING"], 0),
    ] {
        let ran = ask(directory.path(), &[&["runs", "--json"], arguments].concat());
        assert_eq!(ran.json().as_array().unwrap().len(), expected, "{arguments:?}");
    }
    assert_eq!(ask(directory.path(), &["runs", "--status", "great"]).code, 2);
    let text = ask(directory.path(), &["runs"]).stdout;
    assert!(text.starts_with("RUN  ") && text.contains("exit code 7"), "{text}");
}

#[test]
fn status_says_where_each_pipeline_stands() {
    let directory = story();
    pause(directory.path());
    let status = ask(directory.path(), &["status", "--json"]).json();
    let waiting = json!({
        "slot": "orders/hourly/2026-02-25T12:00:00Z", "schedule": "hourly",
        "utc": "2026-02-25T12:00:00Z", "state": "waiting", "disposition": null, "reason": null,
    });
    assert_eq!(status[0]["pipeline"], "orders");
    assert_eq!(status[0]["last"], waiting);
    assert_eq!(status[0]["open"], json!([waiting]));
    assert_eq!(status[0]["watermarks"], json!({ "hourly": "2026-02-25T12:00:00Z" }));
    assert_eq!(status[0]["next"]["schedule"], "hourly");
    assert_eq!(
        status[0]["paused"],
        json!({ "reason": "maintenance", "since": "2026-02-25T12:10:00Z", "until": null })
    );
    let ran = ask(directory.path(), &["status"]);
    assert!(ran.stdout.contains("1 waiting"), "{}", ran.stdout);
    assert!(ran.stdout.contains("paused: maintenance"), "{}", ran.stdout);
    assert!(ran.stderr.contains("no `interlock serve` is running"), "{}", ran.stderr);
}

#[test]
fn status_says_what_is_disabled_and_what_is_being_backfilled() {
    let text = "name: history\nschedules: [{id: hourly, cron: '0 * * 1 *'}]\ntrigger: {type: command, command: 'true'}\n";
    let directory = project(&[("pipelines/history.yaml", text)]);
    let start =
        ["backfill", "start", "history", "--from", "2026-01-01", "--to", "2026-01-01T03:00:00Z"];
    let started = ask(directory.path(), &start);
    assert_eq!(started.code, 0, "{}", started.stderr);
    let backfill = "backfill 1 is running, 0 of 3 ended";
    let note = |expected: &str| {
        let ran = ask(directory.path(), &["status"]);
        let line = ran.stdout.lines().nth(1).unwrap().trim_end().to_owned();
        assert!(line.ends_with(&format!("  {expected}")), "{}", ran.stdout);
    };
    note(backfill);
    let disabled = format!("{text}watch: {{enabled: false}}\n");
    std::fs::write(directory.path().join("pipelines/history.yaml"), disabled).unwrap();
    note(&format!("disabled in its file; {backfill}"));
    let status = ask(directory.path(), &["status", "--json"]).json();
    assert_eq!(status[0]["disabled"], true);
    let running = json!([{ "id": 1, "state": "running", "ended": 0, "total": 3 }]);
    assert_eq!(status[0]["backfills"], running);
}

#[test]
fn a_list_has_every_schedule_and_says_what_it_does() {
    let text = "name: nightly\nschedule: {start: '0 1 * * *', stop: '0 5 * * *', restart: '0 3 * * 0'}\n\
                trigger: {type: command, command: sleep 1}\n";
    let directory = project(&[("pipelines/nightly.yaml", text)]);
    let list = ask(directory.path(), &["list", "--json"]).json();
    let schedules = list[0]["schedules"].as_array().unwrap();
    let actions: Vec<_> = schedules.iter().map(|it| it["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["start", "stop", "restart"]);
    let ran = ask(directory.path(), &["list"]);
    assert!(ran.stdout.contains("(stop)") && ran.stdout.contains("(restart)"), "{}", ran.stdout);
}

#[test]
fn a_pipeline_that_was_never_served_is_in_the_status_too() {
    let directory = story();
    let bills = ORDERS.replace("name: orders", "name: bills");
    fs::write(directory.path().join("pipelines/bills.yaml"), bills).unwrap();
    let status = ask(directory.path(), &["status", "--json"]).json();
    assert_eq!(status[0]["pipeline"], "bills");
    assert_eq!((&status[0]["firstSeen"], &status[0]["last"]), (&Value::Null, &Value::Null));
}

#[test]
fn events_are_json_lines_in_order() {
    let directory = story();
    let ran = ask(directory.path(), &["events", "orders", "--json"]);
    let events: Vec<Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let first = events[0]["number"].as_u64().unwrap();
    let expected = json!({
        "number": first, "pipeline": "orders", "kind": "SLOT_OPENED",
        "at": "2026-02-25T11:00:00Z", "slot": "hourly/2026-02-25T11:00:00Z", "runId": null,
        "message": "it is due", "details": { "n": 1 },
    });
    assert_eq!(events[0], expected);
    assert_eq!(events.len(), 3);
    let rest = ask(directory.path(), &["events", "--after", &first.to_string()]);
    let text = "\
2026-02-25T11:00:09Z RUN_FAILED orders/hourly/2026-02-25T11:00:00Z: exit code 7
2026-02-25T12:00:00Z SLOT_OPENED orders/hourly/2026-02-25T12:00:00Z: it is due
";
    assert_eq!(rest.stdout, text);
}

/// Starts a command that goes on printing.
fn follow(directory: &Path, arguments: &[&str]) -> (Child, Lines) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["-C", directory.to_str().unwrap()])
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = Lines::of(child.stdout.take().unwrap());
    (child, lines)
}

#[test]
fn events_are_followed() {
    let directory = story();
    let (mut child, mut lines) = follow(directory.path(), &["events", "--follow"]);
    let recorded: Vec<String> =
        (0..3).map(|_| lines.next_within("three events", BOUND).unwrap()).collect();
    happens(directory.path(), "something new");
    let new = lines.next_within("the new event", BOUND).unwrap();
    child.kill_and_wait();
    assert!(recorded[0].contains("SLOT_OPENED"), "{recorded:?}");
    assert!(new.ends_with(": something new"), "{new}");
}

#[test]
fn why_tells_a_slots_whole_story() {
    let directory = story();
    let ran = ask(directory.path(), &["why", "orders", "2026-02-25T11:00Z"]);
    let expected = "\
orders/hourly/2026-02-25T11:00:00Z is completed. Ran 5 min late, took 8 s.
  It is the run of 2026-02-25; generation 1 was opened at 2026-02-25T11:00:00Z by scheduler.
  It is marked late.
Runs:
  orders~hourly~20260225T110000Z~1~1 (scheduler) is FAILED, started at 2026-02-25T11:00:01Z, \
         ended at 2026-02-25T11:00:09Z: exit code 7
  orders~hourly~20260225T110000Z~1~2 (retry) is COMPLETED, started at 2026-02-25T11:05:01Z, \
         ended at 2026-02-25T11:05:09Z
Events:
  2026-02-25T11:00:00Z SLOT_OPENED orders/hourly/2026-02-25T11:00:00Z: it is due
  2026-02-25T11:00:09Z RUN_FAILED orders/hourly/2026-02-25T11:00:00Z: exit code 7
";
    assert_eq!(ran.stdout, expected);
}

#[track_caller]
fn check_why(directory: &Path, instant: &str, expected: &str) {
    let ran = ask(directory, &["why", "orders", instant]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains(expected), "{instant}: {}", ran.stdout);
}

#[test]
fn why_tells_what_became_of_a_span_and_why_there_is_no_slot() {
    let directory = story();
    let check = |instant, expected| check_why(directory.path(), instant, expected);
    check("2026-02-25T09:00Z", "is skipped (no_catchup): one of 4 slots");
    check("hourly/2026-02-25T08:00Z", "is cancelled.");
    check("2026-02-25T09:10Z", "the nearest are 2026-02-25T09:00:00Z and 2026-02-25T10:00:00Z");
    check("2026-02-21T09:00Z", "2026-02-21 is excluded by exclusions");
    check("2026-02-25T06:00Z", "was first seen at 2026-02-25T06:30:00Z");
    check("2026-02-25T13:00Z", "recorded only up to 2026-02-25T12:00:00Z");
    check("2199-02-25T13:00Z", "not due yet");
    check("yearly/2026-02-25T13:00Z", "has no such schedule");
    pause(directory.path());
    check("2026-02-25T13:00Z", "paused since 2026-02-25T12:10:00Z: maintenance");
}

#[test]
fn watermarks_are_shown_per_schedule() {
    let directory = story();
    let marks = ask(directory.path(), &["watermark", "show", "orders", "--json"]).json();
    let expected =
        json!([{ "pipeline": "orders", "schedule": "hourly", "at": "2026-02-25T12:00:00Z" }]);
    assert_eq!(marks, expected);
}

#[test]
fn sensors_are_read_back() {
    let directory = story();
    let expected = json!({
        "key": "rows", "value": { "count": 3 },
        "at": "2026-02-25T10:00:00Z", "receivedAt": "2026-02-25T10:00:01Z",
    });
    let one = ask(directory.path(), &["sensor", "get", "orders", "rows"]);
    assert_eq!(one.json(), expected);
    let all = ask(directory.path(), &["sensor", "list", "orders", "--json"]);
    assert_eq!(all.json(), json!([expected]));
    let none = ask(directory.path(), &["sensor", "get", "orders", "columns"]);
    assert_eq!(none.code, 1);
    assert!(none.stderr.contains("There are rows."), "{}", none.stderr);
}

#[test]
fn the_log_of_a_run_is_printed_and_followed_to_its_end() {
    let directory = story();
    let none = ask(directory.path(), &["logs", &run_id(1)]);
    assert_eq!(none.code, 1);
    assert!(none.stderr.contains("has no log"), "{}", none.stderr);
    let folder = directory.path().join(".interlock/runner/logs/orders");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("{}.log", run_id(1))), "one\n\u{1b}[1mtwo\n").unwrap();
    for arguments in [&["logs", &run_id(1)][..], &["logs", "-f", &run_id(1)]] {
        let ran = ask(directory.path(), arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "one\n\u{1b}[1mtwo\n"), "{}", ran.stderr);
    }
    assert_eq!(ask(directory.path(), &["logs", "nonsense"]).code, 2);
    assert_eq!(ask(directory.path(), &["logs", &run_id(3)]).code, 1);
}

/// Adds to a file; to write it anew would make it shorter for a moment.
fn append(path: &Path, text: &str) {
    use std::io::Write as _;
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_log_that_grows_is_followed_until_the_run_has_ended() {
    let directory = story();
    runs(directory.path());
    let folder = directory.path().join(".interlock/runner/logs/orders");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{}.log", run_id(3)));
    fs::write(&path, "one\n").unwrap();
    let (mut child, mut lines) = follow(directory.path(), &["logs", "-f", &run_id(3)]);
    assert_eq!(lines.next_within("the first line", BOUND).unwrap(), "one");
    append(&path, "two\n");
    assert_eq!(lines.next_within("the second line", BOUND).unwrap(), "two");
    append(&path, "three\n");
    ends(directory.path());
    assert_eq!(lines.rest_within("the end of the log", BOUND), ["three"]);
    assert_eq!(child.wait_within("the end of `logs -f`", BOUND).code(), Some(0));
}

#[test]
fn the_store_is_where_the_project_says() {
    let directory = story();
    fs::rename(directory.path().join(".interlock"), directory.path().join("state")).unwrap();
    assert_eq!(ask(directory.path(), &["runs"]).code, 3);
    fs::write(directory.path().join("interlock.yaml"), "embedded:\n  path: state\n").unwrap();
    let ran = ask(directory.path(), &["runs", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.json().as_array().unwrap().len(), 2);
    for (config, said) in [
        // Nobody listens there.
        (
            "provider: redis\nredis: {addr: \"127.0.0.1:1\"}\n",
            "the store on Redis at 127.0.0.1:1 cannot be opened",
        ),
        (
            "provider: dynamodb\ndynamodb: {tableName: ledger}\n",
            "this version does not act on `provider: dynamodb`",
        ),
    ] {
        fs::write(directory.path().join("interlock.yaml"), config).unwrap();
        let ran = ask(directory.path(), &["runs"]);
        assert_eq!(ran.code, 3, "{config}");
        assert!(ran.stderr.contains(said), "{config}: {}", ran.stderr);
        assert!(ran.stderr.contains("interlock.yaml"), "{config}: {}", ran.stderr);
    }
}

#[test]
fn waiting_ends_with_the_outcome() {
    let directory = story();
    for (what, code) in [
        (run_id(2), 0),
        (run_id(1), 1),
        ("orders/hourly/2026-02-25T11:00:00Z".to_owned(), 0),
        ("orders/2026-02-25T11:00:00Z".to_owned(), 0),
        ("orders/hourly/2026-02-25T08:00:00Z".to_owned(), 1),
        ("orders/hourly/2026-02-25T09:00:00Z".to_owned(), 1),
        ("orders/hourly/2026-02-25T12:00:00Z".to_owned(), 4),
        ("orders".to_owned(), 2),
    ] {
        let ran = ask(directory.path(), &["wait", &what, "--timeout", "50ms"]);
        assert_eq!(ran.code, code, "{what}: {} {}", ran.stdout, ran.stderr);
    }
}

#[test]
fn the_store_is_checked_and_copied_without_overwriting() {
    let directory = story();
    let check = ask(directory.path(), &["store", "check"]);
    assert_eq!((check.code, check.stdout.as_str()), (0, "no damage found\n"));
    let copy = directory.path().join("copy.db");
    let backup = ["store", "backup", copy.to_str().unwrap()];
    assert_eq!(ask(directory.path(), &backup).code, 0);
    assert!(copy.exists());
    assert_eq!(ask(directory.path(), &backup).code, 3);
}

#[test]
fn declared_pipelines_are_listed_and_shown_without_secrets() {
    let directory = project(&[("pipelines/orders.yaml", ORDERS)]);
    let list = ask(directory.path(), &["list", "--json"]).json();
    assert_eq!(list[0]["owner"], "data");
    assert_eq!(list[0]["trigger"], "command");
    let when = "0 * * * * (UTC)";
    let hourly = json!([{ "id": "hourly", "action": "start", "when": when, "zone": "UTC" }]);
    assert_eq!(list[0]["schedules"], hourly);
    let show = ask(directory.path(), &["show", "orders", "--json"]).json();
    assert_eq!(show["job"]["env"], json!(["PASSWORD"]));
    assert_eq!(show["maxActiveRuns"], 1);
    let text = ask(directory.path(), &["show", "orders"]).stdout;
    assert!(text.contains("  - hourly:\n"), "{text}");
    assert!(!text.contains("hush"), "{text}");
    assert_eq!(ask(directory.path(), &["show", "nobody"]).code, 2);
}

#[test]
fn the_doctor_looks_at_everything() {
    let directory = story();
    let healthy = ask(directory.path(), &["doctor"]);
    assert_eq!(healthy.code, 0, "{}", healthy.stdout);
    for name in ["files", "store", "daemon", "clock", "zones", "disk"] {
        assert!(healthy.stdout.contains(name), "{name}: {}", healthy.stdout);
    }
    assert!(healthy.stdout.contains("not running"), "{}", healthy.stdout);
    let daemon = Daemon::start(directory.path(), None);
    assert!(!ask(directory.path(), &["doctor"]).stdout.contains("not running"));
    daemon.stop();
    fs::write(directory.path().join("pipelines/bad.yaml"), "name: [").unwrap();
    let ill = ask(directory.path(), &["doctor"]);
    assert_eq!(ill.code, 1, "{}", ill.stdout);
}

#[test]
fn the_version_is_printed() {
    assert!(interlock(&["version"]).stdout.starts_with("interlock "));
}

#[test]
fn runs_are_listed_page_by_page() {
    let directory = story();
    let all = ask(directory.path(), &["runs", "--json"]).json();
    let first = ask(directory.path(), &["runs", "--limit", "1", "--json"]);
    assert_eq!(first.json(), json!([all[0]]));
    let hint = format!("`--after {}` goes on", run_id(2));
    assert!(first.stderr.contains(&hint), "{}", first.stderr);
    let rest = ask(directory.path(), &["runs", "--after", &run_id(2), "--json"]);
    assert_eq!((rest.json(), rest.stderr.as_str()), (json!([all[1]]), ""));
    assert_eq!(ask(directory.path(), &["runs", "--after", &run_id(9)]).code, 1);
    assert_eq!(ask(directory.path(), &["runs", "--after", "nonsense"]).code, 2);
}
