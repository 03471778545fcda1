//! The loops: load a snapshot, ask core, commit, act.
//!
//! [`Engine`] owns a shard: it opens due slots (scheduler) and brings them to their end (controller).
//! [`Notifier`] delivers what the outbox holds; it needs no shard. Both reach the world only through [`seam`], so
//! that the simulator can run the same code on virtual time.
//!
//! Invariant: nothing acts on the world before the group that says so is accepted by the store.

mod controller;
mod declare;
mod engine;
mod inbox;
mod news;
mod notifier;
mod request;
mod scheduler;
pub mod seam;
mod state;
mod tell;
mod write;

pub use engine::{Declaration, Engine, EngineError, Pace, Parts};
pub use notifier::{Notifier, NotifierParts, Patience};
