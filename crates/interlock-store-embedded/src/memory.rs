//! What the writing thread remembers, so that it need not be read for each group.
//!
//! Invariant: at the begin of a transaction it equals what the file holds. There is one writing process, so
//! nobody else can change it; after a transaction that was given up it is loaded anew.

use std::collections::{BTreeMap, HashMap};

use interlock_core::id::PipelineId;
use interlock_store::{Role, Shard, Term, Writer};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use crate::failure::Failure;

/// The last lease of a role's shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseState {
    pub(crate) term: Term,
    /// Nobody, once it was released.
    pub(crate) holder: Option<String>,
    pub(crate) expires: Timestamp,
}

impl LeaseState {
    /// Whether its term is the writer's and not over. Expiry alone does not end it.
    pub(crate) fn is_held_by(&self, writer: Writer) -> bool {
        self.term == writer.term && self.holder.is_some()
    }
}

/// Everything that is remembered.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The numbers of names, as far as they were asked for.
    names: HashMap<PipelineId, i64>,
    pub(crate) leases: BTreeMap<(Role, Shard), LeaseState>,
    last_event: i64,
    last_inbox: i64,
    is_counted: bool,
}

impl Memory {
    /// Reads what is to be remembered.
    pub(crate) fn load(db: &Connection) -> Result<Self, Failure> {
        let leases = load_leases(db)?;
        let (last_event, last_inbox) = (counter(db, "event")?, counter(db, "inbox")?);
        Ok(Self { names: HashMap::new(), leases, last_event, last_inbox, is_counted: false })
    }

    /// The number of a pipeline's name, if it has one.
    pub(crate) fn find_name(
        &mut self,
        db: &Connection,
        pipeline: &PipelineId,
    ) -> Result<Option<i64>, rusqlite::Error> {
        if let Some(id) = self.names.get(pipeline) {
            return Ok(Some(*id));
        }
        let found = name_id(db, pipeline)?;
        if let Some(id) = found {
            self.names.insert(pipeline.clone(), id);
        }
        Ok(found)
    }

    /// The number of a pipeline's name, given now if need be.
    pub(crate) fn name(
        &mut self,
        db: &Connection,
        pipeline: &PipelineId,
    ) -> Result<i64, rusqlite::Error> {
        if let Some(id) = self.find_name(db, pipeline)? {
            return Ok(id);
        }
        db.prepare_cached("INSERT INTO names (name) VALUES (?1)")?.execute([pipeline.as_str()])?;
        let id = db.last_insert_rowid();
        self.names.insert(pipeline.clone(), id);
        Ok(id)
    }

    /// The next event's number.
    pub(crate) fn next_event(&mut self) -> i64 {
        self.is_counted = true;
        self.last_event += 1;
        self.last_event
    }

    /// The next inbox entry's number.
    pub(crate) fn next_inbox(&mut self) -> i64 {
        self.is_counted = true;
        self.last_inbox += 1;
        self.last_inbox
    }

    /// The number of the newest inbox entry there ever was.
    pub(crate) fn last_inbox(&self) -> i64 {
        self.last_inbox
    }

    /// Writes the counters, if they moved: once per transaction, not once per event.
    pub(crate) fn keep_counters(&mut self, db: &Connection) -> Result<(), rusqlite::Error> {
        if !std::mem::take(&mut self.is_counted) {
            return Ok(());
        }
        let mut keep = db.prepare_cached("INSERT OR REPLACE INTO counters VALUES (?1, ?2)")?;
        keep.execute(params!["event", self.last_event])?;
        keep.execute(params!["inbox", self.last_inbox])?;
        Ok(())
    }
}

/// The number of a pipeline's name in the file.
pub(crate) fn name_id(
    db: &Connection,
    pipeline: &PipelineId,
) -> Result<Option<i64>, rusqlite::Error> {
    db.prepare_cached("SELECT id FROM names WHERE name = ?1")?
        .query_row([pipeline.as_str()], |row| row.get(0))
        .optional()
}

fn counter(db: &Connection, name: &str) -> Result<i64, rusqlite::Error> {
    let value =
        db.query_row("SELECT value FROM counters WHERE name = ?1", [name], |row| row.get(0));
    Ok(value.optional()?.unwrap_or(0))
}

fn load_leases(db: &Connection) -> Result<BTreeMap<(Role, Shard), LeaseState>, Failure> {
    let mut statement = db.prepare("SELECT role, shard, term, holder, expires FROM leases")?;
    let mut rows = statement.query([])?;
    let mut leases = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let word: String = row.get(0)?;
        let role = [Role::Engine, Role::Watchdog].into_iter().find(|role| role.as_str() == word);
        let role = role.ok_or_else(|| Failure::Unreadable(format!("a lease of a `{word}`")))?;
        let state = LeaseState {
            term: Term(row.get::<_, i64>(2)? as u64),
            holder: row.get(3)?,
            expires: Timestamp::from_microsecond(row.get(4)?)?,
        };
        leases.insert((role, Shard(row.get(1)?)), state);
    }
    Ok(leases)
}
