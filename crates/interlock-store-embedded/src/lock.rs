//! The lock that lets one process write the ledger.
//!
//! The operating system holds it and drops it when the process ends, however it ends; the process id in
//! the file, and on the second line what the process is, are only for people.

use std::{
    fs::{File, TryLockError},
    io::{Read, Seek, Write},
    path::Path,
    thread,
    time::Duration,
};

use interlock_store::StoreError;

/// How often and how long a lock is waited for whose owner is gone.
const LOOKS_MAX: u32 = 200;
const LOOK: Duration = Duration::from_millis(10);

/// The right to write. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct DaemonLock {
    _file: File,
}

impl DaemonLock {
    /// Takes the lock of a folder, or says who has it. `what` is what the file calls this process.
    pub(crate) fn take(folder: &Path, what: &str) -> Result<Self, StoreError> {
        let path = folder.join("daemon.lock");
        let failed = |error: std::io::Error| {
            StoreError::permanent(format!("{} cannot be used: {error}", path.display()))
        };
        let mut options = interlock_private_files::open_options();
        // Not truncated: it may name the process that has the lock.
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(failed)?;
        let mut looks = 0;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if looks < LOOKS_MAX && is_orphaned(&mut file) => {
                    looks += 1;
                    thread::sleep(LOOK);
                }
                Err(TryLockError::WouldBlock) => return Err(refusal(folder, &mut file)),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        // In one piece: others read it at any moment.
        let text = format!("{}\n{what}\n", std::process::id());
        file.write_all(text.as_bytes()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// Who has the lock and what that is, by what the file says.
fn holder(file: &mut File) -> Option<(u32, String)> {
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
    let mut lines = text.lines();
    let pid = lines.next()?.parse().ok()?;
    Some((pid, lines.next().unwrap_or_default().to_owned()))
}

/// Whether the one who took the lock is gone, or has not yet written who it is. A child that it was just
/// starting has the lock too, until it becomes another program: a matter of milliseconds, in which a restart
/// after `kill -9` may fall.
fn is_orphaned(file: &mut File) -> bool {
    holder(file).is_none_or(|(pid, _)| !Path::new(&format!("/proc/{pid}")).exists())
}

fn refusal(folder: &Path, file: &mut File) -> StoreError {
    let who = match holder(file) {
        Some((pid, what)) if what.is_empty() => format!("process {pid}"),
        Some((pid, what)) => format!("process {pid} ({what})"),
        None => "another process".to_owned(),
    };
    let message = format!(
        "{who} is using the ledger in {}: only one may write it; stop that one first, or use another folder",
        folder.display()
    );
    // It may end at any moment.
    StoreError::retryable(message)
}

#[cfg(test)]
mod tests {
    use interlock_wait::{BOUND, ThreadWithin as _};

    use super::*;

    #[test]
    fn lock_that_only_a_child_of_the_dead_still_has_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daemon.lock");
        // A process that surely is not there.
        std::fs::write(&path, "4194305\n").unwrap();
        let held = File::open(&path).unwrap();
        held.lock().unwrap();
        let child = thread::spawn(move || {
            thread::sleep(LOOK * 5);
            drop(held);
        });
        DaemonLock::take(folder.path(), "").unwrap();
        child.join_within("the thread that held the lock", BOUND).unwrap();
    }
}
