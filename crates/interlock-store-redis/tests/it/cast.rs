//! What the tests speak of.

use std::io::Write as _;

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    Accepted, Change, Expect, Group, Key, Record, Refusal, Role, Shard, Store, StoreError, Writer,
    conformance::{START, block_on},
    record::WatermarkRecord,
};
use interlock_store_redis::{RedisSettings, RedisStore};
use interlock_wait::{BOUND, ChildWithin as _, CommandWithin as _};
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

/// Waits until a replica has all that a primary has. `WAIT` knows of nothing but what the same connection has written, so that
/// writes something last, under this tag.
pub(crate) fn wait_for_replica(primary: &str, tag: &str) {
    let port = primary.rsplit(':').next().unwrap();
    let mut asked = std::process::Command::new("redis-cli")
        .args(["-p", port])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let words = format!("SET {{{tag}}}:last 1\nWAIT 1 60000\n");
    asked.stdin.take().unwrap().write_all(words.as_bytes()).unwrap();
    let said = asked.output_within("the replica to have it", BOUND);
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "OK\n1", "the replica has it");
}

/// Asks the server something, as `redis-cli` would.
pub(crate) fn redis_cli(addr: &str, words: &[&str]) -> String {
    let port = addr.rsplit(':').next().unwrap();
    let said = std::process::Command::new("redis-cli")
        .args(["-p", port])
        .args(words)
        .output_within(BOUND)
        .unwrap();
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}
