//! `interlock serve`: runs the pipelines of a project on the embedded store.

use std::{io::Write as _, path::Path, process, sync::Arc};

use interlock_config::{
    SystemZones,
    server::{ServerConfig, StoreConfig},
};
use interlock_engine::{Engine, Pace, Parts};
use interlock_store::{Shard, Store};
use interlock_store_embedded::EmbeddedStore;
use interlock_trigger::{LocalTriggers, Options};
use tokio::sync::mpsc;

use crate::{
    arguments::LogForm,
    clock, environment,
    exit::{FAILED, Failure, SUCCESS},
    output::Output,
    project,
    serve::{
        evaluators::CommandEvaluators,
        files::{Files, Scan, Since},
        log, reload,
        specs::StoredSpecs,
        world::TokioWorld,
    },
};

/// How many portions of changed files may wait for the engine.
const PORTIONS: usize = 2;

pub(super) fn run(directory: &Path, form: LogForm, output: &mut Output) -> Result<u8, Failure> {
    log::start(form);
    let zones = Arc::new(SystemZones::new());
    let around = Files::around(directory, &zones)?;
    let StoreConfig::Embedded { path } = &around.config.store else {
        return Err(Failure::failed(
            "this build serves the embedded store only",
            "Write `provider: embedded` in interlock.yaml.",
        ));
    };
    let folder = directory.join(path);
    let store = EmbeddedStore::open_daemon(&folder, Arc::new(clock::now))
        .map_err(|error| Failure::failed(error.to_string(), ""))?;
    let project = Project { directory, folder: &folder, config: &around.config, zones };
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::failed(format!("cannot start the runtime: {error}"), ""))?;
    runtime.block_on(serve(project, Arc::new(store), output))?;
    writeln!(output.out, "stopped; jobs that run go on, and the next `serve` takes them up")?;
    Ok(SUCCESS)
}

fn greet(scan: &Scan, folder: &Path, output: &mut Output) -> Result<(), Failure> {
    project::mention_count(scan.errors, output)?;
    let count = scan.count;
    let s = if count == 1 { "" } else { "s" };
    writeln!(output.out, "serving {count} pipeline{s}; the ledger is in {}", folder.display())?;
    if interlock_trigger::runner::is_pid_one_namespace() {
        writeln!(
            output.out,
            "this is a container of its own: jobs end with it, and are then uncertain"
        )?;
    }
    output.out.flush()?;
    Ok(())
}

/// What is served.
struct Project<'a> {
    directory: &'a Path,
    folder: &'a Path,
    config: &'a ServerConfig,
    zones: Arc<SystemZones>,
}

async fn serve(
    project: Project<'_>,
    store: Arc<dyn Store>,
    output: &mut Output,
) -> Result<(), Failure> {
    let failed = |message: String| Failure::failed(message, "");
    let Project { directory, folder, config, zones } = project;
    let (reports_in, reports) = mpsc::unbounded_channel();
    let (declarations_in, declarations) = mpsc::channel(PORTIONS);
    let options =
        Options::new(directory.to_path_buf()).map_err(|error| failed(error.to_string()))?;
    let triggers = LocalTriggers::new(
        &folder.join("runner"),
        reports_in,
        Arc::new(clock::now),
        Arc::new(environment::variable),
        options,
    )
    .map_err(|error| failed(format!("cannot reach the runner: {error}")))?;
    let evaluators = CommandEvaluators::new(directory, &config.dirs.evaluators);
    let parts = Parts {
        world: Arc::new(TokioWorld::new()),
        specs: Arc::new(StoredSpecs::new(Arc::clone(&store), Arc::clone(&zones))),
        store,
        triggers: Arc::new(triggers),
        evaluators: Arc::new(evaluators),
        reports,
        declarations,
        // The store's own lock keeps a second process out, so whoever gets here is the one holder: a
        // restart after a crash need not wait for the dead one's lease to run out.
        holder: "daemon".to_owned(),
        pace: Pace::default(),
    };
    let engine = Engine::open(parts, Shard(0)).await.map_err(|error| failed(error.to_string()))?;
    let Some(mut engine) = engine else {
        return Err(failed("another instance owns the pipelines".to_owned()));
    };
    let files = Files::new(directory, folder, zones);
    let scan = declare(&files, &mut engine).await?;
    greet(&scan, folder, output)?;
    tokio::spawn(reload::watch(files, declarations_in));
    engine.run(Box::pin(stop())).await.map_err(|error| failed(error.to_string()))
}

/// Has the engine take over what the files say, portion by portion while they are read.
async fn declare(files: &Files, engine: &mut Engine) -> Result<Scan, Failure> {
    let in_force = engine.in_force().map(|(name, version)| (name.clone(), version)).collect();
    let (tell, mut told) = mpsc::channel(PORTIONS);
    let scanning = files.clone();
    let scan = tokio::task::spawn_blocking(move || {
        scanning.scan(&Since::Start(in_force), &mut |changes| tell.blocking_send(changes).is_ok())
    });
    while let Some(changes) = told.recv().await {
        let declared = engine.declare(&changes).await;
        declared.map_err(|error| Failure::failed(error.to_string(), ""))?;
    }
    scan.await.map_err(|error| Failure::failed(error.to_string(), ""))?
}

/// Ready when the process is asked to end.
async fn stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminate = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_unavailable) => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => {}
        () = terminate => {}
    }
}

/// Becomes the runner.
pub(super) fn run_runner(directory: &Path) -> u8 {
    if interlock_trigger::runner::main(directory) == process::ExitCode::SUCCESS {
        SUCCESS
    } else {
        FAILED
    }
}
