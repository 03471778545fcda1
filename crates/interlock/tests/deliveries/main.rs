//! Ten thousand notifications to a receiver over HTTP, on each store, with a kill in the middle (S12, S13, L4, L6).

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on should stop, and it waits by the real clock"
)]

#[expect(dead_code, reason = "what only the benchmark asks for")]
mod house;

use std::{collections::BTreeSet, sync::Arc};

use interlock_engine::Patience;
use interlock_private_server::{PrivatePostgres, PrivateRedis};
use interlock_store::{Rows, Store, block_on};
use interlock_store_embedded::EmbeddedStore;
use interlock_store_postgres::{PostgresSettings, PostgresStore};
use interlock_store_redis::{RedisSettings, RedisStore};
use interlock_wait::{BOUND, wait_until};
use jiff::SignedDuration;

use house::{Incidents, Process, Receiver, fill, now, webhook};

/// Incidents that begin and end: two notifications each.
const INCIDENTS: usize = 5_000;
/// The receiver takes this one, and does not answer any more.
const MUTE_FROM: usize = 3_000;

fn all_are_told(store: &Arc<dyn Store>) {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(MUTE_FROM);
    fill(&**store, INCIDENTS, Incidents::Over);
    // Claims that a dead process leaves behind are over soon.
    let patience = Patience {
        claim: SignedDuration::from_secs(5),
        try_max: SignedDuration::from_secs(1),
        ..Patience::default()
    };
    let start = || Process::start(store, webhook(&receiver.url), (folder.path(), patience));
    let first = start();
    wait_until("the receiver is mute", BOUND, || receiver.is_mute());
    drop(first);
    let before = receiver.heard();
    receiver.speak();
    let second = start();
    let wanted: BTreeSet<String> = (0..INCIDENTS)
        .flat_map(|number| ["opened", "resolved"].map(|name| format!("p{number}/{name}@hook")))
        .collect();
    wait_until("all are told and settled", BOUND, || {
        receiver.count() >= wanted.len()
            && block_on(store.rows(Rows::Notifications, "", 10)).unwrap().items.is_empty()
    });
    drop(second);
    let heard = receiver.heard();
    let keys: BTreeSet<String> = heard.iter().map(|one| one.key.clone()).collect();
    assert_eq!(keys.len(), wanted.len(), "each has one key, however often it was sent");
    assert_eq!(keys, wanted);
    // What was taken and not answered is sent again, under the same key.
    let (_, after) = heard.split_at(before.len());
    let unanswered = before.get(MUTE_FROM - 1..).unwrap_or_default();
    assert!(!unanswered.is_empty());
    for one in unanswered {
        assert!(after.contains(one), "{one:?} was not sent again");
    }
    let mut begun = BTreeSet::new();
    for one in &heard {
        if one.state == "open" {
            begun.insert(one.pipeline.clone());
        } else {
            assert!(begun.contains(&one.pipeline), "{one:?} came before its beginning");
        }
    }
}

#[test]
fn ten_thousand_are_told_over_http_and_repeated_after_a_kill_on_the_embedded_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open_daemon(folder.path(), Arc::new(now)).unwrap();
    all_are_told(&(Arc::new(store) as Arc<dyn Store>));
}

#[test]
fn ten_thousand_are_told_over_http_and_repeated_after_a_kill_on_redis() {
    let server = PrivateRedis::start();
    let settings = RedisSettings { shards: 4, ..RedisSettings::new(server.address()) };
    all_are_told(&(Arc::new(RedisStore::open(&settings).unwrap()) as Arc<dyn Store>));
}

#[test]
fn ten_thousand_are_told_over_http_and_repeated_after_a_kill_on_postgres() {
    let server = PrivatePostgres::start();
    let settings = PostgresSettings { shards: 4, ..PostgresSettings::new(server.dsn()) };
    all_are_told(&(Arc::new(PostgresStore::open(&settings).unwrap()) as Arc<dyn Store>));
}
