//! The agenda: what opening a pipeline's slots needs of its declaration, and nothing else.
//!
//! It is small enough to keep in memory for every pipeline (the declaration itself is not), and it is
//! stored with the pipeline's row, so that a restart opens slots without reading a file. Schedules are
//! behind shared pointers, because thousands of pipelines say the same.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::{
    id::PipelineId,
    pipeline::{Catchup, ControlSchedule, Evaluation, Pipeline, StartSchedule, TriggerKind},
    run::TriggerType,
    schedule::{Recurrence, jitter_offset},
    sla::{self, ResolvedSla, SlaSpec, SlotTimes},
    time_of_day::TimeOfDay,
};

/// The longest that a slot waits to be ready unless its pipeline says otherwise.
const EVALUATION_MAX: SignedDuration = SignedDuration::from_hours(24);
/// How long a slot without a time of its own is live: its day, the longest of the year.
const DAY_MAX: SignedDuration = SignedDuration::from_hours(25);

/// What becomes of a pipeline's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Work {
    /// It has no slots: it is disabled, or has nothing to run.
    #[default]
    Dormant,
    /// Somebody else runs them (`external`).
    Watched,
    /// We start them.
    Started,
}

/// What a pipeline owes, as far as opening slots is concerned.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Agenda {
    /// What becomes of its slots.
    pub work: Work,
    /// Its start schedules.
    pub starts: Box<[Arc<StartSchedule>]>,
    /// Its stop and restart schedules.
    pub controls: Box<[Arc<ControlSchedule>]>,
    /// How readiness is evaluated over time.
    pub evaluation: Evaluation,
    /// What becomes of slots that were missed.
    pub catchup: Catchup,
    /// What it promises about time, if anything.
    pub sla: Option<Arc<SlaSpec>>,
    /// Pipelines whose slots it waits for.
    pub upstreams: Box<[PipelineId]>,
    /// Whether nothing is ever started (`dryRun`): then nobody misses anything.
    pub is_rehearsal: bool,
}

impl Agenda {
    /// The agenda of a declaration.
    pub fn of(pipeline: &Pipeline) -> Self {
        let work = match pipeline.trigger.as_ref().map(|trigger| &trigger.kind) {
            _ if !pipeline.enabled => Work::Dormant,
            None => Work::Dormant,
            Some(TriggerKind::External) => Work::Watched,
            Some(
                TriggerKind::Command(_)
                | TriggerKind::Steps(_)
                | TriggerKind::Http(_)
                | TriggerKind::Airflow(_)
                | TriggerKind::Other { .. },
            ) => Work::Started,
        };
        let upstreams = pipeline.readiness.upstreams.iter().map(|upstream| &upstream.pipeline);
        let promises = pipeline.sla != SlaSpec::default();
        Self {
            work,
            starts: pipeline.starts.iter().cloned().map(Arc::new).collect(),
            controls: pipeline.controls.iter().cloned().map(Arc::new).collect(),
            evaluation: pipeline.evaluation.clone(),
            catchup: pipeline.catchup.clone(),
            sla: promises.then(|| Arc::new(pipeline.sla.clone())),
            upstreams: upstreams.filter_map(|name| PipelineId::parse(name).ok()).collect(),
            is_rehearsal: pipeline.dry_run,
        }
    }

    /// The schedules whose slots are derived from the clock, of a pipeline whose slots become anything at all.
    pub fn owed(&self) -> impl Iterator<Item = &Arc<StartSchedule>> {
        self.timed().filter(|_| self.work != Work::Dormant)
    }

    /// The schedules whose slots are derived from the clock. A sensor opens its own unless a deadline
    /// says by when it must have come; a dead-man's switch goes by the last success.
    pub fn timed(&self) -> impl Iterator<Item = &Arc<StartSchedule>> {
        self.starts.iter().filter(|start| match start.schedule.recurrence() {
            Recurrence::Sensor { .. } => start.deadline.is_some(),
            Recurrence::SinceLast { .. } => false,
            Recurrence::Cron(_)
            | Recurrence::Every { .. }
            | Recurrence::At { .. }
            | Recurrence::Once(_)
            | Recurrence::Dates { .. }
            | Recurrence::Daily => true,
        })
    }

    /// The stop and restart schedules that act: of a pipeline whose jobs we start, because no others can be
    /// ended.
    pub fn acting(&self) -> impl Iterator<Item = &Arc<ControlSchedule>> {
        let controls = if self.work == Work::Started { &*self.controls } else { &[] };
        controls.iter()
    }

    /// When a slot that waits is given up (S19). One that waits for its sensor is at its deadline.
    pub fn closes_at(
        &self,
        start: &StartSchedule,
        nominal: Timestamp,
        opened_by: TriggerType,
        now: Timestamp,
    ) -> Timestamp {
        let deadline = || self.promise(start, nominal, sla::Opening::Live).evaluation_at;
        if self.work != Work::Started {
            return deadline().unwrap_or_else(|| plus(nominal, start.grace));
        }
        if matches!(start.schedule.recurrence(), Recurrence::Sensor { .. })
            && opened_by == TriggerType::Scheduler
            && let Some(deadline) = deadline()
        {
            return deadline;
        }
        let gap = start
            .schedule
            .after(nominal)
            .map_or(EVALUATION_MAX, |next| next.duration_since(nominal));
        plus(now, self.evaluation.window.unwrap_or(gap.min(EVALUATION_MAX)))
    }

    /// What a slot promises, from its own date and zone.
    pub fn promise(
        &self,
        start: &StartSchedule,
        nominal: Timestamp,
        opening: sla::Opening,
    ) -> ResolvedSla {
        let schedule = &start.schedule;
        let slot = SlotTimes {
            nominal,
            date: schedule.occurrence(nominal).date,
            zone: &schedule.timing().zone,
            deadline: start.deadline,
        };
        let nothing = SlaSpec::default();
        sla::resolve(self.sla.as_deref().unwrap_or(&nothing), &slot, opening)
    }
}

impl StartSchedule {
    /// Whether reports open its slots.
    pub fn is_opened_by_sensor(&self) -> bool {
        matches!(self.schedule.recurrence(), Recurrence::Sensor { .. })
    }

    /// By when a slot must have been evaluated, or its sensor have come, where the schedule itself says so.
    pub fn deadline_of(&self, nominal: Timestamp) -> Option<Timestamp> {
        let slot = SlotTimes {
            nominal,
            date: self.schedule.occurrence(nominal).date,
            zone: &self.schedule.timing().zone,
            deadline: Some(self.deadline?),
        };
        sla::resolve(&SlaSpec::default(), &slot, sla::Opening::Live).evaluation_at
    }

    /// How much later than their instants the slots of a pipeline open.
    pub fn delay(&self, pipeline: &PipelineId) -> SignedDuration {
        jitter_offset(pipeline, self.schedule.id(), self.jitter)
    }

    /// How long a slot counts as live. One that stands for a whole day does so all day, and one that somebody
    /// else runs does until it is judged: its report may still come.
    pub fn live_for(&self, work: Work) -> SignedDuration {
        let is_reported = work == Work::Watched;
        match self.schedule.recurrence() {
            Recurrence::Daily => self.start_grace.max(DAY_MAX),
            _ if is_reported && self.deadline.is_some() => self.start_grace.max(DAY_MAX),
            _ if is_reported => self.start_grace.max(self.grace),
            Recurrence::Cron(_)
            | Recurrence::Every { .. }
            | Recurrence::SinceLast { .. }
            | Recurrence::At { .. }
            | Recurrence::Once(_)
            | Recurrence::Dates { .. }
            | Recurrence::Sensor { .. } => self.start_grace,
        }
    }

    /// Where the watermark of a schedule begins that is first seen now: nothing from before is owed,
    /// except today's slot of a schedule that has no time of its own.
    pub fn first_watermark(&self, now: Timestamp) -> Timestamp {
        let Recurrence::Daily = self.schedule.recurrence() else { return now };
        let zone = &self.schedule.timing().zone;
        let today = now.to_zoned(zone.time_zone().clone()).date();
        let midnight = TimeOfDay::MIDNIGHT.first_on(today, zone);
        plus(midnight, SignedDuration::from_millis(-1)).min(now)
    }
}

fn plus(at: Timestamp, duration: SignedDuration) -> Timestamp {
    at.saturating_add(duration).unwrap_or(Timestamp::MAX)
}
