//! What a verdict rests on: sensors, upstream slots and the answers of evaluators.
//!
//! The controller gathers it piece by piece, because its loop waits for nobody; a command that only asks
//! gathers it all at once ([`verdict_now`]). What counts as evidence is said here, once, for both. Nothing
//! is written.

use std::{collections::BTreeMap, future::poll_fn, task::Poll};

use interlock_core::{
    id::{PipelineId, ScheduleId},
    pipeline::{Pipeline, StartSchedule},
    readiness::{
        Condition, Evidence, SensorRule, TraitResult, Upstream, UpstreamState, Verdict, evaluate,
    },
    run::TriggerType,
    schedule::Recurrence,
    sensor::{Sensor, Sensors},
};
use interlock_store::{Row, Store, record::SensorRecord};
use jiff::{Timestamp, civil::Date};

use crate::{
    engine::EngineError,
    seam::Evaluators,
    state::SlotPlace,
    upstreams::{KnownStarts, ZoneOf, upstreams},
};

/// What was gathered about one slot.
pub(crate) struct Gathered<'a> {
    pub(crate) sensors: &'a Sensors,
    pub(crate) traits: &'a BTreeMap<String, TraitResult>,
    pub(crate) upstreams: &'a BTreeMap<Upstream, UpstreamState>,
}

impl Gathered<'_> {
    /// What it says about a slot and who opened it, where it is open.
    pub(crate) fn verdict(
        &self,
        spec: &Pipeline,
        (place, opened_by): (&SlotPlace, Option<TriggerType>),
        now: Timestamp,
    ) -> Verdict {
        let start = spec.starts.iter().find(|start| *start.schedule.id() == place.1);
        if let Some(rule) = start.and_then(|start| awaited(start, opened_by)) {
            return rule.judge(&Sensors::new(), None, now);
        }
        let evidence = Evidence {
            sensors: self.sensors,
            traits: self.traits,
            upstreams: self.upstreams,
            period: start.map(|start| start.period_of(place.0)),
            now,
        };
        evaluate(&spec.readiness, &evidence)
    }
}

/// The sensor that a slot of a sensor schedule still waits for. Once it came, the slot is the sensor's.
fn awaited(start: &StartSchedule, opened_by: Option<TriggerType>) -> Option<&SensorRule> {
    if let Recurrence::Sensor { rule, .. } = start.schedule.recurrence()
        && opened_by == Some(TriggerType::Scheduler)
    {
        Some(rule)
    } else {
        None
    }
}

/// Whether a pipeline looks at sensors, before its job or after it.
pub(crate) fn asks_sensors(spec: &Pipeline) -> bool {
    spec.readiness.conditions.iter().any(|c| matches!(c, Condition::Sensor(_)))
        || spec.post_run.is_some()
        || spec.starts.iter().any(StartSchedule::is_opened_by_sensor)
}

/// Whether a pipeline asks evaluators alone: what they say is said of all its slots.
pub(crate) fn is_same_for_all(spec: &Pipeline) -> bool {
    spec.readiness.conditions.iter().all(|c| matches!(c, Condition::Trait(_)))
        && spec.readiness.upstreams.is_empty()
        && !spec.starts.iter().any(StartSchedule::is_opened_by_sensor)
}

/// The sensors of a pipeline as they stand.
pub(crate) async fn sensors(
    store: &dyn Store,
    pipeline: &PipelineId,
) -> Result<Sensors, EngineError> {
    let rows = store.sensors(pipeline).await?.into_iter();
    let sensor = |(key, row): (String, Row<SensorRecord>)| {
        (key, Sensor { value: row.record.value, at: row.record.at })
    };
    Ok(rows.map(sensor).collect())
}

/// The slot that a verdict is asked for.
#[derive(Debug, Clone)]
pub struct AskedSlot {
    /// Its schedule.
    pub schedule: ScheduleId,
    /// Its instant.
    pub nominal: Timestamp,
    /// Its local date.
    pub date: Date,
    /// What opened it, if it is open.
    pub opened_by: Option<TriggerType>,
}

/// Gathers everything anew, evaluators included, and answers for one slot; writes nothing.
pub async fn verdict_now(
    (store, zones): (&dyn Store, ZoneOf<'_>),
    evaluators: &dyn Evaluators,
    spec: &Pipeline,
    slot: &AskedSlot,
    now: Timestamp,
) -> Result<Verdict, EngineError> {
    let sensors =
        if asks_sensors(spec) { sensors(store, &spec.name).await? } else { Sensors::new() };
    let place = (slot.nominal, slot.schedule.clone());
    let upstreams =
        upstreams((store, &mut KnownStarts::default()), zones, spec, &place, slot.date).await?;
    let traits = ask_all(evaluators, spec).await;
    let gathered = Gathered { sensors: &sensors, traits: &traits, upstreams: &upstreams };
    Ok(gathered.verdict(spec, (&place, slot.opened_by), now))
}

/// Asks every evaluator of a pipeline, beside each other.
async fn ask_all(evaluators: &dyn Evaluators, spec: &Pipeline) -> BTreeMap<String, TraitResult> {
    let mut waiting = BTreeMap::new();
    for condition in &spec.readiness.conditions {
        if let Condition::Trait(found) = condition
            && found.evaluator.is_some()
        {
            waiting.insert(found.kind.clone(), evaluators.evaluate(&spec.name, found));
        }
    }
    let mut answers = BTreeMap::new();
    poll_fn(move |context| {
        waiting.retain(|kind, answer| match answer.as_mut().poll(context) {
            Poll::Ready(result) => {
                answers.insert(kind.clone(), result);
                false
            }
            Poll::Pending => true,
        });
        if waiting.is_empty() { Poll::Ready(std::mem::take(&mut answers)) } else { Poll::Pending }
    })
    .await
}
