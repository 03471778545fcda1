//! Hears heartbeats: whether what is there changed since the last look.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, Read as _},
    os::{
        fd::OwnedFd,
        unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use super::record::{Content, Presence, Record};
use crate::aside::Aside;

/// So much of a file is looked at.
const LOOKED_AT: usize = 4_096;
/// How long is waited for what is there before anything begins.
const FIRST_LOOK_IN: Duration = Duration::from_secs(1);

/// What a look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// A sign of life.
    Beat,
    /// Nothing new.
    Nothing,
    /// Every writer is gone.
    Closed,
}

/// Listens to one way of heartbeats.
#[derive(Debug)]
pub struct Ear {
    source: Source,
    seen: Option<u64>,
    /// What was there to begin with could not be seen yet.
    is_new: bool,
}

#[derive(Debug)]
enum Source {
    File(PathBuf),
    /// A file that is looked at by somebody else.
    Aside(Aside<Option<u64>>),
    Memory(File),
    Pipe(File),
}

/// What came of a look.
enum Look {
    /// What stands for the content, if there is one that counts.
    At(Option<u64>),
    /// It cannot be said at present.
    HeldUp,
}

impl Ear {
    /// Listens to a file. What is in it now is what an earlier process left.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        let source = Source::File(path.into());
        Self::to(source)
    }

    /// Listens to a file and never waits for it: while it cannot be read nothing is heard.
    pub(crate) fn aside(path: PathBuf) -> io::Result<Self> {
        let source = Source::File(path);
        let look = move || source.content();
        Ok(Self::to(Source::Aside(Aside::start(look)?)))
    }

    /// Listens to a memory file.
    pub fn memory(memory: OwnedFd) -> Self {
        Self::to(Source::Memory(memory.into()))
    }

    /// Listens to the reading end of a pipe, which must not block.
    pub fn pipe(pipe: OwnedFd) -> Self {
        Self::to(Source::Pipe(pipe.into()))
    }

    fn to(source: Source) -> Self {
        let mut ear = Self { source, seen: None, is_new: true };
        ear.forget();
        ear
    }

    /// Whatever is there now is what an earlier process left.
    pub(crate) fn forget(&mut self) {
        let found = match &mut self.source {
            // Whoever begins now may write before a hasty look is over, and that would be taken for what was there before.
            Source::Aside(aside) => aside.look_afresh(FIRST_LOOK_IN).map_or(Look::HeldUp, Look::At),
            Source::File(_) | Source::Memory(_) | Source::Pipe(_) => self.source.look(),
        };
        match found {
            Look::At(content) => (self.seen, self.is_new) = (content, false),
            Look::HeldUp => (self.seen, self.is_new) = (None, true),
        }
    }

    /// Looks once.
    pub fn listen(&mut self) -> Heard {
        if let Source::Pipe(pipe) = &mut self.source {
            return drain(pipe);
        }
        let Look::At(content) = self.source.look() else { return Heard::Nothing };
        let is_beat = content.is_some() && content != self.seen && !self.is_new;
        self.is_new = false;
        self.seen = content.or(self.seen);
        if is_beat { Heard::Beat } else { Heard::Nothing }
    }
}

impl Source {
    fn look(&mut self) -> Look {
        match self {
            Self::Aside(aside) => aside.look().map_or(Look::HeldUp, Look::At),
            Self::File(_) | Self::Memory(_) | Self::Pipe(_) => Look::At(self.content()),
        }
    }

    /// What stands for the content, if there is one that counts.
    fn content(&self) -> Option<u64> {
        let mut bytes = [0; LOOKED_AT];
        let (length, written) = match self {
            Self::File(path) => {
                let file = open(path).ok()?;
                let written = file.metadata().map(|it| (it.mtime(), it.mtime_nsec())).ok();
                (file.read_at(&mut bytes, 0).ok()?, written)
            }
            Self::Memory(file) => (file.read_at(&mut bytes, 0).ok()?, None),
            Self::Aside(_) | Self::Pipe(_) => return None,
        };
        let bytes = bytes.get(..length)?;
        let mut hasher = DefaultHasher::new();
        match Record::read(bytes) {
            // Of a process that is gone, or of another start of the machine: left over.
            Content::Record(record) if record.origin.presence() == Presence::Gone => return None,
            Content::Record(record) => (record.origin.pid, record.sequence).hash(&mut hasher),
            // Whoever damaged it is not who is listened for.
            Content::Damaged => return None,
            // Of a program that knows no records: whatever changes is a sign of life.
            Content::Foreign => (bytes, written).hash(&mut hasher),
        }
        Some(hasher.finish())
    }
}

/// Empties a pipe; whatever was in it is a sign of life.
fn drain(pipe: &mut File) -> Heard {
    let mut bytes = [0; LOOKED_AT];
    let mut heard = Heard::Nothing;
    loop {
        match pipe.read(&mut bytes) {
            Ok(0) => return if heard == Heard::Beat { heard } else { Heard::Closed },
            Ok(_) => heard = Heard::Beat,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return heard,
        }
    }
}

/// Opens a heartbeat file. Whoever opens a pipe waits for its other end, and may do so for ever; so nothing is waited for here, and what
/// is no file is refused.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    let kind = io::ErrorKind::InvalidInput;
    Err(io::Error::new(kind, "it is no regular file, such as a heartbeat is written to"))
}

/// What a file says, as far as it is looked at.
pub(super) fn content(path: &Path) -> io::Result<(Vec<u8>, fs::Metadata)> {
    let file = open(path)?;
    let metadata = file.metadata()?;
    let mut bytes = Vec::new();
    file.take(LOOKED_AT as u64).read_to_end(&mut bytes)?;
    Ok((bytes, metadata))
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering::Relaxed},
        },
        thread,
    };

    use super::*;
    use crate::heartbeat::record::Origin;

    #[test]
    fn whatever_a_foreign_program_writes_counts_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("beat");
        fs::write(&path, "1700000000\n").unwrap();
        let mut ear = Ear::file(&path);
        assert_eq!(ear.listen(), Heard::Nothing, "that was there before");
        fs::write(&path, "1700000001\n").unwrap();
        assert_eq!((ear.listen(), ear.listen()), (Heard::Beat, Heard::Nothing));
        // A clock that was set back is a change like any other.
        fs::write(&path, "1600000000\n").unwrap();
        assert_eq!(ear.listen(), Heard::Beat);
        fs::remove_file(&path).unwrap();
        assert_eq!(ear.listen(), Heard::Nothing);
    }

    #[test]
    fn fault_16_the_time_of_a_file_with_a_record_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("beat");
        fs::write(&path, Record::now(Origin::here().unwrap(), 1).encode()).unwrap();
        let mut ear = Ear::file(&path);
        let hour = std::time::Duration::from_hours(1);
        let written = path.metadata().unwrap().modified().unwrap();
        for time in [written + hour, written - hour] {
            File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            assert_eq!(ear.listen(), Heard::Nothing);
        }
    }

    #[test]
    fn fault_23_records_of_earlier_processes_are_no_signs_of_life() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("beat");
        let here = Origin::here().unwrap();
        let mut ear = Ear::file(&path);
        let origins = [Origin { boot: [1; 16], ..here }, Origin { started: 1, ..here }];
        for (sequence, origin) in (1..).zip(origins) {
            fs::write(&path, Record::now(origin, sequence).encode()).unwrap();
            assert_eq!(ear.listen(), Heard::Nothing, "{origin:?}");
        }
        fs::write(&path, Record::now(here, 3).encode()).unwrap();
        assert_eq!(ear.listen(), Heard::Beat);
        fs::write(&path, Record::now(here, 3).encode()).unwrap();
        assert_eq!(ear.listen(), Heard::Nothing, "the same beat again");
    }

    #[test]
    fn what_is_written_while_a_first_look_takes_its_time_is_a_sign_of_life() {
        let value = Arc::new(AtomicU64::new(1));
        let looked_at = Arc::clone(&value);
        let slow = move || {
            thread::sleep(Duration::from_millis(50));
            Some(looked_at.load(Relaxed))
        };
        let mut ear = Ear::to(Source::Aside(Aside::start(slow).unwrap()));
        for beat in 2..4 {
            value.store(beat, Relaxed);
            let heard = (0..100).any(|_| {
                thread::sleep(Duration::from_millis(5));
                ear.listen() == Heard::Beat
            });
            assert!(heard, "{beat}");
            // A question of the life before is still open when the next one begins.
            assert_eq!(ear.listen(), Heard::Nothing);
            ear.forget();
        }
    }

    #[test]
    fn a_record_from_another_container_is_a_sign_of_life_and_a_damaged_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("beat");
        let here = Origin::here().unwrap();
        let elsewhere = Origin { namespace: here.namespace + 1, pid: u32::MAX, ..here };
        let mut ear = Ear::file(&path);
        fs::write(&path, Record::now(elsewhere, 1).encode()).unwrap();
        assert_eq!((ear.listen(), ear.listen()), (Heard::Beat, Heard::Nothing));
        let mut damaged = Record::now(elsewhere, 2).encode();
        damaged[60] ^= 1;
        fs::write(&path, damaged).unwrap();
        assert_eq!(ear.listen(), Heard::Nothing);
    }
}
