//! What the owner of a shard keeps in memory: a projection of the store, and nothing that is not there.
//!
//! Memory changes in one way: a group that the store accepted is absorbed ([`Pipelines::absorb`]). So a
//! restart, which loads the same rows, arrives at the same state.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use interlock_core::{
    agenda::{Agenda, Work},
    id::{PipelineId, ScheduleId},
    readiness::TraitResult,
    run::{OUTPUT, RunState},
    sensor::{Sensor, Sensors},
    slot::Slot,
};
use interlock_store::{
    Change, Expect, Group, Key, LedgerEntry, LedgerRow, Page, Record, RunKey,
    record::{
        AboutRecord, AgendaRecord, BackfillRecord, IncidentRecord, PauseRecord, PipelineRecord,
        RunRecord, Shared, Unreadable, version_number, version_text,
    },
};
use jiff::Timestamp;

use crate::{
    heard::Heard,
    open::{Undecided, is_deferrable},
    seam::Specs,
};

/// Slots that catch-up queued and that are kept in memory, over all pipelines of the store: of a million missed ones
/// the others wait in the store.
const QUEUED_KEPT: usize = 100_000;
/// The share of one pipeline in that: the oldest of its queue.
const SHARE_MAX: usize = 100;
const SHARE_MIN: usize = 4;

/// The pipelines of a shard by name, and what their agendas have in common. Boxed, because the map's nodes
/// are half empty.
pub(crate) struct Pipelines(
    pub(crate) BTreeMap<PipelineId, Box<PipelineState>>,
    pub(crate) Agendas,
    /// Queued slots that the shard keeps in memory.
    usize,
    /// How many are declared and not retired: requests about other names have entries too.
    usize,
);

/// Makes agendas from rows.
pub(crate) struct Agendas {
    shared: Shared,
    specs: Arc<dyn Specs>,
}

/// One pipeline. What is not used by a pipeline that waits for its time should be small: there may be a
/// hundred thousand.
#[derive(Debug, Default)]
pub(crate) struct PipelineState {
    pub(crate) row: Option<(KnownPipeline, u64)>,
    /// The version that the agenda comes from; 0 when the row has none that can be read.
    pub(crate) version: u64,
    pub(crate) agenda: Agenda,
    watermarks: Box<[(ScheduleId, (Timestamp, u64))]>,
    /// For which instant it stands on the engine's agenda.
    pub(crate) armed_at: Option<Timestamp>,
    pub(crate) open: Undecided,
    /// Whether the store has queued slots after those that are kept here.
    pub(crate) has_more_queued: bool,
    /// How many those are, as far as is known.
    left_in_the_store: u32,
    /// Answers of evaluators, as long as they may be reused; not stored.
    pub(crate) traits: BTreeMap<String, Answer>,
    /// Loaded when a slot first needs them.
    pub(crate) sensors: Option<Sensors>,
    /// Incidents that are not resolved, by their dedup keys.
    pub(crate) incidents: BTreeMap<String, (Arc<IncidentRecord>, u64)>,
    /// Backfills that are not finished, by their numbers.
    pub(crate) backfills: BTreeMap<u64, (BackfillRecord, u64)>,
    /// What is remembered of reports, once there were some.
    pub(crate) heard: Option<Box<Heard>>,
}

/// A pipeline's row without its agenda, which is kept as core's type; [`PipelineState::record`] puts both
/// together again.
#[derive(Debug, Clone)]
pub(crate) struct KnownPipeline {
    pub(crate) version: u64,
    pub(crate) first_seen: Timestamp,
    pub(crate) retired_at: Option<Timestamp>,
    pub(crate) pause: Option<Box<PauseRecord>>,
    pub(crate) disabled_since: Option<Timestamp>,
    /// Whether its row has what lists say of it, which is not kept here.
    pub(crate) has_about: bool,
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
    pub(crate) record: Arc<RunRecord>,
    pub(crate) revision: u64,
}

/// What an evaluator said, or that it was asked.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// It was asked and has not answered.
    Asked,
    /// It answered; the answer may be used until then, by the clock that [`Trust`](crate::host::Trust) goes by.
    Given(TraitResult, Duration),
}

impl Agendas {
    /// The agenda of a row; a sentence in the log when it cannot be read, which sets only this pipeline
    /// aside until its file is declared again.
    fn read(&mut self, record: &PipelineRecord) -> Option<(u64, Agenda)> {
        let version = version_number(&record.version).ok()?;
        let specs = Arc::clone(&self.specs);
        let zones = |name: &str| specs.zone(name);
        match record.agenda.as_ref()?.to_core(&mut self.shared, &zones) {
            Ok(agenda) => Some((version, agenda)),
            Err(reason) => {
                tracing::error!(version, %reason, "cannot read the schedule in a pipeline's row");
                None
            }
        }
    }
}

impl Pipelines {
    pub(crate) fn new(specs: Arc<dyn Specs>, shard_count: u16) -> Self {
        let kept = QUEUED_KEPT / usize::from(shard_count.max(1));
        Self(BTreeMap::new(), Agendas { shared: Shared::default(), specs }, kept, 0)
    }

    /// How many slots of its queue a pipeline keeps in memory.
    pub(crate) fn share(&self) -> usize {
        share_of(self.2, self.0.len())
    }

    pub(crate) fn get_mut(&mut self, pipeline: &PipelineId) -> &mut PipelineState {
        // A name shares its text: to copy it is cheaper than to look for it twice.
        self.0.entry(pipeline.clone()).or_default()
    }

    /// Takes over rows as the store has them.
    pub(crate) fn load(
        &mut self,
        pipeline: &PipelineId,
        rows: &[(&Key, &Record, u64)],
    ) -> Result<(), Unreadable> {
        self.get_mut(pipeline);
        let share = self.share();
        let Self(states, agendas, _, declared) = self;
        let Some(state) = states.get_mut(pipeline) else { return Ok(()) };
        let before = usize::from(state.is_declared());
        let read = rows.iter().try_for_each(|(key, record, revision)| {
            state.put(key, record, *revision, (&mut *agendas, share))
        });
        *declared = (*declared + usize::from(state.is_declared())).saturating_sub(before);
        read
    }

    /// How many are declared and not retired.
    pub(crate) fn declared(&self) -> usize {
        self.3
    }

    /// Takes over an open slot as the store lists it.
    pub(crate) fn load_open(&mut self, row: &LedgerRow) -> Result<(), Unreadable> {
        let share = self.share();
        self.get_mut(&row.pipeline).load_open(row, share)
    }

    /// Takes over what an accepted group changed.
    pub(crate) fn absorb(&mut self, group: &Group) -> Result<(), Unreadable> {
        let mut rows = Vec::with_capacity(group.changes.len());
        for change in &group.changes {
            if let Change::Put(key, expect, record) = change {
                let revision = match expect {
                    Expect::Absent | Expect::Any => 1,
                    Expect::Revision(before) => before + 1,
                };
                rows.push((key, record, revision));
            }
        }
        self.load(&group.pipeline, &rows)
    }
}

impl PipelineState {
    fn put(
        &mut self,
        key: &Key,
        record: &Record,
        revision: u64,
        (agendas, share): (&mut Agendas, usize),
    ) -> Result<(), Unreadable> {
        match (key, record) {
            (Key::Pipeline, Record::Pipeline(record)) => {
                self.put_pipeline(record, revision, agendas);
            }
            (Key::Watermark(schedule), Record::Watermark(record)) => {
                self.put_watermark(schedule, (record.at, revision));
            }
            (Key::Slot(schedule, nominal), Record::Slot(record)) => {
                let place = (*nominal, schedule.clone());
                if record.is_open() {
                    self.put_slot(place, (record.to_core()?, revision), share);
                } else {
                    let runs = self.open.remove(&place).map(|open| open.runs).unwrap_or_default();
                    if self.agenda.work == Work::Watched {
                        let slot = (record.to_core()?, revision);
                        self.heard.get_or_insert_default().decided(&place, slot, &runs);
                    }
                }
            }
            (Key::Run(key), Record::Run(record)) => {
                let run =
                    KnownRun { key: key.clone(), record: record.as_ref().clone().into(), revision };
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
                    self.incidents.insert(key.clone(), (record.as_ref().clone().into(), revision));
                } else {
                    self.incidents.remove(key);
                }
            }
            (Key::Backfill(number), Record::Backfill(record)) => {
                self.put_backfill(*number, record, revision);
            }
            // Versions, spans, due entries, notifications and answers are read when needed.
            _ => {}
        }
        Ok(())
    }

    /// An agenda is read only if its version is new: a pause does not change it.
    fn put_pipeline(&mut self, record: &PipelineRecord, revision: u64, agendas: &mut Agendas) {
        let version = version_number(&record.version).unwrap_or(0);
        if self.version != version || version == 0 {
            (self.version, self.agenda) = agendas.read(record).unwrap_or_default();
        }
        let known = KnownPipeline {
            version,
            first_seen: record.first_seen,
            retired_at: record.retired_at,
            pause: record.pause.clone().map(Box::new),
            disabled_since: record.disabled_since,
            has_about: record.about.is_some(),
        };
        self.row = Some((known, revision));
    }

    pub(crate) fn put_backfill(&mut self, number: u64, record: &BackfillRecord, revision: u64) {
        if record.is_unfinished() {
            self.backfills.insert(number, (record.clone(), revision));
        } else {
            self.backfills.remove(&number);
        }
    }

    pub(crate) fn put_watermark(&mut self, schedule: &ScheduleId, mark: (Timestamp, u64)) {
        if let Some((_, known)) = self.watermarks.iter_mut().find(|(id, _)| id == schedule) {
            *known = mark;
            return;
        }
        let mut all = std::mem::take(&mut self.watermarks).into_vec();
        all.reserve_exact(1);
        all.push((schedule.clone(), mark));
        self.watermarks = all.into();
    }

    fn put_slot(&mut self, place: SlotPlace, (slot, revision): (Slot, u64), share: usize) {
        let Some(slot) = self.open.renew(&place, slot, revision) else { return };
        if self.is_left_in_the_store(&place, &slot, share) {
            self.has_more_queued = true;
            self.left_in_the_store = self.left_in_the_store.saturating_add(1);
        } else {
            self.open.insert(place, OpenSlot { slot, revision, runs: vec![] });
        }
    }

    /// Whether a slot need not be kept here yet: of those that catch-up queued only the first are.
    fn is_left_in_the_store(&mut self, place: &SlotPlace, slot: &Slot, share: usize) -> bool {
        if !is_deferrable(slot) {
            return false;
        }
        let (count, last) = self.open.deferrable();
        let last = last.cloned();
        let is_after = last.as_ref().is_none_or(|last| place > last);
        if is_after {
            return self.has_more_queued || count >= share;
        }
        if count >= share
            && let Some(last) = last
        {
            self.open.remove(&last);
            self.has_more_queued = true;
            self.left_in_the_store = self.left_in_the_store.saturating_add(1);
        }
        false
    }

    /// How many slots are not decided, here and in the store.
    pub(crate) fn undecided(&self) -> usize {
        self.open.len() + self.left_in_the_store as usize
    }

    /// Forgets the open slots, which are read again.
    pub(crate) fn forget_open(&mut self) {
        (self.open, self.has_more_queued, self.left_in_the_store) = Default::default();
    }

    /// Takes over open slots from the store, which has more of them or not.
    pub(crate) fn fetch(&mut self, page: &Page<LedgerRow>, share: usize) -> Result<(), Unreadable> {
        let all = self.undecided();
        self.has_more_queued = false;
        for row in &page.items {
            self.load_open(row, share)?;
        }
        self.has_more_queued |= page.more;
        // None came by that. Where none is left, what was thought to be has been decided by somebody.
        let left = if self.has_more_queued { all.saturating_sub(self.open.len()) } else { 0 };
        self.left_in_the_store = u32::try_from(left).unwrap_or(u32::MAX);
        Ok(())
    }

    pub(crate) fn put_run(&mut self, run: KnownRun) {
        let run = run.without_output();
        if let Some(heard) = &mut self.heard {
            heard.run(&run.key, &run.record);
        }
        let place = (run.key.nominal, run.key.schedule.clone());
        let Some(runs) = self.open.runs_mut(&place) else { return };
        match runs.iter_mut().find(|known| known.key == run.key) {
            Some(known) => *known = run,
            None => runs.push(run),
        }
    }

    /// Takes over an open slot as the store lists it; of its queue it keeps so many.
    pub(crate) fn load_open(&mut self, row: &LedgerRow, share: usize) -> Result<(), Unreadable> {
        if let LedgerEntry::Slot(record) = &row.entry {
            let place = (row.nominal, row.schedule.clone());
            self.put_slot(place, (record.to_core()?, row.revision), share);
        }
        Ok(())
    }

    /// Its row as it is stored, and its revision. What lists say of it is not kept in memory.
    pub(crate) fn record(&self, about: Option<AboutRecord>) -> Option<(PipelineRecord, u64)> {
        let (row, revision) = self.row.as_ref()?;
        let agenda = || Box::new(AgendaRecord::from_core(&self.agenda));
        let record = PipelineRecord {
            version: version_text(row.version),
            first_seen: row.first_seen,
            retired_at: row.retired_at,
            pause: row.pause.as_deref().cloned(),
            disabled_since: row.disabled_since,
            agenda: (self.version != 0).then(agenda),
            about: about.map(Box::new),
        };
        Some((record, *revision))
    }

    /// Whether its row in the store has what lists say of it.
    pub(crate) fn has_about(&self) -> bool {
        self.row.as_ref().is_some_and(|(row, _)| row.has_about)
    }

    /// How far a schedule is recorded.
    pub(crate) fn watermark(&self, schedule: &ScheduleId) -> Option<(Timestamp, u64)> {
        self.watermarks.iter().find(|(id, _)| id == schedule).map(|(_, mark)| *mark)
    }

    /// The schedules that have a watermark.
    pub(crate) fn watermarked(&self) -> impl Iterator<Item = &ScheduleId> {
        self.watermarks.iter().map(|(id, _)| id)
    }

    /// Whether nothing of it may start now.
    pub(crate) fn is_paused(&self, now: Timestamp) -> bool {
        self.pause(now).is_some()
    }

    /// The pause that is in force.
    pub(crate) fn pause(&self, now: Timestamp) -> Option<&PauseRecord> {
        let pause = self.row.as_ref().and_then(|(row, _)| row.pause.as_deref())?;
        pause.is_in_force(now).then_some(pause)
    }

    /// Whether a file declares it, as far as the ledger knows.
    pub(crate) fn is_declared(&self) -> bool {
        self.row.is_some() && !self.is_retired()
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.row.as_ref().is_some_and(|(row, _)| row.retired_at.is_some())
    }
}

/// One pipeline's share in what may be kept of the queues of so many.
fn share_of(kept: usize, pipelines: usize) -> usize {
    (kept / pipelines.max(1)).clamp(SHARE_MIN, SHARE_MAX)
}

impl fmt::Debug for Pipelines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pipelines").field(&self.0).finish_non_exhaustive()
    }
}

impl OpenSlot {
    /// The run that is under way or was the last.
    pub(crate) fn last_run(&self) -> Option<&KnownRun> {
        self.runs.last()
    }
}

impl KnownRun {
    /// The same without what its job wrote, if it is over: that is kilobytes, the row in the store has it, and no row of a run that
    /// is over is written again. Ten thousand slots may wait for their next attempt at once.
    fn without_output(mut self) -> Self {
        let is_over = self.record.state().is_ok_and(RunState::is_terminal);
        if is_over && self.record.metadata.contains_key(OUTPUT) {
            Arc::make_mut(&mut self.record).metadata.remove(OUTPUT);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_wrote_is_not_kept_in_memory_once_it_is_over() {
        let has_output = |status: &'static str| {
            let record = RunRecord {
                status: status.into(),
                trigger_type: "scheduler".into(),
                created_at: Timestamp::UNIX_EPOCH,
                started_at: None,
                ended_at: None,
                message: None,
                category: None,
                metadata: [OUTPUT, "exitCode"].map(|key| (key.to_owned(), 1.into())).into(),
            };
            let schedule = ScheduleId::from_static("daily");
            let nominal = Timestamp::UNIX_EPOCH;
            let key = RunKey { schedule, nominal, generation: 1, attempt: 1 };
            let run = KnownRun { key, record: record.into(), revision: 1 }.without_output();
            assert!(run.record.metadata.contains_key("exitCode"));
            run.record.metadata.contains_key(OUTPUT)
        };
        assert!(!has_output("FAILED") && !has_output("COMPLETED"));
        assert!(has_output("COMPLETED_MONITORING"), "its row is written again");
    }

    #[test]
    fn a_million_missed_slots_stay_in_the_store_however_many_pipelines_they_are_of() {
        for (pipelines, kept) in [(0, 100), (1, 100), (1_000, 100), (10_000, 10), (100_000, 4)] {
            assert_eq!(share_of(QUEUED_KEPT, pipelines), kept, "of {pipelines}");
        }
        for pipelines in [1, 10, 1_000, 10_000, 25_000] {
            assert!(pipelines * share_of(QUEUED_KEPT, pipelines) <= QUEUED_KEPT, "of {pipelines}");
        }
    }
}
