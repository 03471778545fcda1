//! The contract that every engine keeps, on a real server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use interlock_private_server::PrivateRedis;
use interlock_store::conformance::{self, Subject};
use interlock_store_redis::{RedisSettings, RedisStore};

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
