//! What the engine needs from the world, so that a simulated one can stand in.
//!
//! Clock, waiting and spawning come through [`World`]; declarations through [`Specs`]; the store, the
//! triggers and the evaluators have contracts of their own. Nothing else reaches outside: the crate's
//! `clippy.toml` denies the direct ways.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use interlock_core::{
    id::PipelineId,
    pipeline::Pipeline,
    readiness::{TraitResult, TraitSpec},
    zone::Zone,
};
use jiff::Timestamp;

use crate::engine::Declaration;

/// A task or an answer to wait for.
pub type Task<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Time and tasks.
pub trait World: Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Timestamp;

    /// How long this world has lasted, by a clock that nobody sets: for durations inside one process (S15).
    fn uptime(&self) -> Duration {
        Duration::try_from(self.now().duration_since(Timestamp::UNIX_EPOCH)).unwrap_or_default()
    }

    /// Since the machine was started, sleep included: what a step of the wall clock is held against (S15). Without
    /// such a clock every step is believed.
    fn boot(&self) -> Option<Duration> {
        None
    }

    /// Ready when the clock has reached an instant. Wake-ups are hints: who waits looks again.
    fn sleep_until(&self, at: Timestamp) -> Task<()>;

    /// Runs a task beside the others.
    fn spawn(&self, name: &'static str, task: Task<()>);
}

/// Declarations of pipelines, by version. A recorded slot keeps its version (S16), so old ones are asked
/// for too.
pub trait Specs: Send + Sync + 'static {
    /// What a pipeline declared in a version; a sentence when it cannot be had. Old versions are decoded
    /// from what the store kept, so this may have to read.
    fn pipeline(&self, name: &PipelineId, version: u64) -> Task<Result<Arc<Pipeline>, String>>;

    /// What a version says by the zone data of today: another version, if that data has changed since. What is
    /// counted by today's data is recorded under that one, or its count would not be its version's (S3).
    fn today(&self, name: &PipelineId, version: u64) -> Task<Result<Declaration, String>>;

    /// The zone with a name, if there is one: agendas name theirs.
    fn zone(&self, name: &str) -> Option<Zone>;
}

/// Answers for traits.
pub trait Evaluators: Send + Sync + 'static {
    /// Asks the evaluator of a trait. It has its own time limit and always answers.
    fn evaluate(&self, pipeline: &PipelineId, trait_spec: &TraitSpec) -> Task<TraitResult>;
}
