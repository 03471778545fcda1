//! Whether a process does its work, judged from what it did: pure, with time handed in (L5).
//!
//! A process that is well says so to somebody outside, again and again, and keeps silent else (ADR 17). What counts as
//! well is decided here, for `serve` and for the simulator alike. Time is how long the process has been up, by a clock
//! that nobody sets.

use std::time::Duration;

use crate::vitals::{Pulse, Vitals};

/// A store that takes longer to take a write is not believed to.
const STORE_ANSWERS_IN: Duration = Duration::from_secs(10);
/// So long nothing may be delivered once something could not be.
const OUTBOX_DRAINS_IN: Duration = Duration::from_mins(5);
/// What failed is tried again within this, as [`Patience`](crate::Patience) has it; else another instance delivered it, or
/// it is a dead letter, of which people are told in other ways.
const FAILS_AGAIN_IN: Duration = Duration::from_mins(20);
/// Who looks after a longer pause than this has slept, with the whole process: no loop could come round meanwhile.
const SLEPT: Duration = Duration::from_secs(5);
/// An excuse that has moved holds for so long: whoever moves it looks at the loops as often.
const EXCUSED_FOR: Duration = Duration::from_millis(1_500);

/// Something that is wrong with this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// What, so that it is told once: `store`, `loop engine` …
    pub what: String,
    /// In a sentence.
    pub says: String,
}

impl Complaint {
    /// Something that is wrong.
    pub fn new(what: impl Into<String>, says: impl Into<String>) -> Self {
        Self { what: what.into(), says: says.into() }
    }

    /// The store takes no writes.
    pub fn is_about_the_store(&self) -> bool {
        self.what == "store"
    }
}

/// What is known of the work of a process.
#[derive(Debug, Default)]
pub struct Wellness {
    /// Whether the store takes writes.
    pub store: StoreWatch,
    outbox: OutboxWatch,
}

/// How many notifications went out so far, and how many could not.
#[derive(Debug, Clone, Copy, Default)]
pub struct Told {
    /// Went out.
    pub delivered: u64,
    /// Could not, this time.
    pub failed: u64,
}

impl Told {
    /// As they are counted by what came of them. What is silenced, or was over before anybody could be told, did not fail.
    pub fn of(vitals: &Vitals) -> Self {
        let mut told = Self::default();
        for (word, count) in vitals.notifications.read() {
            match word {
                "delivered" => told.delivered += count,
                "retried" | "dead" => told.failed += count,
                _ => {}
            }
        }
        told
    }
}

impl Wellness {
    /// What is wrong with the loops, the store and what is to be told.
    pub fn look(&mut self, loops: &[Standing], told: Told, now: Duration) -> Vec<Complaint> {
        let late = loops.iter().filter(|standing| standing.is_late());
        let mut found: Vec<_> = late.map(Standing::complaint).collect();
        found.extend(self.store.complaint(now));
        found.extend(self.outbox.look(told, now));
        found
    }

    /// Whether somebody outside is told that all is well: nothing is wrong, and something was proven to work.
    pub fn is_well(&self, complaints: &[Complaint]) -> bool {
        complaints.is_empty() && self.store.is_proven()
    }
}

/// When somebody outside is called next.
#[derive(Debug)]
pub struct Calls {
    every: Duration,
    next_at: Option<Duration>,
}

impl Calls {
    /// So often, from the first time on that all is well.
    pub fn every(every: Duration) -> Self {
        Self { every, next_at: None }
    }

    /// Whether it is time to call; if so, that is done.
    pub fn is_time(&mut self, now: Duration) -> bool {
        let is_time = self.next_at.is_none_or(|at| at <= now);
        if is_time {
            self.next_at = Some(now.saturating_add(self.every));
        }
        is_time
    }
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

    fn complaint(&self) -> Complaint {
        let (name, still) = (self.name, self.still_for.as_secs());
        let says = format!("the loop `{name}` has made no progress for {still} s");
        Complaint::new(format!("loop {name}"), says)
    }
}

/// Whether the loops come round.
#[derive(Debug, Default)]
pub struct LoopWatch {
    all: Vec<Watched>,
    looked_at: Option<Duration>,
    /// The last count of the excuse that was seen, and until when it holds.
    excuse: (u64, Option<Duration>),
}

#[derive(Debug)]
struct Watched {
    name: &'static str,
    pulse: Pulse,
    bound: Duration,
    /// The last count that was seen, and when it was first seen.
    seen: u64,
    since: Duration,
}

impl LoopWatch {
    /// Watches a loop from now on, instead of what had its name: it comes round at least once in `bound`.
    pub fn register(&mut self, name: &'static str, pulse: Pulse, bound: Duration, since: Duration) {
        let seen = pulse.count();
        self.all.retain(|known| known.name != name);
        self.all.push(Watched { name, pulse, bound, seen, since });
    }

    /// Every loop that is watched: its name, its pulse and its bound.
    pub fn all(&self) -> Vec<(&'static str, Pulse, Duration)> {
        self.all.iter().map(|it| (it.name, it.pulse.clone(), it.bound)).collect()
    }

    /// No loop is watched any more: they are about to end.
    pub fn clear(&mut self) {
        self.all.clear();
    }

    /// Looks at every pulse, and says how the loops stand. A time in which nobody could look, or come round, does not
    /// count: not the pauses of whoever looks at most every `every`, and not those in which the excuse moved.
    pub fn look(&mut self, excuse: &Pulse, every: Duration, now: Duration) -> Vec<Standing> {
        let paused = self.looked_at.replace(now).map(|at| now.saturating_sub(at));
        let excuse = excuse.count();
        if excuse != self.excuse.0 {
            self.excuse = (excuse, Some(now.saturating_add(EXCUSED_FOR.max(every * 2))));
        }
        let is_excused = self.excuse.1.is_some_and(|until| now < until);
        let slept = SLEPT.max(every * 2);
        let left_out = paused.filter(|paused| is_excused || *paused > slept).unwrap_or_default();
        let standing = self.all.iter_mut().map(|watched| {
            watched.since += left_out;
            let count = watched.pulse.count();
            if count != watched.seen {
                (watched.seen, watched.since) = (count, now);
            }
            let still_for = now.saturating_sub(watched.since);
            Standing { name: watched.name, still_for, bound: watched.bound }
        });
        standing.collect()
    }
}

/// Whether the store takes writes, by what came of asking it.
#[derive(Debug, Default)]
pub struct StoreWatch {
    asked_at: Option<Duration>,
    failure: Option<String>,
    /// Whether it ever took a write.
    is_proven: bool,
}

impl StoreWatch {
    /// It was asked to take a write.
    pub fn asked(&mut self, now: Duration) {
        self.asked_at = Some(now);
    }

    /// It took it, or not.
    pub fn answered(&mut self, answer: Result<(), String>) {
        self.asked_at = None;
        self.is_proven |= answer.is_ok();
        self.failure = answer.err();
    }

    /// Whether it ever took a write. Until then there is nothing to complain of, and nothing to rely on.
    pub fn is_proven(&self) -> bool {
        self.is_proven
    }

    fn complaint(&self, now: Duration) -> Option<Complaint> {
        let waits = self.asked_at.map(|asked| now.saturating_sub(asked));
        let hangs = waits.filter(|waits| *waits > STORE_ANSWERS_IN);
        let hangs =
            hangs.map(|waits| format!("it has accepted no write for {} s", waits.as_secs()));
        let says = hangs.or_else(|| self.failure.clone())?;
        Some(Complaint::new("store", format!("the store: {says}")))
    }
}

/// Whether what is to be told goes out, by what was counted.
#[derive(Debug, Default)]
struct OutboxWatch {
    last: Told,
    /// Since when something failed and nothing was delivered.
    stuck_since: Option<Duration>,
    failed_at: Duration,
}

impl OutboxWatch {
    /// Looks at what was delivered so far, and what was not.
    fn look(&mut self, told: Told, now: Duration) -> Option<Complaint> {
        if told.delivered > self.last.delivered {
            self.stuck_since = None;
        } else if told.failed > self.last.failed {
            self.stuck_since.get_or_insert(now);
            self.failed_at = now;
        } else if now.saturating_sub(self.failed_at) > FAILS_AGAIN_IN {
            self.stuck_since = None;
        }
        self.last = told;
        let stuck = now.saturating_sub(self.stuck_since?);
        (stuck > OUTBOX_DRAINS_IN).then(|| {
            let minutes = stuck.as_secs() / 60;
            Complaint::new("outbox", format!("no alert could be delivered for {minutes} minutes"))
        })
    }
}

#[cfg(test)]
mod tests;
