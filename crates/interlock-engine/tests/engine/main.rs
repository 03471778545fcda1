//! The real engine in a world that can be replayed, killed again and again.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod about;
mod agenda;
mod aside;
mod backfill;
mod backfill_plan;
mod backfill_steering;
mod budgets;
mod cases_monitoring;
mod cases_watcher;
mod catchup;
mod catchup_pause;
mod catchup_shards;
mod control_schedules;
mod crashing;
mod deaf;
mod deliveries;
mod doubt;
mod evaluating;
mod hands;
mod heard;
mod holding;
mod incidents;
mod leasing;
mod mass;
mod refused;
mod reports;
mod solo;
mod stage;
mod succession;
mod traps;
mod upstreams;
mod watched;
mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    path::Path,
    sync::Arc,
};

use interlock_config::{Context, SystemZones, ZoneSource, parse_pipeline};
use interlock_core::{
    id::{PipelineId, ScheduleId, fnv1a},
    pipeline::Pipeline,
    zone::Zone,
};
use interlock_engine::{
    Changes, Declaration, Engine, Limits, Pace, Parts,
    seam::{Evaluators, Specs, Task, World},
};
use interlock_store::{
    Key, LedgerEntry, LedgerQuery, Record, Shard, Store, block_on, memory::MemoryStore,
    record::VersionRecord,
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    crashing::{crashing, end_of},
    world::{FakeTriggers, Jobs, Passing, Virtual},
};

const START: &str = "2026-03-20T00:00:10Z";

/// Declarations that never change.
#[derive(Clone)]
struct Files(Arc<BTreeMap<PipelineId, Declaration>>);

impl Files {
    fn new(texts: &[&str]) -> Self {
        Self::in_zones(texts, &SystemZones::new())
    }

    fn in_zones(texts: &[&str], zones: &dyn ZoneSource) -> Self {
        let mut files = BTreeMap::new();
        for text in texts {
            let (loaded, problems) =
                parse_pipeline(Path::new("p.yaml"), text, &Context::default(), zones, &|_| None);
            let loaded = loaded.unwrap_or_else(|| panic!("{problems:?}"));
            let source = VersionRecord {
                since: START.parse().unwrap(),
                source: (*text).to_owned(),
                context: BTreeMap::new(),
            };
            let declaration = Declaration {
                pipeline: Arc::new(loaded.pipeline),
                version: loaded.version,
                source,
            };
            files.insert(declaration.pipeline.name.clone(), declaration);
        }
        Self(Arc::new(files))
    }

    /// What is different from what an engine has.
    fn changes(&self, engine: &Engine) -> Changes {
        let known: BTreeMap<_, _> = engine.in_force().collect();
        let new = self.0.values().filter(|new| {
            known.get(&new.pipeline.name).is_none_or(|version| *version != new.version)
        });
        let removed = known.keys().filter(|name| !self.0.contains_key(**name));
        Changes {
            declared: new.cloned().collect(),
            removed: removed.map(|name| (*name).clone()).collect(),
        }
    }
}

impl Specs for Files {
    fn pipeline(&self, name: &PipelineId, _: u64) -> Task<Result<Arc<Pipeline>, String>> {
        let found = self.0.get(name).map(|declared| Arc::clone(&declared.pipeline));
        Box::pin(std::future::ready(found.ok_or_else(|| "no such pipeline".to_owned())))
    }

    fn today(&self, name: &PipelineId, version: u64) -> Task<Result<Declaration, String>> {
        let found = self.0.get(name).filter(|declared| declared.version == version).cloned();
        Box::pin(std::future::ready(found.ok_or_else(|| "no such version".to_owned())))
    }

    fn zone(&self, name: &str) -> Option<Zone> {
        SystemZones::new().zone(name)
    }
}

/// A machine with a store and jobs, on which engines live and die.
struct Machine {
    world: Virtual,
    store: Arc<MemoryStore>,
    jobs: Jobs,
    files: Files,
    evaluators: Arc<dyn Evaluators>,
}

impl Machine {
    fn new(files: &[&str]) -> Self {
        let world = Virtual::new(START.parse().unwrap());
        let clock = world.clone();
        let store = MemoryStore::new(1, Arc::new(move || clock.time()));
        let (jobs, files) = (Jobs::default(), Files::new(files));
        Self { world, store: Arc::new(store), jobs, files, evaluators: Arc::new(Passing) }
    }

    /// Runs an engine until it dies at a wait for the store, or time is over.
    fn live(&self, dies_at: u64, until: Timestamp) {
        let files = self.files.clone();
        self.spend(dies_at, until, async move |parts| {
            let mut engine = Engine::open(parts, Shard(0)).await.unwrap().unwrap();
            let changes = files.changes(&engine);
            engine.declare(&changes).await.unwrap();
            engine.run(Box::pin(std::future::pending())).await.unwrap();
        });
    }

    /// Lets a process live until it dies at a wait for the store, ends, or time is over.
    fn spend<L>(&self, dies_at: u64, until: Timestamp, life: impl FnOnce(Parts) -> L)
    where
        L: Future<Output = ()> + Send,
    {
        let store = Arc::new(crashing(Arc::clone(&self.store) as Arc<dyn Store>, dies_at));
        let parts = Parts {
            world: Arc::new(self.world.clone()),
            store: Arc::clone(&store) as Arc<dyn Store>,
            specs: Arc::new(self.files.clone()),
            triggers: Arc::new(FakeTriggers { jobs: self.jobs.clone(), world: self.world.clone() }),
            evaluators: Arc::clone(&self.evaluators),
            reports: self.jobs.connect(),
            declarations: tokio::sync::mpsc::channel(1).1,
            holder: "test".to_owned(),
            limits: Limits::default(),
            // Virtual months with real intervals would be millions of empty passes.
            pace: Pace {
                lease: SignedDuration::from_hours(24),
                inbox: SignedDuration::from_mins(30),
            },
            host: interlock_engine::host::Host::default(),
        };
        let life = life(parts);
        self.world.run(Box::pin(end_of(&store, life)).as_mut(), until);
        self.world.kill();
    }

    /// All events as one text.
    fn log(&self) -> String {
        let events = block_on(self.store.events(None, 0, usize::MAX)).unwrap().items;
        let line = |event: interlock_store::EventRow| {
            let record = event.record;
            format!(
                "{} {} {} {:?} {}",
                event.number, record.at, record.kind, record.slot, record.message
            )
        };
        events.into_iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// S3, S4: between first sight and the watermark every slot is recorded, exactly once.
    fn check_accounted(&self) -> usize {
        let mut total = 0;
        for declaration in self.files.0.values() {
            let name = &declaration.pipeline.name;
            for start in &declaration.pipeline.starts {
                let id = start.schedule.id();
                let row = block_on(self.store.read(name, &[Key::Watermark(id.clone())])).unwrap();
                let Some(Record::Watermark(watermark)) = row[0].clone().map(|row| row.record)
                else {
                    panic!("{name}/{id} has no watermark")
                };
                let recorded = self.recorded(name, id);
                let first = recorded.first().copied().unwrap();
                let just_after = watermark.at + SignedDuration::from_nanos(1);
                let expected: BTreeSet<_> =
                    start.schedule.slots(first, just_after, usize::MAX).found.into_iter().collect();
                assert_eq!(recorded, expected, "{name}/{id}");
                total += expected.len();
            }
        }
        total
    }

    fn recorded(&self, name: &PipelineId, id: &ScheduleId) -> BTreeSet<Timestamp> {
        let query =
            LedgerQuery { pipeline: Some(name.clone()), ..LedgerQuery::everything(usize::MAX) };
        let rows = block_on(self.store.ledger(&query)).unwrap().items;
        let schedule = &self.files.0[name]
            .pipeline
            .starts
            .iter()
            .find(|s| s.schedule.id() == id)
            .unwrap()
            .schedule;
        let mut recorded = BTreeSet::new();
        // A backfill opens slots of a span: their rows stand over it (S3).
        let mut over = BTreeSet::new();
        for row in rows.into_iter().filter(|row| row.schedule == *id) {
            let slots = match row.entry {
                LedgerEntry::Slot(slot) if slot.opened_by == "backfill" => {
                    assert!(over.insert(row.nominal));
                    vec![]
                }
                LedgerEntry::Slot(_) => vec![row.nominal],
                LedgerEntry::Span(span) => {
                    let end = span.last + SignedDuration::from_nanos(1);
                    let slots = schedule.slots(row.nominal, end, usize::MAX).found;
                    assert_eq!(slots.len() as u64, span.count);
                    slots
                }
            };
            for slot in slots {
                assert!(recorded.insert(slot), "{name}/{id}/{slot} is recorded twice");
            }
        }
        recorded.append(&mut over);
        recorded
    }
}

const HOURLY: &str = "name: hourly\nschedule: \"0 * * * *\"\ntimezone: Europe/Riga\ntrigger: {type: command, command: 'true'}\n";
const DAILY: &str = "name: daily\nschedule: \"30 3 * * *\"\ntimezone: Europe/Riga\ntrigger: {type: command, command: 'true'}\n";

/// Thirty days of an engine that dies at these waits, and how often it did.
fn thirty_days(dies_at: impl Iterator<Item = u64>) -> (Machine, usize) {
    let machine = Machine::new(&[HOURLY, DAILY]);
    let end = machine.world.now() + SignedDuration::from_hours(30 * 24);
    let mut deaths = 0;
    for dies_at in dies_at {
        if machine.world.now() >= end {
            break;
        }
        machine.live(dies_at, end);
        deaths += 1;
    }
    machine.live(u64::MAX, end + SignedDuration::from_mins(10));
    (machine, deaths)
}

#[test]
fn thirty_days_run_every_slot_once() {
    let (machine, _) = thirty_days(std::iter::empty());
    let slots = machine.check_accounted();
    // Real hours, also in the night of the gap; and one slot for each local date.
    assert_eq!(slots, 720 + 30, "{}", machine.log());
    let starts = machine.jobs.starts();
    assert_eq!(starts.len(), slots);
    assert!(starts.values().all(|count| *count == 1));
}

#[test]
fn thirty_days_of_crashes_at_every_await_lose_and_double_nothing_and_replay() {
    // Lives of all lengths, each too short for more than a few hours.
    let lives = || (1..60_u64).cycle().take(40_000);
    let (one, deaths) = thirty_days(lives());
    assert!(deaths > 200, "only {deaths} deaths");
    let slots = one.check_accounted();
    println!("{deaths} deaths, {slots} slots");
    let starts = one.jobs.starts();
    assert!(starts.values().all(|count| *count == 1), "a run was started twice");
    assert!(starts.len() <= slots);
    let (other, _) = thirty_days(lives());
    assert_eq!(fnv1a(one.log().as_bytes()), fnv1a(other.log().as_bytes()), "two runs differ");
}

#[test]
fn a_death_at_every_single_await_of_a_day_loses_and_doubles_nothing() {
    for dies_at in 0.. {
        let machine = Machine::new(&[HOURLY]);
        let end = machine.world.now() + SignedDuration::from_hours(24);
        machine.live(dies_at, end);
        let outlived_the_day = machine.world.now() >= end;
        machine.live(u64::MAX, end + SignedDuration::from_mins(10));
        assert_eq!(machine.check_accounted(), 24, "death at wait {dies_at}");
        let starts = machine.jobs.starts();
        assert_eq!(starts.len(), 24, "death at wait {dies_at}: a slot did not run");
        assert!(starts.values().all(|count| *count == 1), "death at wait {dies_at}: doubled");
        if outlived_the_day {
            println!("{dies_at} waits in a day");
            assert!(dies_at > 200, "a day has more waits than {dies_at}");
            return;
        }
    }
}

#[test]
fn downtime_is_one_span_wherever_the_restart_dies() {
    for dies_at in (0..40).chain([u64::MAX]) {
        let machine = Machine::new(&[HOURLY]);
        let start = machine.world.now();
        machine.live(u64::MAX, start + SignedDuration::from_mins(150));
        machine.world.pass(SignedDuration::from_hours(6));
        let end = start + SignedDuration::from_hours(12);
        machine.live(dies_at, end);
        machine.live(u64::MAX, end);
        // Two before, six missed while it was off (one span), the rest after.
        assert_eq!(machine.check_accounted(), 12, "death at wait {dies_at}");
        let hourly = PipelineId::parse("hourly").unwrap();
        let query = LedgerQuery { pipeline: Some(hourly), ..LedgerQuery::everything(100) };
        let rows = block_on(machine.store.ledger(&query)).unwrap().items;
        let spans: Vec<_> = rows
            .iter()
            .filter_map(|row| match &row.entry {
                LedgerEntry::Span(span) => Some((span.count, span.reason.as_deref())),
                LedgerEntry::Slot(_) => None,
            })
            .collect();
        assert_eq!(spans, [(6, Some("no_catchup"))], "death at wait {dies_at}");
    }
}
