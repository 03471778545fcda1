//! The store in one file on disk, for one node: SQLite behind one writer thread.
//!
//! A folder (`.interlock/` unless told otherwise) holds:
//!
//! | file | what it is | who writes it |
//! |---|---|---|
//! | `ledger.db` | everything; SQLite in WAL mode, `synchronous=FULL` | one process, by one thread |
//! | `inbox.db` | reports and requests on their way to that process | everybody else |
//! | `daemon.lock` | locked while somebody writes the ledger; says who | the one who writes |
//!
//! [`EmbeddedStore::open_daemon`] is for the one who writes: `interlock serve`, or a command when nobody
//! serves. [`EmbeddedStore::open_reader`] is for all others: they read the ledger while it is written, and
//! what they post goes to `inbox.db`, so that nothing they do, and no moment at which they are stopped or
//! killed, can keep the daemon waiting.
//!
//! A damaged ledger is refused. [`recover()`] sets it aside and begins a new one with what can be read of it.
//!
//! There is one shard: leases are about ownership between processes, and only one can own this.
//!
//! No runtime is needed: calls are handed to threads of the store's own, and the futures are woken by them.
//! The layout of the ledger is decided in `docs/adr/0004-ledger-layout.md`.

mod answer;
mod apply;
mod failure;
mod file;
mod file_guard;
mod glance;
mod instances;
mod lease;
mod leave;
mod ledger;
mod lock;
mod log;
mod mailbox;
mod maintain;
mod memory;
mod network;
mod queue;
mod read;
mod readers;
mod recover;
mod runs;
mod salvage;
mod schema;
mod store;
mod table;
mod whole;
mod writer;

pub use self::{
    file::FILE_NAMES,
    leave::{Entry, OpenInbox, leave},
    lock::{DaemonLock, LockHolder, LockOutcome},
    maintain::{backup, check},
    recover::{Recovery, recover},
    store::{Clock, EmbeddedStore},
};
