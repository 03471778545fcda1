//! A damaged ledger is set aside, never deleted, and a new one begins with what can be read of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    Change, Expect, Group, Key, LedgerEntry, LedgerQuery, Record, RunKey, Shard, Store as _,
    Writer, block_on,
    kept::uncertain_until,
    record::{
        InboxRecord, PipelineRecord, RunRecord, SlotRecord, VersionRecord, WatermarkRecord,
        version_text,
    },
};
use interlock_store_conformance::START;
use interlock_store_embedded::{EmbeddedStore, Recovery, recover};
use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;

use crate::cast::{bulky, clock, commit, daemon, group, nominal, pipeline, schedule, writer};

const GROUPS: u64 = 4_000;
const PAGE: usize = 4096;

fn put(key: Key, record: Record) -> Change {
    Change::Put(key, Expect::Absent, record)
}

/// A slot that ran, with its run.
fn ran(right: Writer, number: u64) -> Group {
    let mut slot: SlotRecord = crate::cast::slot(number);
    (slot.state, slot.disposition) = ("closed".into(), Some("completed".into()));
    slot.attempt = 1;
    slot.opened_by = "scheduler".into();
    let run = RunRecord {
        status: "COMPLETED".into(),
        trigger_type: "scheduler".into(),
        created_at: nominal(number),
        started_at: None,
        ended_at: None,
        message: None,
        category: None,
        metadata: BTreeMap::new(),
    };
    let key = RunKey { schedule: schedule(), nominal: nominal(number), generation: 1, attempt: 1 };
    let changes = vec![
        put(Key::Slot(schedule(), nominal(number)), Record::Slot(slot.into())),
        put(Key::Run(key), Record::Run(run.into())),
        Change::Append(crate::cast::event(number).into()),
    ];
    Group { pipeline: pipeline(number), writer: right, changes }
}

const AGENDA: &str = r#"{"v":1,"version":"0000000000000007","firstSeen":"2026-02-25T08:00:00Z","agenda":{"work":"started","starts":[{"schedule":{"id":"minutely","recurrence":{"cron":"* * * * *"},"zone":"UTC"},"grace":"PT5M","startGrace":"PT1M","durationMax":"PT24H"}]}}"#;

/// Declares a pipeline that is recorded up to an instant.
fn declared(right: Writer, number: u64, watermark: Timestamp) -> Group {
    let record = match Record::decode(&Key::Pipeline, AGENDA) {
        Ok(Record::Pipeline(record)) => Some(record),
        _ => None,
    };
    let record = record.unwrap();
    let record = PipelineRecord { version: version_text(7), ..(*record).clone() };
    let version =
        VersionRecord { since: START, source: "name: x\n".to_owned(), context: BTreeMap::new() };
    let changes = vec![
        put(Key::Pipeline, Record::Pipeline(record.into())),
        put(Key::Version(7), Record::Version(version.into())),
        put(Key::Watermark(schedule()), Record::Watermark(WatermarkRecord { at: watermark })),
    ];
    Group { pipeline: pipeline(number), writer: right, changes }
}

/// A ledger with rows of many kinds, and its log empty.
fn filled(folder: &Path) {
    let store = daemon(folder);
    let right = writer(&store);
    for number in 0..20 {
        commit(&store, declared(right, number, nominal(GROUPS))).unwrap().unwrap();
    }
    for number in 0..GROUPS {
        commit(&store, ran(right, number)).unwrap().unwrap();
    }
    // Rows that go on over several pages.
    for number in 100..140 {
        commit(&store, bulky(right, number, 9_000)).unwrap().unwrap();
    }
    drop(store);
    let db = Connection::open(folder.join("ledger.db")).unwrap();
    db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE);").unwrap();
}

fn now() -> Timestamp {
    nominal(GROUPS) + SignedDuration::from_hours(1)
}

/// Numbers that look like chance and are the same for a seed.
fn chance(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    }
}

/// Cuts so many pages: some are zeroes, some are noise. Answers with their numbers.
fn cut(path: &Path, seed: u64, count: usize) -> BTreeSet<i64> {
    let mut bytes = fs::read(path).unwrap();
    let mut next = chance(seed);
    let pages = bytes.len() / PAGE;
    let mut cut = BTreeSet::new();
    for _ in 0..count {
        let page = 1 + next(pages - 1);
        cut.insert(page as i64 + 1);
        let (from, is_noise) = (page * PAGE, next(2) == 0);
        for byte in &mut bytes[from..from + PAGE] {
            *byte = if is_noise { next(256) as u8 } else { 0 };
        }
    }
    fs::write(path, bytes).unwrap();
    cut
}

fn recovered(folder: &Path) -> Recovery {
    recover(folder, now()).unwrap().expect("it was damaged")
}

/// How many rows of each table SQLite has on pages that are not cut, by what it says of the file as it was: cells of leaves,
/// and in tables without row numbers those of the pages above them.
fn on_whole_pages(sound: &Path, cut: &BTreeSet<i64>) -> BTreeMap<String, u64> {
    let db = Connection::open(sound).unwrap();
    let sql = "SELECT d.name, d.pageno, d.pagetype, d.ncell,
           (SELECT m.sql LIKE '%WITHOUT ROWID%' FROM sqlite_schema m WHERE m.name = d.name)
         FROM dbstat d WHERE d.name IN (SELECT name FROM sqlite_schema WHERE type = 'table')";
    let mut statement = db.prepare(sql).unwrap();
    let mut rows = statement.query([]).unwrap();
    let mut counts = BTreeMap::new();
    while let Some(row) = rows.next().unwrap() {
        let (name, page): (String, i64) = (row.get(0).unwrap(), row.get(1).unwrap());
        let kind: String = row.get(2).unwrap();
        let (cells, by_key): (i64, bool) = (row.get(3).unwrap(), row.get(4).unwrap());
        let holds_rows = kind == "leaf" || (kind == "internal" && by_key);
        if holds_rows && !cut.contains(&page) {
            *counts.entry(name).or_default() += cells as u64;
        }
    }
    counts
}

/// A damaged page costs the rows on it, and no others: also those that SQLite has no way to any more, because a page above
/// them is cut.
#[test]
fn a_ledger_cut_at_twenty_pages_keeps_every_row_on_the_others() {
    let source = tempfile::tempdir().unwrap();
    filled(source.path());
    let sound = source.path().join("ledger.db");
    let mut strays = 0;
    for seed in 1..=12 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        fs::copy(&sound, &path).unwrap();
        let cut = cut(&path, seed, 20);
        let damaged = fs::read(&path).unwrap();
        let recovery = recovered(folder.path());
        assert_eq!(fs::read(&recovery.aside[0]).unwrap(), damaged, "it is set aside as it was");
        let db = Connection::open(&path).unwrap();
        for (table, expected) in on_whole_pages(&sound, &cut) {
            // The first is made anew; of names more is found, in their index; bodies of versions go on over other pages.
            if matches!(table.as_str(), "migrations" | "names" | "versions" | "leases" | "counters")
            {
                continue;
            }
            let found = count(&db, &table);
            // What stands in for slots whose pages are cut is there because their runs are.
            let mended = "SELECT count(*) FROM slots WHERE body LIKE '%\"recovered\":true%'";
            let mended = if table == "slots" { number(&db, mended) } else { 0 };
            if table == "watermarks" {
                // Each pipeline that is there has one; the others are first seen anew.
                assert_eq!(found, count(&db, "pipelines"), "seed {seed}");
                continue;
            }
            let own = u64::from(matches!(table.as_str(), "inbox" | "sensors"));
            assert_eq!(found - mended - own, expected, "seed {seed}: {table}");
        }
        strays += u64::from(recovery.message.contains("of `slots`"));
        drop(db);
        check_mended(folder.path(), seed);
    }
    assert!(strays > 3, "some cut slots");
}

fn number(db: &Connection, sql: &str) -> u64 {
    db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap() as u64
}

fn count(db: &Connection, table: &str) -> u64 {
    number(db, &format!("SELECT count(*) FROM {table}"))
}

/// No slot that ran can run again: it has its row, or its schedule's watermark is before it and what is owed up to the last
/// write is uncertain.
fn check_mended(folder: &Path, seed: u64) {
    let store = daemon(folder);
    let until = block_on(uncertain_until(&store)).unwrap().unwrap();
    assert!(until >= nominal(GROUPS - 1).min(until), "seed {seed}");
    assert!(interlock_store_embedded::check(folder).unwrap().is_empty(), "seed {seed}");
    let entries = block_on(store.inbox(Shard(0), 100)).unwrap().items;
    let is_told = |record: &InboxRecord| matches!(record, InboxRecord::Noticed { event, .. } if event == "STORE_RECOVERED");
    assert!(entries.iter().any(|entry| is_told(&entry.record)), "seed {seed}");
    let rows = block_on(store.ledger(&LedgerQuery::everything(usize::MAX))).unwrap().items;
    let recorded: BTreeSet<_> =
        rows.iter().map(|row| (row.pipeline.clone(), row.nominal)).collect();
    let agenda = block_on(store.agenda(Shard(0), None, 100)).unwrap().items;
    for row in agenda.iter().filter(|row| row.pipeline.as_str().starts_with("crash")) {
        let watermark = row.watermarks.get(&schedule()).unwrap();
        for number in 0..GROUPS {
            if pipeline(number) == row.pipeline {
                let is_recorded = recorded.contains(&(pipeline(number), nominal(number)));
                assert!(
                    is_recorded || nominal(number) > watermark.record.at,
                    "seed {seed}: {} at {} is behind a watermark and not recorded",
                    row.pipeline,
                    nominal(number)
                );
            }
        }
    }
}

#[test]
fn a_sound_ledger_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(recover(folder.path(), now()).unwrap(), None, "there is none");
    fs::write(folder.path().join("ledger.db"), "").unwrap();
    assert_eq!(recover(folder.path(), now()).unwrap(), None, "an empty file is a beginning");
    let store = daemon(folder.path());
    let right = writer(&store);
    commit(&store, group(right, 1)).unwrap().unwrap();
    let error = recover(folder.path(), now()).unwrap_err();
    assert!(error.message.contains("is using the ledger"), "{error}");
    drop(store);
    assert_eq!(recover(folder.path(), now()).unwrap(), None);
    assert_eq!(names(folder.path()), ["daemon.lock", "ledger.db"]);
}

/// The files of a folder without the log of an open database.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let names = entries.map(|name| name.into_string().unwrap());
    let mut names: Vec<_> =
        names.filter(|name| !name.ends_with("-wal") && !name.ends_with("-shm")).collect();
    names.sort();
    names
}

#[test]
fn what_is_no_database_is_set_aside_under_a_name_that_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    for (text, name) in [
        ("one only copy", "ledger.db.damaged-20260225T"),
        ("another only copy", "ledger.db.damaged-20260225T"),
    ] {
        fs::write(&path, text.repeat(1_000)).unwrap();
        let recovery = recovered(folder.path());
        assert_eq!(fs::read_to_string(&recovery.aside[0]).unwrap(), text.repeat(1_000));
        assert!(recovery.aside[0].file_name().unwrap().to_str().unwrap().starts_with(name));
        let store = daemon(folder.path());
        let right = writer(&store);
        commit(&store, group(right, 1)).unwrap().unwrap();
    }
    let set_aside = names(folder.path()).into_iter().filter(|name| name.contains("damaged"));
    assert_eq!(set_aside.count(), 2, "the name existed, and nothing was written over");
}

#[test]
fn a_ledger_of_a_newer_interlock_is_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    drop(daemon(folder.path()));
    let path = folder.path().join("ledger.db");
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    let before = fs::read(&path).unwrap();
    let error = recover(folder.path(), now()).unwrap_err();
    assert!(error.message.contains("newer Interlock"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// The first page says where every table is. Without it the rows say which table they are of.
#[test]
fn a_ledger_without_its_first_page_keeps_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path());
    let path = folder.path().join("ledger.db");
    let mut bytes = fs::read(&path).unwrap();
    bytes[..PAGE].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    assert!(EmbeddedStore::open_daemon(folder.path(), clock()).is_err());
    let recovery = recovered(folder.path());
    assert!(recovery.message.contains("the page that names its tables"), "{}", recovery.message);
    let db = Connection::open(&path).unwrap();
    let count = |table: &str| count(&db, table);
    assert_eq!((count("slots"), count("runs")), (GROUPS, GROUPS));
    assert_eq!((count("events"), count("pipelines"), count("watermarks")), (GROUPS, 20, 20));
    drop(db);
    check_mended(folder.path(), 0);
}

/// Copies a folder while its store is open: what is committed is in the log.
fn with_log(to: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let store = daemon(folder.path());
    let right = writer(&store);
    commit(&store, declared(right, 1, nominal(0))).unwrap().unwrap();
    for number in 0..200 {
        commit(&store, ran(right, number)).unwrap().unwrap();
    }
    for name in ["ledger.db", "ledger.db-wal"] {
        fs::copy(folder.path().join(name), to.join(name)).unwrap();
    }
}

#[test]
fn a_damaged_log_is_found_though_the_file_is_fine_and_what_it_lost_does_not_run() {
    let folder = tempfile::tempdir().unwrap();
    with_log(folder.path());
    // A copy whose log is whole, or was torn by a death, is nothing to recover.
    let wal = folder.path().join("ledger.db-wal");
    let whole = fs::read(&wal).unwrap();
    fs::write(&wal, &whole[..whole.len() - 100]).unwrap();
    assert_eq!(recover(folder.path(), now()).unwrap(), None);
    with_log(folder.path());
    let mut bytes = fs::read(&wal).unwrap();
    // In the first frame: further back there may be frames of an earlier round, which are nothing.
    bytes[200..264].fill(0x5a);
    fs::write(&wal, &bytes).unwrap();
    let recovery = recovered(folder.path());
    assert!(recovery.message.contains("the end of its log"), "{}", recovery.message);
    let aside = PathBuf::from(format!("{}-wal", recovery.aside[0].display()));
    assert_eq!(fs::read(aside).unwrap(), bytes);
    let store = daemon(folder.path());
    assert!(block_on(uncertain_until(&store)).unwrap().is_some());
}

/// A process that dies after the new file is complete, and before it has its name.
#[test]
fn a_recovery_that_was_not_finished_is_finished_by_whoever_comes_next() {
    let folder = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("ledger.db"), "damaged".repeat(1_000)).unwrap();
    recovered(other.path());
    fs::write(folder.path().join("ledger.db"), "damaged".repeat(1_000)).unwrap();
    fs::write(folder.path().join("ledger.db-wal"), "its log").unwrap();
    fs::copy(other.path().join("ledger.db"), folder.path().join("ledger.db.recovered")).unwrap();
    // A death in the middle of writing leaves this; it is begun again.
    fs::write(folder.path().join("ledger.db.recovering"), "half").unwrap();
    let store = daemon(folder.path());
    assert!(block_on(uncertain_until(&store)).unwrap().is_some());
    let set_aside = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let set_aside: Vec<_> =
        set_aside.filter(|path| path.to_str().unwrap().contains("damaged-")).collect();
    assert_eq!(set_aside.len(), 2, "{set_aside:?}");
    let texts: BTreeSet<_> = set_aside.iter().map(|it| fs::read_to_string(it).unwrap()).collect();
    assert_eq!(texts, BTreeSet::from(["damaged".repeat(1_000), "its log".to_owned()]));
}

#[test]
fn what_was_lost_is_mended_so_that_nothing_runs_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let store = daemon(folder.path());
    let right = writer(&store);
    commit(&store, declared(right, 1, nominal(100))).unwrap().unwrap();
    for number in [1, 21, 41, 61] {
        commit(&store, ran(right, number)).unwrap().unwrap();
    }
    let mut waiting = crate::cast::slot(81);
    waiting.opened_by = "scheduler".into();
    let key = Key::Slot(schedule(), nominal(81));
    let change = put(key.clone(), Record::Slot(waiting.into()));
    let group = Group { pipeline: pipeline(1), writer: right, changes: vec![change] };
    commit(&store, group).unwrap().unwrap();
    drop(store);
    let db = Connection::open(&path).unwrap();
    // As if the pages of a slot, of the watermark and of the version were gone, and one that says nothing of them.
    db.execute("DELETE FROM slots WHERE nominal = ?1", [nominal(21).as_microsecond()]).unwrap();
    db.execute_batch("DELETE FROM watermarks; DELETE FROM versions;").unwrap();
    db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE);").unwrap();
    let root: i64 = db
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'spans'", [], |row| row.get(0))
        .unwrap();
    drop(db);
    let mut bytes = fs::read(&path).unwrap();
    let at = (root as usize - 1) * PAGE;
    bytes[at..at + PAGE].fill(0xff);
    fs::write(&path, bytes).unwrap();
    let recovery = recovered(folder.path());
    assert!(recovery.message.contains("1 page of `spans`"), "{}", recovery.message);
    let store = daemon(folder.path());
    let name = PipelineId::parse("crash-1").unwrap();
    let minutely = ScheduleId::from_static("minutely");
    let keys =
        [Key::Pipeline, Key::Watermark(minutely.clone()), Key::Slot(minutely, nominal(21)), key];
    let mut rows = block_on(store.read(&name, &keys)).unwrap().into_iter();
    let mut next = || rows.next().unwrap().map(|row| row.record);
    let Some(Record::Pipeline(row)) = next() else { panic!() };
    assert_eq!(row.version, version_text(0), "it is declared again");
    let Some(Record::Watermark(watermark)) = next() else { panic!() };
    assert!(watermark.at < nominal(1), "{} is before all that is recorded", watermark.at);
    let Some(Record::Slot(lost)) = next() else { panic!("its run says how it ended") };
    assert_eq!((lost.disposition.as_deref(), lost.marks.recovered), (Some("completed"), true));
    let Some(Record::Slot(_)) = next() else { panic!() };
    let rows = block_on(store.ledger(&LedgerQuery::everything(100))).unwrap().items;
    assert!(rows.iter().all(|row| matches!(&row.entry, LedgerEntry::Slot(_))));
}

#[test]
fn a_damaged_inbox_is_set_aside_and_its_letters_are_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    drop(daemon(folder.path()));
    let reader = crate::cast::reader(folder.path());
    for number in 0..200 {
        let key = format!("letter {number}");
        block_on(reader.post(&pipeline(1), &key, &crate::cast::letter(number))).unwrap();
    }
    drop(reader);
    let path = folder.path().join("inbox.db");
    Connection::open(&path).unwrap().execute_batch("PRAGMA wal_checkpoint(TRUNCATE);").unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - PAGE;
    bytes[last..].fill(0x5a);
    fs::write(&path, &bytes).unwrap();
    let recovery = recovered(folder.path());
    assert_eq!(fs::read(&recovery.aside[0]).unwrap(), bytes);
    assert!(recovery.message.contains("inbox.db was damaged"), "{}", recovery.message);
    let store = daemon(folder.path());
    let entries = block_on(store.inbox(Shard(0), 1_000)).unwrap().items;
    let letters = entries.iter().filter(|entry| entry.key.starts_with("letter")).count();
    assert!((100..200).contains(&letters), "{letters}");
}

/// Whatever the bytes are, reading them ends, and finds nothing that is not there.
#[test]
fn noise_that_looks_like_pages_is_read_without_harm() {
    for seed in 1..=40 {
        let mut next = chance(seed);
        let mut bytes: Vec<u8> = (0..60 * PAGE).map(|_| next(256) as u8).collect();
        for page in 0..60 {
            // The kinds of pages that there are, and few cells: so that what they point to is looked at.
            bytes[page * PAGE] = [0x02, 0x05, 0x0a, 0x0d][next(4)];
            bytes[page * PAGE + 3] = 0;
            bytes[page * PAGE + 4] = next(64) as u8;
            bytes[page * PAGE + 8..page * PAGE + 11].fill(0);
        }
        if seed % 2 == 0 {
            bytes[..16].copy_from_slice(b"SQLite format 3\0");
            bytes[16..18].copy_from_slice(&[0x10, 0x00]);
            bytes[20] = 0;
            bytes[100] = 0x0d;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ledger.db"), &bytes).unwrap();
        fs::write(folder.path().join("ledger.db-wal"), &bytes[..20 * PAGE + 7]).unwrap();
        let recovery = recovered(folder.path());
        assert_eq!(fs::read(&recovery.aside[0]).unwrap(), bytes);
        let store = daemon(folder.path());
        let rows = block_on(store.ledger(&LedgerQuery::everything(10))).unwrap().items;
        assert_eq!(rows, []);
    }
}
