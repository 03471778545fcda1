//! What the engine and the adapters say to each other.

use std::{collections::BTreeMap, fmt, pin::Pin, sync::Arc};

use interlock_core::{
    pipeline::{JobContext, TriggerKind},
    retry::FailureCategory,
    run::TriggerType,
};
use jiff::{SignedDuration, Timestamp, civil::Date};
use serde_json::Value;

/// A future that can be kept in a list of futures.
pub type TriggerFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The wall clock, handed in so that a simulation can own it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Looks up an environment variable of the daemon.
pub type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What is known about a job besides its outcome: process id, log file, exit code, remote id, …
pub type Metadata = BTreeMap<String, Value>;

/// Everything that is needed to start a job, to look for it later, and to end it.
///
/// The engine can build it again from the stored run, so that a restarted daemon asks the same
/// question that the one before it would have asked.
#[derive(Debug, Clone, PartialEq)]
pub struct StartRequest {
    /// The run's id, which is the idempotency key everywhere.
    pub run_id: String,
    /// Whose run it is.
    pub pipeline: String,
    /// Whose slot it is.
    pub schedule: String,
    /// The slot's nominal instant; also the start of its interval.
    pub slot: Timestamp,
    /// The slot's local date.
    pub date: Date,
    /// The slot's local hour, 0 to 23.
    pub hour: i8,
    /// The next slot's instant, where the schedule has one.
    pub interval_end: Option<Timestamp>,
    /// Which attempt of its generation it is, from 1.
    pub attempt: u32,
    /// What started it.
    pub trigger_type: TriggerType,
    /// When the run was committed as TRIGGERING: what tells an unknown run from a forgotten one.
    pub triggered_at: Timestamp,
    /// The run's own parameters; they win over the pipeline's.
    pub params: BTreeMap<String, String>,
    /// What starts it.
    pub kind: TriggerKind,
    /// What the job gets.
    pub context: JobContext,
    /// How long the run may take.
    pub timeout: Option<SignedDuration>,
    /// How often it is asked for its state, where it is asked; 30 s when absent.
    pub poll_interval: Option<SignedDuration>,
    /// The step to begin with: what it depends on is taken as done, everything else runs.
    pub resume_from: Option<String>,
    /// Where it was started, as far as it matters: who starts it or looks for it elsewhere finds nothing.
    pub host: Option<String>,
}

/// Something that happened to a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// To which.
    pub run_id: String,
    /// When it happened, not when it was told.
    pub at: Timestamp,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// The job runs.
    Started {
        /// Where, and under which id.
        metadata: Metadata,
    },
    /// A step of the job changed.
    StepChanged {
        /// Which.
        step: String,
        /// To what.
        status: StepStatus,
        /// Which attempt at the step, from 1; 0 for one that was not attempted.
        attempt: u32,
        /// Why, where there is something to say.
        message: Option<String>,
    },
    /// The job is over.
    Finished(Outcome),
    /// The job is over or out of sight, and how it ended cannot be found out (S18).
    Lost {
        /// Why not.
        reason: String,
    },
}

/// Where a step stands.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// It waits for others.
    Pending,
    /// It runs.
    Running,
    /// It succeeded.
    Succeeded,
    /// It failed and nothing is left to try.
    Failed,
    /// It was not run: something it depends on failed, or the job was ended.
    Skipped,
    /// It was taken as done from an earlier run.
    Kept,
}

impl StepStatus {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Kept => "kept",
        }
    }
}

impl fmt::Display for StepStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Well.
    Success {
        /// What is known about it.
        metadata: Metadata,
    },
    /// Badly.
    Failure {
        /// One sentence for people.
        message: String,
        /// Whether trying again makes sense.
        category: FailureCategory,
        /// What is known about it.
        metadata: Metadata,
    },
    /// On request.
    Cancelled {
        /// One sentence for people.
        message: String,
    },
}

/// Why a job was not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StartFailure {
    /// One sentence for people.
    pub message: String,
    /// Whether trying again makes sense.
    pub category: FailureCategory,
    /// The job may run all the same: look it up before trying again (S18).
    pub may_have_started: bool,
}

impl StartFailure {
    /// A start that surely did not happen.
    pub fn refused(message: impl Into<String>, category: FailureCategory) -> Self {
        Self { message: message.into(), category, may_have_started: false }
    }

    /// A start that may have happened.
    pub fn unclear(message: impl Into<String>, category: FailureCategory) -> Self {
        Self { message: message.into(), category, may_have_started: true }
    }
}

/// What became of a start (S18).
#[derive(Debug, Clone, PartialEq)]
pub enum LookUp {
    /// Nothing runs under this id, and nothing ever did.
    NeverStarted,
    /// It runs, and its reports will follow.
    Running {
        /// Where, and under which id.
        metadata: Metadata,
    },
    /// It is over.
    Finished(Outcome),
    /// It cannot be known.
    CannotTell {
        /// Why not.
        reason: String,
    },
}

/// The question could not be put; asking again makes sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LookUpFailure {
    /// One sentence for people.
    pub message: String,
}

/// A job could not be asked to end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CancelFailure {
    /// One sentence for people.
    pub message: String,
    /// Whether trying again makes sense.
    pub is_retryable: bool,
}

/// Starts jobs, looks them up and ends them.
pub trait Triggers: Send + Sync {
    /// Starts a job, or refuses to. The reports follow on the channel given at construction.
    fn start(&self, request: StartRequest) -> TriggerFuture<'_, Result<(), StartFailure>>;

    /// This is about to be started: a start follows if the store takes it, and only then may anything of the job
    /// happen. Or it is what probably follows once the run `after` has ended, and nothing is done before that. Says
    /// whether somebody uses the time until then.
    fn prepare(&self, _request: &StartRequest, _after: Option<&str>) -> bool {
        false
    }

    /// Finds out what became of a start, without guessing.
    fn look_up<'a>(
        &'a self,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<LookUp, LookUpFailure>>;

    /// Asks a job to end. That it has ended is told by its report, as always; a job that is over
    /// or was never started is left as it is.
    fn cancel<'a>(
        &'a self,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<(), CancelFailure>>;

    /// The end of this run is stored for good: its adapter may forget it. An end that was not
    /// acknowledged is told again to the next daemon.
    fn acknowledge(&self, run_id: &str);
}
