//! A page of pipelines out of an order, whether that is kept or was made for a question.

use std::{cmp::Ordering, ops::Bound};

use interlock_core::id::PipelineId;

use super::{
    index::{PipelinesByName, RankIndex, RankedPipeline},
    question::SortKey,
    tallied::TalliedPipeline,
};
use crate::model::fleet::FleetOrder;

/// Pipelines in an order.
pub(super) enum RankedPipelines<'a> {
    /// As it is kept.
    Index(&'a RankIndex),
    /// By name alone.
    Names(&'a PipelinesByName),
    /// Not in order yet.
    Found(Vec<RankedPipeline>),
}

/// Where a page begins, and how long it is.
#[derive(Clone, Copy)]
pub(super) struct RankPlace<'a> {
    pub(super) after: Option<&'a SortKey>,
    pub(super) limit: usize,
}

/// The pipelines of a page, and whether others follow.
pub(super) struct RankedPage {
    pub(super) found: Vec<RankedPipeline>,
    pub(super) more: bool,
}

impl RankedPipeline {
    /// Where it stands, for a cursor.
    pub(super) fn key(&self) -> SortKey {
        SortKey { rank: self.rank, name: self.name.to_string() }
    }

    fn is_after(&self, key: Option<&SortKey>) -> bool {
        key.is_none_or(|key| {
            let ranks = self.rank.cmp(&key.rank);
            ranks.then_with(|| self.name.as_str().cmp(&key.name)) == Ordering::Greater
        })
    }
}

impl<'a> RankedPipelines<'a> {
    /// Pipelines that were found for a question.
    pub(super) fn found(
        pipelines: impl Iterator<Item = (&'a PipelineId, &'a TalliedPipeline)>,
        order: FleetOrder,
    ) -> Self {
        let ranked = pipelines.map(|(name, pipeline)| {
            let rank = match order {
                FleetOrder::Worst => pipeline.summary.state as i64,
                FleetOrder::Name => 0,
                FleetOrder::Next => pipeline.summary.next,
            };
            RankedPipeline::new(rank, name)
        });
        Self::Found(ranked.collect())
    }

    /// The first of them after a place.
    pub(super) fn page(&self, place: RankPlace<'_>) -> RankedPage {
        let RankPlace { after, limit } = place;
        // A cursor whose name is none of a pipeline is after no pipeline in particular: its text is compared.
        let name = after.and_then(|key| Some((key.rank, PipelineId::any(&key.name).ok()?)));
        let mut found: Vec<RankedPipeline> = match self {
            Self::Index(index) => {
                let from = name.map_or(Bound::Unbounded, |(rank, name)| {
                    Bound::Excluded(RankedPipeline { rank, name })
                });
                let following = index.range((from, Bound::Unbounded));
                following.filter(|it| it.is_after(after)).take(limit + 1).cloned().collect()
            }
            Self::Names(pipelines) => {
                let from = name.map_or(Bound::Unbounded, |(_, name)| Bound::Excluded(name));
                let following = pipelines.range((from, Bound::Unbounded));
                let following = following.map(|(name, _)| RankedPipeline::new(0, name));
                following.filter(|it| it.is_after(after)).take(limit + 1).collect()
            }
            Self::Found(found) => {
                let mut found: Vec<_> =
                    found.iter().filter(|it| it.is_after(after)).cloned().collect();
                if found.len() > limit {
                    found.select_nth_unstable(limit);
                    found.truncate(limit + 1);
                }
                found.sort_unstable();
                found
            }
        };
        let more = found.len() > limit;
        found.truncate(limit);
        RankedPage { found, more }
    }
}
