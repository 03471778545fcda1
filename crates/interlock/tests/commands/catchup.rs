//! `interlock catchup` and the question that `interlock resume` asks.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Child, Command, Stdio},
};

use interlock_core::id::ScheduleId;
use interlock_store::{
    Key, Record,
    record::{InboxRecord, PipelineRecord, SlotRecord, WatermarkRecord},
};
use interlock_wait::{BOUND, ChildWithin as _, Lines};
use serde_json::Value;

use super::{
    Ran,
    alone::end_the_runner,
    interlock, project,
    recorded::{Daemon, ORDERS, Written, at, create, open_slot, pause, story},
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
    assert_eq!((none.code, none.stdout.as_str()), (0, "nothing was missed\n"));
}

/// A pipeline `orders` whose schedules are recorded up to a noon long ago, and nothing else.
fn downtime(text: &str, schedules: &[&str]) -> tempfile::TempDir {
    downtime_of(text, schedules, None)
}

/// The same of one that was disabled since then.
fn downtime_of(
    text: &str,
    schedules: &[&str],
    disabled_since: Option<jiff::Timestamp>,
) -> tempfile::TempDir {
    let directory = project(&[("pipelines/orders.yaml", text)]);
    let noon = at("2026-02-25T12:00:00Z");
    let pipeline = PipelineRecord {
        agenda: None,
        about: None,
        version: "00000000000000ab".into(),
        first_seen: noon,
        retired_at: None,
        disabled_since,
        pause: None,
    };
    let mut rows = vec![create(Key::Pipeline, Record::Pipeline(pipeline.into()))];
    rows.extend(schedules.iter().map(|id| {
        let key = Key::Watermark(ScheduleId::any(id).unwrap());
        create(key, Record::Watermark(WatermarkRecord { at: noon }))
    }));
    Written::open(directory.path()).commit(rows);
    directory
}

fn with_two_schedules(policy: &str) -> tempfile::TempDir {
    let text = format!(
        "name: orders\nschedules:\n  - {{id: half, cron: '30 * * * *'}}\n  - {{id: hourly, cron: '0 * * * *'}}\n\
         trigger: {{type: command, command: 'true'}}\n{policy}"
    );
    downtime(&text, &["half", "hourly"])
}

#[test]
fn what_was_disabled_and_is_enabled_in_downtime_is_planned_as_after_a_pause() {
    let text = |policy: &str| {
        format!(
            "name: orders\nschedules: [{{id: hourly, cron: '0 * * * *'}}]\n\
             trigger: {{type: command, command: 'true'}}\n{policy}"
        )
    };
    let noon = Some(at("2026-02-25T12:00:00Z"));
    for (policy, first) in [("", "skip paused"), ("catchupWindow: 1d\n", "run catchup")] {
        let directory = downtime_of(&text(policy), &["hourly"], noon);
        let arguments = ["catchup", "--dry-run", "--at", "2026-02-25T15:30:00Z", "--json"];
        let ran = ask(directory.path(), &arguments);
        let Value::Array(objects) = ran.json() else { panic!("{}", ran.stdout) };
        let line = |it: &Value| format!("{} {}", it["action"], it["reason"]).replace('"', "");
        let lines: Vec<_> = objects.iter().map(line).collect();
        assert_eq!(lines, [first, "skip paused", "skip paused"], "{policy}");
    }
}

#[test]
fn scripts_get_slots_in_order_of_time_by_the_names_that_slots_have() {
    let directory = with_two_schedules("");
    let ran =
        ask(directory.path(), &["catchup", "--dry-run", "--at", "2026-02-25T14:45:00Z", "--json"]);
    let Value::Array(objects) = ran.json() else { panic!("{}", ran.stdout) };
    let names: Vec<_> = objects.iter().map(|it| it["name"].as_str().unwrap()).collect();
    let expected = ["half/2026-02-25T12:30", "hourly/2026-02-25T13:00", "half/2026-02-25T13:30"];
    let expected = expected.into_iter().chain(["hourly/2026-02-25T14:00", "half/2026-02-25T14:30"]);
    assert_eq!(names, expected.map(|it| format!("orders/{it}:00Z")).collect::<Vec<_>>());
}

#[test]
fn what_waits_for_its_turn_already_is_in_the_plan() {
    let directory = with_two_schedules("catchupWindow: 1d\noverlapPolicy: all\n");
    let slot = SlotRecord { state: "queued".into(), sla: None, ..open_slot() };
    let slot = SlotRecord { closes_at: at("2026-03-04T12:00:00Z"), ..slot };
    let key = Key::Slot(ScheduleId::any("hourly").unwrap(), at("2026-02-25T12:00:00Z"));
    Written::open(directory.path()).commit(vec![create(key, Record::Slot(slot.into()))]);
    let arguments = ["catchup", "--dry-run", "--at", "2026-02-25T13:10:00Z", "--json"];
    let ran = ask(directory.path(), &arguments);
    let Value::Array(objects) = ran.json() else { panic!("{}", ran.stdout) };
    let reasons: Vec<_> = objects.iter().map(|it| it["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["queued", "catchup", "catchup"], "{}", ran.stdout);
    assert!(objects.iter().all(|it| it["action"] == "run"), "{}", ran.stdout);
}

#[test]
fn what_waits_for_its_turn_in_a_pause_is_in_the_plan_and_says_why() {
    let directory = with_two_schedules("catchupWindow: 1d\noverlapPolicy: all\n");
    let slot = SlotRecord { state: "queued".into(), sla: None, ..open_slot() };
    let slot = SlotRecord { closes_at: at("2026-03-04T12:00:00Z"), ..slot };
    let key = Key::Slot(ScheduleId::any("hourly").unwrap(), at("2026-02-25T12:00:00Z"));
    Written::open(directory.path()).commit(vec![create(key, Record::Slot(slot.into()))]);
    pause(directory.path());
    let planned = |at: &str| {
        let ran = ask(directory.path(), &["catchup", "--dry-run", "--at", at, "--json"]);
        let Value::Array(objects) = ran.json() else { panic!("{}", ran.stdout) };
        let of = |it: &Value| {
            let text = |key: &str| it[key].as_str().unwrap().to_owned();
            format!("{} {} {}", &text("slot")[11..16], text("action"), text("reason"))
        };
        assert!(ran.stderr.contains("what it owes is decided by its `resume`"), "{}", ran.stderr);
        objects.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(planned("2026-02-25T13:10:00Z"), ["12:00 wait paused"]);
    // It is given up when it has waited for a week.
    assert_eq!(planned("2026-03-04T12:00:00Z"), ["12:00 skip paused"]);
    // The same in the time in which its file disables it.
    let disabled = "name: orders\nschedules: [{id: hourly, cron: '0 * * * *'}]\nwatch: {enabled: false}\n\
                    trigger: {type: command, command: 'true'}\n";
    let off = downtime(disabled, &["hourly"]);
    let slot = SlotRecord { state: "queued".into(), sla: None, ..open_slot() };
    let key = Key::Slot(ScheduleId::any("hourly").unwrap(), at("2026-02-25T12:00:00Z"));
    Written::open(off.path()).commit(vec![create(key, Record::Slot(slot.into()))]);
    let ran = ask(off.path(), &["catchup", "--dry-run", "--at", "2026-02-25T12:30:00Z"]);
    assert!(ran.stdout.contains("2026-02-25T12:00:00Z  wait    disabled"), "{}", ran.stdout);
}

#[test]
fn a_paused_pipeline_is_named_and_a_project_without_a_ledger_owes_nothing() {
    let directory = with("");
    pause(directory.path());
    let ran =
        ask(directory.path(), &["catchup", "--dry-run", "--at", "2026-02-25T16:30:00Z", "--json"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "[]\n"));
    let said = "orders is paused since 2026-02-25T12:10:00Z: what it owes is decided by its `resume`, which shows it\n";
    assert_eq!(ran.stderr, said);
    let fresh = project(&[("pipelines/orders.yaml", ORDERS)]);
    let ran = ask(fresh.path(), &["catchup", "--dry-run"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "nothing was missed\n"));
    assert_eq!(ask(fresh.path(), &["catchup", "--dry-run", "nobody"]).code, 2);
    assert!(!fresh.path().join(".interlock").exists(), "nothing was made");
}

#[test]
fn an_impossible_cron_enqueues_nothing() {
    let impossible = "name: never\nschedule: '0 0 30 2 *'\ncatchupWindow: 1d\noverlapPolicy: all\n\
                      trigger: {type: command, command: 'true'}\n";
    let beside = with_two_schedules("catchupWindow: 1h\noverlapPolicy: all\n");
    fs::write(beside.path().join("pipelines/never.yaml"), impossible).unwrap();
    let ran =
        ask(beside.path(), &["catchup", "--dry-run", "--at", "2026-02-25T16:30:00Z", "--json"]);
    let Value::Array(objects) = ran.json() else { panic!("{}", ran.stdout) };
    assert_eq!(objects.len(), 9, "{}", ran.stdout);
    assert!(objects.iter().all(|it| it["pipeline"] == "orders"), "{}", ran.stdout);
    let ran = ask(beside.path(), &["validate"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("never"), "{}{}", ran.stdout, ran.stderr);
    // The daemon that catches the other one up opens nothing of it.
    let mut served = Served::start(beside.path());
    served.until("CATCHUP_DONE");
    drop(served);
    let ran = ask(beside.path(), &["slots", "--json", "--from", "2026-01-01", "--to", "+1d"]);
    let Value::Array(slots) = ran.json() else { panic!("{}", ran.stdout) };
    assert!(!slots.is_empty() && slots.iter().all(|it| it["pipeline"] == "orders"), "{slots:?}");
}

/// A line of the log.
fn read(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|_| Value::String(line.to_owned()))
}

/// A real `serve` and the lines of its log.
struct Served {
    daemon: Child,
    lines: Lines,
    directory: std::path::PathBuf,
}

impl Served {
    fn start(directory: &Path) -> Self {
        fs::write(directory.join("interlock.yaml"), "server: {addr: 127.0.0.1:0}\n").unwrap();
        let mut daemon = Command::new(env!("CARGO_BIN_EXE_interlock"))
            .args(["-C", directory.to_str().unwrap(), "serve", "--log", "json"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Lines::of(daemon.stderr.take().unwrap());
        Self { daemon, lines, directory: directory.to_path_buf() }
    }

    /// The lines up to one of an event.
    #[track_caller]
    fn until(&mut self, event: &str) -> Vec<Value> {
        let before = self.lines.heard().len();
        let is_wanted = |line: &str| read(line)["event"] == event;
        let found = self.lines.find_within(&format!("the event {event}"), BOUND, is_wanted);
        let seen: Vec<Value> = self.lines.heard()[before..].iter().map(|line| read(line)).collect();
        assert!(found.is_some(), "it ended without {event}: {seen:#?}");
        seen
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.daemon.kill_and_wait();
        end_the_runner(&self.directory);
    }
}

#[test]
fn a_catch_up_is_told_in_order_and_machines_get_its_numbers() {
    let directory = with_two_schedules("catchupWindow: 6h\noverlapPolicy: all\n");
    let seen = Served::start(directory.path()).until("CATCHUP_DONE");
    assert!(seen.iter().all(Value::is_object), "{seen:#?}");
    let place = |event: &str| seen.iter().position(|line| line["event"] == event).unwrap();
    let of = |event: &str| &seen[place(event)];
    let summary = of("CATCHUP_SUMMARY");
    assert!(place("CATCHUP_SUMMARY") < place("CATCHUP_PLANNED"), "{seen:#?}");
    assert!(place("CATCHUP_PLANNED") < place("JOB_TRIGGERED"), "{seen:#?}");
    assert_eq!(
        (&summary["pipelines"], &summary["from"]),
        (&1.into(), &"2026-02-25T12:30:00Z".into())
    );
    let number = |line: &Value, name: &str| line[name].as_u64().unwrap_or_else(|| panic!("{line}"));
    let run = number(summary, "toRun");
    assert!((11..=12).contains(&run), "{summary}");
    assert_eq!(number(summary, "missed"), run + number(summary, "skipped"));
    let planned = of("CATCHUP_PLANNED");
    assert_eq!((&planned["policy"], number(planned, "toRun")), (&"all".into(), run));
    let skipped: Vec<_> = seen.iter().filter(|line| line["event"] == "SLOTS_MISSED").collect();
    assert!(skipped.iter().all(|line| line["reason"] == "expired"), "{skipped:?}");
    let counted: u64 = skipped.iter().map(|line| number(line, "count")).sum();
    assert_eq!(counted, number(summary, "skipped"));
    let queued: Vec<_> = seen.iter().filter(|line| line["event"] == "CATCHUP_QUEUED").collect();
    assert_eq!(queued.iter().map(|line| number(line, "count")).sum::<u64>(), run);
    let done = of("CATCHUP_DONE");
    assert_eq!((number(done, "completed"), number(done, "skipped")), (run, counted), "{done}");
    assert_eq!((number(done, "failed"), number(done, "cancelled")), (0, 0), "{done}");
}

#[test]
fn a_downtime_that_is_recorded_in_portions_is_summed_up_once() {
    let text = "name: orders\nschedules: [{id: hourly, cron: '* * * * *'}]\ncatchupWindow: 18d\ncatchupMaxRuns: 100000\n\
                overlapPolicy: all\ntrigger: {type: command, command: 'sleep 60'}\n";
    let directory = downtime(text, &["hourly"]);
    let mut served = Served::start(directory.path());
    let mut seen = served.until("CATCHUP_SUMMARY");
    let number = |line: &Value, name: &str| line[name].as_u64().unwrap_or_else(|| panic!("{line}"));
    let summary = seen.last().unwrap().clone();
    let run = number(&summary, "toRun");
    assert!((25_000..26_000).contains(&run), "{summary}");
    assert_eq!(number(&summary, "missed"), run + number(&summary, "skipped"));
    let sum = |seen: &[Value], kind: &str| {
        let lines = seen.iter().filter(|line| line["event"] == kind);
        lines.map(|line| number(line, "count")).sum::<u64>()
    };
    while sum(&seen, "CATCHUP_QUEUED") < run {
        seen.extend(served.until("CATCHUP_QUEUED"));
    }
    let count = |kind: &str| seen.iter().filter(|line| line["event"] == kind).count();
    assert!(count("CATCHUP_QUEUED") > 1, "it was recorded in one go: {summary}");
    assert_eq!((count("CATCHUP_SUMMARY"), count("CATCHUP_PLANNED")), (1, 1), "{seen:#?}");
    let planned = seen.iter().find(|line| line["event"] == "CATCHUP_PLANNED").unwrap();
    let numbers = |line| (number(line, "missed"), number(line, "toRun"));
    assert_eq!(numbers(planned), numbers(&summary));
    assert_eq!(sum(&seen, "CATCHUP_QUEUED"), run);
    assert_eq!(sum(&seen, "SLOTS_MISSED"), number(&summary, "skipped"));
}

#[test]
fn many_slots_of_one_schedule_are_queued_in_one_line() {
    let text = "name: orders\nschedules: [{id: hourly, cron: '* * * * *'}]\ncatchupWindow: 1h\n\
                overlapPolicy: all\ntrigger: {type: command, command: 'sleep 5'}\n";
    let directory = downtime(text, &["hourly"]);
    let seen = Served::start(directory.path()).until("JOB_TRIGGERED");
    let queued: Vec<_> = seen.iter().filter(|line| line["event"] == "CATCHUP_QUEUED").collect();
    assert_eq!(queued.len(), 1, "{queued:#?}");
    assert!((58..=60).contains(&queued[0]["count"].as_u64().unwrap()), "{queued:?}");
}

#[test]
fn a_plan_changes_nothing_and_without_serve_nothing_is_done() {
    let directory = with("");
    let before = ask(directory.path(), &["watermark", "show", "--json"]).stdout;
    let ran = ask(directory.path(), &["catchup"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("`interlock serve` is not running"), "{}", ran.stderr);
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
    let shown = terminal.output_within("the end of `resume` at a terminal", BOUND);
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
        assert!(shown.contains("the pipeline stays paused"), "{shown}");
    }
    let daemon = Daemon::start(directory.path(), None);
    let shown = typed(directory.path(), "y\n");
    assert!(!shown.contains("the pipeline stays paused"), "{shown}");
    assert_eq!(daemon.stop(), [InboxRecord::Resume { catchup: None }]);
}
