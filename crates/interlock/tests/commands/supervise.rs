//! `supervise` and `heartbeat check`, as a user meets them. What supervision does with sick programs is tested where it is
//! made, in `interlock-liveness`.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use interlock_private_server::PrivateRedis;

use crate::{interlock, repository};

#[test]
fn exit_codes_are_those_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let supervise = |more: &[&str]| {
        let mut arguments = vec!["-C", directory, "supervise", "--restart", "never"];
        arguments.extend(more);
        interlock(&arguments)
    };
    assert_eq!(supervise(&["--", "/bin/sh", "-c", "exit 0"]).code, 0);
    let seven = supervise(&["--", "/bin/sh", "-c", "echo out; exit 7"]);
    assert_eq!((seven.code, seven.stdout.as_str()), (7, "out\n"), "{}", seven.stderr);
    assert!(seven.stderr.contains("it exited with 7"), "{}", seven.stderr);
    assert_eq!(supervise(&["--", "/bin/sh", "-c", "kill -KILL $$"]).code, 137);
    assert_eq!(supervise(&["--", "/no/such/program"]).code, 127);
    assert_eq!(supervise(&["--", "/etc/passwd"]).code, 126);
    let hung = ["--max-age", "200ms", "--first-beat", "200ms", "--", "/bin/sleep", "600"];
    let hung = supervise(&hung);
    assert_eq!(hung.code, 113, "{}", hung.stderr);
    assert!(hung.stderr.contains("what it was doing is in "), "{}", hung.stderr);
    assert_eq!(interlock(&["supervise", "--", "true"]).code, 2, "what is to be noticed?");
}

#[test]
fn a_program_that_dies_too_often_is_given_up_with_125() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let arguments = [
        "-C",
        directory,
        "supervise",
        "--max-age",
        "10s",
        "--backoff",
        "10ms",
        "--deaths",
        "3",
        "--",
        "/bin/sh",
        "-c",
        "exit 1",
    ];
    let ran = interlock(&arguments);
    assert_eq!(ran.code, 125, "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("it exited with 1").count(), 3, "{}", ran.stderr);
    let again = interlock(&arguments);
    assert_eq!(again.code, 125, "{}", again.stderr);
    assert!(!again.stderr.contains("started, process"), "{}", again.stderr);
}

#[test]
fn the_unit_has_systemd_watch_and_never_give_up() {
    let unit = fs::read_to_string(repository().join("deploy/systemd/interlock.service")).unwrap();
    let (head, service) = unit.split_once("[Service]").unwrap();
    assert!(head.lines().any(|line| line == "StartLimitIntervalSec=0"), "{head}");
    for line in ["Type=notify", "NotifyAccess=main", "WatchdogSec=30", "Restart=always"] {
        assert!(service.lines().any(|it| it == line), "{line}");
    }
}

#[test]
fn a_signal_ends_the_program_first_and_its_code_is_ours() {
    let folder = tempfile::tempdir().unwrap();
    let script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done";
    let mut child = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .arg("-C")
        .arg(folder.path())
        .args(["supervise", "--restart", "always", "--", "/bin/sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut says = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(says.next().unwrap().unwrap(), "ready");
    let pid = child.id().to_string();
    // A second one is told who has it.
    let directory = folder.path().to_str().unwrap();
    let second = interlock(&[
        "-C",
        directory,
        "supervise",
        "--max-age",
        "9s",
        "--",
        "/bin/sh",
        "-c",
        "exit 0",
    ]);
    assert_eq!(second.code, 3, "{}", second.stderr);
    let named = format!("`sh` runs already, under process {pid}, since 20");
    assert!(second.stderr.contains(&named), "{}", second.stderr);
    assert!(second.stderr.contains(&format!("kill {pid}")), "{}", second.stderr);
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn a_heartbeat_file_is_judged_by_its_changes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("beat");
    let path = file.to_str().unwrap();
    let check = |max_age: &str| interlock(&["heartbeat", "check", path, "--max-age", max_age]);
    assert_eq!(check("10s").code, 1, "there is none yet");
    // An hour ago by the wall clock, which says nothing.
    fs::write(&file, "1700000000\n").unwrap();
    assert_eq!(check("10s").code, 0);
    let stale = check("1ms");
    assert_eq!(stale.code, 1, "{}", stale.stdout);
    assert!(stale.stdout.starts_with("stale: the last sign is "), "{}", stale.stdout);
    fs::write(&file, "1600000000\n").unwrap();
    assert_eq!(check("1ms").code, 0, "it has just changed, and be it backwards");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(check("10s").code, 3, "it cannot be read");
}

/// A key of the server, by the real client.
fn redis(server: &PrivateRedis, command: &[&str]) -> String {
    let port = server.port().to_string();
    let ran = Command::new("redis-cli").args(["-p", &port]).args(command).output().unwrap();
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_key_that_some_program_writes_is_judged_by_its_changes() {
    let server = PrivateRedis::start();
    let key = format!("redis://{}/app:beat", server.address());
    let check = |max_age: &str| interlock(&["heartbeat", "check", &key, "--max-age", max_age]);
    let none = check("10s");
    assert_eq!(none.code, 1, "there is none yet: {}", none.stderr);
    // As the seed writes it: a time, which says nothing.
    redis(&server, &["SET", "app:beat", "1700000000"]);
    assert_eq!(check("10s").code, 0);
    assert_eq!(check("10s").code, 0, "and again, by what was kept");
    // By the server's own clock it was seen a minute ago.
    let ten_years_less_a_minute = (3_650_u64 * 24 * 60 - 1) * 60_000;
    redis(&server, &["PEXPIRE", "app:beat:seen", &ten_years_less_a_minute.to_string()]);
    let stale = check("50s");
    assert_eq!(stale.code, 1, "{}", stale.stdout);
    assert!(stale.stdout.starts_with("stale: the last sign is 60."), "{}", stale.stdout);
    assert_eq!(check("70s").code, 0);
    // Nor does it come back to life when the day is over, and it can be stale after two.
    let three_days_ago = (3_647_u64 * 24 * 3_600_000).to_string();
    redis(&server, &["PEXPIRE", "app:beat:seen", &three_days_ago]);
    assert_eq!((check("48h").code, check("96h").code), (1, 0));
    redis(&server, &["SET", "app:beat", "1600000000", "EX", "30"]);
    assert_eq!(check("50s").code, 0, "it has just changed, and be it backwards");
    redis(&server, &["DEL", "app:beat"]);
    assert_eq!(check("10s").code, 1, "it is gone");
    assert_eq!(redis(&server, &["EXISTS", "app:beat:seen"]), "0", "and so is what was seen");
    redis(&server, &["RPUSH", "app:beat", "something else"]);
    assert_eq!(check("10s").code, 3, "that is no value");
    drop(server);
    let away = check("10s");
    assert_eq!((away.code, away.stderr.contains("cannot be asked")), (3, true), "{}", away.stderr);
    assert_eq!(interlock(&["heartbeat", "check", "redis://h", "--max-age", "1s"]).code, 2);
    let supervise = ["supervise", "--heartbeat", &key, "--max-age", "1s", "--", "true"];
    assert_eq!(interlock(&supervise).code, 2, "nobody listens to a key");
}
