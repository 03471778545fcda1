//! The watchdog of `serve`: on threads and a runtime of its own, with a lease of its own.
//!
//! The notifier lives beside it: an alert that nobody delivers is none. So whatever blocks every thread of the
//! engine's runtime, deadlines are still judged, and people still hear of them.

use std::{io, sync::Arc, time::Duration};

use interlock_config::{
    SystemZones, ZoneSource as _,
    route::Subject,
    server::{Alert, Watchdog as WatchdogConfig},
};
use interlock_core::id::PipelineId;
use interlock_engine::vitals::Pulse;
use interlock_store::{Shard, Store};
use interlock_watchdog::{Pace, Parts, Watchdog, WatchdogVitals, seam::ZoneBook};
use jiff::SignedDuration;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    time::sleep,
};

use crate::serve::{files::Files, telling::EngineTelling, world::TokioWorld};

/// How long one look may take before the loop counts as late.
pub(crate) const BOUND: Duration = Duration::from_secs(30);
/// When a watchdog that could not begin, or had to end, is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// One thread for the watchdog, one for whoever delivers.
const THREADS: usize = 2;

/// The runtime beside the engine's. It ends with the process, whatever it is busy with.
#[derive(Debug)]
pub(crate) struct Beside(Option<Runtime>);

impl Beside {
    pub(crate) fn new() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("watchdog")
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    /// Where its tasks are spawned.
    pub(crate) fn handle(&self) -> Option<&Handle> {
        self.0.as_ref().map(Runtime::handle)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// What the watchdog needs of the rest.
pub(crate) struct Around {
    pub(crate) store: Arc<dyn Store>,
    /// Who it is to the store's leases.
    pub(crate) holder: String,
    /// How long its lease lasts.
    pub(crate) lease: SignedDuration,
    pub(crate) zones: Arc<SystemZones>,
    pub(crate) config: WatchdogConfig,
    pub(crate) vitals: Arc<WatchdogVitals>,
    pub(crate) pulse: Pulse,
    pub(crate) files: Files,
}

/// Watches until the process ends. One that loses its lease, or finds a store that it cannot use, begins again.
pub(crate) async fn run(around: Around) {
    let around = Arc::new(around);
    loop {
        match Watchdog::open(parts(&around), Shard(0)).await {
            Ok(Some(watchdog)) => {
                if let Err(error) = watchdog.run(Box::pin(std::future::pending())).await {
                    tracing::error!(%error, "the watchdog begins again");
                }
            }
            Ok(None) => tracing::warn!("another watchdog is at work; this one waits"),
            Err(error) => tracing::error!(%error, "the watchdog cannot begin"),
        }
        sleep(AGAIN_AFTER).await;
    }
}

fn parts(around: &Arc<Around>) -> Parts {
    let zones = Arc::clone(&around.zones);
    let zones: ZoneBook = Arc::new(move |name| zones.zone(name));
    let world = Arc::new(TokioWorld::new());
    let (store, pulse) = (Arc::clone(&around.store), around.pulse.clone());
    let mut parts = Parts::new(world, store, Arc::new(EngineTelling), zones);
    around.holder.clone_into(&mut parts.holder);
    parts.pace = Pace { interval: around.config.interval, lease: around.lease, ..Pace::default() };
    parts.vitals = Arc::clone(&around.vitals);
    parts.came_round = Arc::new(move || pulse.beat());
    let files = around.files.clone();
    parts.hears = Arc::new(move || hears_misses(&files.alerts(), &PipelineId::system()));
    parts
}

/// The channels that a miss of a pipeline goes to which declares nothing about itself.
fn hears_misses(channels: &[Alert], pipeline: &PipelineId) -> Vec<String> {
    let subject = Subject {
        level: "error",
        alert_type: "schedule_missed",
        pipeline: pipeline.as_str(),
        owner: None,
        labels: None,
    };
    let wanted = channels.iter().filter(|channel| channel.when.matches(&subject));
    wanted.map(|channel| channel.name.clone()).collect()
}
