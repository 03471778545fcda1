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

use interlock_engine::vitals::Pulse;
use tokio::time::Instant;

/// How often the pulses are looked at: what a verdict can be late by.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Who looks after a longer pause than this has slept, with the whole process: no loop could come round meanwhile.
const SLEPT: Duration = Duration::from_secs(5);

/// An excuse that has moved holds for so long: whoever moves it looks at the loops as often.
const EXCUSED_FOR: Duration = Duration::from_millis(1_500);

/// The loops that are watched.
#[derive(Debug, Default)]
pub struct Loops {
    watch: Mutex<Watch>,
    /// Moves while nobody can come round for a reason that is known: the store is away.
    pub excuse: Pulse,
}

#[derive(Debug, Default)]
struct Watch {
    all: Vec<Watched>,
    looked_at: Option<Instant>,
    /// The last count of the excuse that was seen, and until when it holds.
    excuse: (u64, Option<Instant>),
}

#[derive(Debug)]
struct Watched {
    name: &'static str,
    pulse: Pulse,
    bound: Duration,
    /// The last count that was seen, and when it was first seen.
    seen: u64,
    since: Instant,
}

/// How a loop stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Which loop.
    pub name: &'static str,
    /// How long it has not come round, as far as was looked.
    pub still_for: Duration,
    /// How long it may not.
    pub bound: Duration,
}

impl Standing {
    /// Whether it has not come round for longer than it may.
    pub fn is_late(&self) -> bool {
        self.still_for > self.bound
    }
}

impl Loops {
    /// Watches a loop from now on: it comes round at least once in `bound`.
    pub fn register(&self, name: &'static str, pulse: Pulse, bound: Duration) {
        let (seen, since) = (pulse.count(), Instant::now());
        self.lock().all.push(Watched { name, pulse, bound, seen, since });
    }

    /// Every loop that is watched: its name, its pulse and its bound.
    pub fn all(&self) -> Vec<(&'static str, Pulse, Duration)> {
        let of = |it: &Watched| (it.name, it.pulse.clone(), it.bound);
        self.lock().all.iter().map(of).collect()
    }

    /// No loop is watched any more: they are about to end.
    pub fn clear(&self) {
        self.lock().all.clear();
    }

    /// Looks at every pulse, and says how the loops stand. A time in which nobody could look, or come round, does not count.
    pub fn look(&self, now: Instant) -> Vec<Standing> {
        let mut watch = self.lock();
        let paused = watch.looked_at.replace(now).map(|at| now.saturating_duration_since(at));
        let excuse = self.excuse.count();
        if excuse != watch.excuse.0 {
            watch.excuse = (excuse, Some(now + EXCUSED_FOR));
        }
        let is_excused = watch.excuse.1.is_some_and(|until| now < until);
        let left_out = paused.filter(|paused| is_excused || *paused > SLEPT).unwrap_or_default();
        let standing = watch.all.iter_mut().map(|watched| {
            watched.since += left_out;
            let count = watched.pulse.count();
            if count != watched.seen {
                (watched.seen, watched.since) = (count, now);
            }
            let still_for = now.saturating_duration_since(watched.since);
            Standing { name: watched.name, still_for, bound: watched.bound }
        });
        standing.collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_late_because_the_store_is_away() {
        let (loops, pulse) = (Loops::default(), Pulse::default());
        loops.register("engine", pulse, Duration::from_secs(5));
        let (start, mut halves) = (Instant::now(), 0);
        let mut is_late = |seconds: u32, is_away: bool| {
            let mut is_late = false;
            for _ in 0..2 * seconds {
                halves += 1;
                if is_away {
                    loops.excuse.beat();
                }
                // Somebody asks more often than the excuse moves.
                for early in [250, 0] {
                    let now = start + Duration::from_millis(500) * halves;
                    let standing = loops.look(now - Duration::from_millis(early));
                    is_late = standing.iter().any(Standing::is_late);
                }
            }
            is_late
        };
        assert!(!is_late(3, false));
        assert!(!is_late(120, true), "it cannot come round");
        assert!(is_late(10, false), "now it could");
    }

    #[test]
    fn a_loop_is_late_when_it_has_not_come_round_in_its_bound_and_well_when_it_has_again() {
        let (loops, pulse) = (Loops::default(), Pulse::default());
        loops.register("engine", pulse.clone(), Duration::from_secs(5));
        let start = Instant::now();
        let is_late = |seconds| {
            loops.look(start + Duration::from_secs(seconds)).iter().any(Standing::is_late)
        };
        assert!(!is_late(4));
        pulse.beat();
        assert!(!is_late(8), "it came round in between");
        assert!(!is_late(13));
        assert!(is_late(14));
        pulse.beat();
        assert!(!is_late(15));
        // The whole process was stopped for a minute; then the loop really stands still.
        assert!(!is_late(75) && !is_late(79));
        assert!(is_late(82));
    }
}
