//! The engine in memory keeps the contract, and can be set back.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    Accepted, Change, Expect, Group, Key, Record, Refusal, Role, Shard, Store as _, Writer,
    block_on,
    memory::MemoryStore,
    record::{EventRecord, WatermarkRecord},
};
use interlock_store_conformance::{self as conformance, START, Subject};
use jiff::SignedDuration;

fn subject(shard_count: u16) -> Subject {
    // A real clock knows more than milliseconds; the store must not pass that on.
    let clock = Arc::new(Mutex::new(START + SignedDuration::from_nanos(123_456)));
    let hands = Arc::clone(&clock);
    let store = MemoryStore::new(shard_count, Arc::new(move || *clock.lock().unwrap()));
    Subject::new(Arc::new(store), move |time| *hands.lock().unwrap() += time)
}

#[test]
fn the_contract_is_kept() {
    conformance::check(|| subject(4));
}

#[test]
fn the_contract_is_kept_with_one_shard() {
    conformance::check(|| subject(1));
}

#[test]
fn a_broken_promise_is_named() {
    let stopped = || {
        let store = MemoryStore::new(4, Arc::new(|| START));
        Subject::new(Arc::new(store), |_| {})
    };
    let checked = catch_unwind(AssertUnwindSafe(|| conformance::check(stopped)));
    let text = *checked.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("\n  lease::an_expired_lease_may_be_taken_over\n"), "{text}");
    assert!(!text.contains("commit::"), "those need no time: {text}");
}

#[test]
fn cases_have_names_of_their_own() {
    let mut names: Vec<&str> = conformance::cases().iter().map(|case| case.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

fn advance(store: &MemoryStore, writer: Writer, expect: Expect) -> Result<Accepted, Refusal> {
    let key = Key::Watermark(ScheduleId::any("daily").unwrap());
    let pipeline = PipelineId::parse("orders").unwrap();
    let event = EventRecord {
        kind: "SLOT_OPENED".into(),
        at: START,
        slot: None,
        run_id: None,
        message: String::new(),
        details: BTreeMap::new(),
    };
    let mark = Record::Watermark(WatermarkRecord { at: START });
    let changes = vec![Change::Put(key, expect, mark), Change::Append(event.into())];
    block_on(store.commit(vec![Group { pipeline, writer, changes }])).unwrap().remove(0)
}

#[test]
fn a_store_that_is_set_back_has_forgotten_what_came_since() {
    let store = MemoryStore::new(1, Arc::new(|| START));
    let ttl = SignedDuration::from_secs(30);
    let lease = block_on(store.acquire(Role::Engine, Shard(0), "a", ttl)).unwrap().unwrap();
    advance(&store, lease.writer, Expect::Absent).unwrap();
    let durable = store.snapshot();
    let lost = advance(&store, lease.writer, Expect::Revision(1)).unwrap();
    store.restore(durable.clone());
    assert_eq!(store.snapshot(), durable);
    assert_eq!(advance(&store, lease.writer, Expect::Revision(1)), Ok(lost));
}

#[test]
fn nothing_happens_before_a_future_is_polled() {
    let store = MemoryStore::new(1, Arc::new(|| START));
    let before = store.snapshot();
    drop(store.acquire(Role::Engine, Shard(0), "a", SignedDuration::from_secs(30)));
    assert_eq!(store.snapshot(), before);
}
