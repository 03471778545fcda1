//! Files that are not what they should be are refused with what to do, and never changed.

use interlock_store_embedded::EmbeddedStore;
use rusqlite::Connection;

use crate::cast::{clock, commit, daemon, group, writer};

#[test]
fn text_file_is_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let text = "not a database, but somebody's only copy of something".repeat(100);
    std::fs::write(&path, &text).unwrap();
    let error = EmbeddedStore::open_daemon(folder.path(), clock()).unwrap_err();
    for part in [path.to_str().unwrap(), "interlock store check", "backup", "serve --recover"] {
        assert!(error.message.contains(part), "{part}: {error}");
    }
    assert!(EmbeddedStore::open_reader(folder.path(), clock()).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn torn_ledger_is_reported_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path());
    let path = folder.path().join("ledger.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 4;
    bytes[middle..].fill(0x5a);
    std::fs::write(&path, &bytes).unwrap();
    let problems = interlock_store_embedded::check(folder.path());
    let said = problems.map_or_else(|error| error.message, |problems| problems.join("\n"));
    assert!(!said.is_empty());
    // Opening may succeed, since it does not read every page; whoever meets the damage says so.
    if let Ok(store) = EmbeddedStore::open_daemon(folder.path(), clock()) {
        let outcome =
            interlock_store::block_on(interlock_store::Store::events(&store, None, 0, 100_000));
        assert!(outcome.unwrap_err().message.contains("is damaged"));
    }
    assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes.len() as u64);
}

fn fill(folder: &std::path::Path) {
    let store = daemon(folder);
    let right = writer(&store);
    for number in 0..1_000 {
        commit(&store, group(right, number)).unwrap().unwrap();
    }
}

#[test]
fn database_of_another_program_is_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = EmbeddedStore::open_daemon(folder.path(), clock()).unwrap_err();
    assert!(error.message.contains("another program's database"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn newer_ledger_is_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    drop(daemon(folder.path()));
    let path = folder.path().join("ledger.db");
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    let before = std::fs::read(&path).unwrap();
    for outcome in [EmbeddedStore::open_daemon, EmbeddedStore::open_reader] {
        let error = outcome(folder.path(), clock()).unwrap_err();
        assert!(error.message.contains("newer Interlock (schema 99"), "{error}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn edited_schema_step_is_found() {
    let folder = tempfile::tempdir().unwrap();
    drop(daemon(folder.path()));
    let path = folder.path().join("ledger.db");
    let edit = "UPDATE migrations SET checksum = 'other'";
    Connection::open(&path).unwrap().execute_batch(edit).unwrap();
    let error = EmbeddedStore::open_daemon(folder.path(), clock()).unwrap_err();
    assert!(error.message.contains("step 1 of its schema"), "{error}");
}
