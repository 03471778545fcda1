//! Deleting old output: `retention.logs`.
//!
//! A log is deleted when nothing was written to it for longer than it is kept, and its run is over and its end
//! stored by a daemon. What the journal calls unsettled stays, however old; so does everything while the journal
//! cannot be read. Directories stay too: the runner may be about to write into one.
//!
//! A sweep goes in steps, so that a million files do not hold up anything else (S17).

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, DirEntry, ReadDir},
    io,
    path::{Path, PathBuf},
};

use jiff::Timestamp;

use super::{book::Book, journal, log};

/// One pass over the logs of a runner's directory.
#[derive(Debug)]
pub struct LogSweep {
    /// What was last written to before this is old.
    before: Timestamp,
    kept: BTreeSet<PathBuf>,
    folders: Option<ReadDir>,
    files: Option<ReadDir>,
    swept: Swept,
}

/// What a sweep did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    /// Logs deleted.
    pub deleted: u64,
    /// Their size.
    pub bytes: u64,
    /// Logs that are old, and stay because their run is not settled.
    pub unsettled: u64,
    /// Logs that are old and cannot be deleted, and why the last one cannot.
    pub failed: u64,
    /// The last failure.
    pub failure: Option<String>,
}

/// Whether there is more to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// There is.
    More,
    /// There is not; this is what was done in all.
    Done(Swept),
}

impl LogSweep {
    /// Begins a pass. Runs that start later write to logs that are new.
    pub fn new(dir: &Path, before: Timestamp) -> io::Result<Self> {
        let book = match journal::glance(dir) {
            Ok(book) => Some(book),
            // No runner was ever here, or somebody took its memory away: nothing is known to be over.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let folders = match (&book, fs::read_dir(dir.join("logs"))) {
            (None, _) => None,
            (Some(_), Ok(folders)) => Some(folders),
            (Some(_), Err(error)) if error.kind() == io::ErrorKind::NotFound => None,
            (Some(_), Err(error)) => return Err(error),
        };
        let unsettled = book.iter().flat_map(Book::unsettled);
        let kept = unsettled.map(|entry| {
            let intent = &entry.intent;
            log::log_path(dir, &intent.pipeline, &intent.run_id)
        });
        Ok(Self { before, kept: kept.collect(), folders, files: None, swept: Swept::default() })
    }

    /// Looks at some more files.
    pub fn step(&mut self, looks_max: usize) -> io::Result<Step> {
        for _ in 0..looks_max {
            match self.files.as_mut().and_then(Iterator::next) {
                Some(entry) => self.look(&entry?),
                None => match self.folders.as_mut().and_then(Iterator::next) {
                    Some(folder) => {
                        let folder = folder?;
                        let is_folder = folder.file_type()?.is_dir();
                        self.files = is_folder.then(|| fs::read_dir(folder.path())).transpose()?;
                    }
                    None => return Ok(Step::Done(std::mem::take(&mut self.swept))),
                },
            }
        }
        Ok(Step::More)
    }

    fn look(&mut self, entry: &DirEntry) {
        let path = entry.path();
        // Of the entry itself: a link is none of ours.
        let Ok(found) = entry.metadata() else { return };
        let is_log = found.is_file() && path.extension() == Some(OsStr::new("log"));
        let written = found.modified().ok().and_then(|at| Timestamp::try_from(at).ok());
        if !is_log || written.is_none_or(|at| at >= self.before) {
            return;
        }
        if self.kept.contains(&path) {
            self.swept.unsettled += 1;
            return;
        }
        match fs::remove_file(&path) {
            Ok(()) => {
                self.swept.deleted += 1;
                self.swept.bytes += found.len();
            }
            Err(error) => {
                self.swept.failed += 1;
                self.swept.failure = Some(format!("{}: {error}", path.display()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, time::SystemTime};

    use super::*;
    use crate::runner::{
        book::{Intent, Record},
        journal::Journal,
        protocol::End,
    };

    const OLD: i64 = 1_000_000;
    const BEFORE: i64 = 2_000_000;
    const NEW: i64 = 3_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A log of a run, last written to at a second.
    fn log(dir: &Path, run_id: &str, second: i64) -> PathBuf {
        let path = log::log_path(dir, "orders", run_id);
        drop(log::open(&path).unwrap());
        let file = File::options().append(true).open(&path).unwrap();
        io::Write::write_all(&mut &file, b"output").unwrap();
        file.set_modified(SystemTime::from(at(second))).unwrap();
        path
    }

    /// A journal in which runs came this far.
    fn journal(dir: &Path, running: &[&str], untold: &[&str], settled: &[&str]) {
        let mut journal = Journal::open(dir, at(OLD)).unwrap().journal;
        let mut note = |record: Record| journal.append(&record).unwrap();
        for run_id in running.iter().chain(untold).chain(settled) {
            note(Record::Intent(Intent {
                run_id: (*run_id).to_owned(),
                pipeline: "orders".to_owned(),
                at: at(OLD),
                deadline: None,
                grace_ms: 10,
                log_bytes_max: 10,
            }));
        }
        let end = End::Success { metadata: std::collections::BTreeMap::new() };
        for run_id in untold.iter().chain(settled) {
            note(Record::Ended { run_id: (*run_id).to_owned(), at: at(OLD), end: end.clone() });
        }
        for run_id in settled {
            note(Record::Acknowledged { run_id: (*run_id).to_owned() });
        }
    }

    fn sweep(dir: &Path) -> Swept {
        let mut sweep = LogSweep::new(dir, at(BEFORE)).unwrap();
        loop {
            if let Step::Done(swept) = sweep.step(2).unwrap() {
                return swept;
            }
        }
    }

    #[test]
    fn only_what_is_old_and_settled_is_deleted() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path();
        journal(dir, &["runs"], &["untold"], &["settled", "fresh"]);
        let stays = [log(dir, "runs", OLD), log(dir, "untold", OLD), log(dir, "fresh", NEW)];
        let goes = [log(dir, "settled", OLD), log(dir, "long-forgotten", OLD)];
        let foreign = dir.join("logs/orders/notes.txt");
        fs::write(&foreign, "mine").unwrap();
        File::options().append(true).open(&foreign).unwrap().set_modified(at(OLD).into()).unwrap();
        let swept = sweep(dir);
        assert_eq!((swept.deleted, swept.bytes, swept.unsettled, swept.failed), (2, 12, 2, 0));
        for path in stays.iter().chain([&foreign]) {
            assert!(path.exists(), "{} is gone", path.display());
        }
        for path in goes {
            assert!(!path.exists(), "{} is still there", path.display());
        }
        assert_eq!(sweep(dir).deleted, 0);
    }

    #[test]
    fn a_step_looks_at_no_more_than_it_may() {
        let home = tempfile::tempdir().unwrap();
        journal(home.path(), &[], &[], &[]);
        for number in 0..10 {
            log(home.path(), &format!("run-{number}"), OLD);
        }
        let mut sweep = LogSweep::new(home.path(), at(BEFORE)).unwrap();
        // One look for the directory, three for files.
        assert_eq!(sweep.step(4).unwrap(), Step::More);
        assert_eq!(fs::read_dir(home.path().join("logs/orders")).unwrap().count(), 7);
    }

    #[test]
    fn while_the_journal_cannot_be_read_nothing_is_deleted() {
        let home = tempfile::tempdir().unwrap();
        let path = log(home.path(), "a", OLD);
        assert_eq!(sweep(home.path()), Swept::default(), "there is none");
        journal(home.path(), &[], &[], &["a"]);
        fs::write(journal::path(home.path()), "\0\0\n").unwrap();
        let error = LogSweep::new(home.path(), at(BEFORE)).unwrap_err();
        assert_eq!(error.to_string(), "the runner's journal is damaged");
        assert!(path.exists());
    }
}
