//! The store on Redis, for several instances.
//!
//! Everything that changes something is a script: it runs alone on the server, so a group's term and
//! preconditions are checked and its changes made with nobody in between (S9). Leases are told by the server's
//! clock. Each request has an id, and the server keeps its answer for a minute, so that one whose answer was
//! lost is sent again and done once.
//!
//! **A Redis may forget what it acknowledged**: by a failover to a replica that lagged, or by a restart unless it
//! runs with `appendfsync always`. Each client counts what was acknowledged to it, and each request says the
//! count; a server that counts less has forgotten something. Every term is then ended, owners read the
//! store again, and [`RedisSettings::on_rollback`] is told. Terms are never smaller than the server's time, and the
//! numbers of events leave a gap, so that what was forgotten is not given a second time.
//!
//! Keys are those of the first Interlock where it had them (`docs/adr/0019-redis.md`, and the module `keys`).

mod apply;
mod client;
mod instances;
mod keys;
mod lease;
mod ledger;
mod link;
mod named;
mod numbers;
mod place;
mod queue;
mod read;
mod recover;
mod request;
mod roll;
mod server;
mod store;
mod views;
mod whole;

pub use self::store::{RedisSettings, RedisStore, RedisTls};
pub use interlock_store_remote::OnRollback;
