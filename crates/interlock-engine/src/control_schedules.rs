//! Stop and restart schedules: a stop ends what runs, a restart also starts a new run.
//!
//! Each instant is a slot under the schedule's own id. A stop's slot is closed in the group that records it:
//! `completed` when it fired, whether something ran or not. A restart's slot *is* the new run's slot: it queues
//! until what it ends has ended, so that it starts once by its key (S2) and never beside the old run (S6).
//! What is to end is stored with the runs in the same group; see [`ending`](crate::ending).
//!
//! In a pause stops fire, because a pause lets runs end; restarts close `skipped(paused)` and end nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use interlock_core::{
    firing::{Ending, Firing, Stretch, ending_of, plan_firing},
    id::PipelineId,
    pipeline::{ControlAction, ControlSchedule, Pipeline},
    run::TriggerType,
    slot::{Disposition, OpenState, Opening, SkipReason, Slot, SlotState, Wish},
};
use interlock_store::{
    Key, Record,
    record::{SpanRecord, version_text},
};
use jiff::Timestamp;

use crate::{
    ending::{Ender, end_wanted},
    engine::{Engine, EngineError},
    scheduler::plus,
    state::{OpenSlot, PipelineState, SlotPlace},
    step::QUEUE_MAX,
    write::{Event, Planned},
};

/// Slots that are ended in one group, with two changes each: a group holds 25, and the last one also has
/// the rows of the stop itself.
const ENDED_PER_GROUP: usize = 8;

/// Why one is recorded and does nothing.
const TOO_LATE: (SkipReason, &str) = (SkipReason::Expired, "it was too late");
const NOT_NEEDED: (SkipReason, &str) = (SkipReason::Superseded, "a newer one was due as well");

impl Engine {
    /// The groups for the stops and restarts of a pipeline that are due.
    pub(crate) async fn plan_controls(
        &self,
        pipeline: &PipelineId,
        now: Timestamp,
    ) -> Result<Vec<Planned>, EngineError> {
        let Some(state) = self.pipelines.0.get(pipeline).filter(|state| !state.is_retired()) else {
            return Ok(vec![]);
        };
        let mut planned = Vec::new();
        let mut ended = Vec::new();
        for control in state.agenda.acting() {
            let Some((watermark, revision)) = state.watermark(control.schedule.id()) else {
                continue;
            };
            let Some(firing) = plan_firing(&control.schedule, watermark, now) else { continue };
            let shooter = Shooter { pipeline, state, control, now, engine: self };
            let ends = shooter.ends(&firing).filter(|place| !ended.contains(place));
            let ends: Vec<_> = ends.collect();
            let specs = self.specs_for(pipeline, state, &ends).await?;
            planned.extend(shooter.groups(firing, revision, (&ends, &specs)));
            // Two that are due at once end a slot once.
            ended.extend(ends);
        }
        Ok(planned)
    }

    /// The declarations that slots keep to, by version.
    async fn specs_for(
        &self,
        pipeline: &PipelineId,
        state: &PipelineState,
        places: &[&SlotPlace],
    ) -> Result<BTreeMap<u64, Arc<Pipeline>>, EngineError> {
        let open = places.iter().filter_map(|place| state.open.get(place));
        let versions: BTreeSet<_> = open.map(|open| open.slot.version).collect();
        let mut specs = BTreeMap::new();
        for version in versions {
            let spec = self.specs.pipeline(pipeline, version).await;
            specs.insert(version, spec.map_err(EngineError::Declaration)?);
        }
        Ok(specs)
    }
}

/// What is to end, and by which declarations.
type Ends<'a> = (&'a [&'a SlotPlace], &'a BTreeMap<u64, Arc<Pipeline>>);

/// What is needed to fire one stop or restart schedule.
struct Shooter<'a> {
    pipeline: &'a PipelineId,
    state: &'a PipelineState,
    control: &'a ControlSchedule,
    now: Timestamp,
    engine: &'a Engine,
}

impl<'a> Shooter<'a> {
    /// The slots that it ends.
    fn ends(&self, firing: &Firing) -> impl Iterator<Item = &'a SlotPlace> + use<'a> {
        let acts = firing.fires.is_some() && !self.is_held_back();
        let open = self.state.open.iter().filter(move |(_, open)| {
            let SlotState::Open(state) = open.slot.state else { return false };
            let is_asked = open.last_run().and_then(|run| end_wanted(&run.record)).is_some();
            acts && match ending_of(state) {
                Some(Ending::AskTheJob) => !is_asked,
                Some(Ending::Close) => true,
                None => false,
            }
        });
        open.map(|(place, _)| place)
    }

    /// Whether a pause forbids it.
    fn is_held_back(&self) -> bool {
        self.control.action == ControlAction::Restart && self.state.is_paused(self.now)
    }

    /// What is too late and what is not needed first, then what is to end, last what fired. The watermark
    /// passes the fired slot in the group that records it: after a crash before that, it fires again, and
    /// what was already asked to end is not asked anew.
    fn groups(&self, firing: Firing, revision: u64, (ends, specs): Ends<'_>) -> Vec<Planned> {
        let id = self.control.schedule.id();
        let mut revision = revision;
        let mut planned = Vec::new();
        for (stretch, fate) in [(firing.expired, TOO_LATE), (firing.superseded, NOT_NEEDED)] {
            let Some(stretch) = stretch else { continue };
            let mut plan = self.group();
            self.skip(stretch, fate, &mut plan);
            plan.watermark(id, revision, stretch.last);
            revision += 1;
            planned.push(plan);
        }
        let Some(nominal) = firing.fires else { return planned };
        let mut plan = self.group();
        for chunk in ends.chunks(ENDED_PER_GROUP) {
            if !plan.group.changes.is_empty() {
                planned.push(std::mem::replace(&mut plan, self.group()));
            }
            for place in chunk {
                self.end(place, specs, &mut plan);
            }
        }
        self.fire(nominal, ends, &mut plan);
        plan.watermark(id, revision, nominal);
        planned.push(plan);
        planned
    }

    fn group(&self) -> Planned {
        Planned::new(self.pipeline, self.engine.writer)
    }

    fn end(&self, place: &SlotPlace, specs: &BTreeMap<u64, Arc<Pipeline>>, plan: &mut Planned) {
        let Some(open) = self.state.open.get(place) else { return };
        let Some(spec) = specs.get(&open.slot.version) else { return };
        let why = format!("the schedule `{}` ends it", self.control.schedule.id());
        let ender = Ender { pipeline: self.pipeline, spec, place, open, why: &why, now: self.now };
        ender.end(plan);
    }

    fn fire(&self, nominal: Timestamp, ends: &[&SlotPlace], plan: &mut Planned) {
        let place = (nominal, self.control.schedule.id().clone());
        let opening = self.opening(nominal);
        let slot = match self.control.action {
            ControlAction::Stop => Slot::decided(Disposition::Completed, opening),
            ControlAction::Restart if self.is_held_back() => {
                Slot::decided(Disposition::Skipped(SkipReason::Paused), opening)
            }
            ControlAction::Restart => self.restarted(opening),
        };
        plan.slot(&place, 0, &slot);
        let ended: Vec<_> = ends.iter().map(|(at, id)| format!("{id}/{at}")).collect();
        let message = match (slot.state, ended.as_slice()) {
            (SlotState::Closed(Disposition::Skipped(_)), _) => "the pipeline is paused".to_owned(),
            (_, []) => "nothing ran that it could end".to_owned(),
            (_, ended) => format!("it ends {}", ended.join(", ")),
        };
        let kind = match (self.control.action, slot.state) {
            (_, SlotState::Closed(Disposition::Skipped(_))) => "SLOT_SKIPPED",
            (ControlAction::Stop, _) => "STOP_FIRED",
            (ControlAction::Restart, _) => "RESTART_FIRED",
        };
        plan.event(Event::of(kind, self.now, message).about(&place));
    }

    /// The new run's slot. It takes over the parameters of the newest run that it ends.
    fn restarted(&self, opening: Opening) -> Slot {
        let holds = |open: &&OpenSlot| matches!(open.slot.state, SlotState::Open(state) if ending_of(state).is_some());
        let ended = self.state.open.values().rfind(holds);
        let wish = ended.and_then(|open| open.slot.wish.as_deref());
        let run = ended.and_then(OpenSlot::last_run);
        let mut slot = Slot::open(OpenState::Queued, opening);
        if let Some(sla) = &self.state.agenda.sla {
            slot = slot.promising(sla.out_of_turn());
        }
        slot.wish = Some(Box::new(Wish {
            params: wish.map(|wish| wish.params.clone()).unwrap_or_default(),
            reason: Some("restart".to_owned()),
            original_run: run.map(|run| run.key.id(self.pipeline)),
            ..Wish::default()
        }));
        slot
    }

    fn skip(&self, stretch: Stretch, (reason, because): (SkipReason, &str), plan: &mut Planned) {
        let Stretch { first, last, count } = stretch;
        let id = self.control.schedule.id();
        let disposition = Disposition::Skipped(reason);
        if count == 1 {
            let place = (first, id.clone());
            plan.slot(&place, 0, &Slot::decided(disposition, self.opening(first)));
        } else {
            let span = SpanRecord {
                last,
                count,
                disposition: disposition.as_str().into(),
                reason: Some(reason.as_str().into()),
                version: version_text(self.state.version),
                recorded_at: self.now,
            };
            plan.put(Key::Span(id.clone(), first), 0, Record::Span(span.into()));
        }
        let message = match count {
            1 => format!("{id}/{first} does nothing: {because}"),
            _ => format!("{count} of {id} from {first} to {last} do nothing: {because}"),
        };
        let kind = match self.control.action {
            ControlAction::Stop => "STOP_SKIPPED",
            ControlAction::Restart => "RESTART_SKIPPED",
        };
        let event = Event::of(kind, self.now, message).detail("count", count);
        plan.event(event.detail("reason", reason.as_str()));
    }

    fn opening(&self, nominal: Timestamp) -> Opening {
        Opening {
            opened_by: TriggerType::Scheduler,
            date: self.control.schedule.occurrence(nominal).date,
            at: self.now,
            closes_at: plus(self.now, QUEUE_MAX),
            version: self.state.version,
        }
    }
}
