//! From every engine: what was there before, and what changes afterwards.

use std::sync::Arc;

use interlock_private_server::{PrivatePostgres, PrivateRedis};
use interlock_store::{Archived, Store, memory::MemoryStore};
use interlock_store_embedded::EmbeddedStore;
use interlock_store_postgres::{PostgresSettings, PostgresStore};
use interlock_store_redis::{RedisSettings, RedisStore};

use crate::cast::{Grown, archive, connect, hour, is_archived, texts};

async fn history_and_changes_are_archived(store: Arc<dyn Store>, server: &PrivatePostgres) {
    let grown = Grown::new(Arc::clone(&store)).await;
    let client = connect(server).await;
    grown.open(0..300).await;
    grown.close(0..150).await;
    let first = archive(&store, server).await;
    is_archived(store.as_ref(), &client).await;
    assert_eq!(first.summary.events, 450);
    assert_eq!(first.summary.rows, 2 * 300 + 30, "all rows are read once");
    grown.close(150..300).await;
    grown.open(300..700).await;
    let second = archive(&store, server).await;
    is_archived(store.as_ref(), &client).await;
    assert_eq!(second.summary.events, 550, "what is archived is not read again");
    // 150 slots and runs that ended, 400 that began, 15 incidents and 15 spans.
    assert_eq!(second.summary.rows, 2 * 550 + 30);
    assert_eq!(archive(&store, server).await.summary.batches, 0, "nothing is left");
    let notes = store.changes(0, 10).await.unwrap();
    assert_eq!((notes.items, notes.more), (vec![], false), "and the store keeps no notes of it");
    let last =
        texts(&client, "SELECT status || ' ' || run_id FROM archive.run_logs ORDER BY date").await;
    assert_eq!(last.len(), 30, "one for each date");
    assert_eq!(last[0], "COMPLETED orders~hourly~20260225T230000Z~1~1", "the last slot of it");
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(1, Arc::new(|| hour(0))))
}

#[tokio::test]
async fn memory_is_archived() {
    history_and_changes_are_archived(memory(), &PrivatePostgres::start()).await;
}

#[tokio::test]
async fn embedded_store_is_archived() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open_daemon(folder.path(), Arc::new(|| hour(0))).unwrap();
    history_and_changes_are_archived(Arc::new(store), &PrivatePostgres::start()).await;
}

#[tokio::test]
async fn redis_is_archived() {
    let redis = PrivateRedis::start();
    let store = RedisStore::open(&RedisSettings::new(redis.address()));
    history_and_changes_are_archived(Arc::new(store.unwrap()), &PrivatePostgres::start()).await;
}

/// In the database in which the store itself is.
#[tokio::test]
async fn postgres_is_archived() {
    let server = PrivatePostgres::start();
    let store = PostgresStore::open(&PostgresSettings::new(server.dsn()));
    history_and_changes_are_archived(Arc::new(store.unwrap()), &server).await;
}

/// Notes that are gone are made up for by reading all rows again.
#[tokio::test]
async fn archive_that_missed_notes_reads_all_rows() {
    let (store, server) = (memory(), PrivatePostgres::start());
    let grown = Grown::new(Arc::clone(&store)).await;
    archive(&store, &server).await;
    store.archived(None).await.unwrap();
    grown.open(0..50).await;
    store.archived(Some(Archived { events: 0, changes: 0 })).await.unwrap();
    grown.close(0..20).await;
    archive(&store, &server).await;
    is_archived(store.as_ref(), &connect(&server).await).await;
}
