//! The pipelines that are watched, and when each is next judged.
//!
//! Of a pipeline so much is kept as waking up for it takes: its name, the revision of its row and an instant, about a
//! hundred bytes. Its agenda is read again with its row when that instant has come (ADR 7: the row has it), so a pass
//! costs what is due, and memory does not grow with what schedules say. An entry of the heap counts only if it is what
//! its pipeline is armed for; others were overtaken.

use std::{cmp::Reverse, collections::BinaryHeap, ops::Range};

use interlock_core::{
    agenda::{Agenda, Work},
    id::PipelineId,
    schedule::Recurrence,
};
use interlock_store::record::{PipelineRecord, Shared, Unreadable};
use jiff::Timestamp;

use crate::{owed::Expecting, seam::ZoneBook};

/// Overtaken entries that the heap may hold before it is built anew.
const OVERTAKEN_MAX: usize = 1_024;

/// An instant in milliseconds: half of what a timestamp takes.
type Millis = i64;
/// Later than everything.
const NEVER: Millis = Millis::MAX;

/// One pipeline, as far as it is kept in memory.
#[derive(Debug)]
pub(crate) struct Watched {
    name: PipelineId,
    /// Nothing of it is to be judged before this. What was to be judged earlier was.
    from: Millis,
    /// When it is looked at: then, or later if somebody was to be waited for.
    armed: Millis,
    /// Of its row, as it was last seen.
    revision: u64,
    /// Whether a report may open its slots.
    has_sensors: bool,
    /// Whether somebody else runs it, and reports.
    is_reported: bool,
}

/// All of them.
pub(crate) struct Watchlist {
    pub(crate) zones: ZoneBook,
    rows: Vec<Watched>,
    /// The numbers of the rows, in the order of names.
    by_name: Vec<u32>,
    heap: BinaryHeap<Reverse<(Millis, u32)>>,
}

impl Watchlist {
    pub(crate) fn new(zones: ZoneBook) -> Self {
        Self { zones, rows: vec![], by_name: vec![], heap: BinaryHeap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Gives back what loading took too much of.
    pub(crate) fn shrink(&mut self) {
        self.rows.shrink_to_fit();
        self.by_name.shrink_to_fit();
        self.heap.shrink_to_fit();
    }

    /// The revision of a pipeline's row, as it was last seen.
    pub(crate) fn revision(&self, pipeline: &PipelineId) -> Option<u64> {
        self.row(pipeline).map(|watched| watched.revision)
    }

    /// Whether somebody else runs a pipeline and reports: of such a one it matters who could hear (S10).
    pub(crate) fn is_reported(&self, pipeline: &PipelineId) -> bool {
        self.row(pipeline).is_some_and(|watched| watched.is_reported)
    }

    /// The pipelines of which a report may open slots, among some by their numbers.
    pub(crate) fn with_sensors(&self, numbers: Range<usize>) -> impl Iterator<Item = &PipelineId> {
        let some = self.rows.iter().skip(numbers.start).take(numbers.len());
        some.filter(|watched| watched.has_sensors).map(|watched| &watched.name)
    }

    /// Takes over a pipeline's row, if it is not the one that is known. What was to be judged by an instant was
    /// judged; what was judged after it is judged again, which changes nothing.
    pub(crate) fn take(
        &mut self,
        pipeline: &PipelineId,
        (record, revision): (&PipelineRecord, u64),
        judged: Timestamp,
        shared: &mut Shared,
    ) -> Result<(), Unreadable> {
        if self.revision(pipeline) == Some(revision) {
            return Ok(());
        }
        let zones = |name: &str| (self.zones)(name);
        let agenda = record.agenda.as_ref().map(|it| it.to_core(shared, &zones)).transpose();
        let read = agenda.map(Option::unwrap_or_default);
        let (from, has_sensors, is_reported) = match &read {
            Ok(agenda) if record.retired_at.is_none() => {
                let expecting = Expecting { pipeline, agenda };
                let next = expecting.first_after(judged, record.first_seen);
                let is_reported = agenda.work == Work::Watched;
                (next.map_or(NEVER, millis), has_sensors(agenda), is_reported)
            }
            Ok(_) | Err(_) => (NEVER, false, false),
        };
        let number = self.place(pipeline);
        if let Some(watched) = self.rows.get_mut(number as usize) {
            let (name, armed) = (pipeline.clone(), NEVER);
            *watched = Watched { name, from, armed, revision, has_sensors, is_reported };
        }
        self.arm_at(number, from);
        read.map(|_| ())
    }

    /// A pipeline was judged; there is nothing more to be judged of it before an instant.
    pub(crate) fn judged(&mut self, pipeline: &PipelineId, next: Option<Timestamp>) {
        let Some(number) = self.number(pipeline) else { return };
        let next = next.map_or(NEVER, millis);
        if let Some(watched) = self.rows.get_mut(number as usize) {
            watched.from = next;
        }
        self.arm_at(number, next);
    }

    /// Looks at a pipeline again, not before an instant.
    pub(crate) fn arm(&mut self, pipeline: &PipelineId, soonest: Timestamp) {
        let Some(number) = self.number(pipeline) else { return };
        self.arm_not_before(number, millis(soonest));
    }

    /// Whatever should have been judged before an instant, and was not, is looked at later: the scheduler is given
    /// the time to record what it knows, or the store the time to answer again.
    pub(crate) fn settle(&mut self, from: Timestamp, until: Timestamp) {
        let from = millis(from);
        let late = self.rows.iter().enumerate().filter(|(_, watched)| watched.from < from);
        let late: Vec<u32> = late.map(|(number, _)| number as u32).collect();
        for number in late {
            self.arm_not_before(number, millis(until));
        }
    }

    /// Takes a pipeline off the heap that is to be looked at now, and tells from when on it is to be judged.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<(PipelineId, Timestamp)> {
        let now = millis(now);
        while let Some(Reverse((at, _))) = self.heap.peek()
            && *at <= now
            && let Some(Reverse((at, number))) = self.heap.pop()
        {
            let Some(watched) = self.rows.get_mut(number as usize) else { continue };
            if watched.armed == at {
                watched.armed = NEVER;
                return Some((watched.name.clone(), timestamp(watched.from)));
            }
        }
        None
    }

    /// When the next judgement is.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.heap.peek().map(|Reverse((at, _))| timestamp(*at))
    }

    /// Until when everything was judged, at an instant: what waits for somebody, was set aside or was cut off was
    /// not.
    pub(crate) fn judged_by(&self, now: Timestamp) -> Timestamp {
        let first = self.rows.iter().map(|watched| watched.from).min().unwrap_or(NEVER);
        now.min(timestamp(first.saturating_sub(1)))
    }

    fn arm_not_before(&mut self, number: u32, soonest: Millis) {
        let from = self.rows.get(number as usize).map_or(NEVER, |watched| watched.from);
        self.arm_at(number, if from == NEVER { NEVER } else { from.max(soonest) });
    }

    fn arm_at(&mut self, number: u32, at: Millis) {
        let Some(watched) = self.rows.get_mut(number as usize) else { return };
        if watched.armed == at {
            return;
        }
        watched.armed = at;
        if at == NEVER {
            return;
        }
        self.heap.push(Reverse((at, number)));
        if self.heap.len() > 2 * self.rows.len() + OVERTAKEN_MAX {
            let Self { heap, rows, .. } = self;
            heap.retain(|Reverse((at, number))| {
                rows.get(*number as usize).is_some_and(|watched| watched.armed == *at)
            });
        }
    }

    fn row(&self, pipeline: &PipelineId) -> Option<&Watched> {
        self.rows.get(self.number(pipeline)? as usize)
    }

    fn number(&self, pipeline: &PipelineId) -> Option<u32> {
        let found = self.search(pipeline).ok()?;
        self.by_name.get(found).copied()
    }

    /// Where a name stands in the order of names, or would.
    fn search(&self, pipeline: &PipelineId) -> Result<usize, usize> {
        self.by_name.binary_search_by(|number| {
            self.rows.get(*number as usize).map(|watched| &watched.name).cmp(&Some(pipeline))
        })
    }

    /// The number of a pipeline's row, which is made if there is none.
    fn place(&mut self, pipeline: &PipelineId) -> u32 {
        match self.search(pipeline) {
            Ok(found) => self.by_name.get(found).copied().unwrap_or_default(),
            Err(place) => {
                let number = self.rows.len() as u32;
                let name = pipeline.clone();
                let (from, armed, revision) = (NEVER, NEVER, 0);
                let (has_sensors, is_reported) = (false, false);
                self.rows.push(Watched { name, from, armed, revision, has_sensors, is_reported });
                self.by_name.insert(place, number);
                number
            }
        }
    }
}

fn has_sensors(agenda: &Agenda) -> bool {
    agenda.starts.iter().any(|it| matches!(it.schedule.recurrence(), Recurrence::Sensor { .. }))
}

/// The first whole millisecond that is not before an instant.
fn millis(at: Timestamp) -> Millis {
    let whole = at.as_millisecond();
    let is_later = at.as_nanosecond() > i128::from(whole) * 1_000_000;
    whole.saturating_add(Millis::from(is_later))
}

fn timestamp(millis: Millis) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX)
}

impl std::fmt::Debug for Watchlist {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watchlist").field("pipelines", &self.rows.len()).finish_non_exhaustive()
    }
}
