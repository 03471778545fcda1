//! Several instances, and servers and clients that stop.

use std::{
    thread::JoinHandle,
    time::{Duration, Instant},
};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_private_server::PrivatePostgres;
use interlock_store::{
    Change, Expect, Group, Key, Record, Refusal, Row, Store as _, block_on, record::WatermarkRecord,
};
use interlock_store_postgres::STOPPED_MAX;
use interlock_wait::{BOUND, ThreadWithin as _};
use jiff::{SignedDuration, Timestamp};

use crate::{
    cast::{acquire, advance, open},
    refusals::{beside, connect},
};

const LONG: SignedDuration = SignedDuration::from_hours(1);

#[test]
fn instances_that_start_at_once_make_one_store() {
    let server = PrivatePostgres::start();
    let dsn = server.dsn();
    let start = |_| {
        let dsn = dsn.clone();
        std::thread::spawn(move || open(&dsn))
    };
    let starting: Vec<_> = (0..6).map(start).collect();
    let wait = |one: JoinHandle<_>| one.join_within("six instances to start", BOUND).unwrap();
    let opened: Vec<_> = starting.into_iter().map(wait).collect();
    assert!(opened.iter().all(Result::is_ok), "{opened:?}");
}

#[test]
fn owner_of_an_older_term_is_refused_whichever_instance_it_is() {
    let server = PrivatePostgres::start();
    let (one, other) = (open(&server.dsn()).unwrap(), open(&server.dsn()).unwrap());
    let old = acquire(&one, "one", SignedDuration::ZERO).unwrap();
    advance(&one, old, Expect::Absent).unwrap().unwrap();
    let new = acquire(&other, "other", LONG).unwrap();
    assert_eq!(acquire(&one, "one", LONG), None);
    let refused = advance(&one, old, Expect::Revision(1)).unwrap();
    assert_eq!(refused, Err(Refusal::Term { current: new.term }));
    advance(&other, new, Expect::Revision(1)).unwrap().unwrap();
}

#[test]
fn store_goes_on_after_its_server_was_killed() {
    let mut server = PrivatePostgres::start();
    let store = open(&server.dsn()).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    advance(&store, writer, Expect::Absent).unwrap().unwrap();
    server.kill();
    let error = advance(&store, writer, Expect::Revision(1)).unwrap_err();
    assert!(error.is_retryable, "{error}");
    assert!(server.start_again());
    advance(&store, writer, Expect::Revision(1)).unwrap().unwrap();
    block_on(store.now()).unwrap();
}

/// A client that is stopped in the middle of a commit holds the shard's lock; the server takes it back.
#[test]
fn client_that_stops_in_a_transaction_loses_it() {
    let server = PrivatePostgres::start();
    let store = open(&server.dsn()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let stopped = runtime.block_on(connect(&server.dsn()));
    let begin = format!(
        "BEGIN; SET LOCAL idle_in_transaction_session_timeout = {}; \
         SELECT 1 FROM interlock.leases FOR UPDATE",
        STOPPED_MAX.as_millis()
    );
    runtime.block_on(stopped.batch_execute(&begin)).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the server's clock is what is measured")]
    let began = Instant::now();
    assert!(acquire(&store, "one", LONG).is_some());
    let waited = began.elapsed();
    assert!(waited > Duration::from_millis(500), "it did hold the lock: {waited:?}");
    assert!(waited < STOPPED_MAX + Duration::from_secs(2), "{waited:?}");
}

/// Reads that come at once go as one; each gets its own rows, and a row that cannot be read is the trouble of who asked for it.
#[test]
fn reads_at_once_get_their_own_rows() {
    const PIPELINES: usize = 300;
    let server = PrivatePostgres::start();
    let store = open(&server.dsn()).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    let name = |number: usize| PipelineId::parse(&format!("p-{number}")).unwrap();
    let daily = || Key::Watermark(ScheduleId::any("daily").unwrap());
    let at = |number: usize| Timestamp::from_second(1_000_000 + number as i64).unwrap();
    let groups = (0..PIPELINES).map(|number| {
        let record = Record::Watermark(WatermarkRecord { at: at(number) });
        let changes = vec![Change::Put(daily(), Expect::Absent, record)];
        Group { pipeline: name(number), writer, changes }
    });
    assert!(block_on(store.commit(groups.collect())).unwrap().iter().all(Result::is_ok));
    let keys = [Key::Pipeline, daily()];
    let names: Vec<PipelineId> = (0..PIPELINES).map(name).collect();
    // Asking begins with the call: all of them are on their way before the first is waited for.
    let all = || names.iter().map(|name| store.read(name, &keys)).collect::<Vec<_>>();
    let found = |rows: &[Option<Row<Record>>]| match rows {
        [None, Some(Row { record: Record::Watermark(mark), .. })] => mark.at,
        other => panic!("{other:?}"),
    };
    for (number, asked) in all().into_iter().enumerate() {
        assert_eq!(found(&block_on(asked).unwrap()), at(number));
    }
    beside(&server.dsn(), "UPDATE interlock.watermarks SET body = '?' WHERE pipeline = 'p-7'");
    for (number, asked) in all().into_iter().enumerate() {
        match block_on(asked) {
            Ok(rows) => assert_eq!(found(&rows), at(number)),
            Err(error) => assert!(number == 7 && !error.is_retryable, "{number}: {error}"),
        }
    }
    assert!(block_on(store.read(&names[7], &keys)).is_err());
}
