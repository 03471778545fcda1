//! What the runner executes: finished commands, nothing left to look up.
//!
//! The daemon has filled in every placeholder and every secret. A job crosses the socket and lives
//! in the runner's memory; it is never written to disk.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

/// One run's work.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    /// The run's id.
    pub(crate) run_id: String,
    /// Whose it is; names the folder of its log.
    pub(crate) pipeline: String,
    /// What to run, at least one.
    pub(crate) steps: Vec<JobStep>,
    /// Run after it.
    #[serde(default)]
    pub(crate) handlers: JobHandlers,
    /// Environment variables of everything in it.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// How long it may take in all.
    #[serde(default)]
    pub(crate) timeout_ms: Option<u64>,
    /// From TERM to KILL.
    pub(crate) grace_ms: u64,
    /// How much of its output is kept.
    pub(crate) log_bytes_max: u64,
}

/// One command of a job.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobStep {
    /// Its name; nothing for the only command of a plain job, of which no step reports are sent.
    pub(crate) name: Option<String>,
    /// What to run.
    pub(crate) exec: Exec,
    /// Names of the steps that must have succeeded.
    #[serde(default)]
    pub(crate) depends: Vec<String>,
    /// Further attempts.
    #[serde(default)]
    pub(crate) retries_max: u32,
    /// How long one attempt may take.
    #[serde(default)]
    pub(crate) timeout_ms: Option<u64>,
    /// Its failure does not fail the job.
    #[serde(default)]
    pub(crate) continue_on_failure: bool,
    /// Taken as done from an earlier run.
    #[serde(default)]
    pub(crate) kept: bool,
}

/// A program with its arguments.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exec {
    /// Program first.
    pub(crate) argv: Vec<String>,
    /// Besides the job's.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Where.
    pub(crate) workdir: String,
}

/// Commands that follow a job.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobHandlers {
    /// After success.
    #[serde(default)]
    pub(crate) success: Option<Exec>,
    /// After failure.
    #[serde(default)]
    pub(crate) failure: Option<Exec>,
    /// In any case.
    #[serde(default)]
    pub(crate) exit: Option<Exec>,
}

impl fmt::Debug for Job {
    /// Leaves out everything that may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("run_id", &self.run_id).finish_non_exhaustive()
    }
}

impl fmt::Debug for JobStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobStep").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exec").finish_non_exhaustive()
    }
}

impl fmt::Debug for JobHandlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobHandlers").finish_non_exhaustive()
    }
}

impl Job {
    /// Why it cannot be executed, whatever the state of the host.
    pub(crate) fn objection(&self) -> Option<String> {
        let plain = |text: &str| !text.is_empty() && !text.contains(['/', '\0']);
        if !plain(&self.run_id) || !plain(&self.pipeline) || self.pipeline.starts_with('.') {
            return Some("a run id and a pipeline are names without `/`".to_owned());
        }
        if self.steps.is_empty() {
            return Some("a job needs at least one step".to_owned());
        }
        if self.steps.iter().any(|step| step.exec.argv.is_empty()) {
            return Some("a command needs at least the name of a program".to_owned());
        }
        self.cycle()
    }

    /// A step can begin only after steps that can.
    fn cycle(&self) -> Option<String> {
        let mut done: Vec<&str> = Vec::new();
        let mut left: Vec<&JobStep> = self.steps.iter().collect();
        while !left.is_empty() {
            let before = left.len();
            left.retain(|step| {
                let ready = step.depends.iter().all(|name| done.contains(&name.as_str()));
                if ready {
                    done.extend(step.name.as_deref());
                }
                !ready
            });
            if left.len() == before {
                let name = left.first().and_then(|step| step.name.as_deref()).unwrap_or_default();
                return Some(format!(
                    "the step `{name}` depends on itself or on a step that does not exist"
                ));
            }
        }
        None
    }
}
