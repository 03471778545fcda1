//! A store with rows that a test chooses, and what is declared.

use std::{collections::BTreeMap, fmt, sync::Arc};

use interlock_answers::{DeclarationFuture, Declarations, Reader};
use interlock_config::{SystemZones, ZoneSource as _, decode_version};
use interlock_core::{
    id::{PipelineId, ScheduleId},
    pipeline::Pipeline,
    zone::Zone,
};
use interlock_store::{
    Change, Expect, Group, Key, Record, Role, Shard, Store as _, Writer, block_on,
    memory::MemoryStore,
    record::{EventRecord, MarksRecord, PipelineRecord, SlotRecord, SpanRecord},
};
use jiff::{SignedDuration, Timestamp};

/// The pipeline of the tests: a slot each hour, none on weekends.
pub(crate) const ORDERS: &str = "\
name: orders
schedules:
  - {id: hourly, cron: '0 * * * *'}
exclusions: {weekends: true}
trigger: {type: command, command: 'true'}
";

/// The version of the declaration that rows name.
pub(crate) const VERSION: &str = "00000000000000ab";

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(crate) fn orders() -> PipelineId {
    PipelineId::parse("orders").unwrap()
}

pub(crate) fn hourly() -> ScheduleId {
    ScheduleId::any("hourly").unwrap()
}

/// What is declared: one text for each version, and the present one.
#[derive(Default)]
struct Texts {
    current: Option<Arc<Pipeline>>,
    versions: BTreeMap<u64, Arc<Pipeline>>,
}

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Texts")
    }
}

impl Declarations for Texts {
    fn current<'a>(&'a self, pipeline: &'a PipelineId) -> DeclarationFuture<'a> {
        let found = self.current.clone().filter(|current| current.name == *pipeline);
        Box::pin(std::future::ready(Ok(found)))
    }

    fn version<'a>(&'a self, _pipeline: &'a PipelineId, version: u64) -> DeclarationFuture<'a> {
        let found = self.versions.get(&version).cloned();
        Box::pin(std::future::ready(found.map(Some).ok_or_else(|| "it is not there".to_owned())))
    }

    fn zone(&self, name: &str) -> Option<Zone> {
        SystemZones::new().zone(name)
    }
}

/// The store and the declarations.
pub(crate) struct House {
    store: MemoryStore,
    writer: Writer,
    texts: Texts,
    now: Timestamp,
}

impl House {
    /// At an instant, with `orders` declared.
    pub(crate) fn new(now: &str) -> Self {
        let now = at(now);
        let store = MemoryStore::new(1, Arc::new(move || now));
        let hour = SignedDuration::from_hours(1);
        let lease = block_on(store.acquire(Role::Engine, Shard(0), "test", hour)).unwrap();
        let mut house = Self { store, writer: lease.unwrap().writer, texts: Texts::default(), now };
        house.declare(ORDERS);
        house
    }

    /// Declares another text from now on.
    pub(crate) fn declare(&mut self, text: &str) {
        self.texts.current = Some(decoded(text));
    }

    /// Takes the file away.
    pub(crate) fn undeclare(&mut self) {
        self.texts.current = None;
    }

    /// Keeps a text as the version that rows name.
    pub(crate) fn keep_version(&mut self, text: &str) {
        self.texts.versions.insert(0xab, decoded(text));
    }

    /// Writes rows of `orders`.
    pub(crate) fn write(&self, rows: Vec<(Key, Record)>) {
        for (key, record) in rows {
            let changes = vec![Change::Put(key, Expect::Absent, record)];
            let group = Group { pipeline: orders(), writer: self.writer, changes };
            block_on(self.store.commit(vec![group])).unwrap().pop().unwrap().unwrap();
        }
    }

    /// Lets things happen to `orders`.
    pub(crate) fn happen(&self, events: Vec<EventRecord>) {
        let changes = events.into_iter().map(|event| Change::Append(event.into())).collect();
        let group = Group { pipeline: orders(), writer: self.writer, changes };
        block_on(self.store.commit(vec![group])).unwrap().pop().unwrap().unwrap();
    }

    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader { store: &self.store, declarations: &self.texts, now: self.now }
    }
}

fn decoded(text: &str) -> Arc<Pipeline> {
    let found = decode_version(text, &BTreeMap::new(), &SystemZones::new(), &|_name: &str| None);
    found.unwrap().pipeline.into()
}

/// A slot that ended in a way.
pub(crate) fn slot(nominal: &str, disposition: &'static str) -> (Key, Record) {
    let record = SlotRecord {
        state: "closed".into(),
        disposition: Some(disposition.into()),
        reason: None,
        generation: 1,
        attempt: 0,
        opened_by: "scheduler".into(),
        date: at(nominal).to_zoned(jiff::tz::TimeZone::UTC).date(),
        opened_at: at(nominal),
        closes_at: at(nominal),
        retry_at: None,
        marks: MarksRecord::default(),
        version: VERSION.to_owned(),
        wish: None,
        reruns: None,
        sla: None,
        evaluated: None,
    };
    (Key::Slot(hourly(), at(nominal)), Record::Slot(record.into()))
}

/// Slots that were skipped together.
pub(crate) fn span(first: &str, last: &str, count: u64) -> (Key, Record) {
    let record = SpanRecord {
        last: at(last),
        count,
        disposition: "skipped".into(),
        reason: Some("no_catchup".into()),
        version: VERSION.to_owned(),
        recorded_at: at(last),
    };
    (Key::Span(hourly(), at(first)), Record::Span(record.into()))
}

/// The pipeline's row, first seen at an instant.
pub(crate) fn seen(first_seen: &str) -> (Key, Record) {
    let record = PipelineRecord {
        version: VERSION.to_owned(),
        first_seen: at(first_seen),
        retired_at: None,
        pause: None,
        disabled_since: None,
        agenda: None,
        about: None,
    };
    (Key::Pipeline, Record::Pipeline(record.into()))
}
