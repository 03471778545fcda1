//! The clocks, as nanoseconds.
//!
//! Hang detection counts by the clock that stands still while the machine sleeps: nobody can progress then. Leases count by
//! the one that goes on, because the other side's clock goes on too. The wall clock decides nothing here.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since some moment; stands still while the machine sleeps.
pub(crate) fn monotonic() -> u64 {
    read(ClockId::Monotonic)
}

/// Nanoseconds since the machine was started, sleep included.
pub(crate) fn boottime() -> u64 {
    read(ClockId::Boottime)
}

fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The wall clock, to the second, for people to read.
pub(crate) fn wall() -> jiff::Timestamp {
    jiff::Timestamp::from_second(clock_gettime(ClockId::Realtime).tv_sec).unwrap_or_default()
}

/// A length of time in nanoseconds; half a millennium is as good as more.
pub(crate) fn nanos(length: std::time::Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX / 2).min(u64::MAX / 2)
}

/// What the clocks said at one moment, and when that moment was meant to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) monotonic: u64,
    pub(crate) boottime: u64,
    /// When the monitor meant to wake.
    pub(crate) planned: u64,
}

impl Reading {
    pub(crate) fn take(planned: u64) -> Self {
        Self { monotonic: monotonic(), boottime: boottime(), planned }
    }
}
