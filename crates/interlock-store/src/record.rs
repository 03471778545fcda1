//! What rows hold, as it is stored.
//!
//! These are the stored twins of core's types: plain data with serde, kept apart so that renaming
//! something in core does not migrate anybody's ledger. Each record says its format ([`FORMAT`]); a reader
//! refuses a format that it does not know, and ignores fields that it does not know within one it does, so
//! that an old reader survives a new writer. How it is written is in [`encode`](crate::encode); golden files in
//! `tests/golden` pin the text.

mod about;
mod agenda;
mod backfill;
mod incident;
mod instance;
mod report;
mod schedule;
mod slot;
mod word;

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::{retry::FailureCategory, run::RunState};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    about::AboutRecord,
    agenda::{
        AgendaRecord, CatchupRecord, ControlRecord, Shared, SlaSpecRecord, StartRecord, Zones,
    },
    backfill::{BackfillCounts, BackfillRecord, BackfillSlot},
    incident::{HandRecord, IncidentRecord, OutboxRecord, TellsOf},
    instance::{InstanceRecord, LeaseRecord, LoopRecord},
    report::ReportRecord,
    schedule::{CalendarRecord, RecurrenceRecord, ScheduleRecord, SensorRuleRecord},
    slot::{
        EndRecord, EvaluatedRecord, MarksRecord, RerunsRecord, SlaRecord, SlotRecord, WishRecord,
    },
    word::Word,
};

/// The format that this version writes.
pub const FORMAT: u16 = 1;

/// Any row. Copies of it share what it holds: a row goes from whoever planned it to the store, to whoever looks on, and
/// into memory.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// A pipeline.
    Pipeline(Arc<PipelineRecord>),
    /// One version of its declaration.
    Version(Arc<VersionRecord>),
    /// A watermark.
    Watermark(WatermarkRecord),
    /// A slot.
    Slot(Arc<SlotRecord>),
    /// A span.
    Span(Arc<SpanRecord>),
    /// A run.
    Run(Arc<RunRecord>),
    /// A sensor.
    Sensor(Arc<SensorRecord>),
    /// An incident.
    Incident(Arc<IncidentRecord>),
    /// A due entry.
    Due(DueRecord),
    /// A notification on its way.
    Outbox(Arc<OutboxRecord>),
    /// The answer to an inbox entry.
    Applied(Arc<AppliedRecord>),
    /// A backfill.
    Backfill(Arc<BackfillRecord>),
}

/// A pipeline, as far as the agenda needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PipelineRecord {
    /// The version in force.
    pub version: String,
    /// When it was first seen: no slot before this is owed.
    pub first_seen: Timestamp,
    /// When its file went away; it is then retired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired_at: Option<Timestamp>,
    /// Why and until when it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<PauseRecord>,
    /// Since when it is disabled (`watch.enabled: false`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled_since: Option<Timestamp>,
    /// What opening its slots needs; absent in rows from before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agenda: Option<Box<AgendaRecord>>,
    /// What lists say of it; absent in rows from before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<Box<AboutRecord>>,
}

/// A pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PauseRecord {
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// Until when; until somebody resumes it, when absent. One that is over stays here until the next: what
    /// lay in it and did not run gets its reason from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// How its gap is to be caught up: `none`, `latest` or `all`; as the pipeline says when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catchup: Option<String>,
    /// Those that ended before it began and of which something was not recorded then, in order of time. They have none
    /// before them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<PauseRecord>,
}

impl PauseRecord {
    /// It, and those before it.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        self.before.iter().chain([self])
    }

    /// The same, each by itself.
    pub fn into_all(mut self) -> Vec<Self> {
        let mut all = std::mem::take(&mut self.before);
        all.push(self);
        all
    }

    /// Whether it accounts for a slot.
    pub fn covers(&self, slot: Timestamp) -> bool {
        self.since <= slot && self.is_in_force(slot)
    }

    /// Whether it holds at an instant.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// The sources of one version, enough to decode it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRecord {
    /// When it came into force.
    pub since: Timestamp,
    /// The pipeline's file, as it was.
    pub source: String,
    /// What its file referred to (calendars, archetype, defaults), by kind and name.
    pub context: BTreeMap<String, String>,
}

/// How far a schedule is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatermarkRecord {
    /// Every slot at or before this is recorded.
    pub at: Timestamp,
}

/// Many slots in a row with the same fate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpanRecord {
    /// The last of them; the first is the key.
    pub last: Timestamp,
    /// How many.
    pub count: u64,
    /// How they ended.
    pub disposition: Word,
    /// Why they were skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Word>,
    /// The version by which they were enumerated.
    pub version: String,
    /// When they were recorded.
    pub recorded_at: Timestamp,
}

/// One attempt at a slot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    /// `PENDING` to `COMPLETED`.
    pub status: Word,
    /// What asked for it.
    pub trigger_type: Word,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its job began, as far as known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Why it failed, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What kind of failure it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<Word>,
    /// Where the job runs, how to find it there, and what it reported.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
}

/// The last report of a fact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SensorRecord {
    /// What was reported.
    pub value: Value,
    /// When, by the reporter's word.
    pub at: Timestamp,
    /// When it reached us.
    pub received_at: Timestamp,
    /// Whether its pipeline took nothing then, being paused, disabled or gone: it opens no slot, and none later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unheeded: bool,
}

/// What a due entry is about; its instant and kind are in the key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DueRecord {
    /// What the one who looks needs to know.
    #[serde(default)]
    pub details: BTreeMap<String, Value>,
}

/// The answer to an inbox entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AppliedRecord {
    /// When it was applied.
    pub at: Timestamp,
    /// Whether it was accepted.
    pub accepted: bool,
    /// What came of it, for people and scripts.
    pub result: Value,
    /// What was asked, as [`InboxRecord::fingerprint`] says: a key that is used again for something else gets no answer
    /// of this. Absent for what was applied before that was kept, and for reports that came without a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// An immutable fact in a pipeline's stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventRecord {
    /// What happened, such as `SLOT_OPENED`.
    pub kind: Word,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// Which slot, as `schedule/instant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// Which run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// For people: what and why.
    pub message: String,
    /// The evidence.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, Value>,
}

/// A report or request from outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "request")]
pub enum InboxRecord {
    /// A fact about data.
    Sensor {
        /// Its key.
        key: String,
        /// Its value.
        value: Value,
        /// Its time, by the reporter's word.
        at: Timestamp,
    },
    /// Run now, or run a given slot.
    Run {
        /// Which slot; a manual one at this instant when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slot: Option<SlotName>,
        /// Whether readiness is passed over.
        #[serde(default)]
        force: bool,
        /// Parameters.
        #[serde(default)]
        params: BTreeMap<String, String>,
        /// Whether it came over HTTP, from another system; else a person asks.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        webhook: bool,
    },
    /// Run a closed slot again.
    Rerun {
        /// Which.
        slot: SlotName,
        /// Why.
        reason: String,
    },
    /// End a run or a waiting slot.
    Cancel {
        /// Which slot.
        slot: SlotName,
        /// Why.
        reason: String,
    },
    /// Stop opening and triggering.
    Pause {
        /// Why.
        reason: String,
        /// Until when.
        #[serde(default)]
        until: Option<Timestamp>,
    },
    /// End a pause.
    Resume {
        /// How its gap is caught up: `none`, `latest` or `all`; as the pipeline says when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        catchup: Option<String>,
    },
    /// Plan what is owed now.
    Catchup {},
    /// End what a catch-up has opened and not started.
    StopCatchup {
        /// Why.
        reason: String,
    },
    /// Run the slots of a range.
    StartBackfill {
        /// The first instant.
        from: Timestamp,
        /// The first instant after it.
        to: Timestamp,
        /// Of which schedules; all that the clock drives when empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        schedules: Vec<String>,
        /// `missing`, `failed` or `all`.
        reprocess: String,
        /// `asc` or `desc`.
        order: String,
        /// How many at a time.
        concurrency: u32,
        /// Why.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
        /// Who asks.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        by: String,
        /// How many slots were planned.
        total: u64,
        /// The hash of those.
        plan: String,
    },
    /// Begin nothing more of a backfill.
    PauseBackfill {
        /// Which of the pipeline.
        backfill: u64,
    },
    /// Go on with a backfill.
    ResumeBackfill {
        /// Which of the pipeline.
        backfill: u64,
    },
    /// End a backfill.
    CancelBackfill {
        /// Which of the pipeline.
        backfill: u64,
        /// Why.
        reason: String,
        /// Whether what runs is to end too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ends_runs: bool,
    },
    /// Read the pipeline again: somebody else changed its rows. Only the watchdog sends it.
    Look {},
    /// What was found when a file was read again. Only the one who reads the files sends it.
    File {
        /// Which, from the project's directory.
        file: String,
        /// What is wrong with it now; nothing any more when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    /// What a person does with an incident.
    Incident {
        /// Its dedup key.
        key: String,
        /// `acknowledge`, `resolve` or `note`.
        hand: String,
        /// Who.
        by: String,
        /// Why, or what else there is to say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// Keep quiet about some alerts, or no longer.
    Silence {
        /// Its name.
        id: String,
        /// What it says; nothing any more when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        silence: Option<Value>,
        /// Who.
        by: String,
    },
    /// Open an incident that is only a test of the alerts.
    Bark {
        /// Its name.
        id: String,
        /// Who.
        by: String,
    },
    /// Try a notification at once that was given up, or that waits for its next try.
    SendAgain {
        /// Its name in the outbox.
        notification: String,
    },
    /// Another request, with who asks for it.
    Asked {
        /// Who, and from where.
        asker: AskerRecord,
        /// For what.
        what: Box<InboxRecord>,
    },
    /// What a job that runs elsewhere says about itself.
    Report(Box<ReportRecord>),
    /// Something that Interlock found out about itself.
    Noticed {
        /// The event that says it, such as `LOOP_WAS_LATE`.
        event: String,
        /// What it is about.
        thing: String,
        /// For people.
        message: String,
        /// Whether it is over.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        over: bool,
    },
    /// An instance could hear reports for a while. Only those who listen send it.
    Heard {
        /// Which, by a name that outlives its process.
        instance: String,
        /// Since when without a break.
        since: Timestamp,
        /// Until when, so far.
        until: Timestamp,
        /// The key of what it sent before: its answer need not be kept any longer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
    },
    /// A fact about all pipelines, to be kept or forgotten.
    Keep {
        /// `token`, `barks` or `files`.
        kind: String,
        /// Its name.
        id: String,
        /// What it says; nothing any more when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<Value>,
        /// Who.
        by: String,
    },
    /// What a host knows of a job that it was given, for whoever owns its pipeline by now.
    Job {
        /// Which host.
        host: String,
        /// Of which run.
        run_id: String,
        /// When that was.
        at: Timestamp,
        /// `running`, `succeeded`, `failed`, `cancelled`, `lost` or `neverStarted`.
        said: String,
        /// Why, where there is something to say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// What kind of failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        category: Option<String>,
        /// What else is known.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        metadata: BTreeMap<String, Value>,
    },
    /// An entry that this version cannot read: it is kept for people, and stops no other. Nobody sends it.
    #[serde(skip)]
    Unreadable {
        /// As it was found.
        text: String,
        /// What the reader stumbled over.
        reason: String,
    },
    /// A job's end, reported from outside.
    Complete {
        /// Which run, by its id.
        run_id: String,
        /// Whether it succeeded.
        success: bool,
        /// Why it failed.
        #[serde(default)]
        message: Option<String>,
        /// What kind of failure.
        #[serde(default)]
        category: Option<String>,
        /// What else it said.
        #[serde(default)]
        metadata: BTreeMap<String, Value>,
    },
}

/// Who asks for something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskerRecord {
    /// `token NAME`, or `local` with the user's number where that is known.
    pub by: String,
    /// The address from which it was asked.
    pub from: String,
    /// What tells the request from another under the same key, where that is not what the entry says: some of it may be filled in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

impl InboxRecord {
    /// The same request, with who asks for it.
    #[must_use]
    pub fn asked_by(self, asker: AskerRecord) -> Self {
        Self::Asked { asker, what: Box::new(self) }
    }

    /// What is asked for, without who asked.
    pub fn what(&self) -> &Self {
        if let Self::Asked { what, .. } = self { what } else { self }
    }

    /// Takes out who asks, if it says so: what is left is the request itself.
    pub fn take_asker(&mut self) -> Option<AskerRecord> {
        let Self::Asked { asker, what } = self else { return None };
        let (asker, what) = (asker.clone(), std::mem::replace(what.as_mut(), Self::Look {}));
        *self = what;
        Some(asker)
    }
}

/// A slot by its schedule and instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotName {
    /// Which schedule.
    pub schedule: String,
    /// Which instant.
    pub nominal: Timestamp,
}

/// A record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A word in it is not known.
    #[error("a stored record says `{0}`, which this version does not know")]
    Word(String),
    /// A later version wrote it.
    #[error(
        "a stored record has format {found}, and this version reads up to {known}: a later version of \
         Interlock wrote it"
    )]
    Newer {
        /// Its format.
        found: u16,
        /// The latest that is known here.
        known: u16,
    },
    /// It is not the text of such a record.
    #[error("a stored {what} cannot be read: {reason}")]
    Broken {
        /// What it should be.
        what: &'static str,
        /// What the reader stumbled over.
        reason: String,
    },
}

impl RunRecord {
    /// Its state.
    pub fn state(&self) -> Result<RunState, Unreadable> {
        RunState::parse(&self.status).map_err(|error| Unreadable::Word(error.message))
    }

    /// What kind of failure it ended with.
    pub fn failure(&self) -> Option<FailureCategory> {
        self.category.as_deref().and_then(|text| FailureCategory::parse(text).ok())
    }
}

/// A version as it is stored: 16 hexadecimal digits.
pub fn version_text(version: u64) -> String {
    format!("{version:016x}")
}

/// The version that a text stands for.
pub fn version_number(text: &str) -> Result<u64, Unreadable> {
    u64::from_str_radix(text, 16).map_err(|_ignored| Unreadable::Word(text.to_owned()))
}
