//! A loop of `serve` that hangs: it is named and written down, the process leaves, and the next one says so.

use std::{fs, os::unix::process::ExitStatusExt as _, process::Command};

use interlock_private_server::PrivateRedis;
use interlock_wait::{BOUND, ChildWithin as _, CommandWithin as _};

use crate::{
    Daemon, log,
    project::{Project, tail},
};

const QUIET: &str = "
name: quiet
schedule: {cron: '0 0 1 1 *'}
trigger: {type: command, command: 'true'}
";

#[test]
fn a_loop_that_hangs_ends_the_process_and_the_next_start_makes_it_an_incident() {
    let project = Project::new(&[("quiet", QUIET)]);
    let config = project.path().join("interlock.yaml");
    fs::write(&config, "server: {addr: '127.0.0.1:0'}\n").unwrap();
    let mut daemon = Daemon::start(project.path());
    project.until("it serves", || log(project.path()).contains("SERVING").then_some(()));
    // A file that can be opened, and never read: what a file system does whose server is gone.
    fs::remove_file(&config).unwrap();
    assert!(Command::new("mkfifo").arg(&config).status_within(BOUND).unwrap().success());
    let ended = daemon.0.wait_within("the end of the process whose loop hangs", BOUND);
    let said = log(project.path());
    assert_eq!(ended.signal(), Some(6), "{}", tail(&said));
    assert!(said.contains("`reload` has made no progress"), "{}", tail(&said));
    // It did not end before that was on the disk: whoever starts it again does so at once.
    let reports = interlock_liveness::forensics::found(&project.folder().join("liveness"));
    let last = reports.iter().find(|report| report.why.ends_with("(hard)")).unwrap();
    let text = fs::read_to_string(&last.path).unwrap();
    // Where the kernel lets a reader wait for a writer.
    assert!(text.contains("reload: hard") && text.contains("wait_for_partner"), "{text}");
    // How much memory there is, and in what: the thread that hangs does not hold the allocator, and before the shards are given
    // back their engines have something.
    let soft = reports.iter().find(|report| report.why.ends_with("(soft)")).unwrap();
    let text = fs::read_to_string(&soft.path).unwrap();
    let heap = text.split("== heap\n").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap();
    let lines: Vec<&str> = heap.lines().collect();
    assert!(lines[0].starts_with("allocator: ") && lines[0].contains("bytes in use"), "{heap}");
    assert!(lines.iter().any(|line| line.starts_with("agenda: 1 entries, ")), "{heap}");
    for name in ["pipelines", "open slots", "queue of run updates", "cache of declarations"] {
        assert!(lines.iter().any(|line| line.starts_with(&format!("{name}: "))), "{name}: {heap}");
    }
    assert!(said.contains("allocator: "), "{}", tail(&said));
    fs::remove_file(&config).unwrap();
    fs::write(&config, "server: {addr: '127.0.0.1:0'}\n").unwrap();
    let _next = Daemon::start(project.path());
    let incidents = project.until("it is an incident", || {
        let listed = project.run(&["incidents", "list", "--json"]).stdout;
        listed.contains("process_hung").then_some(listed)
    });
    assert!(incidents.contains("`reload`"), "{incidents}");
    project.until("the log says where it hung", || {
        let said = log(project.path());
        let is_there = |rung: &str| {
            said.contains(&format!("({rung}); what it was doing follows"))
                && said.contains("waits in wait_for_partner")
        };
        (is_there("soft") && is_there("hard")).then_some(())
    });
}

#[test]
fn a_supervised_program_that_hangs_while_we_serve_is_an_incident_at_once() {
    let project = Project::new(&[("quiet", QUIET)]);
    fs::write(project.path().join("interlock.yaml"), "server: {addr: '127.0.0.1:0'}\n").unwrap();
    let _daemon = Daemon::start(project.path());
    project.until("it serves", || log(project.path()).contains("SERVING").then_some(()));
    let hung = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .arg("-C")
        .arg(project.path())
        .args(["supervise", "--restart", "never", "--max-age", "200ms", "--first-beat", "200ms"])
        .args(["--", "/bin/sleep", "600"])
        .output_within(BOUND)
        .unwrap();
    let said = String::from_utf8_lossy(&hung.stderr);
    assert_eq!(hung.status.code(), Some(113), "{said}");
    assert!(said.contains("thread ") && said.contains("`sleep` S"), "{said}");
    project.until("it is an incident", || {
        let listed = project.run(&["incidents", "list", "--json"]).stdout;
        (listed.contains("process_hung") && listed.contains("sleep")).then_some(())
    });
}

#[test]
fn a_supervised_program_that_dies_and_one_that_is_given_up_are_incidents() {
    let project = Project::new(&[("quiet", QUIET)]);
    fs::write(project.path().join("interlock.yaml"), "server: {addr: '127.0.0.1:0'}\n").unwrap();
    let _daemon = Daemon::start(project.path());
    project.until("it serves", || log(project.path()).contains("SERVING").then_some(()));
    let died = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .arg("-C")
        .arg(project.path())
        .args(["supervise", "--name", "crasher", "--restart", "on-failure", "--backoff", "10ms"])
        .args(["--deaths", "3", "--", "/bin/false"])
        .output_within(BOUND)
        .unwrap();
    let said = String::from_utf8_lossy(&died.stderr);
    assert_eq!(died.status.code(), Some(125), "{said}");
    let incidents = project.until("they are incidents", || {
        let listed = project.run(&["incidents", "list", "--json"]).stdout;
        let are_there = listed.contains("process_died") && listed.contains("process_given_up");
        are_there.then_some(listed)
    });
    assert!(incidents.contains("it exited with 1, death 3 of late, and stays down"), "{incidents}");
    assert!(!incidents.contains("process_hung"), "{incidents}");
}

#[test]
fn a_key_on_redis_is_fresh_while_the_loops_come_round_and_stale_when_the_process_is_gone() {
    let server = PrivateRedis::start();
    let project = Project::new(&[("quiet", QUIET)]);
    fs::write(project.path().join("interlock.yaml"), "server: {addr: '127.0.0.1:0'}\n").unwrap();
    let key = format!("redis://{}/serve", server.address());
    let daemon = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["serve", "--log", "json"])
        .arg(project.path())
        .env("INTERLOCK_HEARTBEAT_REDIS", &key)
        .env("INTERLOCK_SPOOL", project.path().join("spool"))
        .stderr(crate::open_log(project.path()))
        .stdout(std::process::Stdio::null())
        .spawn();
    let daemon = Daemon(daemon.unwrap());
    let check = || project.run(&["heartbeat", "check", &key, "--max-age", "5s"]);
    project.until("it beats", || (check().code == 0).then_some(()));
    project.until("it beats again", || {
        let port = server.port().to_string();
        let value = Command::new("redis-cli")
            .args(["-p", &port, "GET", "serve"])
            .output_within(BOUND)
            .unwrap();
        let value = String::from_utf8(value.stdout).unwrap();
        let sequence: u64 = value.split(' ').nth(2).unwrap().parse().unwrap();
        (sequence > 2).then_some(())
    });
    assert_eq!(check().code, 0);
    drop(daemon);
    let stale = project.until("it is stale", || {
        let checked = check();
        (checked.code == 1).then_some(checked.stdout)
    });
    assert!(stale.starts_with("stale: the last sign is 5."), "{stale}");
}

#[test]
fn a_way_for_heartbeats_that_cannot_be_taken_is_said_and_everything_is_guarded_all_the_same() {
    let project = Project::new(&[("quiet", QUIET)]);
    fs::write(project.path().join("interlock.yaml"), "server: {addr: '127.0.0.1:0'}\n").unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["serve", "--log", "json"])
        .arg(project.path())
        .env("INTERLOCK_HEARTBEAT_REDIS", "rediss://u:s3cret@h/beat")
        .env("INTERLOCK_HEARTBEAT_MEMORY", "no number")
        .env("INTERLOCK_SPOOL", project.path().join("spool"))
        .stdout(std::process::Stdio::null())
        .stderr(fs::File::create(project.path().join("serve.log")).unwrap())
        .spawn()
        .unwrap();
    let _daemon = Daemon(child);
    let said = || fs::read_to_string(project.path().join("serve.log")).unwrap();
    project.until("it serves", || said().contains("SERVING").then_some(()));
    let said = said();
    assert!(said.contains("INTERLOCK_HEARTBEAT_REDIS: a heartbeat speaks no TLS"), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
    assert!(!said.contains("the hang guard failed to start"), "{said}");
}
