//! Leaving letters in `inbox.db`, by whoever does not write the ledger.
//!
//! Durable when it returns, in one write to the disk, without the ledger. The mailbox in [`super::mailbox`] takes them over.

use std::{path::Path, time::Duration};

use interlock_core::id::PipelineId;
use interlock_store::{StoreError, record::InboxRecord, whole_milliseconds};
use jiff::Timestamp;
use rusqlite::{
    Connection, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior,
    config::DbConfig, params,
};

use crate::{
    failure::{Failure, Trouble},
    file::create_database,
    mailbox::{PATIENCE, VERSION, open_existing, patiently},
    queue::Letter,
};

const SCHEMA: &str = "
    CREATE TABLE about (epoch TEXT NOT NULL) STRICT;
    CREATE TABLE letters (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        pipeline TEXT NOT NULL,
        key TEXT NOT NULL,
        received_at INTEGER NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (pipeline, key)
    ) STRICT;";

const LEAVE: &str =
    "INSERT OR IGNORE INTO letters (pipeline, key, received_at, body) VALUES (?1, ?2, ?3, ?4)";

/// An entry for the inbox: whose, under which key, and what it says.
pub type Entry = (PipelineId, String, InboxRecord);

/// Leaves entries in the inbox of a folder without opening its ledger, all in one write to the disk: for a process
/// that others wait for. Durable when it returns; others in the way are waited for so long. Whether a key was applied
/// before is found out by whoever takes them over.
pub fn leave(
    folder: &Path,
    entries: &[Entry],
    (now, patience): (Timestamp, Duration),
) -> Result<(), StoreError> {
    leave_all(folder, &letters(entries, now), patience)
}

/// An inbox that is open, with all done that can be done before there is something to leave in it: half of the time that
/// [`leave`] takes.
#[derive(Debug)]
pub struct OpenInbox(Connection);

impl OpenInbox {
    /// Opens the inbox of a folder, if it is there and nobody is in the way; waits for nobody.
    pub fn of(folder: &Path) -> Option<Self> {
        let db = open_existing(&folder.join("inbox.db")).ok()?;
        db.busy_timeout(Duration::ZERO).ok()?;
        keep_log(&db).ok()?;
        // Reads the schema, and with it the beginning of the log.
        db.prepare_cached(LEAVE).ok()?;
        Some(Self(db))
    }

    /// Leaves entries as [`leave`] does. Answers whether they are left; if not, nothing is said against trying it so.
    pub fn leave(mut self, entries: &[Entry], (now, patience): (Timestamp, Duration)) -> bool {
        self.0.busy_timeout(patience).is_ok() && write(&mut self.0, &letters(entries, now)).is_ok()
    }
}

fn letters(entries: &[Entry], now: Timestamp) -> Vec<Letter> {
    let letter = |(pipeline, key, record): &Entry| Letter {
        pipeline: pipeline.clone(),
        key: key.clone(),
        received_at: whole_milliseconds(now),
        body: record.encode(),
    };
    entries.iter().map(letter).collect()
}

/// Leaves one letter.
pub(crate) fn leave_one(folder: &Path, letter: &Letter) -> Result<(), StoreError> {
    leave_all(folder, std::slice::from_ref(letter), PATIENCE)
}

fn leave_all(folder: &Path, letters: &[Letter], patience: Duration) -> Result<(), StoreError> {
    let path = folder.join("inbox.db");
    patiently(patience, || write(&mut open_or_make(&path, patience)?, letters))
        .map_err(|error| Trouble::of(Failure::Sql(error), &path).error())
}

fn open_or_make(path: &Path, patience: Duration) -> Result<Connection, rusqlite::Error> {
    create_database(path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let db = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(patience)?;
    db.execute_batch(
        "PRAGMA trusted_schema = OFF; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;",
    )?;
    keep_log(&db)?;
    Ok(db)
}

/// Leaves the log where it is when the last connection closes, which is this one if nobody serves. Else the letter would be
/// copied and the log deleted, to be made again for the next.
fn keep_log(db: &Connection) -> Result<(), rusqlite::Error> {
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map(|_is_on| ())
}

fn write(db: &mut Connection, letters: &[Letter]) -> Result<(), rusqlite::Error> {
    let transaction = Transaction::new(db, TransactionBehavior::Immediate)?;
    let made = transaction.query_row("SELECT 1 FROM sqlite_schema", [], |_| Ok(())).optional()?;
    if made.is_none() {
        transaction.execute_batch(SCHEMA)?;
        transaction.execute("INSERT INTO about VALUES (hex(randomblob(16)))", [])?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    for letter in letters {
        let at = letter.received_at.as_microsecond();
        let values = params![letter.pipeline.as_str(), letter.key, at, letter.body];
        transaction.prepare_cached(LEAVE)?.execute(values)?;
    }
    transaction.commit()
}
