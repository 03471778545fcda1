//! What Interlock notices about itself, on its way to people: a letter under `_system`.

use interlock_core::id::PipelineId;
use interlock_store::{Key, Record, Store, StoreError, record::InboxRecord};

use crate::inbox::fresh_key;

/// Whether the trouble is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    No,
    Yes,
}

/// Has people told; false if even that was not possible.
pub(super) async fn notice(
    store: &dyn Store,
    (event, thing): (&str, &str),
    message: String,
    over: Over,
) -> bool {
    let record = InboxRecord::Noticed {
        event: event.to_owned(),
        thing: thing.to_owned(),
        message,
        over: over == Over::Yes,
    };
    let post = store.post(&PipelineId::system(), &fresh_key(), &record).await;
    post.inspect_err(|error| tracing::warn!(%error, "the notice could not be recorded")).is_ok()
}

/// Whether an incident of Interlock's own is open, by its key.
pub(super) async fn is_open(store: &dyn Store, key: String) -> Result<bool, StoreError> {
    let rows = store.read(&PipelineId::system(), &[Key::Incident(key)]).await?;
    let is_open = |record: &Record| matches!(record, Record::Incident(it) if it.is_open());
    Ok(rows.into_iter().flatten().any(|row| is_open(&row.record)))
}
