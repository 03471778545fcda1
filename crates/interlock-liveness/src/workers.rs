//! Workers of a tokio runtime that do not come back from a task.
//!
//! A task that asks "does the runtime still run tasks?" does not see one blocked worker among many: the others answer. The
//! runtime's own (stable) numbers do. A worker moves when it parks or unparks, and when its busy time grows; one that is
//! parked has nothing to do, which is as good as moving. Busy time is what tells a worker that is saturated from one that is
//! stuck, and it grows once per some sixty polls: a limit must be well above what those take.

use std::{cell::Cell, time::Duration};

use tokio::runtime::Handle;

use crate::{
    ladder::Ladder,
    monitor::{Monitor, RegisterError},
    watch::Observed,
};

/// The watches of a runtime's workers; they end with it.
#[derive(Debug)]
pub struct Workers(#[expect(dead_code, reason = "a watch ends when it is dropped")] Vec<Observed>);

impl Monitor {
    /// Watches every worker of a runtime, each by a watch of its own, from outside the runtime. The ladder is soft: one
    /// stuck worker is told and dumped, and does not end the process.
    pub fn watch_runtime(
        &self,
        name: &str,
        handle: &Handle,
        limit: Duration,
    ) -> Result<Workers, RegisterError> {
        let watch = |worker: usize| {
            let metrics = handle.metrics();
            let idle = Cell::new(0_u64);
            let moves = move || {
                let parks = metrics.worker_park_unpark_count(worker);
                // Parked: odd.
                idle.set(idle.get().wrapping_add(parks % 2));
                let busy = metrics.worker_total_busy_duration(worker).as_nanos() as u64;
                busy.wrapping_add(parks).wrapping_add(idle.get())
            };
            let name = format!("{name} worker {worker}");
            self.watch(&name, Ladder::soft(limit)).aside().observe(moves)
        };
        let count = handle.metrics().num_workers();
        Ok(Workers((0..count).map(watch).collect::<Result<_, _>>()?))
    }
}
