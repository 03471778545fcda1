//! What the interface shows: handed over by `serve` part by part while it starts.

use std::{
    fmt,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use interlock_answers::{Declarations, ErrorCode, FleetTally, model::doctor::DoctorFinding};
use interlock_core::id::PipelineId;
use interlock_engine::{seam::Evaluators, vitals::Vitals};
use interlock_liveness::Probe;
use interlock_store::Store;
use interlock_watchdog::WatchdogVitals;
use tokio::sync::Semaphore;

use crate::{
    desk::Desk, error::ApiError, fleet_demand::FleetDemand, fleet_health::FleetHealth,
    loops::Loops, peer::InstanceIdentity, plan::ShownPlans, read::doctor::Examination,
    refusals::RefusalCounts, stream::EventHub, tls::ListenerCertificate,
};

/// Plans that are made at a time: each keeps a thread busy.
const PLANS_MAX: usize = 2;
/// Pages of the fleet that are made at a time.
const FLEET_PAGES_MAX: usize = 2;
/// Logs that are followed at once.
const FOLLOWERS_MAX: usize = 64;

/// How far `serve` is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Not there yet, with what it is busy with.
    Starting(&'static str),
    /// At work.
    Serving,
    /// On its way out, with what it waits for.
    Stopping(&'static str),
}

/// What makes a pipeline of a name; a sentence when it cannot.
pub type Make = dyn Fn(&PipelineId) -> Result<(), String> + Send + Sync;

/// Makes watch-only pipelines.
#[derive(Clone)]
pub struct Maker(pub Arc<Make>);

impl fmt::Debug for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Maker")
    }
}

/// Looks whether everything is as it should be. It may take seconds, and block.
pub type LookAround = dyn Fn() -> Vec<DoctorFinding> + Send + Sync;

/// Looks at this host, and at what the store says of all.
#[derive(Clone)]
pub struct HostDoctor {
    /// Who looks.
    pub instance: String,
    /// What it finds.
    pub look: Arc<LookAround>,
}

impl fmt::Debug for HostDoctor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostDoctor").field("instance", &self.instance).finish_non_exhaustive()
    }
}

/// Says where the log of a run is, whether or not it is there.
pub type FindLog = dyn Fn(&PipelineId, &str) -> PathBuf + Send + Sync;

/// The logs of the jobs that ran on this host.
#[derive(Clone)]
pub struct HostLogs {
    /// The name by which runs know this host, where instances on several hosts share a store.
    pub host: Option<String>,
    /// Where they are.
    pub find: Arc<FindLog>,
}

impl fmt::Debug for HostLogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostLogs").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Asks evaluators.
#[derive(Clone)]
pub struct EvaluatorHandle(pub Arc<dyn Evaluators>);

impl fmt::Debug for EvaluatorHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EvaluatorHandle")
    }
}

/// What the process finds wrong with itself, and whether somebody outside hears of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wellness {
    /// In a sentence each.
    pub complaints: Vec<String>,
    /// The beacons, which are called only while there is nothing to complain of.
    pub beacons: Vec<BeaconStanding>,
}

/// How a beacon stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeaconStanding {
    /// All of its address that may be shown.
    pub host: String,
    /// How long ago it last answered.
    pub answered_ago: Option<Duration>,
    /// Why it did not answer the last time.
    pub error: Option<String>,
}

/// Whether anybody can reach the interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reach {
    /// Nobody asked for one in this process.
    #[default]
    Unwanted,
    /// It is wanted and its address cannot be had, for this reason.
    Shut(String),
    /// It listens.
    At(SocketAddr),
}

/// What there is to show.
#[derive(Debug)]
pub struct Surface {
    /// The version of the program.
    pub version: &'static str,
    /// The loops, watched.
    pub loops: Loops,
    /// What the engine counts, once there is an engine in this process.
    pub vitals: OnceLock<Arc<Vitals>>,
    /// What the watchdog counts, once there is one in this process.
    pub watchdog: OnceLock<Arc<WatchdogVitals>>,
    /// What the guard of the process sees, once it has taken its post.
    pub guard: OnceLock<Probe>,
    /// For how many seconds the oldest change has waited for the archive, where somebody looks.
    pub archive_waited: OnceLock<Arc<AtomicU64>>,
    /// The store, once it is open.
    pub store: OnceLock<Arc<dyn Store>>,
    /// What is declared, once the store is open.
    pub declarations: OnceLock<Arc<dyn Declarations>>,
    /// Makes pipelines for pings with `create=1`, where there are files to make.
    pub maker: OnceLock<Maker>,
    /// Asks evaluators, where an engine runs.
    pub evaluators: OnceLock<EvaluatorHandle>,
    /// Plans that were shown lately.
    pub(crate) shown_plans: ShownPlans,
    /// How many plans may be made at a time.
    pub(crate) plans: Arc<Semaphore>,
    /// What became of the slots of all pipelines, kept by a thread of its own.
    pub(crate) fleet: FleetTally,
    /// Whether that is asked for.
    pub(crate) fleet_demand: FleetDemand,
    /// Whether it follows the store.
    pub(crate) fleet_health: FleetHealth,
    /// How many of its pages may be made at a time.
    pub(crate) fleet_pages: Arc<Semaphore>,
    /// What jobs wrote on this host, once it is known where.
    pub logs: OnceLock<HostLogs>,
    /// Who this process is to other instances, once that is known.
    pub identity: OnceLock<InstanceIdentity>,
    /// The certificate of the listener, if it speaks TLS.
    pub certificate: OnceLock<Arc<ListenerCertificate>>,
    /// Looks whether everything is as it should be, once the store is open.
    pub doctor: OnceLock<HostDoctor>,
    pub(crate) examination: Examination,
    /// Places for those that follow a log.
    pub(crate) followers: Arc<Semaphore>,
    pub(crate) desk: Desk,
    pub(crate) refusals: RefusalCounts,
    pub(crate) events: EventHub,
    phase: Mutex<Phase>,
    wellness: Mutex<Wellness>,
    reach: Mutex<Reach>,
}

impl Surface {
    /// Nothing yet: `serve` is starting.
    pub fn new(version: &'static str) -> Self {
        Self {
            version,
            loops: Loops::default(),
            vitals: OnceLock::new(),
            watchdog: OnceLock::new(),
            guard: OnceLock::new(),
            archive_waited: OnceLock::new(),
            store: OnceLock::new(),
            declarations: OnceLock::new(),
            maker: OnceLock::new(),
            evaluators: OnceLock::new(),
            shown_plans: ShownPlans::default(),
            plans: Arc::new(Semaphore::new(PLANS_MAX)),
            fleet: FleetTally::default(),
            fleet_demand: FleetDemand::default(),
            fleet_health: FleetHealth::default(),
            fleet_pages: Arc::new(Semaphore::new(FLEET_PAGES_MAX)),
            logs: OnceLock::new(),
            identity: OnceLock::new(),
            certificate: OnceLock::new(),
            doctor: OnceLock::new(),
            examination: Examination::default(),
            followers: Arc::new(Semaphore::new(FOLLOWERS_MAX)),
            desk: Desk::default(),
            refusals: RefusalCounts::default(),
            events: EventHub::default(),
            phase: Mutex::new(Phase::Starting("the files are being read")),
            wellness: Mutex::default(),
            reach: Mutex::default(),
        }
    }

    /// Makes a pipeline, for a ping that asks for it.
    pub(crate) async fn create(&self, pipeline: &PipelineId) -> Result<(), ApiError> {
        let refused = |reason: String| {
            ApiError::new(
                ErrorCode::CannotCreate,
                format!("the pipeline `{pipeline}` cannot be made: {reason}"),
                "Write its file by hand: `trigger: {type: external}` and a schedule.",
            )
        };
        let Some(maker) = self.maker.get().cloned() else {
            return Err(refused("this process has no files".to_owned()));
        };
        let name = pipeline.clone();
        let made = tokio::task::spawn_blocking(move || maker.0(&name)).await;
        made.unwrap_or_else(|broken| Err(broken.to_string())).map_err(refused)
    }

    /// The fleet's tally, counted for the first time if that takes a moment only.
    pub(crate) async fn asked_fleet(&self) -> &FleetTally {
        self.fleet_demand.ask(&self.fleet).await;
        &self.fleet
    }

    /// Takes over what the process finds wrong with itself.
    pub fn take_wellness(&self, wellness: Wellness) {
        *self.wellness.lock().unwrap_or_else(PoisonError::into_inner) = wellness;
    }

    /// What the process finds wrong with itself.
    pub fn wellness(&self) -> Wellness {
        let mut wellness = self.wellness.lock().unwrap_or_else(PoisonError::into_inner).clone();
        wellness.complaints.extend(self.fleet_health.complaint());
        wellness
    }

    /// Whether anybody can reach the interface.
    pub fn reach(&self) -> Reach {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The interface listens, or cannot.
    pub(crate) fn is_reached(&self, reach: Reach) {
        *self.reach.lock().unwrap_or_else(PoisonError::into_inner) = reach;
    }

    /// How far `serve` is.
    pub fn phase(&self) -> Phase {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `serve` went on. The loops end when it stops, and are then not late.
    pub fn enter(&self, phase: Phase) {
        if matches!(phase, Phase::Stopping(_)) {
            self.loops.clear();
        }
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }
}
