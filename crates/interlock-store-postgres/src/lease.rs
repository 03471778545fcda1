//! Leases, each by one statement: the row that it changes is the lock.

use std::sync::Arc;

use interlock_store::{Lease, Role, Shard, StoreError, Term, Writer};
use interlock_store_remote::{instant, whole_ttl};
use jiff::{SignedDuration, Timestamp};
use tokio_postgres::types::Type;

use crate::{
    pool::Pool,
    witness::{Known, Witness},
};

/// The present by the server's clock, in milliseconds; also after a lock was waited for.
pub(crate) const NOW_MS: &str = "floor(extract(epoch FROM clock_timestamp()) * 1000)::int8";

/// The present by the server's clock.
pub(crate) async fn now(pool: &Arc<Pool>) -> Result<Timestamp, StoreError> {
    let rows = pool.query(&format!("SELECT {NOW_MS}"), &[]).await?;
    let row = rows.first().ok_or_else(|| StoreError::retryable("the server told no time"))?;
    instant(row.get(0))
}

fn place<'a>(role: &'a &'static str, shard: &'a i32) -> [crate::pool::Param<'a>; 2] {
    [(shard as _, Type::INT4), (role as _, Type::TEXT)]
}

/// Gives a role's shard to a holder, if nobody else holds it. A term is never smaller than the time: a server that has
/// forgotten the last one does not give it again.
pub(crate) async fn acquire(
    (pool, witness): (&Arc<Pool>, &Witness),
    (role, shard): (Role, Shard),
    holder: &str,
    ttl: SignedDuration,
) -> Result<Option<Lease>, StoreError> {
    let sql = format!(
        "UPDATE @leases SET term = greatest(term + 1, {NOW_MS}), holder = $3, expires_ms = {NOW_MS} + $4
         WHERE shard = $1 AND role = $2
           AND (holder IS NULL OR holder = $3 OR expires_ms <= {NOW_MS})
         RETURNING term, expires_ms, {}",
        Known::sql(5)
    );
    let (word, number, ttl) = (role.as_str(), i32::from(shard.0), whole_ttl(ttl));
    loop {
        let known = witness.known();
        let mut params = place(&word, &number).to_vec();
        params.extend([(&holder as _, Type::TEXT), (&ttl as _, Type::INT8)]);
        params.extend(known.params());
        let rows = pool.query(&sql, &params).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        if witness.hears(row, 2) {
            witness.recover(pool, &known).await?;
            continue;
        }
        let term = Term(row.get::<_, i64>(0) as u64);
        let writer = Writer { role, shard, term };
        return Ok(Some(Lease { writer, expires: instant(row.get(1))? }));
    }
}

/// Extends a lease, if its term is not over.
pub(crate) async fn renew(
    (pool, witness): (&Arc<Pool>, &Witness),
    writer: Writer,
    ttl: SignedDuration,
) -> Result<Option<Lease>, StoreError> {
    let sql = format!(
        "UPDATE @leases SET expires_ms = {NOW_MS} + $4
         WHERE shard = $1 AND role = $2 AND term = $3 AND holder IS NOT NULL
         RETURNING expires_ms, {}",
        Known::sql(5)
    );
    let (word, number, ttl) = (writer.role.as_str(), i32::from(writer.shard.0), whole_ttl(ttl));
    let (term, known) = (writer.term.0 as i64, witness.known());
    let mut params = place(&word, &number).to_vec();
    params.extend([(&term as _, Type::INT8), (&ttl as _, Type::INT8)]);
    params.extend(known.params());
    let rows = pool.query(&sql, &params).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    if witness.hears(row, 1) {
        witness.recover(pool, &known).await?;
        return Ok(None);
    }
    Ok(Some(Lease { writer, expires: instant(row.get(0))? }))
}

/// Ends a lease, if it is not over.
pub(crate) async fn release(pool: &Arc<Pool>, writer: Writer) -> Result<(), StoreError> {
    let sql = "UPDATE @leases SET holder = NULL WHERE shard = $1 AND role = $2 AND term = $3";
    let (word, number) = (writer.role.as_str(), i32::from(writer.shard.0));
    let term = writer.term.0 as i64;
    let mut params = place(&word, &number).to_vec();
    params.push((&term as _, Type::INT8));
    pool.query(sql, &params).await.map(drop)
}
