//! What a server says, in sentences that say what to do.

use interlock_postgres::{refusal, whole};
use interlock_store::StoreError;
use tokio_postgres::{Error, error::SqlState};

/// What an error of the server or of the way to it means.
pub(crate) fn said(error: &Error) -> StoreError {
    let Some(told) = error.as_db_error() else {
        // Without an answer nobody knows whether it was done.
        return StoreError::retryable(format!("PostgreSQL cannot be reached: {}", whole(error)));
    };
    let message = format!("PostgreSQL refused: {}", refusal(told));
    if is_passing(told.code()) {
        StoreError::retryable(message)
    } else {
        StoreError::permanent(message)
    }
}

/// Whether trying again may help: the server is starting, ending, full or busy, or two were in each other's way.
fn is_passing(code: &SqlState) -> bool {
    let class = code.code().get(..2).unwrap_or_default();
    matches!(class, "08" | "40" | "53" | "55" | "57" | "58")
        || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
}
