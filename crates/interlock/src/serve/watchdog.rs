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
use interlock_engine::{seam::Task, vitals::Pulse};
use interlock_store::{Role, Shard, Store};
use interlock_watchdog::{Pace, Parts, Watchdog, WatchdogError, WatchdogVitals, seam::ZoneBook};
use jiff::SignedDuration;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::{Notify, oneshot, watch},
    task::JoinSet,
    time::sleep,
};

use crate::serve::{
    attend::asked,
    files::Files,
    shards::{AtWork, Begun, Ended, Owner, OwnerParts, Work},
    telling::EngineTelling,
    unreached::Unreached,
    world::TokioWorld,
};

/// How long one look may take before the loop counts as late.
pub(crate) const BOUND: Duration = Duration::from_secs(30);
/// When watchdogs that had to end are tried again.
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
    pub(crate) unreached: Arc<Unreached>,
    /// Wakes the notifier.
    pub(crate) news: Arc<Notify>,
}

/// Watches until it is asked to end, as many shards as are this process's share. A store that fails is tried again.
pub(crate) async fn run(around: Around, stop: watch::Receiver<bool>) {
    let work = Arc::new(Watchdogs(Arc::new(around)));
    loop {
        let Around { store, holder, lease, pulse, unreached, .. } = &*work.0;
        let owner = Owner::new(OwnerParts {
            store: Arc::clone(store),
            role: Role::Watchdog,
            holder: holder.clone(),
            lease: *lease,
            work: Arc::clone(&work),
            pulse: pulse.clone(),
            taken_over: None,
            unreached: Arc::clone(unreached),
        });
        match owner.run(Box::pin(asked(stop.clone()))).await {
            Ok(()) => return,
            Err(error) => tracing::error!(%error, "the watchdog begins again"),
        }
        work.0.pulse.try_in_vain();
        tokio::select! {
            () = asked(stop.clone()) => return,
            () = sleep(AGAIN_AFTER) => {}
        }
    }
}

/// Watchdogs, one for each shard.
struct Watchdogs(Arc<Around>);

impl Work for Watchdogs {
    fn begin(self: Arc<Self>, shards: Vec<Shard>) -> Task<Begun> {
        Box::pin(async move {
            // All at once: one that cannot be reached now must not keep the others waiting.
            let mut opening = JoinSet::new();
            for shard in shards {
                let pulse = Pulse::default();
                let opened = Watchdog::open(parts(&self.0, shard, pulse.clone()), shard);
                opening.spawn(async move { (shard, pulse, opened.await) });
            }
            let mut begun = Vec::new();
            while let Some(opened) = opening.join_next().await {
                match opened {
                    Ok((shard, pulse, Ok(Some(watchdog)))) => {
                        begun.push((shard, watch(watchdog, pulse)));
                    }
                    Ok((shard, _, Ok(None))) => {
                        tracing::debug!(shard = shard.0, "another watchdog is at work");
                    }
                    Ok((shard, _, Err(error))) => {
                        self.0.pulse.try_in_vain();
                        tracing::error!(shard = shard.0, %error, "the watchdog cannot begin");
                        if let WatchdogError::Store(error) = &error {
                            self.0.unreached.failed(Role::Watchdog, shard, error);
                        }
                    }
                    Err(broken) if broken.is_panic() => {
                        std::panic::resume_unwind(broken.into_panic());
                    }
                    // Nobody aborts these tasks.
                    Err(_) => {}
                }
            }
            begun.sort_by_key(|(shard, _)| *shard);
            Ok(begun)
        })
    }
}

fn watch(watchdog: Watchdog, pulse: Pulse) -> AtWork {
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async move {
        // A sender that is gone asks for the same.
        let _asked = stopped.await;
    };
    let task = tokio::spawn(async move {
        match watchdog.run(Box::pin(stopped)).await {
            Ok(()) => Ended::GivenBack,
            Err(WatchdogError::Deposed) => Ended::Followed,
            Err(WatchdogError::Store(error)) => Ended::Again(error),
        }
    });
    AtWork { task, stop, pulse }
}

fn parts(around: &Arc<Around>, shard: Shard, pulse: Pulse) -> Parts {
    let zones = Arc::clone(&around.zones);
    let zones: ZoneBook = Arc::new(move |name| zones.zone(name));
    let world = Arc::new(TokioWorld::new());
    let store = Arc::clone(&around.store);
    let mut parts = Parts::new(world, store, Arc::new(EngineTelling), zones);
    around.holder.clone_into(&mut parts.holder);
    parts.pace = Pace { interval: around.config.interval, lease: around.lease, ..Pace::default() };
    parts.vitals = Arc::clone(&around.vitals);
    let (ours, all, reached) = (pulse.clone(), around.pulse.clone(), Arc::clone(&around.unreached));
    parts.failed = Arc::new(move |error| {
        // It tries, and does not hang.
        ours.try_in_vain();
        all.try_in_vain();
        reached.failed(Role::Watchdog, shard, error);
    });
    let reached = Arc::clone(&around.unreached);
    parts.came_round = Arc::new(move || {
        pulse.beat();
        reached.reached(Role::Watchdog, shard);
    });
    let news = Arc::clone(&around.news);
    parts.notified = Arc::new(move || news.notify_one());
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
