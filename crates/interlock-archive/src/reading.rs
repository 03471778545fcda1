//! Reading: what comes next in the store, after a position.

use interlock_store::{Archived, Changes, EventRow, Rows, Store, StoredRow};

use crate::failure::ArchiveError;

/// How far the archive has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    /// The number of the last event.
    pub(crate) events: u64,
    /// The number of the last change.
    pub(crate) changes: u64,
    /// Where the walk through all rows stands, while there is one.
    pub(crate) walk: Option<String>,
}

impl Position {
    /// As the store is told: while the walk goes on nothing is said of changes, so that no row goes before it came there.
    pub(crate) fn archived(&self) -> Archived {
        let changes = if self.walk.is_some() { 0 } else { self.changes };
        Archived { events: self.events, changes }
    }
}

/// What was read, and how far that is.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) events: Vec<EventRow>,
    /// Later ones are newer looks at the same rows.
    pub(crate) rows: Vec<StoredRow>,
    pub(crate) position: Position,
    /// Whether there was more than one transaction takes.
    pub(crate) more: bool,
}

/// How much one transaction takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Appetite {
    /// How often is read.
    pub(crate) reads: usize,
    /// How many rows of each kind at once.
    pub(crate) rows: usize,
}

/// Reads as much as one transaction takes: so many pages, of each kind of data.
pub(crate) async fn gather(
    store: &dyn Store,
    from: &Position,
    appetite: Appetite,
) -> Result<Read, ArchiveError> {
    let (events, rows, position) = (Vec::new(), Vec::new(), from.clone());
    let mut read = Read { events, rows, position, more: true };
    for _ in 0..appetite.reads {
        read.more = step(store, &mut read, appetite.rows).await?;
        if !read.more {
            break;
        }
    }
    Ok(read)
}

/// Reads once: from the walk while there is one, else what changed; and events. Says whether there is more.
async fn step(store: &dyn Store, read: &mut Read, rows: usize) -> Result<bool, ArchiveError> {
    let mut more = false;
    if let Some(place) = read.position.walk.clone() {
        if place.is_empty() {
            begin_walk(read, &store.changes(read.position.changes, 1).await?)?;
        }
        let portion = store.rows(Rows::All, &place, rows).await?;
        more = true;
        read.rows.extend(portion.items.into_iter().filter(|row| row.key.is_followed()));
        read.position.walk = portion.next;
    } else {
        let page = store.changes(read.position.changes, rows).await?;
        follow(read, &page)?;
        more |= page.more || read.position.walk.is_some();
        // A row that is gone from the store stays in the archive.
        let there = page.items.into_iter().filter_map(|changed| {
            let (pipeline, key) = (changed.pipeline, changed.key);
            changed.row.map(|row| StoredRow { pipeline, key, row })
        });
        read.rows.extend(there);
    }
    let page = store.events(None, read.position.events, rows).await?;
    read.position.events = page.items.last().map_or(read.position.events, |event| event.number);
    read.events.extend(page.items);
    Ok(more || page.more)
}

/// What the walk will see need not be read as changes: those from now on do.
fn begin_walk(read: &mut Read, page: &Changes) -> Result<(), ArchiveError> {
    let since = known_since(&read.position, page)?;
    read.position.changes = read.position.changes.max(since);
    Ok(())
}

/// After which number changes are known, if the archive belongs to this store.
fn known_since(position: &Position, page: &Changes) -> Result<u64, ArchiveError> {
    let furthest = position.changes.max(position.events);
    if furthest > page.last {
        return Err(ArchiveError::AnotherStore { read: furthest, last: page.last });
    }
    page.since.ok_or(ArchiveError::NotFollowed)
}

/// Moves to the last change of a page; to a walk if what is between is not known.
fn follow(read: &mut Read, page: &Changes) -> Result<(), ArchiveError> {
    let since = known_since(&read.position, page)?;
    let position = &mut read.position;
    if position.changes < since {
        position.walk = Some(String::new());
    }
    let reached = page.items.last().map_or(position.changes, |changed| changed.number);
    position.changes = reached.max(since);
    Ok(())
}
