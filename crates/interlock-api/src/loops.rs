//! Whether the loops come round.
//!
//! A loop proves that it lives by its [`Pulse`], which only its own progress moves. Here the pulses are looked
//! at again and again, by a clock that the loops have no part in: one that has not moved for longer than
//! its bound is late. While the store is away nobody can come round, and that is no loop's fault: such a time does not count,
//! or every outage of a database would be told once more for each loop, and get processes restarted that can only wait.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

pub use interlock_engine::wellness::Standing;
use interlock_engine::{vitals::Pulse, wellness::LoopWatch};
use tokio::time::Instant;

/// How often the pulses are looked at: what a verdict can be late by.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The loops that are watched; how they stand is judged by [`LoopWatch`].
#[derive(Debug)]
pub struct Loops {
    watch: Mutex<LoopWatch>,
    began: Instant,
    /// Moves while nobody can come round for a reason that is known: the store is away.
    pub excuse: Pulse,
}

impl Default for Loops {
    fn default() -> Self {
        Self { watch: Mutex::default(), began: Instant::now(), excuse: Pulse::default() }
    }
}

impl Loops {
    /// Watches a loop from now on: it comes round at least once in `bound`.
    pub fn register(&self, name: &'static str, pulse: Pulse, bound: Duration) {
        self.lock().register(name, pulse, bound, self.began.elapsed());
    }

    /// Every loop that is watched: its name, its pulse and its bound.
    pub fn all(&self) -> Vec<(&'static str, Pulse, Duration)> {
        self.lock().all()
    }

    /// No loop is watched any more: they are about to end.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// Looks at every pulse, and says how the loops stand. A time in which nobody could look, or come round, does not count.
    pub fn look(&self, now: Instant) -> Vec<Standing> {
        let now = now.saturating_duration_since(self.began);
        self.lock().look(&self.excuse, LOOK_EVERY, now)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LoopWatch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
