//! Listings of slots, spans and runs.

use std::sync::Arc;

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    LedgerQuery, LedgerRow, ListOrder, Page, RunQuery, RunRow, Shard, StoreError,
};
use interlock_store_remote::{Found, micros, one_more, rounded_up};
use jiff::Timestamp;
use tokio_postgres::types::Type;

use crate::{
    pool::Pool,
    read::{COLUMNS, direction, found, listing},
};

/// Slots and spans, each in the order of their places, then both: neither reads more than a page.
/// `$1` pipeline, `$2` from, `$3` until, `$4` word, `$5` to `$7` the place after which, `$8` whether what shares that
/// place comes too (a span comes after the slot with which it begins, or before it where the newest come first), `$9`
/// limit, `$10` the first instant at which a slot can be.
fn ledger_sql(order: ListOrder) -> String {
    let (is_after, slots_too, spans_too) = match order {
        ListOrder::OldestFirst => (">", "FALSE", "$8"),
        ListOrder::NewestFirst => ("<", "$8", "FALSE"),
    };
    let direction = direction(order);
    let (place, last) = ("(r.at_us, r.pipeline, r.name)", "($5, $6, $7)");
    let listed =
        format!("ORDER BY r.at_us {direction}, r.pipeline {direction}, r.name {direction}");
    format!(
        "SELECT * FROM (
            (SELECT {COLUMNS}, r.at_us, r.name FROM @slots r
             WHERE ($1 IS NULL OR r.pipeline = $1) AND r.at_us >= $10 AND r.at_us < $3
               AND ($4 IS NULL OR r.word = $4)
               AND ({place} {is_after} {last} OR ({slots_too} AND {place} = {last}))
             {listed} LIMIT $9)
            UNION ALL
            (SELECT {COLUMNS}, r.at_us, r.name FROM @spans r
             WHERE ($1 IS NULL OR r.pipeline = $1) AND r.until_us >= $2 AND r.at_us < $3
               AND ($4 IS NULL OR r.word = $4)
               AND ({place} {is_after} {last} OR ({spans_too} AND {place} = {last}))
             {listed} LIMIT $9)
         ) r {listed}, r.kind {direction} LIMIT $9"
    )
}

/// The ledger, in the order of its places.
pub(crate) async fn ledger(
    pool: &Arc<Pool>,
    query: &LedgerQuery,
) -> Result<Page<LedgerRow>, StoreError> {
    let of = query.pipeline.as_ref().map(PipelineId::as_str);
    let (from, mut until) = (rounded_up(query.from), rounded_up(query.until));
    let is_upwards = query.order == ListOrder::OldestFirst;
    let begin = if is_upwards { i64::MIN } else { i64::MAX };
    let after = query.after.as_ref();
    let place = after.map_or((begin, "", ""), |after| {
        (micros(after.nominal), after.pipeline.as_str(), after.schedule.as_str())
    });
    let others_too = after.is_some_and(|after| after.is_span != is_upwards);
    let mut first = from;
    if is_upwards {
        first = from.max(place.0);
    } else {
        until = until.min(place.0.saturating_add(1));
    }
    let rows_max = one_more(query.limit);
    let params = [
        (&of as _, Type::TEXT),
        (&from as _, Type::INT8),
        (&until as _, Type::INT8),
        (&query.disposition as _, Type::TEXT),
        (&place.0 as _, Type::INT8),
        (&place.1 as _, Type::TEXT),
        (&place.2 as _, Type::TEXT),
        (&others_too as _, Type::BOOL),
        (&rows_max as _, Type::INT8),
        (&first as _, Type::INT8),
    ];
    let rows = pool.query(&ledger_sql(query.order), &params).await?;
    let rows = rows.iter().map(|row| found(row)?.ledger());
    Ok(interlock_store_remote::page(rows.collect::<Result<_, _>>()?, query.limit))
}

/// Every open slot of a shard, in the order (pipeline, nominal, schedule).
pub(crate) async fn open_slots(
    pool: &Arc<Pool>,
    shard: Shard,
    after: Option<(PipelineId, Timestamp, ScheduleId)>,
    limit: usize,
) -> Result<Page<LedgerRow>, StoreError> {
    let (number, rows_max) = (i32::from(shard.0), one_more(limit));
    let (name, nominal, schedule) =
        after.as_ref().map_or(("", i64::MIN, ""), |(name, nominal, schedule)| {
            (name.as_str(), micros(*nominal), schedule.as_str())
        });
    let from = "slots r WHERE r.shard = $1 AND r.word = 'open' AND (r.pipeline, r.at_us, r.name) > ($2, $3, $4)
        ORDER BY r.pipeline, r.at_us, r.name LIMIT $5";
    let params = [
        (&number as _, Type::INT4),
        (&name as _, Type::TEXT),
        (&nominal as _, Type::INT8),
        (&schedule as _, Type::TEXT),
        (&rows_max as _, Type::INT8),
    ];
    listing(pool, from, &params, (limit, Found::ledger)).await
}

/// Runs, newest first.
pub(crate) async fn runs(pool: &Arc<Pool>, query: &RunQuery) -> Result<Page<RunRow>, StoreError> {
    let of = query.pipeline.as_ref().map(PipelineId::as_str);
    let slot = query.slot.as_ref();
    let (schedule, nominal) =
        slot.map(|(schedule, nominal)| (schedule.as_str(), micros(*nominal))).unzip();
    let after = query.after.as_ref();
    let place = after.map_or((i64::MAX, "", "", 0, 0), |after| {
        let rank = (i64::from(after.key.generation) << 32) | i64::from(after.key.attempt);
        let (name, schedule) = (after.pipeline.as_str(), after.key.schedule.as_str());
        (micros(after.created_at), name, schedule, micros(after.key.nominal), rank)
    });
    let rows_max = one_more(query.limit);
    let from = "runs r WHERE ($1 IS NULL OR r.pipeline = $1) AND ($2 IS NULL OR r.name = $2)
        AND ($3 IS NULL OR r.until_us = $3) AND ($4 IS NULL OR r.word = $4)
        AND ($5 IS NULL OR r.more = $5) AND r.at_us <= $6
        AND (r.at_us, r.pipeline, r.name, r.until_us, r.rank) < ($6, $7, $8, $9, $10)
        ORDER BY r.at_us DESC, r.pipeline DESC, r.name DESC, r.until_us DESC, r.rank DESC LIMIT $11";
    let params = [
        (&of as _, Type::TEXT),
        (&schedule as _, Type::TEXT),
        (&nominal as _, Type::INT8),
        (&query.status as _, Type::TEXT),
        (&query.trigger_type as _, Type::TEXT),
        (&place.0 as _, Type::INT8),
        (&place.1 as _, Type::TEXT),
        (&place.2 as _, Type::TEXT),
        (&place.3 as _, Type::INT8),
        (&place.4 as _, Type::INT8),
        (&rows_max as _, Type::INT8),
    ];
    listing(pool, from, &params, (query.limit, Found::run)).await
}
