//! A Redis that forgets what it acknowledged, under a daemon that serves from it.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command},
};

use interlock_private_server::PrivateRedis;

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
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let check = project.run(&["events", "--json"]);
    assert_eq!(check.code, 0, "{check:?}");
}
