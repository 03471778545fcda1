//! What a watched thread and the monitor share: two places in memory, and no lock.
//!
//! The thread writes the first, a cache line of its own: a counter of progress, and a mandate that says how it is to be judged.
//! The monitor writes the second: what it found. So a kick never waits for the monitor, and the monitor never for a thread.
//! Slots lie side by side in blocks, because the monitor reads them in a row: that is what a scan costs.

use std::{
    array,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use crate::{ladder::Rung, names::Phase};

/// How many slots lie side by side.
pub(crate) const BLOCK: usize = 64;

/// Slots side by side.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) own: [Own; BLOCK],
    pub(crate) found: [Found; BLOCK],
    /// Somebody here is to be judged otherwise than before: the monitor looks at the next tick, whoever's turn it is.
    stirred: AtomicBool,
}

impl Block {
    fn new() -> Arc<Self> {
        let (own, found) =
            (array::from_fn(|_| Own::default()), array::from_fn(|_| Found::default()));
        Arc::new(Self { own, found, stirred: AtomicBool::new(false) })
    }

    /// Whether somebody was stirred since this was asked.
    pub(crate) fn take_stirred(&self) -> bool {
        self.stirred.load(Relaxed) && self.stirred.swap(false, Acquire)
    }
}

/// The part of a watch that both sides see.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    block: Arc<Block>,
    /// Which one of all, blocks counted through.
    place: usize,
}

impl Slot {
    /// The one at a place, in the block where that is.
    pub(crate) fn at(block: &Arc<Block>, place: usize) -> Self {
        Self { block: Arc::clone(block), place }
    }

    #[inline]
    pub(crate) fn own(&self) -> &Own {
        &self.block.own[self.place % BLOCK]
    }

    /// Says how it is to be judged from now on; answers with what it was before.
    pub(crate) fn command(&self, mandate: Mandate) -> Mandate {
        let before = self.own().command(mandate);
        self.block.stirred.store(true, Release);
        before
    }

    pub(crate) fn found(&self) -> &Found {
        &self.block.found[self.place % BLOCK]
    }

    pub(crate) fn place(&self) -> usize {
        self.place
    }

    pub(crate) fn block(&self) -> &Arc<Block> {
        &self.block
    }
}

/// Which places there are, and which nobody has.
#[derive(Debug, Default)]
pub(crate) struct Places {
    blocks: Vec<Arc<Block>>,
    free: Vec<usize>,
}

impl Places {
    /// A slot that is nobody's, as if nobody had ever had it.
    pub(crate) fn allot(&mut self) -> Slot {
        if self.free.is_empty() {
            let first = self.blocks.len() * BLOCK;
            self.blocks.push(Block::new());
            self.free.extend((first..first + BLOCK).rev());
        }
        let place = self.free.pop().unwrap_or_default();
        let slot = Slot::at(&self.blocks[place / BLOCK], place);
        slot.own().reset();
        slot.found().reset();
        slot
    }

    /// Whoever had it is gone, and the monitor has taken it out.
    pub(crate) fn free(&mut self, place: usize) {
        self.free.push(place);
    }
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
pub(crate) struct Found {
    /// When progress was last seen, by the monotonic clock.
    pub(crate) since: AtomicU64,
    pub(crate) longest_gap: AtomicU64,
    /// Which 99 of 100 times without progress are no longer than, about.
    pub(crate) usual_gap: AtomicU64,
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
    fn reset(&self) {
        self.phase.store(0, Relaxed);
        self.reason.store(0, Relaxed);
        self.command(Mandate::Rest);
    }

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
    fn reset(&self) {
        let numbers =
            [&self.since, &self.longest_gap, &self.usual_gap, &self.expiries, &self.moves];
        for number in numbers {
            number.store(0, Relaxed);
        }
        self.rung.store(0, Relaxed);
        self.breaker.store(0, Relaxed);
    }

    pub(crate) fn rung(&self) -> Rung {
        Rung::from_number(self.rung.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_was_freed_is_given_again_as_new_and_no_other_is_given_twice() {
        let mut places = Places::default();
        let slots: Vec<Slot> = (0..=BLOCK).map(|_| places.allot()).collect();
        let given: Vec<usize> = slots.iter().map(Slot::place).collect();
        assert_eq!(given, (0..=BLOCK).collect::<Vec<_>>());
        slots[7].own().command(Mandate::Retired);
        slots[7].found().expiries.store(3, Relaxed);
        places.free(7);
        let again = places.allot();
        assert_eq!((again.place(), again.own().mandate().mandate()), (7, Mandate::Rest));
        assert_eq!(again.found().expiries.load(Relaxed), 0);
        assert_eq!(places.allot().place(), BLOCK + 1);
    }

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
