//! The project's files as the engine sees them: what changed since it was last told.
//!
//! A scan looks at every file from outside and reads those that look different from what the index
//! remembers, several at a time; it keeps none of them. What it finds goes to the engine in portions, so
//! that a first load of a hundred thousand files needs the memory of a few thousand.
//!
//! A file that is broken keeps its last good version. While a broken file does not even say its name, nothing
//! is retired: it could be any of those that are missing. And a file is gone only once it has been for a while
//! ([`ABSENT_MAX`]): whoever replaces files takes them away first, and what waits for its turn would be skipped for good.

mod scan;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use interlock_config::{Around, Problem, SystemZones, load_around, server::Alert};
use interlock_core::id::PipelineId;
use interlock_engine::Changes;
use tokio::time::Instant;

use self::scan::Scanner;
pub(crate) use self::scan::{declaration, fingerprint, is_much};
use crate::{environment, exit::Failure, serve::index::Index};

/// The files of a project.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    directory: PathBuf,
    /// Where the index is.
    state: PathBuf,
    zones: Arc<SystemZones>,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    index: Index,
    folders: Vec<PathBuf>,
    /// Since when a pipeline has no file.
    absent: BTreeMap<PipelineId, Instant>,
    /// Whether the index says what the files say now: at the start it says what they said.
    is_scanned: bool,
    /// The alert channels of the last `interlock.yaml` that could be used.
    alerts: Arc<[Alert]>,
}

/// What a scan is compared with.
pub(crate) enum Since {
    /// Pipelines are taken up: what the ledger has in force of them, by version, and which they are. A file of theirs whose
    /// version is another is told again, whatever the index says; of others nothing is told.
    Start(Vec<(PipelineId, u64)>, Agreement, IsMine),
    /// The last scan, which the engine was told of; and when this one is.
    LastScan(Instant),
}

/// Whether a pipeline is among those that are taken up.
pub(crate) type IsMine = Box<dyn Fn(&PipelineId) -> bool + Send + Sync>;

/// How long a file that was there may be absent before its pipeline is retired.
pub(crate) const ABSENT_MAX: Duration = Duration::from_secs(5);

/// More warnings than anybody reads; `validate` shows all.
const PROBLEMS_MAX: usize = 1_000;

/// Whether somebody agreed that pipelines without a file are retired, however many they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agreement {
    /// Nobody was asked.
    Open,
    /// Nobody was asked, and somebody must be: the ledger is not this host's alone.
    Needed,
    /// Somebody did.
    Given,
}

/// What became of a scan.
#[derive(Debug)]
pub(crate) struct Scan {
    /// What is wrong with the files that were read: every error, and the first [`PROBLEMS_MAX`] warnings.
    pub(crate) problems: Vec<Problem>,
    /// How many pipelines are in force.
    pub(crate) count: usize,
    /// How many changes the engine was told of.
    pub(crate) changes: usize,
    /// Whether every file was looked at: not when what stands around them is broken.
    pub(crate) is_whole: bool,
    /// How many would have been retired, if that is so many that somebody should say so.
    pub(crate) spared: usize,
    /// How many have no file just now, and are to be looked for again.
    pub(crate) absent: usize,
}

impl Files {
    pub(crate) fn new(directory: &Path, folder: &Path, zones: Arc<SystemZones>) -> Self {
        let state = folder.join("files.index");
        let index = Index::load(&state);
        let known = Known { index, ..Known::default() };
        let directory = directory.to_path_buf();
        Self { directory, state, zones, known: Arc::new(Mutex::new(known)) }
    }

    /// The same, with the channels that were read already.
    pub(crate) fn with_alerts(self, alerts: &[Alert]) -> Self {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).alerts = alerts.into();
        self
    }

    /// Reads what stands around the pipelines.
    pub(crate) fn around(directory: &Path, zones: &SystemZones) -> Result<Around, Failure> {
        if !directory.is_dir() {
            return Err(Failure::failed(
                format!("there is no directory {}", directory.display()),
                "Name the project with `-C DIR`, or write a new one with `interlock init DIR`.",
            ));
        }
        Ok(load_around(directory, zones, &environment::variable))
    }

    /// Looks at all files, tells what changed, and remembers it. It blocks; `tell` answers false when
    /// nobody listens any more.
    pub(crate) fn scan(
        &self,
        since: &Since,
        tell: &mut dyn FnMut(Changes) -> bool,
    ) -> Result<Scan, Failure> {
        let mut around = Self::around(&self.directory, &self.zones)?;
        let paths = around.paths();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let dirs = &around.config.dirs;
        let folders = dirs.pipelines.iter().chain(&dirs.calendars).chain(&dirs.archetypes);
        known.folders = folders.map(|folder| self.directory.join(folder)).collect();
        if known.alerts.is_empty() || !around.has_errors() {
            known.alerts = around.config.alerts.clone().into();
        }
        let is_folder_gone = dirs.pipelines.iter().any(|dir| !self.directory.join(dir).is_dir());
        let (zones, mut absent) = (&*self.zones, std::mem::take(&mut known.absent));
        let old = &known.index;
        let scanner = Scanner { around: &around, paths: &paths, zones, old, is_folder_gone };
        let (scan, index) = scanner.run((since, &mut absent), tell);
        known.absent = absent;
        if let Some(index) = index.filter(|index| *index != known.index) {
            if let Err(error) = index.save(&self.state) {
                tracing::warn!(%error, "cannot write the index of the files; the next start reads all of them");
            }
            known.index = index;
        }
        known.is_scanned |= scan.is_whole;
        Ok(scan)
    }

    /// Uses these alert channels, for a process that looks at no pipelines' files.
    pub(crate) fn use_channels(&self, alerts: &[Alert]) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).alerts = alerts.into();
    }

    /// The project.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The declared alert channels.
    pub(crate) fn alerts(&self) -> Arc<[Alert]> {
        Arc::clone(&self.known.lock().unwrap_or_else(PoisonError::into_inner).alerts)
    }

    /// Which pipeline a file declared, when it last could be used.
    pub(crate) fn declared_by(&self, file: &Path) -> Option<PipelineId> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = known.index.find(file.to_str()?)?;
        (entry.version != 0).then(|| entry.name.clone())
    }

    /// Which pipelines they declare, with their versions; nothing before they were looked at.
    pub(crate) fn declared(&self) -> Option<BTreeMap<PipelineId, u64>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = known.index.entries.iter().filter(|entry| entry.version != 0);
        known.is_scanned.then(|| usable.map(|entry| (entry.name.clone(), entry.version)).collect())
    }

    /// Where the files come from: the project's own directory first.
    pub(crate) fn folders(&self) -> (PathBuf, Vec<PathBuf>) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        (self.directory.clone(), known.folders.clone())
    }
}
