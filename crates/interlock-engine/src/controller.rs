//! The controller: brings open slots to their end, one pipeline at a time.
//!
//! A pipeline is stepped when something happened to it: a slot opened, a report came, a sensor changed, an
//! evaluator answered, or its time came. Readiness is evaluated for every slot that could start; evaluators
//! run beside the loop, so that no slot waits behind another's.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use interlock_core::{
    agenda::Work,
    control::{Candidate, Flow, Move, OWNER_WAITS, Room, plan_slots},
    id::{PipelineId, ScheduleId},
    pipeline::{Pipeline, TriggerKind},
    readiness::{Condition, Outcome, TraitResult, TraitSpec, Verdict},
    run::{RunState, TriggerType},
    schedule::Recurrence,
    sensor::Sensors,
    slot::{OpenState, Slot, SlotState},
};
use interlock_store::{RunQuery, StoreFuture, kept::Stretch, together};
use jiff::{SignedDuration, Timestamp, civil::Date};

use crate::{
    asking::{Answered, OwedAnswer},
    engine::{Engine, EngineError},
    evidence::{self, Gathered},
    host::Trust,
    quarantine::guarded,
    scheduler::plus,
    state::{Answer, PipelineState, SlotPlace},
    step::Stepper,
    upstreams::upstreams,
    write::Planned,
};

/// How many declarations are asked for at once: far fewer than are kept.
const FETCHED: usize = 100;

impl Engine {
    /// Steps every pipeline that something happened to, or whose time came.
    pub(crate) async fn step_what_is_dirty(&mut self) -> Result<(), EngineError> {
        let now = self.world.now();
        self.dirty.extend(self.wakes.due(now));
        let mut room = self.room(now);
        self.dirty.extend(self.restraint.let_go(room.catchup));
        let mut dirty = self.take_dirty();
        // Its report may lie in the inbox: it is looked at again when that was applied.
        let put_off = dirty.extract_if(.., |pipeline| self.may_give_up_too_soon(pipeline, now));
        let put_off: Vec<_> = put_off.collect();
        if !put_off.is_empty() {
            self.inbox_at = now;
            self.dirty.extend(put_off);
        }
        self.learn_what_others_closed(&dirty, now).await?;
        let mut planned = Vec::new();
        for (place, pipeline) in dirty.iter().enumerate() {
            if place % FETCHED == 0 {
                if place > 0 {
                    self.show_progress().await?;
                }
                self.fetch_declarations(dirty.iter().skip(place).take(FETCHED)).await?;
            }
            if self.is_aside(pipeline, now) {
                continue;
            }
            let steps = match guarded(self.plan_anew(pipeline, room, now)).await? {
                Ok(steps) => steps,
                Err(reason) => {
                    self.set_aside(pipeline, &reason).await?;
                    continue;
                }
            };
            self.take_back(pipeline).await?;
            let starts = steps.iter().flat_map(Planned::starts);
            room.runs = room.runs.saturating_sub(starts.clone().count() as u32);
            let caught_up = starts.filter(|start| start.trigger_type == TriggerType::Catchup);
            let caught_up = caught_up.count() as u32;
            room.catchup = room.catchup.saturating_sub(caught_up);
            self.restraint.begun(caught_up, now);
            planned.extend(steps);
            self.note_who_waits(pipeline, room);
        }
        self.commit(planned).await?;
        self.show_readiness().await;
        // One that was set aside has its time already.
        for pipeline in &dirty {
            if !self.aside.contains_key(pipeline) {
                self.set_wake(pipeline, now);
            }
        }
        Ok(())
    }

    /// Whether a pipeline has a slot that waits for its report, and whose deadline has passed while nobody has looked at all
    /// that was reported by then.
    fn may_give_up_too_soon(&self, pipeline: &PipelineId, now: Timestamp) -> bool {
        let Some(state) = self.pipelines.0.get(pipeline) else { return false };
        let starts = state.agenda.starts.iter().filter(|start| start.is_opened_by_sensor());
        let awaiting: Vec<&ScheduleId> = starts.map(|start| start.schedule.id()).collect();
        // Nearly all pipelines have none, and may have thousands of slots.
        !awaiting.is_empty()
            && state.open.iter().any(|((_, id), open)| {
                open.slot.state == SlotState::Open(OpenState::Waiting)
                    && open.slot.opened_by == TriggerType::Scheduler
                    && open.slot.closes_at <= now
                    && (self.heard.has_more || self.heard.at < open.slot.closes_at)
                    && awaiting.contains(&id)
            })
    }

    /// Asks for the declarations of pipelines that are about to be planned, all at once: a store on a server answers many
    /// nearly as fast as one. Which of them cannot be had is found when it is needed.
    async fn fetch_declarations(
        &self,
        pipelines: impl Iterator<Item = &PipelineId>,
    ) -> Result<(), EngineError> {
        let needs = |pipeline: &PipelineId| {
            let state = self.pipelines.0.get(pipeline)?;
            (!state.open.is_empty() && state.version != 0).then_some(state.version)
        };
        let asked = pipelines.filter_map(|pipeline| {
            let (specs, version) = (Arc::clone(&self.specs), needs(pipeline)?);
            let asking = guarded(async move {
                drop(specs.pipeline(pipeline, version).await);
                Ok(())
            });
            Some(Box::pin(async move {
                drop(asking.await);
                Ok(())
            }) as StoreFuture<'_, ()>)
        });
        let asked: Vec<StoreFuture<'_, ()>> = asked.collect();
        together(asked).await.map(drop).map_err(EngineError::from)
    }

    /// How many runs may begin, over all pipelines.
    fn room(&mut self, now: Timestamp) -> Room {
        Room {
            runs: self.limits.runs_max.saturating_sub(self.active.total()),
            kept_free: self.limits.kept_free(),
            catchup: self.restraint.room(self.active.catchup(), &self.limits, now),
        }
    }

    /// Remembers a pipeline that may have found no room.
    fn note_who_waits(&mut self, pipeline: &PipelineId, room: Room) {
        if room.runs == 0 {
            self.starved.insert(pipeline.clone());
        } else if room.runs <= room.kept_free {
            self.starved_past.insert(pipeline.clone());
        }
        let state = self.pipelines.0.get(pipeline).filter(|_| room.catchup == 0);
        let first = state.and_then(|state| {
            state.open.iter().find(|(_, open)| {
                open.slot.opened_by == TriggerType::Catchup
                    && matches!(
                        open.slot.state,
                        SlotState::Open(OpenState::Queued | OpenState::Waiting)
                    )
            })
        });
        if let Some(((nominal, _), _)) = first {
            self.restraint.hold(pipeline, *nominal);
        }
    }

    /// What is to be stepped, the pipeline with the oldest open slot first: where there is not room for all,
    /// nobody is passed over because of its name. Those that work off the past come after all others.
    fn take_dirty(&mut self) -> Vec<PipelineId> {
        let free = self.limits.runs_max.saturating_sub(self.active.total());
        if free > 0 {
            self.dirty.append(&mut self.starved);
        }
        if free > self.limits.kept_free() {
            self.dirty.append(&mut self.starved_past);
        }
        let mut dirty: Vec<_> = std::mem::take(&mut self.dirty).into_iter().collect();
        let oldest = |pipeline: &PipelineId| {
            let open = self.pipelines.0.get(pipeline).map(|state| &state.open);
            open.and_then(|open| open.iter().next()).map(|((nominal, _), open)| {
                let is_past =
                    matches!(open.slot.opened_by, TriggerType::Catchup | TriggerType::Backfill);
                (is_past, *nominal)
            })
        };
        dirty.sort_by_cached_key(oldest);
        dirty
    }

    /// Plans a pipeline, on what the store says if it was set aside before.
    async fn plan_anew(
        &mut self,
        pipeline: &PipelineId,
        room: Room,
        now: Timestamp,
    ) -> Result<Vec<Planned>, EngineError> {
        if self.aside.contains_key(pipeline) {
            self.settle().await?;
            self.reload(pipeline).await?;
        }
        self.plan_steps(pipeline, room, now).await
    }

    async fn plan_steps(
        &mut self,
        pipeline: &PipelineId,
        room: Room,
        now: Timestamp,
    ) -> Result<Vec<Planned>, EngineError> {
        let Some(state) = self.pipelines.0.get(pipeline) else { return Ok(vec![]) };
        if (state.open.is_empty() && !state.has_more_queued) || state.version == 0 {
            self.remembered.readiness.over(pipeline);
            return Ok(vec![]);
        }
        let specs = self.specs_of(pipeline).await.map_err(EngineError::Declaration)?;
        let spec = &specs.in_force;
        self.fetch_queued(pipeline, spec).await?;
        self.load_sensors(pipeline, &specs).await?;
        let beyond = self.beyond_their_turn(pipeline, spec, now);
        let Some(state) = self.pipelines.0.get(pipeline) else { return Ok(vec![]) };
        let near = beyond.near(state.open.iter());
        let verdicts = self.verdicts(pipeline, &specs, (&near, now)).await?;
        self.scope.saw(&verdicts);
        let done_at = self.last_success(pipeline, spec).await?;
        let deaf = self.outages_for_overdue(pipeline, now).await?;
        let Some(state) = self.pipelines.0.get(pipeline) else { return Ok(vec![]) };
        let flow = state.flow(spec, now);
        let seen = self.scope.view(&state.open, &near);
        let candidates = seen.iter().map(|(place, slot)| {
            let readiness = verdicts.get(*place).map_or(Outcome::CannotTell, |v| v.outcome);
            let forced = slot.wish.as_ref().is_some_and(|wish| wish.force);
            Candidate {
                nominal: place.0,
                schedule: &place.1,
                slot,
                readiness: if forced { Outcome::Ready } else { readiness },
                is_done_already: done_at.is_some_and(|at| is_covered(spec, place, at)),
                overlap: specs.of(slot).catchup.overlap,
                lane: state.lane(slot),
                is_unheard: state.unheard(place, slot, &deaf).is_some(),
            }
        });
        let candidates: Vec<_> = candidates.collect();
        let mut moves = plan_slots(spec, &candidates, flow, room, now);
        leave_in_the_queue(&mut moves, &candidates, state);
        // Who gives up a place is recorded before who takes it: a death in between must not leave two in it (S6).
        moves.sort_by_key(|(_, step)| matches!(step, Move::Start(_)));
        if !moves.is_empty() && (state.has_more_queued || !beyond.is_empty()) {
            // Others come up for their turn.
            self.dirty.insert(pipeline.clone());
        }
        let stuck_after = self.limits.stuck_after;
        let (specs, host, deaf) = (&specs, &self.host, &deaf[..]);
        let stepper = Stepper { pipeline, specs, state, now, stuck_after, host, deaf };
        let moved: BTreeSet<_> = moves.iter().map(|(index, _)| *index).collect();
        let looks = self.first_looks(&stepper, (&seen, &moved), &verdicts);
        let waits = waiting_longest(&seen, &moved, &verdicts).filter(|_| !state.is_asking());
        let next = next_in_line(spec, &candidates, &moves).and_then(|index| seen.get(index));
        let steps = moves
            .into_iter()
            .filter_map(|(index, step)| {
                let (place, _) = seen.get(index)?;
                if !self.scope.drives(place) {
                    return None;
                }
                let mut plan = Planned::new(pipeline, self.writer);
                stepper.step(place, step, verdicts.get(*place).map(Arc::as_ref), &mut plan)?;
                let next = next.filter(|_| plan.starts().next().is_some());
                plan.next = next.and_then(|(next, _)| stepper.rehearse(next, &plan));
                Some(plan)
            })
            .chain(looks)
            .collect();
        let shown_for = self.store.readiness_ttl();
        self.remembered.readiness.found(pipeline, waits, (shown_for, now));
        Ok(steps)
    }

    /// The first looks at slots that were not ready and stay as they are.
    fn first_looks(
        &self,
        stepper: &Stepper<'_>,
        (seen, moved): (&[SeenSlot<'_>], &BTreeSet<usize>),
        verdicts: &BTreeMap<SlotPlace, Arc<Verdict>>,
    ) -> Vec<Planned> {
        let untouched = seen.iter().enumerate().filter(|(index, _)| !moved.contains(index));
        let looks = untouched.filter_map(|(_, (place, _))| {
            let mut plan = Planned::new(stepper.pipeline, self.writer);
            let drives = self.scope.drives(place) && !stepper.state.is_asking();
            stepper.evaluated(place, verdicts.get(*place).filter(|_| drives)?, &mut plan)?;
            Some(plan)
        });
        looks.collect()
    }

    /// The declaration in force and those of the versions under which open slots were recorded (S16).
    async fn specs_of(&self, pipeline: &PipelineId) -> Result<SpecsInUse, String> {
        let state = self.pipelines.0.get(pipeline).ok_or("it is not known")?;
        let in_force = self.specs.pipeline(pipeline, state.version).await?;
        let mut older = BTreeMap::new();
        for version in state.open.versions().filter(|version| *version != state.version) {
            older.insert(version, self.specs.pipeline(pipeline, version).await?);
        }
        Ok(SpecsInUse { in_force, older })
    }

    /// The instant of the newest successful run of a pipeline, where that matters: its slot's, which for one that
    /// somebody asked for is when that was.
    async fn last_success(
        &mut self,
        pipeline: &PipelineId,
        spec: &Pipeline,
    ) -> Result<Option<Timestamp>, EngineError> {
        if !spec.skip_if_successful {
            return Ok(None);
        }
        let query = RunQuery {
            pipeline: Some(pipeline.clone()),
            status: Some(RunState::Completed.as_str().to_owned()),
            limit: 1,
            ..RunQuery::default()
        };
        self.settle().await?;
        let found = self.store.runs(&query).await?;
        Ok(found.items.first().map(|run| run.key.nominal))
    }

    pub(crate) async fn load_sensors(
        &mut self,
        pipeline: &PipelineId,
        specs: &SpecsInUse,
    ) -> Result<(), EngineError> {
        let known = self.pipelines.0.get(pipeline).is_some_and(|state| state.sensors.is_some());
        if specs.all().any(|spec| evidence::asks_sensors(spec)) && !known {
            let sensors = evidence::sensors(self.store.as_ref(), pipeline).await?;
            self.pipelines.get_mut(pipeline).sensors = Some(sensors);
        }
        Ok(())
    }

    /// Verdicts for the slots that could start, and for those whose data is still watched; each by the
    /// version under which it was recorded.
    async fn verdicts(
        &mut self,
        pipeline: &PipelineId,
        specs: &SpecsInUse,
        (near, now): (&[SlotPlace], Timestamp),
    ) -> Result<BTreeMap<SlotPlace, Arc<Verdict>>, EngineError> {
        let Some(state) = self.pipelines.0.get(pipeline) else { return Ok(BTreeMap::new()) };
        let near = near.iter().filter_map(|place| state.open.get_key_value(place));
        let asked = near.filter(|(place, open)| {
            use OpenState::{Monitoring, Queued, Waiting};
            matches!(open.slot.state, SlotState::Open(Waiting | Queued | Monitoring))
                && self.scope.drives(place)
        });
        let asked: Vec<_> = asked.map(|(place, open)| Asked::about(place, &open.slot)).collect();
        // How old answers are does not depend on a clock that somebody sets (S15).
        let clock = Trust::clock(self.world.as_ref());
        let (mut verdicts, mut shared) = (BTreeMap::new(), BTreeMap::new());
        let mut answering = BTreeSet::new();
        for slot in asked {
            let spec = specs.of_version(slot.version);
            // One whose time is over is judged by the last answers, however old: they say what blocked it.
            let is_over = now >= slot.closes_at;
            if !is_over && answering.insert(slot.version) {
                self.ask_evaluators(pipeline, spec, clock);
            }
            // Hundreds may wait for one answer, which is then the same for all of them.
            let same = evidence::is_same_for_all(spec).then_some((slot.version, is_over));
            if let Some(verdict) = same.and_then(|same| shared.get(&same)) {
                verdicts.insert(slot.place, Arc::clone(verdict));
                continue;
            }
            let specs = Arc::clone(&self.specs);
            let zones = |name: &str| specs.zone(name);
            let store = self.store.as_ref();
            let asked = (store, &mut self.remembered.starts);
            let upstreams = upstreams(asked, &zones, spec, &slot.place, slot.date).await?;
            let Some(state) = self.pipelines.0.get(pipeline) else { break };
            let no_sensors = Sensors::new();
            let gathered = Gathered {
                sensors: state.sensors.as_ref().unwrap_or(&no_sensors),
                traits: &state.answers(if is_over { Duration::ZERO } else { clock }),
                upstreams: &upstreams,
            };
            let verdict = gathered.verdict(spec, (&slot.place, Some(slot.opened_by)), now);
            let verdict = Arc::new(verdict);
            if let Some(same) = same {
                shared.insert(same, Arc::clone(&verdict));
            }
            verdicts.insert(slot.place, verdict);
        }
        Ok(verdicts)
    }

    /// Asks the evaluators whose answers are missing or too old.
    fn ask_evaluators(&mut self, pipeline: &PipelineId, spec: &Pipeline, clock: Duration) {
        for condition in &spec.readiness.conditions {
            let Condition::Trait(trait_spec) = condition else { continue };
            let state = self.pipelines.get_mut(pipeline);
            let is_usable = match state.traits.get(&trait_spec.kind) {
                Some(Answer::Asked) => true,
                Some(Answer::Given(_, until)) => clock < *until,
                None => false,
            };
            if is_usable || trait_spec.evaluator.is_none() {
                continue;
            }
            state.traits.insert(trait_spec.kind.clone(), Answer::Asked);
            let owed = OwedAnswer::new(&self.sender, pipeline, trait_spec);
            let evaluators = Arc::clone(&self.evaluators);
            let (pipeline, trait_spec) = (pipeline.clone(), trait_spec.clone());
            let world = Arc::clone(&self.world);
            let task = async move {
                let result = evaluators.evaluate(&pipeline, &trait_spec).await;
                owed.give(result, Trust::clock(world.as_ref()));
            };
            self.world.spawn("ask an evaluator", Box::pin(task));
        }
    }

    /// Takes over what an evaluator said.
    pub(crate) fn answered(
        &mut self,
        pipeline: &PipelineId,
        asked: &TraitSpec,
        answered: Answered,
    ) {
        let until = answered.usable_until(asked.ttl, Trust::clock(self.world.as_ref()));
        let state = self.pipelines.get_mut(pipeline);
        state.traits.insert(asked.kind.clone(), Answer::Given(answered.result, until));
        self.dirty.insert(pipeline.clone());
    }

    /// When the pipeline is to be looked at again by itself.
    fn set_wake(&mut self, pipeline: &PipelineId, now: Timestamp) {
        use OpenState::{Monitoring, Queued, Waiting};
        let Some(state) = self.pipelines.0.get(pipeline) else { return };
        let interval = state.agenda.evaluation.interval.unwrap_or(self.limits.evaluation_interval);
        // In a pause nothing starts but backfills, so that of others only the end of their time can come.
        let is_paused = state.is_paused(now);
        let evaluate_at = plus(now, interval);
        // What should have happened and could not (no room, a pause) is looked at again soon, not at once.
        let soon = plus(now, SignedDuration::from_secs(1));
        let later = |at: Timestamp| if at > now { at } else { soon };
        // The end of what runs has the queue looked at; nobody is asked about it before.
        let is_busy = state.open.running().0 > 0;
        let driven = state.open.iter().filter(|(place, _)| self.scope.drives(place));
        let times = driven.filter_map(|(place, open)| {
            let SlotState::Open(slot_state) = open.slot.state else { return None };
            let closes_at = later(state.given_up_at(place, &open.slot, slot_state));
            if is_paused && state.lane(&open.slot).is_none() {
                return Some(closes_at);
            }
            let is_evaluated =
                matches!(slot_state, Waiting | Monitoring) || (slot_state == Queued && !is_busy);
            let others = [open.slot.retry_at, is_evaluated.then_some(evaluate_at)];
            Some(others.into_iter().flatten().map(later).fold(closes_at, Ord::min))
        });
        let next = times.min();
        let pause = state.row.as_ref().and_then(|(row, _)| row.pause.as_ref()?.until);
        if let Some(at) = next.into_iter().chain(pause.filter(|until| *until > now)).min() {
            self.wake_at(pipeline, at);
        }
    }
}

/// An open slot as a plan sees it.
type SeenSlot<'a> = (&'a SlotPlace, Cow<'a, Slot>);

/// The slot that has waited longest and goes on waiting, with why.
fn waiting_longest(
    seen: &[SeenSlot<'_>],
    moved: &BTreeSet<usize>,
    verdicts: &BTreeMap<SlotPlace, Arc<Verdict>>,
) -> Option<(SlotPlace, Arc<Verdict>)> {
    let waits = |slot: &Slot| slot.state == SlotState::Open(OpenState::Waiting);
    let rest = seen.iter().enumerate().filter(|(index, _)| !moved.contains(index));
    let mut rest = rest.filter(|(_, (_, slot))| waits(slot));
    rest.find_map(|(_, (place, _))| Some(((*place).clone(), Arc::clone(verdicts.get(*place)?))))
}

/// Until an evaluator has answered it is not known whether those whose turn came are ready: they stay where they are, and are
/// stepped again by the answer.
fn leave_in_the_queue(
    moves: &mut Vec<(usize, Move)>,
    candidates: &[Candidate<'_>],
    state: &PipelineState,
) {
    if !state.is_asking() {
        return;
    }
    let is_unknown =
        |index: usize| candidates.get(index).is_some_and(|it| it.readiness == Outcome::CannotTell);
    moves.retain(|(index, step)| *step != Move::WaitAgain || !is_unknown(*index));
}

/// The queued slot that follows when the one job that begins has ended, where there is something to make ready: for a command,
/// whose shell can come up meanwhile.
fn next_in_line(
    spec: &Pipeline,
    candidates: &[Candidate<'_>],
    moves: &[(usize, Move)],
) -> Option<usize> {
    let kind = spec.trigger.as_ref().map(|trigger| &trigger.kind);
    let begin = moves.iter().filter(|(_, step)| matches!(step, Move::Start(_))).count();
    if begin != 1 || !matches!(kind, Some(TriggerKind::Command(_))) {
        return None;
    }
    let moves_now = |index: usize| moves.iter().any(|(moved, _)| *moved == index);
    let mut all = candidates.iter().enumerate();
    let next = all.find(|(index, it)| {
        it.slot.state == SlotState::Open(OpenState::Queued) && !moves_now(*index)
    });
    next.map(|(index, _)| index)
}

/// A slot that may be ready.
struct Asked {
    place: SlotPlace,
    version: u64,
    date: Date,
    opened_by: TriggerType,
    closes_at: Timestamp,
}

impl Asked {
    fn about(place: &SlotPlace, slot: &Slot) -> Self {
        let Slot { version, date, opened_by, closes_at, .. } = *slot;
        Self { place: place.clone(), version, date, opened_by, closes_at }
    }
}

/// The declarations that a pipeline's open slots are stepped by.
pub(crate) struct SpecsInUse {
    /// What says how slots share the pipeline.
    pub(crate) in_force: Arc<Pipeline>,
    /// Of versions before, for slots that were recorded under them.
    older: BTreeMap<u64, Arc<Pipeline>>,
}

impl SpecsInUse {
    /// One declaration alone.
    pub(crate) fn only(in_force: Arc<Pipeline>) -> Self {
        Self { in_force, older: BTreeMap::new() }
    }

    /// What a slot keeps to.
    pub(crate) fn of(&self, slot: &Slot) -> &Arc<Pipeline> {
        self.of_version(slot.version)
    }

    fn of_version(&self, version: u64) -> &Arc<Pipeline> {
        self.older.get(&version).unwrap_or(&self.in_force)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Pipeline>> {
        std::iter::once(&self.in_force).chain(self.older.values())
    }
}

/// Whether a run of an instant did the work of a slot: it lies between the slot before and the one after.
fn is_covered(spec: &Pipeline, place: &SlotPlace, done: Timestamp) -> bool {
    let start = spec.starts.iter().find(|start| *start.schedule.id() == place.1);
    start.is_some_and(|start| {
        start.schedule.previous(place.0).is_some_and(|before| done > before)
            && start.schedule.after(place.0).is_none_or(|after| done < after)
    })
}

impl PipelineState {
    /// Whether its slots may start.
    fn flow(&self, spec: &Pipeline, now: Timestamp) -> Flow {
        match (self.is_retired(), self.is_paused(now) || !spec.enabled) {
            (true, _) => Flow::Retired,
            (false, true) => Flow::Paused,
            (false, false) => Flow::Open,
        }
    }

    /// From when to when a report on a slot could have found nobody, if so.
    pub(crate) fn unheard(
        &self,
        place: &SlotPlace,
        slot: &Slot,
        deaf: &[Stretch],
    ) -> Option<Stretch> {
        if deaf.is_empty() {
            return None;
        }
        let start = self.agenda.starts.iter().find(|start| *start.schedule.id() == place.1);
        let early = start.map_or(SignedDuration::ZERO, |start| start.early_for(place.0));
        let from = plus(place.0, -early);
        let deaf = deaf.iter().filter(|(began, ended)| *began < slot.closes_at && *ended > from);
        deaf.copied().reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// Whether an evaluator has yet to answer: what it blocks is not known.
    fn is_asking(&self) -> bool {
        self.traits.values().any(|answer| matches!(answer, Answer::Asked))
    }

    /// When the owner closes an open slot whose time is over, if nobody else has.
    fn given_up_at(&self, place: &SlotPlace, slot: &Slot, state: OpenState) -> Timestamp {
        match state {
            OpenState::Running => plus(slot.closes_at, OWNER_WAITS),
            OpenState::Waiting if self.is_watched(place, slot) => plus(slot.closes_at, OWNER_WAITS),
            OpenState::Waiting | OpenState::Queued | OpenState::Backoff | OpenState::Monitoring => {
                slot.closes_at
            }
        }
    }

    /// Whether the watchdog should have closed an open slot by now, by its deadline or its time limit.
    pub(crate) fn is_overdue(&self, place: &SlotPlace, slot: &Slot, now: Timestamp) -> bool {
        let is_of_the_watchdog = match slot.state {
            SlotState::Open(OpenState::Running) => true,
            SlotState::Open(OpenState::Waiting) => self.is_watched(place, slot),
            SlotState::Open(_) | SlotState::Closed(_) => false,
        };
        is_of_the_watchdog && plus(slot.closes_at, OWNER_WAITS) <= now
    }

    /// Whether somebody else should have closed a slot before the owner does: the watchdog, by its deadline.
    fn is_watched(&self, place: &SlotPlace, slot: &Slot) -> bool {
        let start = self.agenda.starts.iter().find(|start| *start.schedule.id() == place.1);
        let is_sensor = start
            .is_some_and(|start| matches!(start.schedule.recurrence(), Recurrence::Sensor { .. }));
        self.agenda.work == Work::Watched || (is_sensor && slot.opened_by == TriggerType::Scheduler)
    }

    fn answers(&self, clock: Duration) -> BTreeMap<String, TraitResult> {
        let given = self.traits.iter().filter_map(|(kind, answer)| match answer {
            Answer::Given(result, until) if clock < *until => Some((kind.clone(), result.clone())),
            Answer::Given(..) | Answer::Asked => None,
        });
        given.collect()
    }
}
