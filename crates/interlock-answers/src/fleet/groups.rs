//! The pipelines of each group, and the groups in the orders of a page.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use interlock_core::id::PipelineId;
use jiff::Timestamp;

use super::{
    index::{RankIndex, RankedPipeline},
    question::{GroupBy, SortKey},
    tallied::TalliedPipeline,
};
use crate::model::fleet::{FleetOrder, FleetState, FleetStatesAnswer};

/// Those without a group come last: no name sorts behind this one.
const WITHOUT_GROUP: &str = "\u{10FFFF}";

/// A group in an order: by a rank, then by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RankedGroup {
    pub(super) rank: i64,
    pub(super) name: Arc<str>,
}

/// Pipelines of one group.
#[derive(Debug, Default)]
pub(super) struct PipelineGroup {
    pub(super) states: FleetStatesAnswer,
    /// By their next slot.
    pub(super) members: RankIndex,
}

/// Pipelines by owner, or by the value of a label.
#[derive(Debug)]
pub(super) struct Grouping {
    pub(super) by: GroupBy,
    pub(super) asked_at: Timestamp,
    groups: BTreeMap<Arc<str>, PipelineGroup>,
    by_worst: BTreeSet<RankedGroup>,
    by_next: BTreeSet<RankedGroup>,
}

impl PipelineGroup {
    /// The state of the one that is worst.
    pub(super) fn worst(&self) -> FleetState {
        let mut states = FleetState::ALL.into_iter();
        states.find(|state| self.states.of(*state) > 0).unwrap_or(FleetState::NotDue)
    }

    fn next(&self) -> i64 {
        self.members.first().map_or(i64::MAX, |first| first.rank)
    }

    fn put_in(&mut self, name: &PipelineId, pipeline: &TalliedPipeline) {
        self.states.add(pipeline.summary.state);
        self.members.insert(RankedPipeline::new(pipeline.summary.next, name));
    }

    fn take_out(&mut self, name: &PipelineId, pipeline: &TalliedPipeline) {
        self.states.remove(pipeline.summary.state);
        self.members.remove(&RankedPipeline::new(pipeline.summary.next, name));
    }
}

impl Grouping {
    /// Of some pipelines.
    pub(super) fn of<'a>(
        by: GroupBy,
        pipelines: impl Iterator<Item = (&'a PipelineId, &'a TalliedPipeline)>,
        asked_at: Timestamp,
    ) -> Self {
        let mut groups: BTreeMap<Arc<str>, PipelineGroup> = BTreeMap::new();
        for (name, pipeline) in pipelines {
            let word = word_of(&by, pipeline);
            match groups.get_mut(word) {
                Some(group) => group.put_in(name, pipeline),
                None => groups.entry(word.into()).or_default().put_in(name, pipeline),
            }
        }
        let ranked = |rank: &dyn Fn(&PipelineGroup) -> i64| {
            let each = groups.iter();
            each.map(|(name, group)| RankedGroup { rank: rank(group), name: Arc::clone(name) })
                .collect()
        };
        let by_worst = ranked(&|group| group.worst() as i64);
        let by_next = ranked(&PipelineGroup::next);
        Self { by, asked_at, groups, by_worst, by_next }
    }

    /// How many groups there are.
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// A group, by its place in an order.
    pub(super) fn group(&self, name: &str) -> Option<&PipelineGroup> {
        self.groups.get(name)
    }

    pub(super) fn put_in(&mut self, name: &PipelineId, pipeline: &TalliedPipeline) {
        self.change(word_of(&self.by, pipeline).into(), |group| group.put_in(name, pipeline));
    }

    pub(super) fn take_out(&mut self, name: &PipelineId, pipeline: &TalliedPipeline) {
        self.change(word_of(&self.by, pipeline).into(), |group| group.take_out(name, pipeline));
    }

    fn change(&mut self, name: Arc<str>, change: impl FnOnce(&mut PipelineGroup)) {
        // As the map has it, so that copies share the text.
        let known = self.groups.get_key_value(&name).map(|(known, _)| Arc::clone(known));
        let name = known.unwrap_or(name);
        let ranked = |rank: i64| RankedGroup { rank, name: Arc::clone(&name) };
        let group = self.groups.entry(Arc::clone(&name)).or_default();
        let (worst, next) = (group.worst() as i64, group.next());
        change(group);
        let (worst_now, next_now) = (group.worst() as i64, group.next());
        let is_empty = group.members.is_empty();
        if is_empty {
            self.groups.remove(&name);
        }
        if is_empty || worst != worst_now {
            self.by_worst.remove(&ranked(worst));
        }
        if is_empty || next != next_now {
            self.by_next.remove(&ranked(next));
        }
        if !is_empty {
            self.by_worst.insert(ranked(worst_now));
            self.by_next.insert(ranked(next_now));
        }
    }

    /// The groups after a place in an order.
    pub(super) fn after(
        &self,
        order: FleetOrder,
        after: Option<&SortKey>,
    ) -> Box<dyn Iterator<Item = RankedGroup> + '_> {
        let place = after.map(|key| RankedGroup { rank: key.rank, name: key.name.as_str().into() });
        match order {
            FleetOrder::Worst => ranked_after(&self.by_worst, place),
            FleetOrder::Next => ranked_after(&self.by_next, place),
            FleetOrder::Name => {
                let from = place.map_or(Bound::Unbounded, |place| Bound::Excluded(place.name));
                let groups = self.groups.range((from, Bound::Unbounded));
                Box::new(groups.map(|(name, _)| RankedGroup { rank: 0, name: Arc::clone(name) }))
            }
        }
    }
}

impl RankedGroup {
    /// Its name; none of those that have no owner, or not that label.
    pub(super) fn group(&self) -> Option<&str> {
        Some(&*self.name).filter(|name| *name != WITHOUT_GROUP)
    }

    /// Where it stands, for a cursor.
    pub(super) fn key(&self) -> SortKey {
        SortKey { rank: self.rank, name: self.name.to_string() }
    }
}

fn ranked_after(
    groups: &BTreeSet<RankedGroup>,
    place: Option<RankedGroup>,
) -> Box<dyn Iterator<Item = RankedGroup> + '_> {
    let from = place.map_or(Bound::Unbounded, Bound::Excluded);
    Box::new(groups.range((from, Bound::Unbounded)).cloned())
}

fn word_of<'a>(by: &GroupBy, pipeline: &'a TalliedPipeline) -> &'a str {
    by.of(&pipeline.declared.about).unwrap_or(WITHOUT_GROUP)
}
