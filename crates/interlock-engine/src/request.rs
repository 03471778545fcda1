//! What the adapters are asked: everything about one run, built from what is stored; and what became of it.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::{
    agenda::Work,
    id::PipelineId,
    pipeline::Pipeline,
    run::{RunState, TriggerType},
};
use interlock_ports::trigger::{LookUp, StartRequest};
use jiff::Timestamp;

use crate::{
    engine::{Engine, Message, News, NewsOf},
    host::{HOST, is_present},
    state::{KnownRun, OpenSlot, SlotPlace},
};

impl Engine {
    /// The requests of all runs that are under way, as far as their declarations can be had.
    pub(crate) async fn active_requests(&self) -> Vec<StartRequest> {
        let mut requests = Vec::new();
        for pipeline in self.pipelines.0.keys() {
            requests.extend(self.requests_of(pipeline).await);
        }
        requests
    }

    /// Those of one pipeline.
    pub(crate) async fn requests_of(&self, pipeline: &PipelineId) -> Vec<StartRequest> {
        let mut requests = Vec::new();
        // Of a job that somebody else runs only its reports can tell.
        let state = self.pipelines.0.get(pipeline).filter(|it| it.agenda.work != Work::Watched);
        let open = state.into_iter().flat_map(|state| state.open.iter());
        for (place, open) in open {
            let Some(run) = open.last_run().filter(|run| is_active(run)) else { continue };
            if let Ok(spec) = self.specs.pipeline(pipeline, open.slot.version).await {
                requests.push(request(pipeline, &spec, (place, open), run));
            }
        }
        requests
    }

    /// Finds out what became of the jobs that an earlier process started (S18).
    pub(crate) async fn look_up_what_runs(&self) {
        for request in self.active_requests().await {
            self.look_up(request);
        }
    }

    /// Asks what became of a start; the answer arrives as a message.
    pub(crate) fn look_up(&self, request: StartRequest) {
        self.look_up_at(request, self.world.now());
    }

    pub(crate) fn look_up_at(&self, request: StartRequest, at: Timestamp) {
        let (triggers, sender) = (Arc::clone(&self.triggers), self.sender.clone());
        let (world, store) = (Arc::clone(&self.world), Arc::clone(&self.store));
        let elsewhere = request.host.clone().filter(|host| self.host.name.as_ref() != Some(host));
        let task = async move {
            world.sleep_until(at).await;
            let what = if let Some(host) = elsewhere {
                // Without an answer nothing is known, which is no reason to doubt.
                let roll = store.roll().await.ok().flatten();
                let is_present = roll.is_none_or(|roll| is_present(&roll, &host));
                NewsOf::Elsewhere { host, is_present }
            } else {
                let found = triggers.look_up(&request).await;
                NewsOf::LookedUp(
                    found.unwrap_or_else(|failure| LookUp::CannotTell { reason: failure.message }),
                )
            };
            let news = News { run_id: request.run_id, at: world.now(), what };
            let _loop_is_gone = sender.send(Message::About(news));
        };
        self.world.spawn("look a job up", Box::pin(task));
    }
}

/// Whether the run is under way, as far as is recorded.
pub(crate) fn is_active(run: &KnownRun) -> bool {
    matches!(run.record.state(), Ok(RunState::Triggering | RunState::Running))
}

/// The request of a run. The same run gives the same request whenever it is built.
pub(crate) fn request(
    pipeline: &PipelineId,
    spec: &Pipeline,
    (place, open): (&SlotPlace, &OpenSlot),
    run: &KnownRun,
) -> StartRequest {
    let (nominal, schedule) = place;
    let start = spec.starts.iter().find(|start| start.schedule.id() == schedule);
    let zone = start.map(|start| start.schedule.timing().zone.time_zone().clone());
    let wall = nominal.to_zoned(zone.unwrap_or(jiff::tz::TimeZone::UTC));
    let trigger = spec.trigger.as_ref();
    let params = open.slot.wish.as_ref().map(|wish| wish.params.clone()).unwrap_or_default();
    StartRequest {
        run_id: run.key.id(pipeline),
        pipeline: pipeline.to_string(),
        schedule: schedule.to_string(),
        slot: *nominal,
        date: open.slot.date,
        hour: wall.hour(),
        interval_end: start.and_then(|start| start.schedule.after(*nominal)),
        attempt: run.key.attempt,
        trigger_type: TriggerType::parse(&run.record.trigger_type)
            .unwrap_or(TriggerType::Scheduler),
        triggered_at: run.record.created_at,
        params,
        kind: trigger.map_or(interlock_core::pipeline::TriggerKind::External, |t| t.kind.clone()),
        context: spec.job.clone(),
        timeout: trigger.and_then(|trigger| trigger.timeout),
        poll_interval: trigger.and_then(|trigger| trigger.poll_interval),
        resume_from: resume_from(open),
        host: run.record.metadata.get(HOST).and_then(|host| host.as_str()).map(str::to_owned),
    }
}

/// The step with which a rerun of a failed job begins, if the last attempt said which one failed.
fn resume_from(open: &OpenSlot) -> Option<String> {
    let failed = open.runs.iter().rev().find_map(|run| run.record.metadata.get("failedStep"));
    failed.and_then(|step| step.as_str()).map(str::to_owned)
}

/// Metadata of a run, with one entry more.
pub(crate) fn with(
    metadata: &BTreeMap<String, serde_json::Value>,
    more: BTreeMap<String, serde_json::Value>,
) -> BTreeMap<String, serde_json::Value> {
    let mut all = metadata.clone();
    all.extend(more);
    all
}

/// The instant at which a run that began now is closed by force.
pub(crate) fn run_closes_at(now: Timestamp) -> Timestamp {
    crate::scheduler::plus(now, jiff::SignedDuration::from_hours(24))
}
