//! The house in which a script is played: instances of Interlock on one store, and time.

use std::{
    collections::BTreeMap,
    path::Path,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use interlock_config::{Context, Problem, SystemZones, ZoneSource as _, parse_pipeline};
use interlock_core::{
    agenda::{Agenda, Work},
    id::{PipelineId, ScheduleId},
};
use interlock_engine::{
    Changes, Declaration, Engine, EngineError, Limits, Notifier, NotifierParts, Pace, Parts,
    Patience, host::Host, seam::World, vitals::Pulse,
};
use interlock_store::{
    BackfillQuery, Shard, Store, memory::MemoryStore, record::InboxRecord, whole_milliseconds,
};
use interlock_watchdog::{
    Pace as WatchdogPace, Parts as WatchdogParts, Watchdog, seam as watchdog, seam::Task,
};
use jiff::{SignedDuration, Timestamp, civil, tz::TimeZone};
use tokio::sync::{mpsc, watch};

use super::{
    cast::Cast,
    line::{Command, Death, Moment, Roles, Way},
    way::Road,
};
use crate::{
    clockwork::{Clockwork, NATURE, Pid, ProcessWorld},
    files::Files,
    gated::Gated,
    telling::Words,
};

/// How many instances there may be.
const INSTANCES: Pid = 3;
/// The process of a command, which owns a pipeline while no instance is up.
const COMMAND: Pid = INSTANCES + 1;
/// How often an instance says that it listens.
const LISTENS_EVERY: SignedDuration = SignedDuration::from_secs(10);
/// What had to end is tried again after so long.
const AGAIN_AFTER: SignedDuration = SignedDuration::from_secs(1);
/// An instance that is asked to end has so long for it.
const ENDS_WITHIN: SignedDuration = SignedDuration::from_secs(60);
const LEASE: SignedDuration = SignedDuration::from_secs(15);
/// How often the inbox is looked at, and the lease asked for: seldom enough for hours of virtual time.
const LOOK: SignedDuration = SignedDuration::from_secs(1);

/// The house.
pub(super) struct House {
    pub(super) clockwork: Clockwork,
    pub(super) store: Arc<MemoryStore>,
    pub(super) files: Files,
    pub(super) cast: Cast,
    pub(super) posted: u32,
    roads: BTreeMap<Pid, Road>,
    up: Up,
}

/// How instances that are up are reached.
#[derive(Clone, Default)]
struct Up(Arc<Mutex<BTreeMap<Pid, Life>>>);

struct Life {
    is_asked_to_end: watch::Sender<bool>,
    files: Option<mpsc::Sender<Changes>>,
    is_over: bool,
    /// Which of its lives the process led.
    number: u64,
}

impl Up {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Pid, Life>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl House {
    /// An empty house, with the first command of a script.
    pub(super) fn begin(first: &Command) -> Result<Self, String> {
        let Command::At(Moment::Instant(now)) = first else {
            return Err("a script begins with `at` and an instant with its date".to_owned());
        };
        let clockwork = Clockwork::new(*now);
        let clock = clockwork.clone();
        let roads = (1..=COMMAND).map(|pid| (pid, Road::new(&clockwork, pid))).collect();
        let clock = Arc::new(move || whole_milliseconds(clock.time()));
        Ok(Self {
            store: Arc::new(MemoryStore::new(1, clock)),
            files: Files::default(),
            cast: Cast::new(clockwork.clone()),
            clockwork,
            posted: 0,
            roads,
            up: Up::default(),
        })
    }

    /// Does what a line says; answers with what is to be seen.
    pub(super) fn follow(&mut self, command: &Command) -> Result<Vec<String>, String> {
        match command {
            Command::At(moment) => {
                let (at, now) = (self.instant(*moment), self.now());
                if at < now {
                    return Err(format!("it is {now} already, and time does not go back to {at}"));
                }
                self.pass_until(at)?;
            }
            Command::Advance(time) => self.pass_until(self.now() + *time)?,
            Command::File(text) => self.write(text)?,
            Command::Remove(name) => {
                if !self.files.has(name) {
                    return Err(format!("there is no file of {name}"));
                }
                self.files.remove(name);
                let removed = vec![name.clone()];
                self.tell_files(&Changes { declared: vec![], removed });
            }
            Command::Validate(text) => return Ok(Self::problems(text).1),
            Command::Start(pid, roles) => self.start(*pid, *roles)?,
            Command::Stop(pid) => self.stop(*pid)?,
            Command::Crash(pid, Death::Here, _) => {
                self.must_be_up(*pid)?;
                self.clockwork.kill(*pid);
            }
            Command::Crash(pid, death, count) => {
                self.must_be_up(*pid)?;
                self.road(*pid)?.doom(*death, *count);
            }
            Command::Freeze(pid, time) => {
                self.must_be_up(*pid)?;
                self.clockwork.hold_for(*pid, *time);
                self.pass_until(self.now() + *time)?;
            }
            Command::Suspend(time) => self.clockwork.pass(*time),
            Command::Clock(pid, ahead) => self.clockwork.set_clock(*pid, *ahead),
            Command::Store(way) => self.set_way(*way),
            Command::Channel(phone) => self.cast.set_phone(*phone),
            Command::Job(rule) => self.cast.direct(rule.clone()),
            Command::Trait(pipeline, kind, status) => {
                self.cast.answer(pipeline.clone(), kind.clone(), *status);
            }
            Command::Ask(pipeline, wish) => return self.ask(pipeline, wish),
            Command::Ping(pipeline, ping) => return self.ping(pipeline, ping),
            Command::Print(question) => return self.print(question),
        }
        Ok(vec![])
    }

    /// The present instant.
    pub(super) fn now(&self) -> Timestamp {
        whole_milliseconds(self.clockwork.time())
    }

    /// The instant that is meant.
    pub(super) fn instant(&self, moment: Moment) -> Timestamp {
        match moment {
            Moment::Instant(instant) => instant,
            Moment::Today(time) => {
                let today = TimeZone::UTC.to_datetime(self.now()).date();
                let civil = civil::DateTime::from_parts(today, time);
                civil.to_zoned(TimeZone::UTC).map_or(Timestamp::MIN, |zoned| zoned.timestamp())
            }
        }
    }

    /// Time passes, and everybody does what there is to do.
    pub(super) fn pass_until(&self, at: Timestamp) -> Result<(), String> {
        // What is due at that instant is done, too.
        let until = at + SignedDuration::from_nanos(1);
        let forever = pin!(std::future::pending::<()>());
        let _until_then = self.clockwork.run(forever, until);
        if let Some((pid, task)) = self.clockwork.restless() {
            return Err(format!("{task} of instance {pid} never rests"));
        }
        match self.clockwork.take_panics().first() {
            Some((pid, words)) => Err(format!("instance {pid} panicked: {words}")),
            None => Ok(()),
        }
    }

    /// Whether an instance lives.
    pub(super) fn is_up(&self, pid: Pid) -> bool {
        let life = self.clockwork.life(pid);
        self.up.lock().get(&pid).is_some_and(|up| up.number == life && !up.is_over)
    }

    /// Whether any instance lives.
    pub(super) fn is_any_up(&self) -> bool {
        (1..=INSTANCES).any(|pid| self.is_up(pid))
    }

    fn must_be_up(&self, pid: Pid) -> Result<(), String> {
        if self.is_up(pid) {
            Ok(())
        } else {
            Err(format!("instance {pid} is not up: `start {pid}`"))
        }
    }

    fn road(&self, pid: Pid) -> Result<&Road, String> {
        self.roads.get(&pid).ok_or_else(|| format!("there is no instance {pid}"))
    }

    fn set_way(&self, way: Way) {
        self.roads.values().for_each(|road| road.set(way));
    }

    fn write(&self, text: &str) -> Result<(), String> {
        let (is_usable, problems) = Self::problems(text);
        if !is_usable {
            return Err(format!("the file cannot be used:\n{}", problems.join("\n")));
        }
        let declaration = self.files.write(text, self.now())?;
        self.tell_files(&Changes { declared: vec![declaration], removed: vec![] });
        Ok(())
    }

    /// Whether a file can be used, and what `interlock validate` says of it.
    fn problems(text: &str) -> (bool, Vec<String>) {
        let (path, context) = (Path::new("pipeline.yaml"), Context::default());
        let (loaded, problems) =
            parse_pipeline(path, text, &context, &SystemZones::new(), &|_| None);
        let rendered: Vec<String> = problems.iter().map(Problem::render).collect();
        let lines = rendered.iter().flat_map(|text| text.lines()).map(str::to_owned);
        let lines: Vec<String> = lines.collect();
        (loaded.is_some(), if lines.is_empty() { vec!["no problems".to_owned()] } else { lines })
    }

    fn tell_files(&self, changes: &Changes) {
        for life in self.up.lock().values() {
            if let Some(files) = &life.files {
                let (declared, removed) = (changes.declared.clone(), changes.removed.clone());
                let _is_gone = files.try_send(Changes { declared, removed });
            }
        }
    }

    fn start(&self, pid: Pid, roles: Roles) -> Result<(), String> {
        if self.is_up(pid) {
            return Err(format!("instance {pid} is up already"));
        }
        // Nothing of its last life is left.
        self.clockwork.kill(pid);
        let (is_asked_to_end, stopped) = watch::channel(false);
        let number = self.clockwork.life(pid);
        let life = Life { is_asked_to_end, files: None, is_over: false, number };
        self.up.lock().insert(pid, life);
        let instance = self.instance(pid)?;
        let world = &instance.machine.own;
        world.spawn("the notifier", instance.clone().notify());
        world.spawn("the watchdog", instance.clone().watch());
        if roles == Roles::All {
            world.spawn("the listener", instance.clone().listen());
            world.spawn("the engine", instance.clone().work(stopped));
        }
        Ok(())
    }

    /// A command does to its end what it asked for, as the owner of its pipeline.
    pub(super) fn begin_command(&self, asked: Commanded) -> Result<(), String> {
        self.clockwork.kill(COMMAND);
        let instance = self.instance(COMMAND)?;
        let world = instance.machine.own.clone();
        world.spawn("the command", instance.command(asked));
        Ok(())
    }

    /// The command is done, or has had enough.
    pub(super) fn end_command(&self) -> Result<(), String> {
        self.clockwork.kill(COMMAND);
        // Its lease is over before anybody else comes: a command that ends gives it back.
        self.pass_until(self.now() + LEASE)
    }

    fn stop(&self, pid: Pid) -> Result<(), String> {
        self.must_be_up(pid)?;
        if let Some(life) = self.up.lock().get(&pid) {
            life.is_asked_to_end.send_replace(true);
        }
        let latest = self.now() + ENDS_WITHIN;
        while self.is_up(pid) && self.now() < latest {
            self.pass_until(self.now() + LOOK)?;
        }
        self.clockwork.kill(pid);
        Ok(())
    }

    fn instance(&self, pid: Pid) -> Result<Instance, String> {
        let behind = Arc::clone(&self.store) as Arc<dyn Store>;
        Ok(Instance {
            pid,
            machine: Machine {
                own: self.clockwork.process(pid),
                nature: self.clockwork.process(NATURE),
            },
            clockwork: self.clockwork.clone(),
            store: Arc::new(Gated::new(behind, self.road(pid)?.clone())),
            files: self.files.clone(),
            cast: self.cast.clone(),
            up: self.up.clone(),
        })
    }
}

/// What a command drives to its end.
pub(super) struct Commanded {
    pub(super) pipeline: PipelineId,
    /// The slot that it named; else the last backfill of the pipeline.
    pub(super) slot: Option<(ScheduleId, Timestamp)>,
    pub(super) declared: Declaration,
}

/// An instance of Interlock.
#[derive(Clone)]
struct Instance {
    pid: Pid,
    machine: Machine,
    clockwork: Clockwork,
    store: Arc<dyn Store>,
    files: Files,
    cast: Cast,
    up: Up,
}

impl Instance {
    /// The engine, for as long as it is not asked to end.
    fn work(self, stopped: watch::Receiver<bool>) -> Task<()> {
        Box::pin(async move {
            while self.own(&stopped).await.is_err() {
                self.machine.nature.sleep(AGAIN_AFTER).await;
            }
            if let Some(life) = self.up.lock().get_mut(&self.pid) {
                life.is_over = true;
            }
        })
    }

    fn parts(&self, declarations: mpsc::Receiver<Changes>) -> Parts {
        Parts {
            world: Arc::new(self.machine.clone()),
            store: Arc::clone(&self.store),
            specs: Arc::new(self.files.clone()),
            triggers: Arc::new(self.cast.clone()),
            evaluators: Arc::new(self.cast.clone()),
            reports: self.cast.connect(self.pid),
            declarations,
            holder: format!("instance {}, life {}", self.pid, self.clockwork.life(self.pid)),
            pace: Pace { lease: LEASE, inbox: LOOK },
            limits: Limits::default(),
            host: Host::default(),
        }
    }

    /// What a command does without a daemon: it takes the pipeline, applies its inbox and drives what it asked for for as
    /// long as it is let. Until an earlier owner's lease is over it waits.
    fn command(self, asked: Commanded) -> Task<()> {
        Box::pin(async move {
            let Commanded { pipeline, slot, declared } = asked;
            let mut engine = loop {
                let parts = self.parts(mpsc::channel(1).1);
                match Engine::open_one(parts, &pipeline, Some(&declared)).await {
                    Ok(Some(engine)) => break engine,
                    Ok(None) | Err(_) => self.machine.nature.sleep(LOOK).await,
                }
            };
            let Ok(_) = engine.pass().await else { return };
            if let Some((schedule, nominal)) = &slot {
                engine.drive(schedule, *nominal).await;
            } else {
                let query = BackfillQuery {
                    pipeline: Some(pipeline),
                    unfinished: true,
                    limit: usize::MAX,
                    ..BackfillQuery::default()
                };
                let Ok(found) = self.store.backfills(&query).await else { return };
                let Some(last) = found.items.last() else { return };
                let Ok(()) = engine.drive_backfill(last.number).await else { return };
            }
            while let Ok(wake) = engine.pass().await {
                engine.wait(wake).await;
            }
        })
    }

    /// Waits for the pipelines and owns them until it is asked to end.
    async fn own(&self, stopped: &watch::Receiver<bool>) -> Result<(), EngineError> {
        loop {
            let (changed, declarations) = mpsc::channel(16);
            let parts = self.parts(declarations);
            let Some(mut engine) = Engine::open(parts, Shard(0)).await? else {
                self.machine.nature.sleep(LOOK).await;
                continue;
            };
            engine.declare(&self.files.changes(&engine)).await?;
            if let Some(life) = self.up.lock().get_mut(&self.pid) {
                life.files = Some(changed);
            }
            // Edited while it was declaring.
            engine.declare(&self.files.changes(&engine)).await?;
            let mut stopped = stopped.clone();
            let stop = async move {
                let _is_gone = stopped.wait_for(|is_asked| *is_asked).await;
            };
            return engine.run(Box::pin(stop)).await;
        }
    }

    fn watch(self) -> Task<()> {
        Box::pin(async move {
            loop {
                let zones = SystemZones::new();
                let zones = Arc::new(move |name: &str| zones.zone(name));
                let (world, store) = (Arc::new(self.machine.clone()), Arc::clone(&self.store));
                let mut parts = WatchdogParts::new(world, store, Arc::new(Words), zones);
                parts.holder =
                    format!("instance {}, life {}", self.pid, self.clockwork.life(self.pid));
                parts.pace = WatchdogPace { lease: LEASE, ..WatchdogPace::default() };
                if let Ok(Some(watchdog)) = Watchdog::open(parts, Shard(0)).await {
                    // It ends when another one has the lease, or the store fails for good.
                    let _ended = watchdog.run(Box::pin(std::future::pending())).await;
                }
                self.machine.nature.sleep(AGAIN_AFTER).await;
            }
        })
    }

    fn notify(self) -> Task<()> {
        let notifier = Notifier::new(NotifierParts {
            world: Arc::new(self.machine.clone()),
            store: Arc::clone(&self.store),
            channels: Arc::new(self.cast.clone()),
            patience: Patience::default(),
            vitals: Arc::default(),
            pulse: Pulse::default(),
        });
        Box::pin(async move {
            // It ends with its process.
            let _ended = notifier.run(Box::pin(std::future::pending())).await;
        })
    }

    /// Says that it hears reports, for as long as it lives.
    fn listen(self) -> Task<()> {
        Box::pin(async move {
            let mut since = World::now(&self.machine);
            let (mut said, mut after) = (since, None);
            loop {
                // Saying so costs a commit, and matters only to what is watched.
                if !self
                    .files
                    .declarations()
                    .iter()
                    .any(|it| Agenda::of(&it.pipeline).work == Work::Watched)
                {
                    self.machine.nature.sleep(LISTENS_EVERY).await;
                    continue;
                }
                let until = World::now(&self.machine);
                // Who stood still heard nothing meanwhile.
                if until.duration_since(said) > LISTENS_EVERY + LOOK {
                    since = until;
                }
                let key = format!("heard/{}/{}", self.pid, until.as_millisecond());
                let instance = format!("instance {}", self.pid);
                let record = InboxRecord::Heard { instance, since, until, after: after.clone() };
                if self.store.post(&PipelineId::system(), &key, &record).await.is_ok() {
                    (said, after) = (until, Some(key));
                }
                self.machine.nature.sleep(LISTENS_EVERY).await;
            }
        })
    }
}

/// The machine of an instance: its clock may be wrong, the time since it was switched on is not.
#[derive(Debug, Clone)]
struct Machine {
    own: ProcessWorld,
    nature: ProcessWorld,
}

impl World for Machine {
    fn now(&self) -> Timestamp {
        whole_milliseconds(self.own.now())
    }

    fn uptime(&self) -> Duration {
        self.own.uptime()
    }

    fn boot(&self) -> Option<Duration> {
        Some(self.own.uptime())
    }

    /// As timers of the system do it: by a clock that nobody sets.
    fn sleep_until(&self, at: Timestamp) -> Task<()> {
        self.nature.sleep(at.duration_since(self.own.now()))
    }

    fn spawn(&self, name: &'static str, task: Task<()>) {
        self.own.spawn(name, task);
    }
}

impl watchdog::World for Machine {
    fn now(&self) -> Timestamp {
        World::now(self)
    }

    fn boot(&self) -> Option<Duration> {
        World::boot(self)
    }

    fn sleep_until(&self, at: Timestamp) -> Task<()> {
        World::sleep_until(self, at)
    }
}
