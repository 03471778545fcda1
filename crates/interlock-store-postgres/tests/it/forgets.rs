//! A server that comes back as it was: a restored backup, a snapshot, a replica that lagged.

use interlock_core::id::PipelineId;
use interlock_private_server::PrivatePostgres;
use interlock_store::{
    Accepted, Change, Group, Mark, Recalled, Refusal, Role, Shard, Store as _, Writer, block_on,
    record::{EventRecord, InboxRecord},
};
use interlock_store_conformance::START;
use interlock_store_postgres::PostgresStore;
use jiff::SignedDuration;

use crate::cast::{acquire, open};

const LONG: SignedDuration = SignedDuration::from_hours(1);

/// Writes so many events.
fn tell(store: &PostgresStore, writer: Writer, count: usize) -> Result<Accepted, Refusal> {
    let event = |_| {
        Change::Append(
            EventRecord {
                kind: "TOLD".into(),
                at: START,
                slot: None,
                run_id: None,
                message: "told".into(),
                details: [].into(),
            }
            .into(),
        )
    };
    let pipeline = PipelineId::parse("orders").unwrap();
    let group = Group { pipeline, writer, changes: (0..count).map(event).collect() };
    // A connection that has broken meanwhile is found out by using it.
    let tried = (0..20).find_map(|_| block_on(store.commit(vec![group.clone()])).ok());
    tried.unwrap().remove(0)
}

/// How often people are told.
fn letters(store: &PostgresStore) -> usize {
    let letters = block_on(store.inbox(Shard(0), 10)).unwrap().items;
    let is_told = |record: &InboxRecord| matches!(record, InboxRecord::Noticed { event, over: false, .. } if event == "STORE_ROLLBACK");
    letters.iter().filter(|letter| is_told(&letter.record)).count()
}

#[test]
fn term_is_not_given_again_by_a_server_that_has_forgotten_it() {
    let mut server = PrivatePostgres::start();
    drop(open(&server.dsn()).unwrap());
    server.set_aside();
    let forgotten = acquire(&open(&server.dsn()).unwrap(), "one", LONG).unwrap();
    server.go_back();
    let next = acquire(&open(&server.dsn()).unwrap(), "other", LONG).unwrap();
    assert!(next.term > forgotten.term, "{next:?} {forgotten:?}");
}

#[test]
fn server_that_has_forgotten_is_noticed_and_every_term_is_ended() {
    let mut server = PrivatePostgres::start();
    let store = open(&server.dsn()).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    tell(&store, writer, 1).unwrap();
    server.set_aside();
    let forgotten = tell(&store, writer, 3).unwrap();
    assert_eq!(store.rollbacks(), 0, "a server that keeps everything has forgotten nothing");
    server.go_back();
    let refused = tell(&store, writer, 1).unwrap_err();
    let Refusal::Term { current } = refused else { panic!("the term is over: {refused:?}") };
    assert!(current > writer.term);
    assert_eq!((store.rollbacks(), letters(&store)), (1, 1));
    let next = acquire(&store, "one", LONG).unwrap();
    assert!(next.term > current);
    let accepted = tell(&store, next, 1).unwrap();
    assert!(accepted.last_event > forgotten.last_event, "a number is not given again");
    assert_eq!((store.rollbacks(), letters(&store)), (1, 1), "what was told once is over");
}

/// Who has nothing to write renews its lease.
#[test]
fn server_that_has_forgotten_is_noticed_by_who_renews() {
    let mut server = PrivatePostgres::start();
    let store = open(&server.dsn()).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    server.set_aside();
    tell(&store, writer, 1).unwrap();
    server.go_back();
    let renewed = (0..20).find_map(|_| block_on(store.renew(writer, LONG)).ok());
    assert_eq!(renewed, Some(None), "its term is over");
    assert_eq!((store.rollbacks(), letters(&store)), (1, 1));
}

/// Others may have given out more numbers than were forgotten before the one looks whose event is gone.
#[test]
fn event_that_is_gone_is_noticed_also_when_others_write_past_it() {
    let mut server = PrivatePostgres::start();
    let (one, other) = (open(&server.dsn()).unwrap(), open(&server.dsn()).unwrap());
    let writer = acquire(&one, "one", LONG).unwrap();
    tell(&one, writer, 1).unwrap();
    server.set_aside();
    tell(&one, writer, 1).unwrap();
    server.go_back();
    let mark = (0..20).find_map(|_| block_on(other.mark()).ok()).unwrap();
    assert_eq!(mark.number, 1, "the other one knows of nothing that is gone");
    let lease = block_on(other.acquire(Role::Watchdog, Shard(0), "other", LONG)).unwrap().unwrap();
    tell(&other, lease.writer, 3).unwrap();
    assert!(matches!(tell(&one, writer, 1), Err(Refusal::Term { .. })));
    assert_eq!((one.rollbacks(), other.rollbacks(), letters(&one)), (1, 0, 1));
}

/// Both were started again, and remember how far the store was.
#[test]
fn what_is_remembered_of_before_is_compared_and_told_once() {
    let mut server = PrivatePostgres::start();
    let mark = {
        let store = open(&server.dsn()).unwrap();
        let writer = acquire(&store, "one", SignedDuration::ZERO).unwrap();
        tell(&store, writer, 1).unwrap();
        server.set_aside();
        tell(&store, writer, 2).unwrap();
        block_on(store.mark()).unwrap()
    };
    assert_eq!(mark.number, 3);
    server.go_back();
    let (one, other) = (open(&server.dsn()).unwrap(), open(&server.dsn()).unwrap());
    let writer = acquire(&one, "one", LONG).unwrap();
    assert_eq!(block_on(one.recall(mark)).unwrap(), Recalled::Forgotten);
    assert_eq!(block_on(other.recall(mark)).unwrap(), Recalled::Kept, "it was told");
    assert!(matches!(tell(&one, writer, 1), Err(Refusal::Term { .. })));
    assert_eq!((one.rollbacks(), other.rollbacks(), letters(&other)), (1, 0, 1));
    let Mark { store, number } = block_on(other.mark()).unwrap();
    assert_eq!(store, mark.store, "it is the same store");
    assert!(number > mark.number);
}
