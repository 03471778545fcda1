//! What can go wrong with a file, in sentences that say what to do.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use interlock_core::text::TextError;
use interlock_store::{StoreError, record::Unreadable};
use rusqlite::ErrorCode;

/// Why a piece of work failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// SQLite says so.
    Sql(rusqlite::Error),
    /// A stored row cannot be understood.
    Unreadable(String),
    /// It is said already.
    Said(StoreError),
    /// Hope was not enough: it must be done again, with care.
    Again,
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Unreadable> for Failure {
    fn from(error: Unreadable) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl From<TextError> for Failure {
    fn from(error: TextError) -> Self {
        Self::Unreadable(error.message)
    }
}

impl From<jiff::Error> for Failure {
    fn from(error: jiff::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// What a failure means for the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The work was not done; others are not concerned.
    Passing,
    /// Nothing that is in memory or was acknowledged lately can be relied on: stop.
    Fatal,
}

/// A failure, said.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    message: String,
    is_retryable: bool,
    pub(crate) severity: Severity,
}

impl Trouble {
    /// Says what a failure with a file means.
    pub(crate) fn of(failure: Failure, path: &Path) -> Self {
        match failure {
            Failure::Sql(error) => Self::of_sql(&error, path),
            Failure::Unreadable(what) => Self {
                message: format!("{} holds what cannot be read: {what}", path.display()),
                is_retryable: false,
                severity: Severity::Passing,
            },
            Failure::Said(StoreError { message, is_retryable }) => {
                Self { message, is_retryable, severity: Severity::Passing }
            }
            // With care it cannot happen.
            Failure::Again => Self {
                message: format!("{}: a change had no effect", path.display()),
                is_retryable: true,
                severity: Severity::Passing,
            },
        }
    }

    fn of_sql(error: &rusqlite::Error, path: &Path) -> Self {
        use Severity::{Fatal, Passing};
        let file = path.display();
        let (message, is_retryable, severity) = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => {
                let cure = "nothing was written; free some space";
                (format!("the disk is full under {file}: {cure}"), true, Passing)
            }
            Some(ErrorCode::SystemIoFailure) => {
                // Whether the last transaction is on the disk is unknown: read again after a restart.
                let cure = "what was being written may be lost; look at the disk, then start again";
                (format!("the disk failed under {file} ({error}): {cure}"), true, Fatal)
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                (damaged(path, &error.to_string()), false, Fatal)
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                (format!("{file} is in use by another process"), true, Passing)
            }
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                let cure = "check that it exists and that its owner and permissions are right";
                (format!("{file} cannot be used ({error}): {cure}"), false, Passing)
            }
            _ => (format!("{file}: {error}"), false, Passing),
        };
        Self { message, is_retryable, severity }
    }

    /// What a caller hears.
    pub(crate) fn error(&self) -> StoreError {
        StoreError { message: self.message.clone(), is_retryable: self.is_retryable }
    }
}

/// What to do about a file that is no longer what it was.
pub(crate) fn damaged(path: &Path, detail: &str) -> String {
    let file = path.display();
    format!(
        "{file} is damaged or no ledger of Interlock ({detail}). Nothing was changed. `interlock store check` \
         says what is wrong; restore a backup over it, or start with `interlock serve --recover`, which sets the \
         file aside and begins a new one with what can still be read"
    )
}

/// The file that threads work on, and why none of them may any more.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    path: PathBuf,
    poison: Arc<OnceLock<String>>,
}

impl Health {
    /// A file that is well.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, poison: Arc::default() }
    }

    /// An error, if nothing may be done with the file any more.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let refusal = |why| StoreError::permanent(format!("the store has stopped: {why}"));
        self.poison.get().map_or(Ok(()), |why| Err(refusal(why)))
    }

    /// Nothing may be done with the file any more, for this reason; the first reason is the one to look at.
    pub(crate) fn stop(&self, why: String) {
        self.poison.get_or_init(|| why);
    }

    /// Says what a failure means, and stops everything if it must.
    pub(crate) fn diagnose(&self, failure: Failure) -> Trouble {
        let trouble = Trouble::of(failure, &self.path);
        if trouble.severity == Severity::Fatal {
            self.stop(trouble.message.clone());
        }
        trouble
    }
}
