//! The store on PostgreSQL, for several instances.
//!
//! Whoever writes to a shard locks the shard's two lease rows first, in a transaction; so terms and
//! preconditions are checked against what stays true until it has committed, and a stale owner is refused by
//! the server (S9). Leases are told by the server's clock. Events take their numbers last, from a row that
//! stays locked until the commit: no event appears later with a smaller number.
//!
//! Nothing is kept in a session: no prepared statement has a name, no setting outlives its transaction, no
//! lock is held outside one. So it works behind a pooler that gives a connection to somebody else after each
//! transaction. A client that stops in the middle of a transaction loses it after [`STOPPED_MAX`], and with it
//! the lock.
//!
//! The layout is decided in `docs/adr/0020-postgres.md`, and written in `schema`.

mod apply;
mod crowd;
mod failure;
mod hint;
mod instances;
mod lease;
mod ledger;
mod pool;
mod queue;
mod read;
mod retention;
mod roll;
mod schema;
mod settle;
mod store;
mod whole;
mod witness;

pub use interlock_postgres::place;
pub use interlock_store_remote::OnRollback;

pub use self::{
    pool::STOPPED_MAX,
    store::{PostgresSettings, PostgresStore},
};
