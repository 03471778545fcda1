//! What the checkers remember of one pipeline: a ledger of their own, written from what the store accepted.

use std::collections::{BTreeMap, BTreeSet};

use interlock_core::id::ScheduleId;
use interlock_store::{
    RunKey,
    record::{PauseRecord, PipelineRecord, SlotRecord, SpanRecord},
};
use jiff::{Timestamp, civil::Date};
use serde_json::Value;

use super::{
    Scene,
    arrivals::{Suspicion, TakenFact},
    backfills::SeenBackfill,
};

/// A slot, by schedule and instant.
pub(crate) type Place = (ScheduleId, Timestamp);

/// One pipeline.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) version: u64,
    pub(crate) is_retired: bool,
    pub(crate) is_disabled: bool,
    pub(crate) pause: Option<PauseRecord>,
    /// When its files were last edited under a living owner, while nothing kept it from recording.
    pub(crate) edited_at: Option<Timestamp>,
    pub(crate) watermarks: BTreeMap<ScheduleId, Timestamp>,
    pub(crate) slots: BTreeMap<Place, SeenSlot>,
    /// Those of the slots that are open: few of many.
    pub(crate) open: BTreeMap<Place, SeenSlot>,
    /// Those whose job succeeded at least once.
    pub(crate) done: BTreeSet<Place>,
    pub(crate) spans: BTreeMap<Place, SeenSpan>,
    pub(crate) runs: BTreeMap<RunKey, &'static str>,
    /// When runs began that are not over, and those that were called stuck.
    pub(crate) under_way: BTreeMap<RunKey, Timestamp>,
    pub(crate) stuck: BTreeSet<RunKey>,
    pub(crate) sensors: BTreeMap<String, Value>,
    /// Reports that may open slots, by their keys in the inbox.
    pub(crate) facts: BTreeMap<String, TakenFact>,
    pub(crate) suspicions: Vec<Suspicion>,
    pub(crate) backfills: BTreeMap<u64, SeenBackfill>,
    /// By dedup key: whether it is open.
    pub(crate) incidents: BTreeMap<String, bool>,
    /// When catch-up last opened slots, and how many then.
    pub(crate) caught_up: Option<(Timestamp, u32)>,
}

/// A slot as it stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeenSlot {
    /// `closed`, or the word of an open state.
    pub(crate) state: &'static str,
    pub(crate) disposition: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) opened_by: &'static str,
    pub(crate) generation: u32,
    pub(crate) attempt: u32,
    pub(crate) version: u64,
    pub(crate) date: Date,
    pub(crate) opened_at: Timestamp,
    pub(crate) closes_at: Timestamp,
    pub(crate) is_forced: bool,
    pub(crate) is_uncertain: bool,
    pub(crate) missed_at: Option<Timestamp>,
    pub(crate) is_late: bool,
    /// The backfill that opened it.
    pub(crate) backfill: Option<u64>,
}

/// Many slots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeenSpan {
    pub(crate) last: Timestamp,
    pub(crate) count: u64,
    pub(crate) disposition: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) recorded_at: Timestamp,
    pub(crate) version: u64,
}

/// The word itself, without a copy; `?` for one that nobody told us of. A `match` looks at the length first.
pub(crate) fn word(text: &str) -> &'static str {
    macro_rules! one_of {
        ($($word:literal)*) => {
            match text {
                $($word => $word,)*
                _ => "?",
            }
        };
    }
    one_of! {
        "waiting" "queued" "running" "backoff" "monitoring" "closed" "completed" "failed"
        "cancelled" "skipped" "missed" "unknown" "overlap" "superseded" "expired" "no_catchup"
        "capped" "paused" "not_ready" "no_sensor" "retired" "dry_run" "scheduler" "manual"
        "webhook" "retry" "catchup" "subdag" "backfill" "sensor" "reconcile" "external" "PENDING"
        "TRIGGERING" "RUNNING" "COMPLETED_MONITORING" "COMPLETED" "FAILED" "CANCELLED" ""
    }
}

impl SeenSlot {
    pub(crate) fn of(record: &SlotRecord) -> Self {
        Self {
            state: word(&record.state),
            disposition: word(record.disposition.as_deref().unwrap_or_default()),
            reason: word(record.reason.as_deref().unwrap_or_default()),
            opened_by: word(&record.opened_by),
            generation: record.generation,
            attempt: record.attempt,
            version: u64::from_str_radix(&record.version, 16).unwrap_or_default(),
            date: record.date,
            opened_at: record.opened_at,
            closes_at: record.closes_at,
            is_forced: record.wish.as_ref().is_some_and(|wish| wish.force),
            is_uncertain: record.marks.uncertain,
            missed_at: record.marks.missed_at,
            is_late: record.marks.late,
            backfill: record.wish.as_ref().and_then(|wish| wish.backfill),
        }
    }

    /// Whether nothing came of it so far.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self.disposition, "missed" | "unknown")
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state != "closed"
    }

    /// Whether it takes one of the pipeline's places.
    pub(crate) fn occupies(&self) -> bool {
        matches!(self.state, "running" | "backoff")
    }
}

impl SeenSpan {
    pub(crate) fn of(record: &SpanRecord) -> Self {
        Self {
            last: record.last,
            count: record.count,
            disposition: word(&record.disposition),
            reason: word(record.reason.as_deref().unwrap_or_default()),
            recorded_at: record.recorded_at,
            version: u64::from_str_radix(&record.version, 16).unwrap_or_default(),
        }
    }
}

impl Book {
    /// Takes over the pipeline's own row.
    pub(crate) fn declare(&mut self, record: &PipelineRecord, scene: &Scene<'_>) {
        let now = scene.now + scene.ahead;
        let version = u64::from_str_radix(&record.version, 16).unwrap_or_default();
        let was_held = self.is_retired || self.is_disabled || self.is_paused(now);
        if version != self.version {
            let is_plain_edit = scene.is_live && self.version != 0 && !was_held;
            // When it was decided: a slow store may take the group later.
            self.edited_at = is_plain_edit.then_some(now.min(scene.planned_at));
        }
        self.version = version;
        self.is_retired = record.retired_at.is_some();
        self.is_disabled = record.disabled_since.is_some();
        self.pause.clone_from(&record.pause);
        if self.is_retired || self.is_disabled || self.is_paused(now) {
            self.edited_at = None;
        }
    }

    /// Takes over a slot's row.
    pub(crate) fn put_slot(&mut self, place: Place, slot: SeenSlot) {
        if slot.is_open() {
            self.open.insert(place.clone(), slot);
        } else {
            self.open.remove(&place);
        }
        if slot.disposition == "completed" || slot.state == "monitoring" {
            self.done.insert(place.clone());
        }
        self.slots.insert(place, slot);
    }

    /// The slots that are open.
    pub(crate) fn open_slots(&self) -> impl Iterator<Item = &SeenSlot> {
        self.open.values()
    }

    /// Whether a pause is in force.
    pub(crate) fn is_paused(&self, now: Timestamp) -> bool {
        self.pause.as_ref().is_some_and(|pause| pause.until.is_none_or(|until| now < until))
    }

    /// The slots of a schedule in an interval, first excluded, last included.
    pub(crate) fn rows(
        &self,
        schedule: &ScheduleId,
        after: Timestamp,
        until: Timestamp,
    ) -> impl Iterator<Item = (&Place, &SeenSlot)> {
        let first = (schedule.clone(), after);
        let rows = self.slots.range((std::ops::Bound::Excluded(first), std::ops::Bound::Unbounded));
        let schedule = schedule.clone();
        rows.take_while(move |((id, at), _)| *id == schedule && *at <= until)
    }

    /// The spans of a schedule that begin after an instant.
    pub(crate) fn spans_after(
        &self,
        schedule: &ScheduleId,
        after: Timestamp,
    ) -> impl Iterator<Item = (Timestamp, &SeenSpan)> {
        let first = std::ops::Bound::Excluded((schedule.clone(), after));
        let spans = self.spans.range((first, std::ops::Bound::Unbounded));
        let schedule = schedule.clone();
        let spans = spans.take_while(move |((id, _), _)| *id == schedule);
        spans.map(|((_, first), span)| (*first, span))
    }

    /// The spans of a schedule that cover an instant.
    pub(crate) fn spans_over(&self, schedule: &ScheduleId, slot: Timestamp) -> usize {
        let before = self.spans.range(..=(schedule.clone(), slot)).rev();
        before
            .take_while(|((id, _), _)| id == schedule)
            .filter(|(_, span)| span.last >= slot)
            .count()
    }

    /// Forgets what is decided and old.
    pub(crate) fn forget_before(&mut self, before: Timestamp, left: &BTreeSet<Place>) {
        let is_kept = |place: &Place| place.1 >= before || left.contains(place);
        self.slots.retain(|place, _| is_kept(place));
        self.spans.retain(|place, span| span.last >= before || is_kept(place));
        self.done.retain(is_kept);
        self.facts.retain(|_, it| it.taken >= before);
        let slots = &self.slots;
        let is_kept = |key: &RunKey| {
            key.nominal >= before || slots.contains_key(&(key.schedule.clone(), key.nominal))
        };
        self.runs.retain(|key, _| is_kept(key));
        self.stuck.retain(is_kept);
    }
}
