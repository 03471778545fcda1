//! The archiver: reads the next batch while the last one is written.

use std::sync::Arc;

use interlock_store::{Store, StoreError};

use tokio::task::{JoinError, JoinHandle};

use crate::{
    READS_MAX, ROWS_AT_ONCE,
    batch::Batch,
    failure::ArchiveError,
    load::Load,
    reading::{Appetite, Position, gather},
    target::{Target, Written},
};

/// Whether the store is told how far the archive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    /// After each batch; it then notes what changes, and forgets what is archived.
    Store,
    /// Not at all: this process only reads it.
    Nobody,
}

/// What was archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Events, rows that were written, and batches.
    pub events: u64,
    /// Runs, slots, spans and incidents, each counted as often as it was written.
    pub rows: u64,
    /// Transactions.
    pub batches: u64,
}

/// How the archive stands after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// There is more to read.
    Behind,
    /// It has everything that was there when it looked.
    Current,
}

/// Copies a store to an archive.
#[derive(Debug)]
pub struct Archiver {
    store: Arc<dyn Store>,
    target: Target,
    telling: Telling,
    position: Position,
    /// What the next batch takes: few reads at first, so that one who is killed often gets on all the same.
    appetite: Appetite,
    /// What is read while the last batch is written.
    ahead: Option<Ahead>,
    /// What was archived since it was opened.
    pub summary: Summary,
}

impl Archiver {
    /// Opens the archive, and has the store note what changes from now on.
    pub async fn open(
        store: Arc<dyn Store>,
        dsn: &str,
        telling: Telling,
    ) -> Result<Self, ArchiveError> {
        let target = Target::open(dsn).await?;
        let position = target.position().await?;
        belongs(store.as_ref(), (&target, &position)).await?;
        if telling == Telling::Store {
            store.archived(Some(position.archived())).await?;
        }
        let (summary, appetite) = (Summary::default(), Appetite { reads: 1, rows: ROWS_AT_ONCE });
        Ok(Self { store, target, telling, position, appetite, ahead: None, summary })
    }

    /// Reads so many rows at once instead of [`ROWS_AT_ONCE`].
    #[must_use]
    pub fn reading(mut self, rows: usize) -> Self {
        self.appetite.rows = rows;
        self
    }

    /// Archives one batch.
    pub async fn pass(&mut self) -> Result<Standing, ArchiveError> {
        let ahead = match self.ahead.take() {
            Some(ahead) => ahead,
            None => read_on(&self.store, &self.position, self.appetite),
        };
        let Loaded { load, to, more } = ahead.await.map_err(|error| broken(&error))??;
        let events = load.events.len() as u64;
        if events + load.rows == 0 && to == self.position {
            return Ok(Standing::Current);
        }
        self.appetite.reads = (self.appetite.reads * 2).min(READS_MAX);
        // Written later, because the cursors move in order; read and encoded already now, beside the server's work.
        let ahead = more.then(|| read_on(&self.store, &to, self.appetite));
        let written = self.target.write(&load, (&self.position, &to)).await?;
        if written == Written::Overtaken {
            self.position = self.target.position().await?;
            return Ok(Standing::Behind);
        }
        self.ahead = ahead;
        self.position = to;
        self.summary.events += events;
        self.summary.rows += load.rows;
        self.summary.batches += 1;
        self.tell().await?;
        Ok(if more { Standing::Behind } else { Standing::Current })
    }

    /// Archives all that is there.
    pub async fn catch_up(&mut self) -> Result<(), ArchiveError> {
        while self.pass().await? == Standing::Behind {}
        Ok(())
    }

    async fn tell(&self) -> Result<(), StoreError> {
        match self.telling {
            Telling::Store => self.store.archived(Some(self.position.archived())).await,
            Telling::Nobody => Ok(()),
        }
    }
}

/// A batch that was read and encoded.
#[derive(Debug)]
struct Loaded {
    load: Load,
    to: Position,
    more: bool,
}

type Ahead = JoinHandle<Result<Loaded, ArchiveError>>;

/// Reads what comes next, in a task of its own.
fn read_on(store: &Arc<dyn Store>, from: &Position, appetite: Appetite) -> Ahead {
    let (store, from) = (Arc::clone(store), from.clone());
    tokio::spawn(async move {
        let read = gather(store.as_ref(), &from, appetite).await?;
        let (to, more) = (read.position.clone(), read.more);
        Ok(Loaded { load: Load::of(&Batch::of(read)), to, more })
    })
}

fn broken(error: &JoinError) -> ArchiveError {
    ArchiveError::refused(format!("reading broke off, which is a fault in Interlock: {error}"))
}

/// Refuses an archive that belongs to another store; an empty one belongs to this from now on.
async fn belongs(
    store: &dyn Store,
    (target, position): (&Target, &Position),
) -> Result<(), ArchiveError> {
    let mark = store.mark().await?;
    let read = position.events.max(position.changes);
    if read > mark.number {
        return Err(ArchiveError::AnotherStore { read, last: mark.number });
    }
    let (here, its) = (mark.store.to_string(), target.store(mark.store).await?);
    if its == here { Ok(()) } else { Err(ArchiveError::OfAnother { its, here }) }
}
