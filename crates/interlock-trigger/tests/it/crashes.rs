//! What survives: of the daemon, of the runner, of both, of the host, of bad manners.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    process::{Child, Command},
};

use interlock_trigger::{LookUp, Outcome, Triggers};
use interlock_wait::{BOUND, ChildWithin as _, CommandWithin as _};
use jiff::SignedDuration;

use crate::{
    parts::daemon_command,
    world::{World, is_alive, kill, request, sentence, shell},
};

/// A job that says where it is, waits for `go`, and says that it was not disturbed.
const PATIENT: &str =
    "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; echo whole >> done; exit 5";

const LOST: &str = "lost: the runner was restarted while it ran, so its exit code is unknown";

/// A daemon process that has started one patient job.
async fn daemon_with_job(world: &World) -> (Child, i32) {
    std::fs::write(world.path("jobs"), format!("run-1 {PATIENT}\n")).unwrap();
    let command = daemon_command();
    let (program, arguments) = command.split_first().unwrap();
    let daemon = Command::new(program).args(arguments).arg(&world.dir).spawn().unwrap();
    let pid = world.line_in("pid").await.parse().unwrap();
    world.until("the report", || world.read("reports").contains("Started").then_some(())).await;
    (daemon, pid)
}

fn kill_daemon(mut daemon: Child) {
    daemon.kill_and_wait();
}

fn let_go(world: &World) {
    std::fs::write(world.path("go"), "").unwrap();
}

#[tokio::test]
async fn a_killed_daemon_neither_kills_nor_forgets_the_job() {
    let mut world = World::new();
    let (daemon, pid) = daemon_with_job(&world).await;
    kill_daemon(daemon);
    assert!(is_alive(pid));
    world.restart();
    let found = world.triggers.look_up(&request("run-1", shell(PATIENT))).await.unwrap();
    assert!(matches!(found, LookUp::Running { .. }), "{found:?}");
    let_go(&world);
    let end = world.end_of("run-1").await;
    assert_eq!(sentence(&end), "TRANSIENT: the command ended with exit code 5");
    assert_eq!(world.read("done"), "whole\n");
}

#[tokio::test]
async fn an_end_while_no_daemon_lives_is_told_to_the_next_until_it_is_acknowledged() {
    let mut world = World::new();
    let (daemon, pid) = daemon_with_job(&world).await;
    kill_daemon(daemon);
    let_go(&world);
    world.until("the job's end", || (!is_alive(pid)).then_some(())).await;
    for _ in 0..2 {
        world.restart();
        let end = world.end_of("run-1").await;
        assert_eq!(sentence(&end), "TRANSIENT: the command ended with exit code 5");
    }
    world.triggers.acknowledge("run-1");
    let acknowledged = || world.read("runner/journal").contains("acknowledged").then_some(());
    world.until("the acknowledgement", acknowledged).await;
    world.restart();
    // Asked for, it is still known; by itself nothing is told any more.
    let found = world.triggers.look_up(&request("run-1", shell(PATIENT))).await.unwrap();
    assert!(matches!(found, LookUp::Finished(Outcome::Failure { .. })), "{found:?}");
    assert!(world.reports.try_recv().is_err());
}

#[tokio::test]
async fn a_killed_runner_leaves_the_job_alone_and_its_end_unknown() {
    let mut world = World::new();
    let asked = request("run-1", shell(PATIENT));
    world.triggers.start(asked.clone()).await.unwrap();
    let pid: i32 = world.line_in("pid").await.parse().unwrap();
    world.started("run-1").await;
    let old = world.kill_runner().await;
    assert!(is_alive(pid));
    // The daemon brings a new one by itself, which finds the job by pid and start time.
    let new = world.until("a new runner", || world.runner_pid()).await;
    assert_ne!(old, new);
    let found = world.triggers.look_up(&asked).await.unwrap();
    assert!(matches!(found, LookUp::Running { .. }), "{found:?}");
    // Starting it again starts nothing (S2).
    world.triggers.start(asked.clone()).await.unwrap();
    let_go(&world);
    assert_eq!(sentence(&world.end_of("run-1").await), LOST);
    let found = world.triggers.look_up(&asked).await.unwrap();
    assert!(matches!(found, LookUp::CannotTell { .. }), "{found:?}");
    assert_eq!(world.read("done"), "whole\n");
}

#[tokio::test]
async fn both_killed_the_job_goes_on_and_is_found() {
    let mut world = World::new();
    let (daemon, pid) = daemon_with_job(&world).await;
    kill_daemon(daemon);
    world.kill_runner().await;
    assert!(is_alive(pid));
    world.restart();
    let found = world.triggers.look_up(&request("run-1", shell(PATIENT))).await.unwrap();
    assert!(matches!(found, LookUp::Running { .. }), "{found:?}");
    let_go(&world);
    assert_eq!(sentence(&world.end_of("run-1").await), LOST);
    assert_eq!(world.read("done"), "whole\n");
}

#[tokio::test]
async fn a_job_that_ends_while_nobody_lives_is_lost_and_said_so() {
    let mut world = World::new();
    let (daemon, pid) = daemon_with_job(&world).await;
    kill_daemon(daemon);
    world.kill_runner().await;
    let_go(&world);
    world.until("the job's end", || (!is_alive(pid)).then_some(())).await;
    world.restart();
    assert_eq!(sentence(&world.end_of("run-1").await), LOST);
}

#[tokio::test]
async fn an_adopted_job_can_be_cancelled_and_still_has_its_timeout() {
    let mut world = World::new();
    let forever = "echo $$ > pid; exec sleep 300";
    let asked = request("run-1", shell(forever));
    world.triggers.start(asked.clone()).await.unwrap();
    let pid: i32 = world.line_in("pid").await.parse().unwrap();
    world.kill_runner().await;
    world.triggers.cancel(&asked).await.unwrap();
    assert_eq!(sentence(&world.end_of("run-1").await), "cancelled: it was cancelled");
    assert!(!is_alive(pid));

    let mut limited = request("run-2", shell("echo $$ > pid2; exec sleep 300"));
    limited.timeout = Some(SignedDuration::from_millis(1500));
    world.triggers.start(limited).await.unwrap();
    world.line_in("pid2").await;
    world.kill_runner().await;
    let end = world.end_of("run-2").await;
    assert_eq!(sentence(&end), "TIMEOUT: it was ended after its timeout");
}

#[tokio::test]
async fn an_outcome_that_was_decided_survives_the_runner() {
    let mut world = World::new();
    let mut asked = request("run-1", shell("exit 6"));
    let handler = "echo $$ > handler; exec sleep 300";
    asked.context.handlers.exit =
        Some(interlock_core::pipeline::CommandLine::Shell(handler.to_owned()));
    world.triggers.start(asked).await.unwrap();
    let pid: i32 = world.line_in("handler").await.parse().unwrap();
    world.kill_runner().await;
    kill(pid);
    let end = world.end_of("run-1").await;
    assert_eq!(sentence(&end), "TRANSIENT: the command ended with exit code 6");
}

#[tokio::test]
async fn after_a_reboot_nothing_is_guessed() {
    let mut world = World::new();
    let (daemon, pid) = daemon_with_job(&world).await;
    kill_daemon(daemon);
    world.kill_runner().await;
    // The same journal under another boot. The pid is alive and its start time fits, and yet it
    // cannot be the same process.
    let journal = world.read("runner/journal");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let moved = journal.replace(boot.trim(), "another-boot");
    assert_ne!(moved, journal);
    std::fs::write(world.path("runner/journal"), moved).unwrap();
    world.restart();
    let end = world.end_of("run-1").await;
    assert_eq!(sentence(&end), "lost: the host was restarted while it ran");
    // A run from before the boot that is not in the journal may have been in what was lost.
    let mut before = request("run-0", shell("true"));
    before.triggered_at = jiff::Timestamp::UNIX_EPOCH;
    let found = world.triggers.look_up(&before).await.unwrap();
    assert!(matches!(found, LookUp::CannotTell { .. }), "{found:?}");
    let found = world.triggers.look_up(&request("run-9", shell("true"))).await.unwrap();
    assert_eq!(found, LookUp::NeverStarted);
    kill(pid);
}

#[tokio::test]
async fn a_start_that_never_reached_the_runner_never_started() {
    let mut world = World::new();
    let asked = request("run-1", shell("true"));
    assert_eq!(world.triggers.look_up(&asked).await.unwrap(), LookUp::NeverStarted);
    let mut before = asked.clone();
    before.triggered_at = asked.triggered_at - SignedDuration::from_hours(1);
    let found = world.triggers.look_up(&before).await.unwrap();
    let LookUp::CannotTell { reason } = found else { panic!("{found:?}") };
    assert!(reason.starts_with("this host's record of jobs begins at "), "{reason}");
    assert_eq!(sentence(&world.run(asked).await), "success");
}

#[tokio::test]
async fn an_intent_without_a_process_is_lost() {
    let mut world = World::new();
    assert_eq!(sentence(&world.run(request("run-0", shell("true"))).await), "success");
    let pid = world.runner_pid().unwrap();
    kill(pid);
    let line = "{\"intent\":{\"run_id\":\"run-1\",\"pipeline\":\"orders\",\
                \"at\":\"2026-02-25T09:00:00Z\",\"deadline\":null,\"grace_ms\":1,\"log_bytes_max\":1}}\n";
    let mut journal =
        std::fs::OpenOptions::new().append(true).open(world.path("runner/journal")).unwrap();
    journal.write_all(line.as_bytes()).unwrap();
    world.restart();
    let end = world.end_of("run-1").await;
    assert_eq!(sentence(&end), "lost: the runner ended while it was starting the job");
}

#[tokio::test]
async fn malformed_input_does_not_disturb_the_runner() {
    let mut world = World::new();
    assert_eq!(sentence(&world.run(request("run-1", shell("true"))).await), "success");
    let pid = world.runner_pid().unwrap();
    let mut stream = UnixStream::connect(world.path("runner/runner.sock")).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut answer = String::new();
    answers.read_line(&mut answer).unwrap();
    for garbage in [
        &b"garbage\n"[..],
        b"{\"id\":1}\n",
        b"\xff\xfe\0\n",
        b"{\"id\":1,\"ask\":{\"start\":{\"run_id\":\"x\"}}}\n",
        b"[[[[[[\n",
        b"\n",
    ] {
        stream.write_all(garbage).unwrap();
        answer.clear();
        answers.read_line(&mut answer).unwrap();
        assert!(answer.starts_with("{\"malformed\""), "{answer}");
    }
    let escaping = "{\"id\":7,\"ask\":{\"start\":{\"run_id\":\"../x\",\"pipeline\":\"..\",\"steps\":[],\
                    \"grace_ms\":1,\"log_bytes_max\":1}}}\n";
    stream.write_all(escaping.as_bytes()).unwrap();
    answer.clear();
    answers.read_line(&mut answer).unwrap();
    assert!(answer.contains("refused"), "{answer}");
    // A line without an end is cut off once it is too long.
    let mut endless = UnixStream::connect(world.path("runner/runner.sock")).unwrap();
    endless.set_write_timeout(Some(BOUND)).unwrap();
    while endless.write_all(&vec![b'x'; 64 * 1024]).is_ok() {}
    assert_eq!(sentence(&world.run(request("run-2", shell("true"))).await), "success");
    assert_eq!(world.runner_pid(), Some(pid));
}

#[tokio::test]
async fn a_directory_has_one_runner() {
    let mut world = World::new();
    assert_eq!(sentence(&world.run(request("run-1", shell("true"))).await), "success");
    let pid = world.runner_pid().unwrap();
    let command = crate::parts::runner_command();
    let (program, arguments) = command.split_first().unwrap();
    let dir = world.path("runner").canonicalize().unwrap();
    let output = Command::new(program).args(arguments).arg(dir).output_within(BOUND).unwrap();
    assert!(output.status.success());
    assert_eq!(world.runner_pid(), Some(pid));
}

#[tokio::test]
async fn steps_go_on_without_a_daemon() {
    let mut world = World::new();
    let step = |name: &str, depends: &[&str], text: &str| interlock_core::pipeline::Step {
        name: name.to_owned(),
        command: interlock_core::pipeline::CommandLine::Shell(text.to_owned()),
        depends: depends.iter().map(|&name| name.to_owned()).collect(),
        retries_max: 0,
        timeout: None,
        continue_on_failure: false,
        env: [].into(),
        workdir: None,
    };
    let steps = interlock_core::pipeline::TriggerKind::Steps(vec![
        step("first", &[], "while [ ! -e go ]; do sleep 0.02; done; echo first >> done"),
        step("second", &["first"], "echo second >> done"),
    ]);
    let mut daemon = World::join(&world.dir);
    daemon.start("run-1", steps).await;
    daemon.started("run-1").await;
    drop(daemon);
    let_go(&world);
    world.until("the steps", || (world.read("done") == "first\nsecond\n").then_some(())).await;
    world.restart();
    let end = world.end_of("run-1").await;
    assert_eq!(sentence(&end), "success");
}
