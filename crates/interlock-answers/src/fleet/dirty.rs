//! What an event makes doubtful of a pipeline, and how that is read again.

use std::collections::BTreeSet;

use interlock_core::id::PipelineId;
use interlock_store::{EventRow, Store, StoreError};
use jiff::Timestamp;

use super::{
    cells::Quarter,
    read::{
        SeenByPipeline, instant_of, or_none, read_incidents_of, read_ledger, read_ledger_carefully,
        read_open_of,
    },
    seen::{OpenSlot, QuarterRange, SeenRows},
    table::FleetTable,
    tallied::{TalliedIncident, first_kept},
};

/// Quarters of one pipeline that are read one by one; more are read together.
const QUARTERS_APART: usize = 4;
/// The end of the last range: all that is to come.
pub(super) const END: Quarter = Quarter(8_000_000);

/// What is to be read again of a pipeline.
#[derive(Debug, Default)]
pub(super) struct DirtyPipeline {
    pub(super) quarters: BTreeSet<Quarter>,
    pub(super) is_whole: bool,
    is_past: bool,
    pub(super) has_incidents: bool,
}

/// What was read again of it.
pub(super) struct FreshPipeline {
    name: PipelineId,
    ranges: Vec<(QuarterRange, SeenRows)>,
    open: Option<Vec<OpenSlot>>,
    incidents: Option<Vec<TalliedIncident>>,
    is_past: bool,
}

impl DirtyPipeline {
    pub(super) fn take(&mut self, event: &EventRow, now: Timestamp) {
        let record = &event.record;
        let base = first_kept(now);
        match record.slot.as_deref().map(instant_of) {
            Some(Some(at)) if Quarter::of(at) >= base => {
                self.quarters.insert(Quarter::of(at));
            }
            Some(_) => self.is_past = true,
            None => self.is_whole |= !is_beside_slots(&record.kind),
        }
        // Many slots, under the last of them.
        let many = record.details.get("count").and_then(serde_json::Value::as_u64);
        if many.is_some_and(|count| count > 1) || record.details.contains_key("span") {
            (self.is_whole, self.is_past) = (true, true);
        }
        self.has_incidents |= !is_ordinary(&record.kind);
    }
}

/// Events that change no slot by themselves.
fn is_beside_slots(kind: &str) -> bool {
    matches!(kind, "SENSOR_ARRIVED" | "SENSOR_REPORTED" | "STEP_CHANGED" | "INCIDENT_NOTED")
}

/// Events that open no incident.
fn is_ordinary(kind: &str) -> bool {
    matches!(
        kind,
        "SLOT_OPENED" | "SLOTS_OPENED" | "JOB_TRIGGERED" | "JOB_STARTED" | "JOB_COMPLETED"
    ) || is_beside_slots(kind)
}

/// All that is kept at an instant.
pub(super) fn everything(now: Timestamp) -> QuarterRange {
    QuarterRange { from: first_kept(now), until: END }
}

pub(super) async fn read_range(
    store: &dyn Store,
    names: &[PipelineId],
    range: QuarterRange,
) -> Result<SeenByPipeline, StoreError> {
    let one = if let [name] = names { Some(name) } else { None };
    match read_ledger(store, one, range).await {
        Err(error) if !error.is_retryable => {
            read_ledger_carefully(store, names.to_vec(), range).await
        }
        seen => seen,
    }
}

pub(super) async fn read_fresh(
    store: &dyn Store,
    name: PipelineId,
    dirty: DirtyPipeline,
    now: Timestamp,
) -> Result<FreshPipeline, StoreError> {
    let DirtyPipeline { quarters, is_whole, is_past, has_incidents } = dirty;
    let ranges = if is_whole || quarters.len() > QUARTERS_APART {
        vec![everything(now)]
    } else {
        let one = |from: Quarter| QuarterRange { from, until: from.after(1) };
        quarters.into_iter().map(one).collect()
    };
    let mut read = Vec::with_capacity(ranges.len());
    for range in ranges {
        let mut seen = read_range(store, std::slice::from_ref(&name), range).await?;
        read.push((range, seen.remove(&name).unwrap_or_default()));
    }
    let open = if is_past { or_none(read_open_of(store, &name).await)? } else { None };
    let incidents =
        if has_incidents { or_none(read_incidents_of(store, &name).await)? } else { None };
    Ok(FreshPipeline { name, ranges: read, open, incidents, is_past })
}

/// Takes over what was read again of a pipeline; names it if that is not enough.
pub(super) fn take_fresh(
    table: &mut FleetTable,
    fresh: FreshPipeline,
    now: Timestamp,
) -> Option<PipelineId> {
    let FreshPipeline { name, ranges, open, incidents, is_past } = fresh;
    if is_past {
        table.forget_history(&name);
    }
    let mut is_lost = false;
    table.change(&name, now, |pipeline| {
        for (range, seen) in &ranges {
            is_lost |= range.until != END && pipeline.loses_last(*range, seen);
            pipeline.take(*range, seen, now);
        }
        if let Some(open) = open {
            pipeline.take_open(open);
        }
        if let Some(incidents) = incidents {
            pipeline.incidents = incidents.into();
        }
    });
    is_lost.then_some(name)
}

pub(super) fn take_seen(
    table: &mut FleetTable,
    range: QuarterRange,
    seen: &SeenByPipeline,
    now: Timestamp,
    name: &PipelineId,
) {
    let empty = SeenRows::default();
    let rows = seen.get(name).unwrap_or(&empty);
    table.change(name, now, |pipeline| pipeline.take(range, rows, now));
}
