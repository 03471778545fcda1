//! The project's files as the engine sees them: what changed since it was last told.
//!
//! A scan looks at every file from outside and reads those that look different from what the index
//! remembers, several at a time; it keeps none of them. What it finds goes to the engine in portions, so
//! that a first load of a hundred thousand files needs the memory of a few thousand.
//!
//! A file that is broken keeps its last good version. While a broken file does not even say its name, nothing
//! is retired: it could be any of those that are missing.

mod scan;
#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use interlock_config::{Around, Problem, SystemZones, load_around};
use interlock_core::id::PipelineId;
use interlock_engine::Changes;

use self::scan::Scanner;
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
}

/// What a scan is compared with.
#[derive(Debug)]
pub(crate) enum Since {
    /// A start: what the ledger has in force, by version. A file whose version is another is told again,
    /// whatever the index says.
    Start(Vec<(PipelineId, u64)>),
    /// The last scan, which the engine was told of.
    LastScan,
}

/// More problems than anybody reads; `validate` shows all.
const PROBLEMS_MAX: usize = 1_000;

/// What became of a scan.
#[derive(Debug)]
pub(crate) struct Scan {
    /// What is wrong with the files that were read; at most [`PROBLEMS_MAX`], the first.
    pub(crate) problems: Vec<Problem>,
    /// How many errors there are altogether.
    pub(crate) errors: usize,
    /// How many pipelines are in force.
    pub(crate) count: usize,
    /// How many changes the engine was told of.
    pub(crate) changes: usize,
    /// How many would have been retired, if that is so many that somebody should say so.
    pub(crate) spared: usize,
}

impl Files {
    pub(crate) fn new(directory: &Path, folder: &Path, zones: Arc<SystemZones>) -> Self {
        let state = folder.join("files.index");
        let known = Known { index: Index::load(&state), folders: vec![] };
        let directory = directory.to_path_buf();
        Self { directory, state, zones, known: Arc::new(Mutex::new(known)) }
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
        let old = &known.index;
        let scanner = Scanner { around: &around, paths: &paths, zones: &self.zones, old };
        let (scan, index) = scanner.run(since, tell);
        if let Some(index) = index.filter(|index| *index != known.index) {
            if let Err(error) = index.save(&self.state) {
                tracing::warn!(%error, "the index of the files cannot be written; a start reads all");
            }
            known.index = index;
        }
        Ok(scan)
    }

    /// Where the files come from: the project's own directory first.
    pub(crate) fn folders(&self) -> (PathBuf, Vec<PathBuf>) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        (self.directory.clone(), known.folders.clone())
    }
}
