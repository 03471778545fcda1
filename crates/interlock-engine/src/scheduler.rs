//! The scheduler: opens what is due, and records what was missed.
//!
//! Driven by the agenda, a heap of next instants: a pass costs what is due, not what is registered. An
//! agenda entry is a hint; what is owed is derived from schedule and watermark every time.

use std::cmp::Reverse;

use interlock_core::{
    due::{Due, Missed, plan_due},
    id::PipelineId,
    pipeline::{Pipeline, StartSchedule, TriggerKind},
    run::TriggerType,
    schedule::Recurrence,
    sla::{self, SlaSpec, SlotTimes},
    slot::{Disposition, OpenState, Opening, SkipReason, Slot},
};
use interlock_store::{
    Key, Record,
    record::{SpanRecord, version_text},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    engine::{Engine, EngineError},
    write::{Event, Planned},
};

/// Slots in one group, beside the watermark and an event: a group holds 25 changes.
const SLOTS_PER_GROUP: usize = 20;
/// The longest that a slot waits to be ready unless its pipeline says otherwise.
const EVALUATION_MAX: SignedDuration = SignedDuration::from_hours(24);

impl Engine {
    /// Opens every slot that is due now.
    pub(crate) async fn open_what_is_due(&mut self) -> Result<(), EngineError> {
        loop {
            let now = self.world.now();
            let mut due = Vec::new();
            while let Some(Reverse((at, ..))) = self.agenda.peek()
                && *at <= now
                && due.len() < 10_000
            {
                due.extend(self.agenda.pop().map(|Reverse((_, pipeline, _))| pipeline));
            }
            if due.is_empty() {
                return Ok(());
            }
            due.sort();
            due.dedup();
            let mut planned = Vec::new();
            for pipeline in &due {
                planned.extend(self.plan_opening(pipeline, now).await);
            }
            self.commit(planned).await?;
            for pipeline in &due {
                self.arm(pipeline);
            }
            self.dirty.extend(due);
        }
    }

    /// The groups that record what a pipeline owes.
    pub(crate) async fn plan_opening(
        &mut self,
        pipeline: &PipelineId,
        now: Timestamp,
    ) -> Vec<Planned> {
        let writer = self.writer;
        let Some(state) = self.pipelines.0.get(pipeline) else { return vec![] };
        if state.is_paused(now) || state.is_retired() {
            return vec![];
        }
        let mut planned = Vec::new();
        for schedule in &state.schedules {
            let id = schedule.schedule.id();
            let Some((watermark, revision)) = state.watermark(id) else { continue };
            let Some(due) = plan_due(&schedule.schedule, watermark, now, schedule.start_grace)
            else {
                continue;
            };
            let spec = match self.specs.pipeline(pipeline, state.version).await {
                Ok(spec) => spec,
                Err(reason) => {
                    tracing::error!(%pipeline, reason, "its declaration cannot be had; set aside");
                    self.wakes.set(pipeline, now + SignedDuration::from_mins(1));
                    continue;
                }
            };
            let start = spec.starts.iter().find(|start| start.schedule.id() == id);
            let Some(start) = start else { continue };
            let opener = Opener { spec: &spec, start, version: state.version, now };
            let group = || Planned::new(pipeline, writer);
            planned.extend(opener.groups(&due, watermark, revision, group));
        }
        planned
    }
}

/// What is needed to open slots of one schedule.
pub(crate) struct Opener<'a> {
    pub(crate) spec: &'a Pipeline,
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
        Slot::open(OpenState::Waiting, self.opening(nominal, opened_by))
    }

    pub(crate) fn opening(&self, nominal: Timestamp, opened_by: TriggerType) -> Opening {
        Opening {
            opened_by,
            date: self.start.schedule.occurrence(nominal).date,
            at: self.now,
            closes_at: self.closes_at(nominal, opened_by),
            version: self.version,
        }
    }

    /// When a slot that waits is given up (S19).
    fn closes_at(&self, nominal: Timestamp, opened_by: TriggerType) -> Timestamp {
        let trigger = self.spec.trigger.as_ref().map(|trigger| &trigger.kind);
        if matches!(trigger, None | Some(TriggerKind::External)) {
            return self.deadline(nominal).unwrap_or_else(|| plus(nominal, self.start.grace));
        }
        let is_sensor = matches!(self.start.schedule.recurrence(), Recurrence::Sensor { .. });
        if is_sensor
            && opened_by == TriggerType::Scheduler
            && let Some(deadline) = self.deadline(nominal)
        {
            return deadline;
        }
        let gap = interlock_core::due::after(&self.start.schedule, nominal)
            .map_or(EVALUATION_MAX, |next| next.duration_since(nominal));
        let window = self.spec.evaluation.window.unwrap_or(gap.min(EVALUATION_MAX));
        plus(self.now, window)
    }

    fn deadline(&self, nominal: Timestamp) -> Option<Timestamp> {
        let schedule = &self.start.schedule;
        let slot = SlotTimes {
            nominal,
            date: schedule.occurrence(nominal).date,
            zone: &schedule.timing().zone,
            deadline: self.start.deadline,
        };
        let spec = SlaSpec { completion: None, ..self.spec.sla.clone() };
        sla::resolve(&spec, &slot, sla::Opening::Live).evaluation_at
    }
}

pub(crate) fn plus(at: Timestamp, duration: SignedDuration) -> Timestamp {
    at.saturating_add(duration).unwrap_or(Timestamp::MAX)
}
