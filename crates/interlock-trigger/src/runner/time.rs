//! The runner's door to the clocks.
//!
//! The runner is a process of its own that no simulation ever runs: it reads the clocks itself.
//! Deadlines use the monotonic one; what is told and written uses the wall clock.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// The wall clock.
#[expect(clippy::disallowed_methods, reason = "the runner's one door to the wall clock")]
pub(crate) fn wall() -> Timestamp {
    Timestamp::now()
}

/// A point in monotonic time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Instant);

impl Moment {
    /// Now.
    #[expect(clippy::disallowed_methods, reason = "the runner's one door to monotonic time")]
    pub(crate) fn now() -> Self {
        Self(Instant::now())
    }

    /// This much later; far away instead of overflowing.
    pub(crate) fn after(self, wait: Duration) -> Self {
        const FAR: Duration = Duration::from_hours(10 * 365 * 24);
        Self(self.0.checked_add(wait).unwrap_or(self.0 + FAR))
    }

    /// How long until then; zero if it has passed.
    pub(crate) fn until(self, later: Self) -> Duration {
        later.0.saturating_duration_since(self.0)
    }
}
