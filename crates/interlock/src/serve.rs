//! What `serve` adds to the engine: real time, the project's files, evaluators, alert channels and the log.

pub(crate) mod broken;
pub(crate) mod evaluators;
pub(crate) mod files;
pub(crate) mod log;
pub(crate) mod notifier;
pub(crate) mod reload;
pub(crate) mod world;
