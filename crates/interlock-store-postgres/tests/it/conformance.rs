//! The contract that every engine keeps, on a real server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use interlock_private_server::{PrivateBouncer, PrivatePostgres};
use interlock_store_conformance::{self as conformance, Subject};
use interlock_store_postgres::{PostgresSettings, PostgresStore};

/// Fresh stores, each in a schema of its own.
fn subjects(dsn: String, shards: u16) -> impl Fn() -> Subject {
    let made = AtomicUsize::new(0);
    move || {
        let schema = format!("s{shards}_{}", made.fetch_add(1, Ordering::Relaxed));
        let settings = PostgresSettings {
            schema,
            connections_max: 6,
            shards,
            ..PostgresSettings::new(dsn.clone())
        };
        let store = PostgresStore::open(&settings).unwrap();
        Subject::new(Arc::new(store), |time| thread::sleep(time.unsigned_abs()))
    }
}

#[test]
fn the_contract_is_kept() {
    let server = PrivatePostgres::start();
    conformance::check(subjects(server.dsn(), 4));
}

#[test]
fn the_contract_is_kept_with_one_shard_behind_a_pooler() {
    let server = PrivatePostgres::start();
    let bouncer = PrivateBouncer::start(&server, 3);
    conformance::check(subjects(bouncer.dsn(), 1));
}
