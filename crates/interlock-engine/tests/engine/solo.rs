//! An engine for one pipeline, as a command is one while nobody serves: killed at every await, and what it
//! must leave alone. What a person names becomes a row ahead of the watermark (ADR 51).

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_engine::{Engine, Parts, seam::World as _};
use interlock_store::{
    Key, LedgerEntry, LedgerQuery, LedgerRow, Record, Shard, Store as _, block_on,
    record::{BackfillRecord, InboxRecord, SlotName, SlotRecord},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::{DAILY, HOURLY, Machine};

fn name(text: &str) -> PipelineId {
    PipelineId::parse(text).unwrap()
}

impl Machine {
    /// The slots of `hourly` by schedule.
    fn slots_of(&self, schedule: &str) -> Vec<(Timestamp, SlotRecord)> {
        let query =
            LedgerQuery { pipeline: Some(name("hourly")), ..LedgerQuery::everything(usize::MAX) };
        let rows = block_on(self.store.ledger(&query)).unwrap().items.into_iter();
        let slot = |row: LedgerRow| match row.entry {
            LedgerEntry::Slot(slot) if row.schedule.as_str() == schedule => {
                Some((row.nominal, Arc::unwrap_or_clone(slot)))
            }
            LedgerEntry::Slot(_) | LedgerEntry::Span(_) => None,
        };
        rows.filter_map(slot).collect()
    }

    fn watermark(&self) -> Timestamp {
        let key = Key::Watermark(ScheduleId::any("cron").unwrap());
        let rows = block_on(self.store.read(&name("hourly"), &[key])).unwrap();
        match rows.into_iter().next().flatten().map(|row| row.record) {
            Some(Record::Watermark(watermark)) => watermark.at,
            other => panic!("{other:?}"),
        }
    }

    fn unapplied(&self) -> Vec<PipelineId> {
        let entries = block_on(self.store.inbox(Shard(0), 100)).unwrap().items;
        entries.into_iter().map(|entry| entry.pipeline).collect()
    }

    /// What `interlock run hourly --slot` does without a daemon, until it dies or is done.
    fn run_slot_alone(&self, dies_at: u64, nominal: Timestamp) {
        let until = self.world.now() + SignedDuration::from_mins(5);
        self.spend(dies_at, until, async |parts: Parts| {
            let hourly = name("hourly");
            let declared = &self.files.0[&hourly];
            let engine = Engine::open_one(parts, &hourly, Some(declared)).await.unwrap();
            let mut engine = engine.unwrap();
            engine.pass().await.unwrap();
            let cron = ScheduleId::any("cron").unwrap();
            engine.drive(&cron, nominal).await;
            loop {
                let wake = engine.pass().await.unwrap();
                if self.is_over(nominal) {
                    return engine.close().await.unwrap();
                }
                engine.wait(wake).await;
            }
        });
    }

    /// What `interlock backfill start hourly --follow` does without a daemon, until it dies or is done.
    fn backfill_alone(&self, dies_at: u64) {
        let until = self.world.now() + SignedDuration::from_mins(5);
        self.spend(dies_at, until, async |parts: Parts| {
            let hourly = name("hourly");
            let declared = &self.files.0[&hourly];
            let engine = Engine::open_one(parts, &hourly, Some(declared)).await.unwrap();
            let mut engine = engine.unwrap();
            engine.pass().await.unwrap();
            engine.drive_backfill(1).await.unwrap();
            loop {
                let wake = engine.pass().await.unwrap();
                if self.backfill().is_some_and(|record| !record.is_unfinished()) {
                    return engine.close().await.unwrap();
                }
                engine.wait(wake).await;
            }
        });
    }

    fn backfill(&self) -> Option<BackfillRecord> {
        let rows = block_on(self.store.read(&name("hourly"), &[Key::Backfill(1)])).unwrap();
        match rows.into_iter().next().flatten().map(|row| row.record) {
            Some(Record::Backfill(record)) => Some(Arc::unwrap_or_clone(record)),
            _ => None,
        }
    }

    fn is_over(&self, nominal: Timestamp) -> bool {
        self.slots_of("cron").iter().any(|(at, slot)| *at == nominal && !slot.is_open())
    }

    /// The scheduled slots that have a row of their own: hour, what became of it, and who opened it.
    fn fates(&self) -> Vec<String> {
        let fate = |(at, slot): (Timestamp, SlotRecord)| {
            let fate = slot.disposition.as_deref().unwrap_or("open").to_owned();
            let reason = slot.reason.as_deref().map_or(String::new(), |it| format!("({it})"));
            format!("{} {fate}{reason} {}", at.strftime("%H"), slot.opened_by)
        };
        self.slots_of("cron").into_iter().map(fate).collect()
    }

    /// How often a job began for each scheduled slot.
    fn began(&self) -> BTreeMap<String, u32> {
        let mut began = BTreeMap::new();
        for (run, count) in self.jobs.starts() {
            let slot = run.split('~').nth(2).unwrap_or_default().to_owned();
            *began.entry(slot).or_default() += count;
        }
        began
    }

    /// What `interlock run hourly` does without a daemon, until it dies or is done.
    fn run_alone(&self, dies_at: u64) {
        let until = self.world.now() + SignedDuration::from_mins(5);
        self.spend(dies_at, until, async |parts: Parts| {
            let hourly = name("hourly");
            let declared = &self.files.0[&hourly];
            let engine = Engine::open_one(parts, &hourly, Some(declared)).await.unwrap();
            let mut engine = engine.unwrap();
            engine.pass().await.unwrap();
            let (nominal, _) = self.slots_of("manual").pop().unwrap();
            let manual = ScheduleId::any("manual").unwrap();
            engine.drive(&manual, nominal).await;
            loop {
                let wake = engine.pass().await.unwrap();
                if !self.slots_of("manual")[0].1.is_open() {
                    return engine.close().await.unwrap();
                }
                engine.wait(wake).await;
            }
        });
    }
}

/// A machine whose daemon was stopped two hours ago, with a request for each pipeline.
fn abandoned() -> Machine {
    let machine = Machine::new(&[HOURLY, DAILY]);
    machine.live(u64::MAX, machine.world.now() + SignedDuration::from_mins(10));
    machine.world.pass(SignedDuration::from_hours(2));
    let run =
        InboxRecord::Run { slot: None, force: false, params: BTreeMap::new(), webhook: false };
    block_on(machine.store.post(&name("hourly"), "a run", &run)).unwrap();
    let sensor =
        InboxRecord::Sensor { key: "rows".into(), value: json!(1), at: machine.world.now() };
    block_on(machine.store.post(&name("daily"), "a sensor", &sensor)).unwrap();
    machine
}

#[test]
fn it_runs_what_it_was_asked_for_and_leaves_the_rest() {
    let machine = abandoned();
    let before = machine.watermark();
    machine.run_alone(u64::MAX);
    let manual = machine.slots_of("manual");
    assert_eq!(manual[0].1.disposition.as_deref(), Some("completed"), "{}", machine.log());
    assert_eq!(machine.jobs.starts().len(), 1);
    assert_eq!(machine.slots_of("cron"), [], "what is due is not its business");
    assert_eq!(machine.watermark(), before);
    assert_eq!(machine.unapplied(), [name("daily")], "nor are other pipelines' requests");
    assert!(!machine.log().contains("RETIRED"), "{}", machine.log());
}

#[test]
fn a_death_at_every_single_await_loses_and_doubles_nothing() {
    for dies_at in 0.. {
        let machine = abandoned();
        machine.run_alone(dies_at);
        let is_done = machine.slots_of("manual").first().is_some_and(|slot| !slot.1.is_open());
        machine.live(u64::MAX, machine.world.now() + SignedDuration::from_mins(20));
        let manual = machine.slots_of("manual");
        assert_eq!(manual.len(), 1, "death at wait {dies_at}");
        let disposition = manual[0].1.disposition.as_deref();
        assert_eq!(disposition, Some("completed"), "death at wait {dies_at}: {}", machine.log());
        let starts = machine.jobs.starts();
        assert!(starts.values().all(|count| *count == 1), "death at wait {dies_at}: doubled");
        assert_eq!(machine.unapplied(), [], "death at wait {dies_at}");
        machine.check_accounted();
        if is_done && dies_at > 200 {
            return;
        }
    }
}

/// A machine whose daemon died five hours ago, at half past an hour.
fn down(policy: &str) -> (Machine, Timestamp) {
    let file = HOURLY.replace("timezone", &format!("{policy}timezone"));
    let machine = Machine::new(&[&file]);
    let begun = machine.world.now();
    machine.live(u64::MAX, begun + SignedDuration::from_mins(70));
    machine.world.pass(SignedDuration::from_hours(5));
    (machine, begun)
}

/// A slot that is owed, counted back from now.
fn owed(machine: &Machine, back: i64) -> Timestamp {
    let now = machine.world.now();
    let hour = now.as_second().div_euclid(3600) - back;
    Timestamp::from_second(hour * 3600).unwrap()
}

fn run_slot(nominal: Timestamp) -> InboxRecord {
    let slot = Some(SlotName { schedule: "cron".to_owned(), nominal });
    InboxRecord::Run { slot, force: false, params: BTreeMap::new(), webhook: false }
}

fn tail(fates: &[String], count: usize) -> Vec<&str> {
    let fates: Vec<_> = fates.iter().map(|fate| fate.split_once(' ').unwrap().1).collect();
    fates[fates.len() - count..].to_vec()
}

#[test]
fn an_owed_slot_that_is_named_runs_now_and_the_next_catch_up_passes_over_it() {
    let (machine, _) = down("catchupWindow: 2d\noverlapPolicy: all\n");
    let (named, before) = (owed(&machine, 2), machine.watermark());
    assert!(named > before);
    block_on(machine.store.post(&name("hourly"), "a run", &run_slot(named))).unwrap();
    machine.run_slot_alone(u64::MAX, named);
    assert!(machine.is_over(named), "{:?}", machine.fates());
    assert_eq!(machine.watermark(), before, "S4");
    machine.live(u64::MAX, machine.world.now() + SignedDuration::from_mins(20));
    let expected = ["completed catchup", "completed catchup", "completed manual"];
    let expected = [&expected[..], &["completed catchup", "completed catchup"]].concat();
    assert_eq!(tail(&machine.fates(), 5), expected);
    assert!(machine.began().values().all(|count| *count == 1), "{:?}", machine.began());
    machine.check_accounted();
}

/// DESIGN §9: the one that ran by hand was the latest.
#[test]
fn under_latest_a_newer_slot_that_ran_by_hand_supersedes_all_older_ones() {
    let (machine, _) = down("catchupWindow: 2d\noverlapPolicy: latest\n");
    let newest = owed(&machine, 0);
    block_on(machine.store.post(&name("hourly"), "a run", &run_slot(newest))).unwrap();
    machine.run_slot_alone(u64::MAX, newest);
    let began = machine.began().len();
    machine.live(u64::MAX, machine.world.now() + SignedDuration::from_mins(20));
    assert_eq!(machine.began().len(), began, "{:?}", machine.fates());
    assert_eq!(tail(&machine.fates(), 1), ["completed manual"]);
    machine.check_accounted();
}

#[test]
fn a_slot_that_is_not_due_yet_is_its_schedules_still() {
    let (machine, _) = down("");
    let next = owed(&machine, -1);
    block_on(machine.store.post(&name("hourly"), "a run", &run_slot(next))).unwrap();
    machine.run_slot_alone(20, next);
    assert!(!machine.slots_of("cron").iter().any(|(at, _)| *at == next));
}

fn gap(machine: &Machine, hours: (i64, i64)) -> InboxRecord {
    let (from, to) = (owed(machine, hours.0), owed(machine, hours.1));
    crate::backfill::start_at(from, to)
}

#[test]
fn a_backfill_works_a_gap_off_while_nobody_serves() {
    let (machine, _) = down("");
    let before = machine.watermark();
    let record = gap(&machine, (3, 1));
    block_on(machine.store.post(&name("hourly"), "a backfill", &record)).unwrap();
    machine.backfill_alone(u64::MAX);
    assert_eq!(machine.backfill().unwrap().counts.completed, 2);
    assert_eq!(machine.watermark(), before, "S4");
    machine.live(u64::MAX, machine.world.now() + SignedDuration::from_mins(20));
    assert!(machine.began().values().all(|count| *count == 1), "{:?}", machine.began());
    let backfilled = machine.fates().iter().filter(|it| it.ends_with("completed backfill")).count();
    assert_eq!(backfilled, 2, "{:?}", machine.fates());
    machine.check_accounted();
}

/// Asked for while nobody serves and not followed: catch-up leaves the range to it, whatever the policy.
#[test]
fn what_a_waiting_backfill_will_run_is_neither_caught_up_nor_called_missed() {
    for policy in ["", "catchupWindow: 2d\noverlapPolicy: all\n"] {
        let (machine, _) = down(policy);
        let record = gap(&machine, (5, -1));
        let InboxRecord::StartBackfill { from, .. } = record else { unreachable!() };
        let record = crate::backfill::start_at(from, machine.world.now());
        block_on(machine.store.post(&name("hourly"), "a backfill", &record)).unwrap();
        machine.live(u64::MAX, machine.world.now() + SignedDuration::from_mins(20));
        let ran = machine.fates().iter().filter(|it| it.ends_with("completed backfill")).count();
        assert!(ran >= 4, "{:?} {}", machine.fates(), machine.log());
        assert!(!machine.log().contains("SLOTS_MISSED"), "{}", machine.log());
        assert!(machine.began().values().all(|count| *count == 1), "{:?}", machine.began());
        machine.check_accounted();
    }
}

#[test]
fn a_death_at_every_await_of_a_run_or_backfill_ahead_of_the_watermark_doubles_nothing() {
    for dies_at in 0..1_000 {
        let (machine, _) = down("catchupWindow: 2d\noverlapPolicy: all\n");
        let named = owed(&machine, 2);
        block_on(machine.store.post(&name("hourly"), "a run", &run_slot(named))).unwrap();
        let record = gap(&machine, (4, 2));
        block_on(machine.store.post(&name("hourly"), "a backfill", &record)).unwrap();
        machine.run_slot_alone(dies_at, named);
        machine.backfill_alone(dies_at);
        let is_done = machine.backfill().is_some_and(|record| !record.is_unfinished());
        machine.live(u64::MAX, machine.world.now() + SignedDuration::from_mins(30));
        let began = machine.began();
        assert!(began.values().all(|count| *count == 1), "death at wait {dies_at}: {began:?}");
        let fates = machine.fates();
        let is_completed = fates.iter().all(|fate| fate.contains(" completed "));
        assert!(is_completed, "death at wait {dies_at}: {fates:?} {}", machine.log());
        machine.check_accounted();
        if is_done && dies_at > 20 {
            return;
        }
    }
    panic!("it never came to its end");
}
