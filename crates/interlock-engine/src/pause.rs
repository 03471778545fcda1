//! Pauses: they begin and end by request, and what lay in one is a gap like any other.
//!
//! A pause that ended stays in the pipeline's row until the next one, and after that until its slots are recorded. So
//! ending one is one row, whoever writes it, and the scheduler finds the gap, its reason and what was asked about it
//! whenever it comes to plan it.

use interlock_core::{catchup::Wish, id::PipelineId, pipeline::Pipeline};
use interlock_store::{
    Key, Record,
    record::{AboutRecord, PauseRecord, PipelineRecord},
};
use jiff::Timestamp;
use serde_json::json;

use crate::{
    engine::{Engine, EngineError},
    inbox::Answer,
    state::PipelineState,
    write::{Event, Planned},
};

impl Engine {
    /// Begins a pause. What was due before it is recorded first, so that it does not count as paused.
    pub(crate) async fn pause(
        &mut self,
        spec: &Pipeline,
        (reason, until, now): (&str, Option<Timestamp>, Timestamp),
        plan: &mut Planned,
    ) -> Result<Answer, EngineError> {
        let pipeline = &spec.name;
        if self.scope.is_shard() {
            self.record_what_is_due(pipeline, now).await?;
        }
        let (state, about) = (self.pipelines.0.get(pipeline), AboutRecord::of(spec));
        let Some((state, (row, revision))) =
            state.and_then(|it| Some((it, it.record(Some(about))?)))
        else {
            return Ok(Err("there is no such pipeline".to_owned()));
        };
        let (since, before) = match row.pause.clone() {
            // One that is in force goes on with another reason or end.
            Some(pause) if pause.is_in_force(now) => (Some(pause.since), pause.before),
            Some(pause) => (None, state.not_recorded(pause.into_all())),
            None => (None, vec![]),
        };
        let pause = PauseRecord {
            reason: reason.to_owned(),
            since: since.unwrap_or(now),
            until,
            catchup: None,
            before,
        };
        let record = PipelineRecord { pause: Some(pause), ..row };
        plan.put(Key::Pipeline, revision, Record::Pipeline(record.into()));
        let event = Event::of("PIPELINE_PAUSED", now, reason);
        if let Some(until) = until {
            // Nobody writes anything when it is over: this says when that is.
            plan.event(event.detail("until", until.to_string()));
        } else {
            plan.event(event);
            plan.will_resume(since.unwrap_or(now));
        }
        Ok(Ok(json!({ "pipeline": pipeline.as_str(), "event": "PIPELINE_PAUSED" })))
    }

    /// Ends a pause.
    pub(crate) fn resume(
        &self,
        spec: &Pipeline,
        (catchup, now): (Option<&str>, Timestamp),
        plan: &mut Planned,
    ) -> Answer {
        let (pipeline, about) = (&spec.name, AboutRecord::of(spec));
        let state = self.pipelines.0.get(pipeline).ok_or("there is no such pipeline")?;
        let (row, revision) = state.record(Some(about)).ok_or("there is no such pipeline")?;
        let before = row.pause.clone().filter(|pause| pause.is_in_force(now));
        let before = before.ok_or_else(|| format!("{pipeline} is not paused"))?;
        if let Some(word) = catchup.filter(|word| Wish::parse(word).is_none()) {
            return Err(format!("`{word}` is none of none, latest, all"));
        }
        let message = format!("paused since {}", before.since);
        let catchup = catchup.map(str::to_owned);
        let pause = PauseRecord { until: Some(now), catchup, ..before };
        let record = PipelineRecord { pause: Some(pause), ..row };
        plan.put(Key::Pipeline, revision, Record::Pipeline(record.into()));
        let event = Event::of("PIPELINE_RESUMED", now, message);
        plan.event(event.detail("thing", pipeline.as_str()));
        Ok(json!({ "pipeline": pipeline.as_str(), "event": "PIPELINE_RESUMED" }))
    }

    /// Records what a pipeline owes now, for somebody who does not want to wait for the next pass.
    pub(crate) async fn catch_up(
        &mut self,
        pipeline: &PipelineId,
        now: Timestamp,
    ) -> Result<Answer, EngineError> {
        if !self.scope.is_shard() {
            return Ok(Err("only `interlock serve` catches up".to_owned()));
        }
        let groups = self.record_what_is_due(pipeline, now).await?;
        Ok(Ok(json!({ "pipeline": pipeline.as_str(), "groups": groups })))
    }

    /// Records what a pipeline owes now; answers with the number of groups.
    async fn record_what_is_due(
        &mut self,
        pipeline: &PipelineId,
        now: Timestamp,
    ) -> Result<usize, EngineError> {
        if self.may_be_reported_yet(pipeline, now) {
            return Ok(0);
        }
        let state = self.pipelines.0.get(pipeline);
        let pause = state.and_then(|state| state.row.as_ref()?.0.pause.as_deref());
        // A plan is about the time before a pause, about the pause, or about what comes after the last one.
        let plans = 2 * pause.map_or(0, |pause| pause.all().count()) + 1;
        let missed = self.missed_by(std::iter::once(pipeline), now);
        self.announce_what_was_missed(&missed, now).await?;
        let mut groups = 0;
        for _ in 0..plans {
            let due = self.plan_opening(pipeline, now, usize::MAX).await?;
            groups += due.groups.len();
            self.progress.recorded(pipeline, due.rest);
            if due.groups.is_empty() {
                break;
            }
            self.commit(due.groups).await?;
        }
        Ok(groups)
    }
}

impl PipelineState {
    /// Those of the pauses that account for slots which are not recorded.
    fn not_recorded(&self, mut pauses: Vec<PauseRecord>) -> Vec<PauseRecord> {
        pauses.retain(|pause| {
            self.agenda.starts.iter().any(|start| {
                let schedule = &start.schedule;
                let watermark = self.watermark(schedule.id()).map(|(at, _)| at);
                let first = watermark.and_then(|watermark| schedule.after(watermark));
                first.is_some_and(|first| pause.until.is_none_or(|until| first < until))
            })
        });
        pauses
    }
}
