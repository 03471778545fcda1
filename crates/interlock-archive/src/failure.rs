//! What can go wrong, in sentences that say what to do.

use interlock_postgres::{refusal, whole};
use interlock_store::StoreError;
use tokio_postgres::{Error, error::SqlState};

/// Why something was not archived.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The store did not answer.
    #[error("the store cannot be read: {0}")]
    Store(#[from] StoreError),
    /// The archive did not take it.
    #[error("{message}")]
    Archive {
        /// What the server said.
        message: String,
        /// Whether the same may succeed later.
        is_retryable: bool,
    },
    /// The address is none.
    #[error("`archiver.dsn` is not the address of a server: {0}")]
    Address(String),
    /// Its cursor lies past what the store has given out.
    #[error(
        "the archive has read up to number {read}, and this store has given out {last} numbers: it holds the history of \
         another store; name an empty database in `archiver.dsn`, or move that ledger here with `interlock store copy`"
    )]
    AnotherStore {
        /// How far the archive has read.
        read: u64,
        /// The last number that the store has given.
        last: u64,
    },
    /// It was made from another store.
    #[error(
        "the archive holds the history of another store ({its}, and this one is {here}): name a database of its own in \
         `archiver.dsn`; nothing was changed"
    )]
    OfAnother {
        /// Whose history it holds.
        its: String,
        /// Which store this is.
        here: String,
    },
    /// Nobody has told the store to note what changes, and this process cannot.
    #[error(
        "what changes is not noted yet, and only the process that writes the ledger can begin it: write `archiver: \
         {{enabled: true, …}}` and start `interlock serve` again, or stop it while this runs"
    )]
    NotFollowed,
}

impl ArchiveError {
    /// Whether the same may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable,
            Self::Archive { is_retryable, .. } => *is_retryable,
            Self::Address(_)
            | Self::AnotherStore { .. }
            | Self::OfAnother { .. }
            | Self::NotFollowed => false,
        }
    }

    /// The same, with where the archive is.
    pub(crate) fn at(self, place: &impl std::fmt::Display) -> Self {
        match self {
            Self::Archive { message, is_retryable } => {
                Self::Archive { message: format!("{message} (at {place})"), is_retryable }
            }
            other @ (Self::Store(_)
            | Self::Address(_)
            | Self::AnotherStore { .. }
            | Self::OfAnother { .. }
            | Self::NotFollowed) => other,
        }
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::Archive { message: message.into(), is_retryable: false }
    }
}

impl From<Error> for ArchiveError {
    fn from(error: Error) -> Self {
        let Some(told) = error.as_db_error() else {
            // Without an answer nobody knows whether it was done; the cursor will say.
            let message = format!("the archive cannot be reached: {}", whole(&error));
            return Self::Archive { message, is_retryable: true };
        };
        let code = told.code();
        let class = code.code().get(..2).unwrap_or_default();
        let is_retryable = matches!(class, "08" | "25" | "40" | "53" | "55" | "57" | "58")
            || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT;
        let message = format!("the archive refused: {}", refusal(told));
        Self::Archive { message, is_retryable }
    }
}
