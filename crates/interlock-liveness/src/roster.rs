//! The judgement: who stands still, for how long, and what follows. A function of counters and clocks, and of nothing else.
//!
//! [`Roster::scan`] is called by the monitor's thread with what the clocks say, and by tests with what they make up. It
//! allocates nothing once its rows are there, takes no lock and calls nothing that could wait. It looks at each watch as often
//! as that watch's own limit asks for (`rota`), because ten thousand patient watches cost more to read than to judge.

mod judged;
mod rota;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

pub(crate) use self::judged::Cold;
use self::{
    judged::{Judged, Seat, Warm},
    rota::Rota,
};
use crate::{
    clock::{Reading, nanos},
    ladder::{Ladder, Rung},
    slot::{BLOCK, Mandate, Own, Slot, Slots},
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
    slot: Slot,
    /// What it had counted when it was registered.
    seen: u64,
    pub(crate) cold: Cold,
    pub(crate) pump: Option<Pump>,
}

/// A counter that somebody else keeps, read once per scan.
pub(crate) struct Pump {
    pub(crate) slot: Slot,
    pub(crate) read: Box<dyn Fn() -> u64 + Send>,
}

impl fmt::Debug for Pump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pump").field("place", &self.slot.place()).finish_non_exhaustive()
    }
}

impl Row {
    pub(crate) fn new(name: Arc<str>, slot: Slot, ladder: Ladder) -> Self {
        let seen = slot.own().progress();
        Self { slot, seen, cold: Cold::new(name, ladder), pump: None }
    }

    pub(crate) fn place(&self) -> usize {
        self.slot.place()
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
    /// A watch reached a step, after so many nanoseconds without progress, and so many after the step was due.
    Climbed { at: usize, rung: Rung, age: u64, late: u64 },
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
    /// What the watched threads write; then, by the same places, what is kept about them. Places may be vacant.
    slots: Arc<Slots>,
    /// What every look reads: the count that was last seen of each.
    seen: Vec<u64>,
    /// When something is to be decided about each: read when it may be the time for one of a group.
    next: Vec<u64>,
    warm: Vec<Warm>,
    cold: Vec<Option<Cold>>,
    pumps: Vec<Pump>,
    /// Who is to be looked at when.
    rota: Rota,
    /// Who guards a term: that is looked at every time.
    fenced: Vec<usize>,
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
    pub(crate) fn of(slots: &Arc<Slots>) -> Self {
        let rows = slots.len();
        Self {
            slots: Arc::clone(slots),
            seen: Vec::with_capacity(rows),
            next: Vec::with_capacity(rows),
            warm: Vec::with_capacity(rows),
            cold: Vec::with_capacity(rows),
            pumps: Vec::with_capacity(rows),
            rota: Rota::with_capacity(rows),
            fenced: Vec::with_capacity(rows),
            tick: 0,
            last: None,
            forgiven: [0; FORGIVEN_MAX],
            verdict: Verdict { is_proven: false, ..Verdict::WELL },
            is_retiring: false,
        }
    }

    /// Takes a watch in. The caller has seen to it that there is room; places need not come in order.
    pub(crate) fn add(&mut self, row: Row) {
        let Row { slot, seen, cold, pump } = row;
        let place = slot.place();
        while place >= self.warm.len() {
            self.seen.extend([0; BLOCK]);
            self.next.extend([u64::MAX; BLOCK]);
            self.warm.extend([Warm::VACANT; BLOCK]);
            self.cold.extend((0..BLOCK).map(|_| None));
        }
        self.rota.joins(place, cold.ladder.limit());
        self.fenced.extend(cold.fence.is_some().then_some(place));
        self.sit(place, (seen, Warm::VACANT), Some(cold));
        self.pumps.extend(pump);
        // Its mandate has not been seen.
        self.slots.stir(place);
    }

    /// Puts somebody, or nobody, in a place; answers with whom was there.
    fn sit(&mut self, place: usize, kept: (u64, Warm), cold: Option<Cold>) -> Option<Cold> {
        let (seen, next) = (self.seen.get_mut(place)?, self.next.get_mut(place)?);
        let (warm, cold_at) = (self.warm.get_mut(place)?, self.cold.get_mut(place)?);
        ((*seen, *warm), *next) = (kept, u64::MAX);
        std::mem::replace(cold_at, cold)
    }

    pub(crate) fn set_tick(&mut self, tick: u64) {
        self.tick = tick;
    }

    /// How things stood after the last scan.
    pub(crate) fn verdict(&self) -> Verdict {
        self.verdict
    }

    pub(crate) fn cold(&self, at: usize) -> Option<&Cold> {
        self.cold.get(at)?.as_ref()
    }

    pub(crate) fn own(&self, at: usize) -> Option<&Own> {
        self.slots.own().get(at)
    }

    /// Every watch with its name, its step and for how long it has stood still.
    pub(crate) fn standings(&self, now: u64) -> impl Iterator<Item = (&Cold, &Own, Rung, u64)> {
        let all = self.slots.own().iter().zip(&self.warm).zip(&self.cold);
        all.filter_map(move |((own, warm), cold)| {
            let cold = cold.as_ref()?;
            Some((cold, own, cold.rung, now.saturating_sub(warm.since)))
        })
    }

    /// Looks at every watch that may have something to say.
    pub(crate) fn scan(&mut self, reading: Reading, acts: &mut Vec<Act>) -> Verdict {
        self.notice_stall(reading, acts);
        for pump in &self.pumps {
            pump.slot.own().set((pump.read)());
        }
        let now = reading.monotonic;
        let mut changed = false;
        let slots = &self.slots;
        for (group, is_stirred) in self.rota.due(now, |number| slots.take_stirred(number)) {
            let rows = group.rows();
            let Some((own, found)) = slots.rows(rows.clone()) else { continue };
            let Some(seen) = self.seen.get_mut(rows.clone()) else { continue };
            let Some(next) = self.next.get_mut(rows.clone()) else { continue };
            let Some(warm) = self.warm.get_mut(rows.clone()) else { continue };
            let mut news = moved(own, seen);
            // Nearly always it is nobody's time, and nobody is to be judged otherwise.
            let mut is_reckoned = is_stirred || now >= group.earliest();
            if is_reckoned {
                news |= due(next, now);
            }
            if is_stirred {
                news |= commanded(own, warm);
            }
            while news != 0 {
                let at = news.trailing_zeros() as usize;
                news &= news - 1;
                let (own, found) = (&own[at], &found[at]);
                let (seen, next, warm) = (&mut seen[at], &mut next[at], &mut warm[at]);
                let mut seat = Seat { found, seen, next, warm };
                let progress = own.progress();
                let is_commanded = is_stirred && own.mandate() != seat.warm.mandate;
                if seat.warm.is_plain && !is_commanded && progress != *seat.seen {
                    seat.advance(progress, now);
                } else if let Some(Some(cold)) = self.cold.get_mut(rows.start + at) {
                    let at = rows.start + at;
                    Judged { at, seat, cold, now, acts: &mut *acts }.judge(own);
                    (changed, is_reckoned) = (true, true);
                    self.is_retiring |= own.mandate().mandate() == Mandate::Retired;
                }
            }
            // Whoever only moved on has more time than before: what was reckoned is still early enough.
            if is_reckoned {
                group.reckoned(next.iter().copied().min().unwrap_or(u64::MAX));
            }
            group.looked(now, self.tick);
        }
        self.end_terms(reading.boottime, acts);
        if changed {
            self.verdict = self.judge();
        }
        self.verdict
    }

    fn end_terms(&self, boottime: u64, acts: &mut Vec<Act>) {
        for &at in &self.fenced {
            let fence = self.cold(at).and_then(|cold| cold.fence.as_ref());
            if fence.is_some_and(|fence| fence.revoke_ended(boottime)) {
                acts.push(Act::TermEnded { at });
            }
        }
    }

    fn judge(&self) -> Verdict {
        let is_critical = |cold: &Cold| cold.weight == Weight::Critical;
        let mut verdict = Verdict::WELL;
        verdict.is_proven = self.cold.iter().flatten().any(is_critical);
        for ((next, warm), cold) in self.next.iter().zip(&self.warm).zip(&self.cold) {
            let Some(cold) = cold else { continue };
            let is_judged = *next != u64::MAX || cold.rung > Rung::Well;
            if is_critical(cold) && is_judged {
                verdict.is_proven &= cold.has_moved;
                verdict.is_well &= cold.rung < Rung::Soft;
                verdict.worst = verdict.worst.max(cold.rung);
            }
            if cold.rung >= Rung::Soft
                && let Some(ends) = cold.ladder.ends()
            {
                let ends = warm.since.saturating_add(cold.grace).saturating_add(nanos(ends));
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
        for warm in &mut self.warm {
            warm.since = warm.since.saturating_add(late);
        }
        for next in self.next.iter_mut().filter(|next| **next != u64::MAX) {
            *next = next.saturating_add(late);
        }
        Forgiven::Yes
    }

    /// Takes out the watches whose owners are gone, for somebody else to free.
    pub(crate) fn retire(&mut self, gone: &mut Vec<Row>) {
        if !std::mem::take(&mut self.is_retiring) {
            return;
        }
        for place in 0..self.warm.len() {
            let is_gone = |warm: &Warm| warm.mandate.mandate() == Mandate::Retired;
            if !self.warm.get(place).is_some_and(is_gone) || self.cold(place).is_none() {
                continue;
            }
            if gone.len() == gone.capacity() {
                self.is_retiring = true;
                break;
            }
            let slot = Slot::at(&self.slots, place);
            let pump = self.pumps.iter().position(|pump| pump.slot.place() == place);
            let pump = pump.map(|pump| self.pumps.swap_remove(pump));
            let seen = slot.own().progress();
            let cold = self.sit(place, (seen, Warm::vacated(slot.own())), None);
            gone.extend(cold.map(|cold| Row { slot, seen, cold, pump }));
            self.fenced.retain(|fenced| *fenced != place);
        }
        self.rota.reckon(&self.cold);
    }

    /// How often the most impatient watch is to be looked at, in nanoseconds.
    pub(crate) fn impatience(&self) -> u64 {
        self.rota.impatience()
    }
}

/// Who has a count that was not seen yet: a bit for each of a block. Nearly always nearly nobody, so that a look at most of them is this.
#[inline]
fn moved(own: &[Own], seen: &[u64]) -> u64 {
    bits(own.iter().zip(seen).map(|(own, seen)| own.progress() != *seen))
}

/// About whom something is to be decided.
fn due(next: &[u64], now: u64) -> u64 {
    bits(next.iter().map(|next| now >= *next))
}

/// Who is to be judged otherwise than before.
fn commanded(own: &[Own], warm: &[Warm]) -> u64 {
    bits(own.iter().zip(warm).map(|(own, warm)| own.mandate() != warm.mandate))
}

#[inline]
fn bits(all: impl Iterator<Item = bool>) -> u64 {
    all.take(BLOCK).enumerate().fold(0, |bits, (at, is_one)| bits | u64::from(is_one) << at)
}
