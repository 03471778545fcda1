//! What the process was doing when it stood still.
//!
//! The sick process only copies: a signal makes each thread store its registers and the top of its stack in an arena that was
//! there before. A helper, another process that was also there before, unwinds and names them and writes the report; it reads
//! through ptrace what a thread that blocks signals did not store. Unwinding inside the sick process is not tried: it needs the
//! very locks that it may hang on.
//!
//! The names of functions and lines need the feature `forensics`; without it there are addresses. The monitor only ever calls
//! a `Dumper`; the one there is is [`Forensics`].

pub(crate) mod arena;
mod collector;
mod gathered;
mod heap;
mod observed;
mod report;
mod scribe;
#[cfg(all(feature = "forensics", target_arch = "x86_64"))]
mod symbols;
mod text;
mod wellness;

pub use self::{
    collector::Forensics,
    report::{Fate, Found, found},
    scribe::{Written, help},
    wellness::{Recovered, recovered},
};
pub(crate) use self::{
    report::{Report, report_end, report_on},
    wellness::is_well,
};
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
