//! Jobs that are to end, as real processes: by a stop schedule, by a person, and with the daemon killed in
//! between.

use std::{fs, path::Path};

use serde_json::Value;

use crate::{Daemon, project::Project};

/// A job that would take ten minutes and says who it is.
const JOB: &str = "echo $$ >> pids; exec sleep 600";
const TRIGGER: &str = "trigger: {type: command, command: sh long.sh}";

fn project(schedule: &str) -> Project {
    let project = Project::new(&[("feed", &format!("name: feed\n{schedule}\n{TRIGGER}\n"))]);
    fs::write(project.path().join("long.sh"), JOB).unwrap();
    project
}

impl Project {
    fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.run(&[arguments, &["--json"]].concat());
        serde_json::from_str(&ran.stdout).unwrap_or(Value::Null)
    }

    /// The slots of a schedule, as their dispositions; `open` for one that is.
    fn ends(&self, schedule: &str) -> Vec<String> {
        let slots = self.json(&["slots", "feed"]);
        let of_schedule =
            slots.as_array().into_iter().flatten().filter(|slot| slot["schedule"] == schedule);
        of_schedule.map(|slot| slot["disposition"].as_str().unwrap_or("open").to_owned()).collect()
    }

    /// The jobs that were started, by process id.
    fn jobs(&self) -> Vec<String> {
        let pids = fs::read_to_string(self.path().join("pids")).unwrap_or_default();
        pids.lines().map(str::to_owned).collect()
    }

    /// Asks for a run and waits until its job is there; answers with the slot.
    fn run_a_job(&self) -> String {
        self.until("the daemon has seen it", || {
            let seen = self.json(&["status", "feed"]).to_string();
            seen.contains(r#""watermarks":{""#).then_some(())
        });
        self.until("its job was found running", || {
            // A stop may come before the job has said who it is.
            if self.ends("manual").iter().all(|end| end != "open") && self.jobs().is_empty() {
                assert_eq!(self.run(&["run", "feed", "--detach"]).code, 0);
            }
            (!self.jobs().is_empty()).then_some(())
        });
        let slots = self.json(&["slots", "feed"]);
        let manual = slots.as_array().unwrap().iter().rfind(|slot| slot["schedule"] == "manual");
        manual.unwrap()["utc"].as_str().unwrap().to_owned()
    }
}

fn is_alive(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

#[test]
fn a_stop_schedule_ends_a_real_job() {
    let project = project("schedule: {stop: '*/2 * * * * *', seconds: true}");
    let _daemon = Daemon::start(project.path());
    project.run_a_job();
    project.until("it is ended", || {
        project.ends("manual").iter().all(|end| end == "cancelled").then_some(())
    });
    assert!(!is_alive(&project.jobs()[0]), "the job still runs");
    let stops = project.ends("stop");
    assert!(stops.iter().all(|end| end == "completed"), "{stops:?}");
    let events = project.run(&["events", "feed"]).stdout;
    assert!(events.contains("STOP_FIRED") && events.contains("it ends manual/"), "{events}");
}

#[test]
fn a_cancel_survives_a_kill_of_the_daemon() {
    let project = project("schedule: {start: '0 0 1 1 *'}");
    let daemon = Daemon::start(project.path());
    let slot = project.run_a_job();
    let asked = project.run(&["cancel", "feed", &format!("manual/{slot}")]);
    drop(daemon);
    assert_eq!(asked.code, 0, "{asked:?}");
    let _next = Daemon::start(project.path());
    project.until("it is ended", || (project.ends("manual") == ["cancelled"]).then_some(()));
    assert!(!is_alive(&project.jobs()[0]), "the job still runs");
}

#[test]
fn a_cancel_while_nobody_serves_ends_the_job() {
    let project = project("schedule: {start: '0 0 1 1 *'}");
    let daemon = Daemon::start(project.path());
    let slot = project.run_a_job();
    drop(daemon);
    let asked = project.run(&["cancel", "feed", &format!("manual/{slot}")]);
    assert_eq!(asked.code, 0, "{asked:?}");
    let _next = Daemon::start(project.path());
    project.until("it is ended", || (project.ends("manual") == ["cancelled"]).then_some(()));
    assert!(!is_alive(&project.jobs()[0]), "the job still runs");
}
