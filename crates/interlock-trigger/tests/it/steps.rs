//! Several commands with an order.

use interlock_core::pipeline::{CommandLine, Step, TriggerKind};
use interlock_trigger::{Outcome, Triggers};
use jiff::SignedDuration;
use serde_json::json;

use crate::world::{World, outcome, request, sentence};

fn step(name: &str, depends: &[&str], text: &str) -> Step {
    Step {
        name: name.to_owned(),
        command: CommandLine::Shell(text.to_owned()),
        depends: depends.iter().map(|&name| name.to_owned()).collect(),
        retries_max: 0,
        timeout: None,
        continue_on_failure: false,
        env: [].into(),
        workdir: None,
    }
}

fn steps(steps: &[Step]) -> TriggerKind {
    TriggerKind::Steps(steps.to_vec())
}

#[tokio::test]
async fn steps_run_in_order_and_each_is_told() {
    let mut world = World::new();
    let job = [
        step("extract", &[], "echo extract >> order"),
        step("load", &["extract"], "echo load >> order"),
        step("check", &["load"], "echo check >> order"),
    ];
    world.start("run-1", steps(&job)).await;
    let story: Vec<_> = world.story_of("run-1").await.iter().map(sentence).collect();
    assert_eq!(
        story,
        [
            "started",
            "extract running 1",
            "extract succeeded 1",
            "load running 1",
            "load succeeded 1",
            "check running 1",
            "check succeeded 1",
            "success"
        ]
    );
    assert_eq!(world.read("order"), "extract\nload\ncheck\n");
}

#[tokio::test]
async fn a_failed_step_fails_the_job_and_a_rerun_begins_with_it() {
    let mut world = World::new();
    let job = [
        step("extract", &[], "echo extract >> order"),
        step("load", &["extract"], "echo load >> order; test -e fixed"),
        step("check", &["load"], "echo check >> order"),
        step("aside", &["extract"], "echo aside >> aside"),
    ];
    let end = world.run(request("run-1", steps(&job))).await;
    assert_eq!(sentence(&end), "TRANSIENT: the step `load` ended with exit code 1");
    let Outcome::Failure { metadata, .. } = outcome(end) else { panic!("no failure") };
    let expected =
        json!({"extract": "succeeded", "load": "failed", "check": "skipped", "aside": "succeeded"});
    assert_eq!(metadata["steps"], expected);
    assert_eq!(world.read("order"), "extract\nload\n");

    std::fs::write(world.path("fixed"), "").unwrap();
    let mut again = request("run-2", steps(&job));
    again.resume_from = Some("load".to_owned());
    let end = world.run(again.clone()).await;
    let Outcome::Success { metadata } = outcome(end) else { panic!("no success") };
    assert_eq!(metadata["steps"]["extract"], "kept");
    assert_eq!(world.read("order"), "extract\nload\nload\ncheck\n");

    again.run_id = "run-3".to_owned();
    again.resume_from = Some("nobody".to_owned());
    let failure = world.triggers.start(again).await.unwrap_err();
    assert_eq!(failure.message, "there is no step `nobody` to begin with");
}

#[tokio::test]
async fn a_step_is_tried_again_and_a_tolerated_failure_is_no_failure() {
    let mut world = World::new();
    let mut flaky = step("flaky", &[], "echo x >> tries; test $(wc -l < tries) -ge 3");
    flaky.retries_max = 2;
    let mut optional = step("optional", &["flaky"], "exit 7");
    optional.continue_on_failure = true;
    let job = [flaky, optional, step("last", &["optional"], "true")];
    world.start("run-1", steps(&job)).await;
    let story: Vec<_> = world.story_of("run-1").await.iter().map(sentence).collect();
    assert_eq!(
        story,
        [
            "started",
            "flaky running 1",
            "flaky pending 1",
            "flaky running 2",
            "flaky pending 2",
            "flaky running 3",
            "flaky succeeded 3",
            "optional running 1",
            "optional failed 1",
            "last running 1",
            "last succeeded 1",
            "success"
        ]
    );
}

#[tokio::test]
async fn a_step_has_its_own_timeout_and_the_job_another() {
    let mut world = World::new();
    let mut slow = step("slow", &[], "sleep 300");
    slow.timeout = Some(SignedDuration::from_millis(100));
    let job = [slow, step("after", &["slow"], "true")];
    let end = world.run(request("run-1", steps(&job))).await;
    assert_eq!(sentence(&end), "TIMEOUT: the step `slow` was ended after its timeout");

    let job = [step("slow", &[], "sleep 300"), step("after", &["slow"], "true")];
    let mut asked = request("run-2", steps(&job));
    asked.timeout = Some(SignedDuration::from_millis(100));
    world.triggers.start(asked).await.unwrap();
    let story: Vec<_> = world.story_of("run-2").await.iter().map(sentence).collect();
    assert_eq!(
        story,
        [
            "started",
            "slow running 1",
            "after skipped 0",
            "slow failed 1",
            "TIMEOUT: it was ended after its timeout of 100ms"
        ]
    );
}

#[tokio::test]
async fn a_step_that_cannot_start_fails_with_a_sentence() {
    let mut world = World::new();
    let mut missing = step("missing", &[], "");
    missing.command = CommandLine::Argv(vec!["/no/such".to_owned()]);
    missing.retries_max = 5;
    let end = world.run(request("run-1", steps(&[missing]))).await;
    let expected = "PERMANENT: the step `missing` failed: the program `/no/such` does not exist";
    assert_eq!(sentence(&end), expected);
}

#[tokio::test]
async fn steps_in_a_circle_are_refused() {
    let world = World::new();
    let job = [step("a", &["b"], "true"), step("b", &["a"], "true")];
    let failure = world.triggers.start(request("run-1", steps(&job))).await.unwrap_err();
    assert_eq!(failure.message, "the step `a` depends on itself or on a step that does not exist");
    assert!(!failure.may_have_started);
}
