//! What the process was doing when it stood still.
//!
//! The monitor only ever calls a [`Dumper`]; what one does is behind the feature `forensics`.

use crate::{hooks::Expiry, roster::Roster};

/// Whether the monitor stays until the report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It has other watches to look after.
    No,
    /// For a moment: the process ends next.
    Briefly,
}

/// What became of a wish for a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "forensics"), expect(dead_code, reason = "nobody takes dumps"))]
pub(crate) enum Dumped {
    /// The stacks were taken, in so many nanoseconds.
    Taken(u64),
    /// There were too many of late.
    Suppressed,
}

/// Takes the stacks of all threads. Called on the monitor's thread: allocates nothing, and waits at most a moment.
pub(crate) trait Dumper: Send {
    fn dump(&mut self, expiry: &Expiry, roster: &Roster, now: u64, wait: Wait) -> Dumped;

    /// The process that may trace this one.
    fn helper(&self) -> Option<i32>;
}
