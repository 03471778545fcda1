//! The engine in memory keeps the contract, and can be set back.

use std::sync::{Arc, Mutex};

use super::*;
use crate::conformance::{self, START, Subject};

fn subject(shard_count: u16) -> Subject {
    let clock = Arc::new(Mutex::new(START));
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
