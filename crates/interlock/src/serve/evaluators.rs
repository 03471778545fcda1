//! The evaluators as `interlock.yaml` sets them up.

use std::{io, path::Path, sync::Arc};

use interlock_config::server::ServerConfig;
use interlock_core::{
    id::PipelineId,
    readiness::{TraitResult, TraitSpec, TraitStatus},
};
use interlock_engine::seam::{Evaluators, Task};
use interlock_evaluator::{LocalEvaluators, Options};
use tokio::runtime::Handle;

use crate::clock;

/// The evaluators of a project; programs are looked up relative to it, and run there.
pub(crate) fn of(directory: &Path, config: &ServerConfig) -> io::Result<LocalEvaluators> {
    let directory = directory.canonicalize()?;
    let folders = config.dirs.evaluators.iter().map(|folder| directory.join(folder)).collect();
    let options = Options {
        timeout: config.engine.default_timeout,
        at_once: config.engine.evaluations_max as usize,
        outbound: config.engine.outbound.clone(),
        ..Options::new(directory, folders)?
    };
    LocalEvaluators::new(options, Arc::new(clock::now))
}

/// The same for threads of another runtime: an evaluator lives where it was set up.
pub(crate) struct RemoteEvaluators {
    pub(crate) evaluators: Arc<dyn Evaluators>,
    pub(crate) runtime: Handle,
}

impl Evaluators for RemoteEvaluators {
    fn evaluate(&self, pipeline: &PipelineId, trait_spec: &TraitSpec) -> Task<TraitResult> {
        let (evaluators, pipeline) = (Arc::clone(&self.evaluators), pipeline.clone());
        let trait_spec = trait_spec.clone();
        let asked = async move { evaluators.evaluate(&pipeline, &trait_spec).await };
        let asked = self.runtime.spawn(asked);
        Box::pin(async move {
            asked.await.unwrap_or_else(|broken| TraitResult {
                status: TraitStatus::Error,
                value: None,
                reason: Some(format!("it was not asked to the end: {broken}")),
                category: None,
            })
        })
    }
}
