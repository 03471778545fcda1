//! In which place a slot is counted: one for each state, disposition and mark (`docs/adr/0062-the-fleets-tally.md`).

use interlock_core::{
    run::TriggerType,
    slot::{Disposition, OpenState},
};
use interlock_store::record::{SlotRecord, SpanRecord};

use crate::model::fleet::{FleetCountsAnswer, FleetPlace};

impl FleetPlace {
    /// All of them, in the order of a sum: what went well, what did not, what is not decided.
    pub const ALL: [Self; 11] = [
        Self::OnTime,
        Self::CaughtUp,
        Self::Late,
        Self::Failed,
        Self::Missed,
        Self::Unknown,
        Self::Skipped,
        Self::Cancelled,
        Self::Running,
        Self::Waiting,
        Self::Planned,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OnTime => "onTime",
            Self::CaughtUp => "caughtUp",
            Self::Late => "late",
            Self::Failed => "failed",
            Self::Missed => "missed",
            Self::Unknown => "unknown",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Planned => "planned",
        }
    }

    /// Whether a person may want to know of each slot there: such slots are listed.
    pub fn is_exception(self) -> bool {
        matches!(self, Self::Failed | Self::Missed | Self::Unknown | Self::Late | Self::CaughtUp)
    }

    /// Whether what is there is not decided yet.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Running | Self::Waiting)
    }
}

impl FleetCountsAnswer {
    /// Counts so many slots more in a place.
    pub fn add(&mut self, place: FleetPlace, count: u64) {
        *self.of_mut(place) += count;
    }

    /// Counts so many slots less in a place, if there are any.
    pub(super) fn take(&mut self, place: FleetPlace, count: u64) {
        let counted = self.of_mut(place);
        *counted = counted.saturating_sub(count);
    }

    /// How many are in a place.
    pub fn of(mut self, place: FleetPlace) -> u64 {
        *self.of_mut(place)
    }

    /// How many there are in all places.
    pub fn sum(self) -> u64 {
        FleetPlace::ALL.into_iter().map(|place| self.of(place)).sum()
    }

    fn of_mut(&mut self, place: FleetPlace) -> &mut u64 {
        match place {
            FleetPlace::OnTime => &mut self.on_time,
            FleetPlace::CaughtUp => &mut self.caught_up,
            FleetPlace::Late => &mut self.late,
            FleetPlace::Failed => &mut self.failed,
            FleetPlace::Missed => &mut self.missed,
            FleetPlace::Unknown => &mut self.unknown,
            FleetPlace::Skipped => &mut self.skipped,
            FleetPlace::Cancelled => &mut self.cancelled,
            FleetPlace::Running => &mut self.running,
            FleetPlace::Waiting => &mut self.waiting,
            FleetPlace::Planned => &mut self.planned,
        }
    }
}

/// The place of a slot; none if its row says a word that this version does not know.
pub(super) fn place_of(slot: &SlotRecord) -> Option<FleetPlace> {
    let Some(word) = slot.disposition.as_deref() else {
        let open = OpenState::ALL.into_iter().find(|state| state.as_str() == &*slot.state)?;
        return Some(match open {
            OpenState::Running => FleetPlace::Running,
            OpenState::Waiting | OpenState::Queued | OpenState::Backoff => FleetPlace::Waiting,
            OpenState::Monitoring => place_of_completed(slot),
        });
    };
    let disposition = Disposition::parse(word, slot.reason.as_deref()).ok()?;
    let is_completed = disposition == Disposition::Completed;
    Some(if is_completed { place_of_completed(slot) } else { place_of_other(disposition) })
}

/// The place of all slots of a span; none if its row says a word that this version does not know.
pub(super) fn place_of_span(span: &SpanRecord) -> Option<FleetPlace> {
    Disposition::parse(&span.disposition, span.reason.as_deref()).ok().map(place_of_other)
}

fn place_of_completed(slot: &SlotRecord) -> FleetPlace {
    let repairs = [TriggerType::Catchup, TriggerType::Backfill, TriggerType::Reconcile];
    let is_repair = repairs.into_iter().any(|kind| kind.as_str() == &*slot.opened_by);
    if slot.marks.late {
        FleetPlace::Late
    } else if is_repair || slot.marks.recovered || slot.marks.missed_at.is_some() {
        FleetPlace::CaughtUp
    } else {
        FleetPlace::OnTime
    }
}

fn place_of_other(disposition: Disposition) -> FleetPlace {
    match disposition {
        Disposition::Completed => FleetPlace::OnTime,
        Disposition::Failed => FleetPlace::Failed,
        Disposition::Cancelled => FleetPlace::Cancelled,
        Disposition::Missed => FleetPlace::Missed,
        Disposition::Unknown => FleetPlace::Unknown,
        Disposition::Skipped(reason) if reason.counts_as_missed() => FleetPlace::Missed,
        Disposition::Skipped(_) => FleetPlace::Skipped,
    }
}
