//! The names under which the Go controller offered its watchdog (seed 000): two checks as functions, their results,
//! and a wrapper that polls. Each is a thin reading of [`once`].

use std::sync::Arc;

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{Shard, Store};
use jiff::{SignedDuration, civil::Date};
use serde_json::Value;
use tokio::sync::{Notify, oneshot};

use crate::{
    finding::{CheckName, Finding},
    once::{CheckOptions, Report, once},
    resident::WatchdogError,
    seam::{Task, Telling, World, ZoneBook},
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
    let found = once(&options, Shard(0)).await?.unwrap_or_default().findings;
    Ok(found.iter().filter_map(missed).collect())
}

/// Finds runs that have not ended for too long.
pub async fn check_stuck_runs(options: &CheckOptions) -> Result<Vec<StuckRun>, WatchdogError> {
    let options = options.clone().only(CheckName::StuckRuns);
    let found = once(&options, Shard(0)).await?.unwrap_or_default().findings;
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
    store: Arc<dyn Store>,
    telling: Arc<dyn Telling>,
    zones: ZoneBook,
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
    /// One that scans this often.
    pub fn new(
        world: Arc<dyn World>,
        store: Arc<dyn Store>,
        telling: Arc<dyn Telling>,
        zones: ZoneBook,
        interval: SignedDuration,
    ) -> Self {
        Self { world, store, telling, zones, interval }
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
            let options = CheckOptions::new(Arc::clone(&self.store), Arc::clone(&self.zones), now)
                .telling(Arc::clone(&self.telling));
            let report = once(&options, Shard(0)).await;
            on_scan(report.map(Option::unwrap_or_default));
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
