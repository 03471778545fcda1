//! What the checks look at: one pipeline, with what is due of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use interlock_core::{
    agenda::Agenda,
    id::{PipelineId, ScheduleId},
    pipeline::StartSchedule,
    sensor::Sensor,
    slot::Slot,
};
use interlock_store::{Obligation, RunKey, RunRow, record::PauseRecord};
use jiff::{SignedDuration, Timestamp};

use crate::owed::Owed;

/// A slot of a pipeline: its instant and its schedule.
pub type Place = (Timestamp, ScheduleId);

/// One pipeline as the store has it, and what is to be judged now.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Which pipeline.
    pub pipeline: PipelineId,
    /// What it owes.
    pub agenda: Agenda,
    /// Its version in force.
    pub version: u64,
    /// What had to happen before this was nobody's to see.
    pub first_seen: Timestamp,
    /// Whether its file is gone.
    pub is_retired: bool,
    /// Its last pause.
    pub pause: Option<PauseRecord>,
    /// How far the scheduler recorded each schedule.
    pub watermarks: BTreeMap<ScheduleId, Timestamp>,
    /// The slots whose time to be judged has come.
    pub owed: Vec<Owed>,
    /// Rows of those slots and of those that obligations are about; absent ones are not recorded by a row.
    pub slots: BTreeMap<Place, Known>,
    /// Spans around the owed slots that have no row.
    pub spans: Vec<SpanSeen>,
    /// The last run of the slots that obligations are about.
    pub runs: BTreeMap<Place, RunRow>,
    /// Runs that have a time limit of their own which is due.
    pub limited: BTreeMap<RunKey, RunRow>,
    /// Its sensors, where something asks for them.
    pub sensors: BTreeMap<String, Reported>,
    /// Obligations that are due.
    pub due: Vec<Obligation>,
    /// Slots that have an SLA entry in the due index.
    pub armed: BTreeSet<Place>,
    /// Whether reports lie in the inbox that nobody has applied: they count as arrived.
    pub has_unapplied: bool,
    /// Times in which no report could have reached us.
    pub blind: Vec<(Timestamp, Timestamp)>,
    /// What is found later than this after its time is found late.
    pub late_after: SignedDuration,
}

/// A slot with its revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// What the ledger says.
    pub slot: Slot,
    /// How often it was written.
    pub revision: u64,
}

/// Slots in a row with the same fate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanSeen {
    /// Of which schedule.
    pub schedule: ScheduleId,
    /// The first of them.
    pub first: Timestamp,
    /// The last of them.
    pub last: Timestamp,
    /// How many.
    pub count: u64,
    /// Whether people should know of them.
    pub counts_as_missed: bool,
    /// Why, for people.
    pub reason: String,
}

/// A sensor with when it reached us.
#[derive(Debug, Clone, PartialEq)]
pub struct Reported {
    /// What it says.
    pub sensor: Sensor,
    /// When it reached us.
    pub received_at: Timestamp,
    /// Whether its pipeline took nothing then.
    pub unheeded: bool,
    /// The slots that it opens; none, where it is known that they need nothing more of it.
    pub opens: Vec<Place>,
}

impl Snapshot {
    /// A pipeline of which nothing is recorded and nothing is due.
    pub fn new(pipeline: PipelineId, agenda: Agenda, first_seen: Timestamp) -> Self {
        Self {
            pipeline,
            agenda,
            version: 1,
            first_seen,
            is_retired: false,
            pause: None,
            watermarks: BTreeMap::new(),
            owed: vec![],
            slots: BTreeMap::new(),
            spans: vec![],
            runs: BTreeMap::new(),
            limited: BTreeMap::new(),
            sensors: BTreeMap::new(),
            due: vec![],
            armed: BTreeSet::new(),
            has_unapplied: false,
            blind: vec![],
            late_after: SignedDuration::from_mins(1),
        }
    }

    /// Whether a pause accounts for what did not happen between two instants: it covers the one at which it should have
    /// begun, or the one by which it should have. Not whether one holds now: who looks later must find the same.
    pub(crate) fn was_paused(&self, nominal: Timestamp, limit: Timestamp) -> bool {
        let covers =
            |at| self.pause.as_ref().is_some_and(|it| it.all().any(|pause| pause.covers(at)));
        covers(nominal) || covers(limit)
    }

    /// A dead-man's switch, if the schedule is one.
    pub(crate) fn switch(&self, schedule: &ScheduleId) -> Option<&Arc<StartSchedule>> {
        let starts = self.agenda.starts.iter();
        starts.filter(|start| start.is_switch()).find(|start| start.schedule.id() == schedule)
    }

    /// The span that stands for a slot.
    pub(crate) fn span_of(&self, place: &Place) -> Option<&SpanSeen> {
        self.spans
            .iter()
            .find(|span| span.schedule == place.1 && (span.first..=span.last).contains(&place.0))
    }

    /// Whether the scheduler has yet to come to a slot. One that it passed without a row or a span was never
    /// owed; a schedule without a watermark has not been taken up.
    pub(crate) fn is_ahead(&self, place: &Place) -> bool {
        self.watermarks.get(&place.1).is_some_and(|watermark| place.0 > *watermark)
    }
}
