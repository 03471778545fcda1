//! The dry run of a backfill is what it does, and a crash at any await changes nothing of it.

use std::sync::Arc;

use interlock_core::{
    backfill::{Fingerprint, Place, Verdict},
    id::{PipelineId, ScheduleId},
    retry::FailureCategory,
    run::TriggerType,
};
use interlock_engine::{Engine, Parts, Prospect, backfill_of, seam::World as _};
use interlock_ports::trigger::StartRequest;
use interlock_store::{
    Key, Record, Shard, Store, block_on,
    record::{InboxRecord, version_text},
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use crate::{
    backfill::{backfills, hourly, start, with},
    crashing::{crashing, end_of},
    stage::{Job, Stage, at},
};

fn name() -> PipelineId {
    PipelineId::parse("hourly").unwrap()
}

fn watermark(stage: &Stage, id: &ScheduleId) -> Option<Timestamp> {
    let rows = block_on(stage.store.read(&name(), &[Key::Watermark(id.clone())])).unwrap();
    let Some(Record::Watermark(mark)) = rows.into_iter().next()?.map(|row| row.record) else {
        return None;
    };
    Some(mark.at)
}

fn is_paused(stage: &Stage) -> bool {
    let rows = block_on(stage.store.read(&name(), &[Key::Pipeline])).unwrap();
    let Some(Record::Pipeline(row)) = rows[0].clone().map(|row| row.record) else { return false };
    row.pause.as_ref().is_some_and(|pause| pause.is_in_force(stage.world.now()))
}

/// The slots that would run, in order, by a walk in chunks.
fn dry_run(stage: &Stage, asked: &InboxRecord, chunk: usize) -> Vec<Place> {
    let spec = Arc::clone(&stage.files.0[&name()].pipeline);
    let record = backfill_of(&spec, asked, stage.world.now()).unwrap();
    let is_held = is_paused(stage);
    let bound = |id: &ScheduleId| watermark(stage, id).filter(|_| !is_held);
    let prospect = Prospect::new(&spec, &record, bound).unwrap();
    let (mut run, mut cursor) = (Vec::new(), None);
    loop {
        let walked = prospect.portion(stage.store.as_ref(), cursor.as_ref(), chunk);
        let portion = block_on(walked).unwrap();
        cursor = portion.slots.last().map(|(place, _)| place.clone()).or(cursor);
        let runs = portion.slots.into_iter().filter(|(_, verdict)| *verdict == Verdict::Run);
        run.extend(runs.map(|(place, _)| place));
        if portion.is_end {
            return run;
        }
    }
}

/// The slots that backfills really started, in order.
fn done(stage: &Stage) -> Vec<Place> {
    let requests = stage.requests();
    let own = requests.iter().filter(|it| it.trigger_type == TriggerType::Backfill);
    own.map(|it| {
        let (_, key) = interlock_store::RunKey::parse(&it.run_id).unwrap();
        (key.nominal, key.schedule)
    })
    .collect()
}

fn planned(asked: InboxRecord, slots: &[Place]) -> InboxRecord {
    let mut asked = asked;
    if let InboxRecord::StartBackfill { total, plan, .. } = &mut asked {
        *total = slots.len() as u64;
        *plan = version_text(slots.iter().fold(Fingerprint::default(), Fingerprint::with).0);
    }
    asked
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// A morning with crashes, failures, skips and spans; then a backfill over some of it.
    #[test]
    fn s5_the_dry_run_of_a_backfill_equals_what_the_engine_does(
        fates in proptest::collection::vec(0..4_u8, 24),
        off in (1..6_i64, 0..4_i64),
        words in (0..3_usize, 0..2_usize, 1..4_u32),
        range in (0..10_i64, 1..12_i64),
        (runs_max, window, is_paused) in (1..3_u32, 0..3_i64, any::<bool>()),
        chunk in 1..40_usize,
    ) {
        let more = format!("maxActiveRuns: {runs_max}\nretry: {{maxAttempts: 1}}\n")
            + &(if window > 0 { format!("catchupWindow: {window}h\n") } else { String::new() });
        let file = hourly(&more).replace("schedule: \"0 * * * *\"", "schedules: [{id: a, cron: '0 * * * *'}, {id: b, cron: '*/30 * * * *'}]");
        let script = move |request: &StartRequest| {
            if request.trigger_type == TriggerType::Backfill {
                return Job::Succeeds(5);
            }
            let hour: usize = request.run_id.split('~').nth(2).unwrap()[9..11].parse().unwrap();
            match fates[hour] {
                // The places are free when the backfill begins.
                _ if hour >= 11 => Job::Succeeds(5),
                0 => Job::Fails(FailureCategory::Permanent),
                1 => Job::Succeeds(4_000),
                _ => Job::Succeeds(5),
            }
        };
        let mut stage = Stage::new(at("03:10"), &[&file], script);
        stage.until(at("03:10") + SignedDuration::from_hours(off.0));
        stage.crash();
        stage.world.pass(SignedDuration::from_hours(off.1));
        if is_paused {
            stage.ask("hourly", &InboxRecord::Pause { reason: "to see".into(), until: None });
        }
        stage.until(at("14:10"));
        let (from, to) = (at("00:00") + SignedDuration::from_hours(range.0), SignedDuration::from_hours(range.1));
        let mut asked = with(
            start("00:00", "01:00"),
            [["missing", "failed", "all"][words.0], ["asc", "desc"][words.1]],
            words.2,
        );
        if let InboxRecord::StartBackfill { from: first, to: last, .. } = &mut asked {
            (*first, *last) = (from, (from + to).min(at("14:00")));
        }
        let expected = dry_run(&stage, &asked, chunk);
        let asked = planned(asked, &expected);
        prop_assert!(stage.ask("hourly", &asked).accepted);
        stage.until(at("14:29"));
        let record = &backfills(&stage)[&1];
        prop_assert_eq!(record.state.as_str(), "done");
        prop_assert_eq!(&record.opened, &record.plan, "the same slots in the same order");
        prop_assert_eq!(record.counts.opened, expected.len() as u64);
        let mut ran = done(&stage);
        if runs_max.min(words.2) > 1 {
            // Those that begin together have no order among them.
            let mut expected = expected;
            expected.sort();
            ran.sort();
            prop_assert_eq!(ran, expected);
        } else {
            prop_assert_eq!(ran, expected);
        }
    }
}

/// Lets a daemon live until it dies at a wait for the store, or until an instant.
fn live(stage: &Stage, dies_at: u64, until: Timestamp) {
    let inner = Arc::clone(&stage.store) as Arc<dyn Store>;
    let store = Arc::new(crashing(inner, dies_at));
    let parts = Parts { store: Arc::clone(&store) as Arc<dyn Store>, ..stage.parts("test") };
    let files = stage.files.clone();
    let life = async move {
        let mut engine = Engine::open(parts, Shard(0)).await.unwrap().unwrap();
        let changes = files.changes(&engine);
        engine.declare(&changes).await.unwrap();
        engine.run(Box::pin(std::future::pending())).await.unwrap();
    };
    stage.world.run(Box::pin(end_of(&store, life)).as_mut(), until);
    stage.world.kill();
}

/// A machine at half past nine, whose pipeline was seen, and whose inbox holds requests.
fn posted(requests: &[InboxRecord]) -> Stage {
    let stage = Stage::new(at("09:29"), &[&hourly("maxActiveRuns: 2\n")], |_| Job::Succeeds(20));
    live(&stage, u64::MAX, at("09:30"));
    for (number, request) in requests.iter().enumerate() {
        block_on(stage.store.post(&name(), &number.to_string(), request)).unwrap();
    }
    stage
}

/// Kills a daemon at every wait for the store in turn, lets the next one live on, and has a look.
fn at_every_await(requests: &[InboxRecord], check: impl Fn(&Stage, u64)) {
    let until = at("09:31");
    for dies_at in 0.. {
        let stage = posted(requests);
        live(&stage, dies_at, until);
        let outlived = stage.world.now() >= until;
        live(&stage, u64::MAX, at("09:45"));
        check(&stage, dies_at);
        if outlived {
            assert!(dies_at > 20, "only {dies_at} waits");
            return;
        }
    }
}

#[test]
fn a_crash_at_every_await_of_a_backfill_loses_nothing_and_doubles_nothing() {
    let asked = with(start("04:00", "09:00"), ["missing", "asc"], 2);
    at_every_await(&[asked], |stage, dies_at| {
        let all = backfills(stage);
        assert_eq!(all.len(), 1, "at {dies_at}");
        let record = &all[&1];
        assert_eq!((record.state.as_str(), record.counts.completed), ("done", 5), "at {dies_at}");
        assert_eq!(record.counts.opened, 5, "at {dies_at}");
        // `started` sees to it that no run was started twice.
        let mut ran: Vec<_> = stage.started();
        ran.sort();
        let expected: Vec<_> =
            (4..9).map(|hour| format!("hourly~cron~20260224T0{hour}0000Z~1~1")).collect();
        assert_eq!(ran, expected, "at {dies_at}");
    });
}

#[test]
fn a_crash_at_every_await_of_a_cancel_leaves_nothing_open() {
    let asked = with(start("00:00", "09:00"), ["missing", "asc"], 2);
    for ends_runs in [false, true] {
        let cancel =
            InboxRecord::CancelBackfill { backfill: 1, reason: "enough".into(), ends_runs };
        at_every_await(&[asked.clone(), cancel], |stage, dies_at| {
            let record = &backfills(stage)[&1];
            assert_eq!((record.state.as_str(), record.open.len()), ("cancelled", 0), "{dies_at}");
            assert_eq!(record.counts.ended(), record.counts.opened, "at {dies_at}");
            let slots = stage.slots();
            assert!(slots.iter().all(|line| !line.contains("open(")), "at {dies_at}: {slots:?}");
        });
    }
}

#[test]
fn a_cancel_in_the_middle_survives_a_crash_at_every_await() {
    let asked = with(start("00:00", "09:00"), ["missing", "asc"], 2);
    let cancel =
        InboxRecord::CancelBackfill { backfill: 1, reason: "enough".into(), ends_runs: true };
    let until = at("09:32");
    for dies_at in 0.. {
        let stage = posted(std::slice::from_ref(&asked));
        live(&stage, u64::MAX, at("09:31"));
        block_on(stage.store.post(&name(), "cancel", &cancel)).unwrap();
        live(&stage, dies_at, until);
        let outlived = stage.world.now() >= until;
        live(&stage, u64::MAX, at("09:45"));
        let record = &backfills(&stage)[&1];
        let seen = stage.slots();
        assert_eq!((record.state.as_str(), record.open.len()), ("cancelled", 0), "{dies_at}");
        assert_eq!(record.counts.ended(), record.counts.opened, "at {dies_at}");
        assert!(seen.iter().all(|line| !line.contains("open(")), "at {dies_at}: {seen:?}");
        stage.started();
        if outlived {
            assert!(dies_at > 20, "only {dies_at} waits");
            return;
        }
    }
}
