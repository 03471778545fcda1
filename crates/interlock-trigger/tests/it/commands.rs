//! One command: how it is started, what it is told, how its end is told.

use interlock_core::pipeline::{CommandLine, Handlers, JobContext, Secret};
use interlock_trigger::{LookUp, Outcome, Triggers, What};
use jiff::SignedDuration;
use serde_json::json;

use crate::world::{World, argv, is_alive, outcome, request, sentence, shell};

#[tokio::test]
async fn a_command_runs_and_its_end_is_told() {
    let mut world = World::new();
    world.start("run-1", shell("echo out; echo err >&2")).await;
    let story = world.story_of("run-1").await;
    let What::Started { metadata } = &story[0] else { panic!("{story:?}") };
    assert!(metadata["pid"].as_i64().unwrap() > 1);
    assert_eq!(metadata["log"], json!(world.log_path("run-1")));
    let Outcome::Success { metadata } = outcome(story[1].clone()) else { panic!("{story:?}") };
    assert_eq!(metadata["exitCode"], 0);
    assert_eq!(story.len(), 2);
    assert_eq!(world.log("run-1"), "out\nerr\n");
}

/// They are what is left of it when the host is gone with its log.
#[tokio::test]
async fn the_last_lines_of_the_output_are_told_with_the_end() {
    let mut world = World::new();
    for (number, (code, bytes_max)) in [(0, 4_096), (1, 16_384)].into_iter().enumerate() {
        let text = format!(
            "i=0; while [ $i -lt 5000 ]; do echo line $i of many; i=$((i+1)); done; exit {code}"
        );
        let end = outcome(world.run(request(&format!("run-{number}"), shell(&text))).await);
        let (Outcome::Success { metadata } | Outcome::Failure { metadata, .. }) = &end else {
            panic!("{end:?}")
        };
        let output = metadata["output"].as_str().unwrap();
        assert!(output.len() <= bytes_max, "{} bytes", output.len());
        let lines: Vec<String> =
            (4_900..5_000).map(|line| format!("line {line} of many\n")).collect();
        assert_eq!(output, lines.concat());
    }
    let end = outcome(world.run(request("run-2", shell("true"))).await);
    let Outcome::Success { metadata } = &end else { panic!("{end:?}") };
    assert_eq!(metadata.get("output"), None, "it wrote nothing");
}

#[tokio::test]
async fn ends_are_told_as_they_were() {
    let mut world = World::new();
    for (number, (kind, expected)) in [
        (shell("exit 3"), "TRANSIENT: the command ended with exit code 3"),
        (shell("kill -9 $$"), "TRANSIENT: the command was ended by SIGKILL (exit code 137)"),
        (shell("kill -SEGV $$"), "TRANSIENT: the command was ended by SIGSEGV (exit code 139)"),
        (shell("no-such-command"), "PERMANENT: the command did not find its command (exit code 127)"),
        (
            argv(&["no-such-program"]),
            "PERMANENT: the program `no-such-program` is not in PATH (/usr/local/bin:/usr/bin:/bin)",
        ),
        (argv(&["/no/such"]), "PERMANENT: the program `/no/such` does not exist"),
        (argv(&["/etc/passwd"]), "PERMANENT: the program `/etc/passwd` is not executable"),
        (argv(&["true"]), "success"),
    ]
    .into_iter()
    .enumerate()
    {
        let end = world.run(request(&format!("run-{number}"), kind)).await;
        assert_eq!(sentence(&end), expected);
        if let What::Finished(Outcome::Failure { metadata, .. }) = &end
            && expected.contains("137")
        {
            assert_eq!(metadata["exitCode"], 137);
        }
    }
}

#[tokio::test]
async fn a_workdir_that_does_not_exist_is_named() {
    let mut world = World::new();
    let mut asked = request("run-1", shell("true"));
    asked.context.workdir = Some("nowhere".to_owned());
    let end = sentence(&world.run(asked).await);
    assert!(end.starts_with("PERMANENT: the working directory `"), "{end}");
    assert!(end.ends_with("/nowhere` does not exist"), "{end}");
}

#[tokio::test]
async fn a_job_knows_its_slot_and_no_secret_of_the_daemon() {
    let mut world = World::new();
    let text = "echo ${date} ${params.who} \"${params.who}\"; pwd; env | sort";
    let mut asked = request("run-1", shell(text));
    asked.params = [("who".to_owned(), "$(echo pwned)  x".to_owned())].into();
    asked.context = JobContext {
        env: [("AUTH".to_owned(), Secret::new("Bearer ${TOKEN}"))].into(),
        workdir: Some("sub".to_owned()),
        ..JobContext::default()
    };
    std::fs::create_dir(world.path("sub")).unwrap();
    world.run(asked).await;
    let log = world.log("run-1");
    assert!(log.starts_with("2026-02-25 $(echo pwned) x $(echo pwned)  x\n"), "{log}");
    assert!(log.contains("/sub\n"), "{log}");
    assert!(log.contains("\nAUTH=Bearer s3cret\n"), "{log}");
    assert!(log.contains("\nINTERLOCK_RUN_ID=run-1\n"), "{log}");
    assert!(!log.contains("\nTOKEN=") && !log.contains("CARGO"), "{log}");
    let journal = world.read("runner/journal");
    assert!(!journal.contains("s3cret") && !journal.contains("pwned"), "{journal}");
}

#[tokio::test]
async fn arguments_are_passed_as_they_are() {
    let mut world = World::new();
    let mut asked = request("run-1", argv(&["printf", "%s|", "${params.q}", "${slot}", "a b"]));
    asked.context.params = [("q".to_owned(), "'; rm -rf \"$HOME\"".to_owned())].into();
    world.run(asked).await;
    assert_eq!(world.log("run-1"), "'; rm -rf \"$HOME\"|2026-02-25T09:00:00Z|a b|");
}

#[tokio::test]
async fn another_shell_is_used_when_asked_for() {
    let mut world = World::new();
    let mut asked = request("run-1", shell("false; echo still here"));
    asked.context.shell = Some("sh -e".to_owned());
    let end = world.run(asked).await;
    assert_eq!(sentence(&end), "TRANSIENT: the command ended with exit code 1");
}

#[tokio::test]
async fn s2_the_same_run_id_starts_one_job() {
    let mut world = World::new();
    let append = || shell("echo once >> count; read x < go");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.path("go"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    world.start("run-1", append()).await;
    world.start("run-1", append()).await;
    world.started("run-1").await;
    std::fs::write(world.path("go"), "go\n").unwrap();
    assert_eq!(sentence(&world.end_of("run-1").await), "success");
    // After the end too, and after the end was acknowledged: the end is told again instead.
    world.start("run-1", append()).await;
    assert_eq!(sentence(&world.end_of("run-1").await), "success");
    world.triggers.acknowledge("run-1");
    world.start("run-1", append()).await;
    assert_eq!(sentence(&world.end_of("run-1").await), "success");
    assert_eq!(world.read("count"), "once\n");
}

#[tokio::test]
async fn a_thousand_quick_runs_happen_once_each() {
    const RUNS: usize = 1000;
    let mut world = World::new();
    for number in 0..RUNS {
        let kind = argv(&["sh", "-c", "echo $INTERLOCK_RUN_ID >> ran"]);
        world.triggers.start(request(&format!("run-{number:04}"), kind)).await.unwrap();
    }
    let mut ended = Vec::new();
    while ended.len() < RUNS {
        let report = world.next().await;
        if matches!(report.what, What::Finished(Outcome::Success { .. })) {
            world.triggers.acknowledge(&report.run_id);
            ended.push(report.run_id);
        }
    }
    let expected: Vec<_> = (0..RUNS).map(|number| format!("run-{number:04}")).collect();
    ended.sort();
    assert_eq!(ended, expected);
    let text = world.read("ran");
    let mut ran: Vec<_> = text.lines().collect();
    ran.sort_unstable();
    assert_eq!(ran, expected);
    assert_eq!(world.triggers.running().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_timeout_ends_the_whole_group_whatever_it_ignores() {
    let mut world = World::new();
    // The leader ends at TERM; its grandchild ignores it and forks on.
    let text = "(trap '' TERM; sh -c 'echo $$ > grandchild; while :; do sleep 0.05; done') & wait";
    let mut asked = request("run-1", shell(text));
    asked.timeout = Some(SignedDuration::from_millis(500));
    asked.context.handlers.failure = Some(CommandLine::Shell("echo handled".to_owned()));
    let end = world.run(asked).await;
    assert_eq!(sentence(&end), "TIMEOUT: it was ended after its timeout of 500ms");
    let grandchild: i32 = world.line_in("grandchild").await.parse().unwrap();
    assert!(!is_alive(grandchild));
    assert!(world.log("run-1").contains("handled\n"));
}

#[tokio::test]
async fn a_job_that_leaves_a_child_behind_is_over_with_its_leader() {
    let mut world = World::new();
    let text = "sleep 300 & echo $! > child; echo done";
    let end = world.run(request("run-1", shell(text))).await;
    assert_eq!(sentence(&end), "success");
    let child: i32 = world.line_in("child").await.parse().unwrap();
    assert!(is_alive(child), "what a job leaves behind is its own business");
    crate::world::kill(child);
}

#[tokio::test]
async fn a_cancelled_job_ends_and_a_finished_one_stays() {
    let mut world = World::new();
    let asked = request("run-1", shell("echo $$ > pid; exec sleep 300"));
    world.triggers.start(asked.clone()).await.unwrap();
    let pid: i32 = world.line_in("pid").await.parse().unwrap();
    world.triggers.cancel(&asked).await.unwrap();
    assert_eq!(sentence(&world.end_of("run-1").await), "cancelled: it was cancelled");
    assert!(!is_alive(pid));
    world.triggers.cancel(&asked).await.unwrap();

    let done = request("run-2", shell("true"));
    assert_eq!(sentence(&world.run(done.clone()).await), "success");
    world.triggers.cancel(&done).await.unwrap();
    let found = world.triggers.look_up(&done).await.unwrap();
    assert!(matches!(found, LookUp::Finished(Outcome::Success { .. })), "{found:?}");
    // Before its start, too: there is nothing to end, and it can still be started.
    let later = request("run-3", shell("true"));
    world.triggers.cancel(&later).await.unwrap();
    assert_eq!(sentence(&world.run(later).await), "success");
}

#[tokio::test]
async fn output_is_bounded_while_the_job_runs() {
    let mut world = World::new();
    let text = "i=0; while [ $i -lt 4000 ]; do echo \"line $i of a long story, and nothing new\"; \
                i=$((i+1)); done; touch written; while [ ! -e go ]; do sleep 0.02; done; echo end";
    world.start("run-1", shell(text)).await;
    world.until("the output", || world.path("written").exists().then_some(())).await;
    let cut = || Some(world.log("run-1")).filter(|log| log.contains("were cut here"));
    let log = world.until("the cut", cut).await;
    assert!(log.len() <= 64 * 1024, "{}", log.len());
    assert!(log.ends_with("line 3999 of a long story, and nothing new\n"));
    std::fs::write(world.path("go"), "").unwrap();
    assert_eq!(sentence(&world.end_of("run-1").await), "success");
    assert!(world.log("run-1").ends_with("end\n"));
}

#[tokio::test]
async fn handlers_follow_and_change_nothing() {
    let mut world = World::new();
    let line = |text: &str| Some(CommandLine::Shell(text.to_owned()));
    let handlers = Handlers {
        success: line("echo success $INTERLOCK_OUTCOME; exit 9"),
        failure: line("echo failure $INTERLOCK_OUTCOME"),
        exit: line("echo exit $INTERLOCK_OUTCOME; no-such"),
    };
    for (run_id, text, said, expected) in [
        ("run-1", "exit 0", "success success\n", "success"),
        ("run-2", "exit 4", "failure failure\n", "TRANSIENT: the command ended with exit code 4"),
    ] {
        let mut asked = request(run_id, shell(text));
        asked.context.handlers = handlers.clone();
        let end = world.run(asked).await;
        assert_eq!(sentence(&end), expected);
        let log = world.log(run_id);
        assert!(log.contains(said) && log.contains("exit "), "{log}");
        let (Outcome::Success { metadata } | Outcome::Failure { metadata, .. }) = outcome(end)
        else {
            panic!("cancelled")
        };
        let exit = "did not find its command (exit code 127)";
        assert_eq!(metadata["handlers"]["exit"], exit);
    }
}

#[tokio::test]
async fn a_host_that_cannot_run_the_runner_says_so() {
    let mut world = World::new();
    let (sender, _reports) = tokio::sync::mpsc::unbounded_channel();
    let mut options = interlock_trigger::Options::new(world.dir.clone()).unwrap();
    options.runner = vec!["/no/such/runner".into()];
    let dir = world.path("elsewhere");
    let environment: interlock_trigger::Environment = std::sync::Arc::new(|_| None);
    let clock = crate::world::clock();
    world.triggers =
        interlock_trigger::LocalTriggers::new(&dir, sender, clock, environment, options).unwrap();
    let failure = world.triggers.start(request("run-1", shell("true"))).await.unwrap_err();
    assert!(failure.message.starts_with("the runner cannot be reached: "), "{failure}");
    assert!(!failure.may_have_started);
}
