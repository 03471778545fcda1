//! What every owner of an engine in this binary gives it in the same way, `serve` and a command alone.

use std::{path::Path, sync::Arc};

use interlock_config::server::ServerConfig;
use interlock_core::outbound::Outbound;
use interlock_engine::Limits;
use interlock_trigger::{LocalTriggers, Options, Report};
use tokio::sync::mpsc;

use crate::{clock, environment};

/// What interlock.yaml allows at once.
pub(crate) fn limits(config: &ServerConfig) -> Limits {
    Limits {
        runs_max: config.engine.runs_max,
        catchup_runs_max: config.engine.catchup_runs_max,
        catchup_per_minute: config.engine.catchup_per_minute,
        evaluation_interval: config.watcher.default_interval,
        stuck_after: config.watchdog.stuck_run_threshold,
    }
}

/// The triggers of a project; jobs run through the runner in its state folder, which is started when nobody
/// answers there.
pub(crate) fn triggers(
    directory: &Path,
    runner: &Path,
    outbound: &Outbound,
    reports: mpsc::UnboundedSender<Report>,
) -> Result<LocalTriggers, String> {
    let mut options = Options::new(directory.to_path_buf()).map_err(|error| error.to_string())?;
    options.outbound.clone_from(outbound);
    let (clock, variable) = (Arc::new(clock::now), Arc::new(environment::variable));
    LocalTriggers::new(runner, reports, clock, variable, options)
        .map_err(|error| format!("cannot reach the runner: {error}"))
}
