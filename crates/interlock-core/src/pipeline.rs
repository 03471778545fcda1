//! A pipeline's whole declaration, validated: what a file says after every default is filled in.

use std::{collections::BTreeMap, fmt};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    id::{PipelineId, ScheduleId},
    readiness::{Readiness, SensorRule},
    retry::{RerunBudgets, RetryPolicy},
    schedule::{Period, Recurrence, Schedule},
    sensor::SlotPeriod,
    sla::{Deadline, SlaSpec},
    zone::Zone,
};

/// Text that must never be shown: `Debug` prints stars.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Keeps a text from being shown.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Something that should run.
#[derive(Debug, Clone, PartialEq)]
pub struct Pipeline {
    /// Its name, which is its identity.
    pub name: PipelineId,
    /// Who is told.
    pub owner: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// Where people read what to do when it goes wrong; carried to alerts.
    pub runbook: Option<String>,
    /// How much it matters, 1 being most; carried to alerts.
    pub tier: Option<u32>,
    /// For routing and filtering.
    pub labels: BTreeMap<String, String>,
    /// Its own zone, if it names one: that of times and dates that people say without one.
    pub zone: Option<Zone>,
    /// When it owes runs, in the order of the file; empty only beside `controls`, when runs are
    /// started by hand and merely ended by schedule.
    pub starts: Vec<StartSchedule>,
    /// When a running run is ended, or ended and started again; never replayed.
    pub controls: Vec<ControlSchedule>,
    /// What becomes of slots that were missed, and of slots that meet a run.
    pub catchup: Catchup,
    /// How many of its runs may be active at once.
    pub active_runs_max: u32,
    /// What must hold before a slot runs.
    pub readiness: Readiness,
    /// How readiness is evaluated over time.
    pub evaluation: Evaluation,
    /// How a job is started; a pipeline without one is never due.
    pub trigger: Option<Trigger>,
    /// What the job gets.
    pub job: JobContext,
    /// What is tried again.
    pub retry: RetryPolicy,
    /// What may be run again.
    pub reruns: RerunBudgets,
    /// What it promises about time.
    pub sla: SlaSpec,
    /// What is checked after completion.
    pub post_run: Option<PostRun>,
    /// Dormant when false: neither scheduled nor watched.
    pub enabled: bool,
    /// Drift monitoring after completion; off when absent.
    pub monitoring: Option<SignedDuration>,
    /// When a run counts as stuck, and what then.
    pub stuck: Stuck,
    /// Records what it would do and starts nothing.
    pub dry_run: bool,
    /// A slot whose data was already processed with success is not run again.
    pub skip_if_successful: bool,
    /// How long its history is kept; the store's default when absent.
    pub retention: Option<SignedDuration>,
}

impl Pipeline {
    /// One of its schedules, whether it owes runs or ends them.
    pub fn schedule(&self, id: &ScheduleId) -> Option<&Schedule> {
        let starts = self.starts.iter().map(|start| &start.schedule);
        let controls = self.controls.iter().map(|control| &control.schedule);
        starts.chain(controls).find(|schedule| schedule.id() == id)
    }
}

/// A schedule that owes runs, and by when its slots are judged.
#[derive(Debug, Clone, PartialEq)]
pub struct StartSchedule {
    /// When.
    pub schedule: Schedule,
    /// By when a slot must have been evaluated, or its sensor have arrived.
    pub deadline: Option<Deadline>,
    /// Without a deadline: how long after its time a slot without any record is missed.
    pub grace: SignedDuration,
    /// How long a slot counts as live.
    pub start_grace: SignedDuration,
    /// How long before its time a report may already belong to a slot; a tenth of the gap, at most
    /// one hour, when absent.
    pub early: Option<SignedDuration>,
    /// How long a watch-only run may take.
    pub duration_max: SignedDuration,
    /// Slots open up to this much later, the same for every slot of one pipeline.
    pub jitter: SignedDuration,
}

impl StartSchedule {
    /// The period of a slot: what its per-period sensors are about. A schedule that owes several slots on
    /// one date has hours for periods.
    pub fn period_of(&self, nominal: Timestamp) -> SlotPeriod {
        let schedule = &self.schedule;
        let zone = &schedule.timing().zone;
        if let Recurrence::Sensor { period, .. } = schedule.recurrence() {
            return SlotPeriod::containing(nominal, zone, *period);
        }
        let date = |at: Timestamp| schedule.occurrence(at).date;
        let neighbours = [schedule.previous(nominal), schedule.after(nominal)];
        if neighbours.into_iter().flatten().any(|other| date(other) == date(nominal)) {
            SlotPeriod::containing(nominal, zone, Period::Hour)
        } else {
            SlotPeriod::day(date(nominal))
        }
    }
}

/// A schedule that acts on a running run.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlSchedule {
    /// When.
    pub schedule: Schedule,
    /// What it does.
    pub action: ControlAction,
}

/// What a control schedule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlAction {
    /// Ends the running run.
    Stop,
    /// Ends it and starts a new one.
    Restart,
}

impl ControlAction {
    /// The word for it, in files and in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Restart => "restart",
        }
    }
}

/// Catch-up and overlap, for all schedules of a pipeline together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catchup {
    /// How far back missed slots are run; none are when absent.
    pub window: Option<SignedDuration>,
    /// Which of several.
    pub overlap: OverlapPolicy,
    /// At most this many in one plan; the oldest are cut.
    pub runs_max: u32,
}

impl Default for Catchup {
    fn default() -> Self {
        Self { window: None, overlap: OverlapPolicy::default(), runs_max: 10_000 }
    }
}

/// Which of several missed or colliding slots run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OverlapPolicy {
    /// The first; the rest are skipped.
    #[default]
    Skip,
    /// All, in order, one at a time.
    All,
    /// Only the newest.
    Latest,
}

impl OverlapPolicy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Skip, Self::All, Self::Latest];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::All => "all",
            Self::Latest => "latest",
        }
    }
}

/// How long and how often readiness is asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Evaluation {
    /// From opening until the slot is given up; the gap to the next slot, at most 24 h, when absent.
    pub window: Option<SignedDuration>,
    /// How often, besides whenever a sensor changes; the watcher's default when absent.
    pub interval: Option<SignedDuration>,
}

/// How a job is started.
#[derive(Debug, Clone, PartialEq)]
pub struct Trigger {
    /// What starts it.
    pub kind: TriggerKind,
    /// What to do when a crash left the outcome unknown.
    pub on_uncertain: OnUncertain,
    /// How long a run may take before it is ended.
    pub timeout: Option<SignedDuration>,
    /// How often a job is asked for its state, where it is asked.
    pub poll_interval: Option<SignedDuration>,
}

/// What to do with a run whose outcome cannot be found out (S18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnUncertain {
    /// Call it failed.
    #[default]
    Fail,
    /// Try again, at the risk of running it twice.
    Retry,
}

/// The adapters.
#[derive(Debug, Clone, PartialEq)]
pub enum TriggerKind {
    /// A program on this host.
    Command(CommandLine),
    /// Named commands with an order.
    Steps(Vec<Step>),
    /// An HTTP request.
    Http(HttpTrigger),
    /// A DAG run in Airflow.
    Airflow(AirflowTrigger),
    /// Somebody else runs it; Interlock only watches.
    External,
    /// A kind that another build brings (`glue`, `emr`, `step-function`, …), with its options as
    /// written.
    Other {
        /// Its name.
        name: String,
        /// Its options.
        options: BTreeMap<String, Value>,
    },
}

impl TriggerKind {
    /// The word for it, in files and in lists.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Command(_) => "command",
            Self::Steps(_) => "steps",
            Self::Http(_) => "http",
            Self::Airflow(_) => "airflow",
            Self::External => "external",
            Self::Other { name, .. } => name,
        }
    }
}

/// What to execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandLine {
    /// Run by a shell.
    Shell(String),
    /// Run as it is, program first.
    Argv(Vec<String>),
}

/// One step of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its name, unique within the job.
    pub name: String,
    /// What it runs.
    pub command: CommandLine,
    /// Steps that must have succeeded before; a file that says nothing means the step above.
    pub depends: Vec<String>,
    /// Further attempts after a failure.
    pub retries_max: u32,
    /// How long it may take.
    pub timeout: Option<SignedDuration>,
    /// A failure does not fail the job.
    pub continue_on_failure: bool,
    /// Environment variables besides the job's.
    pub env: BTreeMap<String, Secret>,
    /// Where it runs, when not where the job does.
    pub workdir: Option<String>,
}

/// A request that starts a job.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpTrigger {
    /// Where.
    pub url: String,
    /// How.
    pub method: String,
    /// With which headers; values may name `${ENV}` variables, resolved when sent.
    pub headers: BTreeMap<String, Secret>,
    /// With which body.
    pub body: Option<String>,
    /// How the end is learnt.
    pub completion: HttpCompletion,
    /// How long the request itself may take.
    pub request_timeout: SignedDuration,
}

/// How the end of an HTTP-triggered job is learnt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpCompletion {
    /// The response is the end.
    Response,
    /// Somebody calls back.
    Callback,
    /// A URL is asked until it says so.
    Poll {
        /// Which.
        url: String,
    },
}

/// A DAG in Airflow.
#[derive(Debug, Clone, PartialEq)]
pub struct AirflowTrigger {
    /// Base address of the web server.
    pub url: String,
    /// Which DAG.
    pub dag_id: String,
    /// 2 or 3: the API differs.
    pub version: u8,
    /// Extra headers; values may name `${ENV}` variables, resolved when sent.
    pub headers: BTreeMap<String, Secret>,
    /// Passed as the run's `conf`.
    pub conf: BTreeMap<String, Value>,
    /// How long one request may take.
    pub request_timeout: SignedDuration,
}

/// What the job gets besides its slot.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobContext {
    /// Environment variables; values may name `${ENV}` variables, resolved when started.
    pub env: BTreeMap<String, Secret>,
    /// Where it runs.
    pub workdir: Option<String>,
    /// Which shell runs shell commands; `sh` when absent.
    pub shell: Option<String>,
    /// Default parameters.
    pub params: BTreeMap<String, String>,
    /// Run after the job: on success, on failure, and in any case.
    pub handlers: Handlers,
}

/// Commands that follow a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Handlers {
    /// After success.
    pub success: Option<CommandLine>,
    /// After failure.
    pub failure: Option<CommandLine>,
    /// In any case.
    pub exit: Option<CommandLine>,
}

/// What is checked after completion.
#[derive(Debug, Clone, PartialEq)]
pub struct PostRun {
    /// Sensors that must arrive and hold.
    pub rules: Vec<SensorRule>,
    /// How long they may take.
    pub sensor_timeout: SignedDuration,
    /// Which field is compared with the run's own baseline.
    pub drift_field: String,
    /// How much it may differ.
    pub drift_threshold: f64,
}

/// Stuck runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stuck {
    /// After how long; the watchdog's default when absent.
    pub threshold: Option<SignedDuration>,
    /// What then.
    pub action: StuckAction,
}

/// What happens to a stuck run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StuckAction {
    /// People are told; it goes on holding its place.
    #[default]
    Alert,
    /// It is cancelled.
    Cancel,
    /// It is called failed.
    Fail,
}
