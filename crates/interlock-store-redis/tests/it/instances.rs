//! Several instances, and servers that stop, start again, and forget.

use std::{
    fs,
    sync::{Arc, Mutex},
};

use interlock_core::id::PipelineId;
use interlock_private_server::PrivateRedis;
use interlock_store::{
    Change, Expect, Group, Recalled, Refusal, Role, Shard, Store as _, block_on,
    record::{EventRecord, InboxRecord},
};
use interlock_store_conformance::START;
use interlock_store_redis::{RedisSettings, RedisStore};
use interlock_wait::{BOUND, ThreadWithin as _};
use jiff::SignedDuration;

use crate::cast::{LONG, acquire, advance, open, redis_cli};

#[test]
fn owner_of_an_older_term_is_refused_whichever_instance_it_is() {
    let server = PrivateRedis::start();
    let (one, other) = (open(server.address()).unwrap(), open(server.address()).unwrap());
    let old = acquire(&one, "one", SignedDuration::ZERO).unwrap();
    advance(&one, old, Expect::Absent).unwrap().unwrap();
    let new = acquire(&other, "other", LONG).unwrap();
    assert_eq!(acquire(&one, "one", LONG), None);
    let refused = advance(&one, old, Expect::Revision(1)).unwrap();
    assert_eq!(refused, Err(Refusal::Term { current: new.term }));
    advance(&other, new, Expect::Revision(1)).unwrap().unwrap();
}

#[test]
fn store_goes_on_after_its_server_was_killed() {
    let mut server = PrivateRedis::start();
    let store = open(server.address()).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    advance(&store, writer, Expect::Absent).unwrap().unwrap();
    server.kill();
    assert!(server.start_again());
    advance(&store, writer, Expect::Revision(1)).unwrap().unwrap();
    assert_eq!(store.rollbacks(), 0, "a server that keeps everything has forgotten nothing");
}

/// A request that meets a dead server is done once, when it is there again.
#[test]
fn request_outlives_its_connection() {
    let mut server = PrivateRedis::start();
    let store = open(server.address()).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    for revision in 0..20 {
        // Every connection of the server is cut, so the next request finds its own dead.
        redis_cli(&server.address(), &["CLIENT", "KILL", "TYPE", "normal"]);
        let expect = if revision == 0 { Expect::Absent } else { Expect::Revision(revision) };
        advance(&store, writer, expect).unwrap().unwrap();
    }
    server.kill();
    let again = std::thread::spawn(move || {
        assert!(server.start_again());
        server
    });
    block_on(store.now()).unwrap();
    drop(again.join_within("the server to start again", BOUND).unwrap());
}

/// The server is set back to an earlier append-only file, as a failover to a replica that lagged does it.
#[test]
fn server_that_has_forgotten_is_noticed_and_every_term_is_ended() {
    let mut server = PrivateRedis::start();
    let told = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&told);
    let on_rollback: interlock_store_redis::OnRollback =
        Arc::new(move |said: &str| ear.lock().unwrap().push(said.to_owned()));
    let settings =
        RedisSettings { on_rollback: Some(on_rollback), ..RedisSettings::new(server.address()) };
    let store = RedisStore::open(&settings).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    advance(&store, writer, Expect::Absent).unwrap().unwrap();
    let log = server.folder().join("appendonlydir/appendonly.aof.1.incr.aof");
    let earlier = fs::metadata(&log).unwrap().len();
    advance(&store, writer, Expect::Revision(1)).unwrap().unwrap();
    server.kill();
    let file = fs::OpenOptions::new().write(true).open(&log).unwrap();
    file.set_len(earlier).unwrap();
    assert!(server.start_again());
    let refused = advance(&store, writer, Expect::Revision(2)).unwrap().unwrap_err();
    let Refusal::Term { current } = refused else { panic!("the term is over: {refused:?}") };
    assert!(current > writer.term);
    assert_eq!(store.rollbacks(), 1);
    assert!(told.lock().unwrap().concat().contains("STORE_ROLLBACK"));
    let letters = block_on(store.inbox(Shard(0), 10)).unwrap().items;
    let [letter] = letters.as_slice() else { panic!("the next owner is told: {letters:?}") };
    let InboxRecord::Noticed { event, over, .. } = &letter.record else { panic!("{letter:?}") };
    assert_eq!(
        (event.as_str(), over, &letter.pipeline),
        ("STORE_ROLLBACK", &false, &PipelineId::system())
    );
    let next = acquire(&store, "one", LONG).unwrap();
    assert!(next.term > current);
    advance(&store, next, Expect::Revision(1)).unwrap().unwrap();
    assert_eq!(store.rollbacks(), 1, "what was told once is over");
}

/// Whoever used it was started again too, and remembers how far the store was.
#[test]
fn what_is_remembered_of_before_is_compared_and_told_once() {
    let mut server = PrivateRedis::start();
    let told = || {
        let event = EventRecord {
            kind: "TOLD".into(),
            at: START,
            slot: None,
            run_id: None,
            message: "told".into(),
            details: [].into(),
        };
        vec![Change::Append(event.into())]
    };
    let pipeline = || PipelineId::parse("orders").unwrap();
    let log = server.folder().join("appendonlydir/appendonly.aof.1.incr.aof");
    let (earlier, mark) = {
        let store = open(server.address()).unwrap();
        let writer = acquire(&store, "one", SignedDuration::ZERO).unwrap();
        let tell = || {
            let group = Group { pipeline: pipeline(), writer, changes: told() };
            block_on(store.commit(vec![group])).unwrap().remove(0).unwrap();
        };
        tell();
        let earlier = fs::metadata(&log).unwrap().len();
        tell();
        (earlier, block_on(store.mark()).unwrap())
    };
    assert_eq!(mark.number, 2);
    server.kill();
    fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(earlier).unwrap();
    assert!(server.start_again());
    let (one, other) = (open(server.address()).unwrap(), open(server.address()).unwrap());
    let writer = acquire(&one, "one", LONG).unwrap();
    assert_eq!(block_on(one.recall(mark)).unwrap(), Recalled::Forgotten);
    assert_eq!(block_on(other.recall(mark)).unwrap(), Recalled::Kept, "it was told");
    let refused = advance(&one, writer, Expect::Absent).unwrap();
    assert!(matches!(refused, Err(Refusal::Term { .. })), "{refused:?}");
    assert_eq!((one.rollbacks(), other.rollbacks()), (1, 0));
    assert_eq!(block_on(other.inbox(Shard(0), 10)).unwrap().items.len(), 1);
    let now = block_on(other.mark()).unwrap();
    assert_eq!(now.store, mark.store, "it is the same store");
    assert!(now.number > mark.number, "a number is not given again");
    redis_cli(&server.address(), &["FLUSHALL"]);
    let emptied = open(server.address()).unwrap();
    assert_eq!(block_on(emptied.recall(mark)).unwrap(), Recalled::Another);
    assert_eq!(emptied.rollbacks(), 0, "a new store has forgotten nothing");
}

/// Whoever looks finds the same store again, whether all of it is gone or only what says that there is one.
#[test]
fn store_that_is_emptied_under_its_owner_stays_one_with_as_many_shards() {
    for words in [&["FLUSHALL"][..], &["DEL", "interlock:about"]] {
        let server = PrivateRedis::start();
        let with = |shards| RedisSettings { shards, ..RedisSettings::new(server.address()) };
        let store = RedisStore::open(&with(12)).unwrap();
        let mark = block_on(store.mark()).unwrap();
        acquire(&store, "one", LONG).unwrap();
        redis_cli(&server.address(), words);
        assert!(RedisStore::find(&with(12)).unwrap().is_none());
        acquire(&store, "one", LONG).unwrap();
        assert_eq!(store.rollbacks(), 1, "{words:?}");
        let found = RedisStore::find(&with(12)).unwrap().expect("whoever has to mend it can look");
        assert_eq!(block_on(found.mark()).unwrap().store, mark.store);
        let late = RedisStore::open(&with(5)).unwrap();
        assert_eq!(late.shard_count(), 12);
    }
}

/// Somebody else was faster, and made another store where ours was.
#[test]
fn store_that_was_made_anew_with_other_shards_is_left_alone() {
    let server = PrivateRedis::start();
    let with = |shards| RedisSettings { shards, ..RedisSettings::new(server.address()) };
    let store = RedisStore::open(&with(12)).unwrap();
    acquire(&store, "one", LONG).unwrap();
    redis_cli(&server.address(), &["FLUSHALL"]);
    let other = RedisStore::open(&with(5)).unwrap();
    let mark = block_on(other.mark()).unwrap();
    let refused = block_on(store.acquire(Role::Engine, Shard(0), "one", LONG)).unwrap_err();
    assert!(refused.message.contains("5 shards instead of 12"), "{refused}");
    assert!(!refused.is_retryable, "{refused}");
    assert_eq!(block_on(other.mark()).unwrap(), mark, "nothing was changed");
}
