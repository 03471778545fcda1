//! What the tests work with: a store in a folder, and groups by number.
//!
//! Group `n` belongs to pipeline `crash-(n mod 20)`; it holds a slot, a due entry and an event that all say
//! `n`, so that half a group can be recognised.

use std::{path::Path, sync::Arc};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    Accepted, Change, DueKind, Expect, Group, Key, Record, Refusal, Role, Shard, Store, StoreError,
    Writer, block_on,
    record::{DueRecord, EventRecord, InboxRecord, SlotRecord, VersionRecord},
};
use interlock_store_conformance::START;
use interlock_store_embedded::{Clock, EmbeddedStore};
use jiff::{SignedDuration, Timestamp};

pub(crate) const PIPELINES: u64 = 20;

pub(crate) fn clock() -> Clock {
    Arc::new(|| START)
}

pub(crate) fn daemon(folder: &Path) -> EmbeddedStore {
    EmbeddedStore::open_daemon(folder, clock()).unwrap()
}

pub(crate) fn reader(folder: &Path) -> EmbeddedStore {
    EmbeddedStore::open_reader(folder, clock()).unwrap()
}

pub(crate) fn writer(store: &EmbeddedStore) -> Writer {
    let ttl = SignedDuration::from_hours(1);
    let lease = block_on(store.acquire(Role::Engine, Shard(0), "test", ttl));
    lease.unwrap().unwrap().writer
}

pub(crate) fn pipeline(number: u64) -> PipelineId {
    PipelineId::parse(&format!("crash-{}", number % PIPELINES)).unwrap()
}

pub(crate) fn schedule() -> ScheduleId {
    ScheduleId::from_static("minutely")
}

pub(crate) fn nominal(number: u64) -> Timestamp {
    START + SignedDuration::from_mins((number / PIPELINES) as i64)
}

pub(crate) fn slot_key(number: u64) -> Key {
    Key::Slot(schedule(), nominal(number))
}

pub(crate) fn due_key(number: u64) -> Key {
    Key::Due(nominal(number), DueKind::Closes, format!("minutely-{number}"))
}

pub(crate) fn slot(number: u64) -> SlotRecord {
    SlotRecord {
        state: "waiting".into(),
        disposition: None,
        reason: None,
        generation: 1,
        attempt: 0,
        opened_by: "schedule".into(),
        date: jiff::civil::date(2026, 2, 25),
        opened_at: START,
        closes_at: nominal(number) + SignedDuration::from_hours(24),
        retry_at: None,
        marks: interlock_store::record::MarksRecord::default(),
        version: format!("{number:016x}"),
        wish: None,
        reruns: None,
        sla: None,
        evaluated: None,
    }
}

pub(crate) fn event(number: u64) -> EventRecord {
    EventRecord {
        kind: "SLOT_OPENED".into(),
        at: START,
        slot: None,
        run_id: None,
        message: number.to_string(),
        details: std::collections::BTreeMap::new(),
    }
}

/// The group of a number.
pub(crate) fn group(writer: Writer, number: u64) -> Group {
    let due = DueRecord { details: std::collections::BTreeMap::new() };
    let changes = vec![
        Change::Put(slot_key(number), Expect::Absent, Record::Slot(slot(number).into())),
        Change::Put(due_key(number), Expect::Absent, Record::Due(due)),
        Change::Append(event(number).into()),
    ];
    Group { pipeline: pipeline(number), writer, changes }
}

/// A group that takes much room.
pub(crate) fn bulky(writer: Writer, number: u64, bytes: usize) -> Group {
    let record = VersionRecord {
        since: START,
        source: "x".repeat(bytes),
        context: std::collections::BTreeMap::new(),
    };
    let put = Change::Put(Key::Version(number), Expect::Absent, Record::Version(record.into()));
    Group { pipeline: pipeline(0), writer, changes: vec![put] }
}

pub(crate) fn commit(
    store: &EmbeddedStore,
    group: Group,
) -> Result<Result<Accepted, Refusal>, StoreError> {
    block_on(store.commit(vec![group])).map(|mut results| results.remove(0))
}

/// A request that says a number.
pub(crate) fn letter(number: u64) -> InboxRecord {
    InboxRecord::Pause { reason: number.to_string(), until: None }
}
