//! What a process says of its own work, as findings.

use crate::model::doctor::{DoctorFinding, FindingCode};

/// What a process says of its own work: its loops, its complaints, and who outside hears of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessHealth {
    /// Loops that come round in time.
    pub loops: Vec<String>,
    /// Loops that do not.
    pub late_loops: Vec<String>,
    /// What it finds wrong with itself.
    pub complaints: Vec<String>,
    /// How many beacons there are.
    pub beacons: usize,
    /// How many of them do not answer.
    pub failing_beacons: usize,
}

impl ProcessHealth {
    /// A finding for each.
    pub fn findings(&self) -> [DoctorFinding; 3] {
        let loops = if self.late_loops.is_empty() {
            let message = format!("{} come round", self.loops.join(", "));
            DoctorFinding::good(FindingCode::Loops, message)
        } else {
            DoctorFinding::problem(
                FindingCode::Loops,
                format!("{} not in time", self.late_loops.join(", ")),
                "End the process and start it again; running jobs go on and are taken up.",
            )
        };
        let process = if self.complaints.is_empty() {
            DoctorFinding::good(FindingCode::Process, "nothing to complain of")
        } else {
            let hint = "docs/operating.md says what each means, under \"Who watches Interlock\".";
            DoctorFinding::problem(FindingCode::Process, self.complaints.join("; "), hint)
        };
        [loops, process, self.beacons()]
    }

    fn beacons(&self) -> DoctorFinding {
        let code = FindingCode::Beacons;
        match (self.beacons, self.failing_beacons) {
            (0, _) => DoctorFinding::warning(
                code,
                "there are none: if this process dies, no outside service hears of it",
                "Write `beacons` in interlock.yaml: addresses that expect to be called.",
            ),
            (all, 0) => DoctorFinding::good(code, format!("{all} answer")),
            (all, failing) => DoctorFinding::problem(
                code,
                format!("{failing} of {all} do not answer"),
                "The log of `serve` says why; `beacons` in interlock.yaml has the addresses.",
            ),
        }
    }
}
