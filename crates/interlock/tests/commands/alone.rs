//! Without a daemon: every request is applied by the command itself, and `run` drives its slot in the
//! foreground. Real processes, real jobs; the jobs' own log says how often they ran.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};

use interlock_wait::{BOUND, ChildWithin as _, CommandWithin as _, Lines, read_within, wait_until};
use serde_json::{Value, json};

use super::{Ran, interlock, project};

/// A pipeline that owes nothing by itself for long, and whose job writes down that it ran.
fn pipeline(more: &str, command: &str) -> String {
    format!(
        "name: orders\nschedules: [{{id: yearly, cron: '0 0 1 1 *'}}]\n{more}\ntrigger:\n  type: command\n  command: |\n    echo \"$INTERLOCK_RUN_ID\" >> ran.log\n    {command}\n"
    )
}

const GATED: &str = "validation: {trigger: ALL, rules: [{key: rows, check: gte, value: 10}]}";

/// A project, and the end of its runner when the test is over.
struct World(tempfile::TempDir);

impl World {
    fn new(more: &str, command: &str) -> Self {
        let other = "name: other\nschedules: [{id: yearly, cron: '0 0 1 1 *'}]\ntrigger: {type: command, command: 'true'}\n";
        let orders = pipeline(more, command);
        Self(project(&[("pipelines/orders.yaml", &orders), ("pipelines/other.yaml", other)]))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    #[track_caller]
    fn ask(&self, arguments: &[&str]) -> Ran {
        interlock(&[&["-C", self.path().to_str().unwrap()], arguments].concat())
    }

    /// Starts a command and leaves it running.
    fn start(&self, arguments: &[&str]) -> Started {
        Started::new(self.command(arguments).spawn().unwrap())
    }

    /// The same as a shell in a terminal starts it, so that its group can be interrupted.
    fn start_in_own_group(&self, arguments: &[&str]) -> Started {
        Started::new(self.command(arguments).process_group(0).spawn().unwrap())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_interlock"));
        command
            .args(["-C", self.path().to_str().unwrap()])
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts `serve`, and waits until it serves.
    fn serve(&self) -> Started {
        let serve = self.start(&["serve"]);
        wait_until("serve to have the ledger", BOUND, || {
            let lock = fs::read_to_string(self.path().join(".interlock/daemon.lock"));
            lock.is_ok_and(|lock| lock.starts_with(&format!("{}\n", serve.child.id())))
        });
        serve
    }

    /// The runs that really happened.
    fn ran(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path().join("ran.log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until a job has begun.
    fn has_run(&self) {
        wait_until("a job to begin", BOUND, || !self.ran().is_empty());
    }

    fn slots(&self) -> Vec<Value> {
        let slots = self.ask(&["slots", "--json"]).json();
        slots.as_array().unwrap().clone()
    }

    fn only_slot(&self) -> Value {
        let slots = self.slots();
        assert_eq!(slots.len(), 1, "{slots:#?}");
        slots.into_iter().next().unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        end_the_runner(self.path());
    }
}

/// Ends the runner of a project, if there is one.
pub(crate) fn end_the_runner(project: &Path) {
    let Ok(runner) = project.join(".interlock/runner").canonicalize() else { return };
    let ours = runner.display().to_string();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command);
        if command.contains("runner") && command.contains(&ours) {
            let pid = entry.file_name().to_string_lossy().into_owned();
            let _already_gone = Command::new("kill").args(["-9", &pid]).status_within(BOUND);
        }
    }
}

/// A command that runs beside the test.
struct Started {
    child: Child,
    stderr: Lines,
}

impl Started {
    fn new(mut child: Child) -> Self {
        let stderr = Lines::of(child.stderr.take().unwrap());
        Self { child, stderr }
    }

    /// Waits until it says something on standard error.
    #[track_caller]
    fn says(&mut self, what: &str) -> String {
        let expected = format!("the command to say `{what}`");
        let said = self.stderr.find_within(&expected, BOUND, |line| line.contains(what));
        let heard = self.stderr.heard();
        said.unwrap_or_else(|| panic!("it ended without saying `{what}`: {heard:#?}"))
    }

    fn signal_group(&self, signal: &str) {
        let group = format!("-{}", self.child.id());
        let sent = Command::new("kill").args([signal, "--", &group]).status_within(BOUND);
        assert!(sent.unwrap().success());
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status_within(BOUND).unwrap().success());
    }

    /// Waits for its end; what it said on standard error.
    fn end_saying(mut self) -> (Option<i32>, String) {
        let rest = self.stderr.rest_within("the rest of standard error", BOUND);
        (self.ended(), rest.join("\n"))
    }

    fn end(mut self) -> (Option<i32>, String) {
        let stdout = self.child.stdout.take().unwrap();
        let stdout = read_within(stdout, "the end of standard output", BOUND);
        (self.ended(), stdout)
    }

    /// Waits for its end.
    #[track_caller]
    fn ended(&mut self) -> Option<i32> {
        self.child.wait_within("the end of the command", BOUND).code()
    }
}

impl Drop for Started {
    /// A test that stops half-way leaves nobody behind.
    fn drop(&mut self) {
        self.child.kill_and_wait();
    }
}

#[test]
fn run_in_a_fresh_project_drives_its_slot_to_the_end() {
    let world = World::new("", "echo hello from the job");
    let ran = world.ask(&["run", "orders"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "hello from the job\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("JOB_TRIGGERED"), "{}", ran.stderr);
    assert!(ran.stderr.trim_end().ends_with("is completed"), "{}", ran.stderr);
    assert_eq!(world.ran().len(), 1);
    let slot = world.only_slot();
    assert_eq!((&slot["disposition"], &slot["schedule"]), (&json!("completed"), &json!("manual")));
    // First sight is a declaration: the watermark is there, and nothing is owed before it.
    let events = world.ask(&["events", "--json"]).stdout;
    assert_eq!(events.matches("PIPELINE_DECLARED").count(), 1, "{events}");
    let status = world.ask(&["status", "--json"]).json();
    let seen = |name: &str| {
        let all = status.as_array().unwrap();
        all.iter().find(|one| one["pipeline"] == name).unwrap()["firstSeen"].clone()
    };
    assert_ne!(seen("orders"), Value::Null);
    assert_eq!(seen("other"), Value::Null, "others are none of its business");
}

#[test]
fn run_exits_as_the_run_ended_and_prints_it_as_json() {
    let world = World::new("retry: {maxAttempts: 1}", "echo no good; exit 3");
    let ran = world.ask(&["run", "orders"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, "no good\n"), "{}", ran.stderr);
    assert!(ran.stderr.trim_end().ends_with("is failed"), "{}", ran.stderr);
    let ran = world.ask(&["run", "orders", "--json"]);
    let json = ran.json();
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""));
    assert_eq!(json["accepted"], true);
    assert_eq!(json["ended"]["disposition"], "failed");
    assert_eq!(json["ended"]["runs"][0]["status"], "FAILED");
    assert_eq!(world.ran().len(), 2);
}

#[test]
fn run_tries_again_as_the_retry_policy_says() {
    let world = World::new(
        "retry: {maxAttempts: 3, backoffSeconds: 1}",
        "echo attempt $INTERLOCK_ATTEMPT; test $INTERLOCK_ATTEMPT = 2",
    );
    let ran = world.ask(&["run", "orders"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "attempt 1\nattempt 2\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("RETRY_SCHEDULED"), "{}", ran.stderr);
    assert_eq!(world.ran().len(), 2);
}

#[test]
fn a_sensor_from_another_process_starts_the_run_that_waits_for_it() {
    let world = World::new(GATED, "true");
    let mut run = world.start(&["run", "orders"]);
    run.says("waiting until it is ready");
    assert!(world.ran().is_empty());
    let put = world.ask(&["sensor", "put", "orders", "rows", "12"]);
    assert_eq!((put.code, put.stdout.as_str()), (0, "done: sensor rows\n"), "{}", put.stderr);
    assert_eq!(run.end().0, Some(0));
    assert_eq!(world.ran().len(), 1);
}

/// A job that runs until it is let go.
const HELD: &str =
    "while test -e ran.log && ! test -e enough; do sleep 0.05; done; echo at last; exit 3";

/// The commands in backticks of a line, each as its words.
fn commands_in(line: &str) -> Vec<Vec<String>> {
    let quoted = line.split('`').skip(1).step_by(2);
    let commands = quoted.filter_map(|text| text.strip_prefix("interlock "));
    commands.map(|text| text.split(' ').map(str::to_owned).collect()).collect()
}

#[test]
fn an_interrupt_leaves_the_run_going_and_what_it_prints_works() {
    let world = World::new("retry: {maxAttempts: 1}", HELD);
    let mut run = world.start_in_own_group(&["run", "orders"]);
    run.says("JOB_TRIGGERED");
    world.has_run();
    // As a terminal does it: to the whole group, in which the runner must not be.
    run.signal_group("-INT");
    let left = run.says("its job goes on, and the next `interlock serve` records its end");
    assert_eq!(run.end().0, Some(4));
    assert_eq!(world.only_slot()["state"], "running");
    fs::write(world.path().join("enough"), "").unwrap();
    let printed = commands_in(&left);
    let take_up = printed.iter().find(|command| command[0] == "run").unwrap();
    let taken_up = world.ask(&take_up.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!((taken_up.code, taken_up.stdout.as_str()), (1, "at last\n"), "{}", taken_up.stderr);
    assert_eq!(world.ran().len(), 1, "nothing is doubled");
}

#[test]
fn what_an_interrupt_left_can_be_cancelled_as_it_says() {
    let world = World::new("", HELD);
    let mut run = world.start_in_own_group(&["run", "orders", "--json"]);
    world.has_run();
    run.signal_group("-INT");
    let left = run.says("its job goes on");
    let (code, stdout) = run.end();
    assert_eq!(code, Some(4));
    let result: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&result["accepted"], &result["ended"]), (&json!(true), &Value::Null), "{stdout}");
    let printed = commands_in(&left);
    let cancel = printed.iter().find(|command| command[0] == "cancel").unwrap();
    let cancelled = world.ask(&cancel.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(cancelled.code, 0, "{}", cancelled.stderr);
    assert_eq!(world.only_slot()["disposition"], "cancelled");
}

#[test]
fn a_detached_run_without_a_daemon_returns_once_its_job_has_started() {
    let world = World::new("retry: {maxAttempts: 1}", HELD);
    let ran = world.ask(&["run", "orders", "--detach"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let name = world.only_slot()["slot"].as_str().unwrap().to_owned();
    assert_eq!(ran.stdout, format!("done: slot {name}\n"));
    world.has_run();
    assert_eq!(world.only_slot()["state"], "running");
    fs::write(world.path().join("enough"), "").unwrap();
    assert_eq!(world.ask(&["run", "orders", "--slot", &name]).code, 1);
    assert_eq!(world.ran().len(), 1, "nothing is doubled");
}

#[test]
fn a_detached_run_that_must_wait_says_for_what_and_is_accepted() {
    let world = World::new(GATED, "true");
    let ran = world.ask(&["run", "orders", "--detach"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(ran.stderr.contains("waiting until it is ready"), "{}", ran.stderr);
    assert!(ran.stderr.contains("the next `interlock serve` goes on with it"), "{}", ran.stderr);
    assert!(world.ran().is_empty());
}

#[test]
fn run_waits_for_what_serve_runs_and_exits_as_it_ended() {
    let world = World::new("retry: {maxAttempts: 1}", "echo no good; exit 3");
    let serve = world.serve();
    let ran = world.ask(&["run", "orders"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, "no good\n"), "{}", ran.stderr);
    assert!(ran.stderr.trim_end().ends_with("is failed"), "{}", ran.stderr);
    let ran = world.ask(&["run", "orders", "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""));
    assert_eq!(ran.json()["ended"]["disposition"], "failed");
    let ran = world.ask(&["run", "orders", "--detach"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.starts_with("done: slot orders/manual/"), "{}", ran.stdout);
    let ran = world.ask(&["run", "orders", "--detach", "--follow"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    drop(serve);
}

#[test]
fn an_interrupt_while_serve_runs_it_leaves_the_run_going() {
    let world = World::new("retry: {maxAttempts: 1}", HELD);
    let serve = world.serve();
    let mut run = world.start_in_own_group(&["run", "orders"]);
    world.has_run();
    run.says("JOB_TRIGGERED");
    run.signal_group("-INT");
    let left = run.says("its job goes on");
    assert_eq!(run.end().0, Some(4));
    fs::write(world.path().join("enough"), "").unwrap();
    let printed = commands_in(&left);
    let wait = printed.iter().find(|command| command[0] == "wait").unwrap();
    let waited = world.ask(&wait.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(waited.code, 1, "{}{}", waited.stdout, waited.stderr);
    assert_eq!(world.ran().len(), 1, "nothing is doubled");
    drop(serve);
}

#[test]
fn a_run_goes_on_waiting_over_a_restart_of_serve() {
    let world = World::new("retry: {maxAttempts: 1}", HELD);
    let first = world.serve();
    let mut run = world.start(&["run", "orders"]);
    run.says("JOB_TRIGGERED");
    world.has_run();
    first.signal("-TERM");
    assert_eq!(first.end().0, Some(0));
    run.says("`interlock serve` has stopped");
    // It took nothing over, so that the next one is not kept out.
    let next = world.serve();
    fs::write(world.path().join("enough"), "").unwrap();
    assert_eq!(run.end(), (Some(1), "at last\n".to_owned()));
    assert_eq!(world.ran().len(), 1, "nothing is doubled");
    drop(next);
}

#[test]
fn a_run_that_was_killed_is_taken_up_by_the_next() {
    let world = World::new(
        "",
        "while test -e ran.log && ! test -e enough; do sleep 0.05; done; echo at last",
    );
    let mut run = world.start(&["run", "orders"]);
    run.says("JOB_TRIGGERED");
    run.signal("-KILL");
    assert_eq!(run.end().0, None);
    let slot = world.only_slot();
    assert_eq!(slot["state"], "running");
    fs::write(world.path().join("enough"), "").unwrap();
    let name = slot["slot"].as_str().unwrap();
    let next = world.ask(&["run", "orders", "--slot", name]);
    assert_eq!((next.code, next.stdout.as_str()), (0, "at last\n"), "{}", next.stderr);
    assert_eq!(world.ran().len(), 1, "nothing is doubled");
    assert_eq!(world.only_slot()["generation"], 1);
}

#[test]
fn a_run_that_was_killed_is_taken_up_by_serve() {
    let world = World::new("", "while test -e ran.log && ! test -e enough; do sleep 0.05; done");
    let mut run = world.start(&["run", "orders"]);
    run.says("JOB_TRIGGERED");
    run.signal("-KILL");
    assert_eq!(run.end().0, None);
    let name = world.only_slot()["slot"].as_str().unwrap().to_owned();
    let serve = world.start(&["serve"]);
    fs::write(world.path().join("enough"), "").unwrap();
    let waited = world.ask(&["wait", &name, "--timeout", "30s"]);
    assert_eq!(waited.code, 0, "{}{}", waited.stdout, waited.stderr);
    serve.signal("-TERM");
    assert_eq!(serve.end().0, Some(0));
    assert_eq!(world.ran().len(), 1, "nothing is doubled");
}

#[test]
fn serve_waits_for_a_command_and_refuses_beside_a_long_one() {
    let world = World::new("", "while test -e ran.log && ! test -e enough; do sleep 0.05; done");
    let mut run = world.start(&["run", "orders"]);
    run.says("JOB_TRIGGERED");
    let serve = world.ask(&["serve"]);
    assert_eq!(serve.code, 3);
    assert!(
        serve.stderr.contains("(interlock run orders) is using the ledger"),
        "{}",
        serve.stderr
    );
    let mut waiting = world.start(&["serve"]);
    fs::write(world.path().join("enough"), "").unwrap();
    assert_eq!(run.end().0, Some(0));
    // The lock is free now, and whoever waited for it serves.
    let asked = world.ask(&["run", "orders", "--follow"]);
    assert_eq!(asked.code, 0, "{}", asked.stderr);
    assert_eq!(world.ask(&["pause", "orders", "--reason", "a test"]).code, 0);
    waiting.signal("-TERM");
    assert_eq!(waiting.ended(), Some(0));
    assert_eq!(world.ran().len(), 2);
}

#[test]
fn every_request_is_applied_by_the_command_itself() {
    let world = World::new(GATED, "true");
    for (arguments, answer) in [
        (&["sensor", "put", "orders", "rows", "3"][..], "done: sensor rows\n"),
        (
            &["pause", "orders", "--reason", "a test"],
            "done: event PIPELINE_PAUSED, pipeline orders\n",
        ),
        (&["resume", "orders"], "done: event PIPELINE_RESUMED, pipeline orders\n"),
    ] {
        let ran = world.ask(arguments);
        let seen = (ran.code, ran.stdout.as_str());
        assert_eq!(seen, (0, answer), "{arguments:?}: {}", ran.stderr);
    }
    assert!(!world.path().join(".interlock/runner").exists(), "no job, no runner");
    assert_eq!(world.ask(&["run", "orders", "--slot", "2026-01-01T00:00Z", "--force"]).code, 0);
    for (arguments, answer) in [
        (
            &["rerun", "orders", "2026-01-01T00:00Z", "--reason", "a test"][..],
            "done: slot orders/yearly/2026-01-01T00:00:00Z\n",
        ),
        (&["cancel", "orders", "2026-01-01T00:00Z"], "done: state cancelled\n"),
    ] {
        let ran = world.ask(arguments);
        let seen = (ran.code, ran.stdout.as_str());
        assert_eq!(seen, (0, answer), "{arguments:?}: {}", ran.stderr);
    }
    let refused = world.ask(&["resume", "orders"]);
    assert_eq!((refused.code, refused.stderr.as_str()), (1, "error: orders is not paused\n"));
    assert_eq!(world.ran().len(), 1);
    // Nothing was opened that the schedule owes, and no watermark moved.
    let marks = world.ask(&["watermark", "show", "orders", "--json"]).json();
    let first_seen = world.ask(&["status", "orders", "--json"]).json()[0]["firstSeen"].clone();
    assert_eq!(marks[0]["at"], first_seen);
}

#[test]
fn cancel_ends_a_job_that_was_left_behind() {
    let world = World::new("", "while test -e ran.log; do sleep 0.05; done");
    let mut run = world.start(&["run", "orders"]);
    run.says("JOB_TRIGGERED");
    world.has_run();
    run.signal("-KILL");
    assert_eq!(run.end().0, None);
    let name = world.only_slot()["slot"].as_str().unwrap().to_owned();
    let ran = world.ask(&["cancel", "orders", &name]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(world.only_slot()["disposition"], "cancelled");
}

#[test]
fn complete_ends_a_run_that_was_left_behind() {
    let world = World::new("", "while test -e ran.log; do sleep 0.05; done");
    let mut run = world.start(&["run", "orders"]);
    run.says("JOB_TRIGGERED");
    run.signal("-KILL");
    assert_eq!(run.end().0, None);
    let id = world.ask(&["runs", "--json"]).json()[0]["id"].as_str().unwrap().to_owned();
    let ran = world.ask(&["complete", &id, "--success"]);
    assert_eq!((ran.code, ran.stdout), (0, format!("done: run {id}\n")), "{}", ran.stderr);
    assert_eq!(world.only_slot()["disposition"], "completed");
}

#[test]
fn commands_at_once_take_turns() {
    let world = World::new("", "true");
    let all: Vec<_> = (0..8)
        .map(|number| {
            let (key, value) = (format!("s{number}"), number.to_string());
            world.start(&["sensor", "put", "orders", &key, &value])
        })
        .collect();
    for one in all {
        let (code, said) = one.end_saying();
        assert_eq!(code, Some(0), "{said}");
    }
    let sensors = world.ask(&["sensor", "list", "orders", "--json"]).json();
    assert_eq!(sensors.as_array().unwrap().len(), 8);
    // Two runs of one pipeline, which has one place: one after the other, none lost.
    let runs: Vec<_> = (0..2).map(|_| world.start(&["run", "orders"])).collect();
    for run in runs {
        assert_eq!(run.end().0, Some(0));
    }
    assert_eq!(world.ran().len(), 2);
}

#[test]
fn a_request_for_another_pipeline_waits_for_its_own_owner() {
    let world = World::new("", "while test -e ran.log && ! test -e enough; do sleep 0.05; done");
    let mut run = world.start(&["run", "orders"]);
    run.says("JOB_TRIGGERED");
    let put = world.ask(&["sensor", "put", "other", "rows", "1", "--wait", "200ms"]);
    assert_eq!(put.code, 4, "{}", put.stderr);
    assert!(put.stdout.contains("`interlock run orders`"), "{}", put.stdout);
    fs::write(world.path().join("enough"), "").unwrap();
    assert_eq!(run.end().0, Some(0));
    // The next request for it brings both.
    assert_eq!(world.ask(&["sensor", "put", "other", "lines", "2"]).code, 0);
    let sensors = world.ask(&["sensor", "list", "other", "--json"]).json();
    assert_eq!(sensors.as_array().unwrap().len(), 2);
}

#[test]
fn a_pipeline_that_nobody_declares_makes_no_ledger() {
    let world = World::new("", "true");
    let ran = world.ask(&["run", "nobody"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("There are orders, other."), "{}", ran.stderr);
    assert!(!world.path().join(".interlock").exists());
}

#[test]
fn what_is_due_is_left_to_serve() {
    let often = "name: often\nschedules: [{id: second, every: 1s}]\ntrigger: {type: command, command: sleep 3}\n";
    let world = World(project(&[("pipelines/often.yaml", often)]));
    let ran = world.ask(&["run", "often"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(world.only_slot()["schedule"], "manual");
    let marks = world.ask(&["watermark", "show", "often", "--json"]).json();
    let first_seen = world.ask(&["status", "often", "--json"]).json()[0]["firstSeen"].clone();
    assert_eq!(marks[0]["at"], first_seen, "the watermark stands where it was created");
}

#[test]
fn what_the_runner_tells_about_other_pipelines_is_not_lost() {
    let world = World::new(
        "",
        "while test -e ran.log && ! test -e enough; do sleep 0.05; done; echo it was me",
    );
    let mut run = world.start(&["run", "orders"]);
    run.says("JOB_TRIGGERED");
    world.has_run();
    run.signal("-KILL");
    assert_eq!(run.end().0, None);
    let name = world.only_slot()["slot"].as_str().unwrap().to_owned();
    fs::write(world.path().join("enough"), "").unwrap();
    // This one is told that the job of `orders` has ended, too.
    assert_eq!(world.ask(&["run", "other"]).code, 0);
    assert_eq!(world.ask(&["status", "orders", "--json"]).json()[0]["open"][0]["state"], "running");
    let taken_up = world.ask(&["run", "orders", "--slot", &name]);
    assert_eq!(
        (taken_up.code, taken_up.stdout.as_str()),
        (0, "it was me\n"),
        "{}",
        taken_up.stderr
    );
    assert_eq!(world.ran().len(), 1);
}

#[test]
fn what_cannot_be_started_is_refused() {
    let watched =
        "name: watched\nschedules: [{id: nightly, at: '03:00'}]\ntrigger: {type: external}\n";
    let world = World(project(&[("pipelines/watched.yaml", watched)]));
    let ran = world.ask(&["run", "watched"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.contains("watched is watch-only"), "{}", ran.stderr);
    assert_eq!(world.slots(), [] as [Value; 0]);
}

#[test]
fn a_run_of_a_paused_pipeline_says_what_it_waits_for() {
    let world = World::new("", "true");
    assert_eq!(world.ask(&["pause", "orders", "--reason", "maintenance"]).code, 0);
    let mut run = world.start(&["run", "orders"]);
    run.says("orders is paused since");
    assert_eq!(world.ask(&["resume", "orders"]).code, 0);
    assert_eq!(run.end().0, Some(0));
    assert_eq!(world.ran().len(), 1);
}

#[test]
fn a_run_waits_for_the_place_of_one_that_was_left_behind() {
    let world = World::new("", "while test -e ran.log && ! test -e enough; do sleep 0.05; done");
    let mut first = world.start(&["run", "orders"]);
    first.says("JOB_TRIGGERED");
    world.has_run();
    first.signal("-KILL");
    assert_eq!(first.end().0, None);
    let mut second = world.start(&["run", "orders"]);
    second.says("waiting for its turn");
    assert_eq!(world.ran().len(), 1, "one place, one run (S6)");
    fs::write(world.path().join("enough"), "").unwrap();
    assert_eq!(second.end().0, Some(0));
    let slots = world.slots();
    assert!(slots.iter().all(|slot| slot["disposition"] == "completed"), "{slots:#?}");
    assert_eq!(world.ran().len(), 2);
}

#[test]
fn status_shows_the_last_slot_of_a_pipeline_that_sensors_start() {
    let gate = "sensor: {key: landed, check: exists}";
    let job = "trigger: {type: command, command: 'true'}";
    let orders = format!("name: orders\nschedule: {{{gate}}}\n{job}\n");
    // Beside a schedule with a watermark of its own.
    let yearly = "{id: yearly, cron: '0 0 1 1 *'}";
    let mixed = format!("name: mixed\nschedules: [{yearly}, {{id: stream, {gate}}}]\n{job}\n");
    let files = [("pipelines/orders.yaml", orders.as_str()), ("pipelines/mixed.yaml", &mixed)];
    let world = World(project(&files));
    let serve = world.serve();
    for name in ["orders", "mixed"] {
        let last = || world.ask(&["status", name, "--json"]).json()[0]["last"].clone();
        let is_seen = || world.ask(&["status", name]).stdout.contains(name);
        wait_until("it is declared", BOUND, is_seen);
        let put = world.ask(&["sensor", "put", name, "landed", "{}"]);
        assert_eq!(put.code, 0, "{}", put.stderr);
        wait_until("the sensor's slot to be shown", BOUND, || last()["disposition"] == "completed");
        assert_eq!(last()["schedule"], "stream");
        // What a person asks for is no slot of a schedule.
        assert_eq!(world.ask(&["run", name]).code, 0);
        assert_eq!(last()["schedule"], "stream");
    }
    drop(serve);
}
