//! The watchdog: judges absence, from the store alone.
//!
//! It shares no memory, thread, lease or watermark with scheduler and controller, so that it sees when they are
//! dead or hung. Everything has one shape: a [`Snapshot`] of one pipeline with what is due of it, ten checks in one
//! table ([`CHECKS`]), each a pure function of (snapshot, now), and one group for each finding. The resident loop
//! ([`Watchdog`]), one pass for a cron job ([`once`]) and the functions under the names of the Go controller
//! ([`polling`]) differ only in who calls them. See `docs/adr/0013-watchdog.md`.

mod bark;
mod check;
mod clock;
mod durable;
mod finding;
mod gather;
mod judging;
mod load;
pub mod once;
mod owed;
mod plan;
pub mod polling;
mod reports;
mod resident;
mod scan;
mod scanning;
pub mod seam;
mod snapshot;
mod sweep;
mod vitals;
mod watched;
pub mod wire;

pub use check::{CHECKS, Check, Judged, judge};
pub use finding::{CheckName, Finding, Remedy};
pub use interlock_store::coverage::DEAF_AFTER;
pub use owed::{Owed, SETTLE};
pub use resident::{Hearers, Pace, Parts, Watchdog, WatchdogError};
pub use scan::{Scanned, Scanner, Violation};
pub use snapshot::{Known, Place, Reported, Snapshot, SpanSeen};
pub use vitals::WatchdogVitals;
