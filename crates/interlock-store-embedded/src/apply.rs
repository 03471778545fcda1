//! Groups: checked first, then applied, inside the writer's transaction.
//!
//! All preconditions of a group are looked up before its first change, so a refused group has touched
//! nothing and costs no savepoint. That is the same as checking each change in turn, because a row occurs
//! only once in a group.

use std::collections::HashSet;

use interlock_core::id::PipelineId;
use interlock_store::{Accepted, Change, Expect, Group, Key, Refusal, Term, Writer as Right};
use rusqlite::{OptionalExtension, params, params_from_iter, types::Value};

use crate::{
    failure::Failure,
    table::{Address, searched},
    writer::Ledger,
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
    Row { key: Key, address: Address, expect: Expect, put: Option<Put> },
    Append(String),
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
            PreparedChange::Row { address: Address::of(&key), key, expect, put }
        }
        Change::Delete(key, expect) => {
            PreparedChange::Row { address: Address::of(&key), key, expect, put: None }
        }
        Change::Append(event) => PreparedChange::Append(event.encode()),
    }
}

/// Applies the groups of one call; a result each.
pub(crate) fn commit(
    ledger: &mut Ledger<'_>,
    groups: Vec<PreparedGroup>,
) -> Result<Vec<Result<Accepted, Refusal>>, Failure> {
    let mut refused: HashSet<PipelineId> = HashSet::new();
    let mut results = Vec::with_capacity(groups.len());
    for group in groups {
        let pipeline = group.pipeline.clone();
        let result =
            if refused.contains(&pipeline) { Err(Refusal::Behind) } else { apply(ledger, group)? };
        if result.is_err() {
            refused.insert(pipeline);
        }
        results.push(result);
    }
    Ok(results)
}

fn apply(
    ledger: &mut Ledger<'_>,
    group: PreparedGroup,
) -> Result<Result<Accepted, Refusal>, Failure> {
    if let Some(refusal) = group.refusal {
        return Ok(Err(refusal));
    }
    if let Err(refusal) = check_term(ledger, group.writer) {
        return Ok(Err(refusal));
    }
    let known = ledger.memory.find_name(ledger.db, &group.pipeline)?;
    let mut found = Vec::with_capacity(group.changes.len());
    for change in &group.changes {
        match check_row(ledger, known, change)? {
            Ok(revision) => found.push(revision),
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
    if group.changes.is_empty() {
        return Ok(Ok(Accepted { last_event: 0 }));
    }
    let pipeline = ledger.memory.name(ledger.db, &group.pipeline)?;
    let mut last_event = 0;
    for (change, revision) in group.changes.into_iter().zip(found) {
        match change {
            PreparedChange::Append(body) => last_event = append(ledger, pipeline, &body)?,
            PreparedChange::Row { key, address, put: Some(put), .. } => {
                write(ledger, pipeline, address, (revision + 1, put))?;
                if let Key::Applied(name) = key {
                    forget_inbox(ledger, pipeline, &name)?;
                }
            }
            PreparedChange::Row { address, put: None, .. } => delete(ledger, pipeline, address)?,
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

/// The revision of the row that a change is about, 0 when it is not there; or why it may not be changed.
fn check_row(
    ledger: &Ledger<'_>,
    pipeline: Option<i64>,
    change: &PreparedChange,
) -> Result<Result<i64, Refusal>, rusqlite::Error> {
    let PreparedChange::Row { key, address, expect, .. } = change else { return Ok(Ok(0)) };
    let found: i64 = match pipeline {
        Some(pipeline) => {
            let key = std::iter::once(Value::Integer(pipeline)).chain(address.key.iter().cloned());
            let mut find = ledger.db.prepare_cached(&address.table.find)?;
            find.query_row(params_from_iter(key), |row| row.get(0)).optional()?.unwrap_or(0)
        }
        None => 0,
    };
    let revision = found as u64;
    if expect.holds(revision) {
        return Ok(Ok(found));
    }
    Ok(Err(Refusal::Conflict { key: key.clone(), found: revision }))
}

fn write(
    ledger: &Ledger<'_>,
    pipeline: i64,
    address: Address,
    (revision, put): (i64, Put),
) -> Result<(), rusqlite::Error> {
    let values = std::iter::once(Value::Integer(pipeline))
        .chain(address.key)
        .chain(std::iter::once(Value::Integer(revision)))
        .chain(put.searched)
        .chain(std::iter::once(Value::Text(put.body)));
    ledger.db.prepare_cached(&address.table.put)?.execute(params_from_iter(values))?;
    Ok(())
}

fn delete(ledger: &Ledger<'_>, pipeline: i64, address: Address) -> Result<(), rusqlite::Error> {
    let key = std::iter::once(Value::Integer(pipeline)).chain(address.key);
    ledger.db.prepare_cached(&address.table.delete)?.execute(params_from_iter(key))?;
    Ok(())
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
