//! Events, by their numbers.

use interlock_core::id::PipelineId;
use interlock_store::{
    EventRow, ListOrder,
    scan::{EventFilter, find_events},
};
use jiff::Timestamp;

use super::incident_list::any_pipeline;
use crate::{
    AnswerError, Cursor, Listing, Reader,
    listing::limit,
    model::event::{EventAnswer, EventsQuery},
};

/// Events that are looked at in one place: more in a row are hardly ever told late.
const PROBE: usize = 100;

impl Reader<'_> {
    /// Events, by their numbers.
    pub async fn events(&self, asked: &EventsQuery) -> Result<Listing<EventAnswer>, AnswerError> {
        let EventsQuery { slot, run_id, order, .. } = asked.clone();
        let filter = EventFilter {
            pipeline: asked.pipeline.as_deref().map(any_pipeline).transpose()?,
            kinds: asked.kind.iter().map(|kind| kind.to_uppercase()).collect(),
            slot,
            run_id,
            order: order.map_or(ListOrder::OldestFirst, ListOrder::from),
        };
        let after = asked.after.as_deref().map(behind).transpose()?;
        let page = find_events(self.store, &filter, after, limit(asked.limit)?).await?;
        Ok(Listing {
            items: page.items.into_iter().map(event_answer).collect(),
            next: page.next.map(|number| Cursor::Events { number }.encode()),
            scanned: page.scanned as u64,
            unreadable: vec![],
        })
    }

    /// A number after which every event of a pipeline from an instant on is found: events are in the order in which they were
    /// recorded, which is nearly the order in which they happened.
    pub async fn events_since(
        &self,
        pipeline: &PipelineId,
        since: Timestamp,
    ) -> Result<u64, AnswerError> {
        // Events up to `low` are older; `high` is far enough.
        let (mut low, mut high) = (0, u64::MAX);
        let mut probe = 1_024;
        while low < high {
            let page = self.store.events(Some(pipeline), probe, PROBE).await?.items;
            if page.is_empty() || page.iter().any(|event| event.record.at >= since) {
                high = probe;
            } else {
                low = page.last().map_or(probe, |event| event.number);
            }
            if high.saturating_sub(low) <= PROBE as u64 {
                break;
            }
            probe = if high == u64::MAX { low * 2 } else { low + (high - low) / 2 };
        }
        Ok(low)
    }
}

/// The number behind which a list goes on: an event's, or a cursor's.
fn behind(after: &str) -> Result<u64, AnswerError> {
    after.parse().or_else(|_opaque| Cursor::decode(after)?.event())
}

/// What an event's row says.
pub fn event_answer(row: EventRow) -> EventAnswer {
    let record = std::sync::Arc::unwrap_or_clone(row.record);
    EventAnswer {
        number: row.number,
        pipeline: row.pipeline.to_string(),
        kind: record.kind.to_string(),
        at: record.at,
        slot: record.slot,
        run_id: record.run_id,
        message: record.message,
        details: record.details,
    }
}
