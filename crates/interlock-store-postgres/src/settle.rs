//! Settlements: what came of notifications that were handed out, many in one transaction.
//!
//! Two journeys to the server, as for groups (`apply`): the first locks the shards and finds the revisions of all rows that
//! are named, the second writes what came of it. In between they are judged here, one after the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use interlock_store::{Key, OutboxRow, Record, SettleOutcome, Settlement, Shard, StoreError};
use interlock_store_remote::{Stored, key_text};
use tokio_postgres::types::Type;

use crate::{
    apply::{LOCK, Written, add, check_text, delete, upsert},
    failure::said,
    pool::{Lent, Pool, bounded},
};

/// Settlements in one transaction: other writers to their shards wait meanwhile.
const SETTLED: usize = 500;

/// A notification's pipeline and key.
type Place<'a> = (&'a str, String);

/// What is known of a notification, and what is to become of it.
#[derive(Default)]
struct Known {
    shard: Option<Shard>,
    found: u64,
    revision: u64,
    put: Option<Stored>,
}

/// Replaces claimed notifications by what came of them, if their rows are still as they were handed out.
pub(crate) async fn settle_many(
    pool: &Arc<Pool>,
    shards: u16,
    settlements: &[Settlement],
) -> Result<Vec<SettleOutcome>, StoreError> {
    let mut outcomes = Vec::with_capacity(settlements.len());
    for portion in settlements.chunks(SETTLED) {
        match bounded(settle_portion(pool, shards, portion)).await {
            Ok(claimed) => outcomes.extend(claimed.into_iter().map(Ok)),
            Err(error) => outcomes.extend(vec![Err(error); portion.len()]),
        }
    }
    Ok(outcomes)
}

/// The rows that stay claimed, for each.
async fn settle_portion(
    pool: &Arc<Pool>,
    shards: u16,
    settlements: &[Settlement],
) -> Result<Vec<Vec<OutboxRow>>, StoreError> {
    let mut known: BTreeMap<Place<'_>, Known> = BTreeMap::new();
    for settlement in settlements {
        let shard = Shard::of(&settlement.row.pipeline, shards);
        let names = settlement.becomes.iter().map(|(name, _)| name);
        for name in names.chain([&settlement.row.name]) {
            let place = place(settlement, name);
            check_text(&place.1)?;
            known.entry(place).or_default().shard = Some(shard);
        }
    }
    let lent = pool.take().await?;
    find(&lent, &mut known).await?;
    let claimed = settlements.iter().map(|settlement| judge(settlement, &mut known)).collect();
    let gone: Vec<_> = known.iter().filter(|(_, it)| it.found > 0 && it.revision == 0).collect();
    let gone: Vec<_> =
        gone.into_iter().map(|((pipeline, key), _)| ("outbox", *pipeline, key.as_str())).collect();
    let (mut kept, mut added) = (Vec::new(), Vec::new());
    for ((pipeline, key), it) in &known {
        let (Some(stored), Some(shard)) = (&it.put, it.shard) else { continue };
        let place = ("outbox", *pipeline, key.as_str());
        let row = Written { place, shard, revision: it.revision, stored };
        if it.found > 0 { &mut kept } else { &mut added }.push(row);
    }
    tokio::try_join!(
        biased;
        delete(&lent, &gone),
        upsert(&lent, &kept),
        add(&lent, &added),
        lent.commit(),
    )
    .map_err(|error| said(&error))?;
    lent.done();
    Ok(claimed)
}

/// Decides about one settlement, as if those before it had been written; the rows that stay claimed.
fn judge<'a>(settlement: &'a Settlement, known: &mut BTreeMap<Place<'a>, Known>) -> Vec<OutboxRow> {
    let row = &settlement.row;
    let Some(own) = known.get_mut(&place(settlement, &row.name)) else { return Vec::new() };
    if own.revision == 0 || own.revision != row.revision {
        return Vec::new();
    }
    (own.revision, own.put) = (0, None);
    let mut claimed = Vec::new();
    for (name, record) in settlement.claimed() {
        let Some(state) = known.get_mut(&place(settlement, name)) else { continue };
        if state.revision > 0 {
            continue;
        }
        state.revision = if *name == row.name { row.revision + 1 } else { 1 };
        let (pipeline, name) = (row.pipeline.clone(), name.clone());
        let stored = Record::Outbox(record.clone().into());
        state.put = Some(Stored::of(&Key::Outbox(name.clone()), &stored));
        if record.claimed_until.is_some() {
            claimed.push(OutboxRow { pipeline, name, record, revision: 1 });
        }
    }
    claimed
}

fn place<'a>(settlement: &'a Settlement, name: &str) -> Place<'a> {
    (settlement.row.pipeline.as_str(), key_text(&Key::Outbox(name.to_owned())))
}

/// Begins a transaction, locks the shards, and finds the revisions of notifications. Claims come without the shard's lock:
/// they are waited for.
async fn find(lent: &Lent, known: &mut BTreeMap<Place<'_>, Known>) -> Result<(), StoreError> {
    let find = "SELECT o.pipeline, o.key, o.revision FROM unnest($1, $2) u(pipeline, key)
        JOIN @outbox o ON o.pipeline = u.pipeline AND o.key = u.key
        ORDER BY o.pipeline, o.key FOR UPDATE OF o";
    let (lock, find) = (lent.sql(LOCK), lent.sql(find));
    let shards: BTreeSet<Shard> = known.values().filter_map(|it| it.shard).collect();
    let shards: Vec<i32> = shards.into_iter().map(|shard| i32::from(shard.0)).collect();
    let lock_params = [(&shards as _, Type::INT4_ARRAY)];
    let pipelines: Vec<&str> = known.keys().map(|(pipeline, _)| *pipeline).collect();
    let keys: Vec<&str> = known.keys().map(|(_, key)| key.as_str()).collect();
    let find_params = [(&pipelines as _, Type::TEXT_ARRAY), (&keys as _, Type::TEXT_ARRAY)];
    let ((), _, rows) = tokio::try_join!(
        biased;
        lent.begin(),
        lent.client().query_typed(&lock, &lock_params),
        lent.client().query_typed(&find, &find_params),
    )
    .map_err(|error| said(&error))?;
    let found: BTreeMap<(&str, &str), u64> =
        rows.iter().map(|row| ((row.get(0), row.get(1)), row.get::<_, i64>(2) as u64)).collect();
    for ((pipeline, key), it) in known {
        it.found = found.get(&(*pipeline, key.as_str())).copied().unwrap_or(0);
        it.revision = it.found;
    }
    Ok(())
}
