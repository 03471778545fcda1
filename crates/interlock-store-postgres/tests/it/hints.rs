//! Hints that something was posted: from whom they come, and that nobody believes in them where there are none.

use std::{
    thread,
    time::{Duration, Instant},
};

use interlock_core::id::PipelineId;
use interlock_private_server::{PrivateBouncer, PrivatePostgres};
use interlock_store::{Hint, Shard, Store, block_on, record::InboxRecord};
use interlock_store_postgres::PostgresStore;

use crate::cast::open;

/// Longer than an echo takes.
const SOON: Duration = Duration::from_secs(20);

/// A hint, once the store can give one; none if it cannot in that time.
fn hint(store: &PostgresStore, within: Duration) -> Option<Hint> {
    #[expect(clippy::disallowed_methods, reason = "a listener needs real time to hear itself")]
    let until = Instant::now() + within;
    loop {
        if let Some(hint) = store.hint(Shard(0)) {
            return Some(hint);
        }
        #[expect(clippy::disallowed_methods, reason = "the same")]
        if Instant::now() > until {
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn post(store: &PostgresStore, key: &str) {
    let orders = PipelineId::parse("orders").unwrap();
    block_on(store.post(&orders, key, &InboxRecord::Catchup {})).unwrap();
}

/// Whether it comes in time.
fn comes(hint: Hint) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(SOON, hint).await.is_ok() })
}

#[test]
fn whoever_waits_hears_of_what_another_instance_posts() {
    let server = PrivatePostgres::start();
    let (one, other) = (open(&server.dsn()).unwrap(), open(&server.dsn()).unwrap());
    for round in 0..3 {
        let waiting = hint(&one, SOON).expect("it hears itself");
        post(&other, &format!("k-{round}"));
        assert!(comes(waiting), "round {round}");
    }
    assert_eq!(block_on(one.inbox(Shard(0), 10)).unwrap().items.len(), 3);
}

/// What comes between asking and waiting is hinted at too: an inbox that was looked at in between is looked at again.
#[test]
fn hint_that_came_before_anybody_waited_is_not_lost() {
    let server = PrivatePostgres::start();
    let store = open(&server.dsn()).unwrap();
    let early = hint(&store, SOON).expect("it hears itself");
    let late = hint(&store, SOON).expect("it hears itself");
    post(&store, "k");
    assert!(comes(early));
    assert!(comes(late));
}

#[test]
fn hints_come_again_after_the_server_was_killed() {
    let mut server = PrivatePostgres::start();
    let store = open(&server.dsn()).unwrap();
    let waiting = hint(&store, SOON).expect("it hears itself");
    server.kill();
    assert!(comes(waiting), "whoever waits is let go, to look by itself");
    assert!(server.start_again());
    let waiting = hint(&store, SOON).expect("it hears itself again");
    post(&store, "k");
    assert!(comes(waiting));
}

/// A pooler passes `LISTEN` on to some connection and no answer back.
#[test]
fn behind_a_pooler_nobody_counts_on_hints() {
    let server = PrivatePostgres::start();
    let bouncer = PrivateBouncer::start(&server, 3);
    let store = open(&bouncer.dsn()).unwrap();
    assert!(hint(&store, Duration::from_secs(5)).is_none());
    post(&store, "k");
    assert_eq!(
        block_on(store.inbox(Shard(0), 10)).unwrap().items.len(),
        1,
        "and all the rest works"
    );
}
