//! Events, in either order.

use interlock_core::id::PipelineId;

use super::{ScanPage, Verdict, Walk, is_among, scan};
use crate::{EventQuery, EventRow, ListOrder, Page, Store, StoreError, StoreFuture};

/// Which events are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    /// Only of this pipeline.
    pub pipeline: Option<PipelineId>,
    /// Only of one of these kinds; of all when empty.
    pub kinds: Vec<String>,
    /// Only about this slot, as `schedule/instant`.
    pub slot: Option<String>,
    /// Only about this run.
    pub run_id: Option<String>,
    /// In which order of their numbers.
    pub order: ListOrder,
}

/// Events after a number, in bounded work: newer ones where the oldest come first, older ones where the newest do.
pub async fn find_events(
    store: &dyn Store,
    filter: &EventFilter,
    after: Option<u64>,
    limit: usize,
) -> Result<ScanPage<EventRow, u64>, StoreError> {
    let walk = EventWalk { store, filter };
    let page = scan(&[walk], after.map(|number| filter.order.turned(number)), limit).await?;
    Ok(page.with_places(|place| filter.order.turned(place)))
}

impl ListOrder {
    /// A number that grows in this order; turned twice it is the same again.
    fn turned(self, number: u64) -> u64 {
        match self {
            Self::OldestFirst => number,
            Self::NewestFirst => u64::MAX - number,
        }
    }
}

struct EventWalk<'a> {
    store: &'a dyn Store,
    filter: &'a EventFilter,
}

impl Walk for EventWalk<'_> {
    type Item = EventRow;
    type Place = u64;

    fn page(&self, after: Option<u64>, limit: usize) -> StoreFuture<'_, Page<EventRow>> {
        let EventFilter { pipeline, order, .. } = self.filter;
        let place = after.map(|place| order.turned(place));
        let all = EventQuery { order: *order, ..EventQuery::new(pipeline.clone(), limit) };
        let query = match order {
            ListOrder::OldestFirst => EventQuery { after: place.unwrap_or(0), ..all },
            ListOrder::NewestFirst => EventQuery { before: place.unwrap_or(u64::MAX), ..all },
        };
        Box::pin(async move { self.store.events_by(&query).await })
    }

    fn place(&self, row: &EventRow) -> u64 {
        self.filter.order.turned(row.number)
    }

    fn judge(&self, row: &EventRow) -> Verdict {
        let EventFilter { kinds, slot, run_id, .. } = self.filter;
        Verdict::from(
            is_among(kinds, &row.record.kind)
                && (slot.is_none() || row.record.slot == *slot)
                && (run_id.is_none() || row.record.run_id == *run_id),
        )
    }
}
