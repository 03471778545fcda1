//! The lock that lets one process write the ledger.
//!
//! The operating system holds it and drops it when the process ends, however it ends; the process id in
//! the file, and on the second line what the process is, are only for people.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Seek, Write},
    path::Path,
};

use interlock_store::StoreError;

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
        let mut options = OpenOptions::new();
        // Not truncated: it may name the process that has the lock.
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(refusal(folder, &mut file)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        // In one piece: others read it at any moment.
        let text = format!("{}\n{what}\n", std::process::id());
        file.write_all(text.as_bytes()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

fn refusal(folder: &Path, file: &mut File) -> StoreError {
    let mut text = String::new();
    let read = file.read_to_string(&mut text).is_ok();
    let mut lines = text.lines();
    let pid = lines.next().filter(|pid| read && pid.parse::<u32>().is_ok());
    let what = lines.next().filter(|what| !what.is_empty());
    let who = match (pid, what) {
        (Some(pid), Some(what)) => format!("process {pid} ({what})"),
        (Some(pid), None) => format!("process {pid}"),
        (None, _) => "another process".to_owned(),
    };
    let message = format!(
        "{who} is using the ledger in {}: only one may write it; stop that one first, or use another folder",
        folder.display()
    );
    // It may end at any moment.
    StoreError::retryable(message)
}
