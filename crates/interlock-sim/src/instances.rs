//! The instances of Interlock: each is a process with an engine and a watchdog that want the shard, and a notifier.
//!
//! An instance that ends, for whatever reason, is started again, as a supervisor would do it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use interlock_engine::{
    Changes, Engine, EngineError, Limits, Notifier, NotifierParts, Pace, Parts, Patience,
    host::Host,
    seam::{Specs as _, World as _},
    vitals::{Pulse, Vitals},
};
use interlock_store::{Shard, Store};
use interlock_watchdog::{Pace as WatchdogPace, Parts as WatchdogParts, Watchdog, WatchdogError};
use jiff::SignedDuration;
use tokio::sync::{mpsc, oneshot};

use crate::{
    around::{Around, Onlooker},
    clockwork::{Clockwork, NATURE, Pid, ProcessWorld},
    files::Files,
    gated::Gated,
    jobs::Jobs,
    luck::{Luck, seconds},
    random::Random,
    road::Road,
    sentinel::{Post, WatchedLoops},
    tap::{Mutation, Tap},
    telling::Words,
    work::Meter,
};

/// So many of the instances hear reports; the others have other roles.
const LISTENERS: Pid = 2;
/// How soon a reason not to tell is looked at again. In `serve` it is a minute; here there are days of silence.
const ASK_AGAIN: SignedDuration = SignedDuration::from_mins(5);

/// The tasks of an instance that come round again and again: its engine, its watchdog, its notifier.
pub(crate) const LOOPS: [&str; 3] = ["an instance", "a watchdog", "a notifier"];

/// How long any of them may stand still.
pub(crate) fn still_max(pace: &Pace) -> SignedDuration {
    pace.inbox * 4
}

/// What instances are made of.
pub struct Ground {
    /// Time and tasks.
    pub clockwork: Clockwork,
    /// The ledger, with whoever looks on.
    pub store: Arc<dyn Store>,
    /// The files.
    pub files: Files,
    /// The jobs.
    pub jobs: Jobs,
    /// How bad things are.
    pub luck: Arc<Luck>,
    /// Who looks on.
    pub onlooker: Arc<dyn Onlooker>,
    /// How often the engine does what nothing else wakes it for.
    pub pace: Pace,
    /// The same for the watchdog.
    pub watch_pace: WatchdogPace,
    /// The seed.
    pub seed: u64,
    /// A deliberate mistake.
    pub mutation: Option<Mutation>,
    /// Whom to tell that an instance listens, if there are reports to listen to.
    pub listens: Option<Tap>,
    /// Whom to tell how much the loops ask of the store, where that is counted.
    pub counts: Option<Tap>,
}

/// All instances.
#[derive(Clone)]
pub struct Instances(Arc<Shared>);

struct Shared {
    ground: Ground,
    roads: BTreeMap<Pid, Road>,
    up: Mutex<BTreeMap<Pid, Life>>,
}

/// How an instance that is up is reached.
#[derive(Default)]
struct Life {
    stop: Option<oneshot::Sender<()>>,
    files: Option<mpsc::Sender<Changes>>,
}

impl Instances {
    /// So many of them, all off.
    pub fn new(ground: Ground, count: u32) -> Self {
        Self(Arc::new_cyclic(|weak: &std::sync::Weak<Shared>| {
            let road = |pid: Pid| {
                let weak = weak.clone();
                let death = Arc::new(move || {
                    if let Some(shared) = weak.upgrade() {
                        Self(shared).die(pid);
                    }
                });
                let random = Random::of(ground.seed, &format!("road {pid}"));
                let clocks = (ground.clockwork.clone(), ground.clockwork.process(pid));
                (pid, Road::new(clocks, Arc::clone(&ground.luck), random, death))
            };
            let roads = (1..=count).map(road).collect();
            Shared { roads, ground, up: Mutex::default() }
        }))
    }

    /// Their numbers.
    pub fn pids(&self) -> Vec<Pid> {
        self.0.roads.keys().copied().collect()
    }

    /// The road of an instance.
    pub fn road(&self, pid: Pid) -> Option<&Road> {
        self.0.roads.get(&pid)
    }

    /// Whether an instance is up.
    pub fn is_up(&self, pid: Pid) -> bool {
        self.lock().contains_key(&pid)
    }

    /// Starts an instance that is off.
    pub fn start(&self, pid: Pid) {
        if self.lock().contains_key(&pid) {
            return;
        }
        let (stop, stopped) = oneshot::channel();
        self.lock().insert(pid, Life { stop: Some(stop), files: None });
        let (this, world) = (self.clone(), self.0.ground.clockwork.process(pid));
        let life = async move {
            if let Err(EngineError::Deposed) = this.live(pid, stopped).await {
                this.0.ground.luck.saw("owner deposed");
            }
            // Not from inside: what a process owns dies with it.
            let (that, nature) = (this.clone(), this.0.ground.clockwork.process(NATURE));
            // Five seconds at the usual pace.
            let downtime = this.0.ground.pace.lease / 9;
            nature.spawn("an instance ended", Box::pin(async move { that.crash(pid, downtime) }));
        };
        world.spawn("an instance", Box::pin(life));
    }

    /// An instance dies now, and is started again after a while.
    pub fn crash(&self, pid: Pid, downtime: SignedDuration) {
        self.lock().remove(&pid);
        self.0.ground.clockwork.kill(pid);
        self.0.ground.onlooker.died(pid);
        let (this, nature) = (self.clone(), self.0.ground.clockwork.process(NATURE));
        let later = nature.clone();
        let again = async move {
            later.sleep(downtime).await;
            this.start(pid);
        };
        nature.spawn("an instance is started again", Box::pin(again));
    }

    /// An instance dies where it stands; how long it is off depends on the hour.
    fn die(&self, pid: Pid) {
        let now = self.0.ground.clockwork.time();
        let mut random = Random::of(self.0.ground.seed, &format!("death of {pid} at {now}"));
        let downtime =
            if random.chance(200) { random.between(60, 7_200) } else { random.below(20) };
        self.crash(pid, seconds(downtime));
    }

    /// An instance is asked to end.
    pub fn stop(&self, pid: Pid) {
        let stop = self.lock().get_mut(&pid).and_then(|life| life.stop.take());
        if let Some(stop) = stop {
            let _it_has_ended = stop.send(());
        }
    }

    /// Tells whoever owns the pipelines what changed in the files.
    pub fn tell(&self, changes: impl Fn() -> Changes) {
        for life in self.lock().values() {
            if let Some(files) = &life.files {
                // Who has no room is behind, and takes it up at its next start.
                let _has_no_room = files.try_send(changes());
            }
        }
    }

    async fn live(&self, pid: Pid, stopped: oneshot::Receiver<()>) -> Result<(), EngineError> {
        let Ground { clockwork, onlooker, files, jobs, pace, .. } = &self.0.ground;
        let world = clockwork.process(pid);
        let Some(road) = self.road(pid) else { return Ok(()) };
        let behind = Arc::clone(&self.0.ground.store);
        let store: Arc<dyn Store> = Arc::new(Gated::new(behind, road.clone()));
        let around = self.around(&world, &store);
        let loops = self.start_beside(road, &around);
        let waits = loops.watch("engine", still_max(pace), &world);
        let mut stopped = Some(stopped);
        let host = Host::default();
        loop {
            let (changed, declarations) = mpsc::channel(16);
            let parts = Parts {
                world: Arc::new(world.clone()),
                store: self.counted("engine", pid, &store),
                specs: Arc::new(files.clone()),
                triggers: Arc::new(jobs.seen_by(world.clone())),
                evaluators: Arc::clone(&around) as Arc<_>,
                reports: jobs.connect(pid),
                declarations,
                holder: format!("{pid}"),
                pace: *pace,
                limits: Limits::default(),
                host: host.clone(),
            };
            let Some(mut engine) = Engine::open(parts, Shard(0)).await? else {
                waits.beat();
                world.sleep(pace.lease / 2).await;
                continue;
            };
            loops.register("engine", &engine.pulse(), still_max(pace), &world);
            jobs.tell_again(pid);
            engine.declare(&files.changes(&engine)).await?;
            if let Some(life) = self.lock().get_mut(&pid) {
                life.files = Some(changed);
            }
            // Edited while it was declaring.
            engine.declare(&files.changes(&engine)).await?;
            onlooker.live(pid);
            let stop = stopped.take();
            return engine
                .run(Box::pin(async move {
                    if let Some(stop) = stop {
                        let _is_gone = stop.await;
                    }
                }))
                .await;
        }
    }

    /// The store, as one of the loops of a process asks it.
    fn counted(&self, name: &'static str, pid: Pid, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        let Ground { clockwork, counts, mutation, .. } = &self.0.ground;
        let Some(tap) = counts else { return Arc::clone(store) };
        let world = (clockwork.clone(), tap.clone());
        let meter = Meter::new(world, (name, pid), (*mutation, store));
        Arc::new(Gated::new(Arc::clone(store), meter))
    }

    /// Evaluators and channels, as a process sees them.
    fn around(&self, world: &ProcessWorld, store: &Arc<dyn Store>) -> Arc<Around> {
        let Ground { clockwork, luck, onlooker, seed, mutation, .. } = &self.0.ground;
        let (pid, life) = (world.pid(), clockwork.life(world.pid()));
        let random = Random::of(*seed, &format!("around {pid} in life {life}"));
        Arc::new(Around {
            world: world.clone(),
            clockwork: clockwork.clone(),
            luck: Arc::clone(luck),
            onlooker: Arc::clone(onlooker),
            store: Arc::clone(store),
            silences: Arc::default(),
            is_loud: *mutation == Some(Mutation::LoudSilences),
            trusts_blindly: *mutation == Some(Mutation::BlindTrust),
            drops_alerts: *mutation == Some(Mutation::DroppedAlerts),
            random: Arc::new(Mutex::new(random)),
        })
    }

    /// Starts what an instance has beside its engine; answers with the loops that its sentinel watches.
    fn start_beside(&self, road: &Road, around: &Arc<Around>) -> WatchedLoops {
        let Ground { luck, onlooker, pace, mutation, listens, .. } = &self.0.ground;
        let (world, store) = (&around.world, &around.store);
        let (pid, loops) = (world.pid(), WatchedLoops::default());
        let vitals = Arc::new(Vitals::default());
        if *mutation != Some(Mutation::NoNotifiers) {
            let pulse = loops.watch("notifier", still_max(pace), world);
            self.start_notifier(pid, store, around, (&vitals, pulse));
        }
        self.start_watchdog(pid, store, loops.watch("watchdog", still_max(pace), world));
        let post = Post {
            world: world.clone(),
            store: Arc::clone(store),
            loops: loops.clone(),
            vitals,
            outside: Arc::clone(onlooker),
            road: road.clone(),
            luck: Arc::clone(luck),
            look: pace.lease,
            is_content: *mutation == Some(Mutation::ContentSentinels),
        };
        world.spawn("a sentinel", Box::pin(post.keep()));
        if let Some(tap) = listens.as_ref().filter(|_| pid <= LISTENERS) {
            let listening =
                crate::reporters::listen(pid, Arc::clone(store), world.clone(), tap.clone());
            world.spawn("a listener", Box::pin(listening));
        }
        loops
    }

    /// A watchdog that waits for the lease, and waits again when it has lost it.
    fn start_watchdog(&self, pid: Pid, store: &Arc<dyn Store>, pulse: Pulse) {
        let Ground { clockwork, files, luck, watch_pace, mutation, .. } = &self.0.ground;
        let (world, pace, luck) = (clockwork.process(pid), *watch_pace, Arc::clone(luck));
        let is_blind = *mutation == Some(Mutation::BlindWatchdog);
        let (store, files) = (self.counted("watchdog", pid, store), files.clone());
        let own = world.clone();
        let run = async move {
            loop {
                let (world, zones) = (Arc::new(own.clone()), files.clone());
                let zones = Arc::new(move |name: &str| zones.zone(name));
                let mut parts =
                    WatchdogParts::new(world, Arc::clone(&store), Arc::new(Words), zones);
                (parts.holder, parts.pace) = (format!("{pid}"), pace);
                let comes_round = pulse.clone();
                parts.came_round = Arc::new(move || comes_round.beat());
                if is_blind {
                    parts.checks.clear();
                }
                // It ends when another one has the lease.
                if let Ok(Some(watchdog)) = Watchdog::open(parts, Shard(0)).await
                    && let Err(WatchdogError::Deposed) =
                        watchdog.run(Box::pin(std::future::pending())).await
                {
                    luck.saw("watchdog deposed");
                }
                pulse.beat();
                own.sleep(pace.lease / 2).await;
            }
        };
        world.spawn("a watchdog", Box::pin(run));
    }

    fn start_notifier(
        &self,
        pid: Pid,
        store: &Arc<dyn Store>,
        around: &Arc<Around>,
        (vitals, pulse): (&Arc<Vitals>, Pulse),
    ) {
        let world = self.0.ground.clockwork.process(pid);
        let look = self.0.ground.pace.inbox * 2;
        let notifier = Notifier::new(NotifierParts {
            world: Arc::new(world.clone()),
            store: self.counted("notifier", pid, store),
            channels: Arc::clone(around) as Arc<_>,
            patience: Patience { look, ask_again: ASK_AGAIN, ..Patience::default() },
            vitals: Arc::clone(vitals),
            pulse,
        });
        let run = async move {
            // It ends with its process, or when the store fails for good, which ours does not.
            let _ended = notifier.run(Box::pin(std::future::pending())).await;
        };
        world.spawn("a notifier", Box::pin(run));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Pid, Life>> {
        self.0.up.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ground").field("seed", &self.seed).finish_non_exhaustive()
    }
}

impl fmt::Debug for Instances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instances").field("pids", &self.pids()).finish_non_exhaustive()
    }
}
