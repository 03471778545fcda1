//! A project whose `interlock.yaml` has a problem: its ledger is where it was, or nobody touches one.

use std::{fs, process::Command};

use interlock_private_server::{PrivateCluster, PrivatePostgres, PrivateRedis, certify};
use interlock_wait::{BOUND, CommandWithin as _};

use crate::archive::numbers;
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
    command.current_dir(project.path()).output_within(BOUND).unwrap().into()
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

/// What `status` says of a store that cannot be opened: everything that is listed, and never a password.
fn says(config: &str, expected: &[&str]) {
    let ran = run(&project(config), &["status"]);
    let all = expected.iter().all(|words| ran.stderr.contains(words));
    assert!(
        ran.code != 0 && all && !ran.stderr.contains("secret"),
        "{config}: {expected:?}: {ran:?}"
    );
}

#[test]
fn postgres_that_cannot_be_used_is_named_with_what_to_do() {
    let server = PrivatePostgres::start();
    let port = server.port();
    let postgres = |dsn: &str| format!("provider: postgres\npostgres: {{dsn: '{dsn}'}}\n");
    says(
        &postgres("postgres://me:secret@127.0.0.1:1/orders"),
        &["cannot be reached", "me@127.0.0.1:1/orders"],
    );
    says(&postgres(&format!("127.0.0.1:{port}")), &["write `postgres://"]);
    says(
        &postgres(&format!("postgres://interlock:secret@127.0.0.1:{port}/nowhere")),
        &["interlock@127.0.0.1", "/nowhere", "CREATE DATABASE"],
    );
    says(&postgres(&server.dsn()), &["nothing was recorded yet in postgres interlock@127.0.0.1"]);
    numbers(&server, &["CREATE ROLE guest LOGIN"]);
    let guest = postgres(&format!("postgres://guest@127.0.0.1:{port}/postgres"));
    let ran = run(&project(&guest), &["serve"]);
    assert!(ran.code != 0 && ran.stderr.contains("GRANT CREATE ON DATABASE"), "{ran:?}");
    let archive = |dsn: &str| format!("archiver: {{enabled: true, dsn: '{dsn}'}}\n");
    let project = project(&archive("postgres://me:secret@127.0.0.1:1/history"));
    assert_eq!(run(&project, &["exec", "switch", "--", "true"]).code, 0);
    assert_eq!(run(&project, &["pause", "switch", "--reason", "a test of ours"]).code, 0);
    let ran = run(&project, &["archive", "--once"]);
    assert!(ran.stderr.contains("me@127.0.0.1:1/history"), "{ran:?}");
    let nowhere = archive(&format!("postgres://interlock:secret@127.0.0.1:{port}/nowhere"));
    fs::write(project.path().join("interlock.yaml"), nowhere).unwrap();
    let ran = run(&project, &["archive", "--once"]);
    let said = ["/nowhere", "CREATE DATABASE", "`archiver.dsn`"];
    assert!(said.iter().all(|words| ran.stderr.contains(words)), "{ran:?}");
    assert!(!ran.stderr.contains("secret"), "{ran:?}");
}

#[test]
fn redis_that_cannot_be_used_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let (server, tls) = PrivateRedis::start_tls(folder.path(), "no");
    let redis =
        |addr: &str, rest: &str| format!("provider: redis\nredis: {{addr: '{addr}'{rest}}}\n");
    let plain = server.address();
    says(&redis(&plain, ", db: 99"), &[&plain, "`redis.db` is 99"]);
    says(&redis(&plain, ", tls: true"), &["`redis.tls` is true"]);
    says(&redis(&format!("127.0.0.1:{tls}"), ""), &["write `redis.tls: true`"]);
    let cluster = PrivateCluster::start();
    says(&redis(&cluster.addresses()[0], ", db: 2"), &["a cluster has only 0"]);
}

/// `validate` refuses what `serve` would.
#[test]
fn names_of_stores_are_checked_before_anybody_serves() {
    for config in [
        "provider: redis\nredis: {keyPrefix: 'a{b}'}\n",
        "provider: redis\nredis: {keyPrefix: ''}\n",
        "provider: redis\nredis: {keyPrefix: 'a b'}\n",
        "provider: postgres\npostgres: {dsn: 'postgres://u@h/d', schema: Orders}\n",
        "provider: postgres\npostgres: {dsn: 'postgres://u@h/d', schema: pg_orders}\n",
    ] {
        let project = project(config);
        for command in ["validate", "serve"] {
            let ran = run(&project, &[command]);
            let said = ran.stdout + &ran.stderr;
            assert!(ran.code != 0 && said.contains("cannot be `"), "{command} {config}: {said}");
        }
    }
}
