//! The controller: brings open slots to their end, one pipeline at a time.
//!
//! A pipeline is stepped when something happened to it: a slot opened, a report came, a sensor changed, an
//! evaluator answered, or its time came. Readiness is evaluated for every slot that could start; evaluators
//! run beside the loop, so that no slot waits behind another's.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::{
    control::{Candidate, Flow, Move, plan_slots},
    id::PipelineId,
    pipeline::Pipeline,
    readiness::{Condition, Outcome, TraitResult, TraitSpec, Verdict},
    run::{RunEvent, TriggerType},
    sensor::Sensors,
    slot::{Disposition, OpenState, SlotState},
};
use interlock_store::RunKey;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    engine::{Engine, EngineError, Message},
    evidence::{self, Gathered},
    request::{request, run_closes_at},
    scheduler::plus,
    state::{Answer, KnownRun, OpenSlot, PipelineState, SlotPlace},
    write::{Act, Event, NewRun, Planned},
};

/// How often a waiting slot is evaluated unless its pipeline says otherwise.
const EVALUATION_INTERVAL: SignedDuration = SignedDuration::from_mins(5);
/// How long an evaluator's answer is used unless its trait says otherwise.
const ANSWER_TTL: SignedDuration = SignedDuration::from_secs(30);
/// A queued slot that never got its turn is given up after this.
const QUEUE_MAX: SignedDuration = SignedDuration::from_hours(7 * 24);

impl Engine {
    /// Steps every pipeline that something happened to, or whose time came.
    pub(crate) async fn step_what_is_dirty(&mut self) -> Result<(), EngineError> {
        let now = self.world.now();
        while let Some((at, pipeline)) = self.wakes.first().cloned() {
            if at > now {
                break;
            }
            self.wakes.pop_first();
            self.dirty.insert(pipeline);
        }
        let dirty = std::mem::take(&mut self.dirty);
        let mut planned = Vec::new();
        for pipeline in &dirty {
            planned.extend(self.plan_steps(pipeline, now).await?);
        }
        self.commit(planned).await?;
        for pipeline in &dirty {
            self.set_wake(pipeline, now);
        }
        Ok(())
    }

    async fn plan_steps(
        &mut self,
        pipeline: &PipelineId,
        now: Timestamp,
    ) -> Result<Vec<Planned>, EngineError> {
        let Some(state) = self.pipelines.0.get(pipeline) else { return Ok(vec![]) };
        if state.open.is_empty() || state.version == 0 {
            return Ok(vec![]);
        }
        let spec = match self.specs.pipeline(pipeline, state.version).await {
            Ok(spec) => spec,
            Err(reason) => {
                tracing::error!(%pipeline, reason, "its declaration cannot be had; set aside");
                self.wake_at(pipeline, plus(now, SignedDuration::from_mins(1)));
                return Ok(vec![]);
            }
        };
        self.load_sensors(pipeline, &spec).await?;
        let verdicts = self.verdicts(pipeline, &spec, now).await?;
        self.scope.saw(&verdicts);
        let Some(state) = self.pipelines.0.get(pipeline) else { return Ok(vec![]) };
        let flow = match (state.is_retired(), state.is_paused(now) || !spec.enabled) {
            (true, _) => Flow::Retired,
            (false, true) => Flow::Paused,
            (false, false) => Flow::Open,
        };
        let seen = self.scope.view(&state.open);
        let candidates: Vec<_> = seen
            .iter()
            .map(|(place, slot)| {
                let readiness = verdicts.get(*place).map_or(Outcome::CannotTell, |v| v.outcome);
                let forced = slot.wish.as_ref().is_some_and(|wish| wish.force);
                let readiness = if forced { Outcome::Ready } else { readiness };
                Candidate { nominal: place.0, schedule: &place.1, slot, readiness }
            })
            .collect();
        let moves = plan_slots(&spec, &candidates, flow, now);
        let stepper = Stepper { pipeline, spec: &spec, state, now };
        Ok(moves
            .into_iter()
            .filter_map(|(index, step)| {
                let (place, _) = seen.get(index)?;
                if !self.scope.drives(place) {
                    return None;
                }
                let mut plan = Planned::new(pipeline, self.writer);
                stepper.step(place, step, verdicts.get(*place), &mut plan)?;
                Some(plan)
            })
            .collect())
    }

    async fn load_sensors(
        &mut self,
        pipeline: &PipelineId,
        spec: &Pipeline,
    ) -> Result<(), EngineError> {
        let known = self.pipelines.0.get(pipeline).is_some_and(|state| state.sensors.is_some());
        if evidence::asks_sensors(spec) && !known {
            let sensors = evidence::sensors(self.store.as_ref(), pipeline).await?;
            self.pipelines.get_mut(pipeline).sensors = Some(sensors);
        }
        Ok(())
    }

    /// Verdicts for the slots that could start.
    async fn verdicts(
        &mut self,
        pipeline: &PipelineId,
        spec: &Arc<Pipeline>,
        now: Timestamp,
    ) -> Result<BTreeMap<SlotPlace, Verdict>, EngineError> {
        let Some(state) = self.pipelines.0.get(pipeline) else { return Ok(BTreeMap::new()) };
        let waiting: Vec<_> = state
            .open
            .iter()
            .filter(|(place, open)| {
                matches!(open.slot.state, SlotState::Open(OpenState::Waiting | OpenState::Queued))
                    && self.scope.drives(place)
            })
            .map(|(place, open)| (place.clone(), open.slot.date))
            .collect();
        if waiting.is_empty() {
            return Ok(BTreeMap::new());
        }
        self.ask_evaluators(pipeline, spec, now);
        let mut verdicts = BTreeMap::new();
        for (place, date) in waiting {
            let upstreams = evidence::upstreams(self.store.as_ref(), spec, place.0, date).await?;
            let Some(state) = self.pipelines.0.get(pipeline) else { break };
            let no_sensors = Sensors::new();
            let gathered = Gathered {
                sensors: state.sensors.as_ref().unwrap_or(&no_sensors),
                traits: &state.answers(now),
                upstreams: &upstreams,
            };
            let verdict = gathered.verdict(spec, &place, now);
            verdicts.insert(place, verdict);
        }
        Ok(verdicts)
    }

    /// Asks the evaluators whose answers are missing or too old.
    fn ask_evaluators(&mut self, pipeline: &PipelineId, spec: &Pipeline, now: Timestamp) {
        for condition in &spec.readiness.conditions {
            let Condition::Trait(trait_spec) = condition else { continue };
            let state = self.pipelines.get_mut(pipeline);
            let is_usable = match state.traits.get(&trait_spec.kind) {
                Some(Answer::Asked) => true,
                Some(Answer::Given(_, until)) => now < *until,
                None => false,
            };
            if is_usable || trait_spec.evaluator.is_none() {
                continue;
            }
            state.traits.insert(trait_spec.kind.clone(), Answer::Asked);
            let answer = self.evaluators.evaluate(pipeline, trait_spec);
            let (sender, pipeline) = (self.sender.clone(), pipeline.clone());
            let asked = Box::new(trait_spec.clone());
            let task = async move {
                let result = answer.await;
                let _loop_is_gone = sender.send(Message::Answered(pipeline, asked, result));
            };
            self.world.spawn("ask an evaluator", Box::pin(task));
        }
    }

    /// Takes over what an evaluator said.
    pub(crate) fn answered(
        &mut self,
        pipeline: &PipelineId,
        asked: &TraitSpec,
        result: TraitResult,
    ) {
        let until = plus(self.world.now(), asked.ttl.unwrap_or(ANSWER_TTL));
        let state = self.pipelines.get_mut(pipeline);
        state.traits.insert(asked.kind.clone(), Answer::Given(result, until));
        self.dirty.insert(pipeline.clone());
    }

    /// When the pipeline is to be looked at again by itself.
    fn set_wake(&mut self, pipeline: &PipelineId, now: Timestamp) {
        let Some(state) = self.pipelines.0.get(pipeline) else { return };
        let interval = state.evaluation_interval.unwrap_or(EVALUATION_INTERVAL);
        let driven = state.open.iter().filter(|(place, _)| self.scope.drives(place));
        let next = driven.flat_map(|(_, open)| times_of(open, plus(now, interval))).min();
        let pause = state.row.as_ref().and_then(|(row, _)| row.pause.as_ref()?.until);
        let soonest = plus(now, SignedDuration::from_millis(1));
        if let Some(at) = next.into_iter().chain(pause.filter(|until| *until > now)).min() {
            self.wake_at(pipeline, at.max(soonest));
        }
    }
}

/// When something may happen to a slot by itself.
fn times_of(open: &OpenSlot, evaluate_at: Timestamp) -> Vec<Timestamp> {
    let SlotState::Open(state) = open.slot.state else { return vec![] };
    let closes_at = match state {
        OpenState::Running => plus(open.slot.closes_at, interlock_core::control::OWNER_WAITS),
        OpenState::Waiting | OpenState::Queued | OpenState::Backoff | OpenState::Monitoring => {
            open.slot.closes_at
        }
    };
    let mut times = vec![closes_at];
    times.extend(open.slot.retry_at);
    if matches!(state, OpenState::Waiting | OpenState::Queued) {
        times.push(evaluate_at);
    }
    times
}

impl PipelineState {
    fn answers(&self, now: Timestamp) -> BTreeMap<String, TraitResult> {
        let given = self.traits.iter().filter_map(|(kind, answer)| match answer {
            Answer::Given(result, until) if now < *until => Some((kind.clone(), result.clone())),
            Answer::Given(..) | Answer::Asked => None,
        });
        given.collect()
    }
}

/// Turns moves into groups.
struct Stepper<'a> {
    pipeline: &'a PipelineId,
    spec: &'a Pipeline,
    state: &'a PipelineState,
    now: Timestamp,
}

impl Stepper<'_> {
    /// `None` when the move makes no sense any more.
    fn step(
        &self,
        place: &SlotPlace,
        step: Move,
        verdict: Option<&Verdict>,
        plan: &mut Planned,
    ) -> Option<()> {
        let open = self.state.open.get(place)?;
        match step {
            Move::Start(attempt) => self.start(place, open, attempt, (verdict, plan)),
            Move::Queue => {
                let slot = open.slot.advance(OpenState::Queued, plus(self.now, QUEUE_MAX)).ok()?;
                plan.slot(place, open.revision, &slot);
                Some(())
            }
            Move::WaitAgain => {
                let slot = open.slot.advance(OpenState::Waiting, open.slot.closes_at).ok()?;
                plan.slot(place, open.revision, &slot);
                Some(())
            }
            Move::Close(disposition) => self.close(place, open, disposition, (verdict, plan)),
        }
    }

    fn start(
        &self,
        place: &SlotPlace,
        open: &OpenSlot,
        attempt: u32,
        (verdict, plan): (Option<&Verdict>, &mut Planned),
    ) -> Option<()> {
        let now = self.now;
        let mut slot = open.slot.advance(OpenState::Running, run_closes_at(now)).ok()?;
        slot.attempt = attempt;
        let trigger_type = if attempt > 1 { TriggerType::Retry } else { slot.opened_by };
        let key = RunKey {
            schedule: place.1.clone(),
            nominal: place.0,
            generation: slot.generation,
            attempt,
        };
        let run_id = key.id(self.pipeline);
        plan.slot(place, open.revision, &slot);
        plan.new_run(key.clone(), trigger_type, NewRun { at: now, metadata: BTreeMap::new() });
        let message = format!("attempt {attempt}, {}", trigger_type.as_str());
        let mut event = Event::of("JOB_TRIGGERED", now, message).about(place).run(run_id);
        if let Some(verdict) = verdict.filter(|verdict| !verdict.parts.is_empty()) {
            // S8: the evidence is stored with the decision.
            event = event.detail("evidence", verdict.to_string());
        }
        plan.event(event);
        let record = plan.created_run()?;
        let run = KnownRun { key, record, revision: 1 };
        let started = OpenSlot { slot, revision: open.revision + 1, runs: open.runs.clone() };
        let asked = request(self.pipeline, self.spec, (place, &started), &run);
        plan.acts.push(Act::Start(Box::new(asked)));
        Some(())
    }

    fn close(
        &self,
        place: &SlotPlace,
        open: &OpenSlot,
        disposition: Disposition,
        (verdict, plan): (Option<&Verdict>, &mut Planned),
    ) -> Option<()> {
        let now = self.now;
        let slot = open.slot.close(disposition, now).ok()?;
        plan.slot(place, open.revision, &slot);
        let last = open.last_run();
        if let Some(run) = last {
            let event = if disposition == Disposition::Completed {
                RunEvent::MonitoringEnded
            } else {
                RunEvent::Failed
            };
            plan.run(run, event, |record| record.ended_at = Some(now));
            if disposition == Disposition::Failed
                && open.slot.state == SlotState::Open(OpenState::Running)
            {
                let asked = request(self.pipeline, self.spec, (place, open), run);
                plan.acts.push(Act::Cancel(Box::new(asked)));
            }
        }
        let kind = close_kind(disposition, open.slot.state);
        let mut event = Event::of(kind, now, slot.state.to_string()).about(place);
        if let Some(verdict) = verdict {
            let blocking: Vec<Value> =
                verdict.blocking().iter().map(|part| Value::from(part.reason.clone())).collect();
            event = event.detail("blocking", blocking);
        }
        plan.event(event);
        Some(())
    }
}

/// The name of the event with which a slot is closed by plan.
fn close_kind(disposition: Disposition, from: SlotState) -> &'static str {
    use interlock_core::slot::SkipReason;
    match disposition {
        Disposition::Skipped(SkipReason::NotReady) => "VALIDATION_EXHAUSTED",
        Disposition::Skipped(SkipReason::DryRun) => "DRY_RUN_WOULD_TRIGGER",
        Disposition::Skipped(_) => "SLOT_SKIPPED",
        Disposition::Completed => "MONITORING_COMPLETED",
        Disposition::Failed if from == SlotState::Open(OpenState::Running) => "SFN_TIMEOUT",
        Disposition::Failed => "RETRY_EXHAUSTED",
        Disposition::Missed => "SCHEDULE_MISSED",
        Disposition::Cancelled => "SLOT_CANCELLED",
        Disposition::Unknown => "SCHEDULE_UNKNOWN",
    }
}
