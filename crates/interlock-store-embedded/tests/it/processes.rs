//! Several processes at one folder: one writes, the others read and leave letters, and a stopped one is in
//! nobody's way.

use std::{
    collections::BTreeSet,
    sync::{Arc, mpsc},
    time::Duration,
};

use interlock_store::{
    Change, Expect, Group, Key, Record, Shard, Store, block_on, record::AppliedRecord,
};
use interlock_store_embedded::{EmbeddedStore, OpenInbox};

use crate::{
    cast::{clock, commit, daemon, group, letter, pipeline, reader, slot_key, writer},
    child::Player,
};

#[test]
fn second_daemon_is_refused_and_the_first_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut player = Player::start("commits", folder.path(), 0);
    player.acknowledged().unwrap();
    let error = EmbeddedStore::open_daemon(folder.path(), clock()).unwrap_err();
    let pid = player.child.id();
    assert!(error.message.contains(&format!("process {pid} is using the ledger")), "{error}");
    drop(player);
    daemon(folder.path());
}

#[test]
fn lock_ends_with_the_store() {
    let folder = tempfile::tempdir().unwrap();
    drop(daemon(folder.path()));
    drop(daemon(folder.path()));
}

#[test]
fn reader_sees_what_a_running_daemon_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut player = Player::start("commits", folder.path(), 0);
    player.acknowledged().unwrap();
    let store = reader(folder.path());
    for _ in 0..200 {
        let number = player.acknowledged().unwrap();
        let rows = block_on(store.read(&pipeline(number), &[slot_key(number)])).unwrap();
        assert!(rows[0].is_some(), "{number}");
    }
}

#[test]
fn reader_cannot_commit() {
    let folder = tempfile::tempdir().unwrap();
    let right = writer(&daemon(folder.path()));
    let error = commit(&reader(folder.path()), group(right, 1)).unwrap_err();
    assert!(error.message.contains("only reads"), "{error}");
    assert!(!error.is_retryable);
}

#[test]
fn reader_without_a_ledger_is_told_what_makes_one() {
    let folder = tempfile::tempdir().unwrap();
    let error = EmbeddedStore::open_reader(folder.path(), clock()).unwrap_err();
    assert!(error.message.contains("`interlock serve` makes one"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

/// The keys that wait, as a store sees them.
fn waiting(store: &EmbeddedStore) -> Vec<String> {
    let page = block_on(store.inbox(Shard(0), 100_000)).unwrap();
    page.items.into_iter().map(|entry| entry.key).collect()
}

fn post(store: &EmbeddedStore, key: &str) {
    block_on(store.post(&pipeline(0), key, &letter(1))).unwrap();
}

#[test]
fn letters_of_a_reader_reach_the_daemon_once() {
    let folder = tempfile::tempdir().unwrap();
    let (store, beside) = (daemon(folder.path()), reader(folder.path()));
    post(&beside, "one");
    assert_eq!(waiting(&beside), ["one"], "before the daemon has looked");
    post(&store, "two");
    assert_eq!(waiting(&store), ["two", "one"]);
    post(&beside, "two");
    post(&beside, "one");
    for _ in 0..3 {
        assert_eq!(waiting(&store), ["two", "one"]);
        assert_eq!(waiting(&beside), ["two", "one"]);
    }
    answer(&store, "one");
    post(&beside, "one");
    assert_eq!(waiting(&store), ["two"], "a repeated letter that was answered is no new one");
    assert_eq!(waiting(&beside), ["two"]);
}

#[test]
fn letter_after_a_long_silence_is_found_at_the_next_look() {
    let folder = tempfile::tempdir().unwrap();
    let (store, beside) = (daemon(folder.path()), reader(folder.path()));
    for round in 0..20 {
        // More than are needed until the file's looks are believed; at times as many as until they are doubted again.
        for _ in 0..=round * 7 {
            assert!(waiting(&store).is_empty(), "{round}");
        }
        let key = format!("letter {round}");
        post(if round % 3 == 0 { &store } else { &beside }, &key);
        assert_eq!(waiting(&store), [key.as_str()]);
        answer(&store, &key);
    }
}

/// Writes the answer to a letter.
fn answer(store: &EmbeddedStore, key: &str) {
    let at = interlock_store_conformance::START;
    let record = AppliedRecord { at, accepted: true, result: "done".into(), request: None };
    let put =
        Change::Put(Key::Applied(key.to_owned()), Expect::Absent, Record::Applied(record.into()));
    let group = Group { pipeline: pipeline(0), writer: writer(store), changes: vec![put] };
    commit(store, group).unwrap().unwrap();
}

#[test]
fn letters_wait_for_a_daemon_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    drop(daemon(folder.path()));
    post(&reader(folder.path()), "one");
    std::fs::remove_file(folder.path().join("daemon.lock")).unwrap();
    let store = daemon(folder.path());
    assert_eq!(waiting(&store), ["one"]);
    // Somebody deletes the file; the next letter begins a new one with small numbers.
    for name in ["inbox.db", "inbox.db-wal", "inbox.db-shm"] {
        drop(std::fs::remove_file(folder.path().join(name)));
    }
    post(&reader(folder.path()), "two");
    assert_eq!(waiting(&store), ["one", "two"]);
}

#[test]
fn an_inbox_opened_beforehand_takes_letters_and_nobody_who_is_alone_deletes_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let entries = |key: &str| [(pipeline(0), key.to_owned(), letter(1))];
    let limits = || (jiff::Timestamp::UNIX_EPOCH, Duration::from_millis(500));
    assert!(OpenInbox::of(folder.path()).is_none(), "it is made by the first letter");
    interlock_store_embedded::leave(folder.path(), &entries("one"), limits()).unwrap();
    let log = folder.path().join("inbox.db-wal");
    assert!(log.exists(), "the next letter would have to make it again");
    let opened = OpenInbox::of(folder.path()).unwrap();
    interlock_store_embedded::leave(folder.path(), &entries("two"), limits()).unwrap();
    assert!(opened.leave(&entries("three"), limits()), "others came between");
    assert!(log.exists());
    // Somebody holds it: it is not waited for beforehand, and only so long afterwards.
    let opened = OpenInbox::of(folder.path()).unwrap();
    let holder = rusqlite::Connection::open(folder.path().join("inbox.db")).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(OpenInbox::of(folder.path()).is_some(), "reading needs no lock");
    assert!(!opened.leave(&entries("four"), (limits().0, Duration::from_millis(1))));
    drop(holder);
    assert_eq!(waiting(&daemon(folder.path())), ["one", "two", "three"]);
}

/// Commits and looks into the inbox, and panics if that takes long.
fn work_goes_on(store: &Arc<EmbeddedStore>, number: u64) {
    let (done, finished) = mpsc::channel();
    let busy = Arc::clone(store);
    std::thread::spawn(move || {
        commit(&busy, group(writer(&busy), number)).unwrap().unwrap();
        let keys = waiting(&busy);
        drop(done.send(keys));
    });
    finished.recv_timeout(Duration::from_secs(2)).expect("nobody is in the way");
}

/// Stops a process that holds the inbox, and works beside it; only these keys can be seen meanwhile.
fn work_beside_a_stopped(mut player: Player, store: &Arc<EmbeddedStore>, seen: &[&str]) {
    player.hear("ready").unwrap();
    player.signal("STOP");
    for number in 0..20 {
        work_goes_on(store, number);
        assert_eq!(waiting(store), seen);
    }
    player.signal("CONT");
    player.go_on();
    player.hear("done").unwrap();
    drop(player);
    assert_eq!(waiting(store), ["before", "held"]);
}

#[test]
fn process_stopped_in_the_middle_of_a_letter_is_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(daemon(folder.path()));
    post(&reader(folder.path()), "before");
    assert_eq!(waiting(&store), ["before"]);
    work_beside_a_stopped(Player::start("holds", folder.path(), 0), &store, &["before"]);
}

#[test]
fn process_stopped_with_the_whole_inbox_to_itself_is_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(daemon(folder.path()));
    post(&reader(folder.path()), "before");
    // The daemon has not looked yet, so that the other can lock it out, as one that makes the file does.
    work_beside_a_stopped(Player::start("holds-all", folder.path(), 0), &store, &[]);
}

#[test]
fn processes_stopped_at_any_moment_are_in_nobodys_way_and_lose_no_letter() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(daemon(folder.path()));
    let mut player = Player::start("posts", folder.path(), 0);
    let mut acknowledged = BTreeSet::new();
    for stop in 0..30 {
        acknowledged.insert(player.acknowledged().unwrap());
        for _ in 0..stop * 7_919 % 100_000 {
            std::hint::spin_loop();
        }
        player.signal("STOP");
        work_goes_on(&store, stop);
        player.signal("CONT");
    }
    player.child.kill().unwrap();
    acknowledged.extend(std::iter::from_fn(|| player.acknowledged()));
    let keys = waiting(&store);
    let unique: BTreeSet<&String> = keys.iter().collect();
    assert_eq!(unique.len(), keys.len());
    for number in acknowledged {
        assert!(unique.contains(&format!("key-{number}")), "{number}");
    }
}
