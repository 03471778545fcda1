//! `interlock serve`: runs the pipelines of a project on the embedded store.

use std::{io::Write as _, path::Path, process, sync::Arc};

use interlock_config::{Loaded, server::StoreConfig};
use interlock_engine::{Engine, Limits, Pace, Parts};
use interlock_store::{Shard, Store};
use interlock_trigger::{LocalTriggers, Options};
use tokio::sync::mpsc;

use crate::{
    arguments::LogForm,
    clock, environment,
    exit::{FAILED, Failure, SUCCESS},
    output::Output,
    project,
    serve::{evaluators::CommandEvaluators, files::Files, log, reload, world::TokioWorld},
    writer,
};

pub(super) fn run(directory: &Path, form: LogForm, output: &mut Output) -> Result<u8, Failure> {
    log::start(form);
    let loaded = project::load(directory)?;
    project::mention_errors(&loaded, output)?;
    let StoreConfig::Embedded { path } = &loaded.config.store else {
        return Err(Failure::failed(
            "this build serves the embedded store only",
            "Write `provider: embedded` in interlock.yaml.",
        ));
    };
    let folder = directory.join(path);
    let store = writer::open(&folder, writer::SERVE, writer::SERVE_WAITS)?;
    greet(&loaded, &folder, output)?;
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::failed(format!("cannot start the runtime: {error}"), ""))?;
    runtime.block_on(serve(directory, &folder, loaded, Arc::new(store)))?;
    writeln!(output.out, "stopped; jobs that run go on, and the next `serve` takes them up")?;
    Ok(SUCCESS)
}

fn greet(loaded: &Loaded, folder: &Path, output: &mut Output) -> Result<(), Failure> {
    let count = loaded.pipelines.len();
    let s = if count == 1 { "" } else { "s" };
    writeln!(output.out, "serving {count} pipeline{s}; the ledger is in {}", folder.display())?;
    if interlock_trigger::runner::is_pid_one_namespace() {
        writeln!(
            output.out,
            "this is a container of its own: jobs end with it, and are then uncertain"
        )?;
    }
    Ok(())
}

async fn serve(
    directory: &Path,
    folder: &Path,
    loaded: Loaded,
    store: Arc<dyn Store>,
) -> Result<(), Failure> {
    let failed = |message: String| Failure::failed(message, "");
    let world = Arc::new(TokioWorld::new());
    let files = Files::new(directory);
    let (reports_in, reports) = mpsc::unbounded_channel();
    let (declarations_in, declarations) = mpsc::unbounded_channel();
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
    let evaluators = CommandEvaluators::new(directory, &loaded.config.dirs.evaluators);
    let parts = Parts {
        world,
        store,
        specs: Arc::new(files.clone()),
        triggers: Arc::new(triggers),
        evaluators: Arc::new(evaluators),
        reports,
        declarations,
        holder: writer::HOLDER.to_owned(),
        pace: Pace::default(),
        limits: Limits {
            runs_max: loaded.config.engine.runs_max,
            evaluation_interval: loaded.config.watcher.default_interval,
        },
    };
    let engine = Engine::open(parts, Shard(0)).await.map_err(|error| failed(error.to_string()))?;
    let Some(mut engine) = engine else {
        return Err(failed("another instance owns the pipelines".to_owned()));
    };
    let declared = files.install(loaded);
    engine.declare(&declared).await.map_err(|error| failed(error.to_string()))?;
    tokio::spawn(reload::watch(files, declarations_in));
    engine.run(Box::pin(stop())).await.map_err(|error| failed(error.to_string()))
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
