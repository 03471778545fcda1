//! Reading a few rows on the thread of whoever asks.
//!
//! Their pages are in memory nearly always, and waking a reader and being woken by it takes several times as long as the look
//! itself: 120 µs of the 1,700 that a short job of a catch-up took. It waits for nobody: what cannot be had at once is left
//! to the readers, and so is saying what is wrong.

use std::{path::Path, sync::Mutex, time::Duration};

use interlock_store::StoreError;
use rusqlite::Connection;

use crate::{
    failure::{Failure, Health},
    file,
    readers::within_transaction,
};

/// More rows than this are no glance. The end of a job looks for a dozen incidents.
pub(crate) const ROWS_MAX: usize = 32;

/// A connection for looks.
#[derive(Debug)]
pub(crate) struct Glance {
    db: Mutex<Connection>,
    health: Health,
}

impl Glance {
    /// Opens the file once more.
    pub(crate) fn open(path: &Path, health: Health) -> Result<Self, StoreError> {
        let db = file::open_reading(path)?;
        let outcome = db.busy_timeout(Duration::ZERO);
        outcome.map_err(|error| health.diagnose(Failure::Sql(error)).error())?;
        Ok(Self { db: Mutex::new(db), health })
    }

    /// Looks, unless somebody else does, or it fails.
    pub(crate) fn take<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Failure>,
    ) -> Option<T> {
        self.health.check().ok()?;
        let mut db = self.db.try_lock().ok()?;
        within_transaction(&mut db, work).ok()
    }
}
