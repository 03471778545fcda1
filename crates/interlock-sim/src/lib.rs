//! The real engine in a seeded world of drifting clocks, failing stores and crashes.
//!
//! [`simulate`] runs several instances of Interlock, their jobs, evaluators, channels, files and people on virtual
//! time, lets a nemesis loose on them, then calms down, and judges all the while. Why it is so: `docs/adr/0015-simulator.md`.
//!
//! The parts, in the order in which they lean on each other: [`random`]; [`clockwork`] (time and tasks); [`gated`] (a store
//! behind a gate); [`truth`] and [`naive`] (what schedules really owe); [`files`], [`jobs`], [`around`] (evaluators and
//! channels); [`reporters`] (jobs that somebody else runs); [`feeds`] (reports that open slots); [`luck`] (what can go wrong); [`road`] and [`instances`]; [`check`] and [`tap`]; [`nemesis`]; [`mass`] (thousands of pipelines to which one thing happens) with [`work`] (how much a pass asks of the store); [`simulation`].

pub mod around;
pub mod bites;
pub mod check;
pub mod clockwork;
pub mod feeds;
pub mod files;
pub mod gated;
pub mod instances;
pub mod jobs;
pub mod luck;
pub mod mass;
pub mod naive;
pub mod nemesis;
pub mod random;
pub mod reporters;
pub mod road;
pub mod scenario;
mod sentinel;
pub mod simulation;
pub mod swarm;
pub mod tap;
mod telling;
pub mod truth;
pub mod work;

pub use simulation::{Options, Outcome, Weather, simulate};
