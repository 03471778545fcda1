//! What waits: reports on their way in, notifications on their way out.

use std::sync::Arc;

use interlock_core::id::PipelineId;
use interlock_store::{InboxEntry, OutboxRow, Page, Shard, StoreError, record::InboxRecord};
use interlock_store_remote::{instant, one_more, page, whole_ttl};
use jiff::SignedDuration;
use tokio_postgres::types::Type;

use crate::{
    apply::check_text,
    failure::said,
    lease::NOW_MS,
    pool::{Lent, Pool, bounded},
    read::{COLUMNS, found},
};

/// Shares the shard's lock with other posts, so that nobody answers the same key meanwhile.
const SHARE: &str = "SELECT 1 FROM @leases WHERE shard = $1 AND role = 'engine' FOR SHARE";

/// Appends to the inbox, unless the key is there or was answered.
pub(crate) async fn post(
    pool: &Arc<Pool>,
    (shard, pipeline): (Shard, &PipelineId),
    key: &str,
    record: &InboxRecord,
) -> Result<(), StoreError> {
    check_text(key)?;
    let insert = format!(
        "INSERT INTO @inbox (shard, pipeline, key, received_ms, body)
         SELECT $1, $2, $3, {NOW_MS}, $4
         WHERE NOT EXISTS (SELECT 1 FROM @applied WHERE pipeline = $2 AND key = $3)
         ON CONFLICT (pipeline, key) DO NOTHING"
    );
    bounded(async {
        let lent = pool.take().await?;
        let (share, insert) = (lent.sql(SHARE), lent.sql(&insert));
        let (shard, name, body) = (i32::from(shard.0), pipeline.as_str(), record.encode());
        let share_params = [(&shard as _, Type::INT4)];
        let insert_params = [
            (&shard as _, Type::INT4),
            (&name as _, Type::TEXT),
            (&key as _, Type::TEXT),
            (&body as _, Type::TEXT),
        ];
        tokio::try_join!(
            biased;
            lent.begin(),
            lent.client().execute_typed(&share, &share_params),
            lent.client().execute_typed(&insert, &insert_params),
            lent.commit(),
        )
        .map_err(|error| said(&error))?;
        lent.done();
        Ok(())
    })
    .await
}

/// The entry that waits under a key.
pub(crate) async fn posted(
    pool: &Arc<Pool>,
    pipeline: &PipelineId,
    key: &str,
) -> Result<Option<InboxRecord>, StoreError> {
    check_text(key)?;
    let sql = "SELECT body FROM @inbox WHERE pipeline = $1 AND key = $2";
    let name = pipeline.as_str();
    let rows = pool.query(sql, &[(&name, Type::TEXT), (&key, Type::TEXT)]).await?;
    Ok(rows.first().map(|row| InboxRecord::read(row.get(0))))
}

/// Entries that are not applied, oldest first.
pub(crate) async fn inbox(
    pool: &Arc<Pool>,
    shard: Shard,
    limit: usize,
) -> Result<Page<InboxEntry>, StoreError> {
    let sql = "SELECT number, pipeline, key, received_ms, body FROM @inbox
        WHERE shard = $1 ORDER BY number LIMIT $2";
    let (shard, rows_max) = (i32::from(shard.0), one_more(limit));
    let rows = pool.query(sql, &[(&shard, Type::INT4), (&rows_max, Type::INT8)]).await?;
    let entry = |row: &tokio_postgres::Row| {
        let unreadable = |what: String| {
            StoreError::permanent(format!("an entry of the inbox cannot be read: {what}"))
        };
        Ok(InboxEntry {
            number: row.get::<_, i64>(0) as u64,
            pipeline: PipelineId::any(row.get(1)).map_err(|error| unreadable(error.message))?,
            key: row.get(2),
            received_at: instant(row.get(3))?,
            record: InboxRecord::read(row.get(4)),
        })
    };
    Ok(page(rows.iter().map(entry).collect::<Result<_, StoreError>>()?, limit))
}

/// Entries whose answer is written are no longer waiting.
pub(crate) async fn forget_answered(
    lent: &Lent,
    answered: &[(&str, &str)],
) -> Result<(), tokio_postgres::Error> {
    if answered.is_empty() {
        return Ok(());
    }
    let sql = "DELETE FROM @inbox i USING unnest($1, $2) u(pipeline, key)
        WHERE i.pipeline = u.pipeline AND i.key = u.key";
    let pipelines: Vec<&str> = answered.iter().map(|entry| entry.0).collect();
    let keys: Vec<&str> = answered.iter().map(|entry| entry.1).collect();
    let params = [(&pipelines as _, Type::TEXT_ARRAY), (&keys as _, Type::TEXT_ARRAY)];
    lent.client().execute_typed(&lent.sql(sql), &params).await.map(drop)
}

/// Hands out notifications that may be tried now, those that waited longest first.
pub(crate) async fn claim(
    pool: &Arc<Pool>,
    limit: usize,
    ttl: SignedDuration,
) -> Result<Vec<OutboxRow>, StoreError> {
    let sql = format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW_MS} * 1000 AS now),
         free AS MATERIALIZED (
            SELECT pipeline, key FROM @outbox, clock
            WHERE word = 'waiting' AND at_us <= now AND (until_us IS NULL OR until_us <= now)
            ORDER BY at_us, pipeline, key LIMIT $1 FOR UPDATE OF outbox SKIP LOCKED
         )
         UPDATE @outbox r SET revision = r.revision + 1, until_us = now + $2 * 1000
         FROM free, clock WHERE r.pipeline = free.pipeline AND r.key = free.key
         RETURNING {COLUMNS}"
    );
    let (limit, ttl) = (i64::try_from(limit).unwrap_or(i64::MAX), whole_ttl(ttl));
    let rows = pool.query(&sql, &[(&limit, Type::INT8), (&ttl, Type::INT8)]).await?;
    let rows = rows.iter().map(|row| found(row)?.outbox());
    let mut claimed = rows.collect::<Result<Vec<_>, StoreError>>()?;
    claimed.sort_by(|one, other| {
        let place =
            |row: &OutboxRow| (row.record.not_before, row.pipeline.clone(), row.name.clone());
        place(one).cmp(&place(other))
    });
    Ok(claimed)
}
