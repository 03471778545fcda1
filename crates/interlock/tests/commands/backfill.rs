//! `interlock backfill`: what it shows, what it refuses, and that it runs without a daemon too.

use std::{fs, path::Path};

use interlock_wait::{BOUND, ChildWithin as _, wait_until};
use serde_json::{Value, json};

use super::{
    Ran,
    alone::end_the_runner,
    interlock, project,
    recorded::{Daemon, story},
};

const HISTORY: &str = "\
name: history
schedules: [{id: hourly, cron: '0 * * 1 *'}]
maxActiveRuns: 2
trigger: {type: command, command: 'echo \"$INTERLOCK_RUN_ID\" >> ran.log'}
";

fn history() -> tempfile::TempDir {
    let watched = "name: watched\nschedule: '0 * * * *'\ntrigger: {type: external}\n";
    let sensed = "name: sensed\nschedule: {sensor: {key: landed, check: exists}}\ntrigger: {type: command, command: 'true'}\n";
    project(&[
        ("pipelines/history.yaml", HISTORY),
        ("pipelines/watched.yaml", watched),
        ("pipelines/sensed.yaml", sensed),
    ])
}

#[track_caller]
fn ask(directory: &Path, arguments: &[&str]) -> Ran {
    interlock(&[&["-C", directory.to_str().unwrap(), "backfill"], arguments].concat())
}

const MORNING: [&str; 4] = ["--from", "2026-01-01T00:00Z", "--to", "2026-01-01T03:00Z"];

fn start<'a>(pipeline: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["start", pipeline], &MORNING[..], more].concat()
}

#[test]
fn the_dry_run_says_of_each_slot_what_would_become_of_it() {
    let directory = story();
    let served = Daemon::start(directory.path(), None);
    let range = ["--from", "2026-02-25T00:00Z", "--to", "2026-02-25T15:00Z"];
    let ran = ask(
        directory.path(),
        &[&["start", "orders", "--dry-run", "--concurrency", "4"], &range[..]].concat(),
    );
    let expected = "\
SCHEDULE  SLOT                                                    VERDICT    REASON
hourly    2026-02-25T00:00:00Z to 2026-02-25T07:00:00Z (8 slots)  would run
hourly    2026-02-25T08:00:00Z                                    exists     cancelled
hourly    2026-02-25T09:00:00Z to 2026-02-25T10:00:00Z (2 slots)  would run
hourly    2026-02-25T11:00:00Z                                    exists     completed
hourly    2026-02-25T12:00:00Z                                    open       waiting
hourly    2026-02-25T13:00:00Z to 2026-02-25T14:00:00Z (2 slots)  owed       its schedule records it first
10 of 15 slots would run, 2 exist, 1 open, 2 owed; 1 at a time (`maxActiveRuns` is 1); plan 32045952335e5d83
";
    assert_eq!(served.stop(), []);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, expected), "{}", ran.stderr);
}

#[test]
fn the_dry_run_is_an_object_for_scripts() {
    let directory = story();
    let served = Daemon::start(directory.path(), None);
    let range = ["--from", "2026-02-25T11:00Z", "--to", "2026-02-25T14:00Z"];
    let ran = ask(
        directory.path(),
        &[&["start", "orders", "--dry-run", "--json", "--reprocess", "all"], &range[..]].concat(),
    );
    assert_eq!(served.stop(), []);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let slot = |hour: &str, verdict: &str, reason: Value| {
        let slot = format!("2026-02-25T{hour}:00:00Z");
        json!({
            "schedule": "hourly",
            "slot": slot,
            "name": format!("orders/hourly/{slot}"),
            "last": slot,
            "count": 1,
            "date": "2026-02-25",
            "verdict": verdict,
            "reason": reason,
        })
    };
    assert_eq!(
        ran.json(),
        json!({
            "pipeline": "orders",
            "from": "2026-02-25T11:00:00Z",
            "to": "2026-02-25T14:00:00Z",
            "schedules": ["hourly"],
            "reprocess": "all",
            "order": "asc",
            "concurrency": 1,
            "count": 3,
            "total": 1,
            "plan": "87173e1e8cd089e0",
            "verdicts": {
                "would_run": 1, "not_ready": 0, "exists": 0, "open": 1, "owed": 1, "excluded": 0,
            },
            "slots": [
                slot("11", "would_run", Value::Null),
                slot("12", "open", json!("waiting")),
                slot("13", "owed", json!("its schedule records it first")),
            ],
        })
    );
}

#[test]
fn scripts_get_slots_in_the_order_of_the_backfill_and_days_where_they_belong() {
    let two = "name: two\nschedules:\n  - {id: b, cron: '0 9 * * *', timezone: Europe/Berlin}\n  \
               - {id: a, cron: '0 8,20 * * *'}\nexclusions: {dates: ['2026-01-02']}\n\
               trigger: {type: command, command: 'true'}\n";
    let directory = project(&[("pipelines/two.yaml", two)]);
    let ask_for = |order: &str| {
        let range = ["--from", "2026-01-01T00:00Z", "--to", "2026-01-04T00:00Z"];
        let start = ["start", "two", "--dry-run", "--json", "--order", order];
        let ran = ask(directory.path(), &[&start[..], &range[..]].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let slots = ran.json()["slots"].as_array().unwrap().clone();
        let line = |it: &Value| {
            let name = it["name"].as_str().unwrap_or("-").to_owned();
            format!("{} {} {name}", it["date"].as_str().unwrap(), it["schedule"].as_str().unwrap())
        };
        slots.iter().map(line).collect::<Vec<_>>()
    };
    // Nine in Berlin is eight in UTC: at one instant the schedules come by their ids.
    let expected = [
        "2026-01-01 a two/a/2026-01-01T08:00:00Z",
        "2026-01-01 b two/b/2026-01-01T08:00:00Z",
        "2026-01-01 a two/a/2026-01-01T20:00:00Z",
        "2026-01-02 b -",
        "2026-01-02 a -",
        "2026-01-03 a two/a/2026-01-03T08:00:00Z",
        "2026-01-03 b two/b/2026-01-03T08:00:00Z",
        "2026-01-03 a two/a/2026-01-03T20:00:00Z",
    ];
    assert_eq!(ask_for("asc"), expected);
    let newest_first: Vec<_> = expected.into_iter().rev().collect();
    assert_eq!(ask_for("desc"), newest_first);
}

#[test]
fn what_is_owed_is_said_to_be_and_a_range_the_wrong_way_round_names_its_options() {
    let directory = story();
    let range = ["--from", "2026-02-25T13:00Z", "--to", "2026-02-25T15:00Z"];
    let asked = [&["start", "orders", "--dry-run"], &range[..]].concat();
    let alone = ask(directory.path(), &asked);
    assert!(alone.stdout.contains("2 of 2 slots would run;"), "{}", alone.stdout);
    // What serves records them first, by the policy.
    let served = Daemon::start(directory.path(), None);
    let ran = ask(directory.path(), &asked);
    assert!(ran.stdout.contains("0 of 2 slots would run, 2 owed;"), "{}", ran.stdout);
    assert_eq!(served.stop(), []);
    let range = ["--from", "2026-02-25T15:00Z", "--to", "2026-02-25T13:00Z"];
    let ran = ask(directory.path(), &[&["start", "orders"], &range[..]].concat());
    assert_eq!(ran.code, 2);
    let expected =
        "`--from` (2026-02-25T15:00:00+00:00) is not before `--to` (2026-02-25T13:00:00+00:00)";
    assert!(ran.stderr.contains(expected), "{}", ran.stderr);
}

#[test]
fn a_date_is_one_in_the_zone_of_the_schedule_that_is_named() {
    let file = |own: &str| {
        format!(
            "name: offices\n{own}schedules:\n  \
             - {{id: riga, cron: '0 6 * 1 *', timezone: Europe/Riga}}\n  \
             - {{id: la, cron: '0 6 * 1 *', timezone: America/Los_Angeles}}\n\
             trigger: {{type: command, command: 'true'}}\n"
        )
    };
    let (plain, own) = (file(""), file("timezone: Asia/Tokyo\n"));
    for (text, named, from) in [
        (&plain, &["--schedule", "la"][..], "2026-01-05T08:00:00Z"),
        (&plain, &["--schedule", "riga"], "2026-01-04T22:00:00Z"),
        (&plain, &[], "2026-01-04T22:00:00Z"),
        (&own, &["--schedule", "la"], "2026-01-05T08:00:00Z"),
        (&own, &["--schedule", "la", "--schedule", "riga"], "2026-01-04T15:00:00Z"),
        (&own, &[], "2026-01-04T15:00:00Z"),
    ] {
        let directory = project(&[("pipelines/offices.yaml", text)]);
        let range = ["--from", "2026-01-05", "--to", "2026-01-06", "--dry-run", "--json"];
        let ran = ask(directory.path(), &[&["start", "offices"], &range[..], named].concat());
        let plan: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(plan["from"], from, "{named:?} of {text}{}", ran.stderr);
        if named.len() == 2 {
            assert_eq!(plan["count"], 1, "that date has one slot: {named:?} of {text}");
        }
    }
}

#[test]
fn steering_what_there_is_not_makes_no_ledger() {
    let directory = history();
    for word in ["pause", "resume", "cancel", "follow"] {
        let ran = ask(directory.path(), &[word, "history", "1"]);
        assert_eq!(ran.code, 1, "{word}: {}", ran.stderr);
        assert!(ran.stderr.contains("history has no backfill 1"), "{word}: {}", ran.stderr);
    }
    assert!(!directory.path().join(".interlock").exists());
}

#[test]
fn days_that_a_calendar_leaves_out_are_named() {
    let directory = story();
    let range = ["--from", "2026-02-20T22:00Z", "--to", "2026-02-23T01:00Z"];
    let ran = ask(directory.path(), &[&["start", "orders", "--dry-run"], &range[..]].concat());
    let expected = "\
SCHEDULE  SLOT                                                    VERDICT    REASON
hourly    2026-02-20T22:00:00Z to 2026-02-23T00:00:00Z (3 slots)  would run
hourly    2026-02-21                                              excluded   excluded by exclusions
hourly    2026-02-22                                              excluded   excluded by exclusions
3 of 3 slots would run, 2 days excluded; 1 at a time; plan cfdc23f892bd9e37
";
    assert_eq!((ran.code, ran.stdout.as_str()), (0, expected), "{}", ran.stderr);
}

#[test]
fn a_range_without_slots_is_refused_as_such() {
    let directory = story();
    let range = ["--from", "2026-02-21T00:00Z", "--to", "2026-02-22T00:00Z"];
    let ran = ask(directory.path(), &[&["start", "orders"], &range[..]].concat());
    let expected = "error: there are no slots in the range\n\
                    help: `--dry-run` names the days that a calendar leaves out.\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (1, expected));
}

#[test]
fn a_slot_that_stored_sensors_forbid_is_not_ready() {
    let gated =
        format!("{HISTORY}validation: {{trigger: ALL, rules: [{{key: landed, check: exists}}]}}\n");
    let directory = project(&[("pipelines/history.yaml", &gated)]);
    let dry = ask(directory.path(), &start("history", &["--dry-run"]));
    let line = "hourly    2026-01-01T00:00:00Z to 2026-01-01T02:00:00Z (3 slots)  not ready  ";
    assert!(dry.stdout.contains(line), "{}", dry.stdout);
    assert!(dry.stdout.contains("landed"), "{}", dry.stdout);
    let sum = "0 of 3 slots would run, 3 would wait because not ready; 1 at a time";
    assert!(dry.stdout.contains(sum), "{}", dry.stdout);
    let one = ["--from", "2026-01-01T00:00Z", "--to", "2026-01-01T01:00Z", "--dry-run"];
    let one = ask(directory.path(), &[&["start", "history", "--json"], &one[..]].concat()).json();
    let counts = json!({
        "would_run": 0, "not_ready": 1, "exists": 0, "open": 0, "owed": 0, "excluded": 0,
    });
    assert_eq!((&one["verdicts"], &one["total"]), (&counts, &json!(1)), "{one}");
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let directory = history();
    let long = ["start", "history", "--from", "1990-01-01", "--to", "2026-01-01"];
    let cases: [(Vec<&str>, &str); 9] = [
        (
            vec!["start", "history", "--from", "2026-01-02", "--to", "2026-01-01"],
            "error: `--from` (2026-01-02T00:00:00+00:00) is not before `--to` (2026-01-01T00:00:00+00:00)\n",
        ),
        (
            vec!["start", "history", "--from", "2026-01-02", "--to", "2099-01-01"],
            "error: 2099-01-01T00:00:00Z is in the future: a backfill covers the past\n",
        ),
        (
            long.to_vec(),
            "error: there are more than 10000 slots from 1990-01-01T00:00:00Z to 2026-01-01T00:00:00Z\n\
             help: Say `--yes` if that is meant; `--dry-run` shows what would run.\n",
        ),
        (
            start("nobody", &[]),
            "error: there is no pipeline `nobody`\nhelp: There are history, sensed, watched.\n",
        ),
        (
            start("history", &["--schedule", "nightly"]),
            "error: history has no schedule `nightly`; it has hourly\n",
        ),
        (start("watched", &[]), "error: watched is watch-only: Interlock does not run its jobs\n"),
        (start("sensed", &[]), "error: no schedule of sensed owes slots by the clock\n"),
        (start("history", &["--reprocess", "some"]), "error: invalid value 'some' for"),
        (start("history", &["--concurrency", "0"]), "error: invalid value '0' for"),
    ];
    for (arguments, expected) in cases {
        let ran = ask(directory.path(), &arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with(expected), "{arguments:?}: {}", ran.stderr);
    }
    assert!(!directory.path().join(".interlock").exists(), "nothing was made");
    let dry = ask(directory.path(), &[&long[..], &["--dry-run"]].concat());
    assert_eq!(dry.code, 0, "{}", dry.stderr);
    assert!(dry.stdout.contains("26784 of 26784 slots would run"), "{}", dry.stdout);
    assert!(!directory.path().join(".interlock").exists(), "a dry run makes nothing");
}

/// The runs that really happened.
fn ran(directory: &Path) -> Vec<String> {
    let text = fs::read_to_string(directory.join("ran.log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn without_serve_it_is_recorded_and_with_follow_it_runs_here() {
    let directory = history();
    let recorded = ask(directory.path(), &start("history", &["--reason", "lost data"]));
    assert_eq!((recorded.code, recorded.stdout.as_str()), (0, "done: backfill 1, slots 3\n"));
    assert_eq!(
        recorded.stderr,
        "no `interlock serve` is running: it runs when one does (`--follow` runs one here)\n"
    );
    assert_eq!(ran(directory.path()), [] as [&str; 0]);
    // Taken up here, too; while it is paused there is nothing to do.
    assert_eq!(ask(directory.path(), &["pause", "history", "1"]).code, 0);
    let paused = ask(directory.path(), &["follow", "history", "1"]);
    assert_eq!(paused.code, 4, "{}", paused.stderr);
    let left =
        "left as it is: `interlock serve`, or `interlock backfill follow history 1`, takes it up\n";
    assert!(paused.stderr.ends_with(left), "{}", paused.stderr);
    assert_eq!(ask(directory.path(), &["resume", "history", "1"]).code, 0);
    for (word, state) in [("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")] {
        let steered = ask(directory.path(), &[word, "history", "1"]);
        let expected = format!("done: backfill 1, state {state}\n");
        assert_eq!((steered.code, steered.stdout), (0, expected), "{}", steered.stderr);
    }
    let refused = ask(directory.path(), &["resume", "history", "1"]);
    let expected = "error: backfill 1 of history is cancelled\n";
    assert_eq!((refused.code, refused.stderr.as_str()), (1, expected));
    let unknown = ask(directory.path(), &["cancel", "history", "7"]);
    assert!(unknown.stderr.contains("has no backfill 7"), "{}", unknown.stderr);

    let followed = ask(directory.path(), &start("history", &["--follow", "--concurrency", "2"]));
    end_the_runner(directory.path());
    assert_eq!(followed.code, 0, "{}", followed.stderr);
    assert!(
        followed.stderr.ends_with("backfill 2 is done: 3/3 completed\n"),
        "{}",
        followed.stderr
    );
    let mut runs = ran(directory.path());
    runs.sort();
    let expected: Vec<_> =
        (0..3).map(|hour| format!("history~hourly~20260101T0{hour}0000Z~1~1")).collect();
    assert_eq!(runs, expected);
    let nothing = ask(directory.path(), &start("history", &[]));
    assert_eq!(nothing.code, 1);
    assert!(nothing.stderr.starts_with("error: none of the 3 slots in the range would run\n"));
    check_list(directory.path());
}

/// Seed 004: a gap is worked off while nothing serves, and the next start only replays what is left of it.
#[test]
fn what_is_owed_runs_here_ahead_of_the_watermark_and_serve_passes_over_it() {
    let secondly = HISTORY
        .replace("cron: '0 * * 1 *'", "every: 1s")
        .replace("maxActiveRuns: 2", "catchupWindow: 1d\noverlapPolicy: all\nmaxActiveRuns: 9");
    let directory = project(&[("pipelines/history.yaml", &secondly)]);
    let path = directory.path();
    // A request is its first sight; from then on its slots are owed, and nothing records them.
    let seen =
        ["start", "history", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:00:02Z"];
    assert_eq!(ask(path, &seen).code, 0);
    let taken_up = ask(path, &["follow", "history", "1"]);
    assert_eq!(taken_up.code, 0, "{}", taken_up.stderr);
    let all =
        |arguments: &[&str]| interlock(&[&["-C", path.to_str().unwrap()], arguments].concat());
    let watermark = || all(&["watermark", "show", "history", "--json"]).json()[0]["at"].clone();
    let first = watermark();
    let range = ["start", "history", "--from", first.as_str().unwrap(), "--to", "now"];
    let range = [&range[..], &["--concurrency", "9"]].concat();
    let planned = || ask(path, &[&range[..], &["--dry-run", "--json"]].concat()).json();
    wait_until("slots that are owed", BOUND, || planned()["total"].as_u64() > Some(3));
    let followed = ask(path, &[&range[..], &["--follow"]].concat());
    assert_eq!(followed.code, 0, "{}", followed.stderr);
    let backfilled = ran(path);
    assert!(backfilled.len() > 3, "{backfilled:?}");
    // One alone, by its name.
    let slots = all(&["slots", "history", "--json"]).json();
    let last = slots.as_array().unwrap().iter().map(|slot| slot["slot"].as_str().unwrap());
    let last = last.map(|name| name.rsplit_once('/').map_or(name, |(_, at)| at));
    let last: jiff::Timestamp = last.max().unwrap().parse().unwrap();
    let next = (last + jiff::SignedDuration::from_secs(1)).to_string();
    wait_until("the next slot is owed", BOUND, || {
        all(&["run", "history", "--slot", &next]).code == 0
    });
    assert_eq!(watermark(), first, "S4: no watermark passes what is not recorded");
    let by_hand = ran(path);
    let serve = serve(path);
    let reached = || watermark().as_str().unwrap().parse::<jiff::Timestamp>().unwrap() > last;
    wait_until("the catch-up to pass over it", BOUND, reached);
    drop(serve);
    end_the_runner(path);
    let mut slots: Vec<_> = ran(path).iter().map(|run| run[..run.len() - 4].to_owned()).collect();
    assert!(slots.len() > by_hand.len(), "what is left of the gap is caught up");
    slots.sort();
    let count = slots.len();
    slots.dedup();
    assert_eq!(slots.len(), count, "no slot ran twice");
}

/// A `serve` that ends with the test.
struct Served(std::process::Child);

fn serve(directory: &Path) -> Served {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_interlock"));
    command.args(["-C", directory.to_str().unwrap(), "serve"]);
    command.env_clear().env("PATH", "/usr/bin:/bin");
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    Served(command.spawn().unwrap())
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.kill_and_wait();
    }
}

#[track_caller]
fn check_list(directory: &Path) {
    let listed = ask(directory, &["list", "history"]);
    let expected = "\
PIPELINE  ID  STATE      FROM                  TO                    WHICH    DONE  FAILED  OTHER  LEFT
history   1   cancelled  2026-01-01T00:00:00Z  2026-01-01T03:00:00Z  missing  0/3   0       0
history   2   done       2026-01-01T00:00:00Z  2026-01-01T03:00:00Z  missing  3/3   0       0
";
    assert_eq!(listed.stdout, expected);
    let Value::Array(mut objects) = ask(directory, &["list", "--json"]).json() else {
        panic!("an array")
    };
    let mut last = objects.pop().unwrap();
    for instant in ["startedAt", "updatedAt", "endedAt"] {
        assert!(last[instant].is_string(), "{last}");
        last[instant] = Value::Null;
    }
    assert_eq!(
        last,
        json!({
            "pipeline": "history",
            "id": 2,
            "state": "done",
            "from": "2026-01-01T00:00:00Z",
            "to": "2026-01-01T03:00:00Z",
            "schedules": ["hourly"],
            "reprocess": "missing",
            "order": "asc",
            "concurrency": 2,
            "reason": "",
            "by": "",
            "plan": last["plan"],
            "total": 3,
            "opened": 3,
            "passed": 0,
            "completed": 3,
            "failed": 0,
            "cancelled": 0,
            "skipped": 0,
            "open": [],
            "cursor": "hourly/2026-01-01T02:00:00Z",
            "startedAt": null,
            "updatedAt": null,
            "endedAt": null,
            "etaSeconds": null,
        })
    );
}

#[test]
fn a_project_without_backfills_says_so() {
    let directory = story();
    let listed = ask(directory.path(), &["list"]);
    assert_eq!((listed.code, listed.stdout.as_str()), (0, "there are no backfills\n"));
    assert_eq!(ask(directory.path(), &["list", "--json"]).json(), json!([]));
}
