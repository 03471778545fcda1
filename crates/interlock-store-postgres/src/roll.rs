//! Who is there, and who holds what.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use interlock_store::{Role, Roll, Shard, StoreError};
use interlock_store_remote::{instant, whole_ttl};
use jiff::SignedDuration;
use tokio_postgres::types::Type;

use crate::{lease::NOW_MS, pool::Pool};

/// Says that an instance is there for a while; those that are long gone are forgotten.
pub(crate) async fn announce(
    pool: &Arc<Pool>,
    role: Role,
    instance: &str,
    ttl: SignedDuration,
) -> Result<(), StoreError> {
    let sql = format!(
        "WITH gone AS (DELETE FROM @instances WHERE until_ms <= {NOW_MS} AND (role, name) <> ($1, $2))
         INSERT INTO @instances VALUES ($1, $2, {NOW_MS} + $3)
         ON CONFLICT (role, name) DO UPDATE SET until_ms = excluded.until_ms"
    );
    let (word, ttl) = (role.as_str(), whole_ttl(ttl));
    let params = [(&word as _, Type::TEXT), (&instance as _, Type::TEXT), (&ttl as _, Type::INT8)];
    pool.query(&sql, &params).await.map(drop)
}

/// Everything at one instant.
pub(crate) async fn roll(pool: &Arc<Pool>) -> Result<Roll, StoreError> {
    // The time comes with every row, so that there is one even when nothing else is.
    let sql = format!(
        "WITH t AS MATERIALIZED (SELECT {NOW_MS} AS now)
         SELECT now, -1, '', '', 0::int8 FROM t
         UNION ALL SELECT now, -1, role, name, until_ms FROM t, @instances WHERE until_ms > now
         UNION ALL SELECT now, shard, role, holder, expires_ms FROM t, @leases
         WHERE holder IS NOT NULL AND expires_ms > now"
    );
    let rows = pool.query(&sql, &[]).await?;
    let first = rows.first().ok_or_else(|| StoreError::retryable("the server told no time"))?;
    let now = instant(first.get(0))?;
    let (mut present, mut held) = (BTreeSet::new(), BTreeMap::new());
    for row in &rows {
        let Some(role) = Role::parse(row.get(2)) else { continue };
        let name: String = row.get(3);
        match u16::try_from(row.get::<_, i32>(1)) {
            Ok(shard) => {
                held.insert((role, Shard(shard)), (name, instant(row.get(4))?));
            }
            Err(_) => {
                present.insert((role, name));
            }
        }
    }
    Ok(Roll { now, present, held })
}
