//! One run of the world: days of bad luck, then calm, then judgement.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use interlock_core::id::PipelineId;
use interlock_engine::{Pace, seam::World as _};
use interlock_store::{
    Key, LedgerQuery, Record, Rows, Shard, Store, StoreError, block_on,
    memory::MemoryStore,
    record::InboxRecord,
    retention::{AnswerSweep, IncidentSweep, KEPT_MIN, Step, Sweep, forget_events},
};
use interlock_watchdog::Pace as WatchdogPace;
use jiff::{SignedDuration, Timestamp};

use crate::{
    check::{Checker, Tally, Violation},
    clockwork::{Clockwork, NATURE},
    files::Files,
    gated::Gated,
    instances::{Ground, Instances, still_max},
    jobs::Jobs,
    luck::{Fault, Luck, Meeting, Profile, seconds},
    nemesis::Nemesis,
    random::Random,
    tap::{Mutation, Tap},
    truth::Truth,
};

/// How long the world stays calm at the end: longer than a hung run may hold its place.
const CALM: SignedDuration = SignedDuration::from_hours(30);
/// What is decided and older than this is taken out of the store: the shortest time that the product allows.
const RETENTION: SignedDuration = KEPT_MIN;
/// An incident that is open for longer than this is called over by somebody.
const LOOKED_AFTER: SignedDuration = SignedDuration::from_hours(3 * 24);
/// Longer worlds have no pipelines that somebody else runs: to listen for them costs a group every few seconds.
const WATCHED_DAYS: u32 = 2;
/// Of a thousand pipelines that nobody else runs, so many have slots that a sensor opens.
const OPENED_BY_SENSOR: u64 = 180;
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Options {
    /// Everything that is drawn follows from it.
    pub seed: u64,
    /// How many days of bad luck.
    pub days: u32,
    /// How many pipelines.
    pub pipelines: u32,
    /// How many instances.
    pub instances: u32,
    /// How many faults may happen.
    pub faults: u64,
    /// Whether the seed has its own weather, or all faults come evenly.
    pub weather: Weather,
    /// A deliberate mistake.
    pub mutation: Option<Mutation>,
}

/// How luck is distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Everything sometimes.
    Even,
    /// As the seed likes it.
    Drawn,
    /// One kind of fault, often.
    Only(Fault),
    /// No faults: what happens, happens to all pipelines at once ([`mass`](crate::mass)).
    Mass,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            days: 3,
            pipelines: 8,
            instances: 2,
            faults: u64::MAX,
            weather: Weather::Drawn,
            mutation: None,
        }
    }
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What was simulated.
    pub options: Options,
    /// What was violated, if anything.
    pub violation: Option<Violation>,
    /// What the ledger, the jobs and the nemesis say about it.
    pub story: Vec<String>,
    /// How much was checked.
    pub tally: Tally,
    /// What happened how often.
    pub counts: BTreeMap<&'static str, u64>,
    /// Which faults met which states, and how often.
    pub meetings: BTreeMap<Meeting, u64>,
    /// How many faults happened.
    pub faults: u64,
    /// How often somebody waited.
    pub waits: u64,
}

struct World {
    clockwork: Clockwork,
    memory: Arc<MemoryStore>,
    checker: Arc<Mutex<Checker>>,
    jobs: Jobs,
    nemesis: Nemesis,
    luck: Arc<Luck>,
}

/// Runs a world from its seed to its end.
pub fn simulate(options: &Options) -> Result<Outcome, String> {
    let world = World::new(options)?;
    let start = world.clockwork.time();
    let end = start + DAY * options.days as i32;
    for pid in world.nemesis.instances.pids() {
        world.nemesis.instances.start(pid);
    }
    let nature = world.clockwork.process(NATURE);
    if options.weather == Weather::Mass {
        let masses = world.nemesis.clone().haunt_masses((end, end + CALM));
        nature.spawn("the nemesis", Box::pin(masses));
    } else {
        nature.spawn("the nemesis", Box::pin(world.nemesis.clone().haunt(end)));
        nature.spawn("sensors", Box::pin(world.nemesis.clone().report_sensors()));
        crate::reporters::start(&world.nemesis, end + CALM);
        crate::feeds::start(&world.nemesis, end + CALM);
    }
    world.pass_until(end);
    world.nemesis.calm_down();
    world.checker().calm_down();
    if options.mutation == Some(Mutation::HungInstances) {
        world.pass_until(end + CALM / 10);
        world.nemesis.instances.pids().into_iter().for_each(|pid| world.clockwork.hold(pid));
    }
    world.pass_until(end + CALM);
    let panics = world.clockwork.take_panics();
    let mut checker = world.checker();
    if let Some((pid, words)) = panics.first() {
        checker.report_panic(*pid, words);
    }
    if checker.violation().is_none() {
        checker.conclude();
        checker.were_heard(&world.nemesis.instances.pids());
    }
    let violation = checker.violation().cloned();
    let tally = checker.tally;
    drop(checker);
    let story = violation.as_ref().map(|it| world.story(it)).unwrap_or_default();
    let faults = world.done().len() as u64;
    let (counts, waits) = (world.luck.counts(), world.clockwork.timers_set());
    let (options, meetings) = (options.clone(), world.luck.meetings());
    Ok(Outcome { options, violation, story, tally, counts, meetings, faults, waits })
}

impl World {
    fn new(options: &Options) -> Result<Self, String> {
        let mut random = Random::of(options.seed, "world");
        let clockwork = Clockwork::new(beginning(&mut random));
        clockwork.shuffle(Random::of(options.seed, "order"));
        if options.mutation == Some(Mutation::HastyInstances) {
            clockwork.mislead(seconds(600), seconds(0));
        } else if options.mutation == Some(Mutation::LazyInstances) {
            clockwork.mislead(seconds(0), seconds(5));
        }
        let profile = match options.weather {
            Weather::Even => Profile::even(),
            Weather::Drawn => Profile::draw(options.seed),
            Weather::Only(fault) => Profile::only(fault),
            Weather::Mass => Profile::none(),
        };
        let luck = Arc::new(Luck::new(profile));
        let files = Files::mistaken(options.mutation);
        let mut last = None;
        for number in 0..options.pipelines {
            let name = format!("p{number:03}");
            let truth = a_pipeline(options, &mut random, (&name, last.as_deref()));
            let is_mass = options.weather == Weather::Mass;
            let truth = if is_mass { crate::mass::a_pipeline(options, number) } else { truth };
            files.write_truth(truth, clockwork.time())?;
            last = Some(name);
        }
        let has_watched = files
            .names()
            .iter()
            .any(|name| files.truth(name).is_some_and(|truth| truth.is_watched()));
        let clock = clockwork.clone();
        let memory = Arc::new(MemoryStore::new(1, Arc::new(move || clock.time())));
        let mut checker = Checker::new(clockwork.clone(), files.clone(), Arc::clone(&luck));
        checker.expect_beacons(pace(options).lease, still_max(&pace(options)));
        let checker = Arc::new(Mutex::new(checker));
        let tap = Tap::new(Arc::clone(&checker), Arc::clone(&memory), options.mutation);
        let behind = Arc::clone(&memory) as Arc<dyn Store>;
        let store: Arc<dyn Store> = Arc::new(Gated::new(behind, tap.clone()));
        let watcher = Arc::new(tap.clone());
        let mut jobs = Jobs::new(clockwork.clone(), Arc::clone(&luck), options.seed, watcher);
        if options.mutation == Some(Mutation::DoubleStarts) {
            jobs = jobs.doubling();
        }
        checker.lock().unwrap_or_else(PoisonError::into_inner).meet(jobs.clone());
        let ground = Ground {
            clockwork: clockwork.clone(),
            store: Arc::clone(&store),
            files: files.clone(),
            jobs: jobs.clone(),
            luck: Arc::clone(&luck),
            onlooker: Arc::new(tap.clone()),
            pace: pace(options),
            watch_pace: watch_pace(options),
            seed: options.seed,
            mutation: options.mutation,
            listens: has_watched.then(|| tap.clone()),
            counts: (options.weather == Weather::Mass).then(|| tap.clone()),
        };
        let nemesis = Nemesis {
            clockwork: clockwork.clone(),
            instances: Instances::new(ground, options.instances),
            files,
            luck: Arc::clone(&luck),
            store,
            tap,
            seed: options.seed,
            allowed: options.faults,
            done: Arc::default(),
        };
        Ok(Self { clockwork, memory, checker, jobs, nemesis, luck })
    }

    /// Lets time pass, and forgets what is old on the way.
    fn pass_until(&self, end: Timestamp) {
        loop {
            let next = (self.clockwork.time() + DAY).min(end);
            let mut nothing = std::pin::pin!(std::future::pending::<()>());
            self.clockwork.run(nothing.as_mut(), next);
            if let Some(who) = self.clockwork.restless() {
                self.checker().report_restless(who);
            }
            if self.clockwork.time() >= end || self.checker().violation().is_some() {
                return;
            }
            self.look_after_incidents();
            self.forget_what_is_old();
        }
    }

    /// Somebody calls over by hand what stands open for days: a gap that nobody fills would stay for ever, with all that it
    /// tells of (ADR 33).
    fn look_after_incidents(&self) {
        let before = self.clockwork.time() - LOOKED_AFTER;
        for shard in (0..self.memory.shard_count()).map(Shard) {
            let page = block_on(self.memory.open_incidents(shard, None, 1_000_000));
            let open = page.map(|page| page.items).unwrap_or_default();
            for (pipeline, key, row) in open {
                if row.record.opened_at < before {
                    let request = format!("resolve {key} of {}", row.record.opened_at);
                    let (hand, by) = ("resolve".to_owned(), "a person".to_owned());
                    let record = InboxRecord::Incident { key, hand, by, note: None };
                    let _posted = block_on(self.memory.post(&pipeline, &request, &record));
                }
            }
        }
    }

    /// As `serve` does, by the same rule.
    fn forget_what_is_old(&self) {
        let before = self.clockwork.time() - RETENTION;
        let old = LedgerQuery { until: before, ..LedgerQuery::everything(1_000_000) };
        // A store in memory does not fail; what it did not take out today goes tomorrow.
        let left = block_on(async {
            sweep(self.memory.as_ref(), before).await?;
            self.memory.ledger(&old).await
        });
        let left = left.map(|page| page.items).unwrap_or_default();
        self.checker().forget_before(before, &left);
        self.jobs.forget_before(before);
    }

    fn checker(&self) -> MutexGuard<'_, Checker> {
        self.checker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self) -> MutexGuard<'_, Vec<(u64, Timestamp, String)>> {
        self.nemesis.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in the outbox about a pipeline.
    fn notifications_of(&self, pipeline: &PipelineId) -> Vec<String> {
        let rows = block_on(self.memory.rows(Rows::All, "", 10_000_000));
        let rows = rows.map(|portion| portion.items).unwrap_or_default().into_iter();
        let own = rows.filter(|row| row.pipeline == *pipeline);
        let lines = own.filter_map(|row| match (row.key, row.row.record) {
            (Key::Outbox(name), Record::Outbox(it)) => {
                let (at, tries, dead, held) = (it.not_before, it.tries, it.dead, it.held.clone());
                Some(format!("  {name}: at {at}, tries {tries}, dead {dead}, held {held:?}"))
            }
            _ => None,
        });
        let lines: Vec<String> = lines.collect();
        let title = (!lines.is_empty()).then(|| "what is to be told of it:".to_owned());
        title.into_iter().chain(lines).collect()
    }

    /// What there is to say about a violation.
    fn story(&self, violation: &Violation) -> Vec<String> {
        let mut lines = Vec::new();
        let pipeline = PipelineId::parse(&violation.pipeline).unwrap_or(PipelineId::system());
        let about = violation.slot.as_ref().map(|(schedule, at)| format!("{schedule}/{at}"));
        let whose = Some(&pipeline).filter(|pipeline| **pipeline != PipelineId::system());
        let events = block_on(self.memory.events(whose, 0, usize::MAX));
        let events = events.map(|page| page.items).unwrap_or_default();
        let told = events.iter().filter(|event| {
            about.is_none() || event.record.slot.is_none() || event.record.slot == about
        });
        let told: Vec<_> = told.collect();
        lines.push(format!("what the ledger says of {pipeline} and its slot:"));
        // The slot's own are all shown: a busy pipeline may have said much since.
        let from = told.len().saturating_sub(25);
        let shown = told.iter().enumerate().filter(|(place, event)| {
            *place >= from || (about.is_some() && event.record.slot == about)
        });
        for (_, event) in shown {
            let record = &event.record;
            let slot = record.slot.as_deref().unwrap_or_default();
            lines.push(format!("  {} {} {slot} {}", record.at, record.kind, record.message));
        }
        let runs: std::collections::BTreeSet<_> =
            told.iter().filter_map(|event| event.record.run_id.clone()).collect();
        let runs = runs.iter().filter(|_| about.is_some());
        lines.extend(runs.map(|run| format!("  job {}", self.jobs.story(run))));
        lines.extend(self.notifications_of(&pipeline));
        if let Some(truth) = self.nemesis.files.truth(&pipeline) {
            lines.push("its file:".to_owned());
            lines.extend(truth.text().lines().map(|line| format!("  {line}")));
        }
        lines.push("what the nemesis did last:".to_owned());
        let done = self.done();
        for (number, at, what) in done.iter().skip(done.len().saturating_sub(12)) {
            lines.push(format!("  {number}. {at} {what}"));
        }
        lines
    }
}

/// Draws a pipeline. What it is beyond a clock's is drawn from streams of its own, so that the others stay as they were.
fn a_pipeline(
    options: &Options,
    random: &mut Random,
    (name, upstream): (&str, Option<&str>),
) -> Truth {
    let mut truth = Truth::draw(random, name.to_owned(), upstream);
    let is_watched = Random::of(options.seed, &format!("watched {name}")).chance(200);
    let mut stream = Random::of(options.seed, &format!("sensor schedule {name}"));
    if is_watched && options.days <= WATCHED_DAYS {
        truth.watch_only();
    } else if stream.chance(OPENED_BY_SENSOR) {
        truth.open_by_sensor(&mut stream);
    }
    truth
}

/// Often the day before a night in which clocks are changed, or a leap day.
fn beginning(random: &mut Random) -> Timestamp {
    let days = [
        "2026-03-07",
        "2026-03-28",
        "2026-04-04",
        "2026-09-26",
        "2026-10-03",
        "2026-10-24",
        "2026-10-31",
        "2028-02-28",
        "2026-06-10",
        "2026-12-30",
    ];
    let day = days[random.below(days.len() as u64) as usize];
    let midnight: Timestamp = format!("{day}T00:00:00Z").parse().unwrap_or(Timestamp::UNIX_EPOCH);
    midnight + seconds(random.below(86_400))
}

/// Takes out of a store what may go.
async fn sweep(store: &dyn Store, before: Timestamp) -> Result<(), StoreError> {
    for shard in (0..store.shard_count()).map(Shard) {
        let mut slots = Sweep::begin(store, shard, before).await?;
        while let Step::More { .. } = slots.step(store).await? {}
    }
    let mut incidents = IncidentSweep::begin(store, before).await?;
    while let Step::More { .. } = incidents.step(store).await? {}
    let mut answers = AnswerSweep::new(before, BTreeSet::new());
    while let Step::More { .. } = answers.step(store).await? {}
    while let Step::More { .. } = forget_events(store, before).await? {}
    Ok(())
}

/// Virtual months with real intervals would be millions of empty passes.
fn pace(options: &Options) -> Pace {
    let (lease, inbox) = if options.days > 30 { (180, 120) } else { (45, 30) };
    Pace { lease: SignedDuration::from_secs(lease), inbox: SignedDuration::from_secs(inbox) }
}

/// The same for the watchdog: timers wake it in time, whatever its pace is. Its sweep and its scanner are nets below nets; on virtual time a
/// page of theirs takes none, and so they would not rest.
fn watch_pace(options: &Options) -> WatchdogPace {
    let is_long = options.days > 30;
    let (look, heartbeat, rotation) = if is_long { (45, 120, 24) } else { (20, 10, 3) };
    let usual = WatchdogPace::default();
    WatchdogPace {
        lease: pace(options).lease,
        look: SignedDuration::from_secs(look),
        heartbeat: SignedDuration::from_secs(heartbeat),
        rotation: SignedDuration::from_hours(rotation),
        interval: if is_long { SignedDuration::from_hours(1) } else { usual.interval },
        ..usual
    }
}
