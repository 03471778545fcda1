//! What is remembered of the files, so that a start reads only those that changed.
//!
//! One line for each file: how it looked from outside (size, time, inode), which pipeline and version it
//! declares, and what others may ask about it. A file that still looks the same, in surroundings that are
//! still the same, need not be read. Whatever is doubtful is: an index that cannot be read, or was written
//! by another binary or beside other calendars, is as good as none.
//!
//! The file is replaced in one step, and its last line counts the others, so that half of one is noticed.

use std::{
    collections::BTreeMap, fmt::Write as _, fs, io, os::unix::fs::MetadataExt as _, path::Path,
};

use interlock_config::{SystemZones, Upstream, ZoneSource as _};
use interlock_core::id::{PipelineId, fnv1a};
use interlock_private_files as private_files;

/// The first words of the file; another number is another format.
const FORMAT: &str = "interlock-files 1";

/// How a file looks from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Stamp {
    size: u64,
    /// Nanoseconds since 1970.
    modified: i64,
    inode: u64,
}

impl Stamp {
    /// No file looks like this: one that has it is always read.
    pub(crate) const NONE: Self = Self { size: 0, modified: 0, inode: 0 };

    /// How a file looks now. One that changed a moment before may change again within the same tick of
    /// the file system's clock, and is not trusted.
    pub(crate) fn of(metadata: &fs::Metadata, now: i64) -> Self {
        const TICK: i64 = 2_000_000_000;
        let modified = metadata.mtime().saturating_mul(1_000_000_000) + metadata.mtime_nsec();
        if modified.saturating_add(TICK) > now {
            return Self::NONE;
        }
        Self { size: metadata.size(), modified, inode: metadata.ino() }
    }
}

/// What is remembered of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) path: Box<str>,
    pub(crate) stamp: Stamp,
    pub(crate) name: PipelineId,
    /// What is in force; 0 when it never could be used.
    pub(crate) version: u64,
    /// The ids of its schedules, with blanks between them.
    pub(crate) schedules: Box<str>,
    /// What it waits for, as `pipeline` or `pipeline/schedule`, with blanks between them.
    pub(crate) upstreams: Box<str>,
}

impl Entry {
    /// What it waits for.
    pub(crate) fn upstreams(&self) -> Vec<Upstream> {
        let upstream = |text: &str| {
            let (pipeline, schedule) = match text.split_once('/') {
                Some((pipeline, schedule)) => (pipeline, Some(schedule.to_owned())),
                None => (text, None),
            };
            Upstream { pipeline: pipeline.to_owned(), schedule, span: 0..0 }
        };
        self.upstreams.split(' ').filter(|text| !text.is_empty()).map(upstream).collect()
    }
}

/// What is remembered of all files, by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Index {
    /// Of the binary, and of what stands around the pipelines.
    pub(crate) fingerprint: u64,
    /// The data of the zones that they name.
    pub(crate) zones: BTreeMap<String, u64>,
    /// Invariant: in the order of their paths.
    pub(crate) entries: Vec<Entry>,
}

impl Index {
    pub(crate) fn find(&self, path: &str) -> Option<&Entry> {
        let at = self.entries.binary_search_by(|entry| (*entry.path).cmp(path)).ok()?;
        self.entries.get(at)
    }

    /// Whether what it remembers still means the same: in the same surroundings, and with the same data of zones.
    pub(crate) fn holds(&self, fingerprint: u64, zones: &SystemZones) -> bool {
        self.fingerprint == fingerprint
            && self.zones.iter().all(|(name, known)| {
                zones.zone(name).is_some_and(|zone| zone.fingerprint() == *known)
            })
    }

    /// Reads an index; an empty one when there is none or it cannot be used.
    pub(crate) fn load(path: &Path) -> Self {
        let Ok(text) = fs::read_to_string(path) else { return Self::default() };
        Self::parse(&text).unwrap_or_default()
    }

    /// Puts an index in the place of the last one.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        private_files::replace(path, &self.text())
    }

    fn text(&self) -> String {
        let mut text = format!("{FORMAT}\t{:016x}\n", self.fingerprint);
        for (zone, fingerprint) in &self.zones {
            let _never = writeln!(text, "zone\t{fingerprint:016x}\t{zone}");
        }
        for entry in &self.entries {
            let Entry { path, stamp, name, version, schedules, upstreams } = entry;
            let Stamp { size, modified, inode } = stamp;
            let _never = writeln!(
                text,
                "file\t{size}\t{modified}\t{inode}\t{version:016x}\t{name}\t{schedules}\t{upstreams}\t{path}"
            );
        }
        let _never = writeln!(text, "end\t{}\t{:016x}", self.entries.len(), fnv1a(text.as_bytes()));
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let (body, end) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let sum = fnv1a(text.get(..=body.len())?.as_bytes());
        let mut lines = body.lines();
        let fingerprint = lines.next()?.strip_prefix(FORMAT)?.strip_prefix('\t')?;
        let mut index = Self { fingerprint: hex(fingerprint)?, ..Self::default() };
        for line in lines {
            let (kind, rest) = line.split_once('\t')?;
            if kind == "zone" {
                let (fingerprint, zone) = rest.split_once('\t')?;
                index.zones.insert(zone.to_owned(), hex(fingerprint)?);
            } else {
                index.entries.push(entry(rest)?);
            }
        }
        let expected = format!("end\t{}\t{sum:016x}", index.entries.len());
        (end == expected && index.entries.is_sorted_by(|a, b| a.path < b.path)).then_some(index)
    }
}

fn entry(line: &str) -> Option<Entry> {
    let mut fields = line.splitn(8, '\t');
    let mut next = || fields.next();
    Some(Entry {
        stamp: Stamp {
            size: next()?.parse().ok()?,
            modified: next()?.parse().ok()?,
            inode: next()?.parse().ok()?,
        },
        version: hex(next()?)?,
        name: PipelineId::parse(next()?).ok()?,
        schedules: next()?.into(),
        upstreams: next()?.into(),
        path: next()?.into(),
    })
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        let entry = |path: &str| Entry {
            path: path.into(),
            stamp: Stamp { size: 12, modified: 1_770_000_000_000_000_000, inode: 7 },
            name: PipelineId::parse("orders").unwrap(),
            version: 0xab,
            schedules: "cron daily".into(),
            upstreams: "revenue invoices/daily".into(),
        };
        Index {
            fingerprint: 0xfe,
            zones: [("Europe/Riga".to_owned(), 3)].into(),
            entries: vec![entry("/p/a b.yaml"), entry("/p/c.yaml")],
        }
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("files.index");
        assert_eq!(Index::load(&path), Index::default());
        index().save(&path).unwrap();
        assert_eq!(Index::load(&path), index());
        assert_eq!(index().find("/p/c.yaml").map(|entry| entry.upstreams().len()), Some(2));
        assert_eq!(index().find("/p/d.yaml"), None);
    }

    #[test]
    fn anything_doubtful_is_no_index() {
        let text = index().text();
        assert_eq!(Index::parse(&text), Some(index()));
        for cut in 1..text.len() {
            assert_eq!(Index::parse(&text[..text.len() - cut]), None, "{cut} bytes short");
        }
        for (from, to) in [("files 1", "files 2"), ("orders", "0rders"), ("zone", "moon")] {
            assert_eq!(Index::parse(&text.replacen(from, to, 1)), None, "{to}");
        }
    }

    #[test]
    fn a_file_that_changed_just_now_is_not_trusted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let metadata = file.as_file().metadata().unwrap();
        let modified = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
        assert_eq!(Stamp::of(&metadata, modified + 1_000), Stamp::NONE);
        assert_ne!(Stamp::of(&metadata, modified + 3_000_000_000), Stamp::NONE);
    }
}
