//! Leases and terms: one owner at a time, and nobody writes under an older term (S9, case 74).

use std::{
    sync::{Barrier, Mutex},
    thread,
};

use interlock_core::id::PipelineId;
use jiff::SignedDuration;

use super::{
    Subject, block_on,
    drive::all,
    promises,
    sample::{
        LONG, PAST_SHORT, SHORT, START, applied, applied_key, closed, daily, due, due_key, event,
        incident, open, orders, outbox, outbox_key, pipeline_row, run, run_key, sensor, sensor_key,
        slot_key, span, watermark,
    },
};
use interlock_store::{
    Change, Expect, Group, Key, Lease, Refusal, Role, Shard, Term, Writer, record::Record,
};

promises!("lease":
    a_held_shard_is_not_given_to_another,
    roles_and_shards_are_leased_apart,
    racing_acquisitions_have_one_winner,
    races_of_threads_have_one_winner_each_and_growing_terms,
    an_expired_lease_may_be_taken_over,
    a_released_lease_may_be_taken_over_at_once,
    the_holder_may_acquire_again_and_gets_a_new_term,
    terms_grow_across_release_and_expiry,
    a_renewed_lease_lasts_longer,
    a_superseded_lease_is_not_renewed,
    a_released_lease_is_not_renewed,
    a_foreign_release_changes_nothing,
    a_commit_without_a_lease_is_refused,
    a_term_that_was_never_given_is_refused,
    an_old_term_is_refused_for_ever,
    a_released_term_is_refused,
    expiry_alone_ends_no_term,
    a_stale_owner_hears_of_its_term_before_its_rows,
    two_owners_that_write_at_once_are_told_apart_by_their_terms,
    a_commit_that_races_a_takeover_is_whole_or_refused,
    a_term_of_another_role_is_no_right,
    the_watchdog_writes_what_it_may,
    the_watchdog_has_a_watermark_of_its_own,
    the_watchdog_writes_nothing_else,
    decisions_are_written_at_what_was_read,
    who_is_there_is_on_the_roll_until_its_time_is_over,
    the_roll_says_who_holds_what,
    the_owner_of_any_shard_may_write_under_the_system,
);

async fn acquire(t: &Subject, holder: &str, ttl: SignedDuration) -> Option<Lease> {
    let shard = t.shard(&orders());
    t.store.acquire(Role::Engine, shard, holder, ttl).await.expect("acquire answers")
}

async fn given(t: &Subject, holder: &str, ttl: SignedDuration) -> Lease {
    acquire(t, holder, ttl).await.expect("the shard is free")
}

async fn commit(t: &Subject, writer: Writer, changes: Vec<Change>) -> Result<(), Refusal> {
    let group = Group { pipeline: orders(), writer, changes };
    t.commit_one(group).await.map(|_| ())
}

async fn renew(t: &Subject, writer: Writer) -> Option<Lease> {
    t.store.renew(writer, LONG).await.expect("renew answers")
}

async fn release(t: &Subject, writer: Writer) {
    t.store.release(writer).await.expect("release answers");
}

/// Case 74: acquired, and not given a second time.
async fn a_held_shard_is_not_given_to_another(t: Subject) {
    let before = t.now().await;
    let lease = given(&t, "alice", LONG).await;
    assert!(lease.expires >= before + LONG, "{lease:?}");
    assert_eq!(lease.writer.shard, t.shard(&orders()));
    assert_eq!(acquire(&t, "bob", LONG).await, None);
}

/// Case 74: another key is free.
async fn roles_and_shards_are_leased_apart(t: Subject) {
    for role in [Role::Engine, Role::Watchdog] {
        for shard in (0..t.store.shard_count()).map(Shard) {
            let holder = format!("{}-{}", role.as_str(), shard.0);
            let lease = t.store.acquire(role, shard, &holder, LONG).await;
            let writer = lease.expect("acquire answers").expect("it is free").writer;
            assert_eq!((writer.role, writer.shard), (role, shard));
        }
    }
}

async fn racing_acquisitions_have_one_winner(t: Subject) {
    let holders: Vec<String> = (0..16).map(|number| format!("holder-{number}")).collect();
    let racers = holders.iter().map(|holder| acquire(&t, holder, LONG)).collect();
    let leases = all(racers).await;
    assert_eq!(leases.iter().flatten().count(), 1, "{leases:?}");
}

/// Fault 33 of the liveness list.
async fn races_of_threads_have_one_winner_each_and_growing_terms(t: Subject) {
    const RACERS: usize = 16;
    const ROUNDS: usize = 200;
    let (barrier, terms) = (Barrier::new(RACERS), Mutex::new(Vec::new()));
    // A racer that panicked would leave the others at the barrier for ever. What failed is told when all have come through.
    let failures = Mutex::new(Vec::new());
    let shard = t.shard(&orders());
    let race = |holder: &str| {
        for _ in 0..ROUNDS {
            // Bounded: every racer comes to the barrier, whatever the store answers.
            barrier.wait();
            let lease = block_on(t.store.acquire(Role::Engine, shard, holder, LONG));
            // Bounded: the same. No racer lets go before all have tried.
            barrier.wait();
            let released = match lease {
                Ok(Some(lease)) => {
                    terms.lock().expect("no racer panicked").push(lease.writer.term);
                    block_on(t.store.release(lease.writer))
                }
                Ok(None) => Ok(()),
                Err(failure) => Err(failure),
            };
            failures.lock().expect("no racer panicked").extend(released.err());
        }
    };
    thread::scope(|scope| {
        let race = &race;
        for number in 0..RACERS {
            scope.spawn(move || race(&format!("holder-{number}")));
        }
    });
    let failures = failures.into_inner().expect("no racer panicked");
    assert!(failures.is_empty(), "{failures:?}");
    let terms = terms.into_inner().expect("no racer panicked");
    assert_eq!(terms.len(), ROUNDS, "one winner each");
    assert!(terms.is_sorted_by(|one, next| one < next), "{terms:?}");
}

/// Case 74: it expires after its TTL.
async fn an_expired_lease_may_be_taken_over(t: Subject) {
    let old = given(&t, "alice", SHORT).await;
    t.pass(PAST_SHORT);
    let new = given(&t, "bob", LONG).await;
    assert!(new.writer.term > old.writer.term);
    assert_eq!(acquire(&t, "alice", LONG).await, None);
}

/// Case 74: released, and acquired again.
async fn a_released_lease_may_be_taken_over_at_once(t: Subject) {
    release(&t, given(&t, "alice", LONG).await.writer).await;
    given(&t, "bob", LONG).await;
}

async fn the_holder_may_acquire_again_and_gets_a_new_term(t: Subject) {
    let first = given(&t, "alice", LONG).await;
    let second = given(&t, "alice", LONG).await;
    assert!(second.writer.term > first.writer.term);
    let refused = commit(&t, first.writer, vec![]).await;
    assert_eq!(refused, Err(Refusal::Term { current: second.writer.term }));
    assert_eq!(commit(&t, second.writer, vec![]).await, Ok(()));
}

async fn terms_grow_across_release_and_expiry(t: Subject) {
    let mut last = Term(0);
    for round in 0..6 {
        let lease = given(&t, &format!("holder-{round}"), SHORT).await;
        assert!(lease.writer.term > last, "{:?} after {last:?}", lease.writer.term);
        last = lease.writer.term;
        match round % 2 {
            0 => release(&t, lease.writer).await,
            _ => t.pass(PAST_SHORT),
        }
    }
}

async fn a_renewed_lease_lasts_longer(t: Subject) {
    let lease = given(&t, "alice", SHORT).await;
    let renewed = renew(&t, lease.writer).await.expect("nobody else took it");
    assert_eq!(renewed.writer, lease.writer, "the term stays");
    assert!(renewed.expires > lease.expires);
    t.pass(PAST_SHORT);
    assert_eq!(acquire(&t, "bob", LONG).await, None);
}

async fn a_superseded_lease_is_not_renewed(t: Subject) {
    let old = given(&t, "alice", SHORT).await;
    t.pass(PAST_SHORT);
    given(&t, "bob", LONG).await;
    assert_eq!(renew(&t, old.writer).await, None);
}

async fn a_released_lease_is_not_renewed(t: Subject) {
    let lease = given(&t, "alice", LONG).await;
    release(&t, lease.writer).await;
    assert_eq!(renew(&t, lease.writer).await, None);
    let never = Writer { term: Term(999), ..lease.writer };
    assert_eq!(renew(&t, never).await, None);
}

/// Case 74: a release with the wrong token is a silent no-op, and the lock stays held.
async fn a_foreign_release_changes_nothing(t: Subject) {
    let old = given(&t, "alice", SHORT).await;
    t.pass(PAST_SHORT);
    let new = given(&t, "bob", LONG).await;
    release(&t, old.writer).await;
    release(&t, Writer { role: Role::Watchdog, ..new.writer }).await;
    assert_eq!(acquire(&t, "carol", LONG).await, None);
    assert_eq!(commit(&t, new.writer, vec![]).await, Ok(()));
}

async fn a_term_that_was_never_given_is_refused(t: Subject) {
    let given = given(&t, "alice", LONG).await.writer;
    let later = Writer { term: Term(given.term.0 + 1), ..given };
    assert_eq!(commit(&t, later, vec![]).await, Err(Refusal::Term { current: given.term }));
}

async fn a_commit_without_a_lease_is_refused(t: Subject) {
    let shard = t.shard(&orders());
    for term in [0, 1] {
        let writer = Writer { role: Role::Engine, shard, term: Term(term) };
        let refused = commit(&t, writer, vec![]).await;
        assert_eq!(refused, Err(Refusal::Term { current: Term(0) }));
    }
}

async fn an_old_term_is_refused_for_ever(t: Subject) {
    let old = given(&t, "alice", SHORT).await.writer;
    t.pass(PAST_SHORT);
    let new = given(&t, "bob", LONG).await.writer;
    let write = || vec![Change::Put(slot_key(0), Expect::Absent, open())];
    assert_eq!(commit(&t, old, write()).await, Err(Refusal::Term { current: new.term }));
    release(&t, new).await;
    assert_eq!(commit(&t, old, write()).await, Err(Refusal::Term { current: new.term }));
    assert_eq!(t.revision(&orders(), &slot_key(0)).await, 0);
}

async fn a_released_term_is_refused(t: Subject) {
    let writer = given(&t, "alice", LONG).await.writer;
    release(&t, writer).await;
    release(&t, writer).await;
    assert_eq!(commit(&t, writer, vec![]).await, Err(Refusal::Term { current: writer.term }));
}

async fn expiry_alone_ends_no_term(t: Subject) {
    let writer = given(&t, "alice", SHORT).await.writer;
    t.pass(PAST_SHORT);
    assert_eq!(commit(&t, writer, vec![]).await, Ok(()), "nobody else can have acted");
    let renewed = renew(&t, writer).await.map(|lease| lease.writer);
    assert_eq!(renewed, Some(writer));
    assert_eq!(acquire(&t, "bob", LONG).await, None);
}

async fn a_stale_owner_hears_of_its_term_before_its_rows(t: Subject) {
    let old = given(&t, "alice", SHORT).await.writer;
    t.pass(PAST_SHORT);
    let new = given(&t, "bob", LONG).await.writer;
    let changes = vec![Change::Put(slot_key(0), Expect::Revision(7), open())];
    assert_eq!(commit(&t, old, changes).await, Err(Refusal::Term { current: new.term }));
}

/// Two committers: one whose lease ran out while it was away, and the one who followed.
async fn two_owners_that_write_at_once_are_told_apart_by_their_terms(t: Subject) {
    let old = given(&t, "alice", SHORT).await.writer;
    t.pass(PAST_SHORT);
    let new = given(&t, "bob", LONG).await.writer;
    let create = |at: i64| vec![Change::Put(slot_key(at), Expect::Absent, open())];
    let writers = [old, new].into_iter().cycle().zip(0..16);
    let racers = writers.map(|(writer, at)| commit(&t, writer, create(at))).collect();
    for (at, result) in all(racers).await.into_iter().enumerate() {
        let is_new = at % 2 == 1;
        let expected = if is_new { Ok(()) } else { Err(Refusal::Term { current: new.term }) };
        assert_eq!(result, expected, "{at}");
        assert_eq!(t.revision(&orders(), &slot_key(at as i64)).await, u64::from(is_new));
    }
}

async fn a_commit_that_races_a_takeover_is_whole_or_refused(t: Subject) {
    let old = given(&t, "alice", SHORT).await.writer;
    t.pass(PAST_SHORT);
    let create = |at: i64| vec![Change::Put(slot_key(at), Expect::Absent, open())];
    // One future of each kind in one list: a takeover in the middle of eight commits.
    let racers = (0..9).map(|at| {
        let t = &t;
        async move {
            if at == 4 {
                return acquire(t, "bob", LONG).await.map(|_| ()).ok_or(None);
            }
            commit(t, old, create(at)).await.map_err(Some)
        }
    });
    let results = all(racers.collect()).await;
    assert_eq!(results.get(4), Some(&Ok(())), "an expired lease may be taken over");
    for (at, result) in results.iter().enumerate().filter(|(at, _)| *at != 4) {
        let revision = t.revision(&orders(), &slot_key(at as i64)).await;
        assert_eq!(revision, u64::from(result.is_ok()), "{at}: {result:?}");
        assert!(matches!(result, Ok(()) | Err(Some(Refusal::Term { .. }))), "{at}: {result:?}");
    }
    let late = commit(&t, old, create(20)).await;
    assert!(matches!(late, Err(Refusal::Term { .. })), "{late:?}");
}

async fn a_term_of_another_role_is_no_right(t: Subject) {
    let engine = given(&t, "alice", LONG).await.writer;
    let refused = commit(&t, Writer { role: Role::Watchdog, ..engine }, vec![]).await;
    assert_eq!(refused, Err(Refusal::Term { current: Term(0) }));
}

async fn as_watchdog(t: &Subject, changes: Vec<Change>) -> Result<(), Refusal> {
    let writer = t.writer(Role::Watchdog, &orders()).await;
    commit(t, writer, changes).await
}

async fn the_watchdog_writes_what_it_may(t: Subject) {
    let notification = Record::Outbox(outbox(START).into());
    let changes = vec![
        Change::Put(slot_key(0), Expect::Absent, open()),
        Change::Put(slot_key(1), Expect::Absent, closed("missed")),
        Change::Put(Key::Incident("watchdog:orders".into()), Expect::Absent, incident(START)),
        Change::Put(due_key(9, "orders"), Expect::Any, due()),
        Change::Put(outbox_key("watchdog:orders:1"), Expect::Absent, notification),
        Change::Append(event("missed").into()),
    ];
    assert_eq!(as_watchdog(&t, changes).await, Ok(()));
    let started = run("RUNNING", "scheduler", START);
    t.write(&orders(), vec![Change::Put(Key::Run(run_key(0, 1)), Expect::Absent, started)]).await;
    let changes = vec![
        Change::Put(slot_key(0), Expect::Revision(1), closed("failed")),
        Change::Put(
            Key::Run(run_key(0, 1)),
            Expect::Revision(1),
            run("FAILED", "scheduler", START),
        ),
        Change::Delete(due_key(9, "orders"), Expect::Any),
    ];
    assert_eq!(as_watchdog(&t, changes).await, Ok(()));
}

async fn the_watchdog_has_a_watermark_of_its_own(t: Subject) {
    let pipeline = PipelineId::system();
    let writer = t.writer(Role::Watchdog, &pipeline).await;
    for expect in [Expect::Absent, Expect::Revision(1)] {
        let changes = vec![Change::Put(Key::Watermark(daily()), expect, watermark(START))];
        let group = Group { pipeline: pipeline.clone(), writer, changes };
        assert!(t.commit_one(group).await.is_ok(), "{expect:?}");
    }
}

async fn the_watchdog_writes_nothing_else(t: Subject) {
    let at = START;
    let forbidden = [
        Change::Put(Key::Pipeline, Expect::Absent, pipeline_row()),
        Change::Put(Key::Watermark(daily()), Expect::Absent, watermark(at)),
        Change::Put(Key::Span(daily(), at), Expect::Absent, span(at, "missed")),
        Change::Put(Key::Run(run_key(0, 1)), Expect::Absent, run("PENDING", "manual", at)),
        Change::Put(sensor_key("k"), Expect::Any, sensor(serde_json::json!(1))),
        Change::Put(applied_key("k"), Expect::Absent, applied(serde_json::json!(1))),
        Change::Put(slot_key(0), Expect::Any, open()),
        Change::Delete(slot_key(0), Expect::Any),
        Change::Delete(Key::Incident("k".into()), Expect::Any),
    ];
    for change in forbidden {
        let key = change.key().cloned().expect("it changes a row");
        let beside = Change::Put(due_key(0, "beside"), Expect::Any, due());
        let refused = as_watchdog(&t, vec![beside, change]).await;
        assert_eq!(refused, Err(Refusal::Forbidden { key }));
    }
    assert_eq!(t.revision(&orders(), &due_key(0, "beside")).await, 0);
}

async fn decisions_are_written_at_what_was_read(t: Subject) {
    let at = START;
    let decisions = [
        (Key::Pipeline, pipeline_row()),
        (Key::Watermark(daily()), watermark(at)),
        (slot_key(0), open()),
        (Key::Span(daily(), at), span(at, "missed")),
        (Key::Run(run_key(0, 1)), run("PENDING", "manual", at)),
        (Key::Incident("k".into()), incident(at)),
        (applied_key("k"), applied(serde_json::json!(1))),
    ];
    for (key, record) in decisions {
        let blind = Change::Put(key.clone(), Expect::Any, record);
        let refused = t.try_write(&orders(), vec![blind]).await;
        assert_eq!(refused, Err(Refusal::Forbidden { key }));
    }
}

/// An engine that one process alone can write has no roll.
async fn who_is_there_is_on_the_roll_until_its_time_is_over(t: Subject) {
    let alice = (Role::Engine, "alice".to_owned());
    let bob = (Role::Watchdog, "bob".to_owned());
    for (role, name) in [&alice, &bob] {
        t.store.announce(*role, name, LONG).await.expect("announce answers");
    }
    let present = async || {
        let before = t.now().await;
        let roll = t.store.roll().await.expect("roll answers")?;
        assert!(roll.now >= before, "by the store's clock: {roll:?}");
        Some(roll.present)
    };
    let Some(found) = present().await else { return };
    assert_eq!(found, [alice.clone(), bob.clone()].into());
    t.store.announce(alice.0, &alice.1, SHORT).await.expect("announce answers");
    t.pass(PAST_SHORT);
    assert_eq!(present().await, Some([bob.clone()].into()));
    t.store.announce(alice.0, &alice.1, LONG).await.expect("announce answers");
    t.store.announce(bob.0, &bob.1, SignedDuration::ZERO).await.expect("announce answers");
    assert_eq!(present().await, Some([alice].into()), "one came back, one left");
}

async fn the_roll_says_who_holds_what(t: Subject) {
    let held = async || {
        let roll = t.store.roll().await.expect("roll answers")?;
        Some(roll.held)
    };
    let lease = given(&t, "alice", LONG).await;
    let Some(found) = held().await else { return };
    let place = (Role::Engine, t.shard(&orders()));
    assert_eq!(found, [(place, ("alice".to_owned(), lease.expires))].into());
    let lease = given(&t, "alice", SHORT).await;
    t.pass(PAST_SHORT);
    assert_eq!(held().await, Some([].into()), "it has expired, though its term is not over");
    let lease = renew(&t, lease.writer).await.expect("nobody took it");
    assert_eq!(held().await.map(|held| held.len()), Some(1));
    release(&t, lease.writer).await;
    assert_eq!(held().await, Some([].into()));
}

/// What is of no pipeline lies in one shard, and concerns the owners of all of them.
async fn the_owner_of_any_shard_may_write_under_the_system(t: Subject) {
    let (system, key) = (PipelineId::system(), sensor_key("told"));
    for shard in (0..t.store.shard_count()).map(Shard) {
        let lease = t.store.acquire(Role::Engine, shard, "alice", LONG).await;
        let writer = lease.expect("acquire answers").expect("it is free").writer;
        let (expect, revision) = match shard.0 {
            0 => (Expect::Absent, 1),
            number => (Expect::Revision(number.into()), u64::from(number) + 1),
        };
        let changes = vec![Change::Put(key.clone(), expect, sensor(1.into()))];
        let group = Group { pipeline: system.clone(), writer, changes };
        t.commit_one(group.clone()).await.expect("it may");
        assert!(matches!(t.commit_one(group.clone()).await, Err(Refusal::Conflict { .. })));
        let found = t.store.read(&system, std::slice::from_ref(&key)).await.expect("read answers");
        let found = found.into_iter().flatten().map(|row| row.revision).next();
        assert_eq!(found, Some(revision));
        release(&t, writer).await;
        assert!(matches!(t.commit_one(group).await, Err(Refusal::Term { .. })), "under its own");
    }
}
