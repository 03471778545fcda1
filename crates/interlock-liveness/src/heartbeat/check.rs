//! One look at a heartbeat file, for probes of shells and containers.
//!
//! A record says by itself how old it is. Of a file that some other program writes, only a change says anything; so
//! what was seen, and when, is kept beside it (`FILE.seen`) for the next look.

use std::{
    ffi::OsString,
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    ear::content,
    record::{Record, boot},
};
use crate::clock::boottime;

/// What a look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fresh {
    /// A sign of life, so long ago.
    Yes(Duration),
    /// The last sign of life is so long ago.
    Stale(Duration),
    /// Of a process that is gone.
    Gone,
    /// There is no file yet.
    Missing,
}

/// Why a look found nothing out.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The file cannot be read.
    #[error("the heartbeat file cannot be read")]
    Unreadable(#[source] io::Error),
    /// What was seen cannot be kept for the next time.
    #[error("what was seen cannot be kept in {0}, so that a change could never be noticed")]
    Unkept(PathBuf, #[source] io::Error),
}

/// Looks whether a file has had a sign of life within a time.
pub fn check(path: &Path, max_age: Duration) -> Result<Fresh, CheckError> {
    let (bytes, metadata) = match content(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Fresh::Missing),
        Err(error) => return Err(CheckError::Unreadable(error)),
    };
    let age = if let Some(record) = Record::decode(&bytes) {
        if !record.origin.is_alive() {
            return Ok(Fresh::Gone);
        }
        record.age().unwrap_or(Duration::MAX)
    } else {
        let mut hasher = DefaultHasher::new();
        (bytes, metadata.mtime(), metadata.mtime_nsec()).hash(&mut hasher);
        age_by_change(path, hasher.finish())?
    };
    Ok(if age <= max_age { Fresh::Yes(age) } else { Fresh::Stale(age) })
}

/// How long ago the content was first seen to be what it is.
fn age_by_change(path: &Path, content: u64) -> Result<Duration, CheckError> {
    let mut kept = OsString::from(path);
    kept.push(".seen");
    let kept = PathBuf::from(kept);
    let now = boottime();
    let boot = boot().map_err(CheckError::Unreadable)?;
    let boot = u128::from_be_bytes(boot);
    let seen = fs::read_to_string(&kept).unwrap_or_default();
    let mut words = seen.split_whitespace();
    let is_same = words.next() == Some(&format!("{boot:032x}"))
        && words.next() == Some(&format!("{content:016x}"));
    let since = words.next().and_then(|since| since.parse().ok()).filter(|_| is_same);
    if let Some(since) = since {
        return Ok(Duration::from_nanos(now.saturating_sub(since)));
    }
    let text = format!("{boot:032x} {content:016x} {now}\n");
    fs::write(&kept, text).map_err(|error| CheckError::Unkept(kept, error))?;
    Ok(Duration::ZERO)
}
