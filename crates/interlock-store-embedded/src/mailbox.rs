//! `inbox.db`: where other processes leave reports and requests for the daemon.
//!
//! It is a file of its own, so that a process that is stopped in the middle of a write holds no lock that
//! the ledger needs. The daemon takes letters over into the ledger and deletes them here when it can.
//! Whatever is in the way, it never waits longer than [`DAEMON_PATIENCE`]: what cannot be read or deleted
//! now is read or deleted the next time. How far it came stands in the ledger, by the file's epoch, in the
//! same transaction as the letters; so nothing is taken over twice, even if the deletion never succeeds. How letters
//! get here is in [`leave`](mod@super::leave).
//!
//! The daemon looks ten times a second, and nearly always for nothing. So it remembers what the file looked like
//! when there was nothing in it, and asks SQLite again when it looks different.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use interlock_core::id::PipelineId;
use interlock_store::StoreError;
use rusqlite::{Connection, ErrorCode, OpenFlags, params};

use crate::{
    failure::{Failure, Trouble},
    queue::{self, Letter},
    read::timestamp,
    writer::Writer,
};

/// How long the daemon waits for others. They never hold the file for long, unless they are stopped.
const DAEMON_PATIENCE: Duration = Duration::from_millis(50);
/// How long others wait for each other.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits before it tries again.
const PAUSE: Duration = Duration::from_millis(5);
/// How many letters are taken over at once.
const LETTERS_MAX: i64 = 2_000;
/// How often a file without letters must look the same before its looks are believed: its times are no finer than
/// the kernel's ticks, and one look may fall into the tick of a letter.
const LOOKS_MIN: u32 = 10;
/// Out of how many looks one asks SQLite whatever the file looks like.
const LOOKS_MAX: u32 = 50;
/// The format of the file.
pub(crate) const VERSION: i64 = 1;

/// Letters of one file, with their numbers.
#[derive(Debug)]
struct Letters {
    epoch: String,
    new: Vec<(i64, Letter)>,
    /// Whether some are still here that were taken over before.
    has_old: bool,
}

/// The file, as the daemon sees it.
#[derive(Debug)]
pub(crate) struct Mailbox {
    path: PathBuf,
    open: Mutex<Option<(FileId, Connection)>>,
    empty: Mutex<Emptiness>,
}

/// What the file looked like when nothing was in it, and how often it has looked so since.
#[derive(Debug, Default)]
struct Emptiness {
    looks: Option<Looks>,
    seen: u32,
}

impl Mailbox {
    /// The mailbox of a folder; the file is made by the first who leaves a letter.
    pub(crate) fn new(folder: &Path) -> Self {
        Self { path: folder.join("inbox.db"), open: Mutex::default(), empty: Mutex::default() }
    }

    /// Whether the file looks as it did when nothing was in it: then there is nothing to take over. Waits for nobody.
    pub(crate) fn looks_empty(&self) -> bool {
        let looks = Looks::of(&self.path);
        let mut empty = self.emptiness();
        if empty.looks.as_ref() != Some(&looks) {
            return false;
        }
        empty.seen += 1;
        (LOOKS_MIN..LOOKS_MAX).contains(&empty.seen)
    }

    fn emptiness(&self) -> MutexGuard<'_, Emptiness> {
        self.empty.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what the file looked like before it was read, and nothing was in it.
    fn found_empty(&self, looks: Looks) {
        let mut empty = self.emptiness();
        if empty.looks.as_ref() != Some(&looks) {
            *empty = Emptiness { looks: Some(looks), seen: 0 };
        } else if empty.seen >= LOOKS_MAX {
            empty.seen = LOOKS_MIN;
        }
    }

    /// Takes new letters over into the ledger, as far as nobody is in the way.
    pub(crate) fn take_over(&self, ledger: &Connection, writer: &Writer) -> Result<(), Failure> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match self.carry(&mut open, ledger, writer) {
            Err(Failure::Sql(error)) if is_in_the_way(&error) => Ok(()),
            Err(Failure::Sql(error)) => {
                // Said of this file, not of the ledger, and without harm to the ledger.
                *open = None;
                Err(Failure::Said(Trouble::of(Failure::Sql(error), &self.path).error()))
            }
            outcome => outcome,
        }
    }

    fn carry(
        &self,
        open: &mut Option<(FileId, Connection)>,
        ledger: &Connection,
        writer: &Writer,
    ) -> Result<(), Failure> {
        let looks = Looks::of(&self.path);
        let Some(id) = looks.id() else {
            self.found_empty(looks);
            return Ok(());
        };
        if open.as_ref().is_none_or(|(known, _)| *known != id) {
            *open = Some((id, open_existing(&self.path)?));
        }
        let Some((_, db)) = open else { return Ok(()) };
        let Some(letters) = collect(db, ledger)? else { return Ok(()) };
        let Letters { epoch, new, has_old } = letters;
        if new.is_empty() && !has_old {
            self.found_empty(looks);
            return Ok(());
        }
        if !new.is_empty() {
            let epoch = epoch.clone();
            let taken = writer.submit(new.len(), move |ledger| queue::import(ledger, &epoch, &new));
            taken.wait().map_err(Failure::Said)?;
        }
        // What was just taken over is deleted the next time, when this connection sees the number.
        if has_old {
            let done = queue::imported(ledger, &epoch)?;
            db.prepare_cached("DELETE FROM letters WHERE number <= ?1")?.execute([done])?;
        }
        Ok(())
    }
}

/// Whether others, or the lack of room for a deletion, keep us from the file for now.
fn is_in_the_way(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::DiskFull)
    )
}

/// What tells a file from another that took its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId(u64, u64);

/// What can be seen of the file and its log without opening them. A letter changes it.
#[derive(Debug, PartialEq, Eq)]
struct Looks([Option<(FileId, u64, i64, i64)>; 2]);

impl Looks {
    fn of(path: &Path) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        let look = |path: &Path| {
            let metadata = std::fs::metadata(path).ok()?;
            let id = FileId(metadata.dev(), metadata.ino());
            Some((id, metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
        };
        Self([look(path), look(&path.with_extension("db-wal"))])
    }

    /// Which file it is, if there is one.
    fn id(&self) -> Option<FileId> {
        let [file, _] = &self.0;
        file.as_ref().map(|(id, ..)| *id)
    }
}

pub(crate) fn open_existing(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(DAEMON_PATIENCE)?;
    db.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA synchronous = FULL;")?;
    Ok(db)
}

/// The letters that the ledger does not have; nothing while the file is being made.
fn collect(db: &Connection, ledger: &Connection) -> Result<Option<Letters>, Failure> {
    let version: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version == 0 {
        return Ok(None);
    }
    if version > VERSION {
        let message = "inbox.db was made by a newer Interlock: upgrade the daemon too";
        return Err(Failure::Said(StoreError::permanent(message)));
    }
    let epoch: String =
        db.prepare_cached("SELECT epoch FROM about")?.query_one([], |row| row.get(0))?;
    let done = queue::imported(ledger, &epoch)?;
    let mut statement = db.prepare_cached(
        "SELECT number, pipeline, key, received_at, body FROM letters
         WHERE number > ?1 ORDER BY number LIMIT ?2",
    )?;
    let mut rows = statement.query(params![done, LETTERS_MAX])?;
    let mut new = Vec::new();
    while let Some(row) = rows.next()? {
        let letter = Letter {
            pipeline: PipelineId::any(&row.get::<_, String>(1)?)?,
            key: row.get(2)?,
            received_at: timestamp(row.get(3)?)?,
            body: row.get(4)?,
        };
        new.push((row.get(0)?, letter));
    }
    let mut old = db.prepare_cached("SELECT EXISTS (SELECT 1 FROM letters WHERE number <= ?1)")?;
    let has_old = old.query_one([done], |row| row.get(0))?;
    Ok(Some(Letters { epoch, new, has_old }))
}

/// Letters that lie in the file and are not yet in the ledger, as another process sees them.
pub(crate) fn waiting(folder: &Path, ledger: &Connection) -> Result<Vec<Letter>, Failure> {
    let path = folder.join("inbox.db");
    if !path.exists() {
        return Ok(vec![]);
    }
    let letters = patiently(PATIENCE, || open_existing(&path))
        .map_err(Failure::from)
        .and_then(|db| collect(&db, ledger));
    match letters {
        Ok(letters) => Ok(letters
            .map_or(vec![], |letters| letters.new.into_iter().map(|(_, letter)| letter).collect())),
        Err(Failure::Sql(error)) => {
            Err(Failure::Said(Trouble::of(Failure::Sql(error), &path).error()))
        }
        Err(failure) => Err(failure),
    }
}

/// Tries again while others are in the way. The engine waits by itself, except while two make the file at the
/// same moment: to turn the log on it wants to be alone, and says at once that it is not.
pub(crate) fn patiently<T>(
    patience: Duration,
    work: impl Fn() -> Result<T, rusqlite::Error>,
) -> Result<T, rusqlite::Error> {
    let mut waited = Duration::ZERO;
    loop {
        match work() {
            Err(error) if is_busy(&error) && waited < patience => {
                thread::sleep(PAUSE);
                waited += PAUSE;
            }
            done => return done,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
