//! Workers of a tokio runtime that do not come back from a task, and its pool for what blocks.
//!
//! A task that asks "does the runtime still run tasks?" does not see one blocked worker among many: the others answer. The
//! runtime's own (stable) numbers do. A worker moves when it parks or unparks, and when its busy time grows; one that is
//! parked has nothing to do, which is as good as moving. Busy time is what tells a worker that is saturated from one that is
//! stuck, and it grows once per some sixty polls: a limit must be well above what those take.
//!
//! The pool has no such numbers. There a canary is sent in again and again, from a thread of its own, and has to come out in time:
//! in a pool whose threads are all taken it waits in the queue, as everybody else does.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread::{self, Thread},
    time::Duration,
};

use tokio::runtime::Handle;

use crate::{
    ladder::Ladder,
    monitor::{Monitor, RegisterError},
    watch::{Observed, Section},
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

    /// Watches the threads of a runtime on which blocking work runs. The ladder is soft: it is told and dumped when
    /// such work has to wait for longer than the limit.
    pub fn watch_blocking(
        &self,
        name: &str,
        handle: &Handle,
        limit: Duration,
    ) -> Result<Blocking, RegisterError> {
        let name = format!("{name} blocking pool");
        let section = self.watch(&name, Ladder::soft(limit)).aside().section()?;
        let stops = Arc::new(AtomicBool::new(false));
        let canary = Canary { handle: handle.clone(), every: limit / 4, stops: Arc::clone(&stops) };
        let thread = thread::Builder::new().name("lv-canary".to_owned());
        let thread = thread.spawn(move || canary.go_in_and_out(section));
        let thread = thread.map_err(RegisterError::HookThread)?.thread().clone();
        Ok(Blocking { stops, thread })
    }
}

/// The watch of a runtime's blocking threads; it ends with it.
#[derive(Debug)]
pub struct Blocking {
    stops: Arc<AtomicBool>,
    thread: Thread,
}

impl Drop for Blocking {
    fn drop(&mut self) {
        self.stops.store(true, Relaxed);
        // It may sit in the pool that it watches: nobody waits for it.
        self.thread.unpark();
    }
}

struct Canary {
    handle: Handle,
    every: Duration,
    stops: Arc<AtomicBool>,
}

impl Canary {
    fn go_in_and_out(self, mut section: Section) {
        while !self.stops.load(Relaxed) {
            let inside = section.enter();
            let (came_out, wait) = mpsc::channel();
            self.handle.spawn_blocking(move || came_out.send(()));
            if wait.recv().is_err() {
                // The runtime has ended.
                return;
            }
            drop(inside);
            thread::park_timeout(self.every);
        }
    }
}
