//! The answers themselves: plain data, one file for each thing that is asked about.
//!
//! Instants are UTC, absent values are `null`, and fields are only ever added.

pub mod backfill;
pub mod badge;
pub mod coverage;
pub mod doctor;
pub mod event;
pub mod fleet;
pub mod health;
pub mod incident;
pub mod instance;
pub mod log;
pub mod next_slot;
pub mod page;
pub mod pause;
pub mod pipeline;
pub mod plan;
pub mod request;
pub mod run;
pub mod sensor;
pub mod session;
pub mod silence;
pub mod slot;
pub mod story;
pub mod token;
pub mod verdict;
pub mod watermark;
