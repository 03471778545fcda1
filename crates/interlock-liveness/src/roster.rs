//! The judgement: who stands still, for how long, and what follows. A function of counters and clocks, and of nothing else.
//!
//! [`Roster::scan`] is called by the monitor's thread with what the clocks say, and by tests with what they make up. It
//! allocates nothing once its rows are there, takes no lock and calls nothing that could wait.

#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use crate::{
    breaker::{Fuse, State},
    clock::{Reading, nanos},
    fence::FenceCell,
    hooks::Caller,
    ladder::{Ladder, Rung},
    slot::{Mandate, Slot, Stored},
};

/// The monitor woke this much later than it meant to, at least: the process did not run.
const STALL_MIN: u64 = 100_000_000;
/// How many such times are forgiven in [`FORGIVEN_IN`]. A process that is stopped again and again is sick too.
const FORGIVEN_MAX: usize = 3;
const FORGIVEN_IN: u64 = 600 * 1_000_000_000;

/// Whether the process as a whole is well only while this watch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// It is: heartbeats stop when this watch expires.
    Critical,
    /// It is not.
    Aside,
}

/// A watch, as it is handed to the monitor.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) hot: Hot,
    pub(crate) cold: Cold,
    pub(crate) pump: Option<Pump>,
}

/// What every scan looks at.
#[derive(Debug)]
pub(crate) struct Hot {
    slot: Arc<Slot>,
    mandate: Stored,
    seen: u64,
    since: u64,
    /// When something is to be decided about it.
    next: u64,
    /// How long after progress the first thing is.
    first: u64,
    /// Progress changes nothing but times: no step to come down from, no breaker, not the first.
    is_plain: bool,
    is_fenced: bool,
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
    rung: Rung,
    /// What a pause adds to every step.
    grace: u64,
    has_moved: bool,
}

/// A counter that somebody else keeps, read once per scan.
pub(crate) struct Pump {
    pub(crate) slot: Arc<Slot>,
    pub(crate) read: Box<dyn Fn() -> u64 + Send>,
}

impl fmt::Debug for Pump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pump").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl Row {
    pub(crate) fn new(name: Arc<str>, slot: Arc<Slot>, ladder: Ladder) -> Self {
        let hot = Hot {
            mandate: Stored::default(),
            seen: slot.own.progress(),
            since: 0,
            next: u64::MAX,
            first: u64::MAX,
            is_plain: false,
            is_fenced: false,
            slot,
        };
        let cold = Cold {
            name,
            ladder,
            weight: Weight::Critical,
            fence: None,
            hooks: None,
            fuse: None,
            rung: Rung::Well,
            grace: 0,
            has_moved: false,
        };
        Self { hot, cold, pump: None }
    }

    /// Counts as having moved already: it proves something only while it is armed.
    pub(crate) fn moved(mut self) -> Self {
        self.cold.has_moved = true;
        self
    }
}

/// What follows from a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// A watch reached a step, after so many nanoseconds without progress.
    Climbed { at: usize, rung: Rung, age: u64 },
    /// It moves again.
    Recovered { at: usize, from: Rung, age: u64 },
    /// It expired too often: it is not judged for a while.
    Opened { at: usize },
    /// It is judged again.
    Closed { at: usize },
    /// A term ended without having been prolonged.
    TermEnded { at: usize },
    /// The process did not run for so long; the machine slept for so long.
    Stalled { nanos: u64, slept: u64, forgiven: Forgiven },
}

/// Whether the watches are held to account for a time in which nobody ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgiven {
    /// They are not.
    Yes,
    /// It happened too often.
    No,
}

/// How things stand after a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Every critical watch is within its bound.
    pub(crate) is_well: bool,
    /// Every critical watch has moved at least once.
    pub(crate) is_proven: bool,
    /// When the first process-ending step is due, if one is.
    pub(crate) ends_at: Option<u64>,
    /// The worst step of a critical watch.
    pub(crate) worst: Rung,
}

impl Verdict {
    const WELL: Self = Self { is_well: true, is_proven: true, ends_at: None, worst: Rung::Well };
}

/// All watches.
#[derive(Debug)]
pub(crate) struct Roster {
    hot: Vec<Hot>,
    cold: Vec<Cold>,
    pumps: Vec<Pump>,
    tick: u64,
    last: Option<Reading>,
    /// When times were forgiven.
    forgiven: [u64; FORGIVEN_MAX],
    /// How things stood after the last scan in which anything but times changed.
    verdict: Verdict,
    /// Somebody is gone, and has not been taken out yet.
    is_retiring: bool,
}

impl Roster {
    pub(crate) fn with_capacity(rows: usize) -> Self {
        Self {
            hot: Vec::with_capacity(rows),
            cold: Vec::with_capacity(rows),
            pumps: Vec::with_capacity(rows),
            tick: 0,
            last: None,
            forgiven: [0; FORGIVEN_MAX],
            verdict: Verdict { is_proven: false, ..Verdict::WELL },
            is_retiring: false,
        }
    }

    /// Takes a watch in. The caller has seen to it that there is room.
    pub(crate) fn add(&mut self, mut row: Row) {
        row.hot.is_fenced = row.cold.fence.is_some();
        self.hot.push(row.hot);
        self.cold.push(row.cold);
        self.pumps.extend(row.pump);
    }

    pub(crate) fn set_tick(&mut self, tick: u64) {
        self.tick = tick;
    }

    /// How things stood after the last scan.
    pub(crate) fn verdict(&self) -> Verdict {
        self.verdict
    }

    pub(crate) fn cold(&self, at: usize) -> Option<&Cold> {
        self.cold.get(at)
    }

    pub(crate) fn slot(&self, at: usize) -> Option<&Slot> {
        self.hot.get(at).map(|hot| hot.slot.as_ref())
    }

    /// Every watch with its name, its step and for how long it has stood still.
    pub(crate) fn standings(&self, now: u64) -> impl Iterator<Item = (&Cold, &Slot, Rung, u64)> {
        self.hot.iter().zip(&self.cold).map(move |(hot, cold)| {
            (cold, hot.slot.as_ref(), cold.rung, now.saturating_sub(hot.since))
        })
    }

    /// Looks at every watch once.
    pub(crate) fn scan(&mut self, reading: Reading, acts: &mut Vec<Act>) -> Verdict {
        self.notice_stall(reading, acts);
        for pump in &self.pumps {
            pump.slot.own.set((pump.read)());
        }
        let now = reading.monotonic;
        let mut changed = false;
        for (at, (hot, cold)) in self.hot.iter_mut().zip(&mut self.cold).enumerate() {
            let (mandate, progress) = (hot.slot.own.mandate(), hot.slot.own.progress());
            if mandate != hot.mandate {
                change(hot, cold, (at, mandate, progress), now, acts);
                changed = true;
                self.is_retiring |= mandate.mandate() == Mandate::Retired;
            } else if progress != hot.seen {
                changed |= !hot.is_plain;
                if !hot.is_plain {
                    settle(hot, cold, at, now, acts);
                }
                advance(hot, progress, now);
            } else if now >= hot.next {
                climb(hot, cold, at, now, acts);
                changed = true;
            }
            if hot.is_fenced
                && cold.fence.as_ref().is_some_and(|fence| fence.revoke_ended(reading.boottime))
            {
                acts.push(Act::TermEnded { at });
            }
        }
        if changed {
            self.verdict = self.judge();
        }
        self.verdict
    }

    fn judge(&self) -> Verdict {
        let is_critical = |cold: &Cold| cold.weight == Weight::Critical;
        let mut verdict = Verdict::WELL;
        verdict.is_proven = self.cold.iter().any(is_critical);
        for (hot, cold) in self.hot.iter().zip(&self.cold) {
            let is_judged = hot.next != u64::MAX || cold.rung > Rung::Well;
            if is_critical(cold) && is_judged {
                verdict.is_proven &= cold.has_moved;
                verdict.is_well &= cold.rung < Rung::Soft;
                verdict.worst = verdict.worst.max(cold.rung);
            }
            if cold.rung >= Rung::Soft
                && let Some(ends) = cold.ladder.ends()
            {
                let ends = hot.since.saturating_add(cold.grace).saturating_add(nanos(ends));
                verdict.ends_at = Some(verdict.ends_at.map_or(ends, |known| known.min(ends)));
            }
        }
        verdict
    }

    /// A time in which the monitor could not look was one in which nobody could move.
    fn notice_stall(&mut self, reading: Reading, acts: &mut Vec<Act>) {
        let Some(last) = self.last.replace(reading) else { return };
        let late = reading.monotonic.saturating_sub(reading.planned);
        let ran = reading.monotonic.saturating_sub(last.monotonic);
        let slept = reading.boottime.saturating_sub(last.boottime).saturating_sub(ran);
        let is_stall = late > STALL_MIN.max(self.tick.saturating_mul(2));
        if !is_stall && slept <= STALL_MIN {
            return;
        }
        let late = if is_stall { late } else { 0 };
        let forgiven = if is_stall { self.forgive(late, reading.monotonic) } else { Forgiven::Yes };
        acts.push(Act::Stalled { nanos: late, slept, forgiven });
    }

    fn forgive(&mut self, late: u64, now: u64) -> Forgiven {
        let is_old = |at: &&mut u64| **at == 0 || now.saturating_sub(**at) > FORGIVEN_IN;
        let Some(place) = self.forgiven.iter_mut().find(is_old) else { return Forgiven::No };
        *place = now.max(1);
        for hot in &mut self.hot {
            hot.since = hot.since.saturating_add(late);
            if hot.next != u64::MAX {
                hot.next = hot.next.saturating_add(late);
            }
        }
        Forgiven::Yes
    }

    /// Takes out the watches whose owners are gone, for somebody else to free.
    pub(crate) fn retire(&mut self, gone: &mut Vec<Row>) {
        if !std::mem::take(&mut self.is_retiring) {
            return;
        }
        let mut at = 0;
        while let Some(hot) = self.hot.get(at) {
            if hot.mandate.mandate() != Mandate::Retired || gone.len() == gone.capacity() {
                self.is_retiring |= hot.mandate.mandate() == Mandate::Retired;
                at += 1;
                continue;
            }
            let (hot, cold) = (self.hot.swap_remove(at), self.cold.swap_remove(at));
            let pump = self.pumps.iter().position(|pump| Arc::ptr_eq(&pump.slot, &hot.slot));
            let pump = pump.map(|pump| self.pumps.swap_remove(pump));
            gone.push(Row { hot, cold, pump });
        }
    }

    /// The shortest bound of all, in nanoseconds.
    pub(crate) fn shortest(&self) -> Option<u64> {
        self.cold.iter().map(|cold| nanos(cold.ladder.limit())).min()
    }
}

/// The mandate changed: that is a sign of life, and a new count begins.
fn change(
    hot: &mut Hot,
    cold: &mut Cold,
    (at, mandate, progress): (usize, Stored, u64),
    now: u64,
    acts: &mut Vec<Act>,
) {
    let before = hot.mandate.mandate();
    let has_moved = cold.has_moved || progress != hot.seen;
    settle(hot, cold, at, now, acts);
    advance(hot, progress, now);
    // Whoever comes to rest has done what it was watched for.
    cold.has_moved = has_moved || (mandate.mandate() == Mandate::Rest && before != Mandate::Rest);
    (hot.mandate, cold.grace) = (mandate, 0);
    let first = cold.ladder.next(Rung::Well).map_or(u64::MAX, |(_, after)| after);
    hot.first = match mandate.mandate() {
        Mandate::Rest | Mandate::Retired => u64::MAX,
        Mandate::Armed => first,
        Mandate::Paused(millis) => {
            let bound = millis.saturating_mul(1_000_000);
            cold.grace = bound.saturating_sub(nanos(cold.ladder.limit()));
            first.saturating_add(cold.grace)
        }
    };
    hot.is_plain = cold.has_moved && cold.fuse.is_none();
    if !cold.fuse.as_ref().is_some_and(Fuse::is_open) {
        hot.next = now.saturating_add(hot.first);
    }
}

/// It progressed: what nearly every watch did in nearly every scan.
#[inline]
fn advance(hot: &mut Hot, progress: u64, now: u64) {
    let found = &hot.slot.found;
    let gap = now.saturating_sub(hot.since);
    if hot.first != u64::MAX && gap > found.longest_gap.load(Relaxed) {
        found.longest_gap.store(gap, Relaxed);
    }
    found.moves.store(found.moves.load(Relaxed).wrapping_add(1), Relaxed);
    found.since.store(now, Relaxed);
    (hot.seen, hot.since) = (progress, now);
    if hot.is_plain {
        hot.next = now.saturating_add(hot.first);
    }
}

/// It progressed, and that changes more than times.
fn settle(hot: &mut Hot, cold: &mut Cold, at: usize, now: u64, acts: &mut Vec<Act>) {
    if cold.rung > Rung::Well {
        let age = now.saturating_sub(hot.since);
        acts.push(Act::Recovered { at, from: cold.rung, age });
        set_rung(hot, cold, Rung::Well);
    }
    if let Some(fuse) = &mut cold.fuse
        && fuse.moved()
    {
        hot.slot.found.breaker.store(State::Closed as u32, Relaxed);
        acts.push(Act::Closed { at });
    }
    cold.has_moved = true;
    hot.is_plain = cold.fuse.is_none();
    if !cold.fuse.as_ref().is_some_and(Fuse::is_open) {
        hot.next = now.saturating_add(hot.first);
    }
}

/// A step is due.
fn climb(hot: &mut Hot, cold: &mut Cold, at: usize, now: u64, acts: &mut Vec<Act>) {
    if let Some(fuse) = &mut cold.fuse
        && fuse.is_open()
    {
        // Its rest is over: it is given one more chance.
        fuse.half_open();
        hot.slot.found.breaker.store(State::HalfOpen as u32, Relaxed);
        set_rung(hot, cold, Rung::Well);
        (hot.since, hot.next) = (now, now.saturating_add(hot.first));
        return;
    }
    let Some((rung, _)) = cold.ladder.next(cold.rung) else {
        hot.next = u64::MAX;
        return;
    };
    let age = now.saturating_sub(hot.since);
    hot.is_plain = false;
    set_rung(hot, cold, rung);
    acts.push(Act::Climbed { at, rung, age });
    let next = cold.ladder.next(rung).map_or(u64::MAX, |(_, after)| after);
    hot.next = hot.since.saturating_add(cold.grace).saturating_add(next);
    if rung != Rung::Soft {
        return;
    }
    let expiries = &hot.slot.found.expiries;
    expiries.store(expiries.load(Relaxed).wrapping_add(1), Relaxed);
    // Whoever ends the process needs no breaker of its own: the one of the supervisor counts.
    if cold.ladder.ends().is_none()
        && let Some(fuse) = &mut cold.fuse
        && let Some(rests_for) = fuse.expired(now)
    {
        hot.slot.found.breaker.store(State::Open as u32, Relaxed);
        hot.next = now.saturating_add(rests_for);
        acts.push(Act::Opened { at });
    }
}

fn set_rung(hot: &Hot, cold: &mut Cold, rung: Rung) {
    cold.rung = rung;
    hot.slot.found.rung.store(rung as u32, Relaxed);
}
