//! What `serve` adds to the engine: real time, the project's files, evaluators, keeping and the log.

pub(crate) mod evaluators;
pub(crate) mod files;
pub(crate) mod index;
pub(crate) mod log;
pub(crate) mod reload;
pub(crate) mod retention;
pub(crate) mod specs;
pub(crate) mod watch;
pub(crate) mod world;
