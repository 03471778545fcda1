//! Real time and real tasks.

use std::time::Duration;

use interlock_engine::seam::{Task, World};
use jiff::Timestamp;
use tokio::{runtime::Handle, time::Instant};

use crate::clock;

/// The longest that one sleep lasts: the wall clock is looked at again at least this often, so that a
/// machine that slept or a clock that was set is noticed.
const NAP_MAX: Duration = Duration::from_secs(30);

/// The world that `serve` runs in.
#[derive(Debug, Clone)]
pub(crate) struct TokioWorld {
    runtime: Handle,
    began: Instant,
}

impl TokioWorld {
    /// Inside a tokio runtime.
    pub(crate) fn new() -> Self {
        Self { runtime: Handle::current(), began: Instant::now() }
    }
}

impl World for TokioWorld {
    fn now(&self) -> Timestamp {
        // The ledger keeps milliseconds; finer instants would not survive it.
        let now = clock::now();
        Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
    }

    fn uptime(&self) -> Duration {
        self.began.elapsed()
    }

    fn boot(&self) -> Option<Duration> {
        clock::boot()
    }

    fn sleep_until(&self, at: Timestamp) -> Task<()> {
        let nap = Duration::try_from(at.duration_since(clock::now())).unwrap_or(Duration::ZERO);
        Box::pin(tokio::time::sleep(nap.min(NAP_MAX)))
    }

    fn spawn(&self, _name: &'static str, task: Task<()>) {
        self.runtime.spawn(task);
    }
}

/// The watchdog has a seam of its own; time is the same.
impl interlock_watchdog::seam::World for TokioWorld {
    fn now(&self) -> Timestamp {
        World::now(self)
    }

    fn boot(&self) -> Option<Duration> {
        World::boot(self)
    }

    fn sleep_until(&self, at: Timestamp) -> Task<()> {
        World::sleep_until(self, at)
    }
}
