//! What `serve` adds to the engine: real time, the project's files, evaluators, the log, signals and
//! the HTTP interface.

pub(crate) mod archive_watch;
pub(crate) mod archiver;
pub(crate) mod attend;
pub(crate) mod broken;
pub(crate) mod caution;
pub(crate) mod concord;
pub(crate) mod engines;
pub(crate) mod evaluators;
pub(crate) mod files;
pub(crate) mod greeting;
pub(crate) mod guard;
pub(crate) mod http;
mod index;
pub(crate) mod letters;
pub(crate) mod log;
pub(crate) mod making;
mod notice;
pub(crate) mod notifier;
pub(crate) mod reload;
pub(crate) mod reports;
pub(crate) mod retention;
pub(crate) mod roles;
pub(crate) mod roster;
pub(crate) mod sentinel;
pub(crate) mod shards;
pub(crate) mod signals;
pub(crate) mod specs;
pub(crate) mod spooled;
pub(crate) mod telling;
pub(crate) mod unreached;
mod watch;
pub(crate) mod watchdog;
pub(crate) mod wiring;
pub(crate) mod witness;
pub(crate) mod world;
