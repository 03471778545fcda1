//! Backfill: which slots of a range run again, and why the others do not.
//!
//! A backfill goes through the slots of some schedules in a range, in one order, and judges each by what the
//! ledger says ([`plan`]). The one who asks walks the whole range at once, to show it; the owner walks on from a
//! cursor, a few slots at a time. Both call the same function, so that they come to the same answer (S5).
//!
//! Invariant (S7): a slot that is open is never touched. See `docs/adr/0012-backfill.md`.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::{
    id::ScheduleId,
    pipeline::{Pipeline, TriggerKind},
    run::TriggerType,
    schedule::{Recurrence, Schedule},
    slot::{Disposition, OpenState, Slot, SlotState},
};

/// The most runs of one backfill at a time.
pub const CONCURRENCY_MAX: u32 = 100;

/// Where a slot stands among those of its pipeline.
pub type Place = (Timestamp, ScheduleId);

/// Which slots run: those that …
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reprocess {
    /// … never ran: absent, missed, unknown or skipped.
    Missing,
    /// … have no success: also those that failed or were cancelled.
    Failed,
    /// … are not open.
    All,
}

/// In which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The oldest first.
    Ascending,
    /// The newest first.
    Descending,
}

/// How a backfill stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It goes on.
    Running,
    /// Nothing of it begins.
    Paused,
    /// Somebody ended it.
    Cancelled,
    /// It came to its end.
    Done,
}

impl Reprocess {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Missing, Self::Failed, Self::All];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Failed => "failed",
            Self::All => "all",
        }
    }

    /// Reads one of the words.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == text)
    }

    /// Whether a slot that ended like this runs.
    pub fn takes(self, disposition: Disposition) -> bool {
        match disposition {
            Disposition::Missed | Disposition::Unknown | Disposition::Skipped(_) => true,
            Disposition::Failed | Disposition::Cancelled => self != Self::Missing,
            Disposition::Completed => self == Self::All,
        }
    }
}

impl Order {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Ascending, Self::Descending];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ascending => "asc",
            Self::Descending => "desc",
        }
    }

    /// Reads one of the words.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == text)
    }
}

impl State {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Running, Self::Paused, Self::Cancelled, Self::Done];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Cancelled => "cancelled",
            Self::Done => "done",
        }
    }

    /// Reads one of the words.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == text)
    }

    /// Whether slots of it may still be opened.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Running | Self::Paused)
    }
}

/// What a backfill goes through.
#[derive(Debug, Clone)]
pub struct Extent<'a> {
    /// The schedules, in the order of their ids.
    pub schedules: Vec<Bounded<'a>>,
    /// The first instant.
    pub from: Timestamp,
    /// The first instant after it.
    pub to: Timestamp,
    /// Which slots run.
    pub reprocess: Reprocess,
    /// In which order.
    pub order: Order,
    /// When it began; what was opened since had its turn.
    pub since: Timestamp,
}

/// A schedule and how far its slots are recorded.
#[derive(Debug, Clone, Copy)]
pub struct Bounded<'a> {
    /// The schedule.
    pub schedule: &'a Schedule,
    /// Slots after this are its own to record; there is no such bound while the pipeline is paused, nor while nobody
    /// serves.
    pub recorded_until: Option<Timestamp>,
}

/// The next slots of an extent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates {
    /// In the order of the backfill.
    pub places: Vec<Place>,
    /// Whether there are no more after them.
    pub is_end: bool,
}

/// What the ledger says about a stretch of time.
#[derive(Debug, Clone, Default)]
pub struct Ledgered {
    /// Slots.
    pub rows: BTreeMap<Place, Standing>,
    /// Spans: schedule, first and last slot, and how they ended.
    pub spans: Vec<(ScheduleId, Timestamp, Timestamp, Disposition)>,
}

/// How a recorded slot stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Open or closed.
    pub state: SlotState,
    /// See [`Slot::generation`](crate::slot::Slot::generation).
    pub generation: u32,
    /// When that generation was opened.
    pub opened_at: Timestamp,
}

/// What becomes of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It runs.
    Run,
    /// It ended like this, and stays so.
    Exists(Disposition),
    /// It is open: whoever opened it brings it to its end.
    Open(OpenState),
    /// Its schedule has not recorded it yet, and does that first.
    Owed,
}

impl Standing {
    /// How a recorded slot stands; nothing if it is as good as not recorded.
    ///
    /// A slot that an earlier backfill opened and whose cancel came before its first attempt stands as it did
    /// before that backfill: a cancel must leave nothing that blocks later runs (S7).
    pub fn of(slot: &Slot) -> Option<Self> {
        let Slot { state, generation, opened_at, .. } = *slot;
        if never_began(slot) {
            let before = slot.wish.as_ref()?.before?;
            return Some(Self { state: SlotState::Closed(before), generation: 0, opened_at });
        }
        Some(Self { state, generation, opened_at })
    }
}

fn never_began(slot: &Slot) -> bool {
    slot.opened_by == TriggerType::Backfill
        && slot.attempt == 0
        && slot.state == SlotState::Closed(Disposition::Cancelled)
}

impl Ledgered {
    /// How a slot had ended, if it had, when a backfill opens it.
    pub fn before(&self, place: &Place) -> Option<Disposition> {
        match self.at(place)?.state {
            SlotState::Closed(disposition) => Some(disposition),
            SlotState::Open(_) => None,
        }
    }

    fn at(&self, place: &Place) -> Option<Standing> {
        let row = self.rows.get(place).copied();
        row.or_else(|| {
            let covers = |(id, first, last, _): &&(ScheduleId, Timestamp, Timestamp, _)| {
                *id == place.1 && (*first..=*last).contains(&place.0)
            };
            let (_, first, _, disposition) = self.spans.iter().find(covers)?;
            // Slots of a span were never open.
            let state = SlotState::Closed(*disposition);
            Some(Standing { state, generation: 0, opened_at: *first })
        })
    }
}

impl Extent<'_> {
    /// The next so many slots after a place.
    pub fn next(&self, after: Option<&Place>, max: usize) -> Candidates {
        let mut heads: Vec<_> = self.schedules.iter().map(|it| self.first(it, after)).collect();
        let mut places = Vec::new();
        loop {
            let found = heads.iter().zip(&self.schedules).enumerate().filter_map(
                |(index, (head, bounded))| Some((((*head)?, bounded.schedule.id()), index)),
            );
            let chosen = match self.order {
                Order::Ascending => found.min(),
                Order::Descending => found.max(),
            };
            let Some(((slot, id), index)) = chosen else {
                return Candidates { places, is_end: true };
            };
            if places.len() >= max {
                return Candidates { places, is_end: false };
            }
            let place = (slot, id.clone());
            if let (Some(head), Some(bounded)) = (heads.get_mut(index), self.schedules.get(index)) {
                *head = self.first(bounded, Some(&place));
            }
            places.push(place);
        }
    }

    /// The first slot of a schedule after a place.
    fn first(&self, bounded: &Bounded<'_>, after: Option<&Place>) -> Option<Timestamp> {
        let schedule = bounded.schedule;
        // A slot at the same instant as the place comes after it if its schedule's id does.
        let found = match (self.order, after) {
            (Order::Ascending, None) => schedule.next(self.from),
            (Order::Ascending, Some((at, id))) if schedule.id() > id => schedule.next(*at),
            (Order::Ascending, Some((at, _))) => schedule.after(*at),
            (Order::Descending, None) => schedule.previous(self.to),
            (Order::Descending, Some((at, id))) if schedule.id() < id => {
                schedule.previous(at.saturating_add(SignedDuration::from_nanos(1)).ok()?)
            }
            (Order::Descending, Some((at, _))) => schedule.previous(*at),
        };
        found.filter(|slot| (self.from..self.to).contains(slot))
    }

    fn judge(&self, place: &Place, ledger: &Ledgered) -> Verdict {
        let Some(standing) = ledger.at(place) else {
            let bound = self.schedules.iter().find(|it| *it.schedule.id() == place.1);
            let bound = bound.and_then(|it| it.recorded_until);
            let is_owed = bound.is_some_and(|until| place.0 > until);
            return if is_owed { Verdict::Owed } else { Verdict::Run };
        };
        match standing.state {
            SlotState::Open(state) => Verdict::Open(state),
            SlotState::Closed(disposition) => {
                let had_its_turn = standing.generation > 0 && standing.opened_at >= self.since;
                if self.reprocess.takes(disposition) && !had_its_turn {
                    Verdict::Run
                } else {
                    Verdict::Exists(disposition)
                }
            }
        }
    }
}

/// Judges slots of an extent by what the ledger says about the time that they lie in.
pub fn plan(extent: &Extent<'_>, places: &[Place], ledger: &Ledgered) -> Vec<Verdict> {
    places.iter().map(|place| extent.judge(place, ledger)).collect()
}

/// Why the slots of a pipeline, or of one of its schedules, cannot be run by a backfill, if so.
pub fn refusal(pipeline: &Pipeline, schedule: Option<&ScheduleId>) -> Option<String> {
    let name = &pipeline.name;
    match pipeline.trigger.as_ref().map(|trigger| &trigger.kind) {
        None => return Some(format!("{name} has no trigger, so there is nothing to run")),
        Some(TriggerKind::External) => {
            return Some(format!("{name} is watch-only: Interlock does not run its jobs"));
        }
        Some(_) => {}
    }
    let Some(id) = schedule else {
        let is_any = pipeline.starts.iter().any(|start| has_slots(&start.schedule));
        return (!is_any).then(|| format!("no schedule of {name} owes slots by the clock"));
    };
    match pipeline.starts.iter().find(|start| start.schedule.id() == id) {
        None => {
            let known: Vec<_> =
                pipeline.starts.iter().map(|start| start.schedule.id().to_string()).collect();
            Some(format!("{name} has no schedule `{id}`; it has {}", known.join(", ")))
        }
        Some(start) if !has_slots(&start.schedule) => Some(format!(
            "`{id}` is opened by reports, not by the clock: it has no slots in a range"
        )),
        Some(_) => None,
    }
}

/// Whether a schedule has slots by the clock alone.
pub fn has_slots(schedule: &Schedule) -> bool {
    match schedule.recurrence() {
        Recurrence::Sensor { .. } | Recurrence::SinceLast { .. } => false,
        Recurrence::Cron(_)
        | Recurrence::Every { .. }
        | Recurrence::At { .. }
        | Recurrence::Once(_)
        | Recurrence::Dates { .. }
        | Recurrence::Daily => true,
    }
}

/// The hash of slots in a row, one after the other: what was planned and what was opened can be compared.
///
/// It is stored, so it must never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    /// With one more slot.
    #[must_use]
    pub fn with(self, (nominal, schedule): &Place) -> Self {
        let name = format!("{schedule}/{nominal}\n");
        let hash = name
            .bytes()
            .fold(self.0, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Self(hash)
    }
}

#[cfg(test)]
mod tests;
