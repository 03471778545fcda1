//! Slots and spans, in either order of time.

use std::cmp::Reverse;

use interlock_core::id::{PipelineId, ScheduleId};
use jiff::Timestamp;

use super::{ScanPage, Verdict, Walk, is_among, runs::distinct, scan};
use crate::{
    LedgerEntry, LedgerPlace, LedgerQuery, LedgerRow, ListOrder, Page, Store, StoreError,
    StoreFuture,
};

/// Which slots are asked for. Several words of one kind mean any of them, none of them mean all.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotFilter {
    /// Only of this pipeline.
    pub pipeline: Option<PipelineId>,
    /// Only of this schedule.
    pub schedule: Option<ScheduleId>,
    /// From this instant on.
    pub from: Timestamp,
    /// Before this instant.
    pub until: Timestamp,
    /// Only with one of these dispositions, or `open` for open ones.
    pub dispositions: Vec<String>,
    /// Only those that one of these trigger types opened; then no spans, whose slots never opened.
    pub opened_by: Vec<String>,
    /// In which order of time.
    pub order: ListOrder,
}

impl Default for SlotFilter {
    fn default() -> Self {
        Self {
            pipeline: None,
            schedule: None,
            from: Timestamp::MIN,
            until: Timestamp::MAX,
            dispositions: vec![],
            opened_by: vec![],
            order: ListOrder::default(),
        }
    }
}

/// Slots and spans, in bounded work.
pub async fn find_slots(
    store: &dyn Store,
    filter: &SlotFilter,
    after: Option<LedgerPlace>,
    limit: usize,
) -> Result<ScanPage<LedgerRow, LedgerPlace>, StoreError> {
    let query = |word: Option<&String>| LedgerQuery {
        pipeline: filter.pipeline.clone(),
        from: filter.from,
        until: filter.until,
        disposition: word.cloned(),
        order: filter.order,
        ..LedgerQuery::everything(limit)
    };
    // Open slots are in an index of their own everywhere; most others are completed, and no index has those.
    let is_indexed = |word: &String| {
        word == "open"
            || (word != "completed" && filter.pipeline.is_none() && store.has_word_indexes())
    };
    let words = distinct(&filter.dispositions);
    let queries = if !words.is_empty() && words.iter().all(|word| is_indexed(word)) {
        words.into_iter().map(|word| query(Some(word))).collect()
    } else {
        vec![query(None)]
    };
    let walks: Vec<_> =
        queries.into_iter().map(|query| SlotWalk { store, query, filter }).collect();
    let after = after.map(|place| TurnedPlace::of(filter.order, place));
    let page = scan(&walks, after, limit).await?;
    Ok(page.with_places(TurnedPlace::into_place))
}

/// A place that grows in an order. All of one list are turned alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum TurnedPlace {
    Up(LedgerPlace),
    Down(Reverse<LedgerPlace>),
}

impl TurnedPlace {
    fn of(order: ListOrder, place: LedgerPlace) -> Self {
        match order {
            ListOrder::OldestFirst => Self::Up(place),
            ListOrder::NewestFirst => Self::Down(Reverse(place)),
        }
    }

    fn into_place(self) -> LedgerPlace {
        match self {
            Self::Up(place) | Self::Down(Reverse(place)) => place,
        }
    }
}

struct SlotWalk<'a> {
    store: &'a dyn Store,
    query: LedgerQuery,
    filter: &'a SlotFilter,
}

impl Walk for SlotWalk<'_> {
    type Item = LedgerRow;
    type Place = TurnedPlace;

    fn page(&self, after: Option<TurnedPlace>, limit: usize) -> StoreFuture<'_, Page<LedgerRow>> {
        Box::pin(async move {
            let after = after.map(TurnedPlace::into_place);
            self.store.ledger(&LedgerQuery { after, limit, ..self.query.clone() }).await
        })
    }

    fn place(&self, row: &LedgerRow) -> TurnedPlace {
        TurnedPlace::of(self.filter.order, row.place())
    }

    fn judge(&self, row: &LedgerRow) -> Verdict {
        let SlotFilter { schedule, dispositions, opened_by, .. } = self.filter;
        let (word, opener) = match &row.entry {
            LedgerEntry::Slot(slot) if slot.is_open() => ("open", Some(&slot.opened_by)),
            LedgerEntry::Slot(slot) => {
                (slot.disposition.as_deref().unwrap_or_default(), Some(&slot.opened_by))
            }
            LedgerEntry::Span(span) => (span.disposition.as_str(), None),
        };
        Verdict::from(
            schedule.as_ref().is_none_or(|schedule| row.schedule == *schedule)
                && is_among(dispositions, word)
                && opener.map_or(opened_by.is_empty(), |opener| is_among(opened_by, opener)),
        )
    }
}
