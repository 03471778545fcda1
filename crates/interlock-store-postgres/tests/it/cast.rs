//! What the tests speak of.

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    Accepted, Change, Expect, Group, Key, Record, Refusal, Role, Shard, Store, StoreError, Writer,
    block_on, record::WatermarkRecord,
};
use interlock_store_conformance::START;
use interlock_store_postgres::{PostgresSettings, PostgresStore};
use jiff::SignedDuration;

/// A store with one shard in the schema `interlock`.
pub(crate) fn open(dsn: &str) -> Result<PostgresStore, StoreError> {
    PostgresStore::open(&PostgresSettings::new(dsn.to_owned()))
}

/// The right to write, for a while.
pub(crate) fn acquire(store: &dyn Store, holder: &str, ttl: SignedDuration) -> Option<Writer> {
    let lease = block_on(store.acquire(Role::Engine, Shard(0), holder, ttl)).unwrap();
    lease.map(|lease| lease.writer)
}

/// Moves a watermark.
pub(crate) fn advance(
    store: &dyn Store,
    writer: Writer,
    expect: Expect,
) -> Result<Result<Accepted, Refusal>, StoreError> {
    let key = Key::Watermark(ScheduleId::any("daily").unwrap());
    let record = Record::Watermark(WatermarkRecord { at: START });
    let pipeline = PipelineId::parse("orders").unwrap();
    let changes = vec![Change::Put(key, expect, record)];
    Ok(block_on(store.commit(vec![Group { pipeline, writer, changes }]))?.remove(0))
}
