//! The one who answers.

use std::fmt;

use interlock_core::id::PipelineId;
use interlock_store::{Key, Store};
use jiff::Timestamp;

use crate::{AnswerError, Declarations};

/// Answers questions from a store and from declarations. It has no state: make one for each question.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    /// What is recorded.
    pub store: &'a dyn Store,
    /// What is declared.
    pub declarations: &'a dyn Declarations,
    /// The instant that is asked about: now, or the one of a question about another time.
    pub now: Timestamp,
}

impl Reader<'_> {
    /// The id of a pipeline that is recorded or declared.
    pub(crate) async fn known(&self, name: &str) -> Result<PipelineId, AnswerError> {
        let unknown = || AnswerError::unknown_pipeline(name);
        // What Interlock keeps for itself is under a name that is no pipeline's.
        let id = PipelineId::parse(name).map_err(|_malformed| unknown())?;
        let rows = self.store.read(&id, &[Key::Pipeline]).await?;
        let is_recorded = rows.into_iter().flatten().next().is_some();
        if is_recorded || matches!(self.declarations.current(&id).await, Ok(Some(_))) {
            return Ok(id);
        }
        Err(unknown())
    }
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("now", &self.now).finish_non_exhaustive()
    }
}
