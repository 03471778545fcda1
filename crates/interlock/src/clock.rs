//! The one door to the clocks.

use std::time::Duration;

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The present instant.
#[expect(clippy::disallowed_methods, reason = "this is the one door")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// How long ago the machine was started, sleep included: the clock that nobody sets.
pub(crate) fn boot() -> Option<Duration> {
    Duration::try_from(clock_gettime(ClockId::Boottime)).ok()
}
