//! What lists and sums need of a pipeline, and until when it holds although nothing is written.

use jiff::{SignedDuration, Timestamp};

use super::{
    cells::Quarter,
    planned::{RECORDED_WITHIN, just_after, unrecorded_since},
    state::PAUSE_MAX,
    tallied::{TalliedPipeline, TalliedSchedule},
};
use crate::model::fleet::{FleetCountsAnswer, FleetPlace, FleetState};

/// Where a pipeline stands in lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowSummary {
    /// When it was looked at.
    pub(super) at: Timestamp,
    pub(super) state: FleetState,
    /// Its next slot, in seconds since the epoch; the greatest number where there is none.
    pub(super) next: i64,
    /// When something of this, or of its sums, changes by the clock alone.
    pub(super) changes_at: Option<Timestamp>,
}

/// What became of slots since a midnight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DayCounts {
    pub(super) counts: FleetCountsAnswer,
    /// Due for a while, and not recorded.
    pub(super) unaccounted: u64,
}

impl RowSummary {
    /// Of a pipeline that no list has yet.
    pub(super) fn none() -> Self {
        let (at, state) = (Timestamp::UNIX_EPOCH, FleetState::NotDue);
        Self { at, state, next: i64::MAX, changes_at: None }
    }
}

impl DayCounts {
    pub(super) fn add(&mut self, other: &Self) {
        for place in FleetPlace::ALL {
            self.counts.add(place, other.counts.of(place));
        }
        self.unaccounted += other.unaccounted;
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        for place in FleetPlace::ALL {
            self.counts.take(place, other.counts.of(place));
        }
        self.unaccounted = self.unaccounted.saturating_sub(other.unaccounted);
    }
}

impl TalliedPipeline {
    /// Where it stands at an instant.
    pub(super) fn summarised(&self, at: Timestamp) -> RowSummary {
        RowSummary {
            at,
            state: self.state(at),
            next: self.next(at).map_or(i64::MAX, |(next, _)| next.as_second()),
            changes_at: self.changes_after(at),
        }
    }

    /// Its slots from a midnight until an instant.
    pub(super) fn since_midnight(&self, midnight: Timestamp, at: Timestamp) -> DayCounts {
        let (from, until) = (Quarter::at_or_after(midnight), Quarter::of(at).after(1));
        let mut counts = self.cells.counts(from, until);
        // What a person asked for ahead of its time is not due yet, though it is in the present quarter.
        for slot in self.open.iter().filter(|slot| slot.at > at && Quarter::of(slot.at) < until) {
            counts.take(slot.place, 1);
        }
        let due = unrecorded_since(self, midnight, at);
        counts.add(FleetPlace::Waiting, due.waiting);
        DayCounts { counts, unaccounted: due.unaccounted }
    }

    /// When its state, its next slot or its sums next change by the clock alone.
    fn changes_after(&self, at: Timestamp) -> Option<Timestamp> {
        let open = self.open.iter().flat_map(|slot| {
            [Some(slot.at), slot.warning_at, slot.breach_at.map(just_after)].into_iter().flatten()
        });
        let pause = self.declared.pause.iter().flat_map(|pause| {
            let long = pause.since.saturating_add(PAUSE_MAX).ok().map(just_after);
            [Some(pause.since), pause.until, long].into_iter().flatten()
        });
        let ahead = self.cells.first_after(Quarter::of(at)).map(Quarter::start);
        let due = self.declared.schedules.iter().filter_map(|it| it.changes_after(at));
        open.chain(pause).chain(ahead).chain(due).filter(|change| *change > at).min()
    }
}

impl TalliedSchedule {
    /// When its next slot is due, or the oldest that is waited for has been waited for long enough.
    fn changes_after(&self, at: Timestamp) -> Option<Timestamp> {
        let owed_from = self.owed_from?;
        if owed_from > at {
            return Some(owed_from);
        }
        let patience = RECORDED_WITHIN + self.start.jitter;
        let waited = at.saturating_sub(patience).unwrap_or(owed_from).max(owed_from);
        let oldest = self.start.schedule.slots(waited, just_after(at), 1).found.first().copied();
        let ends = oldest.and_then(|slot| slot.saturating_add(patience).ok()).map(just_after);
        let next = self.start.schedule.after(at);
        ends.into_iter().chain(next).min()
    }
}

/// What was asked for a while ago is no longer kept up to date.
pub(super) const ASKED_WITHIN: SignedDuration = SignedDuration::from_mins(15);
