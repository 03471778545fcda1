//! The scheduler: opens what is due, and records what was missed.
//!
//! Driven by the agenda, a heap of next instants: a pass costs what is due, not what is registered. An
//! agenda entry is a hint; what is owed is derived from schedule and watermark every time.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use interlock_core::{
    agenda::Agenda,
    catchup,
    id::{PipelineId, ScheduleId},
    pipeline::StartSchedule,
    run::TriggerType,
    sla,
    slot::{self, OpenState, Slot},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    engine::{Engine, EngineError},
    gap::{Ahead, LedgerPrefetch, Owing},
    progress::Rest,
    quarantine::guarded,
    recording::Recording,
    state::PipelineState,
    write::Planned,
};

/// Pipelines whose due slots are planned together.
const DUE_MAX: usize = 10_000;
/// Groups of missed slots that are recorded before runs are looked at again: live slots and the first runs do
/// not wait for the end of a long catch-up.
const CATCHUP_GROUPS_MAX: usize = 500;
/// With fewer pipelines than this each is asked about by itself what is recorded of it.
const PREFETCH_FROM: usize = 20;
/// So many pipelines are planned between two signs that the pass goes on.
const SHOWN_EVERY: usize = 500;
/// When a pipeline whose due slots could not be recorded is looked at again.
const STUCK_LOOK: SignedDuration = SignedDuration::from_secs(1);

impl Engine {
    /// Opens every slot that is due now, and records so much of what was missed that the pass stays short.
    pub(crate) async fn open_what_is_due(&mut self) -> Result<(), EngineError> {
        let mut left = CATCHUP_GROUPS_MAX;
        loop {
            let now = self.world.now();
            let mut due = self.take_due(now);
            if due.is_empty() {
                self.prefetched.missed = None;
                return Ok(());
            }
            self.settle().await?;
            // One that is set aside is armed again when it is taken back.
            due.retain(|(pipeline, _)| !self.is_aside(pipeline, now));
            self.put_off_what_reports_may_open(&mut due, now);
            let missed = self.missed_by(due.iter().map(|(pipeline, _)| pipeline), now);
            self.prefetch_missed(&missed, now).await?;
            self.prefetch_blocked(&due, now).await?;
            self.announce_what_was_missed(&missed, now).await?;
            let mut planned = Vec::new();
            let (mut later, mut failed) = (BTreeSet::new(), BTreeSet::new());
            let mut rests = BTreeMap::new();
            for (place, (pipeline, _)) in due.iter().enumerate() {
                if place > 0 && place % SHOWN_EVERY == 0 {
                    self.show_progress().await?;
                }
                let has_missed = missed.contains_key(pipeline);
                if has_missed && left == 0 {
                    later.insert(pipeline.clone());
                    continue;
                }
                match guarded(self.plan_controls(pipeline, now)).await? {
                    Ok(controls) => planned.extend(controls),
                    Err(reason) => self.poisoned.push((pipeline.clone(), reason)),
                }
                match guarded(self.plan_opening(pipeline, now, left.max(1))).await? {
                    Ok(Opening { groups, rest }) => {
                        left -= if has_missed { groups.len().min(left) } else { 0 };
                        planned.extend(groups);
                        rests.insert(pipeline.clone(), rest);
                    }
                    Err(reason) => {
                        failed.insert(pipeline.clone());
                        self.poisoned.push((pipeline.clone(), reason));
                    }
                }
            }
            self.commit(planned).await?;
            due.retain(|(pipeline, _)| !failed.contains(pipeline) && !later.contains(pipeline));
            for (pipeline, at) in &due {
                self.arm(pipeline);
                // A conflict recorded nothing: it is looked at again later, or this loop would never end.
                if self.pipelines.get_mut(pipeline).armed_at == Some(*at) {
                    self.blocked.insert(pipeline.clone());
                    self.arm_from(pipeline, plus(now, STUCK_LOOK));
                } else {
                    self.blocked.remove(pipeline);
                    self.progress.recorded(pipeline, rests.remove(pipeline).flatten());
                }
            }
            self.dirty.extend(due.into_iter().map(|(pipeline, _)| pipeline));
            if !later.is_empty() {
                for pipeline in &later {
                    self.arm(pipeline);
                }
                return Ok(());
            }
        }
    }

    /// Nothing that a sensor opens is given up while there are reports that nobody has looked at.
    fn put_off_what_reports_may_open(
        &mut self,
        due: &mut Vec<(PipelineId, Timestamp)>,
        now: Timestamp,
    ) {
        let names = due.iter().map(|(pipeline, _)| pipeline);
        let put_off: BTreeSet<_> =
            names.filter(|name| self.may_be_reported_yet(name, now)).cloned().collect();
        due.retain(|(pipeline, _)| !put_off.contains(pipeline));
        for pipeline in &put_off {
            self.arm_from(pipeline, plus(now, STUCK_LOOK));
        }
    }

    /// Whether a pipeline missed slots that a sensor opens, while there are reports that nobody has looked at.
    pub(crate) fn may_be_reported_yet(&self, pipeline: &PipelineId, now: Timestamp) -> bool {
        let owes = || {
            let state = self.pipelines.0.get(pipeline);
            state.is_some_and(|state| state.agenda.owed().any(|start| start.is_opened_by_sensor()))
        };
        self.heard.has_more && owes() && !self.missed_by(std::iter::once(pipeline), now).is_empty()
    }

    /// Takes the pipelines off the agenda whose next slot is due.
    fn take_due(&mut self, now: Timestamp) -> Vec<(PipelineId, Timestamp)> {
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
        due
    }

    /// Finds out at the beginning of a catch-up of many pipelines what is recorded of them already.
    async fn prefetch_missed(
        &mut self,
        missed: &BTreeMap<PipelineId, Timestamp>,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        if self.prefetched.missed.is_some() || missed.len() < PREFETCH_FROM {
            return Ok(());
        }
        if let Some(first) = missed.values().min() {
            self.prefetched.missed = Some(
                LedgerPrefetch::since(self.store.as_ref(), missed.len(), (*first, now)).await?,
            );
        }
        Ok(())
    }

    /// Finds out together what is recorded of pipelines whose due slots met rows of others, if those are many.
    async fn prefetch_blocked(
        &mut self,
        due: &[(PipelineId, Timestamp)],
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let blocked = due.iter().filter(|(pipeline, _)| self.blocked.contains(pipeline));
        let first = |pipeline| self.pipelines.0.get(pipeline)?.owing(pipeline, now)?.first();
        let firsts: Vec<_> = blocked.filter_map(|(pipeline, _)| first(pipeline)).collect();
        self.prefetched.blocked = None;
        if firsts.len() >= PREFETCH_FROM
            && let Some(first) = firsts.iter().min()
        {
            self.prefetched.blocked = Some(
                LedgerPrefetch::since(self.store.as_ref(), firsts.len(), (*first, now)).await?,
            );
        }
        Ok(())
    }

    /// The groups that record what a pipeline owes, at most so many.
    pub(crate) async fn plan_opening(
        &self,
        pipeline: &PipelineId,
        now: Timestamp,
        groups_max: usize,
    ) -> Result<Opening, EngineError> {
        let state = self.pipelines.0.get(pipeline);
        let Some(state) = state else { return Ok(Opening::default()) };
        let Some(owing) = state.owing(pipeline, now) else { return Ok(Opening::default()) };
        // What others recorded ahead of the watermark matters to catch-up; live slots find out by a conflict.
        let is_blocked = self.blocked.contains(pipeline);
        let ahead = if is_blocked || owing.gap(&self.nothing_ahead()).has_missed() {
            self.ahead_of(&owing).await?
        } else {
            Ahead { uncertain_until: self.remembered.uncertain_until, ..state.ahead(&owing) }
        };
        let mut gap = owing.gap(&ahead);
        if gap.has_missed() {
            gap.deaf = self.deaf_to(&owing).await?;
        }
        let plan = catchup::plan(&gap);
        let revision = |owed: &catchup::Owed<'_>| {
            state.watermark(owed.start.schedule.id()).map_or(0, |(_, revision)| revision)
        };
        let revisions: Vec<_> = gap.owed.iter().map(revision).collect();
        let recording = Recording {
            pipeline,
            agenda: &state.agenda,
            ahead: &ahead,
            deaf: &gap.deaf,
            uncertain_until: gap.uncertain_until,
            version: state.version,
            now,
            writer: self.writer,
            rest_of: self.progress.rest(pipeline),
        };
        Ok(recording.groups((&gap, &plan), &revisions, groups_max))
    }
}

/// What records what a pipeline owes.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    pub(crate) groups: Vec<Planned>,
    /// What is left to be recorded after them.
    pub(crate) rest: Option<Rest>,
}

impl PipelineState {
    /// What it owes now, unless it is paused or gone.
    pub(crate) fn owing<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        now: Timestamp,
    ) -> Option<Owing<'a>> {
        if self.is_paused(now) || self.is_retired() {
            return None;
        }
        let watermark = |start: &'a std::sync::Arc<StartSchedule>| {
            let id = start.schedule.id();
            self.watermark(id).map(|(at, _)| (id, at))
        };
        let watermarks: BTreeMap<_, _> = self.agenda.owed().filter_map(watermark).collect();
        let pause = self.row.as_ref().and_then(|(row, _)| row.pause.as_deref());
        Some(Owing { pipeline, agenda: &self.agenda, watermarks, pause, now })
    }

    /// What is known to stand after a watermark: open slots, and the one that an early report decided.
    fn ahead(&self, owing: &Owing<'_>) -> Ahead {
        let first = owing.watermarks.values().min().copied().unwrap_or(Timestamp::MIN);
        let open = self.open.range((first, ScheduleId::from_static(""))..);
        let open = open.map(|(place, open)| (place.clone(), (open.slot.clone(), open.revision)));
        let decided = self.heard.as_ref().and_then(|heard| heard.decided.as_ref());
        let decided = decided.map(|it| (it.place.clone(), (it.slot.clone(), it.revision)));
        Ahead { slots: open.chain(decided).collect(), ..Ahead::default() }
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

    /// Whether its slots are to be evaluated, or reported on, by a time that somebody gave.
    pub(crate) fn has_deadline(&self) -> bool {
        self.start.deadline.is_some()
            || self.agenda.sla.as_ref().is_some_and(|sla| sla.evaluation.is_some())
    }

    pub(crate) fn opening(&self, nominal: Timestamp, opened_by: TriggerType) -> slot::Opening {
        slot::Opening {
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
