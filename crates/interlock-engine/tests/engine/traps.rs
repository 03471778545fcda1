//! Mistakes that other schedulers made, on virtual time: each test would fail on the old behaviour.
//!
//! Which trap is guarded by which test is listed in `crates/interlock/tests/serve/traps.rs`.

use std::{future::Future, pin::Pin, sync::Arc};

use interlock_core::{id::PipelineId, retry::FailureCategory};
use interlock_engine::{Changes, Engine, Parts};
use interlock_ports::trigger::{Outcome, Report, What};
use interlock_store::{
    LedgerEntry, LedgerQuery, Shard, Store as _, block_on,
    record::{InboxRecord, SlotName},
};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

use crate::{
    Files,
    stage::{Job, Stage, at},
};

const HOURLY: &str =
    "name: hourly\nschedule: \"0 * * * *\"\ntrigger: {type: command, command: 'true'}\n";

fn stage(now: &str) -> Stage {
    Stage::new(at(now), &[HOURLY], |_| Job::Succeeds(5))
}

pub(crate) type Life = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An engine with these files, to be run by the stage's world.
pub(crate) fn engine(parts: Parts, files: &[&str]) -> Life {
    let files = Files::new(files);
    let parts = Parts { specs: Arc::new(files.clone()), ..parts };
    Box::pin(async move {
        let mut engine = Engine::open(parts, Shard(0)).await.unwrap().unwrap();
        let changes = files.changes(&engine);
        engine.declare(&changes).await.unwrap();
        engine.run(Box::pin(std::future::pending())).await.unwrap();
    })
}

/// Lets an engine live until an instant.
pub(crate) fn live(stage: &Stage, engine: &mut Life, until: Timestamp) {
    assert!(stage.world.run(engine.as_mut(), until).is_none(), "the engine lives");
}

/// What the ledger says about a pipeline, hour by hour; a span as its first hour and its count.
pub(crate) fn hours(stage: &Stage, pipeline: &str) -> Vec<String> {
    let pipeline = Some(PipelineId::parse(pipeline).unwrap());
    let query = LedgerQuery { pipeline, ..LedgerQuery::everything(1_000) };
    let rows = block_on(stage.store.ledger(&query)).unwrap().items;
    let line = |row: &interlock_store::LedgerRow| {
        let hour = row.nominal.strftime("%H");
        match &row.entry {
            LedgerEntry::Slot(slot) => format!("{hour} {}", slot.to_core().unwrap().state),
            LedgerEntry::Span(span) => {
                format!(
                    "{hour} and on: {} {}",
                    span.count,
                    span.reason.as_deref().unwrap_or_default()
                )
            }
        }
    };
    rows.iter().map(line).collect()
}

#[test]
fn dagu_1_2_9_and_20_after_a_freeze_the_live_slot_runs_and_the_rest_is_recorded_at_once() {
    let mut stage = stage("09:30");
    stage.until(at("10:30"));
    // The process is stopped, or the laptop sleeps, over three hours and a half.
    stage.world.pass(SignedDuration::from_mins(210));
    stage.until(at("14:01"));
    stage.until(at("15:01"));
    assert_eq!(
        hours(&stage, "hourly"),
        ["10 completed", "11 and on: 3 no_catchup", "14 completed", "15 completed"]
    );
    assert_eq!(stage.started().len(), 3, "no burst");
    assert_eq!(stage.told(&["SLOTS_MISSED"]).len(), 1);
}

#[test]
fn dagu_3_a_second_crash_right_after_downtime_loses_nothing() {
    let mut stage = stage("09:30");
    stage.until(at("10:30"));
    stage.crash();
    stage.world.pass(SignedDuration::from_hours(3));
    let soon = stage.world.time() + SignedDuration::from_millis(1);
    stage.until(soon);
    stage.crash();
    stage.until(at("15:01"));
    assert_eq!(
        hours(&stage, "hourly"),
        ["10 completed", "11 and on: 3 no_catchup", "14 completed", "15 completed"]
    );
}

#[test]
fn dagu_4_an_edit_during_downtime_loses_nothing() {
    let stage = stage("09:30");
    live(&stage, &mut engine(stage.parts("test"), &[HOURLY]), at("10:30"));
    stage.world.pass(SignedDuration::from_hours(3));
    let edited = format!("{HOURLY}owner: somebody\n");
    live(&stage, &mut engine(stage.parts("test"), &[&edited]), at("14:30"));
    assert_eq!(
        hours(&stage, "hourly"),
        ["10 completed", "11 and on: 3 no_catchup", "14 completed"]
    );
}

#[test]
fn dagu_5_a_new_ledger_owes_nothing_from_before_it() {
    let mut stage = stage("12:00");
    // The instant of first sight itself is not owed either: who comes at noon is early for one o'clock.
    stage.until(at("13:30"));
    assert_eq!(hours(&stage, "hourly"), ["13 completed"]);
}

#[test]
fn dagu_6_a_file_that_was_written_during_downtime_owes_nothing_from_before_it_was_seen() {
    let stage = stage("09:30");
    live(&stage, &mut engine(stage.parts("test"), &[HOURLY]), at("10:30"));
    stage.world.pass(SignedDuration::from_hours(3));
    let newcomer = HOURLY.replace("hourly", "newcomer");
    live(&stage, &mut engine(stage.parts("test"), &[HOURLY, &newcomer]), at("14:30"));
    assert_eq!(hours(&stage, "newcomer"), ["14 completed"]);
}

#[test]
fn dagu_7_a_slot_that_finds_a_run_is_recorded_with_its_reason() {
    let mut stage = Stage::new(at("09:30"), &[HOURLY], |_| Job::Succeeds(90 * 60));
    stage.until(at("12:01"));
    assert_eq!(
        hours(&stage, "hourly"),
        ["10 completed", "11 skipped(overlap)", "12 open(running)"]
    );
    assert_eq!(stage.told(&["SLOT_SKIPPED"]), ["SLOT_SKIPPED the run before it was still going"]);
}

#[test]
fn dagu_10_what_a_pause_covers_is_recorded_once_and_what_follows_runs() {
    let mut stage = stage("09:30");
    stage.until(at("10:30"));
    let pause = InboxRecord::Pause { reason: "to see".to_owned(), until: None };
    assert!(stage.ask("hourly", &pause).accepted);
    stage.until(at("13:30"));
    assert!(stage.ask("hourly", &InboxRecord::Resume { catchup: None }).accepted);
    stage.until(at("15:01"));
    let hours = hours(&stage, "hourly");
    assert_eq!(hours.first().map(String::as_str), Some("10 completed"));
    assert_eq!(hours.iter().rev().take(2).collect::<Vec<_>>(), ["15 completed", "14 completed"]);
    let covered = hours.get(1).unwrap();
    assert!(hours.len() == 4 && covered.starts_with("11 and on: 3"), "{hours:?}");
    assert_eq!(stage.started().len(), 3);
}

#[test]
fn dagu_e23_a_slot_that_somebody_asks_for_before_its_time_still_has_its_time() {
    let mut stage = stage("09:30");
    stage.until(at("10:30"));
    // Of an hour that has not come.
    let name = SlotName { schedule: "cron".to_owned(), nominal: at("12:00") };
    let run =
        InboxRecord::Run { slot: Some(name), force: false, params: [].into(), webhook: false };
    let answer = stage.ask("hourly", &run);
    assert!(!answer.accepted && answer.result["reason"].as_str().unwrap().contains("at its time"));
    stage.until(at("13:30"));
    let expected = ["10 completed", "11 completed", "12 completed", "13 completed"];
    assert_eq!(hours(&stage, "hourly"), expected, "{answer:?}");
    assert_eq!(stage.started().len(), 4);
}

#[test]
fn d2_3_an_end_that_is_told_again_does_not_end_the_attempt_after_it() {
    let retried = format!("{HOURLY}retry: {{maxAttempts: 3, backoffSeconds: 1}}\n");
    let stage = Stage::new(at("09:30"), &[&retried], |_| Job::Succeeds(86_400));
    // What the jobs say is said here.
    let (tell, reports) = mpsc::unbounded_channel();
    let parts = Parts { reports, ..stage.parts("test") };
    let say = |attempt: u32, at: Timestamp, outcome: Outcome| {
        let run_id = format!("hourly~cron~20260224T100000Z~1~{attempt}");
        tell.send(Report { run_id, at, what: What::Finished(outcome) }).unwrap();
    };
    let failure = || Outcome::Failure {
        message: "the job exited with 1".to_owned(),
        category: FailureCategory::Transient,
        metadata: [].into(),
    };
    let mut engine = engine(parts, &[&retried]);
    live(&stage, &mut engine, at("10:05"));
    say(1, at("10:05"), failure());
    live(&stage, &mut engine, at("10:10"));
    // A restart is told what nobody acknowledged, and looks it up as well: the same end, once more.
    say(1, at("10:05"), failure());
    live(&stage, &mut engine, at("10:20"));
    say(2, at("10:20"), Outcome::Success { metadata: [].into() });
    live(&stage, &mut engine, at("10:30"));
    assert_eq!(hours(&stage, "hourly"), ["10 completed"]);
    assert_eq!(
        stage.started(),
        ["hourly~cron~20260224T100000Z~1~1", "hourly~cron~20260224T100000Z~1~2"]
    );
}

#[test]
fn s16_a_version_owes_nothing_from_before_it_came() {
    // Found by the simulator: edited at 10:20, the new schedule's 10:15 was "missed" and caught up.
    let old = "name: edited\nschedule: \"0 * * * *\"\ncatchupWindow: 1d\noverlapPolicy: all\n\
               trigger: {type: command, command: 'true'}\n";
    let new = old.replace("0 * * * *", "*/15 * * * *");
    let stage = Stage::new(at("09:30"), &[old], |_| Job::Succeeds(5));
    let files = Files::new(&[&new]);
    let (edit, declarations) = mpsc::channel(1);
    let parts = Parts { declarations, ..stage.parts("test") };
    let mut life = engine(parts, &[old]);
    live(&stage, &mut life, at("10:20"));
    let changes = Changes { declared: files.0.values().cloned().collect(), removed: vec![] };
    edit.try_send(changes).unwrap();
    live(&stage, &mut life, at("10:46"));
    assert_eq!(
        stage.slots(),
        ["10:00", "10:30", "10:45"].map(|time| format!("cron/2026-02-24T{time}:00Z completed"))
    );
}

#[test]
fn a_start_that_stays_unclear_is_not_tried_without_a_pause() {
    // Found by the simulator: unclear, never started, started again, for ever at one instant.
    let mut stage = Stage::new(at("09:30"), &[HOURLY], |_| Job::Unclear);
    stage.until(at("10:01"));
    let tries = stage.told(&["JOB_TRIGGERED"]).len();
    assert!((2..=8).contains(&tries), "{tries} tries in a minute");
}

#[test]
fn two_runs_asked_for_in_one_millisecond_are_two_slots() {
    // Found by the simulator: the second was refused by its key, and applied again until the clock moved on.
    let mut stage = stage("09:30");
    stage.until(at("09:31"));
    let name = PipelineId::parse("hourly").unwrap();
    let run = InboxRecord::Run { slot: None, force: false, params: [].into(), webhook: false };
    for key in ["one", "other"] {
        block_on(stage.store.post(&name, key, &run)).unwrap();
    }
    stage.until(at("09:32"));
    assert_eq!(stage.started().len(), 2, "{:?}", stage.slots());
    assert_eq!(stage.told(&["SLOT_OPENED"]).len(), 2);
}

#[test]
fn s6_a_place_is_given_up_before_it_is_taken() {
    // Found by the simulator: a rerun of an older slot was recorded as running before the run that had it timed out.
    let mut stage = Stage::new(at("08:30"), &[HOURLY], |request| match request.slot {
        slot if slot == at("10:00") => Job::Succeeds(200_000),
        _ => Job::Succeeds(5),
    });
    stage.until(at("10:30"));
    let slot = SlotName { schedule: "cron".to_owned(), nominal: at("09:00") };
    let rerun = InboxRecord::Rerun { slot, reason: "again".to_owned() };
    assert!(stage.ask("hourly", &rerun).accepted);
    stage.until(at("10:05") + SignedDuration::from_hours(24));
    let events = stage.events();
    let place = |kind: &str, slot: &str| {
        let is_it = |event: &interlock_store::EventRow| {
            event.record.kind == kind && event.record.slot.as_deref() == Some(slot)
        };
        events.iter().rposition(is_it).unwrap()
    };
    let given_up = place("SFN_TIMEOUT", "cron/2026-02-24T10:00:00Z");
    let taken = place("JOB_TRIGGERED", "cron/2026-02-24T09:00:00Z");
    assert!(given_up < taken, "{given_up} comes after {taken}");
}
