//! Heartbeats that somebody outside can judge: written by a [`Carrier`](crate::Carrier), heard by an [`Ear`].
//!
//! Whoever hears never compares somebody else's time with its own clock: it notes, by its own clock, when what it
//! sees *changes*. So no step of a clock makes a process look dead or alive.

mod check;
mod ear;
mod record;
mod writer;

pub use self::{
    check::{CheckError, Fresh, check},
    ear::{Ear, Heard},
    record::{Origin, Presence, Record},
    writer::{FileBeat, PipeBeat, inherited},
};
pub(crate) use self::{ear::open, record::boot};

/// Names the descriptor of an inherited memory file in which a record is expected.
pub const MEMORY_VARIABLE: &str = "INTERLOCK_HEARTBEAT_MEMORY";
/// Names the descriptor of an inherited pipe in which anything is expected, again and again.
pub const PIPE_VARIABLE: &str = "INTERLOCK_HEARTBEAT_PIPE";
/// Names a file that is expected to change.
pub const FILE_VARIABLE: &str = "INTERLOCK_HEARTBEAT_FILE";
