//! Servers that forget what they acknowledged, under a daemon that serves from them, or while it was away.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command},
};

use interlock_private_server::{PrivatePostgres, PrivateRedis};
use interlock_wait::{BOUND, ChildWithin as _, CommandWithin as _};

use crate::{
    log, open_log,
    project::{Project, TICKER},
};

fn serve(project: &Project) -> Child {
    Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["serve", "--log", "json"])
        .arg(project.path())
        .stdout(std::process::Stdio::null())
        .stderr(open_log(project.path()))
        .spawn()
        .unwrap()
}

fn completed(project: &Project) -> usize {
    let ran = project.run(&["slots", "--disposition", "completed", "--json"]);
    ran.stdout.matches("\"slot\"").count()
}

/// The file to which the server appends what it acknowledges.
fn log_of(server: &PrivateRedis) -> PathBuf {
    let folder = server.folder().join("appendonlydir");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.to_string_lossy().ends_with(".incr.aof")).max().unwrap()
}

/// The server comes back as it was seconds ago. The owner gives up every shard, reads everything again and goes on, and
/// people are told.
#[test]
fn redis_that_forgets_ends_every_term_and_is_an_incident() {
    let mut server = PrivateRedis::start();
    let project = Project::new(&[("ticker", TICKER)]);
    let text = format!(
        "provider: redis\nredis: {{addr: '{}'}}\nserver: {{addr: '127.0.0.1:0'}}\n",
        server.address()
    );
    fs::write(project.path().join("interlock.yaml"), text).unwrap();
    let mut daemon = serve(&project);
    project.until("it works", || (completed(&project) > 1).then_some(()));
    let earlier = fs::metadata(log_of(&server)).unwrap().len();
    let before = completed(&project);
    project.until("it goes on", || (completed(&project) > before + 1).then_some(()));
    server.kill();
    let file = fs::OpenOptions::new().write(true).open(log_of(&server)).unwrap();
    file.set_len(earlier).unwrap();
    assert!(server.start_again());
    let gave_up = "another instance owns the shard now";
    project.until("it steps down", || log(project.path()).contains(gave_up).then_some(()));
    let incidents = || project.run(&["incidents", "list", "--json"]).stdout;
    project.until("people are told", || incidents().contains("STORE_ROLLBACK").then_some(()));
    assert!(incidents().contains("_system"), "{}", incidents());
    let kept = completed(&project);
    project.until("slots go on", || (completed(&project) > kept + 2).then_some(()));
    assert!(daemon.try_wait().unwrap().is_none(), "nobody had to start it again");
    daemon.kill_and_wait();
    let check = project.run(&["events", "--json"]);
    assert_eq!(check.code, 0, "{check:?}");
}

fn settings(project: &Project, store: &str) {
    let text = format!("{store}server: {{addr: '127.0.0.1:0'}}\n");
    fs::write(project.path().join("interlock.yaml"), text).unwrap();
}

fn end(mut daemon: Child) {
    daemon.kill_and_wait();
}

/// People hear of it once, and slots go on.
fn is_told(project: &Project) {
    let incidents = || project.run(&["incidents", "list", "--json"]).stdout;
    project.until("people are told", || incidents().contains("STORE_ROLLBACK").then_some(()));
    let kept = completed(project);
    project.until("slots go on", || (completed(project) > kept + 2).then_some(()));
    assert_eq!(incidents().matches("\"kind\": \"STORE_ROLLBACK\"").count(), 1, "{}", incidents());
    assert_eq!(log(project.path()).matches("STORE_ROLLBACK:").count(), 1, "it is told once");
}

/// Works for a while, with a look at the server in between.
fn work(project: &Project, mut between: impl FnMut()) {
    project.until("it works", || (completed(project) > 1).then_some(()));
    between();
    let before = completed(project);
    project.until("it goes on", || (completed(project) > before + 3).then_some(()));
    let remembered = || fs::read_to_string(project.folder().join("witness")).ok();
    let known = remembered();
    project.until("it is remembered", || (remembered() != known).then_some(()));
}

#[test]
fn postgres_that_comes_back_older_ends_every_term_and_is_an_incident() {
    let mut server = PrivatePostgres::start();
    let project = Project::new(&[("ticker", TICKER)]);
    settings(&project, &format!("provider: postgres\npostgres: {{dsn: '{}'}}\n", server.dsn()));
    let mut daemon = serve(&project);
    work(&project, || server.set_aside());
    server.go_back();
    let gave_up = "another instance owns the shard now";
    project.until("it gives up its shards", || log(project.path()).contains(gave_up).then_some(()));
    is_told(&project);
    assert!(daemon.try_wait().unwrap().is_none(), "nobody had to start it again");
    end(daemon);
}

/// The power fails under both.
#[test]
fn postgres_that_comes_back_older_is_noticed_by_a_daemon_that_was_started_again() {
    let mut server = PrivatePostgres::start();
    let project = Project::new(&[("ticker", TICKER)]);
    settings(&project, &format!("provider: postgres\npostgres: {{dsn: '{}'}}\n", server.dsn()));
    let daemon = serve(&project);
    work(&project, || server.set_aside());
    end(daemon);
    server.go_back();
    let daemon = serve(&project);
    is_told(&project);
    end(daemon);
}

/// The power fails under both; then the server is emptied, which makes another store of it.
#[test]
fn redis_that_comes_back_older_is_noticed_by_a_daemon_that_was_started_again() {
    let mut server = PrivateRedis::start();
    let project = Project::new(&[("ticker", TICKER)]);
    settings(&project, &format!("provider: redis\nredis: {{addr: '{}'}}\n", server.address()));
    let daemon = serve(&project);
    let mut earlier = 0;
    work(&project, || earlier = fs::metadata(log_of(&server)).unwrap().len());
    end(daemon);
    server.kill();
    let file = fs::OpenOptions::new().write(true).open(log_of(&server)).unwrap();
    file.set_len(earlier).unwrap();
    assert!(server.start_again());
    let daemon = serve(&project);
    is_told(&project);
    end(daemon);
    let emptied = Command::new("redis-cli")
        .args(["-p", &server.port().to_string(), "FLUSHALL"])
        .status_within(BOUND)
        .unwrap();
    assert!(emptied.success());
    let daemon = serve(&project);
    let new = "is another store than the one that was served here last";
    project.until("it says so", || log(project.path()).contains(new).then_some(()));
    project.until("it works", || (completed(&project) > 1).then_some(()));
    let incidents = project.run(&["incidents", "list", "--all", "--json"]).stdout;
    assert!(!incidents.contains("STORE_ROLLBACK"), "{incidents}");
    end(daemon);
}
