//! Who writes the ledger: `interlock serve`, else a command for as long as it needs to.

use std::{
    fs::{self, OpenOptions, TryLockError},
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

use interlock_store_embedded::EmbeddedStore;

use crate::{clock, exit::Failure};

/// Who holds the lease. The store's own lock keeps a second process out, so whoever gets that far is the one
/// holder: a restart after a crash need not wait for the dead one's lease to run out.
pub(crate) const HOLDER: &str = "daemon";

/// What the lock calls a daemon.
pub(crate) const SERVE: &str = "interlock serve";

/// How long `serve` waits for a command to have finished.
pub(crate) const SERVE_WAITS: Duration = Duration::from_secs(5);

/// How often the lock is tried.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Who writes the ledger of a folder now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Writing {
    /// Nobody: a command may.
    Nobody,
    /// A daemon, which applies whatever is in the inbox.
    Serve,
    /// A command, which looks after one pipeline only.
    Command(String),
}

/// Who writes the ledger of a folder.
///
/// Where the system lists its locks they are only looked at: to try the lock, even for an instant, could
/// make somebody who starts just then wait.
pub(crate) fn writing(folder: &Path) -> Writing {
    let path = folder.join("daemon.lock");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let mut lines = text.lines();
    let (pid, what) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let is_held = match fs::read_to_string("/proc/locks") {
        Ok(locks) => is_listed(&locks, &path, pid),
        Err(_) => is_locked(&path),
    };
    match what {
        _ if !is_held => Writing::Nobody,
        "" | SERVE => Writing::Serve,
        command => Writing::Command(format!("`{command}` (process {pid})")),
    }
}

fn is_locked(path: &Path) -> bool {
    let Ok(file) = OpenOptions::new().read(true).open(path) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Whether a file is locked, such as `1: FLOCK ADVISORY WRITE 4711 fe:01:815 0 EOF`. A lock of another process
/// than the file names may be one of another file system, or be held in a container: that is tried out.
fn is_listed(locks: &str, path: &Path, pid: &str) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    let inode = format!(":{}", metadata.ino());
    let holders = locks.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(4);
        let holder = fields.next()?;
        fields.next()?.ends_with(&inode).then_some(holder)
    });
    let holders: Vec<_> = holders.collect();
    holders.contains(&pid) || (!holders.is_empty() && is_locked(path))
}

/// Opens the ledger of a folder to write it; makes it if there is none. Waits so long for a command that is
/// just writing; a daemon is not waited for.
pub(crate) fn open(
    folder: &Path,
    what: &str,
    patience: Duration,
) -> Result<EmbeddedStore, Failure> {
    let mut waited = Duration::ZERO;
    loop {
        match EmbeddedStore::open_daemon_as(folder, Arc::new(clock::now), what) {
            Err(error)
                if error.is_retryable && waited < patience && writing(folder) != Writing::Serve =>
            {
                thread::sleep(LOOK_EVERY);
                waited += LOOK_EVERY;
            }
            opened => return Ok(opened?),
        }
    }
}

/// Opens the ledger of a folder to write it, unless somebody else writes it just now.
pub(crate) fn try_open(folder: &Path, what: &str) -> Result<Option<EmbeddedStore>, Failure> {
    match EmbeddedStore::open_daemon_as(folder, Arc::new(clock::now), what) {
        Ok(store) => Ok(Some(store)),
        Err(error) if error.is_retryable => Ok(None),
        Err(error) => Err(error.into()),
    }
}
