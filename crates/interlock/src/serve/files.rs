//! The project's files as the engine sees them: declarations by version, the last good ones.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use interlock_alert::Book;
use interlock_config::{Loaded, Problem, Severity, server::Alert};
use interlock_core::{id::PipelineId, pipeline::Pipeline};
use interlock_engine::{Declaration, seam::Specs};
use interlock_store::record::VersionRecord;

use crate::clock;

/// Declarations in force, and those of versions that were in force since the start.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    directory: PathBuf,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    current: BTreeMap<PipelineId, Declaration>,
    versions: BTreeMap<(PipelineId, u64), Arc<Pipeline>>,
    folders: Vec<PathBuf>,
    /// The channels of the last `interlock.yaml` that could be used; the defaults if none could.
    alerts: Option<Arc<[Alert]>>,
    /// Which pipeline a file declared last.
    names: BTreeMap<PathBuf, PipelineId>,
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
        if known.alerts.is_none() || !is_config_broken(&loaded.problems) {
            known.alerts = Some(loaded.config.alerts.clone().into());
        }
        let mut current = BTreeMap::new();
        for new in loaded.pipelines {
            let declaration = Declaration {
                version: new.version,
                source: VersionRecord {
                    since: clock::now(),
                    source: std::fs::read_to_string(&new.file).unwrap_or_default(),
                    context: BTreeMap::new(),
                },
                pipeline: Arc::new(new.pipeline),
            };
            let name = declaration.pipeline.name.clone();
            known.names.insert(new.file, name.clone());
            let version = (name.clone(), declaration.version);
            known.versions.insert(version, Arc::clone(&declaration.pipeline));
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

    /// Which pipeline a file declared, when it last could be used.
    pub(crate) fn declared_by(&self, file: &Path) -> Option<PipelineId> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).names.get(file).cloned()
    }

    /// How many pipelines are in force.
    pub(crate) fn count(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).current.len()
    }
}

fn broken_files(problems: &[Problem]) -> usize {
    problems.iter().filter(|problem| problem.severity == Severity::Error).count()
}

fn is_config_broken(problems: &[Problem]) -> bool {
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error);
    errors.into_iter().any(|problem| problem.file.path.ends_with("interlock.yaml"))
}

impl Book for Files {
    fn channels(&self) -> Arc<[Alert]> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.alerts.clone().unwrap_or_default()
    }

    fn pipeline<'a>(&'a self, name: &'a PipelineId) -> interlock_alert::Known<'a> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let current = known.current.get(name);
        let pipeline = current.map(|declaration| Arc::clone(&declaration.pipeline));
        Box::pin(std::future::ready(pipeline))
    }
}

impl Specs for Files {
    fn pipeline(&self, name: &PipelineId, version: u64) -> Result<Arc<Pipeline>, String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.versions.get(&(name.clone(), version)) {
            return Ok(Arc::clone(found));
        }
        // A version from before the start: the files that made it are gone, today's speak for it.
        let current = known.current.get(name).map(|declaration| Arc::clone(&declaration.pipeline));
        current.ok_or_else(|| format!("no file declares `{name}`"))
    }
}
