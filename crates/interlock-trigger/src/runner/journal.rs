//! The journal on disk: what survives the runner.
//!
//! Append-only lines, written with one `write` each and not synced. What is in the page cache
//! survives the death of every process; what loses the page cache (power, kernel) ends the jobs
//! too, and is recognised by the host's boot id: nothing that was under way then is told as
//! anything but lost, and no run from before it is ever called "never started" (ADR 5).
//!
//! Invariant: an unknown run id means "never started" only for runs that were triggered at or after
//! [`Journal::since`]. A journal that is new, damaged or from another boot moves that instant.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use jiff::Timestamp;

use super::{
    book::{Book, Record},
    host,
};

const VERSION: u32 = 1;

/// Below this size nothing is gained by writing it anew.
const COMPACT_BYTES_MIN: u64 = 4 * 1024 * 1024;

/// The open journal of one runner.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// Its size when it was last written anew.
    compacted_bytes: u64,
    since: Timestamp,
    buffer: Vec<u8>,
}

/// A journal as it was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) journal: Journal,
    pub(crate) book: Book,
    pub(crate) boot: Boot,
}

/// Whether a journal speaks of processes that can still be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Boot {
    /// The host has not been restarted since.
    Same,
    /// It has.
    Other,
}

/// Where it is.
pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join("journal")
}

/// Reads the journal of a runner that may be writing to it: what is in it was so a moment ago. A damaged one is an
/// error, for whoever asks wants to know about every run.
pub(crate) fn glance(dir: &Path) -> io::Result<Book> {
    let read = read(&fs::read(path(dir))?);
    if read.is_damaged {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the runner's journal is damaged"));
    }
    Ok(read.book)
}

/// Begins a journal where there is none; says whether there was one.
pub(crate) fn establish(dir: &Path, now: Timestamp) -> io::Result<bool> {
    let opened = Record::Opened { version: VERSION, since: now, boot: host::boot_id() };
    match options().create_new(true).open(path(dir)) {
        Ok(mut file) => file.write_all(&line(&opened)).map(|()| false),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(true),
        Err(error) => Err(error),
    }
}

impl Journal {
    /// Reads a journal, sets a damaged one aside, and writes it anew.
    ///
    /// The caller holds the directory's lock.
    pub(crate) fn open(dir: &Path, now: Timestamp) -> io::Result<Found> {
        let path = path(dir);
        let mut text = Vec::new();
        match File::open(&path) {
            Ok(mut file) => file.read_to_end(&mut text).map(|_| ())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let read = read(&text);
        let boot = match &read.boot {
            Some(found) if *found != host::boot_id() => Boot::Other,
            Some(_) | None => Boot::Same,
        };
        let since = match (read.since.filter(|_| !read.is_damaged), boot) {
            (Some(since), Boot::Same) => since,
            (Some(since), Boot::Other) => since.max(host::booted_at(now)),
            (None, _) => now,
        };
        if read.is_damaged {
            fs::copy(&path, dir.join(format!("journal.damaged-{}", now.as_second())))?;
        }
        let journal = Self::rewrite(path, since, &read.book)?;
        Ok(Found { journal, book: read.book, boot })
    }

    /// Since when every run that was started is known.
    pub(crate) fn since(&self) -> Timestamp {
        self.since
    }

    /// Adds a record. After an error it is not in the journal.
    pub(crate) fn append(&mut self, record: &Record) -> io::Result<()> {
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, record)?;
        self.buffer.push(b'\n');
        if let Err(error) = self.file.write_all(&self.buffer) {
            // Half a line would spoil the next one; if it stays, the journal is damaged and known
            // to be.
            let _stays = self.file.set_len(self.bytes);
            return Err(error);
        }
        self.bytes += self.buffer.len() as u64;
        Ok(())
    }

    /// Writes it anew when most of it is history.
    pub(crate) fn compact(&mut self, book: &Book) -> io::Result<()> {
        if self.bytes < COMPACT_BYTES_MIN.max(2 * self.compacted_bytes) {
            return Ok(());
        }
        *self = Self::rewrite(self.path.clone(), self.since, book)?;
        Ok(())
    }

    fn rewrite(path: PathBuf, since: Timestamp, book: &Book) -> io::Result<Self> {
        let beside = path.with_extension("new");
        let mut text = line(&Record::Opened { version: VERSION, since, boot: host::boot_id() });
        for record in book.records() {
            text.extend(line(&record));
        }
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = options().create_new(true).open(&beside)?;
        file.write_all(&text)?;
        fs::rename(&beside, &path)?;
        let bytes = text.len() as u64;
        Ok(Self { path, file, bytes, compacted_bytes: bytes, since, buffer: Vec::new() })
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true).mode(0o600);
    options
}

fn line(record: &Record) -> Vec<u8> {
    // A record is made of strings and numbers; there is nothing in it that JSON cannot say.
    let mut line = serde_json::to_vec(record).unwrap_or_default();
    line.push(b'\n');
    line
}

#[derive(Debug, Default)]
struct ReadBack {
    book: Book,
    since: Option<Timestamp>,
    boot: Option<String>,
    is_damaged: bool,
}

/// Reads as much as can be read. A last line without its end was never completed and is left out;
/// any other line that cannot be read is damage.
fn read(text: &[u8]) -> ReadBack {
    let mut read = ReadBack::default();
    let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    for line in text.get(..complete).unwrap_or_default().split(|byte| *byte == b'\n') {
        if line.is_empty() {
            continue;
        }
        match serde_json::from_slice(line) {
            Ok(Record::Opened { version: VERSION, since, boot }) => {
                read.since = Some(since);
                read.boot = Some(boot);
            }
            Ok(Record::Opened { .. }) | Err(_) => read.is_damaged = true,
            Ok(record) => read.book.apply(record),
        }
    }
    read.is_damaged |= read.since.is_none() && !text.is_empty();
    read
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::book::Intent;

    fn intent(run_id: &str) -> Record {
        Record::Intent(Intent {
            run_id: run_id.to_owned(),
            pipeline: "orders".to_owned(),
            at: Timestamp::UNIX_EPOCH,
            deadline: None,
            grace_ms: 10,
            log_bytes_max: 10,
        })
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn what_was_appended_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!establish(dir.path(), at(100)).unwrap());
        assert!(establish(dir.path(), at(200)).unwrap());
        let mut found = Journal::open(dir.path(), at(300)).unwrap();
        found.journal.append(&intent("a")).unwrap();
        let found = Journal::open(dir.path(), at(400)).unwrap();
        assert_eq!(found.journal.since(), at(100));
        assert!(found.book.get("a").is_some());
        assert_eq!(found.boot, Boot::Same);
    }

    #[test]
    fn an_unfinished_last_line_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        establish(dir.path(), at(100)).unwrap();
        let mut text = fs::read(path(dir.path())).unwrap();
        text.extend(line(&intent("a")));
        text.extend(b"{\"intent\":{\"run_");
        fs::write(path(dir.path()), text).unwrap();
        let found = Journal::open(dir.path(), at(300)).unwrap();
        assert!(found.book.get("a").is_some());
        assert_eq!(found.journal.since(), at(100));
    }

    #[test]
    fn s18_a_damaged_journal_knows_nothing_about_the_time_before() {
        let dir = tempfile::tempdir().unwrap();
        establish(dir.path(), at(100)).unwrap();
        let mut text = fs::read(path(dir.path())).unwrap();
        text.extend(b"\0\0\0\0\n");
        text.extend(line(&intent("a")));
        fs::write(path(dir.path()), text).unwrap();
        let found = Journal::open(dir.path(), at(300)).unwrap();
        assert!(found.book.get("a").is_some(), "what can be read is kept");
        assert_eq!(found.journal.since(), at(300));
        assert!(dir.path().join("journal.damaged-300").exists());
    }

    #[test]
    fn s18_a_journal_of_another_boot_knows_nothing_about_the_time_before_this_one() {
        let dir = tempfile::tempdir().unwrap();
        let record =
            Record::Opened { version: VERSION, since: at(100), boot: "another".to_owned() };
        fs::write(path(dir.path()), line(&record)).unwrap();
        let now = crate::runner::time::wall();
        let found = Journal::open(dir.path(), now).unwrap();
        assert_eq!(found.boot, Boot::Other);
        assert!(found.journal.since() > at(100) && found.journal.since() <= now);
    }

    #[test]
    fn a_lost_journal_begins_again_with_its_own_time() {
        let dir = tempfile::tempdir().unwrap();
        let found = Journal::open(dir.path(), at(300)).unwrap();
        assert_eq!(found.journal.since(), at(300));
    }

    #[test]
    fn a_record_that_does_not_fit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut found = Journal::open(dir.path(), at(300)).unwrap();
        found.journal.file = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let error = found.journal.append(&intent("a")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(Journal::open(dir.path(), at(400)).unwrap().book.get("a").is_none());
    }

    #[test]
    fn a_long_history_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let mut found = Journal::open(dir.path(), at(300)).unwrap();
        while found.journal.bytes < COMPACT_BYTES_MIN {
            found.journal.append(&intent("a")).unwrap();
        }
        found.book.apply(intent("a"));
        found.journal.compact(&found.book).unwrap();
        assert!(fs::metadata(path(dir.path())).unwrap().len() < 1000);
        found.journal.append(&intent("b")).unwrap();
        let found = Journal::open(dir.path(), at(400)).unwrap();
        assert!(found.book.get("a").is_some() && found.book.get("b").is_some());
    }
}
