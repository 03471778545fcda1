//! The store as a whole: what an archive follows, and what a move to another store carries.

use std::fmt;

use interlock_core::id::PipelineId;
use jiff::Timestamp;

use crate::{
    contract::{EventRow, InboxEntry, Row, StoreError},
    key::Key,
    record::Record,
};

/// How far an archive has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Archived {
    /// The number of the last event that it has.
    pub events: u64,
    /// The number of the last change that it has.
    pub changes: u64,
}

/// Changes after a number, and what is known about those before.
#[derive(Debug, Clone, PartialEq)]
pub struct Changes {
    /// What changed, oldest first.
    pub items: Vec<ChangedRow>,
    /// Whether there is more after the last.
    pub more: bool,
    /// Changes are known after this number only: who has not read that far has to read all rows. `None` while nobody
    /// follows.
    pub since: Option<u64>,
    /// The last number that was given to an event or a change: who has read further has read another store.
    pub last: u64,
    /// How far an archive said last that it has read, while somebody follows.
    pub archived: Option<Archived>,
}

/// A row that was written or deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedRow {
    /// In the order of commits, out of the same numbers as those of events.
    pub number: u64,
    /// Whose it is.
    pub pipeline: PipelineId,
    /// Which row.
    pub key: Key,
    /// As it is now, which may be after later changes; nothing if it is gone.
    pub row: Option<Row<Record>>,
}

/// A row with its address.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRow {
    /// Whose it is.
    pub pipeline: PipelineId,
    /// Which row.
    pub key: Key,
    /// What it holds.
    pub row: Row<Record>,
}

/// Which rows a walk gives out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// Of every kind.
    All,
    /// Answers to what came through the inbox.
    Answers,
    /// Incidents.
    Incidents,
    /// Notifications: what is on its way, and what could not be delivered.
    Notifications,
}

impl Rows {
    /// Whether it gives out those of a kind, by the word of [`Key::kind`].
    pub fn includes(self, kind: &str) -> bool {
        self.kind().is_none_or(|only| only == kind)
    }

    /// Before all others of the one kind that it gives out.
    pub fn first_key(self) -> Option<Key> {
        match self {
            Self::All => None,
            Self::Answers => Some(Key::Applied(String::new())),
            Self::Incidents => Some(Key::Incident(String::new())),
            Self::Notifications => Some(Key::Outbox(String::new())),
        }
    }

    /// The one kind that it gives out, by the same word.
    pub fn kind(self) -> Option<&'static str> {
        self.first_key().map(|key| key.kind())
    }
}

/// Some of the rows that were asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Portion {
    /// Rows; perhaps none, although there are more.
    pub items: Vec<StoredRow>,
    /// Where the next portion begins; nothing when there is none.
    pub next: Option<String>,
}

/// Which store it is: made by chance with the store, and taken along by a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(pub u64);

impl StoreId {
    /// The store of a text that [`Display`](fmt::Display) has written.
    pub fn parse(text: &str) -> Option<Self> {
        u64::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What whoever used a store remembers of it, to find out later whether it has forgotten something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Which one it was.
    pub store: StoreId,
    /// The last number that it had given to an event or a change; it only grows.
    pub number: u64,
}

impl Mark {
    /// What a store that stands here says to one who remembers.
    pub fn recall(self, remembered: Self) -> Recalled {
        if self.store != remembered.store {
            Recalled::Another
        } else if self.number < remembered.number {
            Recalled::Forgotten
        } else {
            Recalled::Kept
        }
    }
}

/// What became of what somebody remembers of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recalled {
    /// It is all there, as far as numbers tell.
    Kept,
    /// The store has given fewer numbers than it had: writes that it acknowledged are gone.
    Forgotten,
    /// It is another store.
    Another,
}

/// What one store hands to another.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Freight {
    /// Rows, each with the revision that it had.
    pub rows: Vec<StoredRow>,
    /// Events, each with the number that it had.
    pub events: Vec<EventRow>,
    /// Entries of the inbox, each with the instant at which it came.
    pub inbox: Vec<InboxEntry>,
    /// The last number that was given to an event or a change.
    pub last: u64,
    /// Which store it is from, if the other one is to go on as that.
    pub store: Option<StoreId>,
}

/// What is to go for good.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forgetting {
    /// Slots before this instant may be gone afterwards; nothing if none goes.
    pub floor: Option<Timestamp>,
    /// Slots, spans, answers, incidents and notifications, each with the revision that it must still have. The runs of a
    /// slot go with it.
    pub rows: Vec<(PipelineId, Key, u64)>,
    /// Events up to this number.
    pub events: u64,
}

impl Forgetting {
    /// Refuses what no engine can do: rows of other kinds, and slots without a floor that says so.
    pub fn check(&self) -> Result<(), StoreError> {
        let is_ledger = |key: &Key| matches!(key, Key::Slot(..) | Key::Span(..));
        let may_go = |key: &Key| {
            is_ledger(key) || matches!(key, Key::Applied(_) | Key::Incident(_) | Key::Outbox(_))
        };
        if let Some((_, key, _)) = self.rows.iter().find(|(_, key, _)| !may_go(key)) {
            return Err(StoreError::permanent(format!("{key} cannot be forgotten")));
        }
        if self.floor.is_none() && self.rows.iter().any(|(_, key, _)| is_ledger(key)) {
            return Err(StoreError::permanent("slots are forgotten below a floor only"));
        }
        // Its text then sorts by time, which is how a server compares two of them.
        if self.floor.is_some_and(|floor| floor.subsec_nanosecond() != 0) {
            return Err(StoreError::permanent("a floor is a whole second"));
        }
        Ok(())
    }
}

impl Key {
    /// Whether its changes are followed by an archive: slots, spans, runs and incidents.
    pub fn is_followed(&self) -> bool {
        match self {
            Self::Slot(..) | Self::Span(..) | Self::Run(_) | Self::Incident(_) => true,
            Self::Pipeline
            | Self::Version(_)
            | Self::Watermark(_)
            | Self::Sensor(_)
            | Self::Due(..)
            | Self::Outbox(_)
            | Self::Applied(_)
            | Self::Backfill(_) => false,
        }
    }
}
