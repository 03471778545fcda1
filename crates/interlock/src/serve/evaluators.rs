//! The evaluators as `interlock.yaml` sets them up.

use std::{io, path::Path, sync::Arc};

use interlock_config::server::ServerConfig;
use interlock_evaluator::{LocalEvaluators, Options};

use crate::clock;

/// The evaluators of a project; programs are looked up relative to it, and run there.
pub(crate) fn of(directory: &Path, config: &ServerConfig) -> io::Result<LocalEvaluators> {
    let directory = directory.canonicalize()?;
    let folders = config.dirs.evaluators.iter().map(|folder| directory.join(folder)).collect();
    let options = Options {
        timeout: config.engine.default_timeout,
        at_once: config.engine.evaluations_max as usize,
        outbound: config.engine.outbound.clone(),
        ..Options::new(directory, folders)?
    };
    LocalEvaluators::new(options, Arc::new(clock::now))
}
