//! Incidents, newest first.

use std::cmp::Reverse;

use interlock_core::id::PipelineId;
use jiff::Timestamp;

use super::{ScanPage, Verdict, Walk, is_among, scan};
use crate::{
    IncidentPlace, IncidentQuery, Page, Row, Store, StoreError, StoreFuture, record::IncidentRecord,
};

/// An incident with its address.
pub type IncidentRow = (PipelineId, String, Row<IncidentRecord>);

/// Which incidents are asked for. Several words of one kind mean any of them, none of them mean all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IncidentFilter {
    /// Only of this pipeline.
    pub pipeline: Option<PipelineId>,
    /// Only in one of these states: `open`, `acknowledged`, `resolved`.
    pub states: Vec<String>,
    /// Only of one of these levels.
    pub levels: Vec<String>,
    /// Only of one of these kinds.
    pub kinds: Vec<String>,
    /// Only those opened at this instant or later.
    pub from: Option<Timestamp>,
    /// Only those opened before this instant.
    pub until: Option<Timestamp>,
}

/// Incidents, newest first, in bounded work.
pub async fn find_incidents(
    store: &dyn Store,
    filter: &IncidentFilter,
    after: Option<IncidentPlace>,
    limit: usize,
) -> Result<ScanPage<IncidentRow, IncidentPlace>, StoreError> {
    // Most are resolved: an index has the others.
    let is_about_open = !filter.states.is_empty()
        && !filter.states.iter().any(|state| state == "resolved")
        && filter.pipeline.is_none()
        && store.has_word_indexes();
    let query = IncidentQuery {
        pipeline: filter.pipeline.clone(),
        is_open: is_about_open.then_some(true),
        ..IncidentQuery::default()
    };
    let begin = filter.until.map(|until| IncidentPlace {
        opened_at: until,
        pipeline: PipelineId::system(),
        key: String::new(),
    });
    // The order is descending: the smaller place is further on.
    let after = match (begin, after) {
        (Some(begin), Some(after)) => Some(begin.min(after)),
        (begin, after) => begin.or(after),
    };
    let walk = IncidentWalk { store, query, filter };
    let page = scan(&[walk], after.map(Reverse), limit).await?;
    Ok(page.with_places(|place| place.0))
}

struct IncidentWalk<'a> {
    store: &'a dyn Store,
    query: IncidentQuery,
    filter: &'a IncidentFilter,
}

impl Walk for IncidentWalk<'_> {
    type Item = IncidentRow;
    type Place = Reverse<IncidentPlace>;

    fn page(&self, after: Option<Self::Place>, limit: usize) -> StoreFuture<'_, Page<IncidentRow>> {
        Box::pin(async move {
            let after = after.map(|place| place.0);
            let query = IncidentQuery { after, limit, ..self.query.clone() };
            self.store.incidents_by(&query).await
        })
    }

    fn place(&self, row: &IncidentRow) -> Self::Place {
        Reverse(IncidentPlace::of(row))
    }

    fn judge(&self, (_, _, row): &IncidentRow) -> Verdict {
        let IncidentFilter { states, levels, kinds, from, until, pipeline: _ } = self.filter;
        let incident = &row.record;
        if from.is_some_and(|from| incident.opened_at < from) {
            return Verdict::Stop;
        }
        Verdict::from(
            until.is_none_or(|until| incident.opened_at < until)
                && is_among(states, &incident.state)
                && is_among(levels, &incident.level)
                && is_among(kinds, &incident.kind),
        )
    }
}
