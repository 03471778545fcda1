//! The slots of one pipeline that are not decided, in their order, with what every step asks about all of them.
//!
//! A queue may be hundreds of slots long, and most steps move one of them: what can be counted as slots come and go is not
//! counted by looking at each.

use std::{collections::BTreeMap, ops::Deref};

use interlock_core::{
    run::TriggerType,
    slot::{OpenState, Slot, SlotState},
};

use crate::state::{KnownRun, OpenSlot, SlotPlace};

/// Slots that are not decided. They are read as the map that they are, and changed only by what keeps the counts right.
#[derive(Debug, Default)]
pub(crate) struct Undecided {
    slots: BTreeMap<SlotPlace, OpenSlot>,
    /// Invariant: this and what follows are what one would count in `slots`.
    running: usize,
    /// Of those, slots that catch-up opened.
    running_catchup: usize,
    deferrable: usize,
    /// The versions under which slots were recorded, and how many under each.
    versions: Vec<(u64, usize)>,
}

impl Undecided {
    pub(crate) fn insert(&mut self, place: SlotPlace, open: OpenSlot) {
        self.count(Kind::of(&open.slot), Change::Comes);
        if let Some(old) = self.slots.insert(place, open) {
            self.count(Kind::of(&old.slot), Change::Goes);
        }
    }

    pub(crate) fn remove(&mut self, place: &SlotPlace) -> Option<OpenSlot> {
        let gone = self.slots.remove(place)?;
        self.count(Kind::of(&gone.slot), Change::Goes);
        Some(gone)
    }

    /// Takes over what became of a slot, if one of the same generation is here; else gives it back.
    pub(crate) fn renew(&mut self, place: &SlotPlace, slot: Slot, revision: u64) -> Option<Slot> {
        let known = self.slots.get_mut(place);
        let Some(open) = known.filter(|open| open.slot.generation == slot.generation) else {
            return Some(slot);
        };
        let (before, after) = (Kind::of(&open.slot), Kind::of(&slot));
        (open.slot, open.revision) = (slot, revision);
        if before != after {
            self.count(after, Change::Comes);
            self.count(before, Change::Goes);
        }
        None
    }

    /// The runs of a slot.
    pub(crate) fn runs_mut(&mut self, place: &SlotPlace) -> Option<&mut Vec<KnownRun>> {
        self.slots.get_mut(place).map(|open| &mut open.runs)
    }

    /// How many are running, and how many of those catch-up opened.
    pub(crate) fn running(&self) -> (u32, u32) {
        (self.running as u32, self.running_catchup as u32)
    }

    /// How many only wait in the queue of missed slots, and the last of them.
    pub(crate) fn deferrable(&self) -> (usize, Option<&SlotPlace>) {
        let mut kept = self.slots.iter().filter(|(_, open)| is_deferrable(&open.slot));
        let last = if self.deferrable > 0 { kept.next_back() } else { None };
        (self.deferrable, last.map(|(place, _)| place))
    }

    /// The versions under which they were recorded, each once, in their order.
    pub(crate) fn versions(&self) -> impl Iterator<Item = u64> {
        self.versions.iter().map(|(version, _)| *version)
    }

    fn count(&mut self, kind: Kind, change: Change) {
        let by = |count: usize| match change {
            Change::Comes => count + 1,
            Change::Goes => count - 1,
        };
        if kind.is_running {
            self.running = by(self.running);
            if kind.is_catchup {
                self.running_catchup = by(self.running_catchup);
            }
        }
        if kind.is_deferrable {
            self.deferrable = by(self.deferrable);
        }
        match self.versions.binary_search_by_key(&kind.version, |(version, _)| *version) {
            Ok(place) => {
                let Some((_, count)) = self.versions.get_mut(place) else { return };
                *count = by(*count);
                if *count == 0 {
                    self.versions.remove(place);
                }
            }
            Err(place) => self.versions.insert(place, (kind.version, by(0))),
        }
    }
}

/// What is counted of a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    version: u64,
    is_running: bool,
    is_catchup: bool,
    is_deferrable: bool,
}

impl Kind {
    fn of(slot: &Slot) -> Self {
        Self {
            version: slot.version,
            is_running: slot.state == SlotState::Open(OpenState::Running),
            is_catchup: slot.opened_by == TriggerType::Catchup,
            is_deferrable: is_deferrable(slot),
        }
    }
}

/// What happens to a slot here.
#[derive(Clone, Copy)]
enum Change {
    Comes,
    Goes,
}

impl Deref for Undecided {
    type Target = BTreeMap<SlotPlace, OpenSlot>;

    fn deref(&self) -> &Self::Target {
        &self.slots
    }
}

/// Whether a slot waits in the queue of its pipeline and nothing else is known of it.
pub(crate) fn is_deferrable(slot: &Slot) -> bool {
    slot.state == SlotState::Open(OpenState::Queued)
        && slot.opened_by == TriggerType::Catchup
        && slot.attempt == 0
}

#[cfg(test)]
mod tests {
    use interlock_core::{
        id::ScheduleId,
        slot::{Disposition, Opening},
    };
    use jiff::Timestamp;

    use super::*;

    fn slot(state: OpenState, opened_by: TriggerType, version: u64) -> Slot {
        let (at, closes_at) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        let date = jiff::civil::date(2026, 2, 25);
        Slot::open(state, Opening { opened_by, date, at, closes_at, version })
    }

    fn place(second: i64) -> SlotPlace {
        (Timestamp::from_second(second).unwrap(), ScheduleId::from_static("main"))
    }

    /// What is kept is what one would count.
    fn check(open: &Undecided, running: (u32, u32), deferrable: usize, versions: &[u64]) {
        assert_eq!(open.running(), running);
        let last = open.iter().rfind(|(_, open)| is_deferrable(&open.slot));
        assert_eq!(open.deferrable(), (deferrable, last.map(|(place, _)| place)));
        assert_eq!(open.versions().collect::<Vec<_>>(), versions);
    }

    #[test]
    fn counts_follow_what_comes_changes_and_goes() {
        let mut open = Undecided::default();
        let put = |open: &mut Undecided, second, slot: Slot| {
            open.insert(place(second), OpenSlot { slot, revision: 1, runs: vec![] });
        };
        check(&open, (0, 0), 0, &[]);
        put(&mut open, 1, slot(OpenState::Running, TriggerType::Scheduler, 7));
        put(&mut open, 2, slot(OpenState::Queued, TriggerType::Catchup, 3));
        put(&mut open, 3, slot(OpenState::Queued, TriggerType::Catchup, 7));
        put(&mut open, 4, slot(OpenState::Queued, TriggerType::Scheduler, 7));
        check(&open, (1, 0), 2, &[3, 7]);
        let begun = slot(OpenState::Running, TriggerType::Catchup, 3);
        assert!(open.renew(&place(2), begun, 2).is_none());
        check(&open, (2, 1), 1, &[3, 7]);
        let mut again = slot(OpenState::Queued, TriggerType::Catchup, 9);
        again.generation += 1;
        assert!(
            open.renew(&place(2), again.clone(), 2).is_some(),
            "another generation is another slot"
        );
        put(&mut open, 2, again);
        check(&open, (1, 0), 2, &[7, 9]);
        assert!(open.remove(&place(9)).is_none());
        assert!(open.remove(&place(3)).is_some());
        assert!(open.remove(&place(2)).is_some());
        check(&open, (1, 0), 0, &[7]);
        let ended = slot(OpenState::Running, TriggerType::Scheduler, 7);
        let ended = ended.close(Disposition::Completed, Timestamp::UNIX_EPOCH).unwrap();
        assert!(open.renew(&place(1), ended, 2).is_none());
        check(&open, (0, 0), 0, &[7]);
    }
}
