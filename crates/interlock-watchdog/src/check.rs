//! The table of checks, and how they are run: each by itself.

mod absence;
mod pause;
mod runs;
mod sensors;
mod sla;

use std::panic::{AssertUnwindSafe, catch_unwind};

use jiff::Timestamp;

pub(crate) use self::sensors::waits_for_sensor;
use crate::{
    finding::{CheckName, Finding},
    snapshot::Snapshot,
};

/// A check: what it finds in a snapshot now. It reads nothing, so that only a fault can make it fail; what cannot be
/// read fails before it.
pub type Check = fn(&Snapshot, Timestamp) -> Vec<Finding>;

/// All checks.
pub const CHECKS: [(CheckName, Check); 10] = [
    (CheckName::MissedSchedules, absence::missed_schedules),
    (CheckName::MissedInclusionSchedules, absence::missed_inclusion_schedules),
    (CheckName::StuckRuns, runs::stuck_runs),
    (CheckName::StaleTriggers, runs::stale_triggers),
    (CheckName::SensorTriggerReconciliation, sensors::reconciliation),
    (CheckName::SlaScheduling, sla::scheduling),
    (CheckName::TriggerDeadlines, sensors::trigger_deadlines),
    (CheckName::PostRunSensors, sensors::post_run),
    (CheckName::RelativeSlaBreaches, sla::relative_breaches),
    (CheckName::PausedTooLong, pause::too_long),
];

/// What all checks said.
#[derive(Debug, Default)]
pub struct Judged {
    /// What was found.
    pub findings: Vec<Finding>,
    /// The checks that could not be done, and why.
    pub failed: Vec<(CheckName, String)>,
}

/// Runs checks over a snapshot; one that panics is named, and the others run.
pub fn judge(checks: &[(CheckName, Check)], snapshot: &Snapshot, now: Timestamp) -> Judged {
    let mut judged = Judged::default();
    for (name, check) in checks {
        match catch_unwind(AssertUnwindSafe(|| check(snapshot, now))) {
            Ok(findings) => judged.findings.extend(findings),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                judged.failed.push((*name, text.unwrap_or_else(|| "it panicked".to_owned())));
            }
        }
    }
    judged
}
