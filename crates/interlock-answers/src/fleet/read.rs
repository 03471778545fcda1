//! Reading what is counted, in few calls for many pipelines. A row that cannot be read costs a quarter of an hour of its pipeline.

use std::collections::BTreeMap;

use interlock_core::id::PipelineId;
use interlock_store::{
    IncidentQuery, LedgerEntry, LedgerQuery, LedgerRow, Shard, Store, StoreError, for_each,
    record::IncidentRecord,
};
use jiff::Timestamp;

use super::{
    place::place_of,
    seen::{OpenSlot, QuarterRange, RowProblem, SeenRows},
    tallied::TalliedIncident,
};
use crate::{model::fleet::FleetState, read::last_slot::is_scheduled};

/// Rows that are asked for at once.
pub(super) const PAGE: usize = 5_000;
/// Incidents of one pipeline that are looked at.
const INCIDENTS_MAX: usize = 20;
/// Open slots of one pipeline that are looked at.
const OPEN_MAX: usize = 100;

/// What the ledger says of a range, by pipeline.
pub(super) type SeenByPipeline = BTreeMap<PipelineId, SeenRows>;

/// The ledger of a range, of one pipeline or of all.
pub(super) async fn read_ledger(
    store: &dyn Store,
    pipeline: Option<&PipelineId>,
    range: QuarterRange,
) -> Result<SeenByPipeline, StoreError> {
    let mut query = LedgerQuery {
        pipeline: pipeline.cloned(),
        from: range.from.start(),
        until: range.until.start(),
        ..LedgerQuery::everything(PAGE)
    };
    let mut seen = SeenByPipeline::new();
    loop {
        let page = store.ledger(&query).await?;
        query.after = page.items.last().map(LedgerRow::place);
        for row in page.items {
            match seen.get_mut(&row.pipeline) {
                Some(rows) => rows.take(row),
                None => seen.entry(row.pipeline.clone()).or_default().take(row),
            }
        }
        if !page.more {
            return Ok(seen);
        }
    }
}

/// The same of all pipelines, where a row cannot be read: pipeline by pipeline, and of one that has such a row quarter by quarter.
pub(super) async fn read_ledger_carefully(
    store: &dyn Store,
    names: Vec<PipelineId>,
    range: QuarterRange,
) -> Result<SeenByPipeline, StoreError> {
    let each = for_each(names, |name| async move {
        let rows = match read_ledger(store, Some(&name), range).await {
            Ok(mut seen) => seen.remove(&name).unwrap_or_default(),
            Err(error) if error.is_retryable => return Err(error),
            Err(_unreadable) => read_quarters(store, &name, range).await?,
        };
        Ok((name, rows))
    });
    Ok(each.await?.into_iter().collect())
}

async fn read_quarters(
    store: &dyn Store,
    name: &PipelineId,
    range: QuarterRange,
) -> Result<SeenRows, StoreError> {
    let mut rows = SeenRows::default();
    let (mut from, mut spans_from) = (range.from, None);
    // What is behind the last quarter that is kept is one question.
    let last = range.until.0.min(range.from.0 + super::tallied::QUARTERS_KEPT * 2);
    while from < range.until {
        let until = if from.0 + 1 < last { from.after(1) } else { range.until };
        let quarter = QuarterRange { from, until };
        let query = LedgerQuery {
            pipeline: Some(name.clone()),
            from: from.start(),
            until: until.start(),
            ..LedgerQuery::everything(PAGE)
        };
        match store.ledger(&query).await {
            Ok(page) => {
                for row in page.items {
                    // A span is told again in each quarter that it touches.
                    let is_span = matches!(row.entry, LedgerEntry::Span(_));
                    if !is_span || quarter.has(row.nominal) || spans_from.is_none() {
                        rows.take(row);
                    }
                }
                spans_from = Some(from);
            }
            Err(error) if error.is_retryable => return Err(error),
            Err(error) => {
                rows.problem = Some(RowProblem { at: from, message: error.message });
            }
        }
        from = until;
    }
    Ok(rows)
}

/// The names of all pipelines of a shard, with the revisions of their rows.
pub(super) async fn read_revisions(
    store: &dyn Store,
    shard: Shard,
) -> Result<Vec<(PipelineId, u64)>, StoreError> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.revisions(shard, after.as_ref(), PAGE).await?;
        after = page.items.last().map(|(name, _)| name.clone());
        found.extend(page.items);
        if !page.more {
            return Ok(found);
        }
    }
}

/// All open slots, by pipeline. Where one cannot be read, those of its pipeline are left out.
pub(super) async fn read_open(
    store: &dyn Store,
    names: Vec<PipelineId>,
) -> Result<BTreeMap<PipelineId, Vec<OpenSlot>>, StoreError> {
    match read_all_open(store).await {
        Err(error) if !error.is_retryable => {
            let each = for_each(names, |name| async move {
                let open = or_none(read_open_of(store, &name).await)?.unwrap_or_default();
                Ok((name, open))
            });
            Ok(each.await?.into_iter().collect())
        }
        open => open,
    }
}

/// What was read; none of what cannot be.
pub(super) fn or_none<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_retryable => Err(error),
        Err(_unreadable) => Ok(None),
    }
}

async fn read_all_open(
    store: &dyn Store,
) -> Result<BTreeMap<PipelineId, Vec<OpenSlot>>, StoreError> {
    let mut found: BTreeMap<PipelineId, Vec<OpenSlot>> = BTreeMap::new();
    for shard in (0..store.shard_count()).map(Shard) {
        let mut after = None;
        loop {
            let page = store.open_slots(shard, after.as_ref(), PAGE).await?;
            let last = page.items.last();
            after = last.map(|row| (row.pipeline.clone(), row.nominal, row.schedule.clone()));
            for row in page.items {
                if let Some(slot) = open_slot(&row) {
                    found.entry(row.pipeline).or_default().push(slot);
                }
            }
            if !page.more {
                break;
            }
        }
    }
    Ok(found)
}

/// The open slots of one pipeline.
pub(super) async fn read_open_of(
    store: &dyn Store,
    pipeline: &PipelineId,
) -> Result<Vec<OpenSlot>, StoreError> {
    let query = LedgerQuery {
        pipeline: Some(pipeline.clone()),
        disposition: Some("open".to_owned()),
        ..LedgerQuery::everything(OPEN_MAX)
    };
    let page = store.ledger(&query).await?;
    Ok(page.items.iter().filter_map(open_slot).collect())
}

fn open_slot(row: &LedgerRow) -> Option<OpenSlot> {
    let LedgerEntry::Slot(slot) = &row.entry else { return None };
    if !is_scheduled(&row.schedule) {
        return None;
    }
    let place = place_of(slot).filter(|place| place.is_open())?;
    Some(OpenSlot::of(row.nominal, slot, place))
}

/// All incidents that are not resolved, by pipeline. Where one cannot be read, those of its pipeline are left out.
pub(super) async fn read_incidents(
    store: &dyn Store,
    names: Vec<PipelineId>,
) -> Result<BTreeMap<PipelineId, Vec<TalliedIncident>>, StoreError> {
    match read_all_incidents(store).await {
        Err(error) if !error.is_retryable => {
            let each = for_each(names, |name| async move {
                let open = or_none(read_incidents_of(store, &name).await)?.unwrap_or_default();
                Ok((name, open))
            });
            Ok(each.await?.into_iter().collect())
        }
        open => open,
    }
}

async fn read_all_incidents(
    store: &dyn Store,
) -> Result<BTreeMap<PipelineId, Vec<TalliedIncident>>, StoreError> {
    let mut found: BTreeMap<PipelineId, Vec<TalliedIncident>> = BTreeMap::new();
    for shard in (0..store.shard_count()).map(Shard) {
        let mut after = None;
        loop {
            let page = store.open_incidents(shard, after.as_ref(), PAGE).await?;
            let last = page.items.last();
            after = last.map(|(pipeline, key, _)| (pipeline.clone(), key.clone()));
            for (pipeline, _, row) in page.items {
                let of = found.entry(pipeline).or_default();
                if of.len() < INCIDENTS_MAX {
                    of.push(TalliedIncident::of(&row.record));
                }
            }
            if !page.more {
                break;
            }
        }
    }
    Ok(found)
}

/// Those of one pipeline.
pub(super) async fn read_incidents_of(
    store: &dyn Store,
    pipeline: &PipelineId,
) -> Result<Vec<TalliedIncident>, StoreError> {
    let query = IncidentQuery {
        pipeline: Some(pipeline.clone()),
        is_open: Some(true),
        limit: INCIDENTS_MAX,
        ..IncidentQuery::default()
    };
    let page = store.incidents_by(&query).await?;
    Ok(page.items.iter().map(|(_, _, row)| TalliedIncident::of(&row.record)).collect())
}

impl TalliedIncident {
    fn of(record: &IncidentRecord) -> Self {
        Self {
            opened_at: record.opened_at,
            message: record.message.as_str().into(),
            state: state_of(&record.kind),
        }
    }
}

/// The state that an incident is a reason for, by the event that opened it.
fn state_of(kind: &str) -> Option<FleetState> {
    Some(match kind {
        "RETRY_EXHAUSTED" | "SFN_TIMEOUT" | "POST_RUN_FAILED" | "PIPELINE_SET_ASIDE" => {
            FleetState::Failed
        }
        "SCHEDULE_MISSED" | "IRREGULAR_SCHEDULE_MISSED" => FleetState::Missed,
        "VALIDATION_EXHAUSTED" | "SENSOR_DEADLINE_EXPIRED" => FleetState::NotReady,
        "SCHEDULE_UNKNOWN" | "RUN_UNCERTAIN" | "WATCHDOG_DEGRADED" => FleetState::Unknown,
        "SLA_WARNING" | "RELATIVE_SLA_WARNING" | "RUN_STUCK" | "POST_RUN_SENSOR_MISSING" => {
            FleetState::AtRisk
        }
        "SLA_BREACH" | "RELATIVE_SLA_BREACH" => FleetState::Late,
        "PIPELINE_PAUSED" => FleetState::PausedLong,
        _ => return None,
    })
}

/// The instant of a slot, as events name it: `schedule/instant`.
pub(super) fn instant_of(slot: &str) -> Option<Timestamp> {
    slot.rsplit_once('/')?.1.parse().ok()
}
