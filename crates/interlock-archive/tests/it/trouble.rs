//! What may happen to an archiver: others beside it, a server that dies, another store.

use std::sync::Arc;

use interlock_archive::{ArchiveError, Archiver, Standing, Telling};
use interlock_private_server::PrivatePostgres;
use interlock_store::{Store, memory::MemoryStore};

use crate::cast::{Grown, archive, connect, hour, is_archived};

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(1, Arc::new(|| hour(0))))
}

#[tokio::test(flavor = "multi_thread")]
async fn archivers_beside_each_other_write_every_row_once() {
    let (store, server) = (memory(), PrivatePostgres::start());
    let grown = Grown::new(Arc::clone(&store)).await;
    grown.open(0..2_000).await;
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let (store, dsn) = (Arc::clone(&store), server.dsn());
        tasks.push(tokio::spawn(async move {
            let mut archiver = Archiver::open(store, &dsn, Telling::Store).await.unwrap();
            for _ in 0..30 {
                archiver.pass().await.unwrap();
            }
            archiver.summary.events
        }));
    }
    for at in (0..2_000).step_by(10) {
        grown.close(at..at + 10).await;
        tokio::task::yield_now().await;
    }
    let mut events = 0;
    for task in tasks {
        events += task.await.unwrap();
    }
    let rest = archive(&store, &server).await;
    assert_eq!(events + rest.summary.events, 4_000);
    is_archived(store.as_ref(), &connect(&server).await).await;
}

#[tokio::test]
async fn archive_goes_on_after_its_server_died() {
    let (store, mut server) = (memory(), PrivatePostgres::start());
    let grown = Grown::new(Arc::clone(&store)).await;
    grown.open(0..3_000).await;
    let mut archiver =
        Archiver::open(Arc::clone(&store), &server.dsn(), Telling::Store).await.unwrap();
    assert_eq!(archiver.pass().await.unwrap(), Standing::Behind, "there is more than one batch");
    server.kill();
    let error = archiver.catch_up().await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    let gone = Archiver::open(Arc::clone(&store), &server.dsn(), Telling::Store).await.unwrap_err();
    assert!(gone.is_retryable(), "{gone}");
    assert!(server.start_again());
    grown.close(0..100).await;
    archive(&store, &server).await;
    is_archived(store.as_ref(), &connect(&server).await).await;
}

#[tokio::test]
async fn history_of_another_store_is_refused() {
    let (store, server) = (memory(), PrivatePostgres::start());
    Grown::new(Arc::clone(&store)).await.open(0..10).await;
    archive(&store, &server).await;
    let other = memory();
    Grown::new(Arc::clone(&other)).await.open(0..1).await;
    let refused = Archiver::open(Arc::clone(&other), &server.dsn(), Telling::Store).await;
    assert!(
        matches!(refused, Err(ArchiveError::AnotherStore { read: 10, last: 1 })),
        "{refused:?}"
    );
    assert_eq!(other.changes(0, 1).await.unwrap().since, None, "it notes nothing for it");
}

/// However many numbers the other one has given: two projects with one address are the likeliest mistake of all.
#[tokio::test]
async fn larger_store_is_not_mixed_with_the_history_of_another() {
    let (store, server) = (memory(), PrivatePostgres::start());
    Grown::new(Arc::clone(&store)).await.open(0..1).await;
    archive(&store, &server).await;
    let other = memory();
    Grown::new(Arc::clone(&other)).await.open(0..10).await;
    for telling in [Telling::Store, Telling::Nobody] {
        let refused = Archiver::open(Arc::clone(&other), &server.dsn(), telling).await;
        assert!(matches!(refused, Err(ArchiveError::OfAnother { .. })), "{refused:?}");
    }
    assert_eq!(other.changes(0, 1).await.unwrap().since, None, "it notes nothing for it");
    is_archived(store.as_ref(), &connect(&server).await).await;
    // A store that was moved is the same one.
    let moved = interlock_store::Freight {
        store: Some(store.mark().await.unwrap().store),
        ..interlock_store::Freight::default()
    };
    other.import(moved).await.unwrap();
    archive(&other, &server).await;
}

#[tokio::test]
async fn store_that_nobody_follows_is_not_read_by_somebody_who_cannot_tell_it() {
    let (store, server) = (memory(), PrivatePostgres::start());
    Grown::new(Arc::clone(&store)).await.open(0..10).await;
    let mut reader =
        Archiver::open(Arc::clone(&store), &server.dsn(), Telling::Nobody).await.unwrap();
    let refused = reader.catch_up().await;
    assert!(matches!(refused, Err(ArchiveError::NotFollowed)), "{refused:?}");
    archive(&store, &server).await;
    Grown::new(Arc::clone(&store)).await.close(0..5).await;
    reader = Archiver::open(Arc::clone(&store), &server.dsn(), Telling::Nobody).await.unwrap();
    reader.catch_up().await.unwrap();
    is_archived(store.as_ref(), &connect(&server).await).await;
}

#[tokio::test]
async fn tables_of_another_program_are_left_alone() {
    let (store, server) = (memory(), PrivatePostgres::start());
    let client = connect(&server).await;
    client.batch_execute("CREATE SCHEMA archive; CREATE TABLE archive.runs (a int)").await.unwrap();
    let refused = Archiver::open(store, &server.dsn(), Telling::Store).await.unwrap_err();
    assert!(refused.to_string().contains("another program"), "{refused}");
}
