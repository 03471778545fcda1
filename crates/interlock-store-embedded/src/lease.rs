//! Leases, inside the writer's transaction.

use interlock_store::{Lease, Role, Shard, Term, Writer as Right};
use jiff::Timestamp;
use rusqlite::params;

use crate::{failure::Failure, memory::LeaseState, writer::Ledger};

/// Gives a role's shard to a holder, if nobody else holds it.
pub(crate) fn acquire(
    ledger: &mut Ledger<'_>,
    (role, shard): (Role, Shard),
    holder: &str,
    expires: Timestamp,
    now: Timestamp,
) -> Result<Option<Lease>, Failure> {
    let last = ledger.memory.leases.get(&(role, shard));
    let is_taken = |last: &LeaseState| {
        last.expires > now && last.holder.as_ref().is_some_and(|other| other != holder)
    };
    if last.is_some_and(is_taken) {
        return Ok(None);
    }
    let term = Term(last.map_or(0, |last| last.term.0) + 1);
    keep(ledger, (role, shard), LeaseState { term, holder: Some(holder.to_owned()), expires })?;
    Ok(Some(Lease { writer: Right { role, shard, term }, expires }))
}

/// Extends a lease, if its term is not over.
pub(crate) fn renew(
    ledger: &mut Ledger<'_>,
    writer: Right,
    expires: Timestamp,
) -> Result<Option<Lease>, Failure> {
    let Some(mut lease) = held(ledger, writer) else { return Ok(None) };
    lease.expires = expires;
    keep(ledger, (writer.role, writer.shard), lease)?;
    Ok(Some(Lease { writer, expires }))
}

/// Ends a lease, if it is not over.
pub(crate) fn release(ledger: &mut Ledger<'_>, writer: Right) -> Result<(), Failure> {
    let Some(mut lease) = held(ledger, writer) else { return Ok(()) };
    lease.holder = None;
    keep(ledger, (writer.role, writer.shard), lease)
}

fn held(ledger: &Ledger<'_>, writer: Right) -> Option<LeaseState> {
    let lease = ledger.memory.leases.get(&(writer.role, writer.shard))?;
    lease.is_held_by(writer).then(|| lease.clone())
}

fn keep(
    ledger: &mut Ledger<'_>,
    (role, shard): (Role, Shard),
    lease: LeaseState,
) -> Result<(), Failure> {
    let LeaseState { term, holder, expires } = &lease;
    ledger
        .db
        .prepare_cached(
            "INSERT OR REPLACE INTO leases (role, shard, term, holder, expires)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            role.as_str(),
            shard.0,
            term.0 as i64,
            holder,
            expires.as_microsecond()
        ])?;
    ledger.memory.leases.insert((role, shard), lease);
    Ok(())
}
