//! An engine for one pipeline, as a command is one while nobody serves: killed at every await, and what it
//! must leave alone.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_engine::{Engine, Parts, seam::World as _};
use interlock_store::{
    Key, LedgerEntry, LedgerQuery, LedgerRow, Record, Shard, Store as _, block_on,
    record::{InboxRecord, SlotRecord},
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
    let run = InboxRecord::Run { slot: None, force: false, params: BTreeMap::new() };
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
