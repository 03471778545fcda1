//! Checking and copying.

use interlock_store::{RowsQuery, Store, block_on, read_apart};
use rusqlite::Connection;

use crate::cast::{PIPELINES, commit, daemon, group, pipeline, reader, slot_key, writer};

#[test]
fn backup_of_a_running_daemon_is_a_sound_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let store = daemon(folder.path());
    let right = writer(&store);
    for number in 0..100 {
        commit(&store, group(right, number)).unwrap().unwrap();
    }
    let other = tempfile::tempdir().unwrap();
    let copy = other.path().join("ledger.db");
    store.backup(&copy).unwrap();
    commit(&store, group(right, 100)).unwrap().unwrap();
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 1, "one file, nothing beside it");
    assert_eq!(interlock_store_embedded::check(other.path()).unwrap(), Vec::<String>::new());
    let restored = reader(other.path());
    let there = |number| {
        let rows = block_on(restored.read(&pipeline(number), &[slot_key(number)])).unwrap();
        rows[0].is_some()
    };
    assert!(there(99) && !there(100));
    let error = store.backup(&copy).unwrap_err();
    assert!(error.message.contains("never overwrites"), "{error}");
}

#[test]
fn check_names_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let store = daemon(folder.path());
    commit(&store, group(writer(&store), 1)).unwrap().unwrap();
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
    drop(store);
    let db = Connection::open(folder.path().join("ledger.db")).unwrap();
    db.execute_batch(
        "INSERT INTO sensors VALUES (999, 'orphan', 1, '{}');
         INSERT INTO runs VALUES (5, 1, 'daily', 1, 1, 1, 0, 'RUNNING', 'schedule', '{}');
         INSERT INTO spans VALUES (10, 1, 'daily', 1, 20, 'skipped', '{}');
         INSERT INTO spans VALUES (15, 1, 'daily', 1, 30, 'skipped', '{}');
         UPDATE events SET body = 'broken';
         UPDATE counters SET value = 0 WHERE name = 'event';",
    )
    .unwrap();
    let problems = interlock_store_embedded::check(folder.path()).unwrap().join("\n");
    for expected in [
        "belongs to no pipeline: sensors",
        "a run has no slot: crash-1/daily",
        "two spans overlap (S3): crash-1/daily",
        "cannot be read: events",
        "a number that was not given: event 1",
        "past its watermark (S4)",
    ] {
        assert!(problems.contains(expected), "{expected} in:\n{problems}");
    }
}

#[test]
fn the_log_begins_anew_however_much_is_written() {
    const PAGES_MAX: u64 = 4_000;
    let folder = tempfile::tempdir().unwrap();
    let store = daemon(folder.path());
    let right = writer(&store);
    let log = folder.path().join("ledger.db-wal");
    let pages = || std::fs::metadata(&log).map_or(0, |file| file.len() / 4_120);
    let (mut longest, mut at_work) = (0, 0);
    // A commit is four pages at least.
    for number in 0..5 * PAGES_MAX / 2 / 4 {
        commit(&store, group(right, number)).unwrap().unwrap();
        longest = longest.max(pages());
        if number == 100 {
            at_work = longest;
        }
    }
    // As long as it will get once there is work, and then written over.
    assert_eq!(at_work, PAGES_MAX);
    assert!(longest < 2 * PAGES_MAX, "the log grew to {longest} pages");
    drop(store);
    assert_eq!(pages(), 0, "a clean end leaves nothing to be copied");
}

#[test]
fn a_row_that_cannot_be_read_is_missed_by_its_own_pipeline_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = daemon(folder.path());
    let right = writer(&store);
    for number in 0..PIPELINES {
        commit(&store, group(right, number)).unwrap().unwrap();
    }
    drop(store);
    let db = Connection::open(folder.path().join("ledger.db")).unwrap();
    let broken =
        "UPDATE slots SET body = 'broken' WHERE pipeline = (SELECT id FROM names WHERE name = ?1)";
    assert_eq!(db.execute(broken, [pipeline(7).as_str()]).unwrap(), 1);
    drop(db);
    let store = daemon(folder.path());
    let query = |number| RowsQuery { pipeline: pipeline(number), keys: vec![slot_key(number)] };
    let queries: Vec<_> = (0..PIPELINES).map(query).collect();
    assert!(block_on(store.read_many(&queries)).is_err_and(|error| !error.is_retryable));
    let found = block_on(read_apart(&store, &queries)).unwrap();
    for (number, rows) in found.into_iter().enumerate() {
        match rows {
            Ok(rows) => assert!(number != 7 && rows[0].is_some(), "{number}"),
            Err(error) => assert!(number == 7 && error.message.contains("read"), "{error}"),
        }
    }
}
