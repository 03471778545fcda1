//! The watchdog as functions: two checks, their results, and a wrapper that polls, under the names of the first
//! controller. Each is a thin reading of [`all_shards`], so each sees every shard.
//!
//! [`CheckOptions`] takes the time, the threshold for stuck runs, the function that delivers alerts and the logger. It
//! takes no calendars: they are compiled into the schedules when a pipeline is declared, so a day that is excluded owes
//! nothing here.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//!
//! use interlock_config::{SystemZones, ZoneSource as _};
//! use interlock_store::{block_on, memory::MemoryStore};
//! use interlock_watchdog::{
//!     once::CheckOptions,
//!     polling::{check_missed_schedules, check_stuck_runs},
//! };
//! use jiff::{SignedDuration, Timestamp};
//!
//! // Any store; those of `interlock-store-redis` and `interlock-store-postgres` are opened by their settings.
//! let store = Arc::new(MemoryStore::new(12, Arc::new(Timestamp::now)));
//! let zones = SystemZones::new();
//! let zones = Arc::new(move |name: &str| zones.zone(name));
//!
//! let sent = Arc::new(Mutex::new(Vec::new()));
//! let outgoing = Arc::clone(&sent);
//! let options = CheckOptions::new(store, zones, Timestamp::now())
//!     .stuck_after(SignedDuration::from_mins(45))
//!     .alerting(Arc::new(move |alert| {
//!         outgoing.lock().map_err(|error| error.to_string())?.push(alert.to_json());
//!         Ok(())
//!     }))
//!     .logging(Arc::new(|line| println!("{line}")));
//! for missed in block_on(check_missed_schedules(&options))? {
//!     println!("{}/{} missed its deadline on {}", missed.pipeline, missed.schedule, missed.date);
//! }
//! for stuck in block_on(check_stuck_runs(&options))? {
//!     println!("{}/{} has been {} for {}", stuck.pipeline, stuck.schedule, stuck.status, stuck.duration);
//! }
//! assert!(sent.lock().unwrap().is_empty(), "nothing is declared, so nothing is missing");
//! # Ok::<(), interlock_watchdog::WatchdogError>(())
//! ```
//!
//! These options write nothing, so a second call delivers the same again. With [`CheckOptions::telling`] findings are
//! recorded, each alert is delivered once per pipeline, schedule and day, and one that could not be delivered stays in
//! the outbox.

use std::sync::Arc;

use interlock_core::id::{PipelineId, ScheduleId};
use jiff::{SignedDuration, civil::Date};
use serde_json::Value;
use tokio::sync::{Notify, oneshot};

use crate::{
    finding::{CheckName, Finding},
    once::{CheckOptions, Report, all_shards},
    resident::WatchdogError,
    seam::{Task, World},
};

/// A slot that was missed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissedSchedule {
    /// Whose.
    pub pipeline: PipelineId,
    /// Of which schedule.
    pub schedule: ScheduleId,
    /// Its local date.
    pub date: Date,
    /// The deadline as it was written; none when a grace was over.
    pub deadline: Option<String>,
}

/// A run that does not end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckRun {
    /// Whose.
    pub pipeline: PipelineId,
    /// Of which schedule.
    pub schedule: ScheduleId,
    /// Its slot's local date.
    pub date: Date,
    /// Where it stands.
    pub status: String,
    /// For how long, as Go writes it.
    pub duration: String,
}

/// Finds slots whose deadline has passed and that nobody looked at.
pub async fn check_missed_schedules(
    options: &CheckOptions,
) -> Result<Vec<MissedSchedule>, WatchdogError> {
    let options = options.clone().only(CheckName::MissedSchedules);
    let found = all_shards(&options).await?.findings;
    Ok(found.iter().filter_map(missed).collect())
}

/// Finds runs that have not ended for too long.
pub async fn check_stuck_runs(options: &CheckOptions) -> Result<Vec<StuckRun>, WatchdogError> {
    let options = options.clone().only(CheckName::StuckRuns);
    let found = all_shards(&options).await?.findings;
    Ok(found.iter().filter_map(stuck).collect())
}

fn missed(finding: &Finding) -> Option<MissedSchedule> {
    let (_, schedule) =
        finding.slot.as_ref().filter(|_| finding.event == Some("SCHEDULE_MISSED"))?;
    Some(MissedSchedule {
        pipeline: finding.pipeline.clone(),
        schedule: schedule.clone(),
        date: finding.date?,
        deadline: text(finding, "deadline"),
    })
}

fn stuck(finding: &Finding) -> Option<StuckRun> {
    Some(StuckRun {
        pipeline: finding.pipeline.clone(),
        schedule: finding.slot.as_ref()?.1.clone(),
        date: finding.date?,
        status: text(finding, "status")?,
        duration: text(finding, "duration")?,
    })
}

fn text(finding: &Finding, name: &str) -> Option<String> {
    finding.details.get(name).and_then(Value::as_str).map(str::to_owned)
}

/// Who hears of each scan.
pub type OnScan = Arc<dyn Fn(Result<Report, WatchdogError>) + Send + Sync>;

/// A watchdog that scans at once and then on each interval. The resident one is better: it wakes at deadlines.
pub struct PollingWatchdog {
    world: Arc<dyn World>,
    options: CheckOptions,
    interval: SignedDuration,
}

/// A polling watchdog at work.
#[derive(Debug)]
pub struct Polling {
    stop: Arc<Notify>,
    ended: oneshot::Receiver<()>,
}

impl std::fmt::Debug for PollingWatchdog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PollingWatchdog").field("interval", &self.interval).finish_non_exhaustive()
    }
}

impl PollingWatchdog {
    /// One that scans this often, with these options: their time is replaced by that of each scan.
    pub fn new(world: Arc<dyn World>, options: CheckOptions, interval: SignedDuration) -> Self {
        Self { world, options, interval }
    }

    /// Begins: the task is to be run by the caller's runtime.
    pub fn start(self, on_scan: OnScan) -> (Polling, Task<()>) {
        let stop = Arc::new(Notify::new());
        let (ending, ended) = oneshot::channel();
        let polling = Polling { stop: Arc::clone(&stop), ended };
        let task = async move {
            self.poll(&stop, &on_scan).await;
            let _nobody_waits = ending.send(());
        };
        (polling, Box::pin(task))
    }

    async fn poll(&self, stop: &Notify, on_scan: &OnScan) {
        loop {
            let now = self.world.now();
            let options = CheckOptions { now, ..self.options.clone() };
            on_scan(all_shards(&options).await);
            let next = crate::owed::plus(now, self.interval);
            tokio::select! {
                biased;
                () = stop.notified() => return,
                () = self.world.sleep_until(next) => {}
            }
        }
    }
}

impl Polling {
    /// Ends it, after the scan that is under way.
    pub async fn stop(self) {
        self.stop.notify_one();
        // A task that is gone has ended too.
        let _ended = self.ended.await;
    }
}
