//! Groups, put together: what changes, and the event that says why.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::{
    id::{PipelineId, ScheduleId},
    run::{RunEvent, RunState, TriggerType},
    slot::{OpenState, Slot},
};
use interlock_ports::trigger::StartRequest;
use interlock_store::{
    Change, Expect, Group, InboxEntry, Key, Record, RunKey, Writer,
    record::{AskerRecord, EventRecord, RunRecord, SlotRecord, WatermarkRecord},
};
use jiff::Timestamp;
use serde_json::Value;

use crate::state::KnownRun;

/// A group and what follows once it is accepted.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) group: Group,
    pub(crate) acts: Vec<Act>,
    /// What probably begins once the job has ended that it starts.
    pub(crate) next: Option<Box<StartRequest>>,
    /// Whether memory is already as if it were accepted; should it be refused, its pipeline is loaded again.
    pub(crate) is_held: bool,
    /// The entry of the inbox that it answers. Should the store never be able to take the group, that is answered instead.
    pub(crate) request: Option<Box<InboxEntry>>,
}

/// Something outside the store that an accepted group calls for.
#[derive(Debug)]
pub(crate) enum Act {
    /// Start a job.
    Start(Box<StartRequest>),
    /// Ask a job to end.
    Cancel(Box<StartRequest>),
    /// Its end is stored.
    Acknowledge(String),
}

impl Act {
    /// The job that begins, if one does.
    pub(crate) fn start(&self) -> Option<&StartRequest> {
        match self {
            Self::Start(request) => Some(request),
            Self::Cancel(_) | Self::Acknowledge(_) => None,
        }
    }
}

impl Planned {
    pub(crate) fn new(pipeline: &PipelineId, writer: Writer) -> Self {
        let group = Group { pipeline: pipeline.clone(), writer, changes: vec![] };
        Self { group, acts: vec![], next: None, is_held: false, request: None }
    }

    /// Writes a slot at the revision it was read at, 0 for one that is not there.
    pub(crate) fn slot(&mut self, place: &(Timestamp, ScheduleId), revision: u64, slot: &Slot) {
        let key = Key::Slot(place.1.clone(), place.0);
        let record = Record::Slot(SlotRecord::from_core(slot).into());
        self.group.changes.push(Change::Put(key, expect(revision), record));
    }

    pub(crate) fn watermark(&mut self, schedule: &ScheduleId, revision: u64, at: Timestamp) {
        let record = Record::Watermark(WatermarkRecord { at });
        let key = Key::Watermark(schedule.clone());
        self.group.changes.push(Change::Put(key, expect(revision), record));
    }

    /// Creates a run as TRIGGERING: it took its place and is about to be started, in one group.
    pub(crate) fn new_run(&mut self, key: RunKey, trigger_type: TriggerType, run: NewRun) {
        let record = RunRecord {
            status: RunState::Triggering.as_str().into(),
            trigger_type: trigger_type.as_str().into(),
            created_at: run.at,
            started_at: None,
            ended_at: None,
            message: None,
            category: None,
            metadata: run.metadata,
        };
        self.group.changes.push(Change::Put(
            Key::Run(key),
            Expect::Absent,
            Record::Run(record.into()),
        ));
    }

    /// The run that this group creates.
    pub(crate) fn created_run(&self) -> Option<Arc<RunRecord>> {
        self.group.changes.iter().find_map(|change| {
            if let Change::Put(Key::Run(_), Expect::Absent, Record::Run(record)) = change {
                Some(Arc::clone(record))
            } else {
                None
            }
        })
    }

    /// Keeps more about a run, whose state stays.
    pub(crate) fn about_run(&mut self, run: &KnownRun, more: BTreeMap<String, Value>) {
        let mut record = run.record.as_ref().clone();
        record.metadata.extend(more);
        let key = Key::Run(run.key.clone());
        self.group.changes.push(Change::Put(key, expect(run.revision), Record::Run(record.into())));
    }

    /// Whether the group says this already.
    pub(crate) fn has_event(&self, kind: &str) -> bool {
        let is_it =
            |change: &Change| matches!(change, Change::Append(event) if event.kind == *kind);
        self.group.changes.iter().any(is_it)
    }

    /// Moves a run on; a report that the state machine does not know is no change.
    pub(crate) fn run(
        &mut self,
        run: &KnownRun,
        event: RunEvent,
        change: impl FnOnce(&mut RunRecord),
    ) {
        let Ok(Ok(state)) = run.record.state().map(|state| state.apply(event)) else { return };
        let mut record = run.record.as_ref().clone();
        record.status = state.as_str().into();
        change(&mut record);
        let key = Key::Run(run.key.clone());
        self.group.changes.push(Change::Put(key, expect(run.revision), Record::Run(record.into())));
    }

    pub(crate) fn event(&mut self, event: Event<'_>) {
        let Event { kind, at, slot, run_id, message, details } = event;
        let slot = slot.map(|(nominal, schedule)| format!("{schedule}/{nominal}"));
        let event = EventRecord { kind: kind.into(), at, slot, run_id, message, details };
        self.group.changes.push(Change::Append(event.into()));
    }

    /// Whether anything happens in it.
    pub(crate) fn has_events(&self) -> bool {
        self.group.changes.iter().any(|change| matches!(change, Change::Append(_)))
    }

    /// Says in every event who asked for what happens.
    pub(crate) fn name_asker(&mut self, asker: &AskerRecord) {
        for change in &mut self.group.changes {
            let Change::Append(event) = change else { continue };
            let details = &mut Arc::make_mut(event).details;
            details.entry("by".to_owned()).or_insert_with(|| asker.by.as_str().into());
            details.entry("from".to_owned()).or_insert_with(|| asker.from.as_str().into());
        }
    }

    /// The jobs that begin if it is accepted.
    pub(crate) fn starts(&self) -> impl Iterator<Item = &StartRequest> + Clone {
        self.acts.iter().filter_map(Act::start)
    }

    /// Whether a slot's work is done by it: others may wait for that.
    pub(crate) fn ends_work(&self) -> bool {
        self.group.changes.iter().any(|change| {
            matches!(change, Change::Put(Key::Slot(..), _, Record::Slot(slot))
                if !slot.is_open() || slot.state == OpenState::Monitoring.as_str())
        })
    }

    /// Whether it says what becomes of any slot.
    pub(crate) fn moves_slot(&self) -> bool {
        let changes = self.group.changes.iter();
        changes.filter_map(Change::key).any(|key| matches!(key, Key::Slot(..)))
    }

    /// Whether it moves a watermark.
    pub(crate) fn moves_watermark(&self) -> bool {
        let changes = self.group.changes.iter();
        changes.filter_map(Change::key).any(|key| matches!(key, Key::Watermark(_)))
    }

    /// Whether it already says what becomes of a slot: a row occurs once in a group.
    pub(crate) fn writes_slot(&self, place: &(Timestamp, ScheduleId)) -> bool {
        let key = Key::Slot(place.1.clone(), place.0);
        self.group.changes.iter().any(|change| change.key() == Some(&key))
    }

    /// Writes a row that holds no decision, whatever is there.
    pub(crate) fn put_any(&mut self, key: Key, record: Record) {
        self.group.changes.push(Change::Put(key, Expect::Any, record));
    }

    pub(crate) fn put(&mut self, key: Key, revision: u64, record: Record) {
        self.group.changes.push(Change::Put(key, expect(revision), record));
    }
}

/// What is known of a run at its beginning.
pub(crate) struct NewRun {
    pub(crate) at: Timestamp,
    pub(crate) metadata: BTreeMap<String, Value>,
}

/// An event to be appended.
pub(crate) struct Event<'a> {
    pub(crate) kind: &'static str,
    pub(crate) at: Timestamp,
    pub(crate) slot: Option<&'a (Timestamp, ScheduleId)>,
    pub(crate) run_id: Option<String>,
    pub(crate) message: String,
    pub(crate) details: BTreeMap<String, Value>,
}

impl<'a> Event<'a> {
    pub(crate) fn of(kind: &'static str, at: Timestamp, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind, at, slot: None, run_id: None, message, details: BTreeMap::new() }
    }

    pub(crate) fn about(mut self, slot: &'a (Timestamp, ScheduleId)) -> Self {
        self.slot = Some(slot);
        self
    }

    pub(crate) fn run(mut self, run_id: String) -> Self {
        self.run_id = Some(run_id);
        self
    }

    pub(crate) fn says(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    pub(crate) fn detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }
}

fn expect(revision: u64) -> Expect {
    if revision == 0 { Expect::Absent } else { Expect::Revision(revision) }
}
