//! What instances say of themselves: a row each, written over and over.

use std::sync::Arc;

use interlock_store::{INSTANCES_KEPT, InstanceRow, StoreError};
use interlock_store_remote::{instance_row, whole_ttl};
use tokio_postgres::types::Type;

use crate::{lease::NOW_MS, pool::Pool};

/// Keeps what an instance says; what others said long ago goes.
pub(crate) async fn report(pool: &Arc<Pool>, instance: &str, body: &str) -> Result<(), StoreError> {
    let sql = format!(
        "WITH gone AS (DELETE FROM @self_reports WHERE said_ms < {NOW_MS} - $3 AND instance <> $1)
         INSERT INTO @self_reports VALUES ($1, {NOW_MS}, $2)
         ON CONFLICT (instance) DO UPDATE SET said_ms = excluded.said_ms, body = excluded.body"
    );
    let kept = whole_ttl(INSTANCES_KEPT);
    let params = [(&instance as _, Type::TEXT), (&body as _, Type::TEXT), (&kept as _, Type::INT8)];
    pool.query(&sql, &params).await.map(drop)
}

/// What all of them said last, by name.
pub(crate) async fn all(pool: &Arc<Pool>) -> Result<Vec<InstanceRow>, StoreError> {
    let sql = "SELECT instance, said_ms, body FROM @self_reports ORDER BY instance COLLATE \"C\"";
    let rows = pool.query(sql, &[]).await?;
    rows.iter().map(|row| instance_row(row.get(0), row.get(1), row.get(2))).collect()
}
