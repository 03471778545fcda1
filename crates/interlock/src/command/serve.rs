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

use interlock_api::{Phase, Surface};
use interlock_config::{
    SystemZones,
    server::{Server, ServerConfig},
};
use interlock_core::id::PipelineId;
use interlock_engine::{
    Changes, Pace,
    host::Host,
    vitals::{Pulse, Vitals},
};
use interlock_liveness::signals;
use interlock_store::{
    Key, Record, Role, Store,
    kept::{COPYING_KEY, MOVED_KEY},
};
use interlock_trigger::web::Web;
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
    task::spawn_blocking,
};

use crate::{
    arguments::{LogForm, RoleName, Serve},
    clock,
    exit::{FAILED, Failure, SUCCESS},
    output::Output,
    owners,
    place::{Held, Place},
    serve::{
        archiver,
        attend::{self, END_IN, Loop, Parties, asked},
        broken::BrokenFiles,
        caution, concord,
        engines::Engines,
        evaluators,
        files::{Agreement, Files, Scan},
        greeting::Greeting,
        guard::Guard,
        http::Interface,
        letters::{Teller, Ways},
        log, making, notifier,
        reload::{self, Reload, rendered},
        reports::Reports,
        retention,
        roles::Roles,
        roster,
        sentinel::{self, Beacons, Sentinel, Spool},
        shards::{Owner, OwnerParts},
        signals::{Requests as _, Signals},
        specs::StoredSpecs,
        spooled,
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
    let roles = Roles::asked(&asked.roles)?;
    // Before there is another thread, which would block what this one does: a daemon hears SIGTERM however it was started.
    signals::unblock();
    log::start(asked.log);
    let agreement = if asked.retire_missing { Agreement::Given } else { Agreement::Open };
    let (directory, log) = (directory.to_path_buf(), asked.log);
    let project = Project { directory, roles, agreement, log };
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::failed(format!("cannot start the runtime: {error}"), ""))?;
    let ended = runtime.block_on(serve(project, output));
    // A thread that is blocked must not keep the process.
    runtime.shutdown_background();
    if let Ok(message) = &ended {
        say(asked.log, output, message);
    }
    log::finish();
    ended.map(|_| SUCCESS)
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
}

async fn serve(project: Project, output: &mut Output) -> Result<&'static str, Failure> {
    let form = project.log;
    let mut signals = Signals::listen()
        .map_err(|error| Failure::failed(format!("cannot listen to signals: {error}"), ""))?;
    let started = tokio::select! {
        biased;
        signal = signals.stop() => {
            tracing::info!("{signal} while starting");
            return Ok("stopped before it was at work");
        }
        started = start(project) => started?,
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

async fn start(project: Project) -> Result<(Parties, Greeting, Option<Witness>), Failure> {
    let Project { directory, roles, agreement, log } = project;
    let surface = Arc::new(Surface::new(env!("CARGO_PKG_VERSION")));
    let zones = Arc::new(SystemZones::new());
    let (from, zones_read) = (directory.clone(), Arc::clone(&zones));
    let config = blocking(move || Files::around(&from, &zones_read)).await??.config;
    let roles = roles.given(config.archiver.as_ref())?;
    let place = Place::of(&directory)?;
    let (folder, holder) = (place.folder.clone(), place.holder());
    let ours = holder.clone();
    let (store, held) = open(&place, &roles).await?;
    refuse_left_behind(store.as_ref(), &place).await?;
    let witness = witness(&place, &roles, &store).await?;
    surface.enter(Phase::Starting("the ledger is being loaded"));
    surface.store.get_or_init(|| Arc::clone(&store));
    surface.maker.get_or_init(|| making::maker(&directory, &config.dirs.pipelines));
    let interface = interface(&roles, &config, (&folder, &surface)).await?;
    let mut greeting = greeting(&place, &roles, &surface);
    let names = spooled::names((&directory, &folder), interface.as_ref().map(Interface::address));
    tokio::spawn(spooled::take_over(Arc::clone(&store), names));
    let (reload, asked) = mpsc::unbounded_channel();
    let runtime = beside()?;
    let beside = runtime.handle().cloned().unwrap_or_else(Handle::current);
    archiver::start((&roles, &place, &config), &store, (&beside, &surface)).await?;
    let (mut sentinel, mut watchdog) = (None, None);
    let engine = if roles.has(RoleName::Engine) {
        let (directory, place, config) = (directory.as_path(), &place, &config);
        let unreached = Arc::<Unreached>::default();
        let served = Served { directory, place, config, zones, unreached: Arc::clone(&unreached) };
        let (changes, declarations) = mpsc::channel(PORTIONS);
        let specs = StoredSpecs::new(Arc::clone(&store), Arc::clone(&served.zones));
        let files = Files::new(directory, &folder, Arc::clone(&served.zones));
        let by = (holder.clone(), files.clone(), agreement);
        let (mut owner, host) = served.owner((&store, specs.clone()), by, declarations)?;
        let (told, broken) = begin((&mut owner, &files), &store, &mut greeting).await?;
        if roles.has(RoleName::Watchdog) && config.watchdog.enabled {
            let around = served.around_watchdog(&surface, &store, (holder, files.clone()));
            watchdog = Some(Loop::begin(&beside, |stop| watchdog::run(around, stop)));
        }
        if roles.has(RoleName::Notifier) {
            let pulse = watched(&surface, "notifier", notifier::BOUND);
            let (files, vitals) = (files.clone(), Arc::clone(&host.vitals));
            let outbound = &config.engine.outbound;
            let (store, threads) = (Arc::clone(&store), folder.join("threads.jsonl"));
            let around = notifier::Around { files, specs, store, outbound, vitals, pulse, threads };
            start_notifier(&beside, around)?;
        }
        let (around, seen) = ((folder.as_path(), config), (Arc::clone(&host.vitals), unreached));
        sentinel = Some(post_sentinel((&surface, &store), around, files.clone(), seen)?);
        let pulse = watched(&surface, "reload", reload::BOUND);
        tokio::spawn(Reload { files, engine: changes, asked, pulse, told, broken }.watch());
        tokio::spawn(retention::keep_logs(folder.join("runner"), config.retention.logs));
        let kept = retention::Kept::of(config);
        beside.spawn(retention::keep_ledger(Arc::clone(&store), ours.clone(), kept));
        beside.spawn(retention::keep_answers(Arc::clone(&store), ours));
        let reports = Reports::found_by(&folder, &store);
        tokio::spawn(reports.tell_what_is_there().await.tell_what_comes());
        Some(run_engines(owner, host, &surface))
    } else {
        None
    };
    surface.enter(Phase::Serving);
    let guard = guard((&folder, log), &config.server, &surface, &beside)?;
    let parties =
        Parties { surface, interface, engine, watchdog, sentinel, guard, reload, runtime, held };
    Ok((parties, greeting, witness))
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
        told = tell_problems(&scan);
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
    surface: &Surface,
    beside: &Handle,
) -> Result<Option<Guard>, Failure> {
    let runtimes = [("main", &Handle::current()), ("beside", beside)];
    let mut guard = match Guard::start(around, &surface.loops, &runtimes) {
        Ok(guard) => guard,
        Err(error) => {
            tracing::error!(%error, "nobody ends this process if it hangs");
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
        problems: 0,
        held: 0,
        reach: surface.reach(),
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
    (folder, surface): (&Path, &Arc<Surface>),
) -> Result<Option<Interface>, Failure> {
    if !roles.has(RoleName::Api) {
        return Ok(None);
    }
    Interface::start(&config.server, folder, surface).await.map(Some)
}

/// Lets a notifier run where the engine cannot block it.
fn start_notifier(beside: &Handle, around: notifier::Around<'_>) -> Result<(), Failure> {
    let entered = beside.enter();
    let notifier = notifier::open(around)
        .map_err(|error| failed(format!("cannot make an HTTP client: {error}")))?;
    drop(entered);
    beside.spawn(notifier::run(notifier));
    Ok(())
}

/// Has somebody watch this process, on a thread of its own.
fn post_sentinel(
    (surface, store): (&Arc<Surface>, &Arc<dyn Store>),
    (folder, config): (&Path, &ServerConfig),
    files: Files,
    (vitals, unreached): (Arc<Vitals>, Arc<Unreached>),
) -> Result<Sentinel, Failure> {
    let (surface, store) = (Arc::clone(surface), Arc::clone(store));
    let (folder, outbound) = (folder.to_path_buf(), config.engine.outbound.clone());
    let beacons = config.beacons.clone();
    let pulse = watched(&surface, "sentinel", sentinel::BOUND);
    let around = move || {
        let web = Web::new(&outbound).map_err(io::Error::other)?;
        let beacons = Beacons::new(&beacons, web.clone());
        let spool = Spool::open(&folder, files, web, notifier::console());
        Ok(sentinel::Around { surface, store, vitals, beacons, spool, pulse, unreached })
    };
    Sentinel::start(around).map_err(|error| failed(format!("cannot watch this process: {error}")))
}

/// Says what is wrong with the files; answers with what was said.
fn tell_problems(scan: &Scan) -> BTreeSet<String> {
    let told = rendered(&scan.problems);
    for problem in &told {
        tracing::warn!("{problem}");
    }
    if !told.is_empty() {
        tracing::warn!("what was loaded of a broken file stays in force");
    }
    told
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

/// The store: to write it, beside an engine; else only to read it and to leave requests.
async fn open(place: &Place, roles: &Roles) -> Result<(Arc<dyn Store>, Held), Failure> {
    let (place, is_writer) = (place.clone(), roles.has(RoleName::Engine));
    let opened = blocking(move || -> Result<_, Failure> {
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

/// A project that is served by engines.
struct Served<'a> {
    directory: &'a Path,
    place: &'a Place,
    config: &'a ServerConfig,
    zones: Arc<SystemZones>,
    unreached: Arc<Unreached>,
}

impl Served<'_> {
    /// Who owns shards of the store, and what its engines share.
    fn owner(
        &self,
        (store, specs): (&Arc<dyn Store>, StoredSpecs),
        (holder, files, agreement): (String, Files, Agreement),
        declarations: mpsc::Receiver<Changes>,
    ) -> Result<(Owner<Engines>, Host), Failure> {
        let (reports_in, reports) = mpsc::unbounded_channel();
        let outbound = &self.config.engine.outbound;
        let runner = self.place.folder.join("runner");
        let triggers =
            wiring::triggers(self.directory, &runner, outbound, reports_in).map_err(failed)?;
        let triggers = Arc::new(triggers);
        let evaluators = evaluators::of(self.directory, self.config)
            .map_err(|error| failed(format!("cannot ask evaluators: {error}")))?;
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
            evaluators: Arc::new(evaluators),
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
    fn around_watchdog(
        &self,
        surface: &Surface,
        store: &Arc<dyn Store>,
        (holder, files): (String, Files),
    ) -> watchdog::Around {
        watchdog::Around {
            store: Arc::clone(store),
            holder,
            lease: self.place.pace().lease,
            zones: Arc::clone(&self.zones),
            config: self.config.watchdog.clone(),
            vitals: Arc::clone(surface.watchdog.get_or_init(Arc::default)),
            pulse: watched(surface, "watchdog", watchdog::BOUND),
            files,
            unreached: Arc::clone(&self.unreached),
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
