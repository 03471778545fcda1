//! The archive: what happened, kept in PostgreSQL for SQL and dashboards (`docs/adr/0022-archive.md`).
//!
//! An [`Archiver`] reads a store page by page and writes tables of the schema `archive`: `events` (appended), `runs`,
//! `run_logs`, `slots`, `spans` and `incidents` (as they are now), and `cursors`. A pass has the shape of every loop here:
//! read what is next ([`reading`]), turn it into rows ([`batch`], pure), write them and the
//! cursors in one transaction ([`target`]), and only then tell the store how far that was.
//!
//! **Every row exactly once.** The cursors move in the transaction of the rows, from where they were read. Whoever is killed,
//! loses the connection or comes second has changed nothing, and the next one begins at the cursor.
//!
//! It works from every engine, by three verbs of the contract: `events`, `changes` and `rows`.

mod archiver;
mod batch;
mod failure;
mod json;
mod load;
mod reading;
mod rows;
mod schema;
mod table;
mod target;

pub use self::{
    archiver::{Archiver, Standing, Summary, Telling},
    failure::ArchiveError,
    target::Target,
};

/// The schema of the tables.
pub const SCHEMA: &str = "archive";
/// How many rows are read at once, unless somebody says otherwise.
pub const ROWS_AT_ONCE: usize = 500;
/// How many reads one transaction takes.
pub const READS_MAX: usize = 20;
