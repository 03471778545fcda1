//! What is declared, for those who answer questions: a command takes it from the project's files, `serve` from the versions that the
//! store keeps, because those are in force there.

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use interlock_answers::{
    DeclarationFuture, DeclarationInForce, Declarations, InForceFuture,
    model::pipeline::DeclaredAnswer,
};
use interlock_config::{SystemZones, ZoneSource as _};
use interlock_core::{id::PipelineId, pipeline::Pipeline, zone::Zone};
use interlock_engine::seam::Specs as _;
use interlock_store::{AgendaRow, Key, Record, Shard, Store, record::version_number};

use crate::{
    exit::Failure,
    output::Output,
    place::Place,
    project_summary::Project,
    serve::{files::is_much, specs::StoredSpecs},
    served_files::rows_are_in_force,
};

/// Rows asked for at once.
const PORTION: usize = 1_000;

/// The declarations of the store.
pub(crate) struct StoredDeclarations {
    store: Arc<dyn Store>,
    specs: StoredSpecs,
}

impl fmt::Debug for StoredDeclarations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredDeclarations")
    }
}

impl StoredDeclarations {
    /// Those of a store, through a cache of whole declarations.
    pub(crate) fn new(store: Arc<dyn Store>, specs: StoredSpecs) -> Self {
        Self { store, specs }
    }

    async fn read_current(&self, name: &PipelineId) -> Result<Option<Arc<Pipeline>>, String> {
        let rows = self.store.read(name, &[Key::Pipeline]).await;
        let rows = rows.map_err(|error| format!("the store failed: {error}"))?;
        let row = rows.into_iter().flatten().next().map(|row| row.record);
        let Some(Record::Pipeline(record)) = row else { return Ok(None) };
        if record.retired_at.is_some() {
            return Ok(None);
        }
        let version = version_number(&record.version).map_err(|error| error.to_string())?;
        self.specs.pipeline(name, version).await.map(Some)
    }
}

impl Declarations for StoredDeclarations {
    fn current<'a>(&'a self, pipeline: &'a PipelineId) -> DeclarationFuture<'a> {
        Box::pin(self.read_current(pipeline))
    }

    fn version<'a>(&'a self, pipeline: &'a PipelineId, version: u64) -> DeclarationFuture<'a> {
        Box::pin(async move { self.specs.pipeline(pipeline, version).await.map(Some) })
    }

    fn zone(&self, name: &str) -> Option<Zone> {
        self.specs.zone(name)
    }
}

/// The declarations of a project's files, read when one is first asked for.
pub(crate) struct FileDeclarations {
    directory: PathBuf,
    place: Place,
    project: OnceLock<Project>,
    found: Mutex<BTreeMap<PipelineId, Option<Arc<Pipeline>>>>,
    store: Arc<dyn Store>,
    /// Versions that the files no longer have.
    stored: StoredSpecs,
    /// Whether so many files are missing that it is believed to be a mistake.
    is_spared: OnceLock<bool>,
    zones: SystemZones,
    /// Whether the rows of the store say all that the files could.
    rows_are_in_force: OnceLock<bool>,
}

impl fmt::Debug for FileDeclarations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDeclarations")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

impl FileDeclarations {
    /// Those of a project's files; older versions come from its store.
    pub(crate) fn new(directory: PathBuf, place: Place, store: Arc<dyn Store>) -> Self {
        let stored = StoredSpecs::new(Arc::clone(&store), Arc::default());
        Self {
            directory,
            place,
            project: OnceLock::new(),
            found: Mutex::default(),
            store,
            stored,
            is_spared: OnceLock::new(),
            zones: SystemZones::new(),
            rows_are_in_force: OnceLock::new(),
        }
    }

    /// What lists say of the project.
    pub(crate) fn project(&self) -> &Project {
        self.project.get_or_init(|| Project::open(&self.directory, &self.place))
    }

    /// Says on standard error that parts of the project could not be used; nothing where its files need not be read.
    pub(crate) fn mention_errors(&self, output: &mut Output) -> Result<bool, Failure> {
        if self.rows_are_in_force() { Ok(false) } else { self.project().mention_errors(output) }
    }

    fn rows_are_in_force(&self) -> bool {
        let look = || rows_are_in_force(&self.directory, &self.place, self.store.as_ref());
        *self.rows_are_in_force.get_or_init(look)
    }

    fn find(&self, name: &PipelineId) -> Option<Arc<Pipeline>> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || self.project().pipeline(name).map(Arc::new);
        found.entry(name.clone()).or_insert_with(read).clone()
    }
}

impl FileDeclarations {
    /// What the next `serve` has in force of a pipeline, before it plans.
    async fn read_in_force(&self, row: &AgendaRow) -> Result<DeclarationInForce, String> {
        if self.is_recording() {
            return Ok(DeclarationInForce::Stored);
        }
        if let Some(declared) = self.find(&row.pipeline) {
            return Ok(DeclarationInForce::Declared(declared));
        }
        // A broken file keeps what it said, and could be any that is missing.
        let is_shared = self.store.shard_count() > 1;
        if self.project().has_errors() || row.record.record.retired_at.is_some() || is_shared {
            return Ok(DeclarationInForce::Stored);
        }
        let is_spared = match self.is_spared.get() {
            Some(known) => *known,
            None => *self.is_spared.get_or_init({
                let is_spared = self.read_is_spared().await?;
                move || is_spared
            }),
        };
        Ok(if is_spared { DeclarationInForce::Stored } else { DeclarationInForce::Gone })
    }

    async fn read_is_spared(&self) -> Result<bool, String> {
        let declared = &self.project().summary.pipelines;
        let (mut gone, mut known, mut after) = (0, 0, None);
        loop {
            let page = self.store.agenda(Shard(0), after.as_ref(), PORTION).await;
            let page = page.map_err(|error| format!("the store failed: {error}"))?;
            for row in page.items.iter().filter(|row| row.record.record.retired_at.is_none()) {
                known += 1;
                gone += usize::from(!declared.contains_key(&row.pipeline));
            }
            after = page.items.last().map(|row| row.pipeline.clone());
            if !page.more {
                return Ok(is_much(gone, known));
            }
        }
    }
}

impl Declarations for FileDeclarations {
    fn in_force<'a>(&'a self, row: &'a AgendaRow) -> InForceFuture<'a> {
        Box::pin(self.read_in_force(row))
    }

    fn is_recording(&self) -> bool {
        self.place.is_served()
    }

    fn current<'a>(&'a self, pipeline: &'a PipelineId) -> DeclarationFuture<'a> {
        if self.rows_are_in_force() {
            let stored = StoredDeclarations::new(Arc::clone(&self.store), self.stored.clone());
            return Box::pin(async move { stored.read_current(pipeline).await });
        }
        Box::pin(std::future::ready(Ok(self.find(pipeline))))
    }

    fn version<'a>(&'a self, pipeline: &'a PipelineId, version: u64) -> DeclarationFuture<'a> {
        Box::pin(async move { self.stored.pipeline(pipeline, version).await.map(Some) })
    }

    fn declared(&self) -> Option<&BTreeMap<PipelineId, DeclaredAnswer>> {
        (!self.rows_are_in_force()).then(|| &self.project().summary.pipelines)
    }

    fn zone(&self, name: &str) -> Option<Zone> {
        self.zones.zone(name)
    }
}
