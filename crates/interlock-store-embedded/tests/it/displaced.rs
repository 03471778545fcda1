//! Ledgers that are moved, deleted or replaced while a process uses them.

use std::{fs, path::Path};

use interlock_store::{Store, block_on};
use interlock_wait::{BOUND, wait_until};

use crate::cast::{commit, daemon, group, pipeline, slot_key, writer};

/// What happens to the files of a store, and what is said of it.
fn is_refused(happens: impl Fn(&Path), says: &str) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("store");
    // Two stores: one has work when it happens, the other has none and must notice by itself.
    for has_work in [true, false] {
        let store = daemon(&place);
        let right = writer(&store);
        commit(&store, group(right, 1)).unwrap().unwrap();
        happens(&place);
        if !has_work {
            wait_until("the store refuses to read", BOUND, || {
                block_on(store.read(&pipeline(1), &[slot_key(1)])).is_err()
            });
        }
        let error = commit(&store, group(right, 2)).unwrap_err();
        assert!(error.message.contains(says), "{error}");
        assert!(error.message.contains("start `interlock serve` again"), "{error}");
        assert!(!error.is_retryable);
        drop(store);
        // What is there now can be used, by the next process.
        let next = daemon(&place);
        commit(&next, group(writer(&next), 3)).unwrap().unwrap();
        drop(next);
        let _not_everything_was_moved = fs::remove_dir_all(&place);
        let _not_moved = fs::remove_dir_all(place.with_extension("elsewhere"));
    }
}

#[test]
fn a_folder_that_is_moved_stops_the_store_before_it_acknowledges_anything() {
    let happens = |place: &Path| fs::rename(place, place.with_extension("elsewhere")).unwrap();
    is_refused(happens, "was moved or deleted");
}

#[test]
fn a_ledger_that_is_deleted_stops_the_store() {
    is_refused(|place| fs::remove_file(place.join("ledger.db")).unwrap(), "was moved or deleted");
}

#[test]
fn a_ledger_that_is_replaced_stops_the_store() {
    let happens = |place: &Path| {
        let copy = place.join("copy.db");
        fs::copy(place.join("ledger.db"), &copy).unwrap();
        fs::rename(copy, place.join("ledger.db")).unwrap();
        for beside in ["ledger.db-wal", "ledger.db-shm"] {
            fs::remove_file(place.join(beside)).unwrap();
        }
    };
    is_refused(happens, "was replaced by another file");
}

/// Without it a second process takes a lock of its own, and both write one ledger.
#[test]
fn a_lock_that_is_deleted_stops_the_store() {
    is_refused(|place| fs::remove_file(place.join("daemon.lock")).unwrap(), "daemon.lock");
}
