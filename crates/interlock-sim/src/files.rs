//! The declarations of a simulated project: every version that there ever was, and which are in the files now.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use interlock_config::{Context, SystemZones, ZoneSource as _, parse_pipeline};
use interlock_core::{id::PipelineId, pipeline::Pipeline, zone::Zone};
use interlock_engine::{
    Changes, Declaration, Engine,
    seam::{Specs, Task},
};
use interlock_store::record::VersionRecord;
use jiff::Timestamp;

use crate::truth::Truth;

/// The files, and all that they ever said.
#[derive(Clone, Debug)]
pub struct Files(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    zones: SystemZones,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    now: BTreeMap<PipelineId, Declaration>,
    truths: BTreeMap<PipelineId, Arc<Truth>>,
    ever: BTreeMap<(PipelineId, u64), Version>,
}

/// What a version says, to the engine and really.
type Version = (Arc<Pipeline>, Option<Arc<Truth>>);

impl Default for Files {
    fn default() -> Self {
        let shared = Shared { zones: SystemZones::new(), inner: Mutex::default() };
        Self(Arc::new(shared))
    }
}

impl Files {
    /// Writes a file.
    pub fn write(&self, text: &str, since: Timestamp) -> Result<Declaration, String> {
        let (context, no_environment) = (Context::default(), |_: &str| None);
        let path = Path::new("pipeline.yaml");
        let (loaded, problems) =
            parse_pipeline(path, text, &context, &self.0.zones, &no_environment);
        let loaded = loaded.ok_or_else(|| format!("{problems:?}\n{text}"))?;
        let source = VersionRecord { since, source: text.to_owned(), context: BTreeMap::new() };
        let pipeline = Arc::new(loaded.pipeline);
        let declaration =
            Declaration { pipeline: Arc::clone(&pipeline), version: loaded.version, source };
        let name = pipeline.name.clone();
        let mut inner = self.lock();
        inner.ever.insert((name.clone(), loaded.version), (pipeline, None));
        inner.now.insert(name, declaration.clone());
        Ok(declaration)
    }

    /// Writes the file of a pipeline whose truth is known.
    pub fn write_truth(&self, truth: Truth, since: Timestamp) -> Result<Declaration, String> {
        let declaration = self.write(&truth.text(), since)?;
        let truth = Arc::new(truth);
        let name = declaration.pipeline.name.clone();
        let mut inner = self.lock();
        if let Some((_, known)) = inner.ever.get_mut(&(name.clone(), declaration.version)) {
            *known = Some(Arc::clone(&truth));
        }
        inner.truths.insert(name, truth);
        Ok(declaration)
    }

    /// Removes a file; what it said is kept.
    pub fn remove(&self, name: &PipelineId) {
        self.lock().now.remove(name);
    }

    /// Whether its file is there.
    pub fn has(&self, name: &PipelineId) -> bool {
        self.lock().now.contains_key(name)
    }

    /// What a pipeline's file says, or said last.
    pub fn truth(&self, name: &PipelineId) -> Option<Arc<Truth>> {
        self.lock().truths.get(name).cloned()
    }

    /// What a version said.
    pub fn truth_of(&self, name: &PipelineId, version: u64) -> Option<Arc<Truth>> {
        let inner = self.lock();
        inner.ever.get(&(name.clone(), version)).and_then(|(_, truth)| truth.clone())
    }

    /// The pipelines that there ever were.
    pub fn names(&self) -> Vec<PipelineId> {
        self.lock().truths.keys().cloned().collect()
    }

    /// The declarations that are in the files.
    pub fn declarations(&self) -> Vec<Declaration> {
        self.lock().now.values().cloned().collect()
    }

    /// What is different from what an engine has.
    pub fn changes(&self, engine: &Engine) -> Changes {
        let known: BTreeMap<_, _> = engine.in_force().collect();
        let inner = self.lock();
        let is_new = |new: &&Declaration| {
            known.get(&new.pipeline.name).is_none_or(|version| *version != new.version)
        };
        let removed = known.keys().filter(|name| !inner.now.contains_key(**name));
        Changes {
            declared: inner.now.values().filter(is_new).cloned().collect(),
            removed: removed.map(|name| (*name).clone()).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Specs for Files {
    fn pipeline(&self, name: &PipelineId, version: u64) -> Task<Result<Arc<Pipeline>, String>> {
        let inner = self.lock();
        let found = inner.ever.get(&(name.clone(), version)).map(|(spec, _)| Arc::clone(spec));
        Box::pin(std::future::ready(found.ok_or_else(|| format!("{name} has no such version"))))
    }

    fn zone(&self, name: &str) -> Option<Zone> {
        self.0.zones.zone(name)
    }
}
