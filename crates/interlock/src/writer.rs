//! Who writes the ledger: `interlock serve`, else a command for as long as it needs to.
//!
//! A `serve` without the engine stands in: it writes while no other process wants to. Whoever wants the ledger then holds a
//! second lock while it waits, and the stand-in lets go. Both locks end with their process.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

use interlock_store_embedded::{EmbeddedStore, LockHolder};
use tokio::time::Instant;

use crate::{clock, exit::Failure};

/// Who holds the lease. The store's own lock keeps a second process out, so whoever gets that far is the one
/// holder: a restart after a crash need not wait for the dead one's lease to run out.
pub(crate) const HOLDER: &str = "daemon";

/// What the lock calls a daemon.
pub(crate) const SERVE: &str = "interlock serve";

/// What the lock calls a `serve` without the engine.
pub(crate) const STAND_IN: &str = "interlock serve without the engine";

/// The file whose lock says that another process wants the ledger of a stand-in.
const WANTED: &str = "daemon.wanted";

/// How long a stand-in may take to let go of the ledger.
const LETS_GO_IN: Duration = Duration::from_secs(5);

/// How long `serve` waits for a command to have finished, and for a daemon that is not seen to run to be gone.
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
    /// A `serve` without the engine, which lets go of the ledger when it is wanted.
    StandIn(String),
}

/// Who writes the ledger of a folder.
///
/// That the lock is held is what counts, not whether its holder can be seen: that one may run in another container, or be about to
/// end. Where the system lists the holder's lock the list is believed, because to try the lock, even for an instant, could make a
/// process that starts just then wait. The list is read a page at a time, and lacks a lock when others before it are released
/// between two pages; and it lacks those of other containers.
pub(crate) fn writing(folder: &Path) -> Writing {
    let path = folder.join("daemon.lock");
    let holder = LockHolder::of(folder);
    if !holder.as_ref().is_some_and(|holder| is_listed(&path, holder)) && !is_locked(&path) {
        return Writing::Nobody;
    }
    // One that is not named has just taken the lock and not yet said who it is.
    let Some(LockHolder { pid, what, .. }) = holder else {
        return Writing::Command("another process".to_owned());
    };
    match what.as_str() {
        "" | SERVE => Writing::Serve,
        STAND_IN => Writing::StandIn(format!("`{STAND_IN}` (process {pid})")),
        command => Writing::Command(format!("`{command}` (process {pid})")),
    }
}

fn is_locked(path: &Path) -> bool {
    let Ok(file) = OpenOptions::new().read(true).open(path) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Whether the system lists a process's lock of a file, in a line such as `1: FLOCK ADVISORY WRITE 4711 fe:01:815 0 EOF`.
fn is_listed(path: &Path, holder: &LockHolder) -> bool {
    let (Ok(metadata), Ok(locks)) = (fs::metadata(path), fs::read_to_string("/proc/locks")) else {
        return false;
    };
    let (pid, inode) = (holder.pid.to_string(), format!(":{}", metadata.ino()));
    locks.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(4);
        fields.next() == Some(pid.as_str())
            && fields.next().is_some_and(|file| file.ends_with(&inode))
    })
}

/// Says, for as long as it lives, that this process wants the ledger of a stand-in.
#[derive(Debug)]
struct Wanted {
    _file: File,
}

impl Wanted {
    fn say(folder: &Path) -> Option<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(folder.join(WANTED)).ok()?;
        // The stand-in may be trying it for an instant; then the next look says it.
        file.try_lock_shared().ok()?;
        Some(Self { _file: file })
    }
}

/// Whether a process waits for the stand-in of a folder to let go of the ledger.
pub(crate) fn is_wanted(folder: &Path) -> bool {
    let Ok(file) = OpenOptions::new().read(true).open(folder.join(WANTED)) else { return false };
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// Opens the ledger of a folder to write it; makes it if there is none. Waits so long for a command that is
/// just writing and for a daemon that is not seen to run, because it is just ending or runs in another container; and as long as it
/// takes for a stand-in to let go. A daemon that runs here is not waited for.
pub(crate) fn open(
    folder: &Path,
    what: &str,
    patience: Duration,
) -> Result<EmbeddedStore, Failure> {
    let (began, mut wanted) = (Instant::now(), None);
    loop {
        let error = match EmbeddedStore::open_daemon_as(folder, Arc::new(clock::now), what) {
            Err(error) if error.is_retryable => error,
            opened => return Ok(opened?),
        };
        let runs_here = || LockHolder::of(folder).is_some_and(|holder| holder.is_running());
        let patience = match writing(folder) {
            Writing::Serve if runs_here() => return Err(error.into()),
            Writing::StandIn(_) => {
                wanted = wanted.or_else(|| Wanted::say(folder));
                patience.max(LETS_GO_IN)
            }
            // A stand-in that has let go, and whoever waits for it too.
            Writing::Nobody | Writing::Command(_) if wanted.is_some() => patience.max(LETS_GO_IN),
            Writing::Serve | Writing::Nobody | Writing::Command(_) => patience,
        };
        if began.elapsed() >= patience {
            return Err(error.into());
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Opens the ledger of a folder to write it, unless another process writes it just now; a stand-in lets go of it.
pub(crate) fn try_open(folder: &Path, what: &str) -> Result<Option<EmbeddedStore>, Failure> {
    let opened = match EmbeddedStore::open_daemon_as(folder, Arc::new(clock::now), what) {
        Ok(store) => return Ok(Some(store)),
        Err(error) => error,
    };
    match writing(folder) {
        _ if !opened.is_retryable => Err(opened.into()),
        Writing::StandIn(_) => Ok(open(folder, what, LETS_GO_IN).ok()),
        Writing::Nobody | Writing::Serve | Writing::Command(_) => Ok(None),
    }
}

/// Opens the ledger of a folder for a stand-in: only while no other process has it or wants it.
pub(crate) fn stand_in(folder: &Path) -> Result<Option<EmbeddedStore>, Failure> {
    if is_wanted(folder) {
        return Ok(None);
    }
    match EmbeddedStore::open_daemon_as(folder, Arc::new(clock::now), STAND_IN) {
        Ok(store) => Ok(Some(store)),
        Err(error) if error.is_retryable => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use interlock_wait::{BOUND, ThreadWithin as _};

    use super::*;

    /// What the lock's file says of a `serve` that was process 1 of a container, as we are of ours: our number, and another start.
    fn name_one_of_another_container(folder: &Path) {
        let text = format!("{}\n{SERVE}\n1\n", std::process::id());
        fs::write(folder.join("daemon.lock"), text).unwrap();
    }

    #[test]
    fn a_daemon_of_a_container_that_ends_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let lock = lock(folder.path(), "daemon.lock");
        name_one_of_another_container(folder.path());
        assert_eq!(writing(folder.path()), Writing::Serve, "requests go to its inbox");
        // It has the lock for longer than the store itself waits.
        let dying = thread::spawn(move || {
            thread::sleep(Duration::from_secs(3));
            drop(lock);
        });
        drop(open(folder.path(), SERVE, SERVE_WAITS).unwrap());
        dying.join_within("the thread that has the lock", BOUND).unwrap();
        assert_eq!(writing(folder.path()), Writing::Nobody);
    }

    #[test]
    fn a_daemon_of_a_container_that_goes_on_is_refused_and_named_after_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let _lock = lock(folder.path(), "daemon.lock");
        name_one_of_another_container(folder.path());
        let refused = open(folder.path(), SERVE, Duration::from_millis(50)).unwrap_err();
        assert!(refused.message.contains("in another container"), "{refused:?}");
    }

    #[test]
    fn a_daemon_that_runs_here_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let _store = open(folder.path(), SERVE, Duration::ZERO).unwrap();
        let path = folder.path().to_path_buf();
        let second = thread::spawn(move || open(&path, SERVE, BOUND * 2).unwrap_err());
        let refused = second.join_within("a second daemon", BOUND).unwrap();
        let us = format!("process {} ({SERVE}) is using", std::process::id());
        assert!(refused.message.contains(&us), "{refused:?}");
    }

    /// Locks a file of a folder, which is made for it.
    fn lock(folder: &Path, name: &str) -> File {
        let file = File::create(folder.join(name)).unwrap();
        file.lock().unwrap();
        file
    }

    #[test]
    fn a_daemon_is_seen_while_the_systems_list_of_locks_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let _lock = lock(path, "daemon.lock");
        let text = format!("{}\n{SERVE}\n", std::process::id());
        fs::write(path.join("daemon.lock"), text).unwrap();
        // The newest come first in the list: pages of locks before the daemon's, which come and go while the list is read.
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for thread in 0..3 {
                let is_over = &is_over;
                scope.spawn(move || {
                    let name = |n| format!("other-{thread}-{n}");
                    let files: Vec<File> = (0..300).map(|n| lock(path, &name(n))).collect();
                    // Bounded: the looks below end it.
                    while !is_over.load(Ordering::Relaxed) {
                        for file in &files {
                            file.unlock().unwrap();
                        }
                        for file in &files {
                            file.lock().unwrap();
                        }
                    }
                });
            }
            let unseen = (0..500).filter(|_| writing(path) != Writing::Serve).count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(unseen, 0, "of 500 looks");
        });
    }

    #[test]
    fn the_lock_of_a_process_that_ended_is_free() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(writing(folder.path()), Writing::Nobody);
        let file = lock(folder.path(), "daemon.lock");
        fs::write(folder.path().join("daemon.lock"), format!("{}\n{SERVE}\n", u32::MAX)).unwrap();
        drop(file);
        assert_eq!(writing(folder.path()), Writing::Nobody);
    }
}
