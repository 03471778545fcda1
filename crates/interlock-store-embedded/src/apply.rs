//! Groups, inside the writer's transaction.
//!
//! Preconditions are part of the statements that write: one that is not met changes nothing. Owners seldom
//! collide, so a batch is first tried in the hope that all of them are met, which saves a look at each row.
//! A group whose first change has no effect is refused, and has touched nothing. If a later one has none,
//! the group is half written: the whole transaction is given up, and the batch is done again with all
//! preconditions of a group looked up before its first change. That is the same as checking each in turn,
//! because a row occurs only once in a group.

use std::collections::HashSet;

use interlock_core::id::PipelineId;
use interlock_store::{Accepted, Change, Expect, Group, Key, Refusal, Term, Writer as Right};
use rusqlite::{OptionalExtension, ToSql, params, params_from_iter, types::Value};

use crate::{
    failure::Failure,
    table::{Address, searched},
    whole,
    writer::{Ledger, Mood},
};

/// A group with its records encoded: what the caller's side can do for the writing thread.
#[derive(Debug)]
pub(crate) struct PreparedGroup {
    pipeline: PipelineId,
    writer: Right,
    refusal: Option<Refusal>,
    changes: Vec<PreparedChange>,
}

#[derive(Debug)]
enum PreparedChange {
    Row(RowChange),
    Append(String),
}

#[derive(Debug)]
struct RowChange {
    key: Key,
    address: Address,
    expect: Expect,
    /// What it will hold; nothing if it is to be removed.
    put: Option<Put>,
}

/// What a row will hold.
#[derive(Debug)]
struct Put {
    searched: Vec<Value>,
    body: String,
}

impl PreparedGroup {
    /// Encodes a group.
    pub(crate) fn new(group: Group) -> Self {
        let refusal = group.refusal();
        let Group { pipeline, writer, changes } = group;
        Self { pipeline, writer, refusal, changes: changes.into_iter().map(prepare).collect() }
    }
}

fn prepare(change: Change) -> PreparedChange {
    match change {
        Change::Put(key, expect, record) => {
            let put = Some(Put { searched: searched(&record), body: record.encode() });
            PreparedChange::Row(RowChange { address: Address::of(&key), key, expect, put })
        }
        Change::Delete(key, expect) => {
            PreparedChange::Row(RowChange { address: Address::of(&key), key, expect, put: None })
        }
        Change::Append(event) => PreparedChange::Append(event.encode()),
    }
}

/// Applies the groups of one call; a result each.
pub(crate) fn commit(
    ledger: &mut Ledger<'_>,
    groups: &[PreparedGroup],
) -> Result<Vec<Result<Accepted, Refusal>>, Failure> {
    let mut refused: HashSet<&PipelineId> = HashSet::new();
    let mut results = Vec::with_capacity(groups.len());
    for group in groups {
        let is_behind = refused.contains(&group.pipeline);
        let result = if is_behind { Err(Refusal::Behind) } else { apply(ledger, group)? };
        if result.is_err() {
            refused.insert(&group.pipeline);
        }
        results.push(result);
    }
    Ok(results)
}

fn apply(
    ledger: &mut Ledger<'_>,
    group: &PreparedGroup,
) -> Result<Result<Accepted, Refusal>, Failure> {
    if let Some(refusal) = &group.refusal {
        return Ok(Err(refusal.clone()));
    }
    if let Err(refusal) = check_term(ledger, group.writer) {
        return Ok(Err(refusal));
    }
    if ledger.mood == Mood::Careful
        && let Some(refusal) = find_conflict(ledger, group)?
    {
        return Ok(Err(refusal));
    }
    let mut last_event = 0;
    for (index, change) in group.changes.iter().enumerate() {
        let pipeline = ledger.memory.name(ledger.db, &group.pipeline)?;
        match change {
            PreparedChange::Append(body) => last_event = append(ledger, pipeline, body)?,
            PreparedChange::Row(row) => {
                if row.write(ledger, pipeline)? {
                    whole::note(ledger, pipeline, &row.key)?;
                    continue;
                }
                return match (index, find_conflict(ledger, group)?) {
                    (0, Some(refusal)) => Ok(Err(refusal)),
                    // Something of the group is written already, or its own writes are in the way.
                    _ => Err(Failure::Again),
                };
            }
        }
    }
    Ok(Ok(Accepted { last_event }))
}

fn check_term(ledger: &Ledger<'_>, writer: Right) -> Result<(), Refusal> {
    match ledger.memory.leases.get(&(writer.role, writer.shard)) {
        Some(lease) if lease.is_held_by(writer) => Ok(()),
        lease => Err(Refusal::Term { current: lease.map_or(Term(0), |lease| lease.term) }),
    }
}

/// The first row of a group that is not as expected.
fn find_conflict(
    ledger: &mut Ledger<'_>,
    group: &PreparedGroup,
) -> Result<Option<Refusal>, rusqlite::Error> {
    let pipeline = ledger.memory.find_name(ledger.db, &group.pipeline)?;
    for change in &group.changes {
        let PreparedChange::Row(row) = change else { continue };
        let found = match pipeline {
            Some(pipeline) => row.revision(ledger, pipeline)?,
            None => 0,
        };
        if !row.expect.holds(found) {
            return Ok(Some(Refusal::Conflict { key: row.key.clone(), found }));
        }
    }
    Ok(None)
}

impl RowChange {
    /// The revision of the row, 0 when it is not there.
    fn revision(&self, ledger: &Ledger<'_>, pipeline: i64) -> Result<u64, rusqlite::Error> {
        let mut find = ledger.db.prepare_cached(&self.address.table.find)?;
        let found = find.query_row(params_from_iter(self.place(&pipeline)), |row| row.get(0));
        Ok(found.optional()?.map_or(0, |revision: i64| revision as u64))
    }

    /// The parameters that say which row.
    fn place<'a>(&'a self, pipeline: &'a i64) -> impl Iterator<Item = &'a dyn ToSql> {
        std::iter::once(pipeline as &dyn ToSql).chain(self.address.key.iter().map(|it| it as _))
    }

    /// Changes the row if it is as expected, and says whether it was.
    fn write(&self, ledger: &Ledger<'_>, pipeline: i64) -> Result<bool, rusqlite::Error> {
        let table = self.address.table;
        let (statement, expected) = match (&self.put, self.expect) {
            (Some(_), Expect::Absent) => (&table.create, None),
            (Some(_), Expect::Revision(revision)) => (&table.replace, Some(revision as i64)),
            (Some(_), Expect::Any) => (&table.put, None),
            // Nothing is to be there, and nothing to be done.
            (None, Expect::Absent) => return Ok(self.revision(ledger, pipeline)? == 0),
            (None, Expect::Revision(revision)) => (&table.remove, Some(revision as i64)),
            (None, Expect::Any) => (&table.delete, None),
        };
        let held = self.put.iter().flat_map(|put| {
            put.searched.iter().map(|it| it as &dyn ToSql).chain([&put.body as &dyn ToSql])
        });
        let expected = expected.iter().map(|it| it as &dyn ToSql);
        let parameters = params_from_iter(self.place(&pipeline).chain(held).chain(expected));
        let changed = ledger.db.prepare_cached(statement)?.execute(parameters)?;
        if changed > 0
            && let (Some(_), Key::Applied(key)) = (&self.put, &self.key)
        {
            forget_inbox(ledger, pipeline, key)?;
        }
        Ok(changed > 0 || (self.put.is_none() && self.expect == Expect::Any))
    }
}

fn append(ledger: &mut Ledger<'_>, pipeline: i64, body: &str) -> Result<u64, rusqlite::Error> {
    let number = ledger.memory.next_event();
    ledger
        .db
        .prepare_cached("INSERT INTO events (number, pipeline, body) VALUES (?1, ?2, ?3)")?
        .execute(params![number, pipeline, body])?;
    Ok(number as u64)
}

/// An entry whose answer is written is no longer waiting.
fn forget_inbox(ledger: &Ledger<'_>, pipeline: i64, key: &str) -> Result<(), rusqlite::Error> {
    ledger
        .db
        .prepare_cached("DELETE FROM inbox WHERE pipeline = ?1 AND key = ?2")?
        .execute(params![pipeline, key])?;
    Ok(())
}
