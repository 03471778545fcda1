//! What the watchdog did, in numbers.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use interlock_core::id::PipelineId;
use jiff::Timestamp;

use crate::finding::Finding;

/// Most pipelines that are named as overdue: a page of metrics must stay readable.
const OVERDUE_MAX: usize = 1_000;

/// Numbers that are read while they change; they start from nothing with each process.
#[derive(Debug, Default)]
pub struct WatchdogVitals {
    passes: AtomicU64,
    schedules_missed: AtomicU64,
    runs_stuck: AtomicU64,
    sla_breaches: AtomicU64,
    findings: AtomicU64,
    found_late: AtomicU64,
    failed: AtomicU64,
    /// When the last pass was, in seconds.
    seen_at: AtomicU64,
    overdue: Mutex<BTreeMap<PipelineId, Timestamp>>,
}

impl WatchdogVitals {
    /// How often it came round.
    pub fn passes(&self) -> u64 {
        self.passes.load(Relaxed)
    }

    /// Slots that were missed.
    pub fn schedules_missed(&self) -> u64 {
        self.schedules_missed.load(Relaxed)
    }

    /// Runs that were stuck.
    pub fn runs_stuck(&self) -> u64 {
        self.runs_stuck.load(Relaxed)
    }

    /// SLAs that were broken.
    pub fn sla_breaches(&self) -> u64 {
        self.sla_breaches.load(Relaxed)
    }

    /// Everything that was found.
    pub fn findings(&self) -> u64 {
        self.findings.load(Relaxed)
    }

    /// What was found late.
    pub fn found_late(&self) -> u64 {
        self.found_late.load(Relaxed)
    }

    /// Checks that could not be done.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// For how many seconds pipelines owe a run that was missed, as of the last pass, the longest first; at most a
    /// thousand.
    pub fn overdue(&self) -> Vec<(PipelineId, u64)> {
        let now = self.seen_at.load(Relaxed);
        let since = |at: &Timestamp| now.saturating_sub(at.as_second().max(0) as u64);
        let mut all: Vec<_> =
            self.lock().iter().map(|(name, at)| (name.clone(), since(at))).collect();
        all.sort_by_key(|(_, seconds)| std::cmp::Reverse(*seconds));
        all.truncate(OVERDUE_MAX);
        all
    }

    pub(crate) fn came_round(&self, now: Timestamp) {
        self.passes.fetch_add(1, Relaxed);
        self.seen_at.store(now.as_second().max(0) as u64, Relaxed);
    }

    pub(crate) fn could_not(&self, count: usize) {
        self.failed.fetch_add(count as u64, Relaxed);
    }

    pub(crate) fn count(&self, finding: &Finding) {
        self.findings.fetch_add(1, Relaxed);
        if finding.details.contains_key("foundLate") {
            self.found_late.fetch_add(1, Relaxed);
        }
        match finding.event {
            Some("SCHEDULE_MISSED" | "IRREGULAR_SCHEDULE_MISSED") => {
                let count = finding.details.get("count").and_then(serde_json::Value::as_u64);
                self.schedules_missed.fetch_add(count.unwrap_or(1), Relaxed);
                if let Some(due_at) = finding.due_at {
                    self.lock().entry(finding.pipeline.clone()).or_insert(due_at);
                }
            }
            Some("RUN_STUCK") => {
                self.runs_stuck.fetch_add(1, Relaxed);
            }
            Some("SLA_BREACH" | "RELATIVE_SLA_BREACH") => {
                self.sla_breaches.fetch_add(1, Relaxed);
            }
            Some(_) | None => {}
        }
    }

    /// A pipeline does not owe anything any more.
    pub(crate) fn caught_up(&self, pipeline: &PipelineId) {
        self.lock().remove(pipeline);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<PipelineId, Timestamp>> {
        self.overdue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
