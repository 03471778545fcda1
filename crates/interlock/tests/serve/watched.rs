//! The watchdog of the real binary: what did not happen reaches a real channel, in time, and one pass from the command
//! line says the same.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};

use interlock_wait::ChildWithin as _;
use jiff::Timestamp;
use serde_json::Value;

use crate::{Daemon, project::Project};

/// Nobody ever reports on it.
const SILENT: &str = "
name: silent
schedule: {cron: '*/5 * * * * *', seconds: true, grace: 1s}
trigger: {type: external}
";

/// It runs as long as somebody starts it.
const TICKING: &str = "
name: ticking
schedule: {cron: '*/5 * * * * *', seconds: true, grace: 1s}
startGrace: 16s
trigger: {type: command, command: 'true'}
";

/// It does not end.
const ENDLESS: &str = "
name: endless
schedule: {cron: '* * * * * *', seconds: true}
stuck: {threshold: 2s, action: cancel}
trigger: {type: command, command: sleep 60}
";

/// It runs.
const HOURLY: &str =
    "name: hourly\nschedule: '0 * * * *'\ntrigger: {type: command, command: 'true'}\n";

fn project(pipelines: &[(&str, &str)]) -> Project {
    let project = Project::new(pipelines);
    // Whoever has the default address on this machine has nothing to do with what is tested.
    let config =
        "server: {addr: '127.0.0.1:0'}\nalerts: [{type: file, name: log, path: alerts.jsonl}]\n";
    fs::write(project.path().join("interlock.yaml"), config).unwrap();
    project
}

fn alerts(project: &Project) -> Vec<Value> {
    let text = fs::read_to_string(project.path().join("alerts.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn alert(project: &Project, alert_type: &str) -> Value {
    project.until(alert_type, || {
        alerts(project).into_iter().find(|alert| alert["alertType"] == alert_type)
    })
}

/// How many milliseconds after its deadline each slot that nobody reported on was told of.
fn lateness(project: &Project) -> Vec<i128> {
    let listed = project.run(&["events", "silent", "--json"]).stdout;
    let events = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let missed = events.filter(|event| event["kind"] == "SCHEDULE_MISSED");
    let late = missed.map(|event| {
        let instant = |value: &Value| value.as_str().unwrap().parse::<Timestamp>().unwrap();
        let slot = instant(&event["details"]["expectedTime"]);
        instant(&event["at"]).duration_since(slot).as_millis() - 1_000
    });
    late.collect()
}

#[test]
fn l3_what_nobody_reported_is_told_within_a_second_of_its_deadline() {
    let project = project(&[("silent", SILENT)]);
    let _daemon = Daemon::start(project.path());
    let alert = alert(&project, "schedule_missed");
    let instant = |value: &Value| value.as_str().unwrap().parse::<Timestamp>().unwrap();
    let first = instant(&alert["timestamp"]) - instant(&alert["details"]["expectedTime"]);
    let first = first.total(jiff::Unit::Millisecond).unwrap() - 1_000.0;
    assert!((500.0..5_000.0).contains(&first), "{first} ms after the deadline");
    // Half a second is left for what is on its way. A machine that is busy with other tests may be late with some;
    // a watchdog that wakes by the clock of a poll, or waits for somebody, is late with each.
    let mut late = Vec::new();
    project.until("told within a second of its deadline", || {
        late = lateness(&project);
        println!("{late:?}");
        late.iter().any(|late| *late <= 1_000).then_some(())
    });
    assert!(late.iter().all(|late| *late >= 500), "{late:?} ms after the deadline");
    let ran = project.run(&["incidents", "--json"]);
    let incidents: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(incidents[0]["kind"], "SCHEDULE_MISSED", "{incidents}");
    // While it serves, a pass from outside only looks.
    let ran = project.run(&["watchdog", "--once", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("is at work here"), "{}", ran.stderr);
}

/// Threads of a process that hang for as long as this lives: each is held by strace at its next system call.
pub(crate) struct Hung(Child);

impl Hung {
    pub(crate) fn new(pid: u32, names: &[&str]) -> Self {
        // Ten minutes.
        Self::held(pid, names, ("all", Duration::from_mins(10)))
    }

    /// Threads whose disk is slow: each sync of a file takes so long.
    pub(crate) fn slow(pid: u32, names: &[&str], by: Duration) -> Self {
        Self::held(pid, names, ("fsync,fdatasync", by))
    }

    fn held(pid: u32, names: &[&str], (calls, by): (&str, Duration)) -> Self {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let threads = threads.map(|thread| thread.unwrap().path()).filter(|thread| {
            let name = fs::read_to_string(thread.join("comm")).unwrap_or_default();
            names.contains(&name.trim())
        });
        let mut strace = Command::new("strace");
        strace.args(["-qq", "-o", "/dev/null", "-e", &format!("trace={calls}")]);
        strace.args(["-e", &format!("inject={calls}:delay_enter={}", by.as_micros())]);
        for thread in threads {
            strace.arg("-p").arg(thread.file_name().unwrap());
        }
        Self(strace.stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        self.0.kill_and_wait();
    }
}

#[test]
fn with_scheduler_and_controller_hung_what_did_not_happen_is_told() {
    let project = project(&[("ticking", TICKING)]);
    let daemon = Daemon::start(project.path());
    project.until("it runs", || {
        let ran = project.run(&["runs", "--json", "--status", "COMPLETED"]);
        let runs: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        runs.as_array().is_some_and(|runs| !runs.is_empty()).then_some(())
    });
    assert!(alerts(&project).is_empty(), "nothing is missing while it runs");
    let hung = Hung::new(daemon.0.id(), &["interlock", "tokio-rt-worker"]);
    let alert = alert(&project, "schedule_missed");
    assert_eq!(alert["pipelineId"], "ticking");
    drop(hung);
}

#[test]
fn a_run_that_does_not_end_is_told_and_cancelled() {
    let project = project(&[("endless", ENDLESS)]);
    let _daemon = Daemon::start(project.path());
    let alert = alert(&project, "stuck_run");
    assert_eq!(alert["details"]["status"], "RUNNING");
    project.until("its job was ended", || {
        let ran = project.run(&["runs", "--json", "--status", "CANCELLED"]);
        let runs: Value = serde_json::from_str(&ran.stdout).unwrap();
        runs.as_array().is_some_and(|runs| !runs.is_empty()).then_some(())
    });
}

#[test]
fn one_pass_finds_what_is_missing_and_at_another_time_writes_nothing() {
    let project = project(&[("hourly", HOURLY)]);
    let ran = project.run(&["watchdog", "--once", "--json"]);
    assert_eq!(
        (ran.code, ran.stdout.trim().replace(char::is_whitespace, "")),
        (0, "{\"failed\":[],\"findings\":[]}".into()),
        "there is no ledger yet"
    );
    let daemon = Daemon::start(project.path());
    project.until("it is declared", || {
        project.run(&["watermark", "show"]).stdout.contains("hourly").then_some(())
    });
    drop(daemon);
    let events = || project.run(&["events", "--json"]).stdout.lines().count();
    let before = events();
    let ran = project.run(&["watchdog", "--once", "--at", "+3h", "--json"]);
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    let findings = found["findings"].as_array().unwrap();
    assert!((2..=3).contains(&findings.len()), "{found}");
    for key in ["check", "event", "pipeline", "schedule", "slot", "date", "message"] {
        assert!(findings[0][key].is_string(), "{key} in {}", findings[0]);
    }
    assert_eq!(findings[0]["check"], "missed-schedules");
    assert_eq!(found["failed"].as_array().map(Vec::len), Some(0));
    assert_eq!(events(), before, "it wrote something");
    let only = ["watchdog", "--once", "--at", "+3h", "--check", "stuck-runs", "--json"];
    let only: Value = serde_json::from_str(&project.run(&only).stdout).unwrap();
    assert_eq!(only["findings"].as_array().map(Vec::len), Some(0));
    assert_eq!(project.run(&["watchdog", "--once", "--check", "bogus"]).code, 2);
    assert_eq!(project.run(&["watchdog"]).code, 2, "the resident one is a role of `serve`");
    let ran = project.run(&["watchdog", "--once"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "nothing is missing\n"));
}
