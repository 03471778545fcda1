//! What the owner of a shard keeps in memory: a projection of the store, and nothing that is not there.
//!
//! Memory changes in one way: a group that the store accepted is absorbed ([`Pipelines::absorb`]). So a
//! restart, which loads the same rows, arrives at the same state.

use std::collections::BTreeMap;

use interlock_core::{
    id::{PipelineId, ScheduleId},
    readiness::TraitResult,
    schedule::Schedule,
    sensor::{Sensor, Sensors},
    slot::Slot,
};
use interlock_store::{
    Change, Expect, Group, Key, LedgerEntry, LedgerRow, Record, RunKey,
    record::{IncidentRecord, PipelineRecord, RunRecord, Unreadable},
};
use jiff::{SignedDuration, Timestamp};

/// The pipelines of a shard by name.
#[derive(Debug, Default)]
pub(crate) struct Pipelines(pub(crate) BTreeMap<PipelineId, PipelineState>);

/// One pipeline.
#[derive(Debug, Default)]
pub(crate) struct PipelineState {
    pub(crate) row: Option<(PipelineRecord, u64)>,
    /// The version that the schedules below come from; 0 before the files were seen.
    pub(crate) version: u64,
    pub(crate) schedules: Vec<ScheduleState>,
    pub(crate) watermarks: BTreeMap<ScheduleId, (Timestamp, u64)>,
    pub(crate) open: BTreeMap<SlotPlace, OpenSlot>,
    /// Answers of evaluators, as long as they may be reused; not stored.
    pub(crate) traits: BTreeMap<String, Answer>,
    /// Loaded when a slot first needs them.
    pub(crate) sensors: Option<Sensors>,
    /// Incidents that are not resolved, by their dedup keys.
    pub(crate) incidents: BTreeMap<String, (IncidentRecord, u64)>,
}

/// A schedule, as far as the agenda needs it.
#[derive(Debug)]
pub(crate) struct ScheduleState {
    pub(crate) schedule: Schedule,
    pub(crate) start_grace: SignedDuration,
}

/// The order among slots of a pipeline.
pub(crate) type SlotPlace = (Timestamp, ScheduleId);

/// A slot that is not decided yet.
#[derive(Debug, Clone)]
pub(crate) struct OpenSlot {
    pub(crate) slot: Slot,
    pub(crate) revision: u64,
    /// The runs of its generation, oldest first.
    pub(crate) runs: Vec<KnownRun>,
}

/// A run of an open slot.
#[derive(Debug, Clone)]
pub(crate) struct KnownRun {
    pub(crate) key: RunKey,
    pub(crate) record: RunRecord,
    pub(crate) revision: u64,
}

/// What an evaluator said, or that it was asked.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// It was asked and has not answered.
    Asked,
    /// It answered; the answer may be used until then.
    Given(TraitResult, Timestamp),
}

impl Pipelines {
    pub(crate) fn get_mut(&mut self, pipeline: &PipelineId) -> &mut PipelineState {
        self.0.entry(pipeline.clone()).or_default()
    }

    /// Takes over what an accepted group changed.
    pub(crate) fn absorb(&mut self, group: &Group) -> Result<(), Unreadable> {
        let state = self.get_mut(&group.pipeline);
        for change in &group.changes {
            if let Change::Put(key, expect, record) = change {
                let revision = match expect {
                    Expect::Absent | Expect::Any => 1,
                    Expect::Revision(before) => before + 1,
                };
                state.put(key, record, revision)?;
            }
        }
        Ok(())
    }
}

impl PipelineState {
    pub(crate) fn put(
        &mut self,
        key: &Key,
        record: &Record,
        revision: u64,
    ) -> Result<(), Unreadable> {
        match (key, record) {
            (Key::Pipeline, Record::Pipeline(record)) => {
                self.row = Some((record.clone(), revision));
            }
            (Key::Watermark(schedule), Record::Watermark(record)) => {
                self.watermarks.insert(schedule.clone(), (record.at, revision));
            }
            (Key::Slot(schedule, nominal), Record::Slot(record)) => {
                let place = (*nominal, schedule.clone());
                if record.is_open() {
                    self.put_slot(place, record.to_core()?, revision);
                } else {
                    self.open.remove(&place);
                }
            }
            (Key::Run(key), Record::Run(record)) => {
                let run = KnownRun { key: key.clone(), record: record.clone(), revision };
                self.put_run(run);
            }
            (Key::Sensor(key), Record::Sensor(record)) => {
                if let Some(sensors) = &mut self.sensors {
                    let sensor = Sensor { value: record.value.clone(), at: record.at };
                    sensors.insert(key.clone(), sensor);
                }
            }
            (Key::Incident(key), Record::Incident(record)) => {
                if record.is_open() {
                    self.incidents.insert(key.clone(), (record.clone(), revision));
                } else {
                    self.incidents.remove(key);
                }
            }
            // Versions, spans, due entries, notifications and answers are read when needed.
            _ => {}
        }
        Ok(())
    }

    fn put_slot(&mut self, place: SlotPlace, slot: Slot, revision: u64) {
        match self.open.get_mut(&place) {
            Some(open) if open.slot.generation == slot.generation => {
                open.slot = slot;
                open.revision = revision;
            }
            _ => {
                self.open.insert(place, OpenSlot { slot, revision, runs: vec![] });
            }
        }
    }

    pub(crate) fn put_run(&mut self, run: KnownRun) {
        let place = (run.key.nominal, run.key.schedule.clone());
        let Some(open) = self.open.get_mut(&place) else { return };
        match open.runs.iter_mut().find(|known| known.key == run.key) {
            Some(known) => *known = run,
            None => open.runs.push(run),
        }
    }

    /// Takes over an open slot as the store lists it.
    pub(crate) fn load_open(&mut self, row: &LedgerRow) -> Result<(), Unreadable> {
        if let LedgerEntry::Slot(record) = &row.entry {
            let slot = record.to_core()?;
            self.put_slot((row.nominal, row.schedule.clone()), slot, row.revision);
        }
        Ok(())
    }

    /// How far a schedule is recorded.
    pub(crate) fn watermark(&self, schedule: &ScheduleId) -> Option<(Timestamp, u64)> {
        self.watermarks.get(schedule).copied()
    }

    /// Whether nothing of it may start now.
    pub(crate) fn is_paused(&self, now: Timestamp) -> bool {
        let pause = self.row.as_ref().and_then(|(row, _)| row.pause.as_ref());
        pause.is_some_and(|pause| pause.until.is_none_or(|until| now < until))
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.row.as_ref().is_some_and(|(row, _)| row.retired_at.is_some())
    }
}

impl OpenSlot {
    /// The run that is under way or was the last.
    pub(crate) fn last_run(&self) -> Option<&KnownRun> {
        self.runs.last()
    }
}
