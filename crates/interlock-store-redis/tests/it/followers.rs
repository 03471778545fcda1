//! A primary and its replica, both named: whoever is the primary is written to.

use interlock_private_server::PrivateRedis;
use interlock_store::Expect;

use crate::cast::{LONG, acquire, advance, open, redis_cli, wait_for_replica};

fn replica_of(primary: &PrivateRedis) -> PrivateRedis {
    let port = primary.port().to_string();
    let words = ["--appendonly", "yes", "--appendfsync", "always", "--replicaof", "127.0.0.1"];
    PrivateRedis::start_with(&[&words[..], &[port.as_str()]].concat())
}

#[test]
fn the_primary_is_found_and_followed() {
    let mut primary = PrivateRedis::start();
    let replica = replica_of(&primary);
    let both = format!("{}, {}", replica.address(), primary.address());
    let store = open(both).unwrap();
    let writer = acquire(&store, "us", LONG).unwrap();
    advance(&store, writer, Expect::Absent).unwrap().unwrap();
    wait_for_replica(&primary.address());

    let error = open(replica.address()).unwrap_err();
    assert!(error.message.contains("is a replica") && error.is_retryable, "{error}");

    primary.kill();
    redis_cli(&replica.address(), &["REPLICAOF", "NO", "ONE"]);
    advance(&store, writer, Expect::Revision(1)).unwrap().unwrap();
    assert_eq!(store.rollbacks(), 0, "it has all that was acknowledged");

    // The one that was the primary comes back as a replica of the other, and nobody is taken in by it.
    assert!(primary.start_again());
    let port = replica.port().to_string();
    redis_cli(&primary.address(), &["REPLICAOF", "127.0.0.1", &port]);
    let again = open(format!("{},{}", primary.address(), replica.address())).unwrap();
    advance(&again, writer, Expect::Revision(2)).unwrap().unwrap();
}
