//! The cases of the Go watcher and of its watchdog's retrigger (`facts/interlock-cases.md` C1 and C4), and
//! those of its engine (C3, 38), on the real engine. Those about monitoring (20–22, 56–59) are in
//! `cases_monitoring.rs`; the plans alone are tested in `interlock-core`.
//!
//! What goes by another name here: a run log is a slot with its runs; `TRIGGER_FIRED` is `JOB_TRIGGERED`;
//! `WATCHER_EVALUATION` is the evidence that is stored with the decision (S8).
//!
//! Superseded, each with its reason:
//! - Case 24 (no retrigger function, no retrigger): a retry is a move of the controller's plan, so that
//!   there is no function that could be absent.
//! - Case 23's alert `watchdog_retrigger`: a retry that the pipeline asked for is an event
//!   (`RETRY_SCHEDULED`) and wakes nobody.
//! - Case 38's alert on every failed evaluation: one incident when the slot is given up
//!   (`VALIDATION_EXHAUSTED`), instead of one alert for each look.
//! - Cases 53, 54: the deadlines of a slot are resolved and judged in `interlock-core`
//!   (`cases_53_to_55_…` in `sla/tests.rs`); telling a breach belongs to the watchdog (issue 5).
//! - Case 60's two schedules at one instant: places are counted over all schedules of a pipeline
//!   (`maxActiveRuns`), so that they are independent in time and not in places.
//! - Case 66's "the same five scenarios for watcher and orchestrator": there is one engine.

use interlock_core::{readiness::TraitStatus, retry::FailureCategory};
use interlock_engine::{Engine, EngineError};
use interlock_store::{Role, Shard, Store as _, block_on, record::InboxRecord};
use jiff::SignedDuration;
use serde_json::json;

use crate::stage::{Answer, Job, Stage, at};

const COMMAND: &str = "trigger: {type: command, command: 'true'}\n";

/// A pipeline that owes a run at ten, and whatever else a case needs.
fn at_ten(more: &str) -> String {
    format!("name: orders\nschedule: \"0 10 * * *\"\n{COMMAND}{more}")
}

/// A pipeline that owes a run at every hour.
fn hourly(more: &str) -> String {
    at_ten(more).replace("0 10 *", "0 * *")
}

/// A machine that is switched on at nine.
fn stage(pipeline: &str, job: Job) -> Stage {
    Stage::new(at("09:00"), &[pipeline], move |_| job)
}

const SUCCEEDS: Job = Job::Succeeds(5);
const RETRIES: [&str; 3] = ["JOB_FAILED", "RETRY_SCHEDULED", "RETRY_EXHAUSTED"];

#[test]
fn case_46_a_ready_command_pipeline_completes() {
    let rule = "validation: {rules: [{key: landed, check: exists}]}\n";
    let mut stage = stage(&at_ten(rule), SUCCEEDS);
    stage.until(at("09:30"));
    stage.sensor("orders", "landed", json!({"rows": 3}));
    stage.until(at("10:01"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z completed"]);
    assert_eq!(stage.runs(), ["orders~cron~20260224T100000Z~1~1 COMPLETED scheduler"]);
    assert_eq!(stage.started(), ["orders~cron~20260224T100000Z~1~1"]);
    let life: Vec<_> = stage
        .events()
        .into_iter()
        .map(|row| row.record)
        .filter(|event| event.slot.as_deref() == Some("cron/2026-02-24T10:00:00Z"))
        .collect();
    let kinds: Vec<_> = life.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["SLOT_OPENED", "JOB_TRIGGERED", "JOB_COMPLETED"]);
    let evidence = life[1].details["evidence"].as_str().unwrap();
    assert!(evidence.contains("✓ landed exists"), "S8: {evidence}");
}

#[test]
fn case_47_what_is_not_ready_has_no_run_and_is_given_up_with_what_blocked_it() {
    let rule = "validation: {rules: [{key: landed, check: exists}]}\nevaluation: {window: 2h}\n";
    let mut stage = stage(&at_ten(rule), SUCCEEDS);
    stage.until(at("11:59"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z open(waiting)"]);
    stage.until(at("12:01"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z skipped(not_ready)"]);
    assert_eq!((stage.runs().len(), stage.started().len()), (0, 0));
    let events = stage.events();
    let given_up: Vec<_> =
        events.iter().filter(|row| row.record.kind == "VALIDATION_EXHAUSTED").collect();
    assert_eq!(given_up.len(), 1);
    let blocking = &given_up[0].record.details["blocking"];
    assert_eq!(*blocking, json!(["sensor `landed` has not been reported"]));
}

#[test]
fn case_48_no_second_run_starts_while_one_is_active() {
    let mut stage = stage(&hourly(""), Job::Succeeds(90 * 60));
    stage.until(at("11:05"));
    // The slot that was switched on with owes nothing; ten runs, eleven finds it.
    assert_eq!(
        stage.slots(),
        ["cron/2026-02-24T10:00:00Z open(running)", "cron/2026-02-24T11:00:00Z skipped(overlap)"]
    );
    // Nor does another process start a second one.
    stage.crash();
    stage.until(at("11:20"));
    assert_eq!(stage.started().len(), 1);
    stage.until(at("11:40"));
    assert_eq!(stage.runs(), ["orders~cron~20260224T100000Z~1~1 COMPLETED scheduler"]);
}

#[test]
fn case_49_what_completed_does_not_run_again_unless_somebody_asks() {
    let mut stage = stage(&at_ten(""), SUCCEEDS);
    stage.until(at("12:00"));
    stage.crash();
    stage.until(at("23:59"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z completed"]);
    assert_eq!(stage.started().len(), 1);
    // A person may, and it is told apart.
    let again = json!({
        "request": "rerun",
        "slot": {"schedule": "cron", "nominal": "2026-02-24T10:00:00Z"},
        "reason": "the source was corrected",
    });
    assert!(stage.ask("orders", &serde_json::from_value(again).unwrap()).accepted);
    stage.until(at("23:59") + SignedDuration::from_secs(30));
    assert_eq!(stage.runs()[1], "orders~cron~20260224T100000Z~2~1 COMPLETED manual");
}

#[test]
fn case_50_spent_attempts_end_the_slot_and_are_told_once() {
    let retry = "retry: {maxAttempts: 2, backoffSeconds: 30}\n";
    let mut stage = stage(&at_ten(retry), Job::Fails(FailureCategory::Transient));
    stage.until(at("10:05"));
    stage.crash();
    stage.until(at("23:00"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z failed"]);
    assert_eq!(stage.started().len(), 2);
    assert_eq!(
        stage.told(&["RETRY_EXHAUSTED"]),
        ["RETRY_EXHAUSTED all 2 attempts are used up"],
        "once, whatever comes after"
    );
}

#[test]
fn case_51_a_permanent_failure_ends_the_slot_at_once() {
    let mut stage = stage(&at_ten(""), Job::Fails(FailureCategory::Permanent));
    stage.until(at("23:00"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z failed"]);
    let run = &stage.run_rows()[0].record;
    assert_eq!((run.status.as_str(), run.category.as_deref()), ("FAILED", Some("PERMANENT")));
    assert_eq!(
        stage.told(&RETRIES),
        [
            "JOB_FAILED the job exited with 1",
            "RETRY_EXHAUSTED PERMANENT failures are not tried again",
        ]
    );
}

#[test]
fn case_52_nothing_runs_while_somebody_else_holds_the_lease() {
    let mut stage = stage(&at_ten(""), SUCCEEDS);
    let long = SignedDuration::from_hours(1);
    let lease = block_on(stage.store.acquire(Role::Engine, Shard(0), "somebody else", long));
    assert!(lease.unwrap().is_some());
    let refused = block_on(Engine::open(stage.parts("late"), Shard(0)));
    assert!(refused.unwrap().is_none(), "the other one holds it");
    // And an owner that was replaced stops, instead of going on beside the new one (S9).
    stage.world.pass(long);
    stage.until(at("10:30"));
    let taken = block_on(stage.store.acquire(Role::Engine, Shard(0), "test", long));
    assert!(taken.unwrap().is_some(), "a restart under the same name takes over");
    let end = stage.until(at("10:40"));
    assert!(matches!(end, Some(Err(EngineError::Deposed))), "{end:?}");
}

#[test]
fn case_60_two_schedules_owe_runs_of_their_own() {
    let pipeline = format!(
        "name: orders\nschedules:\n  - {{name: h10, after: \"10:00\"}}\n  - {{name: h14, after: \"14:00\"}}\n{COMMAND}"
    );
    let mut stage = stage(&pipeline, SUCCEEDS);
    stage.until(at("14:01"));
    assert_eq!(
        stage.slots(),
        ["h10/2026-02-24T10:00:00Z completed", "h14/2026-02-24T14:00:00Z completed"]
    );
    assert_eq!(
        stage.runs(),
        [
            "orders~h10~20260224T100000Z~1~1 COMPLETED scheduler",
            "orders~h14~20260224T140000Z~1~1 COMPLETED scheduler"
        ]
    );
    let told: Vec<_> = stage.requests().into_iter().map(|request| request.schedule).collect();
    assert_eq!(told, ["h10", "h14"], "each job is told its schedule");
}

#[test]
fn case_61_a_schedule_starts_nothing_before_its_time() {
    let pipeline =
        format!("name: orders\nschedules: [{{name: late, after: \"23:59\"}}]\n{COMMAND}");
    let mut stage = stage(&pipeline, SUCCEEDS);
    stage.until(at("23:59"));
    assert_eq!((stage.slots().len(), stage.started().len()), (0, 0));
    stage.until(at("23:59") + SignedDuration::from_secs(10));
    assert_eq!(stage.slots(), ["late/2026-02-24T23:59:00Z completed"]);
}

#[test]
fn case_62_without_a_schedule_there_is_a_daily_one() {
    let mut stage = stage(&format!("name: orders\n{COMMAND}"), SUCCEEDS);
    stage.until(at("09:01"));
    assert_eq!(stage.slots(), ["daily/2026-02-24T00:00:00Z completed"], "today's is owed at once");
    stage.until(at("23:59") + SignedDuration::from_mins(2));
    assert_eq!(stage.slots()[1..], ["daily/2026-02-25T00:00:00Z completed"]);
}

#[test]
fn cases_63_64_and_65_an_excluded_day_has_no_slots_and_touches_no_run() {
    let pipeline = hourly("exclusions: {days: [Tuesday]}\nsla: {evaluationDeadline: \"+1m\"}\n");
    // On Monday at 23:00 a run begins that lasts into the excluded day.
    let monday = at("00:00") - SignedDuration::from_mins(90);
    let mut stage = Stage::new(monday, &[&pipeline], |_| Job::Succeeds(2 * 60 * 60));
    stage.until(at("00:30"));
    assert_eq!(stage.slots(), ["cron/2026-02-23T23:00:00Z open(running)"]);
    let before = stage.events().len();
    stage.until(at("00:59"));
    assert_eq!(stage.events().len(), before, "nothing is said about a day that is left out");
    stage.until(at("23:59"));
    assert_eq!(stage.slots(), ["cron/2026-02-23T23:00:00Z completed"], "its run ended as always");
    assert_eq!((stage.events().len(), stage.started().len()), (before + 1, 1));
    let incidents = block_on(stage.store.incidents(None, 10)).unwrap().items;
    assert_eq!(incidents.len(), 0);
    // Wednesday is owed again.
    stage.until(at("23:59") + SignedDuration::from_mins(2));
    assert_eq!(stage.slots()[1..], ["cron/2026-02-25T00:00:00Z open(running)"]);
}

#[test]
fn cases_23_and_66_a_failure_that_may_pass_is_tried_again_after_its_wait() {
    let retry = "retry: {maxAttempts: 3, backoffSeconds: 60, retryableFailures: [TIMEOUT]}\n";
    let mut stage = Stage::new(at("09:00"), &[&at_ten(retry)], |request| match request.attempt {
        1 => Job::Fails(FailureCategory::Timeout),
        _ => SUCCEEDS,
    });
    stage.until(at("10:01"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z open(backoff)"]);
    assert_eq!(stage.slot().retry_at, Some(at("10:01") + SignedDuration::from_secs(5)));
    stage.until(at("10:02"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z completed"]);
    assert_eq!(
        stage.runs(),
        [
            "orders~cron~20260224T100000Z~1~1 FAILED scheduler",
            "orders~cron~20260224T100000Z~1~2 COMPLETED retry"
        ]
    );
    assert_eq!(
        stage.told(&RETRIES),
        ["JOB_FAILED the job exited with 1", "RETRY_SCHEDULED attempt 2 at 2026-02-24T10:01:05Z"]
    );
}

#[test]
fn case_66_without_a_wait_the_next_attempt_follows_at_once() {
    let retry = "retry: {backoffSeconds: 0}\n";
    let mut stage = Stage::new(at("09:00"), &[&at_ten(retry)], |request| match request.attempt {
        1 => Job::Fails(FailureCategory::Transient),
        _ => SUCCEEDS,
    });
    stage.until(at("10:00") + SignedDuration::from_secs(11));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z completed"]);
    assert_eq!(stage.started().len(), 2);
}

#[test]
fn case_66_a_retry_that_may_not_begin_is_slept_through() {
    let retry = "retry: {backoffSeconds: 60}\n";
    let mut stage = stage(&at_ten(retry), Job::Fails(FailureCategory::Transient));
    stage.until(at("10:00") + SignedDuration::from_secs(10));
    let pause = InboxRecord::Pause { reason: "the source is rebuilt".into(), until: None };
    assert!(stage.ask("orders", &pause).accepted);
    stage.until(at("10:02"));
    let before = stage.world.timers_set();
    stage.until(at("10:03"));
    let looks = stage.world.timers_set() - before;
    assert!(looks < 20, "{looks} looks in a minute of nothing to do");
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z open(backoff)"]);
    assert_eq!(stage.started().len(), 1);
}

#[test]
fn case_25_the_last_attempt_is_the_last() {
    let retry = "retry: {maxAttempts: 2, backoffSeconds: 1}\n";
    let mut stage = Stage::new(at("09:00"), &[&at_ten(retry)], |request| match request.attempt {
        1 | 2 => Job::Fails(FailureCategory::Timeout),
        _ => SUCCEEDS,
    });
    stage.until(at("23:00"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z failed"]);
    assert_eq!(stage.started().len(), 2);
}

#[test]
fn case_26_a_category_that_is_not_listed_is_not_tried_again() {
    let retry = "retry: {retryableFailures: [TRANSIENT]}\n";
    for category in [FailureCategory::Permanent, FailureCategory::Timeout] {
        let mut stage = stage(&at_ten(retry), Job::Fails(category));
        stage.until(at("23:00"));
        assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z failed"], "{category}");
        let expected = format!("RETRY_EXHAUSTED {category} failures are not tried again");
        assert_eq!(stage.told(&["RETRY_SCHEDULED", "RETRY_EXHAUSTED"]), [expected]);
    }
}

/// Two traits, each with an evaluator of its own.
const TRAITS: &str = "traits:\n  fresh: {evaluator: a.sh, ttl: 60}\n  complete: {evaluator: b.sh, ttl: 60}\nwatch: {interval: 5m}\n";

/// What the event of a decision says of each trait.
fn said_by_traits(stage: &Stage, kind: &str) -> Vec<String> {
    let decided = stage.events().into_iter().find(|row| row.record.kind == kind).unwrap();
    let traits = decided.record.details["traits"].as_object().unwrap().clone();
    traits
        .iter()
        .map(|(name, said)| format!("{name} {}", said["status"].as_str().unwrap()))
        .collect()
}

#[test]
fn case_38_a_slot_runs_once_every_trait_passes_and_is_asked_again_until_then() {
    let mut stage = stage(&at_ten(TRAITS), SUCCEEDS);
    stage.cast.answer("complete", Answer::Is(TraitStatus::Fail));
    stage.until(at("10:06"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z open(waiting)"]);
    stage.cast.answer("complete", Answer::Is(TraitStatus::Pass));
    stage.until(at("10:09"));
    assert_eq!(stage.started().len(), 0, "it is not its time to look again");
    stage.until(at("10:11"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z completed"]);
    let asked = stage.cast.asked();
    let looks = [at("10:00"), at("10:05"), at("10:10")];
    let expected = looks.map(|at| [(at, "fresh".to_owned()), (at, "complete".to_owned())]);
    assert_eq!(asked, expected.concat(), "each once at each look");
    assert_eq!(said_by_traits(&stage, "JOB_TRIGGERED"), ["complete PASS", "fresh PASS"]);
}

#[test]
fn case_38_a_trait_that_blocks_is_named_when_the_slot_is_given_up() {
    let mut stage = stage(&at_ten(&format!("{TRAITS}evaluation: {{window: 30m}}\n")), SUCCEEDS);
    stage.cast.answer("complete", Answer::Is(TraitStatus::Fail));
    stage.until(at("11:00"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z skipped(not_ready)"]);
    let events = stage.events();
    let given_up = events.iter().find(|row| row.record.kind == "VALIDATION_EXHAUSTED").unwrap();
    let blocking = given_up.record.details["blocking"].to_string();
    assert!(blocking.contains("complete") && !blocking.contains("fresh"), "{blocking}");
    let said = said_by_traits(&stage, "VALIDATION_EXHAUSTED");
    assert_eq!(said, ["complete FAIL", "fresh PASS"]);
    assert_eq!(stage.started().len(), 0);
}

#[test]
fn case_38_an_answer_that_is_too_old_is_no_answer() {
    let rule = "validation: {rules: [{key: landed, check: exists}]}\n";
    let mut stage = stage(&at_ten(&format!("{TRAITS}{rule}")), SUCCEEDS);
    stage.until(at("10:02"));
    assert_eq!(stage.cast.asked().len(), 2, "both passed");
    // The rest comes when the answers may not be used any more, and nobody answers now.
    stage.cast.answer("complete", Answer::Hangs);
    stage.sensor("orders", "landed", json!(1));
    stage.until(at("10:04"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z open(waiting)"]);
    // Nor does a new process believe what an old one was told.
    stage.crash();
    stage.until(at("10:20"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T10:00:00Z open(waiting)"]);
    assert_eq!(stage.started().len(), 0);
}

#[test]
fn case_38_evaluators_are_asked_at_once_and_hold_nobody_up() {
    let other = hourly("").replace("name: orders", "name: stock");
    let mut stage = Stage::new(at("09:30"), &[&at_ten(TRAITS), &other], |_| SUCCEEDS);
    stage.cast.answer("fresh", Answer::PassesAfter(40));
    stage.cast.answer("complete", Answer::PassesAfter(20));
    stage.until(at("10:01"));
    let asked: Vec<_> = stage.cast.asked().into_iter().map(|(at, _)| at).collect();
    assert_eq!(asked, [at("10:00"); 2]);
    let started: Vec<_> =
        stage.requests().into_iter().map(|r| (r.pipeline, r.triggered_at)).collect();
    let after_the_slower = at("10:00") + SignedDuration::from_secs(40);
    assert_eq!(
        started,
        [("stock".to_owned(), at("10:00")), ("orders".to_owned(), after_the_slower)]
    );
}

#[test]
fn case_38_reports_do_not_make_it_ask_more_often() {
    let traits = "traits: {fresh: {evaluator: a.sh, ttl: 1}}\nwatch: {interval: 5m}\n";
    let mut stage = stage(&at_ten(traits), SUCCEEDS);
    stage.cast.answer("fresh", Answer::Is(TraitStatus::Fail));
    stage.until(at("10:00"));
    for number in 0..20 {
        stage.sensor("orders", "other", json!(number));
    }
    stage.until(at("10:10"));
    let before = stage.cast.asked().len();
    stage.until(at("11:10"));
    let asked = stage.cast.asked().len() - before;
    assert!(asked <= 13, "every five minutes of an hour, and not {asked} times");
}

#[test]
fn case_38_an_unknown_pipeline_is_an_error_for_whoever_asks() {
    let mut stage = stage(&at_ten(""), SUCCEEDS);
    stage.until(at("09:01"));
    let run = InboxRecord::Run {
        slot: None,
        force: false,
        params: std::collections::BTreeMap::new(),
        webhook: false,
    };
    let answer = stage.ask("ordres", &run);
    assert!(!answer.accepted);
    assert_eq!(answer.result, json!({"reason": "there is no pipeline `ordres`"}));
    assert_eq!((stage.runs().len(), stage.slots().len()), (0, 0));
}
