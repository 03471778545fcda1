//! Stop and restart schedules, and that a request to end a job outlives the process that took it.

use std::{future::Future, sync::Arc};

use interlock_core::{id::PipelineId, retry::FailureCategory};
use interlock_engine::{Engine, Parts, seam::World as _};
use interlock_ports::trigger::StartRequest;
use interlock_store::{
    Shard, Store, block_on,
    record::{InboxRecord, SlotName},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    crashing::{crashing, end_of},
    stage::{Job, Stage, at},
};

const COMMAND: &str = "trigger: {type: command, command: work}\n";

fn pipeline(schedule: &str) -> String {
    format!("name: feed\nschedule: {{{schedule}}}\n{COMMAND}")
}

/// Two hours, unless somebody ends it.
fn long(_: &StartRequest) -> Job {
    Job::Succeeds(7_200)
}

fn stage(schedule: &str) -> Stage {
    Stage::new(at("08:50"), &[&pipeline(schedule)], long)
}

/// Begins a minute before a stop or restart at half past nine, so that there are few places to die at.
fn late(control: &str) -> Stage {
    let feed = pipeline(&format!("start: '29 9 * * *', {control}"));
    Stage::new(at("09:28"), &[&feed], long)
}

fn slot(time: &str) -> SlotName {
    SlotName { schedule: "cron".to_owned(), nominal: at(time) }
}

fn cancel(time: &str) -> InboxRecord {
    InboxRecord::Cancel { slot: slot(time), reason: "enough".to_owned() }
}

fn name() -> PipelineId {
    PipelineId::parse("feed").unwrap()
}

/// Lets a daemon live until it dies at a wait for the store, or until an instant. No time passes between
/// its death and the next one.
fn live(stage: &Stage, dies_at: u64, until: Timestamp) {
    let files = stage.files.clone();
    spend(stage, dies_at, until, async move |parts| {
        let mut engine = Engine::open(parts, Shard(0)).await.unwrap().unwrap();
        let changes = files.changes(&engine);
        engine.declare(&changes).await.unwrap();
        engine.run(Box::pin(std::future::pending())).await.unwrap();
    });
}

fn spend<L>(stage: &Stage, dies_at: u64, until: Timestamp, life: impl FnOnce(Parts) -> L)
where
    L: Future<Output = ()> + Send,
{
    let inner = Arc::clone(&stage.store) as Arc<dyn Store>;
    let store = Arc::new(crashing(inner, dies_at));
    let parts = Parts { store: Arc::clone(&store) as Arc<dyn Store>, ..stage.parts("test") };
    let life = life(parts);
    stage.world.run(Box::pin(end_of(&store, life)).as_mut(), until);
    stage.world.kill();
}

/// Kills a daemon at every wait for the store in turn, lets the next one live on, and has a look; until one
/// outlives the case.
fn at_every_await(stage: impl Fn() -> Stage, until: &str, check: impl Fn(&Stage, u64)) {
    for dies_at in 0.. {
        let stage = stage();
        live(&stage, dies_at, at(until));
        let outlived = stage.world.now() >= at(until);
        live(&stage, u64::MAX, at("09:40"));
        check(&stage, dies_at);
        if outlived {
            assert!(dies_at > 20, "only {dies_at} waits");
            return;
        }
    }
}

#[test]
fn a_stop_ends_the_running_run() {
    let mut stage = stage("start: '0 9 * * *', stop: '30 * * * *'");
    stage.until(at("09:29"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T09:00:00Z open(running)"]);
    stage.until(at("09:31"));
    assert_eq!(
        stage.slots(),
        ["cron/2026-02-24T09:00:00Z cancelled", "stop/2026-02-24T09:30:00Z completed"]
    );
    assert_eq!(stage.runs(), ["feed~cron~20260224T090000Z~1~1 CANCELLED scheduler"]);
    assert_eq!(stage.told(&["STOP_FIRED"]), ["STOP_FIRED it ends cron/2026-02-24T09:00:00Z"]);
    // The next one finds nothing.
    stage.until(at("10:31"));
    assert_eq!(stage.slots().len(), 3, "{:?}", stage.slots());
    assert_eq!(stage.cast.cancelled().len(), 1);
}

#[test]
fn a_stop_without_a_running_run_is_recorded_and_harmless() {
    let mut stage = stage("start: '0 10 * * *', stop: '30 * * * *'");
    stage.until(at("09:40"));
    assert_eq!(stage.slots(), ["stop/2026-02-24T09:30:00Z completed"]);
    assert_eq!(stage.told(&["STOP_FIRED"]), ["STOP_FIRED nothing ran that it could end"]);
    stage.until(at("10:10"));
    assert_eq!(stage.started(), ["feed~cron~20260224T100000Z~1~1"]);
    assert!(stage.cast.cancelled().is_empty());
}

#[test]
fn a_stop_ends_what_is_in_backoff_and_leaves_what_queues() {
    let feed = pipeline("start: '0,10 9 * * *', stop: '20 9 * * *'")
        + "overlapPolicy: all\nretry: {maxAttempts: 3, backoffSeconds: 3600}\n";
    let mut stage = Stage::new(at("08:50"), &[&feed], |request| {
        let is_first = request.slot == at("09:00");
        if is_first { Job::Fails(FailureCategory::Transient) } else { Job::Succeeds(60) }
    });
    stage.until(at("09:19"));
    assert_eq!(
        stage.slots(),
        ["cron/2026-02-24T09:00:00Z open(backoff)", "cron/2026-02-24T09:10:00Z open(queued)"]
    );
    stage.until(at("09:25"));
    assert_eq!(
        stage.slots(),
        [
            "cron/2026-02-24T09:00:00Z cancelled",
            "cron/2026-02-24T09:10:00Z completed",
            "stop/2026-02-24T09:20:00Z completed"
        ]
    );
}

#[test]
fn late_ones_are_expired_and_never_replayed_nor_counted_as_missed() {
    let mut stage = stage("start: '0 9 * * *', stop: '0,20,40 * * * *', restart: '10 11 * * *'");
    stage.until(at("09:05"));
    stage.crash();
    stage.world.pass(at("11:30").duration_since(stage.world.now()));
    // The job of nine o'clock is over by now; nothing is ended or started for the sake of the past.
    stage.until(at("11:35"));
    let skipped: Vec<_> = stage.told(&["STOP_SKIPPED", "RESTART_SKIPPED", "SLOTS_MISSED"]);
    assert_eq!(
        skipped,
        [
            "STOP_SKIPPED 7 of stop from 2026-02-24T09:20:00Z to 2026-02-24T11:20:00Z do nothing: it was \
             too late",
            "RESTART_SKIPPED restart/2026-02-24T11:10:00Z does nothing: it was too late"
        ]
    );
    assert_eq!(
        stage.slots(),
        [
            "cron/2026-02-24T09:00:00Z completed",
            "stop/2026-02-24T09:00:00Z completed",
            "7 times skipped",
            "restart/2026-02-24T11:10:00Z skipped(expired)"
        ]
    );
    assert_eq!(stage.started().len(), 1);
    assert!(stage.cast.cancelled().is_empty());
    let incidents = block_on(stage.store.incidents(None, 10)).unwrap().items;
    assert!(incidents.is_empty(), "{incidents:?}");
    stage.until(at("11:41"));
    assert_eq!(stage.slots().last().unwrap(), "stop/2026-02-24T11:40:00Z completed");
}

#[test]
fn of_several_restarts_that_are_due_at_once_one_starts() {
    let feed = pipeline("restart: '*/15 * * * * *', seconds: true");
    let stage = Stage::new(at("09:00"), &[&feed], long);
    live(&stage, u64::MAX, at("09:00") + SignedDuration::from_secs(1));
    stage.world.pass(SignedDuration::from_secs(60));
    live(&stage, u64::MAX, at("09:01") + SignedDuration::from_secs(5));
    assert_eq!(stage.slots(), ["3 times skipped", "restart/2026-02-24T09:01:00Z open(running)"]);
    assert_eq!(stage.started(), ["feed~restart~20260224T090100Z~1~1"]);
}

#[test]
fn the_slot_of_a_stop_is_not_run() {
    let mut stage = stage("start: '0 10 * * *', stop: '30 9 * * *'");
    stage.until(at("09:40"));
    let stop = || SlotName { schedule: "stop".to_owned(), nominal: at("09:30") };
    let rerun = InboxRecord::Rerun { slot: stop(), reason: "again".to_owned() };
    let run =
        InboxRecord::Run { slot: Some(stop()), force: true, params: [].into(), webhook: false };
    for request in [rerun, run] {
        let answer = stage.ask("feed", &request);
        assert!(!answer.accepted, "{answer:?}");
        assert!(answer.result.to_string().contains("no job ran in it"), "{answer:?}");
    }
    assert!(stage.started().is_empty());
}

#[test]
fn a_restart_starts_a_new_run_once_the_old_one_has_ended() {
    let mut stage = stage("start: '0 9 * * *', restart: '30 9 * * *'");
    stage.until(at("09:29"));
    let params = [("day".to_owned(), "monday".to_owned())].into();
    let asked = stage.ask("feed", &cancel("09:00"));
    assert!(asked.accepted);
    let run = InboxRecord::Run { slot: Some(slot("09:00")), force: false, params, webhook: false };
    assert!(stage.ask("feed", &run).accepted);
    stage.until(at("09:40"));
    assert_eq!(
        stage.slots(),
        ["cron/2026-02-24T09:00:00Z cancelled", "restart/2026-02-24T09:30:00Z open(running)"]
    );
    assert_eq!(
        stage.runs(),
        [
            "feed~cron~20260224T090000Z~1~1 CANCELLED scheduler",
            "feed~cron~20260224T090000Z~2~1 CANCELLED manual",
            "feed~restart~20260224T093000Z~1~1 RUNNING scheduler"
        ]
    );
    // It is the same work: with the parameters of what it ended, and the name of that.
    let again = stage.requests().pop().unwrap();
    assert_eq!(again.params.get("day").map(String::as_str), Some("monday"));
    let metadata = stage.run_rows().pop().unwrap().record.metadata;
    assert_eq!(metadata["originalRunId"], "feed~cron~20260224T090000Z~2~1");
}

#[test]
fn a_restart_without_a_running_run_starts_one() {
    let mut stage = stage("restart: '30 9 * * *'");
    stage.until(at("09:40"));
    assert_eq!(stage.started(), ["feed~restart~20260224T093000Z~1~1"]);
    assert!(stage.cast.cancelled().is_empty());
}

#[test]
fn in_a_pause_stops_fire_and_restarts_do_not() {
    let mut stage = stage("start: '0 9 * * *', restart: '20 9 * * *', stop: '30 9 * * *'");
    stage.until(at("09:05"));
    let pause = InboxRecord::Pause { reason: "audit".to_owned(), until: None };
    assert!(stage.ask("feed", &pause).accepted);
    stage.until(at("09:25"));
    assert_eq!(
        stage.slots(),
        ["cron/2026-02-24T09:00:00Z open(running)", "restart/2026-02-24T09:20:00Z skipped(paused)"]
    );
    stage.until(at("09:40"));
    assert_eq!(stage.slots()[0], "cron/2026-02-24T09:00:00Z cancelled");
    assert_eq!(stage.slots()[2], "stop/2026-02-24T09:30:00Z completed");
    assert_eq!(stage.started().len(), 1);
}

#[test]
fn a_stop_is_no_completed_work_for_who_waits_for_the_pipeline() {
    let feed = pipeline("start: '0 9 * * *', stop: '30 9 * * *'");
    let report = format!("name: report\nschedule: '40 9 * * *'\ndependsOn: [feed]\n{COMMAND}");
    let mut stage = Stage::new(at("08:50"), &[&feed, &report], long);
    stage.until(at("09:50"));
    assert_eq!(stage.started(), ["feed~cron~20260224T090000Z~1~1"], "{:?}", stage.slots());
}

#[test]
fn a_stop_fires_once_across_a_crash_at_every_await() {
    let feed = || late("stop: '30 * * * *'");
    at_every_await(feed, "09:31", |stage, dies_at| {
        let expected =
            ["cron/2026-02-24T09:29:00Z cancelled", "stop/2026-02-24T09:30:00Z completed"];
        assert_eq!(stage.slots(), expected, "death at wait {dies_at}");
        assert_eq!(stage.told(&["STOP_FIRED"]).len(), 1, "death at wait {dies_at}");
        assert_eq!(stage.started().len(), 1, "death at wait {dies_at}");
    });
}

#[test]
fn a_restart_starts_a_new_run_exactly_once_across_a_crash_at_every_await() {
    let feed = || late("restart: '30 9 * * *'");
    at_every_await(feed, "09:31", |stage, dies_at| {
        let expected = ["feed~cron~20260224T092900Z~1~1", "feed~restart~20260224T093000Z~1~1"];
        assert_eq!(stage.started(), expected, "death at wait {dies_at}");
        assert_eq!(stage.told(&["RESTART_FIRED"]).len(), 1, "death at wait {dies_at}");
        let slots = stage.slots();
        assert_eq!(slots[0], "cron/2026-02-24T09:29:00Z cancelled", "death at wait {dies_at}");
    });
}

#[test]
fn a_cancel_survives_a_crash_at_every_await() {
    let asked = || {
        let mut stage = stage("start: '0 9 * * *'");
        stage.until(at("09:05"));
        stage.crash();
        block_on(stage.store.post(&name(), "key", &cancel("09:00"))).unwrap();
        stage
    };
    at_every_await(asked, "09:10", |stage, dies_at| {
        assert_eq!(stage.slots(), ["cron/2026-02-24T09:00:00Z cancelled"], "at wait {dies_at}");
        assert_eq!(stage.cast.cancelled().len(), 1, "death at wait {dies_at}");
    });
}

#[test]
fn a_run_that_never_started_and_was_cancelled_never_starts() {
    let mut never_started = 0;
    for dies_at in 0.. {
        let stage = stage("start: '0 9 * * *'");
        live(&stage, dies_at, at("09:05"));
        let outlived = stage.world.now() >= at("09:05");
        let is_recorded = stage.runs().len() == 1;
        if is_recorded && stage.started().is_empty() {
            never_started += 1;
            // Nobody serves: the command itself applies what is asked for.
            block_on(stage.store.post(&name(), "key", &cancel("09:00"))).unwrap();
            let until = stage.world.now() + SignedDuration::from_secs(30);
            spend(&stage, u64::MAX, until, async |parts: Parts| {
                let alone = Engine::open_one(parts, &name(), None).await.unwrap();
                let mut alone = alone.unwrap();
                alone.pass().await.unwrap();
                alone.close().await.unwrap();
            });
            live(&stage, u64::MAX, at("09:50"));
            assert!(stage.started().is_empty(), "death at wait {dies_at}");
            assert_eq!(stage.slots(), ["cron/2026-02-24T09:00:00Z cancelled"]);
            assert_eq!(stage.runs(), ["feed~cron~20260224T090000Z~1~1 CANCELLED scheduler"]);
        }
        if outlived {
            assert!(never_started > 0, "no death fell between the record and the start");
            return;
        }
    }
}

#[test]
fn a_cancel_that_did_not_get_through_is_sent_again() {
    let mut stage = stage("start: '0 9 * * *'");
    stage.until(at("09:05"));
    stage.cast.deafen();
    assert!(stage.ask("feed", &cancel("09:00")).accepted);
    stage.until(at("09:10"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T09:00:00Z open(running)"]);
    stage.cast.listen();
    stage.until(at("09:11"));
    assert_eq!(stage.slots(), ["cron/2026-02-24T09:00:00Z cancelled"]);
}

#[test]
fn a_job_that_fails_after_its_end_was_asked_for_is_not_tried_again() {
    let feed = pipeline("start: '0 9 * * *'") + "retry: {maxAttempts: 3, backoffSeconds: 60}\n";
    let fails = |_: &StartRequest| Job::Fails(FailureCategory::Transient);
    let mut stage = Stage::new(at("08:50"), &[&feed], fails);
    stage.cast.deafen();
    stage.until(at("09:00") + SignedDuration::from_secs(1));
    block_on(stage.store.post(&name(), "key", &cancel("09:00"))).unwrap();
    stage.until(at("09:30"));
    assert_eq!(stage.slots()[0], "cron/2026-02-24T09:00:00Z cancelled");
    assert_eq!(stage.runs(), ["feed~cron~20260224T090000Z~1~1 CANCELLED scheduler"]);
}
