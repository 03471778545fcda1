//! The cases of the Go Interlock's archive (82 and 83 of `facts/interlock-cases.md`), as far as this one has the same things.
//!
//! - Case 82, "duplicate stream id ignored": an event is never read twice, because the cursor moves with the rows; one that is
//!   there all the same is a mistake that is told, not passed over. `trait_evaluations` is not a table here: what evaluators
//!   answered is the evidence of an event, in `details`.
//! - Case 83, "only terminal runs": every run is archived as it stands, and again when it has ended; "an upsert error does not
//!   stop": nothing of a transaction is kept without the rest, so that nothing is lost behind an error, and it is tried again.

use std::sync::Arc;

use interlock_archive::{Archiver, Telling};
use interlock_private_server::PrivatePostgres;
use interlock_store::{Store, memory::MemoryStore};
use tokio_postgres::Client;

use crate::cast::{Grown, archive, connect, hour, is_archived, texts};

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(1, Arc::new(|| hour(0))))
}

async fn cursors(client: &Client) -> Vec<String> {
    texts(client, "SELECT name || ' ' || place FROM archive.cursors ORDER BY name").await
}

#[tokio::test]
async fn case_82_rows_are_replaced_cursors_come_back_and_history_is_in_order() {
    let (store, server) = (memory(), PrivatePostgres::start());
    let grown = Grown::new(Arc::clone(&store)).await;
    let client = connect(&server).await;
    grown.open(0..6).await;
    archive(&store, &server).await;
    let before = cursors(&client).await;
    assert_eq!(archive(&store, &server).await.summary.batches, 0, "the cursor is read as written");
    assert_eq!(cursors(&client).await, before);
    grown.close(0..3).await;
    archive(&store, &server).await;
    let runs = "SELECT run_id || ' ' || status FROM archive.runs ORDER BY created_at, run_id";
    let runs = texts(&client, runs).await;
    let ended: Vec<bool> = runs.iter().map(|run| run.ends_with("COMPLETED")).collect();
    assert_eq!(ended, [true, true, true, false, false, false], "each run once, as it stands now");
    let history =
        "SELECT kind FROM archive.events WHERE pipeline_id = 'orders' ORDER BY at, number";
    let began_and_ended = ["JOB_STARTED", "JOB_COMPLETED"].repeat(3);
    let expected = [began_and_ended, vec!["JOB_STARTED"; 3]].concat();
    assert_eq!(texts(&client, history).await, expected, "by the hour they speak of");
    // Which pipelines have missed or failed is a question of SQL.
    let failed = "SELECT DISTINCT pipeline_id FROM archive.runs WHERE status = 'FAILED'";
    assert_eq!(texts(&client, failed).await, [""; 0]);
}

#[tokio::test]
async fn case_83_what_comes_later_is_added_five_and_two_are_seven() {
    let (store, server) = (memory(), PrivatePostgres::start());
    let grown = Grown::new(Arc::clone(&store)).await;
    grown.open(0..5).await;
    assert_eq!(archive(&store, &server).await.summary.events, 5);
    grown.open(5..7).await;
    assert_eq!(archive(&store, &server).await.summary.events, 2);
    let client = connect(&server).await;
    assert_eq!(texts(&client, "SELECT count(*)::text FROM archive.events").await, ["7"]);
    is_archived(store.as_ref(), &client).await;
}

#[tokio::test]
async fn case_83_events_that_cannot_be_inserted_leave_the_cursor_where_it_was() {
    let (store, server) = (memory(), PrivatePostgres::start());
    let grown = Grown::new(Arc::clone(&store)).await;
    grown.open(0..5).await;
    archive(&store, &server).await;
    let client = connect(&server).await;
    grown.open(5..8).await;
    // Somebody else's row where the second of them belongs.
    let number = store.events(None, 5, 10).await.unwrap().items[1].number;
    let foreign = format!(
        "INSERT INTO archive.events (number, pipeline_id, kind, at, message, details)
         VALUES ({number}, 'theirs', 'X', now(), '', '{{}}')"
    );
    client.batch_execute(&foreign).await.unwrap();
    let before = cursors(&client).await;
    let mut archiver =
        Archiver::open(Arc::clone(&store), &server.dsn(), Telling::Store).await.unwrap();
    archiver.catch_up().await.unwrap_err();
    assert_eq!(cursors(&client).await, before);
    let rows = texts(&client, "SELECT count(*)::text FROM archive.runs").await;
    assert_eq!(rows, ["5"], "nothing of that transaction is there");
    client.batch_execute("DELETE FROM archive.events WHERE pipeline_id = 'theirs'").await.unwrap();
    archive(&store, &server).await;
    is_archived(store.as_ref(), &client).await;
}

#[tokio::test]
async fn case_83_without_its_cursor_nothing_is_inserted() {
    let (store, server) = (memory(), PrivatePostgres::start());
    let grown = Grown::new(Arc::clone(&store)).await;
    grown.open(0..5).await;
    archive(&store, &server).await;
    let client = connect(&server).await;
    grown.open(5..8).await;
    client.batch_execute("ALTER TABLE archive.cursors RENAME TO hidden").await.unwrap();
    let opened = Archiver::open(Arc::clone(&store), &server.dsn(), Telling::Store).await;
    if let Ok(mut archiver) = opened {
        archiver.catch_up().await.unwrap_err();
    }
    assert_eq!(texts(&client, "SELECT count(*)::text FROM archive.events").await, ["5"]);
    client.batch_execute("ALTER TABLE archive.hidden RENAME TO cursors").await.unwrap();
    archive(&store, &server).await;
    is_archived(store.as_ref(), &client).await;
}

/// An archive that was made before run logs had the status that their readers know, and before missed slots that ran later were
/// counted once.
#[tokio::test]
async fn an_older_archive_gets_the_statuses_and_the_counts_of_this_one() {
    let (store, server) = (memory(), PrivatePostgres::start());
    let grown = Grown::new(Arc::clone(&store)).await;
    let client = connect(&server).await;
    grown.open(0..30).await;
    archive(&store, &server).await;
    let older = "DELETE FROM archive.migrations WHERE step = 2;
        UPDATE archive.run_logs SET status = (ARRAY['failed', 'running'])[1 + (date - '2026-02-25')];
        TRUNCATE archive.spans;
        INSERT INTO archive.spans VALUES ('orders', 'hourly', '2026-02-25T00:00Z', '2026-02-25T03:00Z', 4, 'skipped',
            'no_catchup', 'ab', '2026-02-25T05:00Z');
        UPDATE archive.slots SET missed_at = '2026-02-25T05:00Z', disposition = 'completed'
            WHERE slot IN ('2026-02-25T01:00Z', '2026-02-25T09:00Z')";
    client.batch_execute(older).await.unwrap();
    archive(&store, &server).await;
    let statuses = "SELECT status FROM archive.run_logs ORDER BY date";
    assert_eq!(texts(&client, statuses).await, ["FAILED_FINAL", "RUNNING"]);
    let missed = "SELECT missed::text FROM archive.missed_by_pipeline";
    assert_eq!(texts(&client, missed).await, ["5"], "four in a row, one of which ran, and one");
}
