//! Copying the log to the main file, beside the thread that writes.
//!
//! SQLite would do so by itself, within the commit that finds the log too long: whoever waits for that commit, and all
//! behind it, would wait for the copy too, and nobody would hear that the disk failed. So a thread of its own copies
//! what there is while the writer goes on, and then the writer copies the little that came meanwhile, between two
//! transactions: only a log without anything left to copy begins anew instead of growing.
//!
//! To flush what makes a file longer costs twice what it costs to flush what stands in its place: the file system has
//! to write its own log too (measured on ext4: 0.35 to 0.49 ms for 48 KiB, and 0.17 to 0.24). So once there is work,
//! the log is made as long as it will get.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
};

use interlock_store::StoreError;
use rusqlite::{Connection, ErrorCode};

use crate::failure::{Failure, Health};

/// How many pages of the log wait before they are copied.
const PAGES_MAX: i64 = 4_000;
/// With so many the writer waits and copies them itself: the log must not outgrow the disk.
const PAGES_TOO_MANY: i64 = 8 * PAGES_MAX;

/// So many show that there is work.
const PAGES_OF_WORK: i64 = 64;
/// As long as the log gets when it is copied in time; a page there has a header of 24 bytes.
const ROOM: u64 = PAGES_MAX.unsigned_abs() * (4_096 + 24);
/// What must be free on the disk so that room is taken in advance.
const FREE_MIN: u64 = 64 * ROOM;

/// Who keeps the log short.
#[derive(Debug)]
pub(crate) struct LogKeeper {
    health: Health,
    copying: Copying,
    has_room: bool,
    /// Dropped, the thread ends.
    wake: Option<Sender<()>>,
    is_done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copying {
    NotAsked,
    Asked,
}

impl LogKeeper {
    /// Starts the thread on a connection of its own.
    pub(crate) fn start(db: Connection, health: Health) -> Result<Self, StoreError> {
        let (wake, woken) = channel();
        let is_done = Arc::new(AtomicBool::new(false));
        let (done, sick) = (Arc::clone(&is_done), health.clone());
        let thread = std::thread::Builder::new()
            .name("ledger-log".to_owned())
            .spawn(move || copy_when_woken(&db, &woken, &done, &sick))
            .map_err(|error| StoreError::retryable(format!("no thread could start: {error}")))?;
        let (wake, thread) = (Some(wake), Some(thread));
        Ok(Self { health, copying: Copying::NotAsked, has_room: false, wake, is_done, thread })
    }

    /// Called by the writer between two transactions.
    pub(crate) fn tend(&mut self, db: &Connection) {
        let outcome = pages(db, "PRAGMA wal_checkpoint(NOOP)").and_then(|waiting| {
            if waiting >= PAGES_OF_WORK && !self.has_room {
                self.has_room = true;
                // Without room in advance it grows as it is written.
                drop(make_room(db));
            }
            let is_copied = self.is_done.swap(false, Ordering::Acquire);
            if is_copied || waiting >= PAGES_TOO_MANY {
                self.copying = Copying::NotAsked;
                return pages(db, "PRAGMA wal_checkpoint(PASSIVE)");
            }
            if waiting >= PAGES_MAX && self.copying == Copying::NotAsked {
                self.copying = Copying::Asked;
                // A thread that is gone has printed why; then the writer copies, when there are too many.
                let _ = self.wake.as_ref().map(|wake| wake.send(()));
            }
            Ok(0)
        });
        diagnose(&self.health, outcome);
    }

    /// Waits until nothing is copied any more.
    pub(crate) fn stop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            drop(thread.join());
        }
    }
}

impl Drop for LogKeeper {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Makes the log as long as it will get, with zeros: no reader takes them for a page, because their checksum is wrong.
/// Only the one thread that writes the log may do so, between two transactions.
fn make_room(db: &Connection) -> io::Result<()> {
    let Some(path) = db.path().map(|path| PathBuf::from(format!("{path}-wal"))) else {
        return Ok(());
    };
    let mut log = OpenOptions::new().append(true).open(&path)?;
    let (length, disk) = (log.metadata()?.len(), rustix::fs::fstatvfs(&log)?);
    if length >= ROOM || disk.f_bavail.saturating_mul(disk.f_frsize) < FREE_MIN {
        return Ok(());
    }
    let zeros = vec![0; 1 << 18];
    let mut missing = usize::try_from(ROOM - length).unwrap_or(0);
    let mut filled = Ok(());
    while missing > 0 && filled.is_ok() {
        let part = zeros.get(..missing).unwrap_or(&zeros);
        filled = log.write_all(part);
        missing -= part.len();
    }
    match filled.and_then(|()| log.sync_data()) {
        Ok(()) => Ok(()),
        Err(error) => {
            log.set_len(length)?;
            Err(error)
        }
    }
}

fn copy_when_woken(db: &Connection, woken: &Receiver<()>, is_done: &AtomicBool, health: &Health) {
    while woken.recv().is_ok() {
        diagnose(health, pages(db, "PRAGMA wal_checkpoint(PASSIVE)"));
        is_done.store(true, Ordering::Release);
    }
}

/// The log keeps what does not fit, or what another process is in the way of; everything else is a matter of health.
fn diagnose(health: &Health, outcome: Result<i64, rusqlite::Error>) {
    if let Err(error) = outcome
        && !matches!(
            error.sqlite_error_code(),
            Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
        )
    {
        drop(health.diagnose(Failure::Sql(error)));
    }
}

/// How many pages of the log are not in the main file, after a checkpoint of some kind.
fn pages(db: &Connection, pragma: &str) -> Result<i64, rusqlite::Error> {
    let pages = |row: &rusqlite::Row<'_>| Ok(row.get::<_, i64>(1)? - row.get::<_, i64>(2)?);
    db.prepare_cached(pragma)?.query_one([], pages)
}
