//! Events that are older than what is kept go, and those that an archive has not read stay.

use std::{thread, time::Duration};

use interlock_core::id::PipelineId;
use interlock_private_server::PrivatePostgres;
use interlock_store::{
    Archived, Change, Group, Store, Writer,
    conformance::{START, block_on},
    record::EventRecord,
};
use interlock_store_postgres::{PostgresSettings, PostgresStore};
use jiff::{SignedDuration, Timestamp};

use crate::cast::acquire;

const HOUR: SignedDuration = SignedDuration::from_hours(1);

fn open(server: &PrivatePostgres) -> PostgresStore {
    let settings =
        PostgresSettings { events_kept: Some(HOUR), ..PostgresSettings::new(server.dsn()) };
    PostgresStore::open(&settings).unwrap()
}

fn tell(store: &dyn Store, writer: Writer, at: Timestamp) {
    let event = EventRecord {
        kind: "SLOT_OPENED".into(),
        at,
        slot: None,
        run_id: None,
        message: "told".into(),
        details: [].into(),
    };
    let pipeline = PipelineId::parse("orders").unwrap();
    let group = Group { pipeline, writer, changes: vec![Change::Append(event)] };
    assert!(block_on(store.commit(vec![group])).unwrap().iter().all(Result::is_ok));
}

fn numbers(store: &dyn Store) -> Vec<u64> {
    let page = block_on(store.events(None, 0, 100)).unwrap();
    page.items.iter().map(|event| event.number).collect()
}

/// Looks go on beside commits: waits until there are these, and fails if there never are.
#[track_caller]
fn until(store: &dyn Store, wanted: &[u64]) {
    for _ in 0..2_000 {
        if numbers(store) == wanted {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(numbers(store), wanted);
}

#[test]
fn old_events_go_and_new_ones_stay() {
    let server = PrivatePostgres::start();
    // One that keeps everything.
    let store = PostgresStore::open(&PostgresSettings::new(server.dsn())).unwrap();
    let writer = acquire(&store, "us", HOUR).unwrap();
    for _ in 0..3 {
        tell(&store, writer, START);
    }
    assert_eq!(numbers(&store), [1, 2, 3]);
    let keeps_an_hour = open(&server);
    tell(&keeps_an_hour, writer, block_on(store.now()).unwrap());
    until(&store, &[4]);
}

#[test]
fn events_that_no_archive_has_read_stay() {
    let server = PrivatePostgres::start();
    let store = PostgresStore::open(&PostgresSettings::new(server.dsn())).unwrap();
    let writer = acquire(&store, "us", HOUR).unwrap();
    block_on(store.archived(Some(Archived { events: 0, changes: 0 }))).unwrap();
    for _ in 0..3 {
        tell(&store, writer, START);
    }
    block_on(store.archived(Some(Archived { events: 2, changes: 0 }))).unwrap();
    // Each looks at its first commit.
    let one = open(&server);
    tell(&one, writer, START);
    until(&store, &[3, 4]);
    // Nobody archives any more.
    block_on(store.archived(None)).unwrap();
    let another = open(&server);
    tell(&another, writer, block_on(store.now()).unwrap());
    until(&store, &[5]);
}
