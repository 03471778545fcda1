//! The pipelines that are watched, and when each is next judged.
//!
//! Built from the compact agendas in the pipelines' rows (ADR 7): a pass costs what is due, not what is registered.
//! An entry of the heap counts only if it is what its pipeline is armed for; others were overtaken.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use interlock_core::{
    agenda::Agenda,
    id::{PipelineId, ScheduleId},
    schedule::Recurrence,
};
use interlock_store::record::{PipelineRecord, Shared, Unreadable, version_number};
use jiff::Timestamp;

use crate::{
    owed::{Expecting, Owed},
    seam::ZoneBook,
};

/// Slots of one pipeline that are judged in one go; the rest is judged right after.
pub(crate) const OWED_MAX: usize = 500;

/// One pipeline, as far as it is kept in memory.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// The version of its agenda; 0 when that cannot be read.
    pub(crate) version: u64,
    pub(crate) agenda: Agenda,
    /// Of its row, as it was last seen.
    revision: u64,
    is_retired: bool,
    /// The last judged slot of each schedule, in the order of [`Expecting::schedules`].
    cursors: Box<[Timestamp]>,
    armed_at: Option<Timestamp>,
}

/// All of them.
pub(crate) struct Watchlist {
    shared: Shared,
    zones: ZoneBook,
    pipelines: BTreeMap<PipelineId, Box<Watched>>,
    heap: BinaryHeap<Reverse<(Timestamp, PipelineId)>>,
}

impl Watchlist {
    pub(crate) fn new(zones: ZoneBook) -> Self {
        Self {
            shared: Shared::default(),
            zones,
            pipelines: BTreeMap::new(),
            heap: BinaryHeap::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.pipelines.len()
    }

    pub(crate) fn get(&self, pipeline: &PipelineId) -> Option<&Watched> {
        self.pipelines.get(pipeline).map(AsRef::as_ref)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &PipelineId> {
        self.pipelines.keys()
    }

    /// Takes over a pipeline's row, if it is not the one that is known. What was to be judged by an instant
    /// was judged.
    pub(crate) fn take(
        &mut self,
        pipeline: &PipelineId,
        (record, revision): (&PipelineRecord, u64),
        judged: Timestamp,
    ) -> Result<(), Unreadable> {
        let known = self.pipelines.get(pipeline);
        if known.is_some_and(|known| known.revision == revision) {
            return Ok(());
        }
        let version = version_number(&record.version)?;
        let is_same = known.is_some_and(|known| known.version == version && version != 0);
        if !is_same {
            let zones = |name: &str| (self.zones)(name);
            let agenda = record.agenda.as_ref().map(|it| it.to_core(&mut self.shared, &zones));
            let agenda = agenda.transpose()?.unwrap_or_default();
            let judged = judged.max(record.first_seen);
            let expecting = Expecting { pipeline, agenda: &agenda };
            let cursors = expecting.schedules().map(|start| expecting.cursor(start, judged));
            let cursors = cursors.collect();
            let watched = Watched { version, agenda, cursors, ..Watched::default() };
            self.pipelines.insert(pipeline.clone(), Box::new(watched));
        }
        if let Some(watched) = self.pipelines.get_mut(pipeline) {
            watched.revision = revision;
            watched.is_retired = record.retired_at.is_some();
        }
        self.arm(pipeline, Timestamp::MIN);
        Ok(())
    }

    /// The slots of a pipeline that are to be judged now, at most so many.
    pub(crate) fn owed(&self, pipeline: &PipelineId, now: Timestamp) -> Vec<Owed> {
        let Some(watched) = self.pipelines.get(pipeline) else { return vec![] };
        let expecting = Expecting { pipeline, agenda: &watched.agenda };
        let mut all = Vec::new();
        for (start, cursor) in expecting.schedules().zip(&watched.cursors) {
            let mut cursor = *cursor;
            let mut count = 0;
            while count < OWED_MAX
                && let Some(owed) = expecting.next(start, cursor)
                && owed.judged_at() <= now
            {
                cursor = owed.nominal;
                count += 1;
                all.push(owed);
            }
        }
        all
    }

    /// These were judged.
    pub(crate) fn judged(&mut self, pipeline: &PipelineId, owed: &[Owed]) {
        let Some(watched) = self.pipelines.get_mut(pipeline) else { return };
        let expecting = Expecting { pipeline, agenda: &watched.agenda };
        let ids: Vec<ScheduleId> =
            expecting.schedules().map(|start| start.schedule.id().clone()).collect();
        for owed in owed {
            let index = ids.iter().position(|id| id == owed.start.schedule.id());
            if let Some(cursor) = index.and_then(|index| watched.cursors.get_mut(index)) {
                *cursor = owed.nominal.max(*cursor);
            }
        }
        self.arm(pipeline, Timestamp::MIN);
    }

    /// Puts a pipeline's next judgement on the heap, not before an instant.
    pub(crate) fn arm(&mut self, pipeline: &PipelineId, soonest: Timestamp) {
        let Some(watched) = self.pipelines.get_mut(pipeline) else { return };
        let expecting = Expecting { pipeline, agenda: &watched.agenda };
        let schedules = expecting.schedules().zip(&watched.cursors);
        let next = schedules.filter_map(|(start, cursor)| expecting.next(start, *cursor));
        let next = next.map(|owed| owed.judged_at()).min().filter(|_| !watched.is_retired);
        let next = next.map(|next| next.max(soonest));
        if watched.armed_at != next {
            watched.armed_at = next;
            self.heap.extend(next.map(|at| Reverse((at, pipeline.clone()))));
        }
    }

    /// Whatever should have been judged before an instant is judged then: the scheduler is given the time to
    /// record what it knows.
    pub(crate) fn settle(&mut self, from: Timestamp, until: Timestamp) {
        let late = self.pipelines.iter().filter(|(_, it)| it.armed_at.is_some_and(|at| at < from));
        let late: Vec<_> = late.map(|(pipeline, _)| pipeline.clone()).collect();
        for pipeline in late {
            self.arm(&pipeline, until);
        }
    }

    /// Takes a pipeline off the heap that is to be judged now.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<PipelineId> {
        while let Some(Reverse((at, _))) = self.heap.peek()
            && *at <= now
            && let Some(Reverse((at, pipeline))) = self.heap.pop()
        {
            let Some(watched) = self.pipelines.get_mut(&pipeline) else { continue };
            if watched.armed_at == Some(at) {
                watched.armed_at = None;
                return Some(pipeline);
            }
        }
        None
    }

    /// When the next judgement is.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// The earliest judgement that has come and not been made.
    pub(crate) fn overdue(&self, now: Timestamp) -> Option<Timestamp> {
        self.next_at().filter(|at| *at <= now)
    }

    /// When the oldest slot of a pipeline that was not judged should have been.
    pub(crate) fn behind(&self, pipeline: &PipelineId) -> Option<Timestamp> {
        let watched = self.pipelines.get(pipeline).filter(|it| !it.is_retired)?;
        let expecting = Expecting { pipeline, agenda: &watched.agenda };
        let schedules = expecting.schedules().zip(&watched.cursors);
        let next = schedules.filter_map(|(start, cursor)| expecting.next(start, *cursor));
        next.map(|owed| owed.judged_at()).min()
    }
}

impl Watched {
    /// Whether a report may open its slots.
    pub(crate) fn has_sensors(&self) -> bool {
        let starts = &self.agenda.starts;
        starts.iter().any(|it| matches!(it.schedule.recurrence(), Recurrence::Sensor { .. }))
    }
}

impl std::fmt::Debug for Watchlist {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watchlist")
            .field("pipelines", &self.pipelines.len())
            .finish_non_exhaustive()
    }
}
