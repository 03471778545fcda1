//! Without a daemon: a command that owns one pipeline for as long as it needs to.
//!
//! It takes the store's lock and the lease like `serve`, through the same engine in the scope of one
//! pipeline, and reaches jobs through the same runner. Killed at any moment it leaves what a killed `serve`
//! leaves: the next owner carries on.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use interlock_config::{SystemZones, load_around, server::ServerConfig};
use interlock_core::{
    id::{PipelineId, ScheduleId, SlotKey},
    outbound::Outbound,
    retry::FailureCategory,
};
use interlock_engine::{
    Engine, EngineError, Pace, Parts,
    host::Host,
    seam::{Task, World},
};
use interlock_store::{
    Role, Shard, Store, block_on,
    record::{InboxRecord, SlotName},
};
use interlock_trigger::{
    CancelFailure, LocalTriggers, LookUp, LookUpFailure, Report, StartFailure, StartRequest,
    TriggerFuture, Triggers,
};
use jiff::{SignedDuration, Timestamp};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    signal::unix::SignalKind,
    sync::mpsc,
    task::JoinSet,
};

use crate::{
    clock, environment,
    exit::Failure,
    interrupts::listen,
    ledger::Ledger,
    narrator::{Narrator, Told},
    output::Output,
    project,
    serve::{evaluators, files::declaration, specs::StoredSpecs, wiring, world::TokioWorld},
    writer,
};

/// How long to wait for a job to have been asked to end.
const ACTS_MAX: Duration = Duration::from_secs(10);

/// The owner of one pipeline.
pub(crate) struct Alone {
    engine: Engine,
    triggers: Arc<OnDemand>,
    tasks: Tasks,
    runtime: Runtime,
}

/// How far a slot is driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// To its end.
    Ended,
    /// Until its job runs, or it is known to wait for something.
    Started,
}

/// How driving a slot ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Driven {
    /// The slot is decided.
    Ended,
    /// Its job runs, which is as far as it was to be driven.
    Started,
    /// It was left to whoever comes next.
    Left,
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::failed(error.to_string(), "")
    }
}

/// The store as the one who writes it: by the lock of its file, or by the lease of a shard.
fn own(
    ledger: &Ledger,
    shard: Shard,
    (holder, what): (&str, &str),
) -> Result<Option<Arc<dyn Store>>, Failure> {
    if ledger.place().is_embedded() {
        let store = writer::try_open(&ledger.place().folder, what)?;
        return Ok(store.map(|store| Arc::new(store) as Arc<dyn Store>));
    }
    let store = ledger.shared();
    let lease = block_on(store.acquire(Role::Engine, shard, holder, Pace::default().lease))?;
    Ok(lease.map(|_| store))
}

/// What an owner without a daemon is made with.
struct Surroundings<'a> {
    directory: &'a Path,
    ledger: &'a Ledger,
    config: &'a ServerConfig,
}

/// Everything around the engine of an owner.
struct AloneDeps {
    triggers: Arc<OnDemand>,
    tasks: Tasks,
    runtime: Runtime,
}

impl AloneDeps {
    fn with(self, engine: Engine) -> Alone {
        let Self { triggers, tasks, runtime } = self;
        Alone { engine, triggers, tasks, runtime }
    }
}

impl Surroundings<'_> {
    fn make(&self, store: Arc<dyn Store>, holder: String) -> Result<(Parts, AloneDeps), Failure> {
        let Self { directory, ledger, config } = *self;
        let failed = |error: std::io::Error| Failure::failed(format!("cannot begin: {error}"), "");
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let tasks = Tasks::default();
        let world = Tracking { world: runtime.block_on(async { TokioWorld::new() }), tasks };
        let tasks = world.tasks.clone();
        let evaluators = evaluators::of(directory, config).map_err(failed)?;
        let (reports_in, reports) = mpsc::unbounded_channel();
        let triggers = Arc::new(OnDemand {
            directory: directory.to_path_buf(),
            runner: ledger.place().runner_folder(),
            outbound: config.engine.outbound.clone(),
            reports: reports_in,
            triggers: OnceLock::new(),
        });
        let parts = Parts {
            world: Arc::new(world),
            specs: Arc::new(StoredSpecs::new(Arc::clone(&store), Arc::default())),
            store,
            triggers: Arc::clone(&triggers) as Arc<dyn Triggers>,
            evaluators: Arc::new(evaluators),
            reports,
            declarations: mpsc::channel(1).1,
            holder,
            pace: Pace::default(),
            limits: wiring::limits(config),
            host: Host::named(ledger.place().host()?),
        };
        Ok((parts, AloneDeps { triggers, tasks, runtime }))
    }
}

impl Alone {
    /// Becomes the owner of a pipeline; `None` if another process writes the ledger after all.
    pub(crate) fn take(
        directory: &Path,
        ledger: &Ledger,
        pipeline: &PipelineId,
        what: &str,
    ) -> Result<Option<Self>, Failure> {
        let shard = Shard::of(pipeline, ledger.store().shard_count());
        let holder = ledger.place().holder();
        let Some(store) = own(ledger, shard, (&holder, what))? else { return Ok(None) };
        let loaded = project::load(directory)?;
        let (parts, alone) =
            Surroundings { directory, ledger, config: &loaded.config }.make(store, holder)?;
        let mut found = loaded.pipelines.into_iter();
        let declared = found.find(|found| found.pipeline.name == *pipeline).map(declaration);
        let opened = Engine::open_one(parts, pipeline, declared.as_ref());
        let engine = alone.runtime.block_on(opened)?;
        Ok(engine.map(|engine| alone.with(engine)))
    }

    /// Becomes the owner of a shard as far as requests about incidents go; `None` if another process owns it after all. No pipeline's
    /// file is read.
    pub(crate) fn take_incidents(
        directory: &Path,
        ledger: &Ledger,
        shard: Shard,
    ) -> Result<Option<Self>, Failure> {
        let holder = ledger.place().holder();
        let Some(store) = own(ledger, shard, (&holder, "interlock"))? else { return Ok(None) };
        let zones = SystemZones::new();
        let config = load_around(directory, &zones, &environment::variable).config;
        let (parts, alone) =
            Surroundings { directory, ledger, config: &config }.make(store, holder)?;
        let engine = alone.runtime.block_on(Engine::open_for_incidents(parts, shard))?;
        Ok(engine.map(|engine| alone.with(engine)))
    }

    /// Gives everything back.
    pub(crate) fn close(self) -> Result<(), Failure> {
        Ok(self.runtime.block_on(self.engine.close())?)
    }

    /// Applies what is in the pipeline's inbox.
    pub(crate) fn pass(&mut self) -> Result<(), Failure> {
        self.runtime.block_on(self.engine.pass())?;
        Ok(())
    }

    /// Applies the pipeline's inbox with a request in it, and gives everything back. A job that was asked to
    /// end is waited for, up to the time given, so that its end is recorded.
    pub(crate) fn apply(
        self,
        ledger: &Ledger,
        (pipeline, record): (&PipelineId, &InboxRecord),
        patience: SignedDuration,
    ) -> Result<(), Failure> {
        let Self { mut engine, tasks, runtime, .. } = self;
        let ending = if let InboxRecord::Cancel { slot, .. } = record { Some(slot) } else { None };
        let give_up = clock::now().saturating_add(patience).unwrap_or(Timestamp::MAX);
        runtime.block_on(async {
            engine.pass().await?;
            // What the inbox says about a run is news, which the next pass records.
            let mut wake = engine.pass().await?;
            while let Some(slot) = ending
                && is_running(ledger, pipeline, slot)?
                && clock::now() < give_up
            {
                engine.wait(wake.min(give_up)).await;
                wake = engine.pass().await?;
            }
            tasks.finish().await;
            engine.close().await?;
            Ok(())
        })
    }

    /// Drives a slot in the foreground. An interrupt leaves its job to the runner, which keeps it.
    pub(crate) fn drive(
        self,
        slot: &SlotKey,
        until: Until,
        narrator: &mut Narrator<'_>,
        output: &mut Output,
    ) -> Result<Driven, Failure> {
        let Self { mut engine, triggers, runtime, .. } = self;
        runtime.block_on(async {
            let mut interrupted = listen(SignalKind::interrupt())?;
            let mut terminated = listen(SignalKind::terminate())?;
            // Before anything is triggered: what is older than the runner's journal is uncertain (S18).
            triggers.get().map_err(|message| Failure::failed(message, ""))?;
            engine.drive(&slot.schedule, slot.nominal).await;
            let driven = loop {
                let wake = engine.pass().await?;
                let verdict = engine.verdict(&slot.schedule, slot.nominal);
                match (narrator.tell(verdict, output)?, until) {
                    (Told::Ended, _) => break Driven::Ended,
                    (Told::Waiting, Until::Started) => break Driven::Left,
                    (Told::Open, Until::Started) if narrator.has_started()? => {
                        break Driven::Started;
                    }
                    (Told::Waiting | Told::Open, Until::Started | Until::Ended) => {}
                }
                tokio::select! {
                    biased;
                    _ = interrupted.recv() => break Driven::Left,
                    _ = terminated.recv() => break Driven::Left,
                    () = engine.wait(wake) => {}
                }
            };
            engine.close().await?;
            Ok(driven)
        })
    }
}

impl Alone {
    /// Brings a backfill to its end in the foreground; an interrupt leaves it to whoever comes next.
    pub(crate) fn drive_backfill(
        self,
        number: u64,
        mut tell: impl FnMut() -> Result<Told, Failure>,
    ) -> Result<Driven, Failure> {
        let Self { mut engine, triggers, runtime, .. } = self;
        runtime.block_on(async {
            let mut interrupted = listen(SignalKind::interrupt())?;
            let mut terminated = listen(SignalKind::terminate())?;
            triggers.get().map_err(|message| Failure::failed(message, ""))?;
            engine.drive_backfill(number).await?;
            let driven = loop {
                let wake = engine.pass().await?;
                if tell()? == Told::Ended {
                    break Driven::Ended;
                }
                if engine.backfill_waits() {
                    break Driven::Left;
                }
                tokio::select! {
                    biased;
                    _ = interrupted.recv() => break Driven::Left,
                    _ = terminated.recv() => break Driven::Left,
                    () = engine.wait(wake) => {}
                }
            };
            engine.close().await?;
            Ok(driven)
        })
    }
}

fn is_running(ledger: &Ledger, pipeline: &PipelineId, slot: &SlotName) -> Result<bool, Failure> {
    let Ok(schedule) = ScheduleId::any(&slot.schedule) else { return Ok(false) };
    let slot = ledger.slot(pipeline, &schedule, slot.nominal)?;
    Ok(slot.is_some_and(|slot| slot.state == "running"))
}

/// Tasks that the engine started.
#[derive(Debug, Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    /// Waits for them: a request to a job must have left before the process ends.
    async fn finish(&self) {
        let mut tasks = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let all = async { while tasks.join_next().await.is_some() {} };
        let _too_late = tokio::time::timeout(ACTS_MAX, all).await;
    }
}

/// Real time, and tasks that can be waited for.
struct Tracking {
    world: TokioWorld,
    tasks: Tasks,
}

impl World for Tracking {
    fn now(&self) -> Timestamp {
        self.world.now()
    }

    fn uptime(&self) -> Duration {
        self.world.uptime()
    }

    fn sleep_until(&self, at: Timestamp) -> Task<()> {
        self.world.sleep_until(at)
    }

    fn spawn(&self, _name: &'static str, task: Task<()>) {
        let mut tasks = self.tasks.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.spawn_on(task, &Handle::current());
    }
}

/// The triggers of this host, reached when first needed: most requests have nothing to do with a job, and
/// must not start a runner.
struct OnDemand {
    directory: PathBuf,
    runner: PathBuf,
    outbound: Outbound,
    reports: mpsc::UnboundedSender<Report>,
    triggers: OnceLock<Result<LocalTriggers, String>>,
}

impl OnDemand {
    fn get(&self) -> Result<&LocalTriggers, String> {
        let made = self.triggers.get_or_init(|| {
            wiring::triggers(&self.directory, &self.runner, &self.outbound, self.reports.clone())
        });
        made.as_ref().map_err(Clone::clone)
    }
}

impl Triggers for OnDemand {
    fn start(&self, request: StartRequest) -> TriggerFuture<'_, Result<(), StartFailure>> {
        match self.get() {
            Ok(triggers) => triggers.start(request),
            Err(message) => Box::pin(std::future::ready(Err(StartFailure {
                message,
                category: FailureCategory::Transient,
                may_have_started: false,
            }))),
        }
    }

    fn look_up<'a>(
        &'a self,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<LookUp, LookUpFailure>> {
        match self.get() {
            Ok(triggers) => triggers.look_up(request),
            Err(message) => Box::pin(std::future::ready(Err(LookUpFailure { message }))),
        }
    }

    fn cancel<'a>(
        &'a self,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<(), CancelFailure>> {
        match self.get() {
            Ok(triggers) => triggers.cancel(request),
            Err(message) => {
                let failure = CancelFailure { message, is_retryable: true };
                Box::pin(std::future::ready(Err(failure)))
            }
        }
    }

    fn acknowledge(&self, run_id: &str) {
        // An end that is not acknowledged is told again to the next owner.
        if let Ok(triggers) = self.get() {
            triggers.acknowledge(run_id);
        }
    }
}
