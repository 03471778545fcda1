//! The contract that every engine keeps.

use std::sync::{Arc, Mutex};

use interlock_store_conformance::{self as conformance, Subject};
use interlock_store_embedded::EmbeddedStore;

#[test]
fn daemon_keeps_the_contract() {
    conformance::check(|| {
        let folder = tempfile::tempdir().unwrap();
        let time = Arc::new(Mutex::new(conformance::START));
        let hands = Arc::clone(&time);
        let clock = Arc::new(move || *time.lock().unwrap());
        let store = EmbeddedStore::open_daemon(folder.path(), clock).unwrap();
        Subject::new(Arc::new(store), move |passed| {
            // The folder lives as long as the store.
            let _ = &folder;
            *hands.lock().unwrap() += passed;
        })
    });
}
