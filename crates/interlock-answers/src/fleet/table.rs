//! What all requests look into: one entry for each pipeline, by name, and the orders and sums of all of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use interlock_core::id::PipelineId;
use jiff::Timestamp;

use super::{
    cells::Quarter,
    details::UnknownPast,
    history::PipelineHistory,
    index::{FleetIndex, PipelinesByName},
    tallied::TalliedPipeline,
};
use crate::{UnreadableRow, model::fleet::FleetFreshnessAnswer};

/// Bytes of the past that are kept. What was asked for longest ago goes first.
const HISTORY_BYTES_MAX: usize = 64 * 1_024 * 1_024;

/// Pipelines whose past is to be read; more have to be asked for again.
const WANTED_MAX: usize = 10_000;

/// Pipelines that change by the clock and are looked at before others get a turn.
const CHANGES_AT_ONCE: usize = 5_000;

/// The fleet's tally: what became of all slots of the last 48 hours, kept up to date by a
/// [`FleetFollower`](super::FleetFollower).
#[derive(Clone, Default)]
pub struct FleetTally(Arc<RwLock<FleetTable>>);

#[derive(Debug, Default)]
pub(super) struct FleetTable {
    pipelines: PipelinesByName,
    /// None while all is counted for the first time: nothing is shown then.
    index: Option<FleetIndex>,
    /// Pipelines of which a row of the ledger cannot be read.
    damaged: BTreeSet<PipelineId>,
    /// Up to when the store's changes are in it.
    pub(super) as_of: Option<Timestamp>,
    /// Why the store's changes cannot be followed now.
    pub(super) problem: Option<String>,
    /// Rows that cannot be read, by whose they are.
    pub(super) unreadable: BTreeMap<PipelineId, String>,
    /// Whose past was asked for and is not known: from when on.
    pub(super) wanted: BTreeMap<PipelineId, Quarter>,
    history_bytes: usize,
}

/// The pipelines together with their orders and sums.
pub(super) struct IndexedPipelines<'a> {
    pub(super) pipelines: &'a PipelinesByName,
    pub(super) index: &'a mut FleetIndex,
}

impl FleetTally {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, FleetTable> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, FleetTable> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// How fresh it is.
    pub fn freshness(&self) -> FleetFreshnessAnswer {
        self.read().freshness()
    }

    /// How many bytes a pipeline takes, on average and at most.
    pub fn bytes_per_pipeline(&self) -> (usize, usize) {
        let table = self.read();
        let each = table.pipelines.iter().map(|(name, it)| it.bytes(name));
        let (sum, most) = each.fold((0, 0), |(sum, most), it| (sum + it, it.max(most)));
        (sum / table.pipelines.len().max(1), most)
    }
}

impl fmt::Debug for FleetTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetTally").finish_non_exhaustive()
    }
}

impl FleetTable {
    pub(super) fn pipelines(&self) -> &PipelinesByName {
        &self.pipelines
    }

    pub(super) fn pipeline(&self, name: &PipelineId) -> Option<&TalliedPipeline> {
        self.pipelines.get(name)
    }

    /// Makes the orders and sums of what was counted; from now on they are kept.
    pub(super) fn make_index(&mut self, now: Timestamp) {
        self.index = Some(FleetIndex::of(&mut self.pipelines, now));
        let damaged = self.pipelines.iter().filter(|(_, it)| it.problem.is_some());
        self.damaged = damaged.map(|(name, _)| name.clone()).collect();
    }

    /// The orders and sums at an instant; none while all is counted for the first time.
    pub(super) fn indexed(&mut self, now: Timestamp) -> Option<IndexedPipelines<'_>> {
        self.advance(now);
        let Self { pipelines, index, .. } = self;
        index.as_mut().map(|index| IndexedPipelines { pipelines, index })
    }

    /// Looks again at pipelines of which something changes by the clock. Says whether that was all.
    pub(super) fn advance(&mut self, now: Timestamp) -> bool {
        let Self { pipelines, index, .. } = self;
        index.as_mut().is_none_or(|index| index.advance(pipelines, now, CHANGES_AT_ONCE))
    }

    /// Changes what is kept of a pipeline, and its place in orders and sums with it.
    pub(super) fn change(
        &mut self,
        name: &PipelineId,
        now: Timestamp,
        change: impl FnOnce(&mut TalliedPipeline),
    ) {
        // The name as it is kept here: orders share its text.
        let Some((name, pipeline)) = self.pipelines.range_mut(name..=name).next() else { return };
        let Some(index) = &mut self.index else {
            change(pipeline);
            return;
        };
        index.take_out(name, pipeline);
        change(pipeline);
        index.put_in(name, pipeline, now);
        if pipeline.problem.is_some() {
            self.damaged.insert(name.clone());
        } else if !self.damaged.is_empty() {
            self.damaged.remove(name);
        }
    }

    /// Takes in a pipeline that was not there.
    pub(super) fn insert(
        &mut self,
        name: &PipelineId,
        mut pipeline: TalliedPipeline,
        now: Timestamp,
    ) {
        self.remove(name);
        if let Some(index) = &mut self.index {
            index.put_in(name, &mut pipeline, now);
        }
        self.pipelines.insert(name.clone(), pipeline);
    }

    /// Forgets a pipeline.
    pub(super) fn remove(&mut self, name: &PipelineId) {
        self.forget_history(name);
        self.damaged.remove(name);
        if let Some(pipeline) = self.pipelines.remove(name)
            && let Some(index) = &mut self.index
        {
            index.take_out(name, &pipeline);
        }
    }

    /// Forgets all pipelines but those that are listed.
    pub(super) fn keep_only(&mut self, listed: &BTreeSet<PipelineId>) {
        let gone = self.pipelines.keys().filter(|name| !listed.contains(*name));
        let gone: Vec<_> = gone.cloned().collect();
        for name in gone {
            self.remove(&name);
        }
        self.unreadable.retain(|name, _| listed.contains(name));
    }

    pub(super) fn freshness(&self) -> FleetFreshnessAnswer {
        FleetFreshnessAnswer {
            as_of: self.as_of,
            is_counting: self.as_of.is_none(),
            counted: self.pipelines.len() as u64,
            problem: self.problem.clone(),
        }
    }

    /// Rows that cannot be read.
    pub(super) fn unreadable(&self, max: usize) -> Vec<UnreadableRow> {
        let row = |(pipeline, message): (&PipelineId, &str)| UnreadableRow {
            pipeline: pipeline.to_string(),
            key: "ledger".to_owned(),
            message: message.to_owned(),
        };
        let own = self.damaged.iter().filter_map(|name| {
            Some((name, self.pipelines.get(name)?.problem.as_ref()?.message.as_str()))
        });
        let rows = self.unreadable.iter().map(|(name, why)| (name, why.as_str()));
        rows.chain(own).take(max).map(row).collect()
    }

    /// Takes some of those whose past was asked for.
    pub(super) fn take_wanted(&mut self, max: usize, now: Timestamp) -> Vec<UnknownPast> {
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some((name, from)) = self.wanted.pop_first()
        {
            let pipeline = self.pipelines.get(&name);
            taken.extend(pipeline.and_then(|it| UnknownPast::of(&name, it, from, now)));
        }
        taken
    }

    /// Remembers whose past is to be read.
    pub(super) fn want(&mut self, name: &PipelineId, from: Quarter) {
        if self.wanted.len() < WANTED_MAX {
            let wanted = self.wanted.entry(name.clone()).or_insert(from);
            *wanted = from.min(*wanted);
        }
    }

    /// Keeps what was read of a pipeline's past: orders and sums know nothing of it.
    pub(super) fn keep_history(&mut self, name: &PipelineId, history: PipelineHistory) {
        if self.history_bytes > HISTORY_BYTES_MAX {
            self.forget_half_of_history();
        }
        if let Some(pipeline) = self.pipelines.get_mut(name) {
            let before = pipeline.history.as_ref().map_or(0, |it| it.bytes());
            self.history_bytes = (self.history_bytes + history.bytes()).saturating_sub(before);
            pipeline.history = Some(Box::new(history));
        }
    }

    /// Forgets a pipeline's past: something of it has changed.
    pub(super) fn forget_history(&mut self, name: &PipelineId) {
        if let Some(history) = self.pipelines.get_mut(name).and_then(|it| it.history.take()) {
            self.history_bytes = self.history_bytes.saturating_sub(history.bytes());
        }
    }

    fn forget_half_of_history(&mut self) {
        let kept = self.pipelines.values().filter_map(|it| it.history.as_ref());
        let mut read_at: Vec<_> = kept.map(|history| history.read_at).collect();
        read_at.sort_unstable();
        let Some(middle) = read_at.get(read_at.len() / 2).copied() else { return };
        self.history_bytes = 0;
        for pipeline in self.pipelines.values_mut() {
            if pipeline.history.as_ref().is_some_and(|history| history.read_at <= middle) {
                pipeline.history = None;
            }
            self.history_bytes += pipeline.history.as_ref().map_or(0, |it| it.bytes());
        }
    }
}
