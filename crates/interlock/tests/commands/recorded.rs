//! A project with a ledger that tells a story, written through the library, and a stand-in for the daemon.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    Change, Expect, Group, InboxEntry, Key, Record, Role, RunKey, Shard, Store as _, Writer,
    block_on,
    record::{
        AppliedRecord, EventRecord, InboxRecord, MarksRecord, PauseRecord, PipelineRecord,
        RunRecord, SensorRecord, SlaRecord, SlotRecord, SpanRecord, WatermarkRecord,
    },
};
use interlock_store_embedded::EmbeddedStore;
use interlock_wait::{BOUND, ThreadWithin as _};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::project;

/// A pipeline with a slot each hour, and none on weekends.
pub(crate) const ORDERS: &str = "\
name: orders
owner: data
schedules:
  - id: hourly
    cron: '0 * * * *'
exclusions:
  weekends: true
trigger:
  type: command
  command: echo hello
env:
  PASSWORD: hush
";

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn hourly() -> ScheduleId {
    ScheduleId::any("hourly").unwrap()
}

pub(crate) fn orders() -> PipelineId {
    PipelineId::parse("orders").unwrap()
}

/// A store that somebody writes.
pub(crate) struct Written {
    store: EmbeddedStore,
    writer: Writer,
}

impl Written {
    pub(crate) fn open(directory: &Path) -> Self {
        let clock = Arc::new(|| at("2026-02-25T12:30:00Z"));
        let store = EmbeddedStore::open_daemon(&directory.join(".interlock"), clock).unwrap();
        let hour = SignedDuration::from_hours(1);
        let lease = block_on(store.acquire(Role::Engine, Shard(0), "test", hour)).unwrap();
        Self { writer: lease.unwrap().writer, store }
    }

    pub(crate) fn commit(&self, changes: Vec<Change>) {
        let group = Group { pipeline: orders(), writer: self.writer, changes };
        for result in block_on(self.store.commit(vec![group])).unwrap() {
            result.unwrap();
        }
    }

    fn inbox(&self) -> Vec<InboxEntry> {
        block_on(self.store.inbox(Shard(0), 100)).unwrap().items
    }
}

pub(crate) fn create(key: Key, record: Record) -> Change {
    Change::Put(key, Expect::Absent, record)
}

pub(crate) fn open_slot() -> SlotRecord {
    SlotRecord {
        state: "waiting".into(),
        disposition: None,
        reason: None,
        generation: 1,
        attempt: 0,
        opened_by: "scheduler".into(),
        date: jiff::civil::date(2026, 2, 25),
        opened_at: at("2026-02-25T12:00:00Z"),
        closes_at: at("2026-02-25T13:00:00Z"),
        retry_at: None,
        marks: MarksRecord::default(),
        version: "00000000000000ab".into(),
        wish: None,
        reruns: None,
        sla: Some(Box::new(SlaRecord {
            warning_at: Some(at("2026-02-25T12:40:00Z")),
            breach_at: Some(at("2026-02-25T13:10:00Z")),
            duration_max: Some(SignedDuration::from_hours(2)),
            expected_duration: Some(SignedDuration::from_mins(30)),
            ..SlaRecord::default()
        })),
        evaluated: None,
    }
}

fn failed_then_completed() -> SlotRecord {
    SlotRecord {
        state: "closed".into(),
        disposition: Some("completed".into()),
        attempt: 2,
        opened_at: at("2026-02-25T11:00:00Z"),
        marks: MarksRecord { late: true, ..MarksRecord::default() },
        sla: None,
        ..open_slot()
    }
}

fn span() -> SpanRecord {
    SpanRecord {
        last: at("2026-02-25T10:00:00Z"),
        count: 4,
        disposition: "skipped".into(),
        reason: Some("no_catchup".into()),
        version: "00000000000000ab".into(),
        recorded_at: at("2026-02-25T10:30:00Z"),
    }
}

/// The address of a run of the slot at eleven.
pub(crate) fn attempt(attempt: u32) -> RunKey {
    let nominal = at("2026-02-25T11:00:00Z");
    RunKey { schedule: hourly(), nominal, generation: 1, attempt }
}

fn run_record(status: &'static str, minute: u32) -> RunRecord {
    let instant = |second: u32| at(&format!("2026-02-25T11:{minute:02}:{second:02}Z"));
    RunRecord {
        status: status.into(),
        trigger_type: if minute == 0 { "scheduler" } else { "retry" }.into(),
        created_at: instant(0),
        started_at: Some(instant(1)),
        ended_at: Some(instant(9)),
        message: (status == "FAILED").then(|| "exit code 7".into()),
        category: (status == "FAILED").then(|| "TRANSIENT".into()),
        metadata: [("exitCode".to_owned(), json!(i32::from(status == "FAILED") * 7))].into(),
    }
}

fn event(kind: &'static str, instant: &str, slot: Option<&str>, message: &str) -> Change {
    Change::Append(
        EventRecord {
            kind: kind.into(),
            at: at(instant),
            slot: slot.map(|slot| format!("hourly/{slot}")),
            run_id: None,
            message: message.into(),
            details: [("n".to_owned(), json!(1))].into(),
        }
        .into(),
    )
}

/// The slots from 07:00 to 10:00 are a span; 08:00 of them ran later after all; 11:00 completed at the second
/// attempt; 12:00 is waiting.
pub(crate) fn story() -> tempfile::TempDir {
    let directory = project(&[("pipelines/orders.yaml", ORDERS)]);
    let written = Written::open(directory.path());
    let pipeline = PipelineRecord {
        agenda: None,
        about: None,
        version: "00000000000000ab".into(),
        first_seen: at("2026-02-25T06:30:00Z"),
        retired_at: None,
        disabled_since: None,
        pause: None,
    };
    let slot = |text: &str| Key::Slot(hourly(), at(text));
    let watermark = WatermarkRecord { at: at("2026-02-25T12:00:00Z") };
    let cancelled = SlotRecord { disposition: Some("cancelled".into()), ..failed_then_completed() };
    let sensor = SensorRecord {
        value: json!({ "count": 3 }),
        at: at("2026-02-25T10:00:00Z"),
        received_at: at("2026-02-25T10:00:01Z"),
        unheeded: false,
    };
    written.commit(vec![
        create(Key::Pipeline, Record::Pipeline(pipeline.into())),
        create(Key::Watermark(hourly()), Record::Watermark(watermark)),
        create(Key::Span(hourly(), at("2026-02-25T07:00:00Z")), Record::Span(span().into())),
        create(slot("2026-02-25T08:00:00Z"), Record::Slot(cancelled.into())),
        create(slot("2026-02-25T11:00:00Z"), Record::Slot(failed_then_completed().into())),
        create(slot("2026-02-25T12:00:00Z"), Record::Slot(open_slot().into())),
        create(Key::Run(attempt(1)), Record::Run(run_record("FAILED", 0).into())),
        create(Key::Run(attempt(2)), Record::Run(run_record("COMPLETED", 5).into())),
        create(Key::Sensor("rows".into()), Record::Sensor(sensor.into())),
        event("SLOT_OPENED", "2026-02-25T11:00:00Z", Some("2026-02-25T11:00:00Z"), "it is due"),
        event("RUN_FAILED", "2026-02-25T11:00:09Z", Some("2026-02-25T11:00:00Z"), "exit code 7"),
        event("SLOT_OPENED", "2026-02-25T12:00:00Z", Some("2026-02-25T12:00:00Z"), "it is due"),
    ]);
    directory
}

/// Pauses the pipeline of the story, as the daemon would.
pub(crate) fn pause(directory: &Path) {
    let pause = PauseRecord {
        reason: "maintenance".into(),
        since: at("2026-02-25T12:10:00Z"),
        until: None,
        catchup: None,
        before: vec![],
    };
    let record = PipelineRecord {
        agenda: None,
        about: None,
        version: "00000000000000ab".into(),
        first_seen: at("2026-02-25T06:30:00Z"),
        retired_at: None,
        disabled_since: None,
        pause: Some(pause),
    };
    let change = Change::Put(Key::Pipeline, Expect::Revision(1), Record::Pipeline(record.into()));
    Written::open(directory).commit(vec![change]);
}

/// Adds a run that is under way: the third attempt.
pub(crate) fn runs(directory: &Path) {
    let record = RunRecord { ended_at: None, ..run_record("RUNNING", 10) };
    Written::open(directory).commit(vec![create(Key::Run(attempt(3)), Record::Run(record.into()))]);
}

/// Ends the run that was under way.
pub(crate) fn ends(directory: &Path) {
    let record = Record::Run(run_record("COMPLETED", 10).into());
    let change = Change::Put(Key::Run(attempt(3)), Expect::Revision(1), record);
    Written::open(directory).commit(vec![change]);
}

/// Appends an event to the story.
pub(crate) fn happens(directory: &Path, message: &str) {
    let event = event("NOTE", "2026-02-25T12:40:00Z", None, message);
    Written::open(directory).commit(vec![event]);
}

/// Answers requests until it is dropped, and keeps them.
pub(crate) struct Daemon {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<InboxRecord>>>,
}

impl Daemon {
    /// Accepts every request, or refuses every one with a reason.
    pub(crate) fn start(directory: &Path, refusal: Option<&'static str>) -> Self {
        let written = Written::open(directory);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut seen = Vec::new();
            // Bounded: the test stops it, and waits for it with a bound.
            while !stopped.load(Ordering::Relaxed) {
                for entry in written.inbox() {
                    written.commit(vec![answer(&entry, refusal)]);
                    seen.push(entry.record);
                }
                thread::sleep(Duration::from_millis(5));
            }
            seen
        });
        Self { stop, thread: Some(thread) }
    }

    /// What was asked for.
    pub(crate) fn stop(mut self) -> Vec<InboxRecord> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join_within("the answering daemon to stop", BOUND).unwrap()
    }
}

fn answer(entry: &InboxEntry, refusal: Option<&str>) -> Change {
    let result: Value = match refusal {
        Some(reason) => json!({ "reason": reason }),
        None => json!({ "slot": "orders/manual/2026-02-25T12:30:00Z" }),
    };
    let at = at("2026-02-25T12:30:00Z");
    let record = AppliedRecord { at, accepted: refusal.is_none(), result, request: None };
    create(Key::Applied(entry.key.clone()), Record::Applied(record.into()))
}
