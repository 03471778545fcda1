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
    record::{Content, Presence, Record, boot},
};
use crate::clock::boottime;

/// What a look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fresh {
    /// A sign of life, so long ago.
    Yes(Duration),
    /// The last sign of life is so long ago.
    Stale(Duration),
    /// This is the first look: that something changes could not be seen yet.
    FirstLook,
    /// Of a process that is gone.
    Gone,
    /// What is there cannot be a heartbeat as it was written.
    Damaged,
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
    Ok(match Record::read(&bytes) {
        Content::Record(record) if record.origin.presence() == Presence::Gone => Fresh::Gone,
        Content::Record(record) => {
            record.age().map_or(Fresh::Damaged, |age| Fresh::of(age, max_age))
        }
        Content::Damaged => Fresh::Damaged,
        Content::Foreign => {
            let mut hasher = DefaultHasher::new();
            (bytes, metadata.mtime(), metadata.mtime_nsec()).hash(&mut hasher);
            let age = age_by_change(path, hasher.finish())?;
            age.map_or(Fresh::FirstLook, |age| Fresh::of(age, max_age))
        }
    })
}

impl Fresh {
    /// What is to be said of a sign of life that is so old.
    pub fn of(age: Duration, max_age: Duration) -> Self {
        if age <= max_age { Self::Yes(age) } else { Self::Stale(age) }
    }
}

/// How long ago the content was first seen to be what it is; nothing, if nobody has looked before.
fn age_by_change(path: &Path, content: u64) -> Result<Option<Duration>, CheckError> {
    let mut kept = OsString::from(path);
    kept.push(".seen");
    let kept = PathBuf::from(kept);
    let now = boottime();
    let boot = boot().map_err(CheckError::Unreadable)?;
    let boot = u128::from_be_bytes(boot);
    let seen = fs::read_to_string(&kept).unwrap_or_default();
    let mut words = seen.split_whitespace();
    let is_ours = words.next() == Some(&format!("{boot:032x}"));
    let before = words.next().and_then(|seen| u64::from_str_radix(seen, 16).ok());
    let since = words.next().and_then(|since| since.parse::<u64>().ok());
    let known = before.zip(since).filter(|(_, since)| is_ours && *since <= now);
    if let Some((_, since)) = known.filter(|(before, _)| *before == content) {
        return Ok(Some(Duration::from_nanos(now.saturating_sub(since))));
    }
    let text = format!("{boot:032x} {content:016x} {now}\n");
    fs::write(&kept, text).map_err(|error| CheckError::Unkept(kept, error))?;
    // Something else was there at the last look: a change, since then.
    Ok(known.map(|_| Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heartbeat::record::Origin;

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn a_first_look_at_what_somebody_else_writes_is_no_sign_of_life_and_the_next_one_is_by_changes()
    {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("beat");
        fs::write(&path, "1700000000\n").unwrap();
        assert_eq!(check(&path, LONG).unwrap(), Fresh::FirstLook);
        assert!(matches!(check(&path, LONG).unwrap(), Fresh::Yes(age) if age > Duration::ZERO));
        assert!(matches!(check(&path, Duration::ZERO).unwrap(), Fresh::Stale(_)));
        fs::write(&path, "1700000001\n").unwrap();
        assert_eq!(check(&path, LONG).unwrap(), Fresh::Yes(Duration::ZERO));
        // What was kept is lost, or from another start of the machine: nothing is known any more.
        let seen = folder.path().join("beat.seen");
        for kept in ["", "no such thing", "00000000000000000000000000000000 0 5"] {
            fs::write(&seen, kept).unwrap();
            assert_eq!(check(&path, LONG).unwrap(), Fresh::FirstLook, "{kept}");
        }
    }

    #[test]
    fn a_record_that_is_damaged_or_still_to_come_is_no_sign_of_life() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("beat");
        let here = Origin::here().unwrap();
        let record = Record::now(here, 1);
        let mut damaged = record.encode();
        damaged[30] ^= 1;
        let to_come = Record { at: record.at + 3_600_000_000_000, ..record }.encode();
        for bytes in [damaged, to_come] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(check(&path, LONG).unwrap(), Fresh::Damaged);
        }
        assert!(!folder.path().join("beat.seen").exists());
    }

    #[test]
    fn a_record_from_another_container_is_judged_by_its_age() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("beat");
        let here = Origin::here().unwrap();
        let elsewhere = Origin { namespace: here.namespace + 1, pid: u32::MAX, ..here };
        fs::write(&path, Record::now(elsewhere, 1).encode()).unwrap();
        assert!(matches!(check(&path, LONG).unwrap(), Fresh::Yes(_)));
        assert!(matches!(check(&path, Duration::ZERO).unwrap(), Fresh::Stale(_)));
    }
}
