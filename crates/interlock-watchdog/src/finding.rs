//! What a check finds, and what is to be written about it.

use std::{collections::BTreeMap, fmt};

use interlock_core::{id::PipelineId, slot::Slot};
use interlock_store::{
    Obligation, RunKey,
    record::{InboxRecord, RunRecord},
};
use jiff::{Timestamp, civil::Date};
use serde_json::Value;

use crate::snapshot::Place;

/// The ten checks (DESIGN §10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckName {
    /// A deadline, or a grace, passed and nothing was recorded.
    MissedSchedules,
    /// The same for listed dates.
    MissedInclusionSchedules,
    /// A run has not ended for too long.
    StuckRuns,
    /// A run is older than any run may be.
    StaleTriggers,
    /// A sensor's condition is met and no slot was opened.
    SensorTriggerReconciliation,
    /// SLA times are armed, and fired.
    SlaScheduling,
    /// The window of a sensor closed without it.
    TriggerDeadlines,
    /// Nothing was reported after a run completed.
    PostRunSensors,
    /// A slot took longer since its first sensor than it may.
    RelativeSlaBreaches,
    /// A pause has no end.
    PausedTooLong,
}

impl CheckName {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 10] = [
        Self::MissedSchedules,
        Self::MissedInclusionSchedules,
        Self::StuckRuns,
        Self::StaleTriggers,
        Self::SensorTriggerReconciliation,
        Self::SlaScheduling,
        Self::TriggerDeadlines,
        Self::PostRunSensors,
        Self::RelativeSlaBreaches,
        Self::PausedTooLong,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MissedSchedules => "missed-schedules",
            Self::MissedInclusionSchedules => "missed-inclusion-schedules",
            Self::StuckRuns => "stuck-runs",
            Self::StaleTriggers => "stale-triggers",
            Self::SensorTriggerReconciliation => "sensor-trigger-reconciliation",
            Self::SlaScheduling => "sla-scheduling",
            Self::TriggerDeadlines => "trigger-deadlines",
            Self::PostRunSensors => "post-run-sensors",
            Self::RelativeSlaBreaches => "relative-sla-breaches",
            Self::PausedTooLong => "paused-too-long",
        }
    }

    /// Reads a name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.as_str() == text)
    }
}

impl fmt::Display for CheckName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something that a check found, with what is to be written in one group.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// By which check.
    pub check: CheckName,
    /// The event that says it; nothing is said when absent, only done.
    pub event: Option<&'static str>,
    /// About which pipeline.
    pub pipeline: PipelineId,
    /// About which slot.
    pub slot: Option<Place>,
    /// The slot's local date.
    pub date: Option<Date>,
    /// About which run.
    pub run_id: Option<String>,
    /// The event's sentence.
    pub message: String,
    /// The sentence for people; made from the event's when absent.
    pub alert: Option<String>,
    /// For programs.
    pub details: BTreeMap<String, Value>,
    /// By when it should have happened.
    pub due_at: Option<Timestamp>,
    /// What is written beside the event.
    pub remedies: Vec<Remedy>,
}

/// What is to be done about a finding.
#[derive(Debug, Clone, PartialEq)]
pub enum Remedy {
    /// Write a slot at the revision it was read at, 0 for one that is not there.
    Slot(Place, u64, Box<Slot>),
    /// Write a run at the revision it was read at.
    Run(RunKey, u64, Box<RunRecord>),
    /// Look again then.
    Arm(Obligation),
    /// It was looked at.
    Drop(Obligation),
    /// Ask the owner for something, under an idempotency key.
    Ask(String, Box<InboxRecord>),
}

impl Finding {
    /// One that says something.
    pub(crate) fn of(check: CheckName, event: &'static str, pipeline: &PipelineId) -> Self {
        Self { event: Some(event), ..Self::silent(check, pipeline) }
    }

    /// One that only does something.
    pub(crate) fn silent(check: CheckName, pipeline: &PipelineId) -> Self {
        Self {
            check,
            event: None,
            pipeline: pipeline.clone(),
            slot: None,
            date: None,
            run_id: None,
            message: String::new(),
            alert: None,
            details: BTreeMap::new(),
            due_at: None,
            remedies: vec![],
        }
    }

    pub(crate) fn about(mut self, place: &Place, date: Date) -> Self {
        self.slot = Some(place.clone());
        self.date = Some(date);
        self.detail("scheduleId", place.1.as_str()).detail("date", date.to_string())
    }

    pub(crate) fn says(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    pub(crate) fn alerts(mut self, alert: impl Into<String>) -> Self {
        self.alert = Some(alert.into());
        self
    }

    pub(crate) fn detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn due(mut self, at: Timestamp) -> Self {
        self.due_at = Some(at);
        self
    }

    pub(crate) fn with(mut self, remedy: Remedy) -> Self {
        self.remedies.push(remedy);
        self
    }
}
