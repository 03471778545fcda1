//! Ways for heartbeats to leave the process: a file, an inherited memory file, an inherited pipe.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{
    FILE_VARIABLE, MEMORY_VARIABLE, PIPE_VARIABLE,
    record::{LENGTH, Origin, Record},
};
use crate::beat::{Carrier, Sign};

/// How many beats a file may have been replaced or removed before that is noticed.
const LOOK_AFTER: u64 = 8;

/// A record in a file, rewritten in place.
#[derive(Debug)]
pub struct FileBeat {
    /// Where it is, if it can be removed or replaced there.
    path: Option<PathBuf>,
    file: Option<File>,
    origin: Origin,
    sequence: u64,
    errors: Arc<AtomicU64>,
}

impl FileBeat {
    /// Writes to a file, which is made if it is not there.
    pub fn create(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let file = Some(open(&path)?);
        Ok(Self {
            file,
            path: Some(path),
            origin: Origin::here()?,
            sequence: 0,
            errors: Arc::default(),
        })
    }

    /// Writes to a memory file that this process was given.
    fn memory(descriptor: &str) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).open(format!("/proc/self/fd/{descriptor}"))?;
        let origin = Origin::here()?;
        Ok(Self { file: Some(file), path: None, origin, sequence: 0, errors: Arc::default() })
    }

    /// How many beats could not be written, for a metric.
    pub fn errors(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.errors)
    }

    /// Writes one beat. Only [`Carrier::carry`] calls it, so that only a look at all watches leads here.
    fn beat(&mut self) -> io::Result<()> {
        self.sequence += 1;
        if self.sequence.is_multiple_of(LOOK_AFTER) && self.is_elsewhere() {
            self.file = None;
        }
        let file = match (&mut self.file, &self.path) {
            (Some(file), _) => file,
            (none, Some(path)) => none.insert(open(path)?),
            (None, None) => return Err(io::ErrorKind::NotFound.into()),
        };
        file.write_all_at(&Record::now(self.origin, self.sequence).encode(), 0)
    }

    /// Whether the file is no longer what is found under its name: then nobody sees what is written.
    fn is_elsewhere(&self) -> bool {
        let (Some(path), Some(file)) = (&self.path, &self.file) else { return false };
        let (Ok(ours), Ok(theirs)) = (file.metadata(), path.metadata()) else { return true };
        (ours.dev(), ours.ino()) != (theirs.dev(), theirs.ino())
    }
}

/// Opens a file, and makes room in it: a record that has its place is rewritten on a full disk too.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    file.set_len(LENGTH as u64)?;
    Ok(file)
}

impl Carrier for FileBeat {
    fn carry(&mut self, sign: &Sign) {
        if *sign == Sign::Alive && self.beat().is_err() {
            self.errors.fetch_add(1, Relaxed);
        }
    }
}

/// A record into a pipe, again and again. Its end is seen by whoever reads as soon as this process ends.
#[derive(Debug)]
pub struct PipeBeat {
    pipe: File,
    origin: Origin,
    sequence: u64,
}

impl PipeBeat {
    fn inherited(descriptor: &str) -> io::Result<Self> {
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let pipe = OpenOptions::new()
            .write(true)
            .custom_flags(nonblocking)
            .open(format!("/proc/self/fd/{descriptor}"))?;
        Ok(Self { pipe, origin: Origin::here()?, sequence: 0 })
    }
}

impl Carrier for PipeBeat {
    fn carry(&mut self, sign: &Sign) {
        if *sign == Sign::Alive {
            self.sequence += 1;
            // A pipe that is full has beats enough in it.
            let _full = self.pipe.write(&Record::now(self.origin, self.sequence).encode());
        }
    }
}

/// The ways that a supervisor gave this process, as its environment names them. `variable` looks one up.
pub fn inherited(variable: impl Fn(&str) -> Option<String>) -> io::Result<Vec<Box<dyn Carrier>>> {
    let mut ways: Vec<Box<dyn Carrier>> = Vec::new();
    if let Some(descriptor) = variable(MEMORY_VARIABLE) {
        ways.push(Box::new(FileBeat::memory(&descriptor)?));
    }
    if let Some(descriptor) = variable(PIPE_VARIABLE) {
        ways.push(Box::new(PipeBeat::inherited(&descriptor)?));
    }
    if let Some(path) = variable(FILE_VARIABLE) {
        ways.push(Box::new(FileBeat::create(path)?));
    }
    Ok(ways)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::heartbeat::{Ear, Heard};

    #[test]
    fn fault_21_a_file_that_was_removed_or_replaced_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let path = inner.join("beat");
        let mut writer = FileBeat::create(&path).unwrap();
        writer.carry(&Sign::Alive);
        fs::remove_dir_all(&inner).unwrap();
        let mut ear = Ear::file(&path);
        assert_eq!(ear.listen(), Heard::Nothing);
        for _ in 0..LOOK_AFTER {
            writer.carry(&Sign::Alive);
        }
        assert!(writer.errors().load(Relaxed) > 0, "there is no folder to make it in");
        fs::create_dir(&inner).unwrap();
        writer.carry(&Sign::Alive);
        assert_eq!(ear.listen(), Heard::Beat);
        fs::write(inner.join("other"), "something else").unwrap();
        fs::rename(inner.join("other"), &path).unwrap();
        let heard: Vec<_> = (0..=LOOK_AFTER)
            .map(|_| {
                writer.carry(&Sign::Alive);
                ear.listen()
            })
            .collect();
        assert_eq!(heard.last(), Some(&Heard::Beat), "{heard:?}");
    }
}
