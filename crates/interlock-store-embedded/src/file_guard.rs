//! Whether the ledger's files are still where they were opened.
//!
//! A folder that is moved, deleted or replaced under a running process leaves it with files that no path leads to. What
//! it acknowledges then is lost, and a second process finds the place empty, takes a lock of its own and starts the same
//! slots again (S2, S6). So the device and inode of ledger and lock are compared with those that were opened: before
//! each transaction, because nothing may be acknowledged that is written beside the ledger, and twice a second, because a process
//! without work must notice it too. After a difference the store has stopped ([`Health`]).

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread::{Builder, JoinHandle},
    time::Duration,
};

use interlock_store::StoreError;

use crate::{failure::Health, file, lock::DaemonLock};

/// How often a store without work looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The files of a ledger, as they were when it was opened.
#[derive(Debug)]
pub(crate) struct FileGuard {
    files: [OpenedFile; 2],
}

/// A path, and the file to which it led.
#[derive(Debug)]
struct OpenedFile {
    path: PathBuf,
    identity: FileIdentity,
}

/// What tells a file from every other one of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

impl FileGuard {
    /// Remembers the files of a folder. The ledger is open and the lock is held, so that no other process of ours replaces them meanwhile.
    pub(crate) fn of(folder: &Path, lock: &DaemonLock) -> io::Result<Self> {
        let ledger = file::ledger_path(folder);
        let ledger_identity = FileIdentity::of(&fs::metadata(&ledger)?);
        let lock_identity = FileIdentity::of(&lock.metadata()?);
        Ok(Self {
            files: [
                OpenedFile { path: ledger, identity: ledger_identity },
                OpenedFile { path: DaemonLock::path(folder), identity: lock_identity },
            ],
        })
    }

    /// Says what happened if a path leads to another file now, or to none.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.files.iter().try_for_each(OpenedFile::check)
    }
}

impl OpenedFile {
    fn check(&self) -> Result<(), String> {
        let what = match fs::metadata(&self.path) {
            Ok(metadata) if FileIdentity::of(&metadata) == self.identity => return Ok(()),
            Ok(_) => "was replaced by another file",
            Err(error) if is_absence(&error) => "was moved or deleted",
            // What else is wrong with the path, the next read or write says.
            Err(_) => return Ok(()),
        };
        Err(format!(
            "{} {what} while this process used it: what would be recorded now would be lost. Put it back or restore a backup, then \
             start `interlock serve` again",
            self.path.display()
        ))
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The thread that looks while there is no work. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct FileWatch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FileWatch {
    /// Begins to look.
    pub(crate) fn start(guard: Arc<FileGuard>, health: Health) -> Result<Self, StoreError> {
        let (stop, stopped) = channel();
        let thread = Builder::new()
            .name("ledger-place".to_owned())
            .spawn(move || {
                while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                    if let Err(what) = guard.check() {
                        health.stop(what);
                        return;
                    }
                }
            })
            .map_err(|error| StoreError::retryable(format!("no thread could start: {error}")))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            drop(thread.join());
        }
    }
}
