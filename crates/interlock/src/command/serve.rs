//! `interlock serve`: runs the pipelines of a project, or this instance's share of them.
//!
//! Start-up is load, open, listen, declare; then the engine's loop and the loops beside it run until the end, which is in
//! [`crate::serve::attend`].

use std::{
    collections::BTreeSet,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process,
    sync::Arc,
    time::Duration,
};

use interlock_api::{EvaluatorHandle, HostDoctor, InstanceIdentity, Phase, Surface};
use interlock_config::{
    SystemZones,
    server::{Beacon, Server, ServerConfig},
};
use interlock_core::{id::PipelineId, outbound::Outbound};
use interlock_engine::{
    Changes, Pace,
    host::Host,
    seam::Evaluators,
    vitals::{Pulse, Vitals},
};
use interlock_liveness::signals;
use interlock_store::{
    Key, Record, Role, Store,
    kept::{COPYING_KEY, MOVED_KEY},
};
use interlock_store_embedded::recover;
use interlock_trigger::web::Web;
use tokio::{
    runtime::Handle,
    sync::{Notify, mpsc, watch},
    task::spawn_blocking,
};

use crate::{
    arguments::{LogForm, RoleName, Serve},
    clock,
    declarations::StoredDeclarations,
    doctor,
    exit::{FAILED, Failure, SUCCESS},
    output::Output,
    owners,
    place::{Held, Place, host_name},
    serve::{
        archiver,
        attend::{self, END_IN, Loop, Parties, ServeEnd, asked},
        broken::BrokenFiles,
        caution,
        channel_reload::ChannelReload,
        concord,
        engines::Engines,
        evaluators::{self, RemoteEvaluators},
        files::{Agreement, Files},
        greeting::Greeting,
        guard::{Guard, Memory},
        http::{self, Interface},
        letters::{Teller, Ways},
        log, making, notifier, refused,
        reload::{self, Reload, tell_problems},
        reports::Reports,
        retention,
        roles::Roles,
        roster,
        self_report::SelfReporter,
        sentinel::{self, Beacons, Sentinel, Spool},
        shards::{Owner, OwnerParts},
        signals::{Requests as _, Signals},
        specs::StoredSpecs,
        spooled, stand_in,
        unreached::Unreached,
        watchdog::{self, Beside},
        wiring,
        witness::Witness,
        world::TokioWorld,
    },
    writer,
};

/// How many portions of changed files may wait for the engine.
const PORTIONS: usize = 2;

pub(super) fn run(directory: &Path, asked: &Serve, output: &mut Output) -> Result<u8, Failure> {
    let roles = Roles::asked(&asked.roles);
    // Before there is another thread, which would block what this one does: a daemon hears SIGTERM however it was started.
    signals::unblock();
    log::start(asked.log);
    let agreement = if asked.retire_missing { Agreement::Given } else { Agreement::Open };
    let (directory, log) = (directory.to_path_buf(), asked.log);
    let damaged = if asked.recover { Damaged::SetAside } else { Damaged::Refused };
    let project = Project { directory, roles, agreement, log, damaged };
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::failed(format!("cannot start the runtime: {error}"), ""))?;
    let ended = runtime.block_on(serve(project, output));
    // A thread that is blocked must not keep the process.
    runtime.shutdown_background();
    if let Ok(ServeEnd::Stopped(message)) = &ended {
        say(asked.log, output, message);
    }
    log::finish();
    match ended? {
        ServeEnd::Stopped(_) => Ok(SUCCESS),
        ServeEnd::HandedOver(_guard) => match stand_in::begin_again()? {},
    }
}

/// Says something about the process itself; that nobody reads it is no failure.
fn say(form: LogForm, output: &mut Output, message: &str) {
    match form {
        LogForm::Text => {
            let _nobody_reads = writeln!(output.out, "{message}");
        }
        LogForm::Json => tracing::info!("{message}"),
    }
}

/// What is to be served.
struct Project {
    directory: PathBuf,
    roles: Roles,
    agreement: Agreement,
    log: LogForm,
    damaged: Damaged,
}

/// What becomes of a damaged ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damaged {
    Refused,
    SetAside,
}

async fn serve(project: Project, output: &mut Output) -> Result<ServeEnd, Failure> {
    let form = project.log;
    let mut signals = Signals::listen()
        .map_err(|error| Failure::failed(format!("cannot listen to signals: {error}"), ""))?;
    let started = tokio::select! {
        biased;
        signal = signals.stop() => {
            tracing::info!("{signal} while starting");
            return Ok(ServeEnd::Stopped("stopped before it was ready"));
        }
        started = start_or_tell(project) => started?,
    };
    let (parties, greeting, witness) = started;
    let greeted = greeting.say(form, output);
    if greeted.is_err_and(|failure| !failure.is_closed_pipe()) {
        tracing::warn!("the summary could not be printed");
    }
    let ended = parties.attend(&mut signals).await;
    if let Some(witness) = witness {
        witness.last().await;
    }
    ended
}

/// Starts; if the ledger is the reason that it cannot, the channels of the files are told without it.
async fn start_or_tell(project: Project) -> Result<(Parties, Greeting, Option<Witness>), Failure> {
    let directory = project.directory.clone();
    let started = start(project).await;
    if let Err(refusal) = &started {
        refused::tell(&directory, refusal).await;
    }
    started
}

async fn start(project: Project) -> Result<(Parties, Greeting, Option<Witness>), Failure> {
    let Project { directory, roles, agreement, log, damaged } = project;
    let surface = Arc::new(Surface::new(env!("CARGO_PKG_VERSION")));
    let zones = Arc::new(SystemZones::new());
    let (from, zones_read) = (directory.clone(), Arc::clone(&zones));
    let config = blocking(move || Files::around(&from, &zones_read)).await??.config;
    let roles = roles.given(&config)?;
    let place = Place::of(&directory)?;
    let (store, held) = open(&place, &roles, damaged).await?;
    refuse_left_behind(store.as_ref(), &place).await?;
    let witness = witness(&place, &roles, &store).await?;
    surface.enter(Phase::Starting("the ledger is being loaded"));
    let specs = StoredSpecs::new(Arc::clone(&store), Arc::clone(&zones));
    surface.store.get_or_init(|| Arc::clone(&store));
    surface
        .declarations
        .get_or_init(|| Arc::new(StoredDeclarations::new(Arc::clone(&store), specs.clone())));
    drop(surface.logs.set(place.host_logs()?));
    surface.maker.get_or_init(|| making::maker(&directory, &config.dirs.pipelines));
    let interface = interface(&roles, &config, (&place, &surface)).await?;
    let mut greeting = greeting(&place, &roles, &surface);
    take_over_spooled((&directory, &place.folder), interface.as_ref(), &store);
    let (reload, asked) = mpsc::unbounded_channel();
    let runtime = beside()?;
    let beside = runtime.handle().cloned().unwrap_or_else(Handle::current);
    archiver::start((&roles, &place, &config), &store, (&beside, &surface)).await?;
    let served = Served {
        directory: &directory,
        place: &place,
        config: &config,
        roles: &roles,
        files: Files::new(&directory, &place.folder, Arc::clone(&zones)),
        specs,
        zones,
        store: Arc::clone(&store),
        holder: place.holder(),
        unreached: Arc::default(),
        news: Arc::default(),
        surface: &surface,
        beside: &beside,
    };
    surface.doctor.get_or_init(|| served.doctor());
    let folder = machine_folder(&place, &roles);
    let (engine, loops) = if roles.has(RoleName::Engine) {
        let started = served.begin_engine(agreement, &mut greeting).await?;
        let loops = served.start_others(&folder, &started.host.vitals)?;
        (Some(served.run_engine(started, asked).await), loops)
    } else {
        (None, served.start_without_engine(&folder, asked).await?)
    };
    surface.enter(Phase::Serving);
    served.report_itself(interface.as_ref());
    let guard = guard((&folder, log), &config.server, (&surface, served.memory()), &beside)?;
    let stands_in_for = stands_in(&place, &roles).then(|| place.folder.clone());
    let OtherLoops { watchdog, notifier, sentinel } = loops;
    let parties = Parties {
        surface,
        interface,
        engine,
        watchdog,
        notifier,
        stands_in_for,
        sentinel,
        guard,
        reload,
        runtime,
        held,
    };
    Ok((parties, greeting, witness))
}

/// Takes over what jobs reported while no process was there to hear it.
fn take_over_spooled(
    project: (&Path, &Path),
    interface: Option<&Interface>,
    store: &Arc<dyn Store>,
) {
    let address = interface.map(|interface| (interface.scheme(), interface.address()));
    let names = spooled::names(project, address);
    tokio::spawn(spooled::take_over(Arc::clone(store), names));
}

/// Whether this process writes an embedded ledger only while no other process wants to.
fn stands_in(place: &Place, roles: &Roles) -> bool {
    place.is_embedded() && !roles.has(RoleName::Engine) && roles.write_the_ledger()
}

/// Where this process keeps what is its own: the project's folder, and beside an engine a folder in it.
fn machine_folder(place: &Place, roles: &Roles) -> PathBuf {
    if roles.has(RoleName::Engine) || !roles.write_the_ledger() {
        return place.folder.clone();
    }
    place.folder.join(roles.words().join("-"))
}

/// What this machine remembers of the store; whoever has the engine, and with it the folder, keeps it.
async fn witness(
    place: &Place,
    roles: &Roles,
    store: &Arc<dyn Store>,
) -> Result<Option<Witness>, Failure> {
    if !roles.has(RoleName::Engine) {
        return Ok(None);
    }
    let witness = Witness::ask(place, store).await?;
    if let Some(witness) = witness.clone() {
        tokio::spawn(witness.go_on());
    }
    Ok(witness)
}

/// Takes up what can be had at once; answers with what was said of the files, and with what is broken among them.
async fn begin(
    (owner, files): (&mut Owner<Engines>, &Files),
    store: &Arc<dyn Store>,
    greeting: &mut Greeting,
) -> Result<(BTreeSet<String>, BrokenFiles), Failure> {
    owner.first().await.map_err(|error| failed(error.to_string()))?;
    let unreached = &owner.parts.unreached;
    let mut broken = BrokenFiles::load(files.clone(), Arc::clone(store), unreached).await;
    let mut told = BTreeSet::new();
    if let Some((overview, scan)) = owner.parts.work.begun.lock().await.take() {
        greeting.take(overview, &scan);
        told = tell_problems(&scan.problems, &BTreeSet::new());
        broken.report(&scan).await;
    }
    let roll = store.roll().await?;
    greeting.shards = owners::sentence(roll.as_ref(), store.shard_count());
    Ok((told, broken))
}

/// Ends this process when one of its loops hangs.
fn guard(
    around: (&Path, LogForm),
    server: &Server,
    (surface, memory): (&Surface, Memory),
    beside: &Handle,
) -> Result<Option<Guard>, Failure> {
    let runtimes = [("main", &Handle::current()), ("beside", beside)];
    let mut guard = match Guard::start(around, &surface.loops, memory, &runtimes) {
        Ok(guard) => guard,
        Err(error) => {
            tracing::error!(%error, "the hang guard failed to start");
            return Ok(None);
        }
    };
    // Nobody else has set it.
    drop(surface.guard.set(guard.probe()));
    if let Some(address) = &server.probes {
        guard.answer_at(address).map_err(|error| {
            let message = format!("cannot answer probes at {address}: {error}");
            Failure::failed(message, "`server.probes` in interlock.yaml says where.")
        })?;
    }
    Ok(Some(guard))
}

/// What is known before anything is loaded.
fn greeting(place: &Place, roles: &Roles, surface: &Surface) -> Greeting {
    Greeting {
        pipelines: 0,
        problems: (0, String::new()),
        held: 0,
        reach: surface.reach(),
        scheme: http::scheme(surface.certificate.get()),
        roles: roles.words(),
        overview: None,
        place: place.to_string(),
        shards: None,
        now: clock::now(),
    }
}

/// The HTTP interface, if that is among the roles.
async fn interface(
    roles: &Roles,
    config: &ServerConfig,
    (place, surface): (&Place, &Arc<Surface>),
) -> Result<Option<Interface>, Failure> {
    if !roles.has(RoleName::Api) {
        return Ok(None);
    }
    Interface::start(&config.server, place, surface).await.map(Some)
}

/// Lets a notifier run where the engine cannot block it.
fn start_notifier(beside: &Handle, around: notifier::Around<'_>) -> Result<Loop<()>, Failure> {
    let entered = beside.enter();
    let notifier = notifier::open(around)
        .map_err(|error| failed(format!("cannot make an HTTP client: {error}")))?;
    drop(entered);
    Ok(Loop::begin(beside, |stop| notifier::run(notifier, stop)))
}

/// Has somebody watch this process, on a thread of its own.
fn post_sentinel(
    (surface, store): (&Arc<Surface>, &Arc<dyn Store>),
    (folder, beacons, outbound): (&Path, &[Beacon], &Outbound),
    files: Files,
    (vitals, unreached): (Arc<Vitals>, Arc<Unreached>),
) -> Result<Sentinel, Failure> {
    let (surface, store) = (Arc::clone(surface), Arc::clone(store));
    let (folder, outbound) = (folder.to_path_buf(), outbound.clone());
    let beacons = beacons.to_vec();
    let pulse = watched(&surface, "sentinel", sentinel::BOUND);
    let around = move || {
        let web = Web::new(&outbound).map_err(io::Error::other)?;
        let beacons = Beacons::new(&beacons, web.clone());
        let spool = Spool::open(&folder, files, web, notifier::console());
        Ok(sentinel::Around { surface, store, vitals, beacons, spool, pulse, unreached })
    };
    Sentinel::start(around).map_err(|error| failed(format!("cannot watch this process: {error}")))
}

/// The runtime that the engine cannot block.
fn beside() -> Result<Beside, Failure> {
    Beside::new().map_err(|error| failed(format!("cannot start the runtime: {error}")))
}

/// A pulse that `/healthz` watches.
fn watched(surface: &Surface, name: &'static str, bound: Duration) -> Pulse {
    let pulse = Pulse::default();
    surface.loops.register(name, pulse.clone(), bound);
    pulse
}

fn failed(message: impl Into<String>) -> Failure {
    Failure::failed(message, "")
}

/// Runs something that blocks where it blocks nobody.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    spawn_blocking(work).await.map_err(|error| failed(error.to_string()))
}

/// The store: to write it for an engine, to write it while no other process wants to for what judges and tells, else
/// only to read it and to leave requests.
async fn open(
    place: &Place,
    roles: &Roles,
    damaged: Damaged,
) -> Result<(Arc<dyn Store>, Held), Failure> {
    let is_writer = roles.has(RoleName::Engine);
    let recovers = damaged == Damaged::SetAside;
    if recovers && !(is_writer && place.is_embedded()) {
        return Err(Failure::usage(
            "`--recover` is about a ledger in a file, and about the process that writes it",
            "A store on a server is recovered with that server's own means. Without `--roles` a process writes.",
        ));
    }
    if is_writer || roles.write_the_ledger() {
        close_to_others(place)?;
    }
    if stands_in(place, roles) {
        return Ok((stand_in::take(&place.folder).await?, Held::default()));
    }
    let place = place.clone();
    let opened = blocking(move || -> Result<_, Failure> {
        if recovers && let Some(recovery) = recover(&place.folder, clock::now())? {
            tracing::warn!("{}", recovery.message);
        }
        if is_writer {
            let held = place.hold()?;
            Ok((place.open_writer(writer::SERVE, writer::SERVE_WAITS)?, held))
        } else {
            let store = place.open_server()?;
            Ok((store.map_or_else(|| place.open_reader(), Ok)?, Held::default()))
        }
    });
    opened.await?
}

/// Closes the state folder to other users of this machine: the ledger holds whole declarations.
fn close_to_others(place: &Place) -> Result<(), Failure> {
    for open in place.make_private()? {
        let (path, mode) = (open.path.display(), format!("{:04o}", open.mode));
        let error = open.error.map(|error| error.to_string()).unwrap_or_default();
        tracing::warn!(%path, %mode, %error, "other users of this machine can read this file of the state folder");
    }
    Ok(())
}

/// Refuses a store that `interlock store copy` has not finished, where what is missing would be owed again; and one that it
/// has moved elsewhere, where everything is done already.
async fn refuse_left_behind(store: &dyn Store, place: &Place) -> Result<(), Failure> {
    let keys = [COPYING_KEY, MOVED_KEY].map(|key| Key::Sensor(key.to_owned()));
    let rows = store.read(&PipelineId::system(), &keys).await?;
    let mut rows = rows.into_iter().map(|row| row.map(|row| row.record));
    if let Some(Some(_)) = rows.next() {
        return Err(Failure::failed(
            format!("{place} is a copy that was not finished"),
            format!(
                "Empty it, and begin again with `interlock store copy`. To empty it: {}",
                place.how_to_empty()
            ),
        ));
    }
    match rows.next() {
        Some(Some(Record::Sensor(moved))) => Err(Failure::failed(
            format!(
                "{place} was moved to {} ({})",
                moved.value["to"].as_str().unwrap_or("another store"),
                moved.at
            ),
            "Let interlock.yaml name that one. If this one is to be served after all, with all that has been done there \
             meanwhile owed again: `interlock store reclaim`.",
        )),
        _ => Ok(()),
    }
}

/// A project that is served, and what its loops are built from.
struct Served<'a> {
    directory: &'a Path,
    place: &'a Place,
    config: &'a ServerConfig,
    roles: &'a Roles,
    files: Files,
    specs: StoredSpecs,
    zones: Arc<SystemZones>,
    store: Arc<dyn Store>,
    /// Who this process is to the store's leases.
    holder: String,
    unreached: Arc<Unreached>,
    /// From the watchdog to the notifier: there is something new in the outbox.
    news: Arc<Notify>,
    surface: &'a Arc<Surface>,
    /// The runtime that the engine cannot block.
    beside: &'a Handle,
}

/// Engines that have loaded what is theirs.
struct StartedEngine {
    owner: Owner<Engines>,
    host: Host,
    /// Where changes of the files go.
    changes: mpsc::Sender<Changes>,
    /// What was said of the files.
    told: BTreeSet<String>,
    broken: BrokenFiles,
}

/// The loops beside the engine, or without one.
#[derive(Default)]
struct OtherLoops {
    watchdog: Option<Loop<()>>,
    notifier: Option<Loop<()>>,
    sentinel: Option<Sentinel>,
}

impl Served<'_> {
    /// What a report of a hang says of memory.
    fn memory(&self) -> Memory {
        let vitals = self.surface.vitals.get().cloned();
        Memory { vitals, declarations: self.specs.kept() }
    }

    /// Loads what this instance owns.
    async fn begin_engine(
        &self,
        agreement: Agreement,
        greeting: &mut Greeting,
    ) -> Result<StartedEngine, Failure> {
        let (changes, declarations) = mpsc::channel(PORTIONS);
        let (mut owner, host) = self.owner(agreement, declarations)?;
        let (told, broken) = begin((&mut owner, &self.files), &self.store, greeting).await?;
        Ok(StartedEngine { owner, host, changes, told, broken })
    }

    /// Starts what there is to start where there is no engine.
    async fn start_without_engine(
        &self,
        folder: &Path,
        asked: mpsc::UnboundedReceiver<()>,
    ) -> Result<OtherLoops, Failure> {
        self.watch_channels(asked);
        if !self.roles.write_the_ledger() {
            return Ok(OtherLoops::default());
        }
        let vitals = Arc::clone(self.surface.vitals.get_or_init(Arc::default));
        let loops = self.start_others(folder, &vitals)?;
        self.tell_hang_reports(folder).await;
        Ok(loops)
    }

    /// Starts what judges, tells and looks after this process, as far as that is among the roles.
    fn start_others(&self, folder: &Path, vitals: &Arc<Vitals>) -> Result<OtherLoops, Failure> {
        let mut loops = OtherLoops::default();
        if self.roles.has(RoleName::Watchdog) {
            let around = self.around_watchdog();
            loops.watchdog = Some(Loop::begin(self.beside, |stop| watchdog::run(around, stop)));
        }
        if self.roles.has(RoleName::Notifier) {
            let around = notifier::Around {
                files: self.files.clone(),
                specs: self.specs.clone(),
                store: Arc::clone(&self.store),
                outbound: &self.config.engine.outbound,
                vitals: Arc::clone(vitals),
                pulse: watched(self.surface, "notifier", notifier::BOUND),
                threads: self.place.folder.join("threads.jsonl"),
                console: notifier::console(),
                news: Arc::clone(&self.news),
            };
            loops.notifier = Some(start_notifier(self.beside, around)?);
        }
        let seen = (Arc::clone(vitals), Arc::clone(&self.unreached));
        let around = (folder, self.beacons(), &self.config.engine.outbound);
        let watched = (self.surface, &self.store);
        loops.sentinel = Some(post_sentinel(watched, around, self.files.clone(), seen)?);
        Ok(loops)
    }

    /// Looks whether everything is as it should be, for those who ask over HTTP.
    fn doctor(&self) -> HostDoctor {
        doctor::within_serve(self.place, &self.store, &self.config.server, &self.holder)
    }

    /// Says what this instance is like, where it can be read by others. A process that may only read a ledger in a file cannot.
    fn report_itself(&self, interface: Option<&Interface>) {
        if self.place.is_embedded() && !self.roles.write_the_ledger() {
            return;
        }
        // Without one it asks nothing of others, and answers their questions for what it is not known by with a refusal.
        if let Some(identity) = InstanceIdentity::new(self.holder.clone(), host_name()) {
            self.surface.identity.get_or_init(|| identity);
        }
        let reporter = SelfReporter {
            store: Arc::clone(&self.store),
            surface: Arc::clone(self.surface),
            holder: self.holder.clone(),
            host: host_name(),
            roles: self.roles.words(),
            address: interface.map(Interface::address),
            jobs_host: self.place.known_host(),
            started_at: clock::now(),
        };
        self.beside.spawn(reporter.run());
    }

    /// The beacons say that pipelines are run: a process that only watches must not say it for an engine that is dead.
    fn beacons(&self) -> &[Beacon] {
        if self.roles.has(RoleName::Engine) { &self.config.beacons } else { &[] }
    }

    /// Lets the engines run, and what only their process does.
    async fn run_engine(
        &self,
        started: StartedEngine,
        asked: mpsc::UnboundedReceiver<()>,
    ) -> attend::Engine {
        let StartedEngine { owner, host, changes, told, broken } = started;
        let pulse = watched(self.surface, "reload", reload::BOUND);
        let files = self.files.clone();
        tokio::spawn(Reload { files, engine: changes, asked, pulse, told, broken }.watch());
        let folder = &self.place.folder;
        tokio::spawn(retention::keep_logs(self.place.runner_folder(), self.config.retention.logs));
        let (store, holder) = (&self.store, &self.holder);
        let kept = retention::Kept::of(self.config);
        self.beside.spawn(retention::keep_ledger(Arc::clone(store), holder.clone(), kept));
        self.beside.spawn(retention::keep_answers(Arc::clone(store), holder.clone()));
        self.tell_hang_reports(folder).await;
        run_engines(owner, host, self.surface)
    }

    /// Has people told of processes that hung.
    async fn tell_hang_reports(&self, folder: &Path) {
        let reports = Reports::found_by(folder, &self.store);
        tokio::spawn(reports.tell_what_is_there().await.tell_what_comes());
    }

    /// Uses the alert channels of `interlock.yaml` as they are and as they will be, where no engine reads the files.
    fn watch_channels(&self, asked: mpsc::UnboundedReceiver<()>) {
        self.files.use_channels(&self.config.alerts);
        let pulse = watched(self.surface, "reload", reload::BOUND);
        let (files, zones) = (self.files.clone(), Arc::clone(&self.zones));
        tokio::spawn(ChannelReload { files, zones, asked, pulse }.watch());
    }

    /// Who owns shards of the store, and what its engines share.
    fn owner(
        &self,
        agreement: Agreement,
        declarations: mpsc::Receiver<Changes>,
    ) -> Result<(Owner<Engines>, Host), Failure> {
        let (store, specs) = (&self.store, self.specs.clone());
        let (holder, files) = (self.holder.clone(), self.files.clone());
        let (reports_in, reports) = mpsc::unbounded_channel();
        let outbound = &self.config.engine.outbound;
        let runner = self.place.runner_folder();
        let triggers =
            wiring::triggers(self.directory, &runner, outbound, reports_in).map_err(failed)?;
        let triggers = Arc::new(triggers);
        let evaluators = evaluators::of(self.directory, self.config)
            .map_err(|error| failed(format!("cannot ask evaluators: {error}")))?;
        let evaluators: Arc<dyn Evaluators> = Arc::new(evaluators);
        let remote = RemoteEvaluators {
            evaluators: Arc::clone(&evaluators),
            runtime: tokio::runtime::Handle::current(),
        };
        // Only the first engine of a process is asked; there is one.
        let _known = self.surface.evaluators.set(EvaluatorHandle(Arc::new(remote)));
        let (ways, host) = (Ways::new(store.shard_count()), Host::named(self.place.host()?));
        let (taken_over_in, taken_over) = mpsc::unbounded_channel();
        let teller = Teller {
            ways: ways.clone(),
            store: Arc::clone(store),
            triggers: Arc::clone(&triggers),
            host: host.clone(),
        };
        tokio::spawn(teller.tell(reports, taken_over));
        tokio::spawn(ways.clone().declare(declarations));
        let pace = self.place.pace();
        let work = Engines {
            world: Arc::new(TokioWorld::new()),
            specs: Arc::new(specs),
            store: Arc::clone(store),
            triggers,
            evaluators,
            ways,
            holder: holder.clone(),
            pace,
            limits: wiring::limits(self.config),
            host: host.clone(),
            files,
            agreement,
            gate: watch::Sender::new(false),
            begun: tokio::sync::Mutex::default(),
            unreached: Arc::clone(&self.unreached),
        };
        if let Some(name) = self.place.host()? {
            let (store, me) = (Arc::clone(store), holder.clone());
            let (files, host, by) = (work.files.clone(), name.clone(), holder.clone());
            tokio::spawn(concord::go_on(concord::Around {
                store: Arc::clone(&store),
                files,
                host,
                me: by,
            }));
            tokio::spawn(async move {
                roster::say_back(store.as_ref(), &name).await;
                caution::go_on(store, me).await;
            });
        }
        let owner = Owner::new(OwnerParts {
            store: Arc::clone(store),
            role: Role::Engine,
            holder,
            lease: pace.lease,
            work: Arc::new(work),
            pulse: Pulse::default(),
            taken_over: Some(taken_over_in),
            unreached: Arc::clone(&self.unreached),
        });
        Ok((owner, host))
    }

    /// What the watchdog needs of the rest.
    fn around_watchdog(&self) -> watchdog::Around {
        watchdog::Around {
            store: Arc::clone(&self.store),
            holder: self.holder.clone(),
            lease: self.place.pace().lease,
            zones: Arc::clone(&self.zones),
            config: self.config.watchdog.clone(),
            vitals: Arc::clone(self.surface.watchdog.get_or_init(Arc::default)),
            pulse: watched(self.surface, "watchdog", watchdog::BOUND),
            files: self.files.clone(),
            unreached: Arc::clone(&self.unreached),
            news: Arc::clone(&self.news),
        }
    }
}

/// Lets the engines' loops run, watched: one that does not come round while a lease lasts is late.
fn run_engines(owner: Owner<Engines>, host: Host, surface: &Surface) -> attend::Engine {
    let lease = Duration::try_from(Pace::default().lease).unwrap_or(END_IN);
    surface.loops.register("engine", owner.parts.pulse.clone(), lease);
    surface.vitals.get_or_init(|| host.vitals);
    owner.parts.work.gate.send_replace(true);
    Loop::begin(&Handle::current(), |stop| owner.run(Box::pin(asked(stop))))
}

/// Becomes the runner.
pub(super) fn run_runner(directory: &Path) -> u8 {
    if interlock_trigger::runner::main(directory) == process::ExitCode::SUCCESS {
        SUCCESS
    } else {
        FAILED
    }
}
