//! What a watched thread and the monitor share: two cache lines, and no lock.
//!
//! The thread writes the first line: a counter of progress, and a mandate that says how it is to be judged. The monitor
//! writes the second: what it found. So a kick never waits for the monitor, and the monitor never for a thread.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::{ladder::Rung, names::Phase};

/// The part of a watch that both sides see.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) own: Own,
    pub(crate) found: Found,
}

/// Written by the watched thread.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Own {
    progress: AtomicU64,
    mandate: AtomicU64,
    phase: AtomicU32,
    reason: AtomicU32,
}

/// Written by the monitor.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Found {
    /// When progress was last seen, by the monotonic clock.
    pub(crate) since: AtomicU64,
    pub(crate) longest_gap: AtomicU64,
    pub(crate) expiries: AtomicU64,
    /// How often progress was seen at all.
    pub(crate) moves: AtomicU64,
    pub(crate) rung: AtomicU32,
    pub(crate) breaker: AtomicU32,
}

/// How a watch is to be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mandate {
    /// Not at all.
    Rest,
    /// By its ladder.
    Armed,
    /// Its first bound is this many milliseconds.
    Paused(u64),
    /// Never again: whoever it belonged to is gone.
    Retired,
}

/// A mandate as it is stored: two bits of kind, 40 of length, 22 that change with every change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stored(pub(crate) u64);

const LENGTH_MAX: u64 = (1 << 40) - 1;

impl Stored {
    pub(crate) fn mandate(self) -> Mandate {
        match self.0 & 3 {
            0 => Mandate::Rest,
            1 => Mandate::Armed,
            2 => Mandate::Paused((self.0 >> 2) & LENGTH_MAX),
            _ => Mandate::Retired,
        }
    }

    fn next(self, mandate: Mandate) -> Self {
        let count = (self.0 >> 42).wrapping_add(1) << 42;
        Self(match mandate {
            Mandate::Rest => count,
            Mandate::Armed => count | 1,
            Mandate::Paused(millis) => count | (millis.min(LENGTH_MAX) << 2) | 2,
            Mandate::Retired => count | 3,
        })
    }
}

impl Own {
    /// Progress by the only thread that makes any: a plain read, a plain write.
    #[inline]
    pub(crate) fn advance(&self, by: u64) {
        self.progress.store(self.progress.load(Relaxed).wrapping_add(by), Relaxed);
    }

    /// Progress by one of several threads.
    #[inline]
    pub(crate) fn advance_shared(&self, by: u64) {
        self.progress.fetch_add(by, Relaxed);
    }

    /// Takes over a count that somebody else keeps.
    pub(crate) fn set(&self, count: u64) {
        self.progress.store(count, Relaxed);
    }

    #[inline]
    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Relaxed)
    }

    /// Changes the mandate; answers with the one before.
    pub(crate) fn command(&self, mandate: Mandate) -> Mandate {
        let before = Stored(self.mandate.load(Relaxed));
        self.mandate.store(before.next(mandate).0, Release);
        before.mandate()
    }

    #[inline]
    pub(crate) fn mandate(&self) -> Stored {
        Stored(self.mandate.load(Acquire))
    }

    #[inline]
    pub(crate) fn enter(&self, phase: Phase) -> Phase {
        let before = self.phase.load(Relaxed);
        self.phase.store(phase.0, Relaxed);
        Phase(before)
    }

    pub(crate) fn phase(&self) -> Phase {
        Phase(self.phase.load(Relaxed))
    }

    /// Says what the next pause is for; answers with what the last one was for.
    pub(crate) fn give_reason(&self, reason: Phase) -> Phase {
        Phase(self.reason.swap(reason.0, Relaxed))
    }

    /// What it is paused for, if it is.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        match self.mandate().mandate() {
            Mandate::Paused(_) => Phase(self.reason.load(Relaxed)).name(),
            Mandate::Rest | Mandate::Armed | Mandate::Retired => None,
        }
    }
}

impl Found {
    pub(crate) fn rung(&self) -> Rung {
        Rung::from_number(self.rung.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_the_mandate_is_visible_even_to_the_same_one() {
        let own = Own::default();
        let mut seen = vec![own.mandate()];
        for mandate in [Mandate::Armed, Mandate::Armed, Mandate::Paused(90), Mandate::Retired] {
            own.command(mandate);
            assert!(!seen.contains(&own.mandate()));
            assert_eq!(own.mandate().mandate(), mandate);
            seen.push(own.mandate());
        }
    }
}
