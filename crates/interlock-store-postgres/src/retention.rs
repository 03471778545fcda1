//! Taking out what is old. What that is was decided by whoever asks.

use std::{collections::BTreeSet, sync::Arc};

use interlock_core::id::PipelineId;
use interlock_store::{Forgetting, Key, Shard, StoreError, kept};
use interlock_store_remote::{Stored, key_text};
use jiff::Timestamp;
use tokio_postgres::types::Type;

use crate::{
    apply::{LOCK, Written, table, upsert},
    failure::said,
    pool::{Lent, Pool, bounded},
    read::{COLUMNS, found},
};

/// A slot takes its runs along.
const TAKE_SLOTS: &str = "WITH gone AS (
        DELETE FROM @slots r USING unnest($1, $2, $3) u(pipeline, key, revision)
        WHERE r.pipeline = u.pipeline AND r.key = u.key AND r.revision = u.revision
        RETURNING r.pipeline, r.name, r.at_us),
    runs AS (
        DELETE FROM @runs r USING gone g
        WHERE r.pipeline = g.pipeline AND r.name = g.name AND r.until_us = g.at_us)
    SELECT count(*) FROM gone";

/// Everything else is a row each.
fn take_rows(kind: &str) -> String {
    format!(
        "WITH gone AS (
            DELETE FROM @{} r USING unnest($1, $2, $3) u(pipeline, key, revision)
            WHERE r.pipeline = u.pipeline AND r.key = u.key AND r.revision = u.revision
            RETURNING 1)
        SELECT count(*) FROM gone",
        table(kind)
    )
}

const TAKE_EVENTS: &str = "DELETE FROM @events WHERE number <= $1";

/// Takes out what is named, under the locks of the shards: a commit that is under way has read these rows.
pub(crate) async fn forget(
    pool: &Arc<Pool>,
    shards: u16,
    (what, now): (Forgetting, Timestamp),
) -> Result<usize, StoreError> {
    what.check()?;
    let of = |pipeline: &PipelineId| i32::from(Shard::of(pipeline, shards).0);
    let mut locked: BTreeSet<i32> = what.rows.iter().map(|(name, ..)| of(name)).collect();
    let system = PipelineId::system();
    locked.extend(what.floor.map(|_| of(&system)));
    let locked: Vec<i32> = locked.into_iter().collect();
    let of_kind = |kind: &str| -> Vec<&(PipelineId, Key, u64)> {
        what.rows.iter().filter(|(_, key, _)| key.kind() == kind).collect()
    };
    let slots = of_kind("slot");
    let others =
        ["span", "applied", "incident", "outbox"].map(|kind| (take_rows(kind), of_kind(kind)));
    bounded(async {
        let lent = pool.take().await?;
        let lock = lent.sql(LOCK);
        let lock_params = [(&locked as _, Type::INT4_ARRAY)];
        let ((), _) = tokio::try_join!(
            biased;
            lent.begin(),
            lent.client().execute_typed(&lock, &lock_params),
        )
        .map_err(|error| said(&error))?;
        if let Some(floor) = what.floor {
            raise(&lent, Shard::of(&system, shards), (floor, now)).await?;
        }
        let events = i64::try_from(what.events).unwrap_or(i64::MAX);
        let take_events = lent.sql(TAKE_EVENTS);
        let events_params = [(&events as _, Type::INT8)];
        let [spans, answers, incidents, outbox] = &others;
        let (slots, spans, answers, incidents, outbox, _, ()) = tokio::try_join!(
            biased;
            take(&lent, TAKE_SLOTS, &slots),
            take(&lent, &spans.0, &spans.1),
            take(&lent, &answers.0, &answers.1),
            take(&lent, &incidents.0, &incidents.1),
            take(&lent, &outbox.0, &outbox.1),
            lent.client().execute_typed(&take_events, &events_params),
            lent.commit(),
        )
        .map_err(|error| said(&error))?;
        lent.done();
        Ok(slots + spans + answers + incidents + outbox)
    })
    .await
}

async fn take(
    lent: &Lent,
    sql: &str,
    rows: &[&(PipelineId, Key, u64)],
) -> Result<usize, tokio_postgres::Error> {
    if rows.is_empty() {
        return Ok(0);
    }
    let pipelines: Vec<&str> = rows.iter().map(|(pipeline, ..)| pipeline.as_str()).collect();
    let keys: Vec<String> = rows.iter().map(|(_, key, _)| key_text(key)).collect();
    let revisions: Vec<i64> = rows.iter().map(|(.., revision)| *revision as i64).collect();
    let params = [
        (&pipelines as _, Type::TEXT_ARRAY),
        (&keys as _, Type::TEXT_ARRAY),
        (&revisions as _, Type::INT8_ARRAY),
    ];
    let answer = lent.client().query_typed(&lent.sql(sql), &params).await?;
    Ok(answer.first().map_or(0, |row| row.get::<_, i64>(0) as usize))
}

/// Raises the floor, unless it is as high already.
async fn raise(
    lent: &Lent,
    shard: Shard,
    (floor, now): (Timestamp, Timestamp),
) -> Result<(), StoreError> {
    let (pipeline, key) = (PipelineId::system(), Key::Sensor(kept::FLOOR_KEY.to_owned()));
    let (text, stored) = (key_text(&key), Stored::of(&key, &kept::floor_record(floor, now)));
    let find = format!("SELECT {COLUMNS} FROM @sensors r WHERE r.pipeline = $1 AND r.key = $2");
    let name = pipeline.as_str();
    let params = [(&name as _, Type::TEXT), (&text as _, Type::TEXT)];
    let rows = lent.client().query_typed(&lent.sql(&find), &params).await;
    let rows = rows.map_err(|error| said(&error))?;
    let known = rows.first().map(found).transpose()?;
    if known.as_ref().and_then(|row| kept::floor_of(&row.record)).is_some_and(|at| at >= floor) {
        return Ok(());
    }
    let row = Written {
        place: (key.kind(), pipeline.as_str(), text.as_str()),
        shard,
        revision: known.map_or(1, |row| row.revision + 1),
        stored: &stored,
    };
    upsert(lent, &[row]).await.map_err(|error| said(&error))
}
