//! The contract that every engine keeps, on a real server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use interlock_private_server::PrivateRedis;
use interlock_store::{
    Freight, Key, Record, Row, Rows, Store as _, StoredRow, block_on, record::AppliedRecord,
};
use interlock_store_conformance::{self as conformance, START, Subject};
use interlock_store_redis::{RedisSettings, RedisStore};

use crate::cast::{open, orders, redis_cli};

/// Fresh stores, each under a prefix of its own.
fn subjects(addr: String, shards: u16) -> impl Fn() -> Subject {
    let made = AtomicUsize::new(0);
    move || {
        let key_prefix = format!("s{shards}:{}", made.fetch_add(1, Ordering::Relaxed));
        let settings = RedisSettings { key_prefix, shards, ..RedisSettings::new(addr.clone()) };
        let store = RedisStore::open(&settings).unwrap();
        Subject::new(Arc::new(store), |time| thread::sleep(time.unsigned_abs()))
    }
}

#[test]
fn the_contract_is_kept() {
    let server = PrivateRedis::start();
    conformance::check(subjects(server.address(), 4));
}

#[test]
fn the_contract_is_kept_with_one_shard() {
    let server = PrivateRedis::start();
    conformance::check(subjects(server.address(), 1));
}

/// Each run is a key of its own: who looks for answers does not have the server go through all of them in one call.
#[test]
fn a_portion_of_answers_looks_at_a_bounded_number_of_keys() {
    let server = PrivateRedis::start();
    let store = open(server.address()).unwrap();
    let runs = "for n = 1, 60000 do redis.call('HSET', 'interlock:run:' .. n, 'row', '-') end";
    redis_cli(&server.address(), &["EVAL", runs, "0"]);
    let answer = AppliedRecord { at: START, accepted: true, result: "done".into(), request: None };
    let row = Row { record: Record::Applied(answer.into()), revision: 1 };
    let answer = StoredRow { pipeline: orders(), key: Key::Applied("k".to_owned()), row };
    let rows = vec![answer.clone()];
    block_on(store.import(Freight { rows, ..Freight::default() })).unwrap();
    let (mut found, mut portions, mut from) = (Vec::new(), 0, String::new());
    loop {
        let portion = block_on(store.rows(Rows::Answers, &from, 10)).unwrap();
        found.extend(portion.items);
        portions += 1;
        let Some(next) = portion.next else { break };
        from = next;
    }
    assert_eq!(found, [answer]);
    assert!(portions > 1, "{portions} portions");
}
