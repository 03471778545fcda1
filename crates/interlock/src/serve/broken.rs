//! Broken files: each is an incident until it can be used again.
//!
//! Which are broken is not remembered here but in the incidents themselves, so that a file that was mended while
//! nobody looked is noticed at the next start.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use interlock_config::{Problem, Severity};
use interlock_core::id::PipelineId;
use interlock_store::{Shard, Store, StoreError, record::InboxRecord};
use tokio::task::JoinSet;

use crate::{
    clock,
    serve::{
        files::{Files, Scan},
        unreached::Unreached,
    },
};

/// Incidents looked at when starting: more broken files than anybody has.
const INCIDENTS_MAX: usize = 100_000;

/// Which files are known to be broken.
#[derive(Debug)]
pub(crate) struct BrokenFiles {
    files: Files,
    store: Arc<dyn Store>,
    /// By file, and under which pipeline's id that was said.
    known: BTreeMap<String, PipelineId>,
}

impl BrokenFiles {
    /// What the open incidents say, as far as they can be reached.
    pub(crate) async fn load(files: Files, store: Arc<dyn Store>, unreached: &Unreached) -> Self {
        let mut known = BTreeMap::new();
        let mut asking = JoinSet::new();
        for shard in (0..store.shard_count()).map(Shard).filter(|shard| !unreached.has(*shard)) {
            let store = Arc::clone(&store);
            asking.spawn(async move { store.open_incidents(shard, None, INCIDENTS_MAX).await });
        }
        for answer in asking.join_all().await {
            match answer {
                Ok(page) => {
                    for (pipeline, key, _) in page.items {
                        if let Some(file) = key.strip_prefix("config:") {
                            known.insert(file.to_owned(), pipeline);
                        }
                    }
                }
                Err(error) => tracing::warn!(%error, "cannot read which files were broken"),
            }
        }
        Self { files, store, known }
    }

    /// Says which files cannot be used now, and which can be used again. What was not looked at is neither.
    pub(crate) async fn report(&mut self, scan: &Scan) {
        let directory = self.files.directory().to_path_buf();
        let broken = broken(&scan.problems, &directory);
        for (file, (path, problem)) in &broken {
            if self.known.contains_key(file) {
                continue;
            }
            // Under the pipeline whose last good version stays in force, so that its owner hears of it.
            let pipeline = self.files.declared_by(path).unwrap_or_else(PipelineId::system);
            if self.post(&pipeline, file, Some(problem)).await.is_ok() {
                self.known.insert(file.clone(), pipeline);
            }
        }
        if !scan.is_whole {
            return;
        }
        let mended: Vec<_> =
            self.known.iter().filter(|(file, _)| !broken.contains_key(*file)).collect();
        let mut posted = Vec::new();
        for (file, pipeline) in mended {
            if self.post(pipeline, file, None).await.is_ok() {
                posted.push(file.clone());
            }
        }
        self.known.retain(|file, _| !posted.contains(file));
    }

    async fn post(
        &self,
        pipeline: &PipelineId,
        file: &str,
        problem: Option<&str>,
    ) -> Result<(), StoreError> {
        let record =
            InboxRecord::File { file: file.to_owned(), problem: problem.map(str::to_owned) };
        let key = format!("file:{file}:{}", clock::now().as_microsecond());
        let posted = self.store.post(pipeline, &key, &record).await;
        posted.inspect_err(|error| tracing::warn!(%error, file, "cannot record its state yet"))
    }
}

/// The files with errors, by their place in the project: the path, and the first error with its line.
fn broken<'a>(problems: &'a [Problem], directory: &Path) -> BTreeMap<String, (&'a Path, String)> {
    let mut broken = BTreeMap::new();
    for problem in problems.iter().filter(|problem| problem.severity == Severity::Error) {
        let path = problem.file.path.as_path();
        let file = path.strip_prefix(directory).unwrap_or(path).display().to_string();
        let line = problem.file.position(problem.span.start).line;
        broken.entry(file).or_insert_with(|| (path, format!("line {line}: {}", problem.message)));
    }
    broken
}
