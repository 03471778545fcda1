//! What daemon and runner say to each other: one JSON object per line, over a unix socket.
//!
//! The runner greets first. The daemon sends [`Request`]s, each with a number that its [`Reply`]
//! repeats; after `subscribe` the runner also sends [`Told`] lines on its own. Ends that were never
//! acknowledged are told again at each subscription. Unknown fields are refused: both sides are the
//! same binary, or one says so ([`PROTOCOL`]).

use interlock_core::{retry::FailureCategory, run::OUTPUT};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{job::Job, log::last_lines};
use interlock_ports::trigger::{Metadata, Outcome, Report, StepStatus, What};

/// Raised when either side would no longer understand the other.
pub(crate) const PROTOCOL: u32 = 1;

/// No line is longer; a peer that sends one is cut off.
pub(crate) const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// From the daemon.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) struct Request {
    /// Repeated in the reply.
    pub(crate) id: u64,
    pub(crate) ask: Ask,
}

/// What the daemon wants.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ask {
    /// This is about to be started, once `after` has ended if that is said; be ready for it, and do nothing of it.
    Prepare { job: Box<Job>, after: Option<String> },
    /// Run this, unless the run id is known.
    Start(Box<Job>),
    /// End this run.
    Cancel { run_id: String },
    /// What became of this run?
    LookUp { run_id: String },
    /// Which runs are under way?
    List,
    /// Tell me everything from now on, and what was not acknowledged.
    Subscribe,
    /// Its end is stored for good.
    Acknowledge { run_id: String },
}

/// From the runner.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// The first line of a connection.
    Hello { protocol: u32, pid: u32 },
    /// The answer to a request.
    Reply { id: u64, reply: Reply },
    /// Something happened.
    Told(Told),
    /// A line that was no request.
    Malformed { message: String },
}

impl Line {
    /// Whether it says only that a job was started. Nobody is in a hurry to hear that.
    pub(crate) fn is_about_a_start(&self) -> bool {
        matches!(
            self,
            Self::Reply { reply: Reply::Done, .. }
                | Self::Told(Told { news: News::Started { .. }, .. })
        )
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// Done as asked.
    Done,
    /// The run is known: nothing was started.
    Already,
    /// Refused, and nothing was started.
    Refused { message: String, category: Category },
    /// What is known about a run.
    Known(Known),
    /// The runs under way.
    Runs { run_ids: Vec<String> },
}

/// What the runner knows about one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Known {
    /// Nothing; and nothing it was told since this instant has been forgotten.
    Nothing { since: Timestamp },
    /// It is under way.
    Running { metadata: Metadata },
    /// It is over.
    Ended(End),
}

/// Something that happened to a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Told {
    pub(crate) run_id: String,
    pub(crate) at: Timestamp,
    pub(crate) news: News,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum News {
    Started { metadata: Metadata },
    Step { step: String, status: StepStatus, attempt: u32, message: Option<String> },
    Ended(End),
}

/// How a run ended, on the wire and in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    Success { metadata: Metadata },
    Failure { message: String, category: Category, metadata: Metadata },
    Cancelled { message: String },
    Lost { reason: String },
}

/// A failure category on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Category {
    Transient,
    Timeout,
    Permanent,
}

impl From<Category> for FailureCategory {
    fn from(category: Category) -> Self {
        match category {
            Category::Transient => Self::Transient,
            Category::Timeout => Self::Timeout,
            Category::Permanent => Self::Permanent,
        }
    }
}

impl End {
    /// The outcome, with the last lines of what the job wrote: they outlive its host. Or why there is none.
    pub(crate) fn into_outcome(self) -> Result<Outcome, String> {
        match self {
            Self::Success { metadata } => {
                Ok(Outcome::Success { metadata: with_output(metadata, SUCCESS_OUTPUT_MAX) })
            }
            Self::Failure { message, category, metadata } => {
                let metadata = with_output(metadata, FAILURE_OUTPUT_MAX);
                Ok(Outcome::Failure { message, category: category.into(), metadata })
            }
            Self::Cancelled { message } => Ok(Outcome::Cancelled { message }),
            Self::Lost { reason } => Err(reason),
        }
    }
}

/// Most bytes of a job's output that are kept with its run: each is a part of the run's row for as long as that is there, and most
/// jobs succeed.
const SUCCESS_OUTPUT_MAX: u64 = 4 * 1_024;
const FAILURE_OUTPUT_MAX: u64 = 16 * 1_024;

fn with_output(mut metadata: Metadata, bytes_max: u64) -> Metadata {
    let log = metadata.get("log").and_then(|log| log.as_str());
    if let Some(output) = log.and_then(|log| last_lines(log.as_ref(), bytes_max)) {
        metadata.insert(OUTPUT.to_owned(), output.into());
    }
    metadata
}

impl From<Told> for Report {
    fn from(told: Told) -> Self {
        let what = match told.news {
            News::Started { metadata } => What::Started { metadata },
            News::Step { step, status, attempt, message } => {
                What::StepChanged { step, status, attempt, message }
            }
            News::Ended(end) => match end.into_outcome() {
                Ok(outcome) => What::Finished(outcome),
                Err(reason) => What::Lost { reason },
            },
        };
        Self { run_id: told.run_id, at: told.at, what }
    }
}
