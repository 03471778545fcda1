//! The project's files as the engine sees them: the last good declarations.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use interlock_config::{Loaded, Problem, Severity};
use interlock_core::id::PipelineId;
use interlock_engine::Declaration;
use interlock_store::record::VersionRecord;

use crate::clock;

/// Declarations in force.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    directory: PathBuf,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    current: BTreeMap<PipelineId, Declaration>,
    folders: Vec<PathBuf>,
}

impl Files {
    pub(crate) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_path_buf(), known: Arc::default() }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Takes over what was loaded. A file that is broken keeps its last good declaration.
    pub(crate) fn install(&self, loaded: Loaded) -> Vec<Declaration> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let dirs = &loaded.config.dirs;
        let folders = dirs.pipelines.iter().chain(&dirs.calendars).chain(&dirs.archetypes);
        known.folders = folders.map(|folder| self.directory.join(folder)).collect();
        let broken = broken_files(&loaded.problems);
        let mut current = BTreeMap::new();
        for new in loaded.pipelines {
            let declaration = Declaration {
                version: new.version,
                source: VersionRecord {
                    since: clock::now(),
                    source: new.source,
                    context: new.context,
                },
                pipeline: Arc::new(new.pipeline),
            };
            let name = declaration.pipeline.name.clone();
            current.insert(name, declaration);
        }
        if broken > 0 {
            for (name, last_good) in &known.current {
                current.entry(name.clone()).or_insert_with(|| last_good.clone());
            }
        }
        known.current = current;
        known.current.values().cloned().collect()
    }

    /// Where the files in force come from.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).folders.clone()
    }

    /// How many pipelines are in force.
    pub(crate) fn count(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).current.len()
    }
}

fn broken_files(problems: &[Problem]) -> usize {
    problems.iter().filter(|problem| problem.severity == Severity::Error).count()
}
