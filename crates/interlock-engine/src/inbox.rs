//! The inbox: what people, jobs and other processes ask for, applied by the owner.
//!
//! Each entry is applied in one group with its consequences and its answer, so that an entry is applied
//! once however often it is sent, and whoever sent it can read what came of it.

use interlock_core::{
    agenda::Agenda,
    firing::Ending,
    id::{PipelineId, ScheduleId},
    pipeline::{Pipeline, StartSchedule, TriggerKind},
    report::{Report, Said},
    retry::FailureCategory,
    run::{RunEvent, TriggerType},
    sensor::Sensor,
    slot::{OpenState, Opening, RerunSource, Slot, Wish},
};
use interlock_ports::trigger::{Outcome, What};
use interlock_store::{
    InboxEntry, Key, Record, RunKey,
    record::{AppliedRecord, InboxRecord, ReportRecord, SlotName},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    ending::Ender,
    engine::{Engine, EngineError, News, NewsOf},
    reports::{Hearing, Told},
    rerun::{OUT_OF_TURN_WINDOW, Rerun},
    scheduler::{Opener, plus},
    sensors::Arrival,
    state::SlotPlace,
    unfit,
    write::{Event, Planned},
};

/// Entries applied in one go.
pub(crate) const ENTRIES_MAX: usize = 200;
/// How much of the inbox was applied.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Heard {
    /// When it was looked at last.
    pub(crate) at: Timestamp,
    /// Whether there is more in it than was applied so far.
    pub(crate) has_more: bool,
}

/// What came of an entry: an answer for its sender, or a sentence why not.
pub(crate) type Answer = Result<Value, String>;

impl Engine {
    /// Applies what is in the inbox, entry by entry per pipeline.
    pub(crate) async fn apply_inbox(&mut self) -> Result<(), EngineError> {
        self.heard.at = self.world.now();
        let entries = self.entries().await?;
        let (all, mut waiting) = (entries.len(), 0);
        if !entries.is_empty() {
            self.settle().await?;
        }
        // Until the last of them is applied.
        self.heard.has_more = all > 0;
        self.learn_named_incidents(&entries).await?;
        for entry in entries {
            let now = self.world.now();
            if let InboxRecord::Report(report) = &entry.record {
                if self.clock.doubt().is_some() {
                    // Which slot it is about is a question of time: it waits until there is an answer.
                    waiting += 1;
                    continue;
                }
                // Held: what many reports become is one write to the disk.
                let plan = self.plan_report(&entry, report, now).await?;
                self.dirty.insert(entry.pipeline.clone());
                match plan {
                    Some(plan) => self.hold(vec![plan.answering(entry)]).await?,
                    None => waiting += 1,
                }
                continue;
            }
            if let InboxRecord::Job { .. } = &entry.record {
                let plan = self.plan_letter(&entry, now).await?;
                self.dirty.insert(entry.pipeline.clone());
                self.hold(vec![plan.answering(entry)]).await?;
                continue;
            }
            self.settle_what_is_held_of(&entry.pipeline).await?;
            let is_hand = matches!(entry.record.what(), InboxRecord::Incident { .. });
            let pipeline = entry.pipeline.clone();
            let plan = self.plan_entry(entry, now).await?;
            if is_hand {
                // Held too: a person may acknowledge ten thousand at once. It changes no slot, so nothing is planned again.
                self.hold(vec![plan]).await?;
                continue;
            }
            self.dirty.insert(pipeline.clone());
            self.commit(vec![plan]).await?;
            // A pause may have begun or ended.
            self.arm(&pipeline);
        }
        self.heard.has_more = all >= ENTRIES_MAX && waiting < all;
        if self.heard.has_more {
            // There is more: the next pass does not wait.
            self.inbox_at = self.world.now();
        }
        Ok(())
    }

    /// What becomes of an entry, with its answer.
    async fn plan_entry(
        &mut self,
        mut entry: InboxEntry,
        now: Timestamp,
    ) -> Result<Planned, EngineError> {
        let request = entry.record.fingerprint();
        let asker = entry.record.take_asker();
        let mut plan = Planned::new(&entry.pipeline, self.writer);
        let (accepted, result) = match self.apply(&entry, now, &mut plan).await? {
            Ok(result) => (true, result),
            Err(reason) => {
                plan.group.changes.clear();
                plan.acts.clear();
                unfit::rejected(&entry, &reason, now, &mut plan);
                (false, json!({ "reason": reason }))
            }
        };
        if let Some(asker) = asker {
            unfit::name_asker(&entry, &asker, now, &mut plan);
        }
        let record = AppliedRecord { at: now, accepted, result, request };
        plan.put(Key::Applied(entry.key.clone()), 0, Record::Applied(record.into()));
        Ok(plan.answering(entry))
    }

    /// Commits what is held if some of it is of a pipeline: what is planned next may read that in the store.
    async fn settle_what_is_held_of(&mut self, pipeline: &PipelineId) -> Result<(), EngineError> {
        let is_held = self.held.iter().any(|plan| plan.group.pipeline == *pipeline);
        if is_held { self.settle().await } else { Ok(()) }
    }

    /// Applies the end of a run, which somebody tells by its id.
    async fn apply_end(
        &mut self,
        (pipeline, spec): (&PipelineId, &Pipeline),
        (asked, now): (&InboxRecord, Timestamp),
        plan: &mut Planned,
    ) -> Result<Answer, EngineError> {
        let InboxRecord::Complete { run_id, success, message, category, metadata } = asked else {
            return Ok(Err("the request gives no end of a run".to_owned()));
        };
        let is_watched =
            spec.trigger.as_ref().is_some_and(|trigger| trigger.kind == TriggerKind::External);
        if let Ok((owner, key)) = RunKey::parse(run_id)
            && owner == *pipeline
            && is_watched
        {
            let end = if *success { Said::Success } else { Said::Fail };
            return self
                .complete_watched(pipeline, (key, end, message.as_deref()), now, plan)
                .await;
        }
        let metadata = metadata.clone();
        let outcome = if *success {
            Outcome::Success { metadata }
        } else {
            let category = category.as_deref().map(FailureCategory::parse);
            let category = category.and_then(Result::ok);
            let category = category.unwrap_or(FailureCategory::Transient);
            let message =
                message.as_deref().unwrap_or("an operator reported that it failed").into();
            Outcome::Failure { message, category, metadata }
        };
        Ok(self.complete(pipeline, run_id, now, outcome))
    }

    /// The end of a run that somebody else runs, by its id.
    async fn complete_watched(
        &mut self,
        pipeline: &PipelineId,
        (key, said, message): (RunKey, Said, Option<&str>),
        now: Timestamp,
        plan: &mut Planned,
    ) -> Result<Answer, EngineError> {
        let id = key.id(pipeline);
        if self.whole_run(pipeline, &key).await?.is_none() {
            return Ok(Err(format!("there is no run {id}")));
        }
        let record = ReportRecord::of(said.as_str(), now, message);
        let report = Report { said, rid: None, at: now };
        let hearing = Hearing { pipeline, record: &record, report, now };
        Ok(match self.follow_report(&hearing, Some(key), plan).await? {
            Told::Placed(result) => Ok(result),
            Told::Rejected(reason) | Told::NotWatched(reason) => Err(reason),
            Told::Waits => Err(format!("{id} is not running")),
        })
    }

    /// Reads a pipeline again, because somebody else changed its rows.
    async fn look_again(&mut self, pipeline: &PipelineId) -> Result<Answer, EngineError> {
        match self.reload(pipeline).await {
            Err(EngineError::Damaged(reason)) => {
                self.poisoned.push((pipeline.clone(), reason.clone()));
                Ok(Err(reason))
            }
            loaded => loaded.map(|()| Ok(json!({ "pipeline": pipeline.as_str() }))),
        }
    }

    async fn apply(
        &mut self,
        entry: &InboxEntry,
        now: Timestamp,
        plan: &mut Planned,
    ) -> Result<Answer, EngineError> {
        let pipeline = &entry.pipeline;
        if let Some(answer) = self.apply_without_declaration(entry, now, plan).await? {
            return Ok(answer);
        }
        let version = match self.pipelines.0.get(pipeline) {
            Some(state) if state.row.is_some() => state.version,
            _ => return Ok(Err(format!("there is no pipeline `{pipeline}`"))),
        };
        let spec = match self.specs.pipeline(pipeline, version).await {
            Ok(spec) => spec,
            Err(reason) => return Ok(Err(reason)),
        };
        Ok(match &entry.record {
            InboxRecord::Sensor { key, value, at } => {
                let (sensor, received_at) = (Sensor::new(value.clone(), *at), entry.received_at);
                let arrival = Arrival { pipeline, spec: &spec, key, sensor, received_at, now };
                let answer = self.take_sensor(&arrival, plan).await?;
                self.drop_old_reports(pipeline, (key, now), plan).await?;
                Ok(answer)
            }
            InboxRecord::Run { .. } | InboxRecord::Rerun { .. }
                if let Some(reason) = nothing_to_start(&spec) =>
            {
                Err(reason)
            }
            InboxRecord::Run { .. } => {
                self.apply_run((pipeline, &spec), (&entry.record, now), plan).await?
            }
            InboxRecord::Rerun { slot, reason } => {
                self.rerun(pipeline, &spec, (slot, reason, now), plan).await?
            }
            InboxRecord::Cancel { slot, reason } => {
                self.cancel(pipeline, &spec, (slot, reason, now), plan)
            }
            InboxRecord::Pause { reason, until } => {
                self.pause(&spec, (reason, *until, now), plan).await?
            }
            InboxRecord::Resume { catchup } => {
                self.set_switches((&spec, version), now, plan);
                self.resume(&spec, (catchup.as_deref(), now), plan)
            }
            InboxRecord::Catchup {} => self.catch_up(pipeline, now).await?,
            InboxRecord::StopCatchup { reason } => {
                self.stop_catchup((pipeline, &spec), (reason, now), plan)
            }
            InboxRecord::Look {} => self.look_again(pipeline).await?,
            InboxRecord::StartBackfill { .. }
            | InboxRecord::PauseBackfill { .. }
            | InboxRecord::ResumeBackfill { .. }
            | InboxRecord::CancelBackfill { .. } => {
                self.about_backfill((pipeline, &spec), (&entry.record, now), plan).await?
            }
            InboxRecord::File { .. }
            | InboxRecord::Report(_)
            | InboxRecord::Job { .. }
            | InboxRecord::Incident { .. }
            | InboxRecord::Noticed { .. }
            | InboxRecord::Heard { .. }
            | InboxRecord::Keep { .. }
            | InboxRecord::Silence { .. }
            | InboxRecord::SendAgain { .. }
            | InboxRecord::Asked { .. }
            | InboxRecord::Unreadable { .. }
            | InboxRecord::Bark { .. } => Err("the request names no declaration".to_owned()),
            InboxRecord::Complete { .. } => {
                self.apply_end((pipeline, &spec), (&entry.record, now), plan).await?
            }
        })
    }

    /// Opens the slot that is asked for: a new one, or one of a schedule.
    async fn apply_run(
        &mut self,
        (pipeline, spec): (&PipelineId, &Pipeline),
        (asked, now): (&InboxRecord, Timestamp),
        plan: &mut Planned,
    ) -> Result<Answer, EngineError> {
        let InboxRecord::Run { slot, force, params, webhook } = asked else {
            return Ok(Err("the request asks for no run".to_owned()));
        };
        let wish = Wish { params: params.clone(), force: *force, ..Wish::default() };
        let asked_by = if *webhook { TriggerType::Webhook } else { TriggerType::Manual };
        match slot {
            None => Ok(Ok(self.open_manual((pipeline, spec), asked_by, (wish, now), plan))),
            Some(name) => self.reopen((pipeline, spec), (name, asked_by, wish), now, plan).await,
        }
    }

    fn open_manual(
        &self,
        (pipeline, spec): (&PipelineId, &Pipeline),
        opened_by: TriggerType,
        (wish, now): (Wish, Timestamp),
        plan: &mut Planned,
    ) -> Value {
        let state = self.pipelines.0.get(pipeline);
        let version = state.map_or(0, |state| state.version);
        let nominal = Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now);
        let mut place = (nominal, ScheduleId::from_static("manual"));
        // Two that are asked for in one millisecond are two slots.
        while state.is_some_and(|state| state.open.contains_key(&place)) {
            place.0 = plus(place.0, SignedDuration::from_millis(1));
        }
        let nominal = place.0;
        let zone =
            spec.starts.first().map(|start| start.schedule.timing().zone.time_zone().clone());
        let date = nominal.to_zoned(zone.unwrap_or(jiff::tz::TimeZone::UTC)).date();
        let opening =
            Opening { opened_by, date, at: now, closes_at: plus(now, OUT_OF_TURN_WINDOW), version };
        let mut slot = Slot::open(OpenState::Waiting, opening).promising(spec.sla.out_of_turn());
        slot.wish = Some(Box::new(wish));
        plan.slot(&place, 0, &slot);
        plan.event(Event::of("SLOT_OPENED", now, "requested by an operator").about(&place));
        json!({ "slot": format!("{pipeline}/manual/{nominal}") })
    }

    /// Runs a closed slot again, within the budget for the reason given.
    async fn rerun(
        &mut self,
        pipeline: &PipelineId,
        spec: &Pipeline,
        (name, reason, now): (&SlotName, &str, Timestamp),
        plan: &mut Planned,
    ) -> Result<Answer, EngineError> {
        let Ok(schedule) = ScheduleId::any(&name.schedule) else {
            return Ok(Err(format!("there is no schedule `{}`", name.schedule)));
        };
        let place = (name.nominal, schedule);
        let Some((slot, revision)) = self.read_slot(pipeline, &place).await? else {
            let (schedule, nominal) = (&place.1, place.0);
            return Ok(Err(format!(
                "{schedule}/{nominal} was never recorded: `interlock run {pipeline} --slot \
                 {schedule}/{nominal}` runs it for the first time"
            )));
        };
        if let Some(reason) = nothing_ran(&place, &slot) {
            return Ok(Err(reason));
        }
        let state = self.pipelines.get_mut(pipeline);
        let version = state.version;
        let monitored = state.open.get(&place).and_then(|open| open.last_run()).cloned();
        let rerun = Rerun {
            place: &place,
            slot: &slot,
            revision,
            version,
            source: RerunSource::Manual(reason),
            why: reason,
            original_run: None,
        };
        Ok(match rerun.plan(spec, now, plan) {
            Ok(()) => {
                if let Some(run) = monitored {
                    plan.run(&run, RunEvent::MonitoringEnded, |_| {});
                }
                Ok(json!({ "slot": format!("{pipeline}/{}/{}", place.1, place.0) }))
            }
            Err(refused) => Err(refused.to_string()),
        })
    }

    /// Opens a slot that is closed or absent, for a person.
    async fn reopen(
        &mut self,
        (pipeline, spec): (&PipelineId, &Pipeline),
        (name, opened_by, wish): (&SlotName, TriggerType, Wish),
        now: Timestamp,
        plan: &mut Planned,
    ) -> Result<Answer, EngineError> {
        let Ok(schedule) = ScheduleId::any(&name.schedule) else {
            return Ok(Err(format!("there is no schedule `{}`", name.schedule)));
        };
        let place = (name.nominal, schedule.clone());
        let known = self.read_slot(pipeline, &place).await?;
        let version = self.pipelines.get_mut(pipeline).version;
        let start = spec.starts.iter().find(|start| *start.schedule.id() == schedule);
        let agenda = Agenda::of(spec);
        let opener = start.map(|start| Opener { agenda: &agenda, start, version, now });
        let mut slot = match (known, opener) {
            (Some((slot, _)), _) if slot.state.is_open() => {
                return Ok(Err(format!("{schedule}/{} is still {}", name.nominal, slot.state)));
            }
            (Some((slot, _)), _) if let Some(reason) = nothing_ran(&place, &slot) => {
                return Ok(Err(reason));
            }
            (Some((slot, revision)), _) => {
                let opening = Opening {
                    opened_by,
                    date: slot.date,
                    at: now,
                    closes_at: plus(now, OUT_OF_TURN_WINDOW),
                    version,
                };
                match slot.reopen(OpenState::Waiting, opening) {
                    Ok(slot) => (slot.promising(spec.sla.out_of_turn()), revision),
                    Err(illegal) => return Ok(Err(illegal.to_string())),
                }
            }
            (None, Some(opener))
                if opener.start.schedule.is_slot(name.nominal)
                    && let Some(why) =
                        self.forbids_ahead(pipeline, opener.start, (&place, now)) =>
            {
                return Ok(Err(format!("{schedule}/{} is {why}", name.nominal)));
            }
            (None, Some(_)) if self.is_below_floor(name.nominal, now).await? => {
                return Ok(Err(format!(
                    "{schedule}/{} is older than the ledger keeps: whether it ran is no longer known \
                     (`interlock backfill start --assume-missing` runs it all the same)",
                    name.nominal
                )));
            }
            (None, Some(opener)) if opener.start.schedule.is_slot(name.nominal) => {
                let mut slot = opener.open(name.nominal, opened_by);
                slot.closes_at = plus(now, OUT_OF_TURN_WINDOW);
                slot.marks.missed_at = self.missed_in_span(pipeline, &place).await?;
                (slot, 0)
            }
            (None, _) => {
                return Ok(Err(format!("{schedule} has no slot at {}", name.nominal)));
            }
        };
        slot.0.wish = Some(Box::new(wish));
        plan.slot(&place, slot.1, &slot.0);
        let message = format!("generation {}, requested by an operator", slot.0.generation);
        plan.event(Event::of("SLOT_OPENED", now, message).about(&place));
        Ok(Ok(json!({ "slot": format!("{pipeline}/{schedule}/{}", name.nominal) })))
    }

    fn cancel(
        &self,
        pipeline: &PipelineId,
        spec: &Pipeline,
        (name, reason, now): (&SlotName, &str, Timestamp),
        plan: &mut Planned,
    ) -> Answer {
        let schedule = ScheduleId::any(&name.schedule).map_err(|error| error.message)?;
        let place = (name.nominal, schedule);
        let state = self.pipelines.0.get(pipeline).ok_or("there is no such pipeline")?;
        let open =
            state.open.get(&place).ok_or_else(|| format!("{}/{} is not open", place.1, place.0))?;
        let ender = Ender { pipeline, spec, place: &place, open, why: reason, now };
        match ender.end(plan) {
            Some(Ending::AskTheJob) => {
                let host = open.last_run().and_then(|run| self.host.other(&run.record.metadata));
                Ok(host.map_or_else(
                    || json!({ "state": "Interlock asked the job to end" }),
                    |host| {
                        let state =
                            format!("Interlock asked {host}, where the job runs, to end it");
                        json!({ "state": state, "host": host })
                    },
                ))
            }
            Some(Ending::Close) => Ok(json!({ "state": "cancelled" })),
            None => Err(format!("{}/{} is {}", place.1, place.0, open.slot.state)),
        }
    }

    /// Why a slot that its schedule has yet to record cannot be opened by hand, if so. One that is due becomes a row ahead
    /// of the watermark.
    fn forbids_ahead(
        &self,
        pipeline: &PipelineId,
        start: &StartSchedule,
        ((nominal, schedule), now): (&SlotPlace, Timestamp),
    ) -> Option<&'static str> {
        let state = self.pipelines.0.get(pipeline)?;
        let (watermark, _) = state.watermark(schedule)?;
        if *nominal <= watermark {
            None
        } else if plus(*nominal, start.delay(pipeline)) > now {
            // Opened here, it would be in the way of the schedule, which opens it at its time.
            Some("not due yet: its schedule opens it at its time")
        } else if state.is_paused(now) {
            Some(
                "not recorded yet, because the pipeline is paused: its `resume` decides about it, and a backfill can \
                 run it before",
            )
        } else {
            None
        }
    }

    fn complete(
        &mut self,
        pipeline: &PipelineId,
        run_id: &str,
        now: Timestamp,
        outcome: Outcome,
    ) -> Answer {
        let (owner, key) = RunKey::parse(run_id).map_err(|error| error.message)?;
        let place = (key.nominal, key.schedule.clone());
        let open = self.pipelines.0.get(pipeline).and_then(|state| state.open.get(&place));
        let known = open.is_some_and(|open| open.runs.iter().any(|run| run.key == key));
        if owner != *pipeline || !known {
            return Err(format!("{run_id} is not running"));
        }
        let what = NewsOf::Job(What::Finished(outcome));
        self.news.push_back(News { run_id: run_id.to_owned(), at: now, what });
        Ok(json!({ "run": run_id }))
    }
}

/// Why a slot cannot be run again, if it only records a stop, or that a stop or restart did nothing.
fn nothing_ran((nominal, schedule): &SlotPlace, slot: &Slot) -> Option<String> {
    let is_record = schedule.is_control() && slot.generation == 0;
    is_record
        .then(|| format!("{schedule}/{nominal} records what a stop schedule did; no job ran in it"))
}

/// Why a run of a pipeline cannot be asked for, if so.
fn nothing_to_start(spec: &Pipeline) -> Option<String> {
    match spec.trigger.as_ref().map(|trigger| &trigger.kind) {
        None => Some(format!("{} has no trigger, so there is nothing to run", spec.name)),
        Some(TriggerKind::External) => {
            Some(format!("{} is watch-only: Interlock does not run its jobs", spec.name))
        }
        Some(_) => None,
    }
}
