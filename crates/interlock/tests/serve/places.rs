//! A project whose `interlock.yaml` has a problem: its ledger is where it was, or nobody touches one.

use std::{fs, process::Command};

use crate::project::{Project, Ran};

const SWITCH: &str = "
name: switch
schedule: {every: 1h, from: last}
trigger: {type: external}
";

fn project(config: &str) -> Project {
    let project = Project::new(&[("switch", SWITCH)]);
    fs::write(project.path().join("interlock.yaml"), config).unwrap();
    project
}

/// As a crontab runs it: without the variables that `serve` has.
fn run(project: &Project, arguments: &[&str]) -> Ran {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "30", env!("CARGO_BIN_EXE_interlock")]).args(arguments);
    command.env("INTERLOCK_SPOOL", project.path().join("spool"));
    for name in ["HOOK_URL", "LEDGER_PASSWORD", "INTERLOCK_SERVER"] {
        command.env_remove(name);
    }
    command.current_dir(project.path()).output().unwrap().into()
}

fn spooled(project: &Project) -> Vec<String> {
    let files = fs::read_dir(project.path().join("spool")).into_iter().flatten().flatten();
    files.map(|file| fs::read_to_string(file.path()).unwrap()).collect()
}

#[test]
fn a_variable_that_only_serve_has_moves_no_ledger() {
    let project =
        project("embedded: {path: state}\nalerts: [{type: webhook, url: '${HOOK_URL}'}]\n");
    let ran = run(&project, &["exec", "switch", "--", "echo", "ran"]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "ran\n", ""));
    assert!(project.path().join("state/inbox.db").exists(), "the report is in the ledger's inbox");
    let ran = run(&project, &["token", "create", "probe", "--scope", "viewer"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let listed = run(&project, &["token", "list"]).stdout;
    assert!(
        listed.contains("probe") && project.path().join("state/ledger.db").exists(),
        "{listed}"
    );
    assert!(!project.folder().exists(), "nobody made another ledger");
}

/// `serve` reads a file of either name, so everybody does.
#[test]
fn a_file_that_is_called_yml_names_the_ledger_too() {
    let project = Project::new(&[("switch", SWITCH)]);
    fs::write(project.path().join("interlock.yml"), "embedded: {path: state}\n").unwrap();
    let ran = run(&project, &["exec", "switch", "--", "true"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(project.path().join("state/inbox.db").exists() && !project.folder().exists());
}

#[test]
fn where_the_ledger_is_cannot_be_told_commands_end_and_exec_keeps_its_reports() {
    for config in [
        "provider: redis\nredis: {password: '${LEDGER_PASSWORD}'}\n",
        // A section that nobody knows may be the store's.
        "embeded: {path: state}\n",
        "embedded: {path: [state}\n",
        "embedded: {path: state}\nredis: {addr: 'localhost:1'}\n",
    ] {
        let project = project(config);
        let ran = run(&project, &["exec", "switch", "--", "echo", "ran"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "ran\n"), "{config}");
        let said = "interlock.yaml does not say where the ledger is: ";
        assert!(ran.stderr.contains(said) && ran.stderr.contains("is kept"), "{}", ran.stderr);
        assert_eq!(spooled(&project).len(), 2, "a start and an end: {config}");
        for command in [
            &["incidents"][..],
            &["token", "list"],
            &["pause", "switch", "--reason", "x"],
            &["serve"],
        ] {
            let ran = run(&project, command);
            assert_eq!(ran.code, 3, "{command:?} {config}: {}", ran.stderr);
            assert!(ran.stderr.contains(said), "{command:?} {config}: {}", ran.stderr);
        }
        assert!(!project.folder().exists(), "nobody made a ledger: {config}");
    }
}

#[test]
fn what_exec_kept_for_a_project_without_a_ledger_arrives_when_the_file_is_mended() {
    let project = project("provider: redis\nredis: {password: '${LEDGER_PASSWORD}'}\n");
    let ran = run(&project, &["exec", "switch", "--", "echo", "kept"]);
    assert_eq!((ran.code, spooled(&project).len()), (0, 2), "{}", ran.stderr);
    fs::write(project.path().join("interlock.yaml"), "server: {addr: '127.0.0.1:0'}\n").unwrap();
    let daemon = crate::Daemon::start(project.path());
    project.until("serve takes it", || {
        let runs = run(&project, &["runs", "--json"]).stdout;
        (runs.contains("kept") && spooled(&project).is_empty()).then_some(())
    });
    drop(daemon);
}
