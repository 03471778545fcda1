//! The scheduler: opens what is due, and records what was missed.
//!
//! Driven by the agenda, a heap of next instants: a pass costs what is due, not what is registered. An
//! agenda entry is a hint; what is owed is derived from schedule and watermark every time.

use std::{cmp::Reverse, collections::BTreeSet};

use interlock_core::{
    agenda::Agenda,
    due::{Due, Missed, plan_due},
    id::PipelineId,
    pipeline::StartSchedule,
    run::TriggerType,
    sla,
    slot::{Disposition, OpenState, Opening, SkipReason, Slot},
};
use interlock_store::{
    Key, Record,
    record::{SpanRecord, version_text},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    aside::guarded,
    engine::{Engine, EngineError},
    write::{Event, Planned},
};

/// Slots in one group, beside the watermark and an event: a group holds 25 changes.
const SLOTS_PER_GROUP: usize = 20;
/// Pipelines whose due slots are planned together.
const DUE_MAX: usize = 10_000;
/// When a pipeline whose due slots could not be recorded is looked at again.
const STUCK_LOOK: SignedDuration = SignedDuration::from_secs(1);

impl Engine {
    /// Opens every slot that is due now.
    pub(crate) async fn open_what_is_due(&mut self) -> Result<(), EngineError> {
        loop {
            let now = self.world.now();
            let mut due = Vec::new();
            while due.len() < DUE_MAX
                && let Some(Reverse((at, _))) = self.agenda.peek()
                && *at <= now
                && let Some(Reverse((at, pipeline))) = self.agenda.pop()
            {
                let Some(state) = self.pipelines.0.get_mut(&pipeline) else { continue };
                if state.armed_at == Some(at) {
                    state.armed_at = None;
                    due.push((pipeline, at));
                }
            }
            if due.is_empty() {
                return Ok(());
            }
            // One that is set aside is armed again when it is taken back.
            due.retain(|(pipeline, _)| !self.is_aside(pipeline, now));
            let mut planned = Vec::new();
            let mut failed = BTreeSet::new();
            for (pipeline, _) in &due {
                match guarded(self.plan_controls(pipeline, now)).await? {
                    Ok(controls) => planned.extend(controls),
                    Err(reason) => self.poisoned.push((pipeline.clone(), reason)),
                }
                match guarded(async { Ok(self.plan_opening(pipeline, now)) }).await? {
                    Ok(opening) => planned.extend(opening),
                    Err(reason) => {
                        failed.insert(pipeline.clone());
                        self.poisoned.push((pipeline.clone(), reason));
                    }
                }
            }
            due.retain(|(pipeline, _)| !failed.contains(pipeline));
            self.commit(planned).await?;
            for (pipeline, at) in &due {
                self.arm(pipeline);
                // A conflict recorded nothing: it is looked at again later, or this loop would never end.
                if self.pipelines.get_mut(pipeline).armed_at == Some(*at) {
                    self.arm_from(pipeline, plus(now, STUCK_LOOK));
                }
            }
            self.dirty.extend(due.into_iter().map(|(pipeline, _)| pipeline));
        }
    }

    /// The groups that record what a pipeline owes.
    pub(crate) fn plan_opening(&self, pipeline: &PipelineId, now: Timestamp) -> Vec<Planned> {
        let writer = self.writer;
        let Some(state) = self.pipelines.0.get(pipeline) else { return vec![] };
        if state.is_paused(now) || state.is_retired() {
            return vec![];
        }
        let mut planned = Vec::new();
        for start in state.agenda.owed() {
            let Some((watermark, revision)) = state.watermark(start.schedule.id()) else {
                continue;
            };
            // What opens later than its instant is due later.
            let then = plus(now, -start.delay(pipeline));
            let due = plan_due(&start.schedule, watermark, then, start.live_for());
            let Some(due) = due else { continue };
            let opener = Opener { agenda: &state.agenda, start, version: state.version, now };
            let group = || Planned::new(pipeline, writer);
            planned.extend(opener.groups(&due, watermark, revision, group));
        }
        planned
    }
}

/// What is needed to open slots of one schedule.
pub(crate) struct Opener<'a> {
    pub(crate) agenda: &'a Agenda,
    pub(crate) start: &'a StartSchedule,
    pub(crate) version: u64,
    pub(crate) now: Timestamp,
}

impl Opener<'_> {
    /// One group for what was missed, then groups of live slots; each moves the watermark over exactly what
    /// it records (S4).
    fn groups(
        &self,
        due: &Due,
        watermark: Timestamp,
        revision: u64,
        group: impl Fn() -> Planned,
    ) -> Vec<Planned> {
        let id = self.start.schedule.id();
        let mut revision = revision;
        let mut planned = Vec::new();
        if let Some(missed) = due.missed {
            let mut plan = group();
            self.record_missed(missed, &mut plan);
            plan.watermark(id, revision, missed.last);
            revision += 1;
            planned.push(plan);
        }
        for slots in due.live.chunks(SLOTS_PER_GROUP) {
            let mut plan = group();
            for nominal in slots {
                let place = (*nominal, id.clone());
                plan.slot(&place, 0, &self.open(*nominal, TriggerType::Scheduler));
            }
            if let [only] = slots {
                let place = (*only, id.clone());
                plan.event(
                    Event::of("SLOT_OPENED", self.now, "the schedule owes it").about(&place),
                );
                plan.watermark(id, revision, *only);
            } else if let [first, .., last] = slots {
                let message = format!("{} slots from {first} to {last}", slots.len());
                plan.event(Event::of("SLOTS_OPENED", self.now, message));
                plan.watermark(id, revision, *last);
            }
            revision += 1;
            planned.push(plan);
        }
        debug_assert!(
            planned.is_empty() || due.watermark > watermark,
            "a watermark never goes back"
        );
        planned
    }

    fn record_missed(&self, missed: Missed, plan: &mut Planned) {
        let Missed { first, last, count } = missed;
        let id = self.start.schedule.id();
        let disposition = Disposition::Skipped(SkipReason::NoCatchup);
        if count == 1 {
            let place = (first, id.clone());
            plan.slot(
                &place,
                0,
                &Slot::decided(disposition, self.opening(first, TriggerType::Scheduler)),
            );
        } else {
            let span = SpanRecord {
                last,
                count,
                disposition: disposition.as_str().to_owned(),
                reason: disposition.reason().map(|reason| reason.as_str().to_owned()),
                version: version_text(self.version),
                recorded_at: self.now,
            };
            plan.put(Key::Span(id.clone(), first), 0, Record::Span(span));
        }
        let message = format!("{count} slots of {id} from {first} to {last} were missed");
        plan.event(Event::of("SLOTS_MISSED", self.now, message).detail("count", count));
    }

    /// A slot as it is first opened.
    pub(crate) fn open(&self, nominal: Timestamp, opened_by: TriggerType) -> Slot {
        let opening = match opened_by {
            TriggerType::Scheduler
            | TriggerType::Sensor
            | TriggerType::External
            | TriggerType::Reconcile => sla::Opening::Live,
            TriggerType::Manual
            | TriggerType::Webhook
            | TriggerType::Retry
            | TriggerType::Catchup
            | TriggerType::Subdag
            | TriggerType::Backfill => sla::Opening::OutOfTurn,
        };
        let promise = self.agenda.promise(self.start, nominal, opening);
        Slot::open(OpenState::Waiting, self.opening(nominal, opened_by)).promising(promise)
    }

    pub(crate) fn opening(&self, nominal: Timestamp, opened_by: TriggerType) -> Opening {
        Opening {
            opened_by,
            date: self.start.schedule.occurrence(nominal).date,
            at: self.now,
            closes_at: self.agenda.closes_at(self.start, nominal, opened_by, self.now),
            version: self.version,
        }
    }
}

pub(crate) fn plus(at: Timestamp, duration: SignedDuration) -> Timestamp {
    at.saturating_add(duration).unwrap_or(Timestamp::MAX)
}
