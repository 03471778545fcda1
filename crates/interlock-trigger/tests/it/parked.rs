//! A shell that comes up before its start is asked for: nothing happens sooner for it, and nothing else.

use std::{fs, path::Path};

use interlock_trigger::{LookUp, Triggers};

use crate::world::{World, is_alive, kill, request, sentence, shell};

/// Says what is about to be started, and waits until a shell is up for it.
async fn prepared(world: &World, run_id: &str, text: &str) -> i32 {
    // Somebody has to be there first.
    world.triggers.running().await.unwrap();
    let runner = world.until("the runner", || world.runner_pid()).await;
    world.triggers.prepare(&request(run_id, shell(text)), None);
    world.until("a shell that waits", || waiting_child_of(runner)).await
}

/// A child that waits for something to read, and so has read all it needed to come up.
fn waiting_child_of(parent: i32) -> Option<i32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        entry.unwrap().file_name().to_str().and_then(|name| name.parse::<i32>().ok())
    });
    let of = |pid: i32, name: &str| {
        fs::read_to_string(Path::new("/proc").join(pid.to_string()).join(name)).unwrap_or_default()
    };
    let is_child = |pid: i32| {
        let stat = of(pid, "stat");
        let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect::<Vec<_>>());
        fields.is_some_and(|fields| fields[0] == "S" && fields[1] == parent.to_string())
    };
    pids.into_iter().find(|pid| is_child(*pid) && of(*pid, "comm").trim() == "sh")
}

#[tokio::test]
async fn a_prepared_command_begins_when_it_is_started_and_not_before() {
    let mut world = World::new();
    let text = "echo $0 $# >> told\ncat >> told; no-such; exit 3";
    let pid = prepared(&world, "run-1", text).await;
    let asked = request("run-1", shell(text));
    let found = world.triggers.look_up(&asked).await.unwrap();
    assert!(matches!(found, LookUp::NeverStarted), "{found:?}");
    assert_eq!(world.read("told"), "", "it has begun");
    world.triggers.start(asked).await.unwrap();
    let story = world.story_of("run-1").await;
    assert!(format!("{:?}", story[0]).contains(&format!("\"pid\": Number({pid})")), "{story:?}");
    assert_eq!(sentence(story.last().unwrap()), "TRANSIENT: the command ended with exit code 3");
    // Its lines are counted as they are written, and there is nothing to read.
    assert_eq!(world.read("told"), "sh 0\n");
    assert!(world.log("run-1").contains(" 2: no-such"), "{}", world.log("run-1"));
}

#[tokio::test]
async fn a_command_that_is_prepared_and_never_started_leaves_nothing() {
    let world = World::new();
    let pid = prepared(&world, "run-1", "echo ran >> told").await;
    assert!(world.log_path("run-1").exists());
    world.until("the shell's end", || (!is_alive(pid)).then_some(())).await;
    world.until("the log's end", || (!world.log_path("run-1").exists()).then_some(())).await;
    assert_eq!(world.read("told"), "");
}

#[tokio::test]
async fn a_killed_runner_takes_what_it_had_prepared_with_it() {
    let world = World::new();
    let pid = prepared(&world, "run-1", "echo ran >> told").await;
    world.kill_runner().await;
    world.until("the shell's end", || (!is_alive(pid)).then_some(())).await;
    assert_eq!(world.read("told"), "");
}

#[tokio::test]
async fn what_is_started_counts_not_what_was_prepared() {
    let mut world = World::new();
    let pid = prepared(&world, "run-1", "echo prepared >> told").await;
    world.triggers.start(request("run-1", shell("echo started >> told"))).await.unwrap();
    assert_eq!(sentence(&world.end_of("run-1").await), "success");
    assert_eq!(world.read("told"), "started\n");
    // It was sent SIGKILL before the other began; when it is gone is the kernel's business.
    world.until("the end of the shell that was prepared", || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn a_prepared_shell_that_somebody_ended_is_not_missed() {
    let mut world = World::new();
    let text = "echo ran >> told";
    let pid = prepared(&world, "run-1", text).await;
    kill(pid);
    world.until("the shell's end", || (!is_alive(pid)).then_some(())).await;
    assert_eq!(sentence(&world.run(request("run-1", shell(text))).await), "success");
    assert_eq!(world.read("told"), "ran\n");
}

#[tokio::test]
async fn a_command_that_no_shell_understands_says_so_once() {
    let mut world = World::new();
    let text = "echo 'never ended";
    world.triggers.running().await.unwrap();
    world.triggers.prepare(&request("run-1", shell(text)), None);
    // It says so while it comes up, long before anybody has asked for it.
    world.until("its complaint", || world.log("run-1").contains("nterminated").then_some(())).await;
    let end = sentence(&world.run(request("run-1", shell(text))).await);
    assert_eq!(end, "TRANSIENT: the command ended with exit code 2");
    assert_eq!(world.log("run-1").lines().count(), 1, "{}", world.log("run-1"));
    assert!(world.log("run-1").contains(": 1: "), "{}", world.log("run-1"));
}

#[tokio::test]
async fn what_follows_a_job_is_made_ready_when_that_job_is_over_and_not_before() {
    let mut world = World::new();
    let first = shell("until test -e enough; do sleep 0.01; done");
    world.triggers.start(request("run-1", first)).await.unwrap();
    let runner = world.until("the runner", || world.runner_pid()).await;
    let text = "echo ran > told";
    world.triggers.prepare(&request("run-2", shell(text)), Some("run-1"));
    // Two answers: the runner has come round since it was told.
    for _ in 0..2 {
        assert_eq!(world.triggers.running().await.unwrap(), ["run-1"]);
    }
    assert!(!world.log_path("run-2").exists(), "it came up beside the job that it follows");
    fs::write(world.path("enough"), "").unwrap();
    assert_eq!(sentence(&world.end_of("run-1").await), "success");
    let pid = world.until("a shell that waits", || waiting_child_of(runner)).await;
    world.triggers.start(request("run-2", shell(text))).await.unwrap();
    let story = world.story_of("run-2").await;
    assert!(format!("{:?}", story[0]).contains(&format!("\"pid\": Number({pid})")), "{story:?}");
    assert_eq!(sentence(story.last().unwrap()), "success");
    assert_eq!(world.read("told"), "ran\n");
}
