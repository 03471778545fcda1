//! What the settings for all pipelines do to the real binary: how often an open slot is looked at, how long an evaluator may
//! take, when a run counts as stuck.

use std::{fs, os::unix::fs::PermissionsExt as _};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{Daemon, project::Project};

const CONFIG: &str = "
server: {addr: '127.0.0.1:0'}
alerts: [{type: file, name: log, path: alerts.jsonl}]
watcher: {defaultInterval: 1s}
engine: {defaultTimeout: 1s}
watchdog: {stuckRunThreshold: 2s}
";

/// Its required trait fails, so it is asked about again and again; its optional one is asked about too.
const GATED: &str = "
name: gated
archetype: gate
traits: {fresh: {evaluator: fresh.sh}, extra: {evaluator: extra.sh}}
schedules: [{id: once, at: 'SOON'}]
trigger: {type: command, command: 'true'}
";
const GATE: &str = "
name: gate
requiredTraits: [{type: fresh, defaultTtl: 1s}]
optionalTraits: [{type: extra}]
readinessRule: {type: all-required-pass}
";

/// Its evaluator never answers.
const SLOW: &str = "
name: slow
archetype: slow-gate
traits: {slow: {evaluator: slow.sh}}
schedules: [{id: once, at: 'SOON'}]
trigger: {type: command, command: 'true'}
";
const SLOW_GATE: &str = "
name: slow-gate
requiredTraits: [{type: slow, defaultTtl: 1s}]
readinessRule: {type: all-required-pass}
";

/// It says nothing of its own about how long it may take.
const ENDLESS: &str = "
name: endless
schedules: [{id: once, at: 'SOON'}]
trigger: {type: command, command: sleep 60}
";

fn project() -> Project {
    let soon = Timestamp::now() + SignedDuration::from_secs(3);
    let at = |text: &str| text.replace("SOON", &soon.strftime("%FT%TZ").to_string());
    let project =
        Project::new(&[("gated", &at(GATED)), ("slow", &at(SLOW)), ("endless", &at(ENDLESS))]);
    let path = |name: &str| project.path().join(name);
    fs::write(path("interlock.yaml"), CONFIG).unwrap();
    fs::create_dir(path("archetypes")).unwrap();
    fs::write(path("archetypes/gate.yaml"), GATE).unwrap();
    fs::write(path("archetypes/slow.yaml"), SLOW_GATE).unwrap();
    fs::create_dir(path("evaluators")).unwrap();
    for (name, answer) in [
        ("fresh", "echo '{\"status\":\"FAIL\",\"reason\":\"old\"}'"),
        ("extra", "echo '{\"status\":\"PASS\"}'"),
        ("slow", "exec sleep 600"),
    ] {
        let log = path(&format!("{name}.asked"));
        let script = format!("#!/bin/sh\necho asked >> {}\n{answer}\n", log.display());
        let file = path(&format!("evaluators/{name}.sh"));
        fs::write(&file, script).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    project
}

fn asked(project: &Project, name: &str) -> usize {
    let log = fs::read_to_string(project.path().join(format!("{name}.asked")));
    log.unwrap_or_default().lines().count()
}

/// Each would be asked once, or after half a minute or five minutes, or be stuck after half an hour, were it not for the file.
#[test]
fn the_settings_for_all_pipelines_hold_for_those_that_say_nothing() {
    let project = project();
    let _daemon = Daemon::start(project.path());
    project.until("both traits are asked about", || {
        (asked(&project, "fresh") >= 1 && asked(&project, "extra") >= 1).then_some(())
    });
    let began = std::time::Instant::now();
    project.until("the slot is looked at every second", || {
        (asked(&project, "fresh") >= 4).then_some(())
    });
    project.until("an evaluator that hangs is ended and asked again", || {
        (asked(&project, "slow") >= 3).then_some(())
    });
    let alert = project.until("a stuck run is told", || {
        let text = fs::read_to_string(project.path().join("alerts.jsonl")).unwrap_or_default();
        let mut alerts = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        alerts.find(|alert| alert["alertType"] == "stuck_run")
    });
    assert_eq!(alert["pipelineId"], "endless");
    // Half of what the shortest of the defaults would take.
    assert!(began.elapsed().as_secs() < 15, "{:?}", began.elapsed());
}
