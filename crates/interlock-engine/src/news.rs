//! What is new about runs: recorded one at a time per pipeline, in the order it came.
//!
//! A report that the run's state machine does not know (late, repeated, out of order) changes nothing
//! (S11). A start whose outcome is not known is looked up; where nothing can be found out, the run is
//! uncertain and the pipeline's `onUncertain` decides (S18).

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use interlock_core::{
    arrival,
    id::PipelineId,
    pipeline::{OnUncertain, Pipeline},
    retry::{Decision, Failure, FailureCategory, next_attempt},
    run::RunEvent,
    sensor::Sensors,
    slot::{Disposition, FAILED_FINAL, OpenState},
};
use interlock_ports::trigger::{CancelFailure, LookUp, Outcome, StartFailure, StartRequest, What};
use interlock_store::{
    InboxEntry, Key, Record, RunKey,
    record::{AppliedRecord, InboxRecord},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    controller::SpecsInUse,
    ending::end_wanted,
    engine::{Engine, EngineError, News, NewsOf},
    host::{HOST, Host, news_of},
    quarantine::guarded,
    request::{is_active, request, run_closes_at, with},
    scheduler::plus,
    state::{KnownRun, OpenSlot, SlotPlace},
    write::{Act, Event, Planned},
};

/// How often a job is looked for whose outcome nobody can tell, and for how long.
const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(10);
const LOOK_FOR: SignedDuration = SignedDuration::from_secs(60);
/// Since when, kept with the run.
const UNCERTAIN_SINCE: &str = "uncertainSince";

/// How a run ended, as far as the slot is concerned.
struct End {
    at: Timestamp,
    message: String,
    category: Option<FailureCategory>,
    metadata: BTreeMap<String, Value>,
    is_uncertain: bool,
}

impl End {
    fn before_it_began(at: Timestamp, failure: StartFailure) -> Self {
        Self {
            at,
            message: failure.message,
            category: Some(failure.category),
            metadata: BTreeMap::new(),
            is_uncertain: false,
        }
    }
}

impl Engine {
    /// Plans what is to be recorded of everything that is new; it is committed with what follows from it.
    pub(crate) async fn record_the_news(&mut self) -> Result<(), EngineError> {
        while !self.news.is_empty() {
            let mut later = VecDeque::new();
            let mut seen = BTreeSet::new();
            let mut planned = Vec::new();
            for news in std::mem::take(&mut self.news) {
                let Ok((pipeline, key)) = RunKey::parse(&news.run_id) else { continue };
                // One at a time: the second is planned on what the first became.
                if !seen.insert(pipeline.clone()) {
                    later.push_back(news);
                    continue;
                }
                match guarded(self.plan_news(&pipeline, &key, news)).await? {
                    Ok(plan) => {
                        // What only says more of a run, such as that its job began, gives nobody a turn.
                        if plan.as_ref().is_some_and(Planned::moves_slot) {
                            self.dirty.insert(pipeline);
                        }
                        planned.extend(plan);
                    }
                    // Not acknowledged: it is told again, at the latest to the next process.
                    Err(reason) => {
                        self.dirty.insert(pipeline.clone());
                        self.poisoned.push((pipeline, reason));
                    }
                }
            }
            self.hold(planned).await?;
            self.news.extend(later);
        }
        Ok(())
    }

    /// What a host says of a job, in one group with its answer: whoever wrote the letter has forgotten it by then.
    pub(crate) async fn plan_letter(
        &mut self,
        entry: &InboxEntry,
        now: Timestamp,
    ) -> Result<Planned, EngineError> {
        // What came before it is recorded before it.
        self.record_the_news().await?;
        let planned = self.plan_job(entry).await?;
        let result = json!({ "recorded": planned.is_some() });
        let mut plan = planned.unwrap_or_else(|| Planned::new(&entry.pipeline, self.writer));
        let record = AppliedRecord { at: now, accepted: true, result, request: None };
        plan.put(Key::Applied(entry.key.clone()), 0, Record::Applied(record.into()));
        Ok(plan)
    }

    async fn plan_job(&mut self, entry: &InboxEntry) -> Result<Option<Planned>, EngineError> {
        let InboxRecord::Job { host, run_id, at, .. } = &entry.record else { return Ok(None) };
        let (Ok((pipeline, key)), Some(what)) = (RunKey::parse(run_id), news_of(&entry.record))
        else {
            return Ok(None);
        };
        // Only the host that the run names can know of nothing: it may have been started elsewhere since.
        let is_nothing =
            matches!(what, NewsOf::LookedUp(LookUp::NeverStarted) | NewsOf::Job(What::Lost { .. }));
        let place = (key.nominal, key.schedule.clone());
        let open = self.pipelines.0.get(&pipeline).and_then(|state| state.open.get(&place));
        let run = open.and_then(|open| open.runs.iter().find(|run| run.key == key));
        let named = run.and_then(|run| run.record.metadata.get(HOST)?.as_str());
        if pipeline != entry.pipeline || (is_nothing && named != Some(host.as_str())) {
            return Ok(None);
        }
        let news = News { run_id: run_id.clone(), at: *at, what };
        match guarded(self.plan_news(&pipeline, &key, news)).await? {
            Ok(planned) => Ok(planned),
            Err(reason) => {
                self.poisoned.push((pipeline, reason));
                Ok(None)
            }
        }
    }

    async fn plan_news(
        &mut self,
        pipeline: &PipelineId,
        key: &RunKey,
        news: News,
    ) -> Result<Option<Planned>, EngineError> {
        let News { run_id, at, what } = news;
        let place = (key.nominal, key.schedule.clone());
        let Some(spec) = self.spec_of_run(pipeline, &place, key).await? else {
            // The run is decided, on the disk too: whoever still tells us about it may forget it.
            self.settle().await?;
            self.triggers.acknowledge(&run_id);
            return Ok(None);
        };
        let mut plan = Planned::new(pipeline, self.writer);
        let Some(state) = self.pipelines.0.get(pipeline) else { return Ok(None) };
        let Some(open) = state.open.get(&place) else { return Ok(None) };
        let Some(run) = open.runs.iter().find(|run| run.key == *key) else { return Ok(None) };
        let known = (state.sensors.as_ref(), self.limits.stuck_after);
        let teller = Teller::new((pipeline, &spec), (&place, open, run), known);
        let asked = request(pipeline, &spec, (&place, open), run);
        match what {
            NewsOf::Job(What::Started { metadata })
            | NewsOf::LookedUp(LookUp::Running { metadata }) => {
                teller.started(at, metadata, &mut plan);
                if end_wanted(&run.record).is_some() {
                    // It was asked before it began, or by a process that is gone: the wish is stored.
                    self.act(Act::Cancel(Box::new(asked)));
                }
            }
            NewsOf::Job(What::StepChanged { step, status, message, .. }) => {
                let message = message.map_or(String::new(), |message| format!(": {message}"));
                let text = format!("step {step} {status}{message}");
                plan.event(Event::of("STEP_CHANGED", at, text).about(&place).run(run_id));
            }
            NewsOf::Job(What::Finished(outcome)) | NewsOf::LookedUp(LookUp::Finished(outcome)) => {
                teller.finished(at, outcome, &mut plan);
            }
            NewsOf::Job(What::Lost { reason })
            | NewsOf::LookedUp(LookUp::CannotTell { reason }) => {
                if let Some(later) = teller.uncertain(at, &reason, &mut plan) {
                    self.look_up_at(asked, later);
                }
            }
            NewsOf::LookedUp(LookUp::NeverStarted) if let Some(why) = end_wanted(&run.record) => {
                if self.starts.contains(&run_id) {
                    self.look_up_at(asked, plus(at, LOOK_EVERY));
                    return Ok(None);
                }
                teller.cancelled(at, &format!("ended before its job started: {why}"), &mut plan);
            }
            NewsOf::LookedUp(LookUp::NeverStarted) => {
                teller.start_after_all(at, (asked, &self.host), &mut plan);
            }
            NewsOf::Elsewhere { host, is_present } => {
                // While somebody is there, that host tells what becomes of it.
                let again = if is_present { LOOK_FOR } else { LOOK_EVERY };
                self.look_up_at(asked, plus(at, again));
                if is_present {
                    return Ok(None);
                }
                teller.out_of_sight(at, &host, &mut plan);
            }
            NewsOf::NotAsked(CancelFailure { is_retryable: true, .. })
            | NewsOf::NotStarted(StartFailure { may_have_started: true, .. }) => {
                // What is found still running is asked to end again. Not at once: one that never began is started
                // again, and may be as unclear again.
                self.look_up_at(asked, plus(at, LOOK_EVERY));
                return Ok(None);
            }
            NewsOf::NotAsked(failure) => {
                plan.event(teller.event("CANCEL_REFUSED", at, failure.message));
            }
            NewsOf::NotStarted(failure) => {
                teller.failed(End::before_it_began(at, failure), &mut plan);
            }
        }
        Ok(Some(plan))
    }

    /// The declaration that a run keeps to, with what is needed to record its end; `None` when the run is
    /// over. An end that is told twice must not end the attempt that came after it.
    async fn spec_of_run(
        &mut self,
        pipeline: &PipelineId,
        place: &SlotPlace,
        key: &RunKey,
    ) -> Result<Option<Arc<Pipeline>>, EngineError> {
        let Some(state) = self.pipelines.0.get(pipeline) else { return Ok(None) };
        let Some(open) = state.open.get(place) else { return Ok(None) };
        if !open.runs.iter().any(|run| run.key == *key && is_active(run)) {
            return Ok(None);
        }
        let spec = match self.specs.pipeline(pipeline, open.slot.version).await {
            Ok(spec) => spec,
            // Better today's word on retries than a job whose end nobody takes down.
            Err(reason) => match self.specs.pipeline(pipeline, state.version).await {
                Ok(spec) => {
                    tracing::warn!(%pipeline, reason, "cannot load the slot's pipeline version; using the current one");
                    spec
                }
                Err(reason) => return Err(EngineError::Declaration(reason)),
            },
        };
        if spec.post_run.is_some() {
            self.load_sensors(pipeline, &SpecsInUse::only(Arc::clone(&spec))).await?;
        }
        Ok(Some(spec))
    }
}

/// What is needed to record news about one run.
struct Teller<'a> {
    pipeline: &'a PipelineId,
    spec: &'a Pipeline,
    place: &'a SlotPlace,
    open: &'a OpenSlot,
    run: &'a KnownRun,
    sensors: Option<&'a Sensors>,
    stuck_after: SignedDuration,
}

impl<'a> Teller<'a> {
    fn new(
        (pipeline, spec): (&'a PipelineId, &'a Pipeline),
        (place, open, run): (&'a SlotPlace, &'a OpenSlot, &'a KnownRun),
        (sensors, stuck_after): (Option<&'a Sensors>, SignedDuration),
    ) -> Self {
        Self { pipeline, spec, place, open, run, sensors, stuck_after }
    }

    fn started(&self, at: Timestamp, metadata: BTreeMap<String, Value>, plan: &mut Planned) {
        if self.uncertain_since().is_some() {
            // It was found after all; the mark stays on the slot.
            plan.about_run(self.run, BTreeMap::from([(UNCERTAIN_SINCE.into(), Value::Null)]));
            plan.event(self.event("RUN_FOUND", at, "its job was found running"));
            return;
        }
        plan.run(self.run, RunEvent::Started, |record| {
            record.started_at = Some(at);
            record.metadata = with(&record.metadata, metadata);
        });
    }

    /// Committed as about to start, and not started: it is done now, under the same id, on this host.
    fn start_after_all(
        &self,
        at: Timestamp,
        (mut asked, host): (StartRequest, &Host),
        plan: &mut Planned,
    ) {
        let here = host.of(&asked.kind);
        let is_other = host.other(&self.run.record.metadata).is_some();
        if let Some((key, name)) = here.filter(|_| is_other) {
            asked.host = name.as_str().map(str::to_owned);
            plan.about_run(self.run, BTreeMap::from([(key, name)]));
        }
        plan.event(self.event("JOB_TRIGGERED", at, "its job had not started; starting it now"));
        plan.acts.push(Act::Start(Box::new(asked)));
    }

    fn finished(&self, at: Timestamp, outcome: Outcome, plan: &mut Planned) {
        match outcome {
            Outcome::Success { metadata } => self.succeeded(at, metadata, plan),
            Outcome::Failure { message, category, metadata } => {
                let category = Some(category);
                self.failed(End { at, message, category, metadata, is_uncertain: false }, plan);
            }
            Outcome::Cancelled { message } => self.cancelled(at, &message, plan),
        }
    }

    fn succeeded(&self, at: Timestamp, metadata: BTreeMap<String, Value>, plan: &mut Planned) {
        let monitoring = self.spec.monitoring;
        let slot = match monitoring {
            Some(duration) => self.open.slot.advance(OpenState::Monitoring, plus(at, duration)),
            None => self.open.slot.close(Disposition::Completed, at),
        };
        let Ok(slot) = slot else { return };
        let event = match monitoring {
            Some(_) => RunEvent::SucceededMonitored,
            None => RunEvent::Succeeded,
        };
        plan.slot(self.place, self.open.revision, &slot);
        plan.has_ended(self.spec, self.run, self.stuck_after);
        if let Some(post_run) = &self.spec.post_run {
            plan.will_be_reported(self.place, (&slot, post_run), at);
        }
        let baseline = self.baseline();
        plan.run(self.run, event, |record| {
            record.started_at = record.started_at.or(Some(at));
            record.ended_at = Some(at);
            record.metadata = with(&record.metadata, metadata);
            record.metadata.extend(baseline.clone().map(|found| ("baseline".to_owned(), found)));
        });
        plan.event(self.event("JOB_COMPLETED", at, "the job succeeded"));
        if let Some(found) = baseline {
            let message = "recorded what the postRun sensors say at the end of the job";
            plan.event(
                self.event("POST_RUN_BASELINE_CAPTURED", at, message).detail("baseline", found),
            );
        }
        if let Some(duration) = monitoring {
            let until = plus(at, duration);
            plan.event(self.event("MONITORING_STARTED", at, format!("until {until}")));
        }
        plan.acts.push(Act::Acknowledge(self.run_id()));
    }

    fn cancelled(&self, at: Timestamp, message: &str, plan: &mut Planned) {
        let Ok(slot) = self.open.slot.close(Disposition::Cancelled, at) else { return };
        plan.slot(self.place, self.open.revision, &slot);
        plan.has_ended(self.spec, self.run, self.stuck_after);
        plan.run(self.run, RunEvent::Cancelled, |record| {
            record.ended_at = Some(at);
            record.message = Some(message.to_owned());
        });
        plan.event(self.event("JOB_CANCELLED", at, message));
        plan.acts.push(Act::Acknowledge(self.run_id()));
    }

    /// The run failed: one more attempt, or the end of the slot.
    fn failed(&self, end: End, plan: &mut Planned) {
        if let Some(why) = end_wanted(&self.run.record)
            && !end.is_uncertain
        {
            // Somebody wanted its end: however it ended, there is no further attempt.
            return self.cancelled(end.at, &format!("{why}; {}", end.message), plan);
        }
        let failure = |run: &KnownRun| {
            run.record.ended_at.map(|at| Failure { category: run.record.failure(), at })
        };
        let earlier: Vec<_> = self
            .open
            .runs
            .iter()
            .filter(|run| run.key != self.run.key)
            .filter_map(failure)
            .collect();
        let failed = Failure { category: end.category, at: end.at };
        let decision = next_attempt(&self.spec.retry, &earlier, failed);
        let slot = match decision {
            Decision::Retry { at, .. } => {
                self.open.slot.advance(OpenState::Backoff, run_closes_at(at)).map(|mut slot| {
                    slot.retry_at = Some(at);
                    slot
                })
            }
            Decision::GiveUp { .. } => self.open.slot.close(Disposition::Failed, end.at),
        };
        let Ok(mut slot) = slot else { return };
        slot.marks.uncertain |= end.is_uncertain;
        plan.slot(self.place, self.open.revision, &slot);
        plan.has_ended(self.spec, self.run, self.stuck_after);
        let message = end.message.clone();
        plan.run(self.run, RunEvent::Failed, |record| {
            record.ended_at = Some(end.at);
            record.message = Some(end.message);
            record.category = end.category.map(|category| category.as_str().into());
            record.metadata = with(&record.metadata, end.metadata);
        });
        plan.event(self.event("JOB_FAILED", end.at, message));
        let follow_up = match decision {
            Decision::Retry { at, attempt } => {
                self.event("RETRY_SCHEDULED", end.at, format!("attempt {attempt} at {at:.0}"))
            }
            Decision::GiveUp { reason } => {
                let event = self.event("RETRY_EXHAUSTED", end.at, reason.to_string());
                event.detail("status", FAILED_FINAL)
            }
        };
        plan.event(follow_up);
        plan.acts.push(Act::Acknowledge(self.run_id()));
    }

    /// What the sensors that are checked after the job say at its end.
    fn baseline(&self) -> Option<Value> {
        let post_run = self.spec.post_run.as_ref()?;
        let start = self.spec.starts.iter().find(|s| *s.schedule.id() == self.place.1);
        let period = start.map(|start| start.period_of(self.place.0));
        let found = arrival::baseline(post_run, self.sensors?, period);
        (!found.is_empty()).then(|| found.into_iter().collect())
    }

    fn uncertain_since(&self) -> Option<Timestamp> {
        self.run.record.metadata.get(UNCERTAIN_SINCE)?.as_str()?.parse().ok()
    }

    /// Nobody is left on the host that could tell: the run is uncertain, and keeps its place until the host returns or
    /// the slot is closed (S18).
    fn out_of_sight(&self, at: Timestamp, host: &str, plan: &mut Planned) {
        if self.uncertain_since().is_none() {
            let run_id = self.run.key.id(self.pipeline);
            let reason = format!(
                "its host {host} is gone; should it not return, `interlock complete {run_id} --failed` (or `--success`) goes on without it"
            );
            self.mark_uncertain(at, &reason, plan);
        }
    }

    fn mark_uncertain(&self, at: Timestamp, reason: &str, plan: &mut Planned) -> Option<()> {
        let mut slot = self.open.slot.advance(OpenState::Running, self.open.slot.closes_at).ok()?;
        slot.marks.uncertain = true;
        plan.slot(self.place, self.open.revision, &slot);
        let since = BTreeMap::from([(UNCERTAIN_SINCE.to_owned(), at.to_string().into())]);
        plan.about_run(self.run, since);
        plan.event(self.event("RUN_UNCERTAIN", at, reason));
        Some(())
    }

    /// Nobody can say how the run ended (S18): it is looked for again for a while, and answers when; then
    /// the pipeline's policy decides.
    fn uncertain(&self, at: Timestamp, reason: &str, plan: &mut Planned) -> Option<Timestamp> {
        let again = Some(plus(at, LOOK_EVERY));
        let Some(since) = self.uncertain_since() else {
            self.mark_uncertain(at, reason, plan)?;
            return again;
        };
        if at < plus(since, LOOK_FOR) {
            return again;
        }
        let on_uncertain = self.spec.trigger.as_ref().map(|trigger| trigger.on_uncertain);
        let category = match on_uncertain {
            Some(OnUncertain::Retry) => Some(FailureCategory::Transient),
            Some(OnUncertain::Fail) | None => Some(FailureCategory::Permanent),
        };
        let message = format!("the outcome of the job is not known: {reason}");
        let metadata = BTreeMap::new();
        self.failed(End { at, message, category, metadata, is_uncertain: true }, plan);
        None
    }

    fn event(&self, kind: &'static str, at: Timestamp, message: impl Into<String>) -> Event<'_> {
        Event::of(kind, at, message).about(self.place).run(self.run_id())
    }

    fn run_id(&self) -> String {
        self.run.key.id(self.pipeline)
    }
}
