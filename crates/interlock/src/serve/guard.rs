//! The guard of `serve`: whoever hangs is written down, and the process leaves.
//!
//! Behind the sentinel, which tells people that a loop is late, stands a thread that needs nothing of this process but a clock:
//! it looks at the same pulses, has the stacks of all threads written down by a helper, and ends the process, so that whoever
//! keeps it running starts it again. Before the end the shards are given back, so that another instance need not wait for their
//! leases to run out. Behind that stands a timer of the kernel. What was written down is told at the next start (`reports`).
//!
//! Nobody renews a lease on behalf of an engine: its own loop does, and one that hangs loses it.

use std::{
    env,
    io::{self, IsTerminal as _},
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use interlock_api::loops::Loops;
use interlock_core::pipeline::Pipeline;
use interlock_engine::vitals::Vitals;
use interlock_liveness::{
    Blocking, Carrier, Deadman, Event, Ladder, Monitor, Observed, Probe, Probes, Rung, Systemd,
    Workers, forensics::Forensics, heartbeat::inherited,
};
use tokio::{
    runtime::Handle,
    sync::watch,
    time::{sleep, timeout},
};

#[cfg(feature = "redis")]
use crate::redis_beat;
use crate::{arguments::LogForm, environment, exit::Failure, serve::reports};

/// A loop that is late for so much longer ends the process. The sentinel has told people of it by then.
const ENDS_AFTER: Duration = Duration::from_secs(15);
/// The shards are given back this long before that.
const GIVEN_BACK_BEFORE: Duration = Duration::from_secs(3);
/// How long a worker of a runtime may be busy with one task before that is written down.
const WORKER_BUSY: Duration = Duration::from_secs(10);
/// How long the guard itself may not look. A process that is stopped for longer is ended by the kernel.
const SLACK: Duration = Duration::from_mins(1);

/// Guards the loops until it is dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    _watches: Vec<Observed>,
    _workers: Vec<Workers>,
    _pools: Vec<Blocking>,
    hangs: watch::Receiver<Option<String>>,
    monitor: Monitor,
    probes: Option<Probes>,
}

impl Guard {
    /// Takes its post before the loops that are watched, and before the workers of the runtimes that they run on.
    pub(crate) fn start(
        (folder, log): (&Path, LogForm),
        loops: &Loops,
        memory: Memory,
        runtimes: &[(&str, &Handle)],
    ) -> io::Result<Self> {
        let mut builder = Monitor::builder().deadman(deadman()).on_event(|event| tell(&event));
        let forensics = forensics(folder, log).map(|it| it.saying(move |out| memory.write(out)));
        match forensics {
            Ok(forensics) => builder = builder.forensics(forensics),
            Err(error) => tracing::warn!(%error, "the hang reporter is not running"),
        }
        for carrier in carriers() {
            builder = builder.beat(carrier);
        }
        let monitor = builder.start().map_err(io::Error::other)?;
        let (ends, hangs) = watch::channel(None);
        let watches = loops.all().into_iter().map(|(name, pulse, bound)| {
            let (excuse, ends) = (loops.excuse.clone(), ends.clone());
            let ladder = Ladder::hard(bound, bound + ENDS_AFTER).releasing(GIVEN_BACK_BEFORE);
            let watch = monitor.watch(name, ladder).on(Rung::Release, move |expiry| {
                ends.send_replace(Some(expiry.to_string()));
            });
            // One that fails is told of, and does not hang: to end this process would end what still works in it.
            watch.observe(move || pulse.signs_of_life().wrapping_add(excuse.count()))
        });
        let watches = watches.collect::<Result<_, _>>().map_err(io::Error::other)?;
        let workers = runtimes
            .iter()
            .map(|(name, handle)| monitor.watch_runtime(name, handle, WORKER_BUSY))
            .collect::<Result<_, _>>();
        let workers = workers.map_err(io::Error::other)?;
        let pools = runtimes
            .iter()
            .map(|(name, handle)| monitor.watch_blocking(name, handle, WORKER_BUSY))
            .collect::<Result<_, _>>();
        let pools = pools.map_err(io::Error::other)?;
        Ok(Self {
            _watches: watches,
            _workers: workers,
            _pools: pools,
            hangs,
            monitor,
            probes: None,
        })
    }

    /// What hangs, once something does that ends the process in a moment.
    pub(crate) fn hangs(&self) -> watch::Receiver<Option<String>> {
        self.hangs.clone()
    }

    /// Answers whoever asks there how things stand, until the guard leaves its post.
    pub(crate) fn answer_at(&mut self, address: &str) -> io::Result<()> {
        let probes = Probes::listen(address, self.probe())?;
        tracing::info!(event = "PROBES", address = %probes.address(), "probes are answered");
        self.probes = Some(probes);
        Ok(())
    }

    /// Tells anybody how things stand.
    pub(crate) fn probe(&self) -> Probe {
        self.monitor.probe()
    }
}

/// What a report of a hang says of this process's memory, beside the allocator's numbers. Nothing here waits or allocates.
#[derive(Debug)]
pub(crate) struct Memory {
    /// What the engines count; none without the engine's role.
    pub(crate) vitals: Option<Arc<Vitals>>,
    /// How many declarations are cached.
    pub(crate) declarations: Arc<AtomicU64>,
}

impl Memory {
    fn write(&self, out: &mut dyn io::Write) {
        let cached = self.declarations.load(Relaxed);
        let bytes = cached.saturating_mul(size_of::<Pipeline>() as u64);
        let cache = ("cache of declarations", cached, bytes);
        let kept = self.vitals.iter().flat_map(|vitals| vitals.memory());
        for (name, entries, bytes) in kept.chain(std::iter::once(cache)) {
            let _full = writeln!(
                out,
                "{name}: {entries} entries, {bytes} bytes without what they point to"
            );
        }
    }
}

/// The ways on which a supervisor expects signs of life of this process. One that cannot be taken is said; it is no reason to
/// guard nothing.
pub(crate) fn carriers() -> Vec<Box<dyn Carrier>> {
    let mut carriers = had(inherited(environment::variable)).unwrap_or_default();
    if let Some(key) = had(key()).flatten() {
        carriers.push(Box::new(key));
    }
    if let Some(systemd) = had(Systemd::from_variables(environment::variable)).flatten() {
        carriers.push(Box::new(systemd));
    }
    carriers
}

/// A way for heartbeats, if it can be had.
fn had<T>(way: io::Result<T>) -> Option<T> {
    way.inspect_err(
        |error| tracing::error!(%error, "cannot send heartbeats on one of the configured ways"),
    )
    .ok()
}

/// Waits until something hangs; answers with what.
pub(crate) async fn hung(hangs: Option<&mut watch::Receiver<Option<String>>>) -> String {
    let Some(hangs) = hangs else { return std::future::pending().await };
    match hangs.wait_for(Option::is_some).await {
        Ok(what) => what.clone().unwrap_or_default(),
        Err(_gone) => std::future::pending().await,
    }
}

/// Gives the shards back before the guard ends the process. Whoever is still there afterwards has come round too late:
/// others own the shards by then.
pub(crate) async fn give_back(what: String, leave: impl Future) -> Failure {
    tracing::error!("{what}: the shards are given back before this process ends");
    match timeout(GIVEN_BACK_BEFORE, leave).await {
        Ok(_however) => tracing::info!("the shards are given back"),
        Err(_hangs_too) => tracing::warn!("could not give the shards back in time"),
    }
    sleep(GIVEN_BACK_BEFORE * 2).await;
    Failure::failed(
        what,
        "It came round again, when the shards had been given back. Start it again.",
    )
}

/// Whether the kernel stands behind it: not while somebody debugs, and not at a terminal, where a process that is
/// stopped with Ctrl-Z wants to be continued.
fn deadman() -> Deadman {
    match environment::variable("INTERLOCK_DEADMAN").as_deref() {
        Some("off") => Deadman::Off,
        None if io::stderr().is_terminal() => Deadman::Off,
        Some(_) | None => Deadman::Kernel { slack: SLACK },
    }
}

/// The key on Redis that heartbeats go to, if one is named.
#[cfg(feature = "redis")]
fn key() -> io::Result<Option<redis_beat::Beat>> {
    let named = environment::variable(redis_beat::VARIABLE);
    let key = named.map(|address| redis_beat::Key::parse(&address)).transpose();
    let said = |error| io::Error::other(format!("{}: {error}", redis_beat::VARIABLE));
    Ok(key.map_err(said)?.map(redis_beat::Beat::into_key))
}

#[cfg(not(feature = "redis"))]
fn key() -> io::Result<Option<Box<dyn interlock_liveness::Carrier>>> {
    Ok(None)
}

fn forensics(folder: &Path, log: LogForm) -> io::Result<Forensics> {
    let form = match log {
        LogForm::Text => "text",
        LogForm::Json => "json",
    };
    let mut helper = Command::new(env::current_exe()?);
    helper.args(["liveness-helper", "--log", form, "--"]);
    Forensics::start(helper, folder.join(reports::OWN), reports::NAME)
}

fn tell(event: &Event) {
    match event {
        Event::Expired(expiry) if expiry.rung >= Rung::Soft => tracing::error!("{event}"),
        Event::Expired(_) | Event::Stalled { .. } | Event::BreakerOpened(_) => {
            tracing::warn!("{event}");
        }
        Event::Recovered(_) | Event::BreakerClosed(_) | Event::TermEnded(_) | Event::Held(_) => {
            tracing::info!("{event}");
        }
    }
}
