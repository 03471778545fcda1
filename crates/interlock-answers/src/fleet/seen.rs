//! What was read of the ledger of one pipeline, and what it counts as.

use std::{collections::BTreeSet, sync::Arc};

use interlock_core::{id::ScheduleId, pipeline::StartSchedule, run::TriggerType, slot::SkipReason};
use interlock_store::{
    LedgerEntry, LedgerRow,
    record::{SlotRecord, SpanRecord},
};
use jiff::{SignedDuration, Timestamp};

use super::{
    cells::{CountedCell, Quarter},
    place::{place_of, place_of_span},
};
use crate::{model::fleet::FleetPlace, read::last_slot::is_scheduled};

/// Instants of one span that are looked at: more than a schedule has slots in the time that is counted at once.
const SPAN_SLOTS_MAX: usize = 200_000;

/// Rows of one pipeline, as far as they are counted.
#[derive(Debug, Default)]
pub(super) struct SeenRows {
    schedules: Vec<ScheduleId>,
    slots: Vec<SeenSlot>,
    spans: Vec<SeenSpan>,
    pub(super) open: Vec<OpenSlot>,
    /// The last row that cannot be read, or counts as unknown.
    pub(super) problem: Option<RowProblem>,
}

#[derive(Debug, Clone, Copy)]
struct SeenSlot {
    schedule: u16,
    place: FleetPlace,
    reason: Option<SkipReason>,
    at: Timestamp,
}

#[derive(Debug)]
struct SeenSpan {
    schedule: ScheduleId,
    first: Timestamp,
    place: FleetPlace,
    record: SpanRecord,
}

/// A row that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowProblem {
    /// When its slot is.
    pub(super) at: Quarter,
    /// What is wrong with it.
    pub(super) message: String,
}

/// A slot that is not decided yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenSlot {
    pub(super) at: Timestamp,
    pub(super) place: FleetPlace,
    pub(super) opened_at: Timestamp,
    pub(super) is_catchup: bool,
    /// From when on its completion is at risk, and by when it is to be completed.
    pub(super) warning_at: Option<Timestamp>,
    pub(super) breach_at: Option<Timestamp>,
}

impl OpenSlot {
    /// What is kept of an open slot that is counted in a place.
    pub(super) fn of(at: Timestamp, slot: &SlotRecord, place: FleetPlace) -> Self {
        let sla = slot.sla.as_deref();
        Self {
            at,
            place,
            opened_at: slot.opened_at,
            is_catchup: TriggerType::Catchup.as_str() == &*slot.opened_by,
            warning_at: sla.and_then(|sla| sla.warning_at),
            breach_at: sla.and_then(|sla| sla.breach_at),
        }
    }
}

/// How the last slot ended that is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DecidedSlot {
    pub(super) at: Timestamp,
    pub(super) place: FleetPlace,
    pub(super) reason: Option<SkipReason>,
}

/// A slot that is recorded although its schedule is not recorded up to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RecordedSlot {
    pub(super) at: Timestamp,
    pub(super) schedule: ScheduleId,
}

/// A time in which slots are counted: from the first quarter on, before the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QuarterRange {
    pub(super) from: Quarter,
    pub(super) until: Quarter,
}

impl QuarterRange {
    /// Whether an instant is in it.
    pub(super) fn has(self, at: Timestamp) -> bool {
        let quarter = Quarter::of(at);
        self.from <= quarter && quarter < self.until
    }
}

/// Finds the schedule of an id among those of a pipeline.
pub(super) type ScheduleOf<'a> = &'a dyn Fn(&ScheduleId) -> Option<Arc<StartSchedule>>;

impl SeenRows {
    /// Takes a row of the ledger. What a person asked for beside the schedules, and stops, is owed by none and not counted.
    pub(super) fn take(&mut self, row: LedgerRow) {
        if !is_scheduled(&row.schedule) {
            return;
        }
        match row.entry {
            LedgerEntry::Slot(slot) => {
                let place = place_of(&slot).unwrap_or_else(|| {
                    self.problem = Some(RowProblem::unknown_word(&row.schedule, row.nominal));
                    FleetPlace::Unknown
                });
                let reason = slot.reason.as_deref().and_then(|word| SkipReason::parse(word).ok());
                if place.is_open() {
                    self.open.push(OpenSlot::of(row.nominal, &slot, place));
                }
                let schedule = self.schedule(row.schedule);
                self.slots.push(SeenSlot { schedule, place, reason, at: row.nominal });
            }
            LedgerEntry::Span(record) => {
                let place = place_of_span(&record).unwrap_or_else(|| {
                    self.problem = Some(RowProblem::unknown_word(&row.schedule, row.nominal));
                    FleetPlace::Unknown
                });
                let (schedule, first) = (row.schedule, row.nominal);
                self.spans.push(SeenSpan { schedule, first, place, record });
            }
        }
    }

    /// How many slots are in each place at each time of a range.
    pub(super) fn counted(&self, range: QuarterRange, known: ScheduleOf<'_>) -> Vec<CountedCell> {
        let one = |at: Timestamp, place| CountedCell { at: Quarter::of(at), place, count: 1 };
        let slots = self.slots.iter().filter(|slot| range.has(slot.at));
        let mut counted: Vec<_> = slots.map(|slot| one(slot.at, slot.place)).collect();
        for span in &self.spans {
            counted.extend(
                self.slots_of(span, range, known).into_iter().map(|at| one(at, span.place)),
            );
        }
        counted
    }

    /// The last slot of a range that is decided.
    pub(super) fn decided(&self, range: QuarterRange) -> Option<DecidedSlot> {
        let slots = self.slots.iter().filter(|slot| !slot.place.is_open() && range.has(slot.at));
        let slots = slots.map(|slot| {
            let SeenSlot { at, place, reason, .. } = *slot;
            DecidedSlot { at, place, reason }
        });
        let spans = self.spans.iter().filter(|span| range.has(span.record.last));
        let spans = spans.map(|span| {
            let reason = span.record.reason.as_deref();
            let reason = reason.and_then(|word| SkipReason::parse(word).ok());
            DecidedSlot { at: span.record.last, place: span.place, reason }
        });
        slots.chain(spans).max_by_key(|slot| slot.at)
    }

    /// The slots that are recorded behind what their schedules are recorded up to.
    pub(super) fn behind(
        &self,
        mark: impl Fn(&ScheduleId) -> Option<Timestamp>,
    ) -> Vec<RecordedSlot> {
        let marks: Vec<_> = self.schedules.iter().map(&mark).collect();
        let is_behind = |slot: &&SeenSlot| {
            marks.get(usize::from(slot.schedule)).copied().flatten().is_some_and(|at| slot.at > at)
        };
        let found = self.slots.iter().filter(is_behind).filter_map(|slot| {
            let schedule = self.schedules.get(usize::from(slot.schedule))?.clone();
            Some(RecordedSlot { at: slot.at, schedule })
        });
        found.collect()
    }

    /// Each slot with its place, those of spans too, in no order.
    pub(super) fn each(
        &self,
        range: QuarterRange,
        known: ScheduleOf<'_>,
    ) -> Vec<(ScheduleId, DecidedSlot)> {
        let mut found = Vec::new();
        for slot in self.slots.iter().filter(|slot| range.has(slot.at)) {
            let SeenSlot { schedule, at, place, reason } = *slot;
            let Some(schedule) = self.schedules.get(usize::from(schedule)) else { continue };
            found.push((schedule.clone(), DecidedSlot { at, place, reason }));
        }
        for span in &self.spans {
            let reason = span.record.reason.as_deref();
            let reason = reason.and_then(|word| SkipReason::parse(word).ok());
            for at in self.slots_of(span, range, known) {
                let slot = DecidedSlot { at, place: span.place, reason };
                found.push((span.schedule.clone(), slot));
            }
        }
        found
    }

    fn schedule(&mut self, id: ScheduleId) -> u16 {
        let found = self.schedules.iter().position(|known| *known == id);
        let at = found.unwrap_or_else(|| {
            self.schedules.push(id);
            self.schedules.len() - 1
        });
        at as u16
    }

    /// The slots of a span within a range that have no row of their own. Where the schedule is not known any more, or is another, they
    /// are spread evenly: which they were is not known, how many there were is kept.
    fn slots_of(
        &self,
        span: &SeenSpan,
        range: QuarterRange,
        known: ScheduleOf<'_>,
    ) -> Vec<Timestamp> {
        let (first, last) = (span.first, span.record.last);
        let from = first.max(range.from.start());
        let until = just_after(last).min(range.until.start());
        if from >= until {
            return vec![];
        }
        let own: BTreeSet<Timestamp> = self
            .slots
            .iter()
            .filter(|slot| self.schedules.get(usize::from(slot.schedule)) == Some(&span.schedule))
            .map(|slot| slot.at)
            .collect();
        let start = known(&span.schedule);
        let start = start.filter(|it| it.schedule.is_slot(first) && it.schedule.is_slot(last));
        let mut slots = match start {
            Some(start) => start.schedule.slots(from, until, SPAN_SLOTS_MAX).found,
            None => spread(span).filter(|at| (from..until).contains(at)).collect(),
        };
        slots.retain(|at| !own.contains(at));
        slots
    }
}

/// Instants from the first to the last of a span, as many as it has slots.
fn spread(span: &SeenSpan) -> impl Iterator<Item = Timestamp> {
    let count = span.record.count.min(SPAN_SLOTS_MAX as u64) as i64;
    let (first, last) = (span.first, span.record.last);
    let seconds = last.duration_since(first).as_secs();
    (0..count).map(move |slot| match count - 1 {
        0 => first,
        gaps => {
            let behind = i128::from(seconds) * i128::from(slot) / i128::from(gaps);
            first.saturating_add(SignedDuration::from_secs(behind as i64)).unwrap_or(last)
        }
    })
}

fn just_after(at: Timestamp) -> Timestamp {
    at.saturating_add(SignedDuration::from_millis(1)).unwrap_or(at)
}

impl RowProblem {
    fn unknown_word(schedule: &ScheduleId, at: Timestamp) -> Self {
        let message =
            format!("the slot {schedule}/{at} says a word that this version does not know");
        Self { at: Quarter::of(at), message }
    }
}
