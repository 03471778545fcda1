//! What the tests speak of.

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_private_server::RedisClient;
use interlock_store::{
    Accepted, Change, Expect, Group, Key, Record, Refusal, Role, Shard, Store, StoreError, Writer,
    block_on, record::WatermarkRecord,
};
use interlock_store_conformance::START;
use interlock_store_redis::{RedisSettings, RedisStore};
use jiff::SignedDuration;

/// Longer than any test.
pub(crate) const LONG: SignedDuration = SignedDuration::from_hours(1);

/// A store with one shard.
pub(crate) fn open(addr: String) -> Result<RedisStore, StoreError> {
    RedisStore::open(&RedisSettings::new(addr))
}

/// The right to write, for a while.
pub(crate) fn acquire(store: &dyn Store, holder: &str, ttl: SignedDuration) -> Option<Writer> {
    let lease = block_on(store.acquire(Role::Engine, Shard(0), holder, ttl)).unwrap();
    lease.map(|lease| lease.writer)
}

/// The pipeline that tests write to.
pub(crate) fn orders() -> PipelineId {
    PipelineId::parse("orders").unwrap()
}

/// Writes a group to it.
pub(crate) fn commit(
    store: &dyn Store,
    writer: Writer,
    changes: Vec<Change>,
) -> Result<Result<Accepted, Refusal>, StoreError> {
    let group = Group { pipeline: orders(), writer, changes };
    Ok(block_on(store.commit(vec![group]))?.remove(0))
}

/// Moves a watermark.
pub(crate) fn advance(
    store: &dyn Store,
    writer: Writer,
    expect: Expect,
) -> Result<Result<Accepted, Refusal>, StoreError> {
    let key = Key::Watermark(ScheduleId::any("daily").unwrap());
    let record = Record::Watermark(WatermarkRecord { at: START });
    commit(store, writer, vec![Change::Put(key, expect, record)])
}

/// Waits until the replica has all that a primary has. `WAIT` knows of nothing but what the same connection has written, so that
/// writes something last, under this tag.
pub(crate) fn wait_for_replica(primary: &str, tag: &str) {
    let mut client = RedisClient::connect(port(primary)).unwrap();
    let mut ask = |words: &[&str]| client.ask(words).unwrap();
    assert_eq!(ask(&["SET", &format!("{{{tag}}}:last"), "1"]), "OK");
    let confirmed = ask(&["WAIT", "1", "60000"]);
    let state = ask(&["INFO", "replication"]);
    assert_eq!(confirmed, "1", "waited a minute for a replica to confirm the last write:\n{state}");
    // Another one might have confirmed it in its place.
    assert!(state.contains("connected_slaves:1"), "there is more than one replica:\n{state}");
}

fn port(addr: &str) -> u16 {
    addr.rsplit(':').next().unwrap().parse().unwrap()
}

/// Asks the server something, as `redis-cli` would.
pub(crate) fn redis_cli(addr: &str, words: &[&str]) -> String {
    interlock_private_server::redis_cli(port(addr), words)
}

/// The same as a user of the server.
pub(crate) fn redis_cli_as((user, password): (&str, &str), addr: &str, words: &[&str]) -> String {
    let mut client = RedisClient::connect(port(addr)).unwrap();
    assert_eq!(client.ask(&["AUTH", user, password]).unwrap(), "OK");
    client.ask(words).unwrap()
}
