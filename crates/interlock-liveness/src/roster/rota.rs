//! Who is looked at when.
//!
//! A watch whose limit is a minute need not be looked at as often as one whose limit is a blink. Rows are looked at in groups,
//! each as often as its most impatient member asks for, and whenever something about one of them is due; the groups take
//! turns, so that no scan has to do it all.

use std::{ops::Range, time::Duration};

use super::Cold;
use crate::{clock::nanos, slot::BLOCK};

/// How many turns there are.
const TURNS: u64 = 16;
/// No watch is looked at more often than this, nor less often than that.
const LOOKS_MIN: u64 = 5_000_000;
const LOOKS_MAX: u64 = 250_000_000;

/// How often a watch with this limit is looked at, in nanoseconds: its progress is stamped so much too late at most.
fn every(limit: Duration) -> u64 {
    (nanos(limit) / 8).clamp(LOOKS_MIN, LOOKS_MAX)
}

/// The groups, in the order of their rows.
#[derive(Debug)]
pub(crate) struct Rota {
    groups: Vec<Group>,
}

/// Rows that are looked at together.
#[derive(Debug)]
pub(crate) struct Group {
    number: usize,
    every: u64,
    /// When it is looked at again; a group with a new member at once.
    look_at: u64,
    /// Before this nothing is to be decided about any of them.
    earliest: u64,
}

impl Rota {
    pub(crate) fn with_capacity(rows: usize) -> Self {
        Self { groups: Vec::with_capacity(rows.div_ceil(BLOCK)) }
    }

    /// Somebody comes, to this place.
    pub(crate) fn joins(&mut self, place: usize, limit: Duration) {
        while place / BLOCK >= self.groups.len() {
            let number = self.groups.len();
            self.groups.push(Group { number, every: LOOKS_MAX, look_at: 0, earliest: 0 });
        }
        if let Some(group) = self.groups.get_mut(place / BLOCK) {
            (group.every, group.look_at) = (group.every.min(every(limit)), 0);
        }
    }

    /// Somebody went: who is left may be more patient.
    pub(crate) fn reckon(&mut self, all: &[Option<Cold>]) {
        for (group, members) in self.groups.iter_mut().zip(all.chunks(BLOCK)) {
            let limits = members.iter().flatten().map(|cold| every(cold.ladder.limit()));
            group.every = limits.min().unwrap_or(LOOKS_MAX);
        }
    }

    /// How often the most impatient of all is to be looked at.
    pub(crate) fn impatience(&self) -> u64 {
        self.groups.iter().map(|group| group.every).min().unwrap_or(LOOKS_MAX)
    }

    /// The groups whose turn it is, or that were stirred; and whether they were.
    pub(crate) fn due(
        &mut self,
        now: u64,
        mut is_stirred: impl FnMut(usize) -> bool,
    ) -> impl Iterator<Item = (&mut Group, bool)> {
        self.groups.iter_mut().filter_map(move |group| {
            let is_stirred = is_stirred(group.number);
            (is_stirred || now >= group.look_at).then_some((group, is_stirred))
        })
    }
}

impl Group {
    pub(crate) fn earliest(&self) -> u64 {
        self.earliest
    }

    /// At this instant something is to be decided about one of them, if nothing moves.
    pub(crate) fn reckoned(&mut self, earliest: u64) {
        self.earliest = earliest;
    }

    /// Where its rows are.
    pub(crate) fn rows(&self) -> Range<usize> {
        self.number * BLOCK..(self.number + 1) * BLOCK
    }

    /// It was looked at by somebody who looks every `tick`.
    pub(crate) fn looked(&mut self, now: u64, tick: u64) {
        // After a first look a group waits for its turn, then it keeps it.
        let turn = if self.look_at == 0 { self.number as u64 % TURNS + 1 } else { TURNS };
        // At the last tick before it would be too late.
        let wait = (self.every / TURNS * turn).saturating_sub(tick);
        self.look_at = now.saturating_add(wait).min(self.earliest).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows that are looked at, tick by tick of 20 ms.
    fn looks(rota: &mut Rota, ticks: u64) -> Vec<Vec<usize>> {
        let tick = 20_000_000;
        let look = |group: &mut Group, now: u64| {
            group.reckoned(u64::MAX);
            group.looked(now, tick);
            group.rows().start
        };
        (1..=ticks)
            .map(|at| rota.due(at * tick, |_| false).map(|(it, _)| look(it, at * tick)).collect())
            .collect()
    }

    #[test]
    fn patient_groups_take_turns_and_each_is_looked_at_in_time() {
        let mut rota = Rota::with_capacity(BLOCK * 160);
        (0..BLOCK * 160).for_each(|at| rota.joins(at, Duration::from_mins(1)));
        let looks = looks(&mut rota, 200);
        assert_eq!(looks[0].len(), 160, "everybody is new");
        let most = looks[1..].iter().map(Vec::len).max();
        assert!(most <= Some(30), "a group in sixteen, or two: {most:?}");
        for group in (0..160).map(|number| number * BLOCK) {
            let at: Vec<usize> = (0..200).filter(|at| looks[*at].contains(&group)).collect();
            assert!(at.windows(2).all(|pair| pair[1] - pair[0] <= 12), "{group}: {at:?}");
            assert!(at.len() <= 20, "{group}: {at:?}");
        }
    }

    #[test]
    fn one_impatient_member_makes_its_group_impatient_and_no_other() {
        let mut rota = Rota::with_capacity(BLOCK * 2);
        (0..BLOCK * 2).for_each(|at| rota.joins(at, Duration::from_mins(1)));
        rota.joins(3, Duration::from_millis(100));
        assert_eq!(rota.impatience(), 12_500_000);
        let looks = looks(&mut rota, 100);
        assert!(looks.iter().all(|rows| rows.contains(&0)));
        assert!(looks.iter().filter(|rows| rows.contains(&BLOCK)).count() <= 10);
    }
}
