//! Whether everything is as it should be.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What came of looking at everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Doctor)]
pub struct DoctorAnswer {
    /// When it was looked.
    pub looked_at: Timestamp,
    /// Which instance looked; null of a command, which looks by itself.
    pub instance: Option<String>,
    /// What was found, the worst first.
    pub findings: Vec<DoctorFinding>,
}

/// What came of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Finding)]
pub struct DoctorFinding {
    /// How bad it is.
    pub level: FindingLevel,
    /// Which check it was.
    pub code: FindingCode,
    /// What was found.
    pub message: String,
    /// What to do about it; null when nothing is to be done.
    pub hint: Option<String>,
    /// The instance on whose host or process this was found; null of what the store says, which is the same for all.
    pub instance: Option<String>,
}

/// How bad it is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum FindingLevel {
    /// It keeps Interlock from doing what it promises, or soon will.
    Problem,
    /// All is well, and something that should be there is not.
    Warning,
    /// All is well.
    Ok,
}

/// Which check it was.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum FindingCode {
    /// Whether every file can be used.
    Files,
    /// Whether the store answers and keeps what it acknowledges.
    Store,
    /// Whether `serve` runs.
    Daemon,
    /// Whether the process that runs jobs can be reached.
    Runner,
    /// Whether HTTP answers.
    Server,
    /// Whether the clock can be believed.
    Clock,
    /// Whether time zones are known.
    Zones,
    /// Whether other users of the machine are kept out of the state folder.
    Private,
    /// Whether HTTP is encrypted where others reach it, by a certificate that lasts and a key that is kept.
    Tls,
    /// Whether the ledger may grow.
    Disk,
    /// Whether there is anything to look at.
    Live,
    /// Whether the loops come round.
    Loops,
    /// What the process finds wrong with itself.
    #[serde(rename = "self")]
    Process,
    /// Whether an outside service hears when the process dies.
    Beacons,
    /// Whether reports could arrive.
    Hearing,
    /// Whether the last test alert was heard.
    Barks,
    /// Whether every alert was delivered.
    Outbox,
    /// What is known to be wrong with Interlock itself.
    Incidents,
    /// Whether the ledger is as it must always be.
    Ledger,
    /// Whether every shard has an owner.
    Shards,
}

impl DoctorAnswer {
    /// What was found, the worst first; equally bad ones in the order in which they were looked for.
    pub fn new(looked_at: Timestamp, mut findings: Vec<DoctorFinding>) -> Self {
        findings.sort_by_key(|finding| finding.level);
        Self { looked_at, instance: None, findings }
    }

    /// Whether nothing must be mended.
    pub fn is_well(&self) -> bool {
        self.findings.iter().all(|finding| finding.level != FindingLevel::Problem)
    }
}

impl DoctorFinding {
    /// All is well.
    pub fn good(code: FindingCode, message: impl Into<String>) -> Self {
        let level = FindingLevel::Ok;
        Self { level, code, message: message.into(), hint: None, instance: None }
    }

    /// Something is missing without which all is well.
    pub fn warning(code: FindingCode, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let found = Self::good(code, message);
        Self { level: FindingLevel::Warning, hint: Some(hint.into()), ..found }
    }

    /// Something must be mended.
    pub fn problem(code: FindingCode, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let found = Self::good(code, message);
        Self { level: FindingLevel::Problem, hint: Some(hint.into()), ..found }
    }

    /// The same, as an instance found it on its host or in its process.
    #[must_use]
    pub fn found_by(mut self, instance: &str) -> Self {
        self.instance = Some(instance.to_owned());
        self
    }
}

impl FindingLevel {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Warning => "warning",
            Self::Ok => "ok",
        }
    }
}

impl FindingCode {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Store => "store",
            Self::Daemon => "daemon",
            Self::Runner => "runner",
            Self::Server => "server",
            Self::Clock => "clock",
            Self::Zones => "zones",
            Self::Private => "private",
            Self::Tls => "tls",
            Self::Disk => "disk",
            Self::Live => "live",
            Self::Loops => "loops",
            Self::Process => "self",
            Self::Beacons => "beacons",
            Self::Hearing => "hearing",
            Self::Barks => "barks",
            Self::Outbox => "outbox",
            Self::Incidents => "incidents",
            Self::Ledger => "ledger",
            Self::Shards => "shards",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_comes_first_and_words_are_the_same_on_the_wire() {
        let all = vec![
            DoctorFinding::good(FindingCode::Process, "nothing to complain of"),
            DoctorFinding::warning(FindingCode::Beacons, "none", "Write some."),
            DoctorFinding::problem(FindingCode::Disk, "1 MiB free", "Free some space."),
            DoctorFinding::good(FindingCode::Clock, "right"),
        ];
        let answer = DoctorAnswer::new(Timestamp::UNIX_EPOCH, all);
        let codes: Vec<_> = answer.findings.iter().map(|found| found.code.as_str()).collect();
        assert_eq!(codes, ["disk", "beacons", "self", "clock"]);
        assert!(!answer.is_well());
        for found in &answer.findings {
            let wire = serde_json::to_value(found).unwrap();
            assert_eq!(wire["level"], found.level.as_str());
            assert_eq!(wire["code"], found.code.as_str());
        }
    }
}
