//! The store as a whole: what an archive follows, and what a move takes along.

use std::sync::Arc;

use interlock_core::id::PipelineId;
use interlock_store::{
    Archived, ChangedRow, Changes, EventRow, Freight, InboxEntry, Key, Portion, Row, Rows, Shard,
    StoreError, StoredRow,
};
use interlock_store_remote::{Found, Stored, key_text, one_more};
use tokio_postgres::types::Type;

use crate::{
    apply::{Written, check_text, table, upsert},
    failure::said,
    pool::{Lent, Pool, bounded},
    read::{COLUMNS, found},
};

/// The kinds of rows, in the order in which they are given out.
const KINDS: [&str; 12] = [
    "pipeline",
    "version",
    "watermark",
    "slot",
    "span",
    "run",
    "sensor",
    "incident",
    "due",
    "outbox",
    "applied",
    "backfill",
];

/// Changes after a number, each row as it is now.
pub(crate) async fn changes(
    pool: &Arc<Pool>,
    after: u64,
    limit: usize,
) -> Result<Changes, StoreError> {
    let about =
        "SELECT since, value, archived, archived_changes FROM @counters WHERE name = 'event'";
    let about = pool.query(about, &[]).await?;
    let number = |at: usize| {
        let found = about.first().and_then(|row| row.get::<_, Option<i64>>(at));
        found.map(|number| number as u64)
    };
    let (since, last) = (number(0), number(1).unwrap_or(0));
    let archived =
        since.map(|_| Archived { events: number(2).unwrap_or(0), changes: number(3).unwrap_or(0) });
    let sql = "SELECT c.number, c.pipeline, c.kind, c.key, r.revision, r.until_us, r.body
        FROM @changes c LEFT JOIN LATERAL (SELECT * FROM @rows r
            WHERE r.kind = c.kind AND r.pipeline = c.pipeline AND r.key = c.key LIMIT 1) r ON TRUE
        WHERE c.number > $1 ORDER BY c.number LIMIT $2";
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let params = [(&after as _, Type::INT8), (&one_more(limit) as _, Type::INT8)];
    let rows = pool.query(sql, &params).await?;
    let mut items = rows.iter().map(changed).collect::<Result<Vec<_>, StoreError>>()?;
    let more = items.len() > limit;
    items.truncate(limit);
    Ok(Changes { items, more, since, last, archived })
}

fn changed(row: &tokio_postgres::Row) -> Result<ChangedRow, StoreError> {
    let number = row.get::<_, i64>(0) as u64;
    let (pipeline, kind, text): (&str, &str, &str) = (row.get(1), row.get(2), row.get(3));
    let unreadable =
        || StoreError::permanent(format!("the change {number} of {kind}/{text} cannot be read"));
    let key = Key::parse(&format!("{kind}/{text}")).ok_or_else(unreadable)?;
    let now = match row.get::<_, Option<i64>>(4) {
        Some(revision) => {
            let place = (kind, text);
            Some(Found::read(pipeline, place, revision as u64, row.get(5), row.get(6))?.row())
        }
        None => None,
    };
    let pipeline = PipelineId::any(pipeline).map_err(|_broken| unreadable())?;
    Ok(ChangedRow { number, pipeline, key, row: now })
}

/// Keeps how far an archive has read; or follows no longer. Commits that are under way hold the counter's row: so they
/// have either noted their changes, or are visible to whoever reads all rows after this.
pub(crate) async fn archived(pool: &Arc<Pool>, up_to: Option<Archived>) -> Result<(), StoreError> {
    let Some(up_to) = up_to else {
        let sql =
            "WITH over AS (UPDATE @counters SET since = NULL, archived = NULL, archived_changes = NULL
                WHERE name = 'event')
            DELETE FROM @changes";
        return pool.query(sql, &[]).await.map(drop);
    };
    let sql = "WITH kept AS (UPDATE @counters
            SET since = CASE WHEN since IS NULL THEN value ELSE greatest(since, least($1, value)) END,
                archived = greatest(coalesce(archived, 0), $2),
                archived_changes = $1
            WHERE name = 'event' RETURNING since)
        DELETE FROM @changes USING kept WHERE number <= kept.since";
    let read = i64::try_from(up_to.changes).unwrap_or(i64::MAX);
    let events = i64::try_from(up_to.events).unwrap_or(i64::MAX);
    pool.query(sql, &[(&read, Type::INT8), (&events, Type::INT8)]).await.map(drop)
}

/// Some of the rows: kind by kind, each in the order of its keys.
pub(crate) async fn portion(
    pool: &Arc<Pool>,
    which: Rows,
    from: &str,
    limit: usize,
) -> Result<Portion, StoreError> {
    let mut parts = from.splitn(3, ' ');
    let mut next = || parts.next().unwrap_or_default();
    let (first, mut pipeline, mut key) = (next(), next(), next());
    let limit = limit.max(1);
    let mut items: Vec<StoredRow> = Vec::new();
    let kinds = KINDS.into_iter().skip_while(|kind| !first.is_empty() && *kind != first);
    for kind in kinds.filter(|kind| which.includes(kind)) {
        let sql = format!(
            "SELECT {COLUMNS} FROM @{} r WHERE (r.pipeline, r.key) > ($1, $2)
             ORDER BY r.pipeline, r.key LIMIT $3",
            table(kind)
        );
        let room = (limit - items.len()) as i64;
        let params =
            [(&pipeline as _, Type::TEXT), (&key as _, Type::TEXT), (&room as _, Type::INT8)];
        for row in pool.query(&sql, &params).await? {
            let Found { pipeline, key, record, revision } = found(&row)?;
            items.push(StoredRow { pipeline, key, row: Row { record, revision } });
        }
        (pipeline, key) = ("", "");
        if items.len() >= limit {
            break;
        }
    }
    let last = items.last().filter(|_| items.len() >= limit);
    let next =
        last.map(|last| format!("{} {} {}", last.key.kind(), last.pipeline, key_text(&last.key)));
    Ok(Portion { items, next })
}

/// Takes over what another store holds.
pub(crate) async fn import(
    pool: &Arc<Pool>,
    shards: u16,
    freight: Freight,
) -> Result<(), StoreError> {
    let Freight { rows, events, inbox, last, store } = freight;
    let shard = |pipeline: &PipelineId| Shard::of(pipeline, shards);
    let texts: Vec<(String, Stored)> = rows
        .iter()
        .map(|row| (key_text(&row.key), Stored::of(&row.key, &row.row.record)))
        .collect();
    texts.iter().try_for_each(|(text, _)| check_text(text))?;
    let written: Vec<Written<'_>> = rows
        .iter()
        .zip(&texts)
        .map(|(row, (text, stored))| Written {
            place: (row.key.kind(), row.pipeline.as_str(), text.as_str()),
            shard: shard(&row.pipeline),
            revision: row.row.revision,
            stored,
        })
        .collect();
    let last = events.iter().map(|event| event.number).fold(last, u64::max) as i64;
    bounded(async {
        let lent = pool.take().await?;
        let count =
            lent.sql("UPDATE @counters SET value = greatest(value, $1) WHERE name = 'event'");
        let count_params = [(&last as _, Type::INT8)];
        let identity = store.map(|store| store.to_string());
        let name =
            lent.sql("UPDATE @about SET value = coalesce($1, value) WHERE name = 'identity'");
        let name_params = [(&identity as _, Type::TEXT)];
        tokio::try_join!(
            biased;
            lent.begin(),
            upsert(&lent, &written),
            append(&lent, &events),
            letters(&lent, shards, &inbox),
            lent.client().execute_typed(&count, &count_params),
            lent.client().execute_typed(&name, &name_params),
            lent.commit(),
        )
        .map_err(|error| said(&error))?;
        lent.done();
        Ok(())
    })
    .await
}

async fn append(lent: &Lent, events: &[EventRow]) -> Result<(), tokio_postgres::Error> {
    let numbers: Vec<i64> = events.iter().map(|event| event.number as i64).collect();
    let pipelines: Vec<&str> = events.iter().map(|event| event.pipeline.as_str()).collect();
    let bodies: Vec<String> = events.iter().map(|event| event.record.encode()).collect();
    let sql = lent.sql(
        "INSERT INTO @events (number, pipeline, body) SELECT * FROM unnest($1, $2, $3)
         ON CONFLICT (number) DO NOTHING",
    );
    let params = [
        (&numbers as _, Type::INT8_ARRAY),
        (&pipelines as _, Type::TEXT_ARRAY),
        (&bodies as _, Type::TEXT_ARRAY),
    ];
    lent.client().execute_typed(&sql, &params).await.map(drop)
}

async fn letters(
    lent: &Lent,
    shards: u16,
    inbox: &[InboxEntry],
) -> Result<(), tokio_postgres::Error> {
    let shards: Vec<i32> =
        inbox.iter().map(|entry| i32::from(Shard::of(&entry.pipeline, shards).0)).collect();
    let pipelines: Vec<&str> = inbox.iter().map(|entry| entry.pipeline.as_str()).collect();
    let keys: Vec<&str> = inbox.iter().map(|entry| entry.key.as_str()).collect();
    let instants: Vec<i64> = inbox.iter().map(|entry| entry.received_at.as_millisecond()).collect();
    let bodies: Vec<String> = inbox.iter().map(|entry| entry.record.encode()).collect();
    let sql = lent.sql(
        "INSERT INTO @inbox (shard, pipeline, key, received_ms, body)
         SELECT u.shard, u.pipeline, u.key, u.received_ms, u.body
         FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY u(shard, pipeline, key, received_ms, body, n)
         ORDER BY u.n ON CONFLICT (pipeline, key) DO NOTHING",
    );
    let params = [
        (&shards as _, Type::INT4_ARRAY),
        (&pipelines as _, Type::TEXT_ARRAY),
        (&keys as _, Type::TEXT_ARRAY),
        (&instants as _, Type::INT8_ARRAY),
        (&bodies as _, Type::TEXT_ARRAY),
    ];
    lent.client().execute_typed(&sql, &params).await.map(drop)
}
