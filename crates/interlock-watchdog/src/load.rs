//! Reading everything that is registered, page by page.

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    DueKind, Key, LedgerRow, Record, Shard, Store, StoreError,
    record::{DueRecord, Shared, WatermarkRecord},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::watched::Watchlist;

/// Rows per page.
pub(crate) const PAGE: usize = 1_000;
/// Agendas per page: each is some kilobytes while it is read, and nothing of it is kept.
const AGENDAS: usize = 100;

/// The watchdog's own schedule, under `_system`: how far everything of a shard was judged.
const OWN: &str = "watchdog";
/// Times in which nobody watched are kept in a due entry that is never due: it holds no decision.
const COVERAGE: &str = "coverage";
/// How long they are kept: longer than any watch-only slot waits.
const COVERAGE_KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);
const GAPS_MAX: usize = 100;

/// What the watchdog knows of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Own {
    /// Everything up to this was judged; `None` when it never ran.
    pub(crate) judged: Option<Timestamp>,
    pub(crate) revision: u64,
    /// Times in which nobody watched.
    pub(crate) blind: Vec<(Timestamp, Timestamp)>,
}

/// What belongs to the watchdog of a shard: the first has the plain name, which is all there is where there is one shard.
fn of(shard: Shard, name: &str) -> String {
    match shard.0 {
        0 => name.to_owned(),
        number => format!("{name}-{number}"),
    }
}

/// The address of its watermark.
pub(crate) fn own_watermark(shard: Shard) -> Key {
    let named = ScheduleId::parse(&of(shard, OWN));
    Key::Watermark(named.unwrap_or_else(|_| ScheduleId::from_static(OWN)))
}

/// The address of the times in which nobody watched.
pub(crate) fn coverage_key(shard: Shard) -> Key {
    // The last day that every engine can write.
    let never = "9999-12-30T00:00:00Z".parse().unwrap_or(Timestamp::MAX);
    Key::Due(never, DueKind::Pause, of(shard, COVERAGE))
}

/// Reads what the watchdog knows of itself.
pub(crate) async fn own(store: &dyn Store, shard: Shard) -> Result<Own, StoreError> {
    let keys = [own_watermark(shard), coverage_key(shard), own_watermark(Shard(0))];
    let rows = store.read(&PipelineId::system(), &keys).await?;
    let mut own = Own::default();
    for (at, row) in rows.into_iter().enumerate() {
        let Some(row) = row else { continue };
        if let Record::Watermark(WatermarkRecord { at: judged }) = &row.record {
            if at == 0 {
                own.revision = row.revision;
            }
            // A ledger that moved to a store with more shards has one watermark for those that are new.
            own.judged = own.judged.or(Some(*judged));
        } else if let Record::Due(record) = &row.record {
            own.blind = gaps(record);
        }
    }
    Ok(own)
}

fn gaps(record: &DueRecord) -> Vec<(Timestamp, Timestamp)> {
    let all = record.details.get("gaps").and_then(Value::as_array).into_iter().flatten();
    let instant = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
    all.filter_map(|gap| Some((instant(gap.get(0)?)?, instant(gap.get(1)?)?))).collect()
}

/// The row of those times, as far as they still matter.
pub(crate) fn coverage_record(blind: &[(Timestamp, Timestamp)], now: Timestamp) -> Record {
    let recent = blind.iter().filter(|(_, until)| now.duration_since(*until) < COVERAGE_KEPT);
    let recent: Vec<_> = recent.collect();
    let last = recent.len().saturating_sub(GAPS_MAX);
    let gaps =
        recent.iter().skip(last).map(|(from, until)| json!([from.to_string(), until.to_string()]));
    let details = [("gaps".to_owned(), gaps.collect::<Value>())];
    Record::Due(DueRecord { details: details.into_iter().collect() })
}

/// Takes every pipeline of a shard over; answers with those whose rows cannot be read.
pub(crate) async fn agenda(
    store: &dyn Store,
    shard: Shard,
    list: &mut Watchlist,
    judged: Timestamp,
) -> Result<Vec<(PipelineId, String)>, StoreError> {
    let mut unreadable = Vec::new();
    let mut last: Option<PipelineId> = None;
    loop {
        let page = store.agenda(shard, last.as_ref(), AGENDAS).await?;
        let mut shared = Shared::default();
        for row in &page.items {
            let record = (&row.record.record, row.record.revision);
            if let Err(reason) = list.take(&row.pipeline, record, judged, &mut shared) {
                unreadable.push((row.pipeline.clone(), reason.to_string()));
            }
        }
        last = page.items.last().map(|row| row.pipeline.clone());
        if !page.more {
            list.shrink();
            return Ok(unreadable);
        }
    }
}

/// Where a rotation over the open slots stands.
pub(crate) type OpenPlace = (PipelineId, Timestamp, ScheduleId);

/// A page of open slots, and where the next one begins.
pub(crate) async fn open_slots(
    store: &dyn Store,
    shard: Shard,
    (after, limit): (Option<&OpenPlace>, usize),
) -> Result<(Vec<LedgerRow>, Option<OpenPlace>), StoreError> {
    let page = store.open_slots(shard, after, limit).await?;
    let last = page.items.last().filter(|_| page.more);
    let last = last.map(|row| (row.pipeline.clone(), row.nominal, row.schedule.clone()));
    Ok((page.items, last))
}
