//! What a watched thread and the monitor share: two places in memory, and no lock.
//!
//! The thread writes the first: a counter of progress, and a mandate that says how it is to be judged. It is a cache line of its own as long as
//! half of the places are free; then two share one, because reading lines is what a scan costs, and ten thousand threads do not run at once.
//! The monitor writes the second: what it found. So a kick never waits for the monitor, and the monitor never for a thread.
//! All of the first lie side by side, with nothing in between, because the monitor reads them in a row: that is what a scan costs.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use crate::{
    ladder::Rung,
    names::Phase,
    sys::{held::Held, region::Region},
};

/// How many slots are looked at together.
pub(crate) const BLOCK: usize = 64;
/// How many places a cache line has.
const PER_LINE: usize = 64 / size_of::<Own>();

/// The slots of all watches that there can be, in whole blocks.
#[derive(Debug)]
pub(crate) struct Slots {
    own: Region<Own>,
    found: Region<Found>,
    /// For each block: somebody there is to be judged otherwise than before. The monitor looks at the next tick, whoever's turn it is.
    stirred: Region<AtomicBool>,
}

impl Slots {
    /// Room for so many.
    pub(crate) fn new(count: usize) -> io::Result<Arc<Self>> {
        let blocks = count.div_ceil(BLOCK);
        Ok(Arc::new(Self {
            own: Region::new(blocks * BLOCK)?,
            found: Region::new(blocks * BLOCK)?,
            stirred: Region::new(blocks)?,
        }))
    }

    pub(crate) fn len(&self) -> usize {
        self.own.len()
    }

    pub(crate) fn own(&self) -> &[Own] {
        &self.own
    }

    /// What watched threads and the monitor wrote in some places.
    pub(crate) fn rows(&self, places: Range<usize>) -> Option<(&[Own], &[Found])> {
        self.own.get(places.clone()).zip(self.found.get(places))
    }

    /// Has the monitor look whether mandates of the block of a place have changed.
    pub(crate) fn stir(&self, place: usize) {
        if let Some(stirred) = self.stirred.get(place / BLOCK) {
            stirred.store(true, Release);
        }
    }

    /// Whether somebody of a block was stirred since this was asked.
    pub(crate) fn take_stirred(&self, block: usize) -> bool {
        let stirred = self.stirred.get(block);
        stirred.is_some_and(|it| it.load(Relaxed) && it.swap(false, Acquire))
    }
}

/// The part of a watch that both sides see.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    own: Held<Slots, Own>,
    place: usize,
}

impl Slot {
    /// The one at a place, of which there is one.
    pub(crate) fn at(slots: &Arc<Slots>, place: usize) -> Self {
        assert!(place < slots.len(), "places are given within their bounds");
        Self { own: Held::new(Arc::clone(slots), |slots| &slots.own[place]), place }
    }

    #[inline]
    pub(crate) fn own(&self) -> &Own {
        &self.own
    }

    /// Says how it is to be judged from now on; answers with what it was before.
    pub(crate) fn command(&self, mandate: Mandate) -> Mandate {
        let before = self.own().command(mandate);
        self.own.owner().stir(self.place);
        before
    }

    pub(crate) fn found(&self) -> &Found {
        &self.own.owner().found[self.place]
    }

    pub(crate) fn place(&self) -> usize {
        self.place
    }
}

/// Which places there are, and which nobody has.
#[derive(Debug)]
pub(crate) struct Places {
    slots: Arc<Slots>,
    /// How many were ever given.
    given: usize,
    free: BinaryHeap<Reverse<usize>>,
}

impl Places {
    pub(crate) fn of(slots: &Arc<Slots>) -> Self {
        Self { slots: Arc::clone(slots), given: 0, free: BinaryHeap::new() }
    }

    /// A slot that is nobody's, as if nobody had ever had it; if there is one.
    pub(crate) fn allot(&mut self) -> Option<Slot> {
        let order = self.free.pop().map(|Reverse(order)| order).or_else(|| {
            let next = self.given;
            (next < self.slots.len()).then(|| {
                self.given += 1;
                next
            })
        })?;
        let place = self.nth(order);
        let slot = Slot::at(&self.slots, place);
        slot.own().reset();
        slot.found().reset();
        Some(slot)
    }

    /// The places in the order in which they are given: first one of each line, then the others.
    fn nth(&self, order: usize) -> usize {
        let lines = self.slots.len() / PER_LINE;
        order % lines * PER_LINE + order / lines
    }

    /// Whoever had it is gone, and the monitor has taken it out.
    pub(crate) fn free(&mut self, place: usize) {
        let lines = self.slots.len() / PER_LINE;
        // A line of one's own before one that is shared.
        self.free.push(Reverse(place % PER_LINE * lines + place / PER_LINE));
    }
}

/// Written by the watched thread.
#[derive(Debug, Default)]
#[repr(align(32))]
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
        let mut places = Places::of(&Slots::new(BLOCK + 2).unwrap());
        let slots: Vec<Slot> = (0..=BLOCK).map(|_| places.allot().unwrap()).collect();
        let given: Vec<usize> = slots.iter().map(Slot::place).collect();
        // One of each line, and then the first that has to share one.
        let expected: Vec<usize> = (0..BLOCK).map(|number| number * 2).chain([1]).collect();
        assert_eq!(given, expected);
        slots[7].own().command(Mandate::Retired);
        slots[7].found().expiries.store(3, Relaxed);
        places.free(1);
        places.free(14);
        let again = places.allot().unwrap();
        assert_eq!((again.place(), again.own().mandate().mandate()), (14, Mandate::Rest));
        assert_eq!(again.found().expiries.load(Relaxed), 0);
        assert_eq!([1, 3].map(|_| places.allot().unwrap().place()), [1, 3]);
        let more: Vec<Slot> = std::iter::from_fn(|| places.allot()).collect();
        assert_eq!(more.len(), BLOCK - 2, "blocks are whole");
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
