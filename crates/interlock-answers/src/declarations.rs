//! Where declarations come from: the files for a command, the versions that the store keeps for `serve`.

use std::{collections::BTreeMap, fmt, future::Future, pin::Pin, sync::Arc};

use interlock_core::{id::PipelineId, pipeline::Pipeline, zone::Zone};
use interlock_store::AgendaRow;

use crate::model::pipeline::DeclaredAnswer;

/// What a look-up of a declaration ends with.
pub type DeclarationFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Option<Arc<Pipeline>>, String>> + Send + 'a>>;

/// What a look-up of what is in force ends with.
pub type InForceFuture<'a> =
    Pin<Box<dyn Future<Output = Result<DeclarationInForce, String>> + Send + 'a>>;

/// By what a pipeline owes its slots when owed slots are planned next.
#[derive(Debug, Clone)]
pub enum DeclarationInForce {
    /// By what its row says.
    Stored,
    /// By what its file says, which the next owner takes over before it plans.
    Declared(Arc<Pipeline>),
    /// By nothing any more: its file is gone.
    Gone,
}

/// What is declared.
pub trait Declarations: fmt::Debug + Send + Sync {
    /// The declaration that is in force; none of a pipeline that is not declared. A sentence when it cannot be loaded.
    fn current<'a>(&'a self, pipeline: &'a PipelineId) -> DeclarationFuture<'a>;

    /// A version of it, as a row names it; none that the store no longer keeps. A sentence when it cannot be loaded.
    fn version<'a>(&'a self, pipeline: &'a PipelineId, version: u64) -> DeclarationFuture<'a>;

    /// What lists say of everything that is declared, without the next slots; none where what is recorded is what is declared.
    fn declared(&self) -> Option<&BTreeMap<PipelineId, DeclaredAnswer>> {
        None
    }

    /// By what a pipeline owes its slots when owed slots are planned next.
    fn in_force<'a>(&'a self, _row: &'a AgendaRow) -> InForceFuture<'a> {
        Box::pin(std::future::ready(Ok(DeclarationInForce::Stored)))
    }

    /// Whether what is due is recorded now: whether an owner is at work.
    fn is_recording(&self) -> bool {
        true
    }

    /// A time zone by its name.
    fn zone(&self, name: &str) -> Option<Zone>;
}
