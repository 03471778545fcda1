//! A house to watch: a store on virtual time, with rows as the engine writes them, and the real rule of telling.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use interlock_config::{Context, SystemZones, ZoneSource as _, parse_pipeline};
use interlock_core::{
    agenda::Agenda,
    id::{PipelineId, ScheduleId},
    pipeline::Pipeline,
    run::TriggerType,
    slot::{Disposition, OpenState, Opening, Slot},
};
use interlock_store::{
    Change, DueKind, Expect, Group, Key, Obligation, Record, Role, RunKey, Shard, Store as _,
    Subject, Writer, block_on,
    memory::MemoryStore,
    record::{
        AgendaRecord, EventRecord, IncidentRecord, PauseRecord, PipelineRecord, RunRecord,
        SensorRecord, SlotRecord, WatermarkRecord, version_text,
    },
};
use interlock_watchdog::{
    CheckName, Finding, WatchdogError,
    once::{CheckOptions, Report, once},
    seam::{Incidents, Telling, ZoneBook},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// A time on the day of the cases, a Tuesday, in UTC.
pub(crate) fn at(time: &str) -> Timestamp {
    format!("2026-02-24T{time}:00Z").parse().unwrap()
}

/// An instant.
pub(crate) fn instant(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The engine's rule, as the binary hands it in.
#[derive(Debug)]
pub(crate) struct EngineTelling;

impl Telling for EngineTelling {
    fn keys(&self, group: &Group) -> Vec<String> {
        interlock_engine::incident_keys(group)
    }

    fn add(&self, group: &mut Group, incidents: &mut Incidents) {
        interlock_engine::add_incidents(group, incidents);
    }
}

pub(crate) fn zones() -> ZoneBook {
    let zones = SystemZones::new();
    Arc::new(move |name| zones.zone(name))
}

pub(crate) fn pipeline(text: &str) -> Pipeline {
    let (loaded, problems) =
        parse_pipeline("p.yaml".as_ref(), text, &Context::default(), &SystemZones::new(), &|_| {
            None
        });
    loaded.unwrap_or_else(|| panic!("{problems:?}")).pipeline
}

/// The row of a declaration.
fn declared(pipeline: &Pipeline, first_seen: Timestamp) -> Record {
    Record::Pipeline(
        PipelineRecord {
            version: version_text(7),
            first_seen,
            retired_at: None,
            pause: None,
            disabled_since: None,
            agenda: Some(Box::new(AgendaRecord::from_core(&Agenda::of(pipeline)))),
            about: None,
        }
        .into(),
    )
}

/// What is watched.
pub(crate) struct House {
    pub(crate) clock: Arc<Mutex<Timestamp>>,
    pub(crate) store: Arc<MemoryStore>,
    /// The engine's rights, by shard.
    engines: Vec<Writer>,
}

impl House {
    /// With these pipelines, known since some days before and recorded up to an instant.
    pub(crate) fn new(files: &[&str], recorded: Timestamp) -> Self {
        Self::with_shards(1, files, recorded)
    }

    /// The same with several shards.
    pub(crate) fn with_shards(shards: u16, files: &[&str], recorded: Timestamp) -> Self {
        let clock = Arc::new(Mutex::new(recorded));
        let reading = Arc::clone(&clock);
        let store = Arc::new(MemoryStore::new(shards, Arc::new(move || *reading.lock().unwrap())));
        let year = SignedDuration::from_hours(10_000);
        let engines = (0..shards).map(|shard| {
            let lease = block_on(store.acquire(Role::Engine, Shard(shard), "engine", year));
            lease.unwrap().unwrap().writer
        });
        let engines = engines.collect();
        let house = Self { clock, store, engines };
        for file in files {
            house.declare(file, instant("2026-02-20T00:00:00Z"), recorded);
        }
        house
    }

    /// Changes a pipeline's declaration as the engine does: its row, and the event that says so.
    pub(crate) fn redeclare(&self, file: &str) {
        let pipeline = pipeline(file);
        let name = pipeline.name.as_str();
        self.replace(name, Key::Pipeline, declared(&pipeline, instant("2026-02-20T00:00:00Z")));
        let at = *self.clock.lock().unwrap();
        self.write(name, vec![event("PIPELINE_CHANGED", "it was edited", at)]);
    }

    /// Declares a pipeline as the engine does.
    pub(crate) fn declare(&self, file: &str, first_seen: Timestamp, recorded: Timestamp) {
        let pipeline = pipeline(file);
        let record = declared(&pipeline, first_seen);
        let mut changes = vec![Change::Put(Key::Pipeline, Expect::Absent, record)];
        for start in &pipeline.starts {
            let key = Key::Watermark(start.schedule.id().clone());
            let mark = Record::Watermark(WatermarkRecord { at: recorded });
            changes.push(Change::Put(key, Expect::Absent, mark));
        }
        self.write(pipeline.name.as_str(), changes);
    }

    /// Writes as the engine.
    pub(crate) fn write(&self, pipeline: &str, changes: Vec<Change>) {
        let pipeline = PipelineId::any(pipeline).unwrap();
        let shard = Shard::of(&pipeline, self.store.shard_count());
        let writer = self.engines[usize::from(shard.0)];
        let group = Group { pipeline, writer, changes };
        let results = block_on(self.store.commit(vec![group])).unwrap();
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }

    /// Changes a row of the engine's, whatever it is now.
    fn replace(&self, pipeline: &str, key: Key, record: Record) {
        let revision = self.row(pipeline, &key).map_or(0, |(_, revision)| revision);
        let expect = if revision == 0 { Expect::Absent } else { Expect::Revision(revision) };
        self.write(pipeline, vec![Change::Put(key, expect, record)]);
    }

    pub(crate) fn row(&self, pipeline: &str, key: &Key) -> Option<(Record, u64)> {
        let name = PipelineId::any(pipeline).unwrap();
        let rows = block_on(self.store.read(&name, std::slice::from_ref(key))).unwrap();
        rows.into_iter().next().flatten().map(|row| (row.record, row.revision))
    }

    /// Moves a schedule's watermark.
    pub(crate) fn recorded(&self, pipeline: &str, schedule: &str, at: Timestamp) {
        let key = Key::Watermark(ScheduleId::any(schedule).unwrap());
        self.replace(pipeline, key, Record::Watermark(WatermarkRecord { at }));
    }

    /// Pauses a pipeline.
    pub(crate) fn pause(&self, pipeline: &str, since: Timestamp, until: Option<Timestamp>) {
        let Some((Record::Pipeline(record), _)) = self.row(pipeline, &Key::Pipeline) else {
            panic!("no {pipeline}")
        };
        let reason = "deploy".to_owned();
        let pause = Some(PauseRecord { reason, since, until, catchup: None, before: vec![] });
        self.replace(
            pipeline,
            Key::Pipeline,
            Record::Pipeline(PipelineRecord { pause, ..Arc::unwrap_or_clone(record) }.into()),
        );
    }

    /// A slot as the scheduler opens it.
    pub(crate) fn slot(&self, pipeline: &str, (schedule, nominal): (&str, Timestamp), slot: &Slot) {
        let key = Key::Slot(ScheduleId::any(schedule).unwrap(), nominal);
        self.replace(pipeline, key, Record::Slot(SlotRecord::from_core(slot).into()));
    }

    /// A slot with a run that began at an instant and stands like this; its obligation stands in the due index.
    pub(crate) fn run(
        &self,
        pipeline: &str,
        (schedule, nominal): (&str, Timestamp),
        (status, created_at): (&'static str, Timestamp),
        stuck_after: SignedDuration,
    ) {
        let mut slot = waiting(nominal);
        slot.state = interlock_core::slot::SlotState::Open(OpenState::Running);
        slot.attempt = 1;
        slot.closes_at = created_at + SignedDuration::from_hours(24);
        let slot = match status {
            "COMPLETED" => slot.close(Disposition::Completed, created_at).unwrap(),
            "FAILED" => slot.close(Disposition::Failed, created_at).unwrap(),
            "CANCELLED" => slot.close(Disposition::Cancelled, created_at).unwrap(),
            _ => slot,
        };
        self.slot(pipeline, (schedule, nominal), &slot);
        let id = ScheduleId::any(schedule).unwrap();
        let key = RunKey { schedule: id, nominal, generation: 1, attempt: 1 };
        let record = RunRecord {
            status: status.into(),
            trigger_type: "scheduler".into(),
            created_at,
            started_at: None,
            ended_at: None,
            message: None,
            category: None,
            metadata: BTreeMap::new(),
        };
        self.replace(pipeline, Key::Run(key.clone()), Record::Run(record.into()));
        let due = created_at + stuck_after;
        let due = Obligation::new(due, DueKind::Stuck, Subject::Run(key)).detail("action", "alert");
        self.write(pipeline, vec![due.put()]);
    }

    pub(crate) fn due(&self, pipeline: &str, due: Obligation) {
        self.write(pipeline, vec![due.put()]);
    }

    pub(crate) fn sensor(&self, pipeline: &str, key: &str, value: Value, at: Timestamp) {
        self.report(pipeline, key, SensorRecord { value, at, received_at: at, unheeded: false });
    }

    pub(crate) fn report(&self, pipeline: &str, key: &str, record: SensorRecord) {
        let at = record.received_at;
        let record = Record::Sensor(record.into());
        let put = Change::Put(Key::Sensor(key.to_owned()), Expect::Any, record);
        self.write(pipeline, vec![put, event("SENSOR_REPORTED", key, at)]);
    }

    pub(crate) fn options(&self, now: Timestamp) -> CheckOptions {
        *self.clock.lock().unwrap() = now;
        CheckOptions::new(Arc::clone(&self.store) as _, zones(), now)
    }

    /// One pass that records what it finds.
    pub(crate) fn pass(&self, now: Timestamp) -> Report {
        let options = self.options(now).telling(Arc::new(EngineTelling));
        block_on(once(&options, Shard(0))).unwrap().unwrap()
    }

    /// What one pass finds, as `CHECK EVENT schedule/instant`.
    pub(crate) fn found(&self, now: Timestamp) -> Vec<String> {
        let report = self.pass(now);
        assert!(report.failed.is_empty(), "{:?}", report.failed);
        report.findings.iter().map(line).collect()
    }

    /// What a pass of one check would find, without writing.
    pub(crate) fn would_find(
        &self,
        name: CheckName,
        now: Timestamp,
    ) -> Result<Report, WatchdogError> {
        let options = self.options(now).only(name);
        block_on(once(&options, Shard(0))).map(Option::unwrap)
    }

    /// The ledger's word on a slot.
    pub(crate) fn state(&self, pipeline: &str, schedule: &str, nominal: Timestamp) -> Option<Slot> {
        let key = Key::Slot(ScheduleId::any(schedule).unwrap(), nominal);
        let Record::Slot(record) = self.row(pipeline, &key)?.0 else { return None };
        Some(record.to_core().unwrap())
    }

    /// All incidents, by key.
    pub(crate) fn incidents(&self) -> BTreeMap<String, IncidentRecord> {
        let page = block_on(self.store.incidents(None, 10_000)).unwrap();
        page.items.into_iter().map(|(_, key, row)| (key, row.record)).collect()
    }

    /// The alerts that wait to be delivered.
    pub(crate) fn alerts(&self) -> Vec<Value> {
        let minute = SignedDuration::from_mins(1);
        let rows = block_on(self.store.claim(10_000, minute)).unwrap();
        rows.into_iter().map(|row| Arc::unwrap_or_clone(row.record.alert)).collect()
    }

    /// The kinds of all events, in order.
    pub(crate) fn events(&self) -> Vec<String> {
        let page = block_on(self.store.events(None, 0, 100_000)).unwrap();
        page.items.into_iter().map(|row| row.record.kind.to_string()).collect()
    }
}

fn event(kind: &'static str, message: &str, at: Timestamp) -> Change {
    let (message, details) = (message.to_owned(), BTreeMap::new());
    let (slot, run_id) = (None, None);
    Change::Append(EventRecord { kind: kind.into(), at, slot, run_id, message, details }.into())
}

pub(crate) fn line(finding: &Finding) -> String {
    let slot = finding.slot.as_ref().map(|(nominal, schedule)| format!(" {schedule}/{nominal}"));
    let event = finding.event.unwrap_or("-");
    format!("{} {event}{}", finding.check, slot.unwrap_or_default())
}

/// A live slot that waits.
pub(crate) fn waiting(nominal: Timestamp) -> Slot {
    let opening = Opening {
        opened_by: TriggerType::Scheduler,
        date: nominal.to_zoned(jiff::tz::TimeZone::UTC).date(),
        at: nominal,
        closes_at: nominal + SignedDuration::from_hours(24),
        version: 7,
    };
    Slot::open(OpenState::Waiting, opening)
}
