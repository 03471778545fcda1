//! A primary and its replica, both named: whoever is the primary is written to.

use std::time::Duration;

use interlock_private_server::{PrivateRedis, Signal};
use interlock_store::{Expect, Refusal, Store as _, block_on};
use interlock_store_redis::{RedisSettings, RedisStore};
use jiff::SignedDuration;

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
    wait_for_replica(&primary.address(), "interlock");

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

fn both(one: &PrivateRedis, other: &PrivateRedis) -> String {
    format!("{},{}", one.address(), other.address())
}

/// A pair whose primary died, was followed by its replica, and is back as it was: a primary.
fn pair_of_primaries(use_it: impl FnOnce(&str)) -> [PrivateRedis; 2] {
    let mut old = PrivateRedis::start();
    let new = replica_of(&old);
    use_it(&both(&old, &new));
    wait_for_replica(&old.address(), "interlock");
    old.kill();
    redis_cli(&new.address(), &["REPLICAOF", "NO", "ONE"]);
    assert!(old.start_again());
    [old, new]
}

fn writes(addr: &str) -> Option<String> {
    Some(redis_cli(addr, &["HGET", "interlock:about", "writes"])).filter(|text| !text.is_empty())
}

#[test]
fn of_two_primaries_of_a_store_all_use_the_one_that_is_further_and_say_so() {
    let mut store = None;
    let [old, new] = pair_of_primaries(|addr| {
        let opened = open(addr.to_owned()).unwrap();
        let writer = acquire(&opened, "us", LONG).unwrap();
        advance(&opened, writer, Expect::Absent).unwrap().unwrap();
        store = Some((opened, writer));
    });
    let (store, writer) = store.unwrap();
    // Nothing has been done on either since: nobody can tell.
    for addr in [both(&old, &new), both(&new, &old)] {
        let error = open(addr).unwrap_err();
        assert!(error.message.contains("neither is further") && error.is_retryable, "{error}");
        for server in [&old, &new] {
            assert!(error.message.contains(&server.address()), "{error}");
        }
    }
    // Who knows of the new one only writes to it.
    let alone = open(new.address()).unwrap();
    advance(&alone, writer, Expect::Revision(1)).unwrap().unwrap();
    let written = writes(&old.address());
    advance(&store, writer, Expect::Revision(2)).unwrap().unwrap();
    assert_eq!(store.rollbacks(), 0, "it was where everything is");
    for addr in [both(&old, &new), both(&new, &old)] {
        let late = open(addr).unwrap();
        assert!(acquire(&late, "late", LONG).is_none(), "somebody else has it");
        for said in [late.warnings().to_vec(), block_on(late.cautions()).unwrap()] {
            let [warning] = said.as_slice() else { panic!("{said:?}") };
            let (old, new) = (old.port(), new.port());
            let command = format!("redis-cli -h 127.0.0.1 -p {old} replicaof 127.0.0.1 {new}");
            assert!(warning.contains(&command), "{warning}");
        }
    }
    assert_eq!(writes(&old.address()), written, "nothing was written to the old one");
    redis_cli(&old.address(), &["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    assert_eq!(block_on(store.cautions()).unwrap(), [""; 0]);
}

/// While the new one could not be seen the old one was taken for the only primary. That is left as soon as both are seen.
#[test]
fn a_primary_that_was_taken_for_the_only_one_is_left_for_one_that_is_further() {
    let [old, new] = pair_of_primaries(|addr| {
        acquire(&open(addr.to_owned()).unwrap(), "us", SignedDuration::ZERO).unwrap();
    });
    new.signal(Signal::STOP);
    let store = open(both(&old, &new)).unwrap();
    assert_eq!(store.warnings(), [""; 0], "one that is away is no reason to wait");
    let ours = acquire(&store, "us", LONG).unwrap();
    advance(&store, ours, Expect::Absent).unwrap().unwrap();
    new.signal(Signal::CONT);
    let theirs = acquire(&open(new.address()).unwrap(), "they", LONG).unwrap();
    assert!(theirs.term > ours.term);
    // It looks every five seconds which of them is further.
    let mut said = (0..600).map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        advance(&store, ours, Expect::Revision(1)).unwrap()
    });
    let has_turned =
        |outcome: &_| matches!(outcome, Err(Refusal::Term { current }) if *current > theirs.term);
    assert!(
        said.any(|outcome| has_turned(&outcome)),
        "waited 30 s for the store to turn to the primary that is further; the last answer was {:?}",
        advance(&store, ours, Expect::Revision(1))
    );
    assert_eq!(store.rollbacks(), 1, "what was done on the old one is lost, and told");
}

#[test]
fn servers_without_the_store_are_not_written_to_and_told_of() {
    let (server, empty) = (PrivateRedis::start(), PrivateRedis::start());
    let error = open(both(&server, &empty)).unwrap_err();
    assert!(error.message.contains("holds a store yet"), "{error}");
    drop(open(server.address()).unwrap());
    let store = open(both(&empty, &server)).unwrap();
    acquire(&store, "us", LONG).unwrap();
    assert_eq!(redis_cli(&empty.address(), &["DBSIZE"]), "0");
    assert!(store.warnings().concat().contains("holds no store"), "{:?}", store.warnings());
    drop(open(empty.address()).unwrap());
    let error = open(both(&server, &empty)).unwrap_err();
    assert!(error.message.contains("different stores"), "{error}");
    assert!(block_on(store.cautions()).unwrap().concat().contains("holds another store"));
}

#[test]
fn no_store_is_made_while_one_that_may_hold_it_is_away() {
    let (mut server, empty) = (PrivateRedis::start(), PrivateRedis::start());
    drop(open(server.address()).unwrap());
    server.kill();
    let addr = both(&server, &empty);
    let error = open(addr.clone()).unwrap_err();
    assert!(error.is_retryable && error.message.contains(&server.address()), "{error}");
    assert!(RedisStore::find(&RedisSettings::new(addr.clone())).is_err());
    assert_eq!(redis_cli(&empty.address(), &["DBSIZE"]), "0");
    assert!(server.start_again());
    open(addr).unwrap();
}

#[test]
fn one_server_under_two_names_is_one() {
    let server = PrivateRedis::start();
    let store = open(format!("localhost:{0},127.0.0.1:{0}", server.port())).unwrap();
    acquire(&store, "us", LONG).unwrap();
    assert_eq!(store.warnings(), [""; 0]);
}
