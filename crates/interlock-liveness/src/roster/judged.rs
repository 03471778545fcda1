//! The judgement about one watch, from what it wrote and what is known about it.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use super::{Act, Weight};
use crate::{
    breaker::{Fuse, State},
    clock::nanos,
    fence::FenceCell,
    hooks::Caller,
    ladder::{Ladder, Rung},
    slot::{Found, Mandate, Own, Stored},
};

/// What is kept about a watch beside what every scan looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Warm {
    pub(super) mandate: Stored,
    pub(super) since: u64,
    /// How long after progress the first thing is to be decided.
    first: u64,
    /// Progress changes nothing but times: no step to come down from, no breaker, not the first.
    pub(super) is_plain: bool,
}

impl Warm {
    /// Nobody is there, or somebody whose mandate has not been seen yet.
    pub(super) const VACANT: Self =
        Self { mandate: Stored(0), since: 0, first: u64::MAX, is_plain: false };

    /// Somebody was there.
    pub(super) fn vacated(own: &Own) -> Self {
        Self { mandate: own.mandate(), ..Self::VACANT }
    }
}

/// All that changes about a watch that moves and is well.
pub(super) struct Seat<'a> {
    pub(super) found: &'a Found,
    /// The count that was last seen, and when something is to be decided.
    pub(super) seen: &'a mut u64,
    pub(super) next: &'a mut u64,
    pub(super) warm: &'a mut Warm,
}

impl Seat<'_> {
    /// It progressed.
    #[inline]
    pub(super) fn advance(&mut self, progress: u64, now: u64) {
        let Self { found, seen, next, warm } = self;
        let gap = now.saturating_sub(warm.since);
        if warm.first != u64::MAX {
            found.longest_gap.store(gap.max(found.longest_gap.load(Relaxed)), Relaxed);
            found.usual_gap.store(usual(found.usual_gap.load(Relaxed), gap), Relaxed);
        }
        found.moves.store(found.moves.load(Relaxed).wrapping_add(1), Relaxed);
        found.since.store(now, Relaxed);
        (**seen, warm.since) = (progress, now);
        if warm.is_plain {
            **next = now.saturating_add(warm.first);
        }
    }
}

/// What is looked at when something happens.
#[derive(Debug)]
pub(crate) struct Cold {
    pub(crate) name: Arc<str>,
    pub(crate) ladder: Ladder,
    pub(crate) weight: Weight,
    pub(crate) fence: Option<FenceCell>,
    pub(crate) hooks: Option<Caller>,
    pub(crate) fuse: Option<Fuse>,
    pub(super) rung: Rung,
    /// What a pause adds to every step.
    pub(super) grace: u64,
    pub(super) has_moved: bool,
}

impl Cold {
    pub(super) fn new(name: Arc<str>, ladder: Ladder) -> Self {
        Self {
            name,
            ladder,
            weight: Weight::Critical,
            fence: None,
            hooks: None,
            fuse: None,
            rung: Rung::Well,
            grace: 0,
            has_moved: false,
        }
    }
}

/// Follows the 99th percentile of gaps: a step up weighs as much as 99 steps down, so that it rests where one in a hundred
/// gaps is longer.
fn usual(before: u64, gap: u64) -> u64 {
    if before == 0 {
        gap
    } else if gap > before {
        before.saturating_add(before / 16).saturating_add(1)
    } else {
        before - before / (16 * 99)
    }
}

/// A watch about which there is something to decide.
pub(super) struct Judged<'a> {
    pub(super) at: usize,
    pub(super) seat: Seat<'a>,
    pub(super) cold: &'a mut Cold,
    pub(super) now: u64,
    pub(super) acts: &'a mut Vec<Act>,
}

impl Judged<'_> {
    pub(super) fn judge(mut self, own: &Own) {
        let (mandate, progress) = (own.mandate(), own.progress());
        if mandate != self.seat.warm.mandate {
            self.change(mandate, progress);
        } else if progress != *self.seat.seen {
            self.settle();
            self.seat.advance(progress, self.now);
        } else if self.now >= *self.seat.next {
            self.climb();
        }
    }

    /// The mandate changed: that is a sign of life, and a new count begins.
    fn change(&mut self, mandate: Stored, progress: u64) {
        let before = self.seat.warm.mandate.mandate();
        let has_moved = self.cold.has_moved || progress != *self.seat.seen;
        self.settle();
        self.seat.advance(progress, self.now);
        let (warm, cold) = (&mut *self.seat.warm, &mut *self.cold);
        // Whoever comes to rest has done what it was watched for.
        let rests = mandate.mandate() == Mandate::Rest && before != Mandate::Rest;
        cold.has_moved = has_moved || rests;
        (warm.mandate, cold.grace) = (mandate, 0);
        let first = cold.ladder.next(Rung::Well).map_or(u64::MAX, |(_, after)| after);
        warm.first = match mandate.mandate() {
            Mandate::Rest | Mandate::Retired => u64::MAX,
            Mandate::Armed => first,
            Mandate::Paused(millis) => {
                let bound = millis.saturating_mul(1_000_000);
                cold.grace = bound.saturating_sub(nanos(cold.ladder.limit()));
                first.saturating_add(cold.grace)
            }
        };
        warm.is_plain = cold.has_moved && cold.fuse.is_none();
        if !cold.fuse.as_ref().is_some_and(Fuse::is_open) {
            *self.seat.next = self.now.saturating_add(warm.first);
        }
    }

    /// It progressed, and that changes more than times.
    fn settle(&mut self) {
        let (at, now) = (self.at, self.now);
        if self.cold.rung > Rung::Well {
            let age = now.saturating_sub(self.seat.warm.since);
            self.acts.push(Act::Recovered { at, from: self.cold.rung, age });
            self.set_rung(Rung::Well);
        }
        let (warm, cold) = (&mut *self.seat.warm, &mut *self.cold);
        if let Some(fuse) = &mut cold.fuse
            && fuse.moved()
        {
            self.seat.found.breaker.store(State::Closed as u32, Relaxed);
            self.acts.push(Act::Closed { at });
        }
        cold.has_moved = true;
        warm.is_plain = cold.fuse.is_none();
        if !cold.fuse.as_ref().is_some_and(Fuse::is_open) {
            *self.seat.next = now.saturating_add(warm.first);
        }
    }

    /// A step is due.
    fn climb(&mut self) {
        let (at, now) = (self.at, self.now);
        if let Some(fuse) = &mut self.cold.fuse
            && fuse.is_open()
        {
            // Its rest is over: it is given one more chance.
            fuse.half_open();
            self.seat.found.breaker.store(State::HalfOpen as u32, Relaxed);
            self.set_rung(Rung::Well);
            self.seat.warm.since = now;
            *self.seat.next = now.saturating_add(self.seat.warm.first);
            return;
        }
        let Some((rung, _)) = self.cold.ladder.next(self.cold.rung) else {
            *self.seat.next = u64::MAX;
            return;
        };
        self.set_rung(rung);
        let late = now.saturating_sub(*self.seat.next);
        let (warm, cold) = (&mut *self.seat.warm, &mut *self.cold);
        warm.is_plain = false;
        let age = now.saturating_sub(warm.since);
        self.acts.push(Act::Climbed { at, rung, age, late });
        let next = cold.ladder.next(rung).map_or(u64::MAX, |(_, after)| after);
        *self.seat.next = warm.since.saturating_add(cold.grace).saturating_add(next);
        if rung != Rung::Soft {
            return;
        }
        let expiries = &self.seat.found.expiries;
        expiries.store(expiries.load(Relaxed).wrapping_add(1), Relaxed);
        // Whoever ends the process needs no breaker of its own: the one of the supervisor counts.
        if cold.ladder.ends().is_none()
            && let Some(fuse) = &mut cold.fuse
            && let Some(rests_for) = fuse.expired(now)
        {
            self.seat.found.breaker.store(State::Open as u32, Relaxed);
            *self.seat.next = now.saturating_add(rests_for);
            self.acts.push(Act::Opened { at });
        }
    }

    fn set_rung(&mut self, rung: Rung) {
        self.cold.rung = rung;
        self.seat.found.rung.store(rung as u32, Relaxed);
    }
}
