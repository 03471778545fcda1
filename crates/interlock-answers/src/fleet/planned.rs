//! Slots that are to come, or due and not recorded yet. Thousands of pipelines have the same schedule: it is asked once for a question.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::pipeline::StartSchedule;
use jiff::{SignedDuration, Timestamp};

use super::{
    cells::Quarter,
    question::FleetQuestion,
    tallied::{TalliedPipeline, TalliedSchedule},
};

/// Slots of one schedule that are counted: a minutely one has that many in 34 days.
const SLOTS_MAX: usize = 50_000;
/// A slot is recorded so much after it is due, unless nothing records it.
pub(super) const RECORDED_WITHIN: SignedDuration = SignedDuration::from_mins(1);

/// The slots to come of schedules.
#[derive(Debug, Default)]
pub(super) struct PlannedSlots {
    /// By the address of what pipelines share.
    known: BTreeMap<usize, Arc<[(u32, u64)]>>,
}

/// Slots that are due and not recorded.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct UnrecordedSlots {
    /// Due a moment ago.
    pub(super) waiting: u64,
    /// Due for longer: nothing records them.
    pub(super) unaccounted: u64,
}

impl PlannedSlots {
    /// How many slots of a pipeline are to come in each bucket of the range.
    pub(super) fn of(
        &mut self,
        pipeline: &TalliedPipeline,
        question: &FleetQuestion,
        mut add: impl FnMut(u32, u64),
    ) {
        for schedule in &pipeline.declared.schedules {
            let key = Arc::as_ptr(&schedule.start).addr();
            let known =
                self.known.entry(key).or_insert_with(|| count(&schedule.start, question).into());
            let ahead: Vec<u32> = pipeline
                .ahead
                .iter()
                .filter(|slot| slot.at > question.now && is_of(schedule, &slot.schedule))
                .filter_map(|slot| question.bucket_of(Quarter::of(slot.at)))
                .collect();
            for (bucket, count) in known.iter() {
                let recorded = ahead.iter().filter(|at| *at == bucket).count() as u64;
                add(*bucket, count.saturating_sub(recorded));
            }
        }
    }
}

fn count(start: &StartSchedule, question: &FleetQuestion) -> Vec<(u32, u64)> {
    let from = just_after(question.now).max(question.from.start());
    let slots = start.schedule.slots(from, question.until.start(), SLOTS_MAX).found;
    let mut counts: Vec<(u32, u64)> = Vec::new();
    for bucket in slots.into_iter().filter_map(|at| question.bucket_of(Quarter::of(at))) {
        match counts.last_mut() {
            Some((last, count)) if *last == bucket => *count += 1,
            _ => counts.push((bucket, 1)),
        }
    }
    counts
}

/// Up to when slots are looked for that are due, and from when on.
#[derive(Debug, Clone, Copy)]
pub(super) struct DueRange {
    pub(super) since: Timestamp,
    pub(super) now: Timestamp,
}

/// Instants of one schedule that are due and not recorded yet.
pub(super) fn unrecorded(
    pipeline: &TalliedPipeline,
    schedule: &TalliedSchedule,
    DueRange { since, now }: DueRange,
) -> Vec<Timestamp> {
    let Some(from) = schedule.owed_from.filter(|from| *from <= now) else { return vec![] };
    let from = from.max(since);
    let mut slots = schedule.start.schedule.slots(from, just_after(now), SLOTS_MAX).found;
    slots.retain(|at| {
        let is_it =
            |slot: &&super::seen::RecordedSlot| slot.at == *at && is_of(schedule, &slot.schedule);
        pipeline.ahead.iter().find(is_it).is_none()
    });
    slots
}

/// How many slots since an instant are due and not recorded yet.
pub(super) fn unrecorded_since(
    pipeline: &TalliedPipeline,
    since: Timestamp,
    now: Timestamp,
) -> UnrecordedSlots {
    let mut found = UnrecordedSlots::default();
    for schedule in &pipeline.declared.schedules {
        let patience = RECORDED_WITHIN + schedule.start.jitter;
        for at in unrecorded(pipeline, schedule, DueRange { since, now }) {
            if now.duration_since(at) > patience {
                found.unaccounted += 1;
            } else {
                found.waiting += 1;
            }
        }
    }
    found
}

fn is_of(schedule: &TalliedSchedule, id: &interlock_core::id::ScheduleId) -> bool {
    schedule.start.schedule.id() == id
}

pub(super) fn just_after(at: Timestamp) -> Timestamp {
    at.saturating_add(SignedDuration::from_nanos(1)).unwrap_or(at)
}
