//! What watching costs, on the embedded store: a pass with nothing due, one miss among a hundred thousand pipelines, and
//! ten thousand misses at one instant, from the moment they can be judged until the last is durable.
//!
//! A plain program, because each figure is one pass over a ledger that takes longer to make than to watch.

#![expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a benchmark that cannot go on should stop")]
#![expect(clippy::disallowed_methods, reason = "time is what is measured")]

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use interlock_config::{Context, SystemZones, ZoneSource as _, parse_pipeline};
use interlock_core::{agenda::Agenda, id::PipelineId};
use interlock_store::{
    Change, Expect, Group, Key, Record, Role, Shard, Store, block_on,
    record::{AgendaRecord, PipelineRecord, WatermarkRecord, version_text},
};
use interlock_store_embedded::EmbeddedStore;
use interlock_watchdog::{
    Parts, Watchdog,
    seam::{Incidents, Task, Telling, World},
};
use jiff::{SignedDuration, Timestamp};

#[derive(Clone)]
struct Clock(Arc<Mutex<Timestamp>>);

impl World for Clock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }

    fn sleep_until(&self, _: Timestamp) -> Task<()> {
        Box::pin(std::future::pending())
    }
}

struct EngineTelling;

impl Telling for EngineTelling {
    fn keys(&self, group: &Group) -> Vec<String> {
        interlock_engine::incident_keys(group)
    }

    fn add(&self, group: &mut Group, incidents: &mut Incidents) {
        interlock_engine::add_incidents(group, incidents);
    }
}

/// A ledger of so many pipelines, recorded and judged until eight o'clock, and its watchdog.
struct Ledger {
    folder: tempfile::TempDir,
    clock: Clock,
    store: Arc<EmbeddedStore>,
    watchdog: Watchdog,
}

fn at(time: &str) -> Timestamp {
    format!("2026-02-24T{time}Z").parse().unwrap()
}

fn agenda(cron: &str) -> AgendaRecord {
    let text =
        format!("name: some\nschedule: '{cron}'\ntrigger: {{type: command, command: 'true'}}\n");
    let (zones, context) = (SystemZones::new(), Context::default());
    let (loaded, problems) = parse_pipeline("p.yaml".as_ref(), &text, &context, &zones, &|_| None);
    let loaded = loaded.unwrap_or_else(|| panic!("{problems:?}"));
    AgendaRecord::from_core(&Agenda::of(&loaded.pipeline))
}

impl Ledger {
    fn new(count: usize, cron: impl Fn(usize) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock(Arc::new(Mutex::new(at("08:00:00"))));
        let reading = clock.clone();
        let store = EmbeddedStore::open_daemon(folder.path(), Arc::new(move || reading.now()));
        let store = Arc::new(store.unwrap());
        let year = SignedDuration::from_hours(10_000);
        let lease = block_on(store.acquire(Role::Engine, Shard(0), "engine", year)).unwrap();
        let writer = lease.unwrap().writer;
        let mut kinds: BTreeMap<String, AgendaRecord> = BTreeMap::new();
        let groups: Vec<Group> = (0..count)
            .map(|number| {
                let cron = cron(number);
                let agenda = kinds.entry(cron.clone()).or_insert_with(|| agenda(&cron)).clone();
                let record = PipelineRecord {
                    version: version_text(7),
                    first_seen: at("00:00:00"),
                    retired_at: None,
                    pause: None,
                    disabled_since: None,
                    agenda: Some(Box::new(agenda)),
                    about: None,
                };
                let mark = Record::Watermark(WatermarkRecord { at: at("08:00:00") });
                let mark_key = Key::Watermark(interlock_core::id::ScheduleId::from_static("cron"));
                let changes = vec![
                    Change::Put(Key::Pipeline, Expect::Absent, Record::Pipeline(record.into())),
                    Change::Put(mark_key, Expect::Absent, mark),
                ];
                let pipeline = PipelineId::parse(&format!("p-{number}")).unwrap();
                Group { pipeline, writer, changes }
            })
            .collect();
        for portion in groups.chunks(2_000) {
            let results = block_on(store.commit(portion.to_vec())).unwrap();
            assert!(results.iter().all(Result::is_ok));
        }
        let zones = SystemZones::new();
        let zones = Arc::new(move |name: &str| zones.zone(name));
        let world = Arc::new(clock.clone());
        let parts = Parts::new(world, Arc::clone(&store) as _, Arc::new(EngineTelling), zones);
        let began = Instant::now();
        let watchdog = block_on(Watchdog::open(parts, Shard(0))).unwrap().unwrap();
        println!("RESULT name=watchdog/open_{count} seconds={:.3}", began.elapsed().as_secs_f64());
        let mut ledger = Self { folder, clock, store, watchdog };
        ledger.pass();
        ledger
    }

    fn pass(&mut self) -> Duration {
        let began = Instant::now();
        block_on(self.watchdog.pass()).unwrap();
        began.elapsed()
    }

    /// Time goes on in steps that are shorter than a sleep.
    fn go_to(&mut self, until: Timestamp) {
        let step = SignedDuration::from_secs(4);
        while self.clock.now() + step < until {
            *self.clock.0.lock().unwrap() += step;
            self.pass();
        }
        *self.clock.0.lock().unwrap() = until;
    }

    /// What the disk takes for one small write.
    fn flush(&self) -> Duration {
        let path = self.folder.path().join("probe");
        let mut file = fs::File::options().create(true).append(true).open(path).unwrap();
        let began = Instant::now();
        file.write_all(&[0; 4096]).unwrap();
        file.sync_data().unwrap();
        began.elapsed()
    }

    fn incidents(&self) -> usize {
        block_on(self.store.incidents(None, 1_000_000)).unwrap().items.len()
    }
}

/// A hundred thousand pipelines: one is due at half past eight, ten thousand are at nine, the others in the afternoon.
const COUNT: usize = 100_000;
const AT_NINE: usize = 10_000;

fn ledger() -> Ledger {
    Ledger::new(COUNT, |number| match number {
        0 => "30 8 * * *".to_owned(),
        1..=AT_NINE => "0 9 * * *".to_owned(),
        _ => format!("{} {} * * *", number % 60, 12 + number % 10),
    })
}

/// Nothing is due. Every ten seconds a pass writes how far it has judged, and waits for the disk: what the disk alone
/// takes for such a write at its worst is printed beside it.
fn idle(ledger: &mut Ledger) {
    let (mut quiet, mut beats) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        *ledger.clock.0.lock().unwrap() += SignedDuration::from_millis(500);
        let before = ledger.store.moved();
        let took = ledger.pass();
        let kind = if ledger.store.moved() == before { &mut quiet } else { &mut beats };
        kind.push(took);
    }
    quiet.sort_unstable();
    let median = quiet.get(quiet.len() / 2).copied().unwrap_or_default().as_secs_f64();
    println!("RESULT name=watchdog/idle_pass_{COUNT} seconds={median:.6}");
    let worst = |of: &[Duration]| of.iter().max().copied().unwrap_or_default().as_secs_f64();
    println!("RESULT name=watchdog/idle_pass_worst_{COUNT} seconds={:.6}", worst(&quiet));
    println!("RESULT name=watchdog/idle_beat_worst_{COUNT} seconds={:.6}", worst(&beats));
    let flushes: Vec<_> = beats.iter().map(|_| ledger.flush()).collect();
    println!("RESULT name=watchdog/idle_beat_worst_{COUNT}@limit seconds={:.6}", worst(&flushes));
    assert_eq!(ledger.incidents(), 0);
}

/// So many are missed at one instant: until the last of them is durable, and how late after the deadline that is.
fn misses(ledger: &mut Ledger, (missed, all): (usize, usize), deadline: Timestamp) {
    ledger.go_to(deadline + interlock_watchdog::SETTLE);
    let took = ledger.pass();
    assert_eq!(ledger.incidents(), all);
    let late = took + Duration::from_millis(500);
    println!("RESULT name=watchdog/misses_{missed}_of_{COUNT} seconds={:.3}", took.as_secs_f64());
    println!("RESULT name=watchdog/lateness_{missed}_of_{COUNT} seconds={:.3}", late.as_secs_f64());
}

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let filter = filter.unwrap_or_default();
    if !filter.is_empty() && !filter.contains("watchdog") && !"watchdog/".contains(&filter) {
        return;
    }
    let mut ledger = ledger();
    idle(&mut ledger);
    misses(&mut ledger, (1, 1), at("08:35:00"));
    misses(&mut ledger, (AT_NINE, AT_NINE + 1), at("09:05:00"));
}
