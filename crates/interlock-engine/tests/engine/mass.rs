//! Thousands of pipelines to which the same happens at one instant: what it costs is counted in calls of the store.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex},
};

use interlock_core::{id::PipelineId, retry::FailureCategory};
use interlock_engine::{Engine, EngineError, seam::World as _};
use interlock_sim::gated::{Gate, Gated, Passage};
use interlock_store::{
    Change, Expect, Group, Key, READ_MAX, Record, Role, Shard, Store, Writer, block_on,
    memory::MemoryStore,
    record::{InboxRecord, SlotRecord},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    stage::{Job, Stage, at},
    watched::{watch, watch_through},
    world::Virtual,
};

/// As many as a test can declare without optimisation within seconds.
const PIPELINES: usize = 3_000;

/// So many groups are of thousands of pipelines, and not of what goes on all the time.
const MANY: usize = 100;

/// Pages and batches that so many rows may take, where each is at least half full.
const BATCHES: u64 = (2 * PIPELINES / READ_MAX) as u64;

/// Counts the calls of an engine, and may write before its large commits.
#[derive(Clone)]
struct Calls(Arc<Mutex<Counted>>);

#[derive(Default)]
struct Counted {
    calls: BTreeMap<&'static str, u64>,
    /// The store to write to as the watchdog.
    rival: Option<(Arc<MemoryStore>, Writer)>,
    /// When the engine was slow to show that it lives is not seen here; how many groups others had overtaken is.
    overtaken: usize,
    /// Which rows cannot be read.
    damaged: Option<fn(&PipelineId, &Key) -> bool>,
    /// A store that needs so long for each group.
    slowness: Option<(Virtual, SignedDuration)>,
    /// How many groups each commit had.
    commits: Vec<usize>,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Calls")
    }
}

impl Calls {
    /// From now on these rows cannot be read.
    fn damage(&self, is_damaged: fn(&PipelineId, &Key) -> bool) {
        self.0.lock().unwrap().damaged = Some(is_damaged);
    }

    /// Those since this was asked last.
    fn taken(&self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut self.0.lock().unwrap().calls)
    }
}

impl Gate for Calls {
    fn enter(&self, verb: &'static str) -> Option<Passage<'_>> {
        *self.0.lock().unwrap().calls.entry(verb).or_default() += 1;
        None
    }

    fn leave(&self, verb: &'static str) -> Option<Passage<'_>> {
        let counted = self.0.lock().unwrap();
        let groups = counted.commits.last().copied().filter(|_| verb == "commit")?;
        let (world, for_each) = counted.slowness.clone()?;
        let until = world.time() + for_each * i32::try_from(groups).unwrap();
        Some(Box::pin(async move {
            world.sleep_until(until).await;
            Ok(())
        }))
    }

    fn is_damaged(&self, pipeline: &PipelineId, key: &Key) -> bool {
        self.0.lock().unwrap().damaged.is_some_and(|is_damaged| is_damaged(pipeline, key))
    }

    fn commits(&self, groups: Vec<Group>) -> Vec<Group> {
        self.0.lock().unwrap().commits.push(groups.len());
        let rival = if groups.len() >= MANY { self.0.lock().unwrap().rival.clone() } else { None };
        if let Some((store, writer)) = rival {
            let missed: Vec<Group> = groups.iter().filter_map(|it| missed(it, writer)).collect();
            let results = block_on(store.commit(missed)).unwrap();
            self.0.lock().unwrap().overtaken += results.iter().filter(|it| it.is_ok()).count();
        }
        groups
    }
}

/// What the watchdog writes about the slot that a group opens.
fn missed(group: &Group, writer: Writer) -> Option<Group> {
    let change = group.changes.iter().find_map(|change| match change {
        Change::Put(key @ Key::Slot(..), Expect::Absent, Record::Slot(slot)) => {
            let (state, disposition) = ("closed".into(), Some("missed".into()));
            let slot = SlotRecord { state, disposition, ..slot.as_ref().clone() };
            Some(Change::Put(key.clone(), Expect::Absent, Record::Slot(slot.into())))
        }
        Change::Put(..) | Change::Delete(..) | Change::Append(_) => None,
    });
    Some(Group { pipeline: group.pipeline.clone(), writer, changes: vec![change?] })
}

/// A machine with thousands of pipelines that are due every hour, and an engine on it whose calls are counted.
struct Fleet {
    stage: Stage,
    calls: Calls,
    life: std::pin::Pin<Box<dyn Future<Output = Result<(), EngineError>> + Send>>,
}

impl Fleet {
    fn new(trigger: &str) -> Self {
        let text = |number| {
            format!(
                "name: p{number}\nschedules: [{{id: h, cron: '0 * * * *', grace: 30s}}]\n\
                 trigger: {trigger}\n"
            )
        };
        let texts: Vec<String> = (0..PIPELINES).map(text).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let stage = Stage::new(at("08:30"), &texts, |_| Job::Fails(FailureCategory::Permanent));
        let calls = Calls(Arc::default());
        let mut parts = stage.parts("test");
        parts.limits.runs_max = u32::MAX;
        parts.store = Arc::new(Gated::new(Arc::clone(&stage.store) as _, calls.clone()));
        let files = stage.files.clone();
        let life = Box::pin(async move {
            let mut engine = Engine::open(parts, Shard(0)).await.unwrap().unwrap();
            let changes = files.changes(&engine);
            engine.declare(&changes).await.unwrap();
            engine.run(Box::pin(std::future::pending())).await
        });
        Self { stage, calls, life }
    }

    fn goes_on(&mut self, until: &str) {
        self.lives_until(at(until));
    }

    fn lives_until(&mut self, until: Timestamp) {
        let ended = self.stage.world.run(pin!(&mut self.life), until);
        assert!(ended.is_none(), "it lives: {ended:?}");
    }

    /// The engine's calls since this was asked last.
    fn calls(&self) -> BTreeMap<&'static str, u64> {
        self.calls.taken()
    }

    /// How many slots of an instant there are, by what became of them.
    fn slots(&self, nominal: Timestamp) -> BTreeMap<String, usize> {
        let query = interlock_store::LedgerQuery {
            from: nominal,
            until: nominal + SignedDuration::from_secs(1),
            ..interlock_store::LedgerQuery::everything(10 * PIPELINES)
        };
        let mut counts = BTreeMap::new();
        for row in block_on(self.stage.store.ledger(&query)).unwrap().items {
            let interlock_store::LedgerEntry::Slot(slot) = row.entry else { panic!("a span") };
            let word = slot.disposition.clone().unwrap_or_else(|| slot.state.clone());
            *counts.entry(word.to_string()).or_default() += 1;
        }
        counts
    }
}

/// What reads row by row or pipeline by pipeline is asked for so often at most, and so are batches and pages.
#[track_caller]
fn are_few(calls: &BTreeMap<&'static str, u64>) {
    for verb in ["read", "ledger", "runs", "sensors", "backfills", "inbox", "revisions"] {
        let count = calls.get(verb).copied().unwrap_or_default();
        assert!(count <= 250, "{verb} {count} times: {calls:?}");
    }
    for verb in ["read_many", "open_slots", "open_incidents", "agenda", "commit"] {
        let count = calls.get(verb).copied().unwrap_or_default();
        assert!(count <= 4 * BATCHES, "{verb} {count} times: {calls:?}");
    }
}

#[test]
fn slots_that_the_watchdog_closed_are_learned_in_batches_and_nothing_is_refused() {
    let mut fleet = Fleet::new("{type: external}");
    let watchdog = Calls(Arc::default());
    let store = Gated::new(Arc::clone(&fleet.stage.store) as _, watchdog.clone());
    let heard = watch_through(&fleet.stage, Arc::new(store));
    fleet.goes_on("08:59");
    fleet.calls();
    // All the while it looks through the ledger, some pipelines in each second; so few seconds are counted.
    fleet.lives_until(at("09:00") + SignedDuration::from_secs(25));
    watchdog.taken();
    fleet.lives_until(at("09:00") + SignedDuration::from_secs(35));
    are_few(&watchdog.taken());
    fleet.goes_on("09:10");
    assert_eq!(fleet.slots(at("09:00")), [("missed".to_owned(), PIPELINES)].into());
    are_few(&fleet.calls());
    assert_eq!(fleet.stage.refused(), 0, "the engine knew before it planned");
    assert_eq!(fleet.stage.undecided(), (0, 0));
    assert!(!heard.lines().is_empty(), "the misses were told");
}

#[test]
fn thousands_of_conflicts_are_absorbed_by_batched_reads() {
    let mut fleet = Fleet::new("{type: external}");
    fleet.goes_on("08:59");
    fleet.calls();
    let hour = SignedDuration::from_hours(1);
    let store = Arc::clone(&fleet.stage.store);
    let lease = block_on(store.acquire(Role::Watchdog, Shard(0), "rival", hour)).unwrap().unwrap();
    fleet.calls.0.lock().unwrap().rival = Some((store, lease.writer));
    fleet.goes_on("09:10");
    assert_eq!(fleet.calls.0.lock().unwrap().overtaken, PIPELINES);
    assert_eq!(fleet.stage.refused(), PIPELINES as u64);
    assert_eq!(fleet.slots(at("09:00")), [("missed".to_owned(), PIPELINES)].into());
    are_few(&fleet.calls());
    assert_eq!(fleet.stage.undecided(), (0, 0));
}

#[test]
fn thousands_of_failures_read_their_incidents_in_batches() {
    let mut fleet = Fleet::new("{type: command, command: 'false'}");
    fleet.goes_on("08:59");
    fleet.calls();
    fleet.goes_on("09:10");
    assert_eq!(fleet.slots(at("09:00")), [("failed".to_owned(), PIPELINES)].into());
    are_few(&fleet.calls());
    let incidents = block_on(fleet.stage.store.open_incidents(Shard(0), None, 10 * PIPELINES));
    assert_eq!(incidents.unwrap().items.len(), PIPELINES);
}

#[test]
fn thousands_of_acknowledgements_are_few_commits_also_of_incidents_that_the_engine_never_saw() {
    let mut fleet = Fleet::new("{type: external}");
    let _heard = watch(&fleet.stage);
    fleet.goes_on("09:01");
    let store = Arc::clone(&fleet.stage.store);
    let missed = block_on(store.open_incidents(Shard(0), None, 10 * PIPELINES)).unwrap().items;
    assert_eq!(
        missed.len(),
        PIPELINES,
        "the watchdog has told them, and the engine has yet to look"
    );
    for (pipeline, key, _) in &missed {
        let record = InboxRecord::Incident {
            key: key.clone(),
            hand: "acknowledge".into(),
            by: "ann".into(),
            note: None,
        };
        block_on(store.post(pipeline, "ack", &record)).unwrap();
    }
    fleet.calls();
    fleet.lives_until(at("09:01") + SignedDuration::from_secs(20));
    let open = block_on(store.open_incidents(Shard(0), None, 10 * PIPELINES)).unwrap().items;
    let acknowledged = open.iter().filter(|(_, _, row)| row.record.acknowledged.is_some());
    assert_eq!(acknowledged.count(), PIPELINES);
    let calls = fleet.calls();
    assert_eq!(calls.get("read"), None, "{calls:?}");
    // A page of the inbox holds two hundred.
    let pages = PIPELINES as u64 / 200 + 1;
    for (verb, most) in [("commit", 2 * pages), ("read_many", 2 * pages)] {
        let count = calls.get(verb).copied().unwrap_or_default();
        assert!(count <= most, "{verb} {count} times: {calls:?}");
    }
}

fn is_of_p7(pipeline: &PipelineId) -> bool {
    pipeline.as_str() == "p7"
}

#[test]
fn one_slot_that_cannot_be_read_among_thousands_costs_its_own_pipeline() {
    let mut fleet = Fleet::new("{type: external}");
    let _heard = watch(&fleet.stage);
    fleet.goes_on("08:59");
    fleet.calls();
    fleet.calls.damage(|pipeline, key| is_of_p7(pipeline) && matches!(key, Key::Slot(..)));
    fleet.goes_on("09:10");
    assert_eq!(fleet.slots(at("09:00")), [("missed".to_owned(), PIPELINES)].into());
    let told = fleet.stage.told(&["PIPELINE_SET_ASIDE", "PIPELINE_TAKEN_BACK"]);
    assert_eq!(told.len(), 2, "set aside, and back when nothing of it need be read: {told:?}");
    assert!(told[0].contains("cannot be read: slot/h"), "{told:?}");
    assert_eq!(fleet.stage.refused(), 0, "the others were learned before they were planned");
    // Only the batch that it is in is read one by one.
    let reads = fleet.calls()["read"];
    assert!(reads <= READ_MAX as u64 + 50, "{reads} reads");
}

#[test]
fn one_incident_that_cannot_be_read_among_thousands_costs_its_own_pipeline() {
    let mut fleet = Fleet::new("{type: command, command: 'false'}");
    fleet.goes_on("08:59");
    fleet.calls.damage(|pipeline, key| {
        is_of_p7(pipeline) && matches!(key, Key::Incident(key) if key.starts_with("failed:"))
    });
    fleet.goes_on("09:10");
    let count = |word: &str| fleet.slots(at("09:00")).get(word).copied().unwrap_or_default();
    assert_eq!((count("failed"), count("running")), (PIPELINES - 1, 1));
    let told = fleet.stage.told(&["PIPELINE_SET_ASIDE"]);
    assert!(!told.is_empty() && told[0].contains("cannot be read: incident/failed:"), "{told:?}");
    // What its job said was not acknowledged, and is asked for again.
    fleet.calls.0.lock().unwrap().damaged = None;
    fleet.goes_on("12:00");
    assert_eq!(fleet.slots(at("09:00")), [("failed".to_owned(), PIPELINES)].into());
}

#[test]
fn the_watchdog_tells_of_all_but_the_one_whose_incident_cannot_be_read() {
    let mut fleet = Fleet::new("{type: external}");
    let watchdog = Calls(Arc::default());
    watchdog.damage(|pipeline, key| is_of_p7(pipeline) && matches!(key, Key::Incident(_)));
    let store = Gated::new(Arc::clone(&fleet.stage.store) as _, watchdog);
    let _heard = watch_through(&fleet.stage, Arc::new(store));
    fleet.lives_until(at("09:00") + SignedDuration::from_secs(50));
    let open = [("missed".to_owned(), PIPELINES - 1), ("waiting".to_owned(), 1)];
    assert_eq!(fleet.slots(at("09:00")), open.into());
    let told = fleet.stage.told(&["WATCHDOG_DEGRADED"]);
    assert_eq!(told.len(), 1, "{told:?}");
    fleet.goes_on("09:10");
    let all = [("missed".to_owned(), PIPELINES)];
    assert_eq!(fleet.slots(at("09:00")), all.into(), "the engine closed the one a minute later");
}

#[test]
fn a_store_that_has_become_slow_gets_few_groups_at_once_and_is_waited_for() {
    let mut fleet = Fleet::new("{type: external}");
    fleet.goes_on("08:59");
    let per_group = SignedDuration::from_millis(20);
    fleet.calls.0.lock().unwrap().slowness = Some((fleet.stage.world.clone(), per_group));
    let before = fleet.calls.0.lock().unwrap().commits.len();
    fleet.goes_on("09:30");
    assert_eq!(fleet.slots(at("09:00")), [("missed".to_owned(), PIPELINES)].into());
    let commits = fleet.calls.0.lock().unwrap().commits.split_off(before);
    let largest = commits.iter().copied().max().unwrap();
    assert_eq!(largest, 250, "ten seconds would be 500 groups: {commits:?}");
    let soon = &commits[4..];
    assert!(soon.iter().all(|groups| *groups <= 125), "it learns: {commits:?}");
}
