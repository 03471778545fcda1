//! A store on a real cluster: in one hash slot, wherever that is.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use interlock_private_server::PrivateCluster;
use interlock_store::{
    Expect,
    conformance::{self, Subject},
};
use interlock_store_redis::{RedisSettings, RedisStore};

use crate::cast::{LONG, acquire, advance, open, redis_cli, wait_for_replica};

/// Where the store of these tests is.
const HOME: &str = "{interlock}:about";

/// Each store has another slot, and is opened by the next server: two of three have to say who has it.
#[test]
fn the_contract_is_kept_on_a_cluster() {
    let cluster = PrivateCluster::start();
    let (addresses, made) = (cluster.addresses(), AtomicUsize::new(0));
    conformance::check(|| {
        let number = made.fetch_add(1, Ordering::Relaxed);
        let addr = addresses[number % addresses.len()].clone();
        let key_prefix = format!("c:{number}");
        let settings = RedisSettings { key_prefix, shards: 4, ..RedisSettings::new(addr) };
        let store = RedisStore::open(&settings).unwrap();
        Subject::new(Arc::new(store), |time| thread::sleep(time.unsigned_abs()))
    });
}

#[test]
fn everything_of_a_store_is_in_one_slot() {
    let cluster = PrivateCluster::start();
    let owner = cluster.owner_of(HOME);
    let expected = [Expect::Absent, Expect::Revision(1), Expect::Revision(2)];
    for (addr, expected) in cluster.addresses().into_iter().zip(expected) {
        let store = open(addr).unwrap();
        let writer = acquire(&store, "us", LONG).unwrap();
        assert!(advance(&store, writer, expected).unwrap().is_ok());
    }
    let slots = |addr: &str| {
        let keys = redis_cli(addr, &["KEYS", "*"]);
        let slot = |key: &str| redis_cli(addr, &["CLUSTER", "KEYSLOT", key]);
        keys.lines().map(slot).collect::<std::collections::BTreeSet<_>>()
    };
    for (number, addr) in cluster.addresses().iter().enumerate() {
        let found = slots(addr).into_iter().filter(|slot| !slot.is_empty()).count();
        assert_eq!(found, usize::from(number == owner), "{addr}");
    }
}

/// The one that has it dies; its replica follows, and the store goes on without anybody opening it again.
#[test]
fn a_store_follows_its_slot_to_the_replica() {
    let mut cluster = PrivateCluster::start();
    let store = open(cluster.addresses().remove(0)).unwrap();
    let writer = acquire(&store, "us", LONG).unwrap();
    assert!(advance(&store, writer, Expect::Absent).unwrap().is_ok());
    cluster.add_replica_of(HOME);
    assert!(advance(&store, writer, Expect::Revision(1)).unwrap().is_ok());
    wait_for_replica(&cluster.addresses()[cluster.owner_of(HOME)]);
    cluster.kill_owner_of(HOME);
    // Each attempt takes seconds by itself.
    let mut attempts = (0..10).map(|_| advance(&store, writer, Expect::Revision(2)));
    let done = attempts.find_map(|attempt| match attempt {
        Ok(done) => Some(done),
        Err(error) => {
            assert!(error.is_retryable, "{error}");
            None
        }
    });
    let done = done.expect("somebody follows");
    assert!(done.is_ok(), "{done:?}");
    assert_eq!(store.rollbacks(), 0, "nothing that was acknowledged is lost");
}
