//! Runs, newest first.

use std::cmp::Reverse;

use interlock_core::id::{PipelineId, ScheduleId};
use jiff::Timestamp;

use super::{ScanPage, Verdict, Walk, is_among, scan};
use crate::{Page, RunKey, RunPlace, RunQuery, RunRow, Store, StoreError, StoreFuture};

/// Which runs are asked for. Several words of one kind mean any of them, none of them mean all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunFilter {
    /// Only of this pipeline.
    pub pipeline: Option<PipelineId>,
    /// Only of this schedule.
    pub schedule: Option<ScheduleId>,
    /// Only with one of these statuses.
    pub statuses: Vec<String>,
    /// Only with one of these trigger types.
    pub trigger_types: Vec<String>,
    /// Only those made at this instant or later.
    pub from: Option<Timestamp>,
    /// Only those made before this instant.
    pub until: Option<Timestamp>,
}

/// Runs, newest first, in bounded work.
pub async fn find_runs(
    store: &dyn Store,
    filter: &RunFilter,
    after: Option<RunPlace>,
    limit: usize,
) -> Result<ScanPage<RunRow, RunPlace>, StoreError> {
    let query = |status: Option<&String>, trigger_type: Option<&String>| RunQuery {
        pipeline: filter.pipeline.clone(),
        status: status.cloned(),
        trigger_type: trigger_type.cloned(),
        ..RunQuery::default()
    };
    let is_indexed = store.has_word_indexes() && filter.pipeline.is_none();
    let queries: Vec<RunQuery> = match (filter.statuses.as_slice(), filter.trigger_types.as_slice())
    {
        // Most runs are completed: no index has those.
        (statuses @ [_, ..], _)
            if is_indexed && !statuses.iter().any(|status| status == "COMPLETED") =>
        {
            distinct(statuses).into_iter().map(|status| query(Some(status), None)).collect()
        }
        (_, kinds @ [_, ..]) if is_indexed => {
            distinct(kinds).into_iter().map(|kind| query(None, Some(kind))).collect()
        }
        _ => vec![query(None, None)],
    };
    let walks: Vec<_> = queries.into_iter().map(|query| RunWalk { store, query, filter }).collect();
    let begin = filter.until.map(|until| RunPlace {
        created_at: until,
        pipeline: PipelineId::system(),
        key: RunKey {
            schedule: ScheduleId::from_static(""),
            nominal: Timestamp::MIN,
            generation: 0,
            attempt: 0,
        },
    });
    // The order is descending: the smaller place is further on.
    let after = match (begin, after) {
        (Some(begin), Some(after)) => Some(begin.min(after)),
        (begin, after) => begin.or(after),
    };
    let page = scan(&walks, after.map(Reverse), limit).await?;
    Ok(page.with_places(|place| place.0))
}

/// Each word once.
pub(super) fn distinct(words: &[String]) -> Vec<&String> {
    let mut words: Vec<&String> = words.iter().collect();
    words.sort_unstable();
    words.dedup();
    words
}

struct RunWalk<'a> {
    store: &'a dyn Store,
    query: RunQuery,
    filter: &'a RunFilter,
}

impl Walk for RunWalk<'_> {
    type Item = RunRow;
    type Place = Reverse<RunPlace>;

    fn page(&self, after: Option<Self::Place>, limit: usize) -> StoreFuture<'_, Page<RunRow>> {
        Box::pin(async move {
            let after = after.map(|place| place.0);
            self.store.runs(&RunQuery { after, limit, ..self.query.clone() }).await
        })
    }

    fn place(&self, row: &RunRow) -> Self::Place {
        Reverse(row.place())
    }

    fn judge(&self, row: &RunRow) -> Verdict {
        let RunFilter { schedule, statuses, trigger_types, from, until, pipeline: _ } = self.filter;
        if from.is_some_and(|from| row.record.created_at < from) {
            return Verdict::Stop;
        }
        Verdict::from(
            until.is_none_or(|until| row.record.created_at < until)
                && schedule.as_ref().is_none_or(|schedule| row.key.schedule == *schedule)
                && is_among(statuses, &row.record.status)
                && is_among(trigger_types, &row.record.trigger_type),
        )
    }
}
