//! A ledger that changes at random, and what became of each slot by the test's own book.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use interlock_answers::{DeclarationFuture, Declarations, model::fleet::FleetPlace};
use interlock_config::{SystemZones, ZoneSource as _, decode_version};
use interlock_core::{
    agenda::Agenda,
    id::{PipelineId, ScheduleId},
    zone::Zone,
};
use interlock_store::{
    Change, Expect, Group, Key, Record, Role, Shard, Store, Writer, block_on,
    record::{
        AboutRecord, AgendaRecord, EventRecord, MarksRecord, PipelineRecord, SlotRecord,
        SpanRecord, WatermarkRecord,
    },
};
use jiff::{SignedDuration, Timestamp};

use crate::house::VERSION;

/// How many pipelines there are.
const PIPELINES: usize = 9;
/// A slot every five minutes.
const STEP: i64 = 300;
/// How far back the ledger goes at the beginning.
const DAYS_BACK: i64 = 4;
/// Rows of one commit, besides the watermark.
const ROWS: usize = 20;

/// Which changes an event tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hints {
    All,
    EverySecond,
    None,
}

/// Time that passes when it is told to.
#[derive(Debug, Clone)]
pub(crate) struct Clock(Arc<AtomicI64>);

impl Clock {
    pub(crate) fn new() -> Self {
        // Three in the afternoon: something was due since midnight.
        let now: Timestamp = "2026-02-25T15:00:00Z".parse().unwrap();
        Self(Arc::new(AtomicI64::new(now.as_second())))
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::SeqCst)).unwrap()
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }

    pub(crate) fn reader(&self) -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }
}

/// Declarations of which only the zones are asked for.
#[derive(Debug)]
pub(crate) struct NoDeclarations;

pub(crate) fn declared() -> NoDeclarations {
    NoDeclarations
}

impl Declarations for NoDeclarations {
    fn current<'a>(&'a self, _pipeline: &'a PipelineId) -> DeclarationFuture<'a> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn version<'a>(&'a self, _pipeline: &'a PipelineId, _version: u64) -> DeclarationFuture<'a> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn zone(&self, name: &str) -> Option<Zone> {
        SystemZones::new().zone(name)
    }
}

/// A ledger that changes at random.
pub(crate) struct RandomLedger {
    store: Arc<dyn Store>,
    clock: Clock,
    writers: Vec<Writer>,
    pipelines: Vec<WrittenPipeline>,
    state: u64,
    groups: u64,
}

struct WrittenPipeline {
    id: PipelineId,
    /// Up to when it is recorded, and how often that was written.
    watermark: (Timestamp, u64),
    /// What became of each slot, and the revision of its row; 0 for one of a span.
    slots: BTreeMap<Timestamp, (FleetPlace, u64)>,
}

/// State, disposition, reason, what opened it, and the place that the test expects for that.
type Fate = (&'static str, Option<&'static str>, Option<&'static str>, &'static str, FleetPlace);

/// How a slot may stand.
const FATES: &[Fate] = &[
    ("closed", Some("completed"), None, "scheduler", FleetPlace::OnTime),
    ("closed", Some("completed"), None, "catchup", FleetPlace::CaughtUp),
    ("closed", Some("failed"), None, "scheduler", FleetPlace::Failed),
    ("closed", Some("cancelled"), None, "scheduler", FleetPlace::Cancelled),
    ("closed", Some("missed"), None, "scheduler", FleetPlace::Missed),
    ("closed", Some("unknown"), None, "scheduler", FleetPlace::Unknown),
    ("closed", Some("skipped"), Some("overlap"), "scheduler", FleetPlace::Skipped),
    ("closed", Some("skipped"), Some("expired"), "scheduler", FleetPlace::Missed),
    ("running", None, None, "scheduler", FleetPlace::Running),
    ("waiting", None, None, "scheduler", FleetPlace::Waiting),
    ("queued", None, None, "catchup", FleetPlace::Waiting),
    ("backoff", None, None, "scheduler", FleetPlace::Waiting),
    ("monitoring", None, None, "scheduler", FleetPlace::OnTime),
];

impl RandomLedger {
    /// Four days of it.
    pub(crate) fn new(store: Arc<dyn Store>, clock: Clock, seed: u64) -> Self {
        let hour = SignedDuration::from_hours(1);
        let writers = (0..store.shard_count()).map(|shard| {
            let lease = store.acquire(Role::Engine, Shard(shard), "test", hour);
            block_on(lease).unwrap().unwrap().writer
        });
        let writers = writers.collect();
        let state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut ledger = Self { store, clock, writers, pipelines: vec![], state, groups: 0 };
        for number in 0..PIPELINES {
            ledger.declare(number);
            ledger.record_to_now(number, Hints::None);
        }
        ledger
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Lets something happen to about half of the pipelines.
    pub(crate) fn change(&mut self, hints: Hints) {
        for number in 0..PIPELINES {
            if self.random(2) == 0 {
                self.record_to_now(number, hints);
            }
            for _ in 0..self.random(3) {
                self.alter(number, hints);
            }
        }
    }

    /// Slots by place and quarter of an hour, of the last 48 hours.
    pub(crate) fn cells(&self) -> BTreeMap<(String, Timestamp, FleetPlace), u64> {
        let quarter = |at: Timestamp| at.as_second().div_euclid(900) * 900;
        let first = quarter(self.clock.now()) - 48 * 3_600;
        let mut cells = BTreeMap::new();
        for pipeline in &self.pipelines {
            let slots = pipeline.slots.iter().filter(|(at, _)| at.as_second() >= first);
            for (at, (place, _)) in slots {
                let start = Timestamp::from_second(quarter(*at)).unwrap();
                *cells.entry((pipeline.id.to_string(), start, *place)).or_default() += 1;
            }
        }
        cells
    }

    /// How many slots are recorded, or due and not recorded yet, since an instant.
    pub(crate) fn counted_since(&self, from: Timestamp) -> u64 {
        let now = self.clock.now();
        let recorded = |it: &WrittenPipeline| it.slots.keys().filter(|at| **at >= from).count();
        let due = |it: &WrittenPipeline| (now.as_second() - it.watermark.0.as_second()) / STEP;
        self.pipelines.iter().map(|it| recorded(it) as u64 + due(it) as u64).sum()
    }

    /// A slot of today that has a row of its own.
    pub(crate) fn a_row_of_today(&self, number: usize) -> (String, Timestamp) {
        let pipeline = &self.pipelines[number];
        let mut rows = pipeline.slots.iter().rev().filter(|(_, (_, revision))| *revision > 0);
        let (at, _) = rows.next().unwrap();
        (pipeline.id.to_string(), *at)
    }

    /// Has a row say a word that this version does not know.
    pub(crate) fn write_odd_word(&mut self, number: usize) {
        let (_, at) = self.a_row_of_today(number);
        let Change::Put(key, expect, Record::Slot(slot)) = self.row(number, at) else { return };
        let mut slot = Arc::unwrap_or_clone(slot);
        (slot.state, slot.disposition, slot.reason) = ("closed".into(), Some("odd".into()), None);
        if let Some(known) = self.pipelines[number].slots.get_mut(&at) {
            known.0 = FleetPlace::Unknown;
        }
        let id = self.pipelines[number].id.clone();
        self.commit(&id, vec![Change::Put(key, expect, Record::Slot(slot.into()))]);
    }

    fn declare(&mut self, number: usize) {
        let text = format!(
            "name: p{number:03}\nowner: team-{}\nlabels: {{part: \"{}\"}}\nschedules:\n  - {{id: fast, \
             cron: '*/5 * * * *'}}\ntrigger: {{type: command, command: 'true'}}\n",
            number % 3,
            number % 2
        );
        let decoded = decode_version(&text, &BTreeMap::new(), &SystemZones::new(), &|_: &str| None);
        let decoded = decoded.unwrap().pipeline;
        let now = self.clock.now();
        let first_seen = now - SignedDuration::from_hours(24 * DAYS_BACK);
        let record = PipelineRecord {
            version: VERSION.to_owned(),
            first_seen,
            retired_at: None,
            pause: None,
            disabled_since: None,
            agenda: Some(Box::new(AgendaRecord::from_core(&Agenda::of(&decoded)))),
            about: Some(Box::new(AboutRecord::of(&decoded))),
        };
        let id = decoded.name.clone();
        let mark = WatermarkRecord { at: first_seen };
        let rows = vec![
            Change::Put(Key::Pipeline, Expect::Absent, Record::Pipeline(record.into())),
            Change::Put(Key::Watermark(fast()), Expect::Absent, Record::Watermark(mark)),
        ];
        self.commit(&id, rows);
        let watermark = (first_seen, 1);
        self.pipelines.push(WrittenPipeline { id, watermark, slots: BTreeMap::new() });
    }

    /// Records what is due: some slots each by itself, some as a span.
    fn record_to_now(&mut self, number: usize, hints: Hints) {
        let now = self.clock.now().as_second();
        loop {
            let mark = self.pipelines[number].watermark.0.as_second();
            let due = (now - mark) / STEP;
            if due <= 0 {
                return;
            }
            let is_span = due > 3 && self.random(3) == 0;
            let count = due.min(2 + self.random(if is_span { 40 } else { ROWS as u64 - 2 }) as i64);
            let slots: Vec<_> = (1..=count)
                .map(|step| Timestamp::from_second(mark + step * STEP).unwrap())
                .collect();
            let mut rows = if is_span && count > 1 {
                vec![self.span(number, &slots)]
            } else {
                slots.iter().map(|at| self.row(number, *at)).collect()
            };
            let last = slots[slots.len() - 1];
            let pipeline = &mut self.pipelines[number];
            let record = Record::Watermark(WatermarkRecord { at: last });
            let expect = Expect::Revision(pipeline.watermark.1);
            rows.push(Change::Put(Key::Watermark(fast()), expect, record));
            pipeline.watermark = (last, pipeline.watermark.1 + 1);
            let event = event("SLOTS_OPENED", self.clock.now(), None);
            self.tell(hints, &mut rows, event);
            let id = self.pipelines[number].id.clone();
            self.commit(&id, rows);
        }
    }

    /// Something else becomes of a slot of any time.
    fn alter(&mut self, number: usize, hints: Hints) {
        let count = self.pipelines[number].slots.len() as u64;
        if count == 0 {
            return;
        }
        let which = self.random(count) as usize;
        let at = *self.pipelines[number].slots.keys().nth(which).unwrap();
        let mut rows = vec![self.row(number, at)];
        let event = event("SLOT_OPENED", self.clock.now(), Some(at));
        self.tell(hints, &mut rows, event);
        let id = self.pipelines[number].id.clone();
        self.commit(&id, rows);
    }

    fn tell(&mut self, hints: Hints, rows: &mut Vec<Change>, event: EventRecord) {
        self.groups += 1;
        let is_told = match hints {
            Hints::All => true,
            Hints::EverySecond => self.groups.is_multiple_of(2),
            Hints::None => false,
        };
        if is_told {
            rows.push(Change::Append(event.into()));
        }
    }

    fn span(&mut self, number: usize, slots: &[Timestamp]) -> Change {
        let (word, place) = match self.random(2) {
            0 => ("missed", FleetPlace::Missed),
            _ => ("unknown", FleetPlace::Unknown),
        };
        let (first, last) = (slots[0], slots[slots.len() - 1]);
        for at in slots {
            self.pipelines[number].slots.insert(*at, (place, 0));
        }
        let record = SpanRecord {
            last,
            count: slots.len() as u64,
            disposition: word.into(),
            reason: None,
            version: VERSION.to_owned(),
            recorded_at: self.clock.now(),
        };
        Change::Put(Key::Span(fast(), first), Expect::Absent, Record::Span(record.into()))
    }

    fn row(&mut self, number: usize, at: Timestamp) -> Change {
        let fate = self.random(FATES.len() as u64) as usize;
        let (state, disposition, reason, opened_by, place) = FATES[fate];
        let now = self.clock.now();
        let record = SlotRecord {
            state: state.into(),
            disposition: disposition.map(Into::into),
            reason: reason.map(Into::into),
            generation: 1,
            attempt: 0,
            opened_by: opened_by.into(),
            date: at.to_zoned(jiff::tz::TimeZone::UTC).date(),
            opened_at: now,
            closes_at: now,
            retry_at: None,
            marks: MarksRecord::default(),
            version: VERSION.to_owned(),
            wish: None,
            reruns: None,
            sla: None,
            evaluated: None,
        };
        let known = self.pipelines[number].slots.entry(at).or_insert((place, 0));
        let expect = if known.1 == 0 { Expect::Absent } else { Expect::Revision(known.1) };
        *known = (place, known.1 + 1);
        Change::Put(Key::Slot(fast(), at), expect, Record::Slot(record.into()))
    }

    fn commit(&self, id: &PipelineId, changes: Vec<Change>) {
        let shard = Shard::of(id, self.store.shard_count());
        let writer = self.writers[usize::from(shard.0)];
        let group = Group { pipeline: id.clone(), writer, changes };
        block_on(self.store.commit(vec![group])).unwrap().pop().unwrap().unwrap();
    }

    fn random(&mut self, below: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % below.max(1)
    }
}

fn fast() -> ScheduleId {
    ScheduleId::any("fast").unwrap()
}

fn event(kind: &'static str, at: Timestamp, slot: Option<Timestamp>) -> EventRecord {
    EventRecord {
        kind: kind.into(),
        at,
        slot: slot.map(|at| format!("fast/{at}")),
        run_id: None,
        message: String::new(),
        details: BTreeMap::new(),
    }
}
