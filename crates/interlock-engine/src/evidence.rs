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
    slot::{Disposition, OpenState, SlotState},
};
use interlock_store::{
    LedgerEntry, LedgerQuery, Row, Store,
    record::{SensorRecord, SlotRecord},
};
use jiff::{SignedDuration, Timestamp, civil::Date};

use crate::{engine::EngineError, scheduler::plus, seam::Evaluators, state::SlotPlace};

/// How far around a slot an upstream's slot of the same date may lie.
const UPSTREAM_REACH: SignedDuration = SignedDuration::from_hours(48);

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
        || spec.starts.iter().any(is_opened_by_sensor)
}

/// Whether a pipeline asks evaluators alone: what they say is said of all its slots.
pub(crate) fn is_same_for_all(spec: &Pipeline) -> bool {
    spec.readiness.conditions.iter().all(|c| matches!(c, Condition::Trait(_)))
        && spec.readiness.upstreams.is_empty()
        && !spec.starts.iter().any(is_opened_by_sensor)
}

fn is_opened_by_sensor(start: &StartSchedule) -> bool {
    matches!(start.schedule.recurrence(), Recurrence::Sensor { .. })
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

/// What the upstreams' slots of the same date say.
pub(crate) async fn upstreams(
    store: &dyn Store,
    spec: &Pipeline,
    nominal: Timestamp,
    date: Date,
) -> Result<BTreeMap<Upstream, UpstreamState>, EngineError> {
    let mut found = BTreeMap::new();
    for upstream in &spec.readiness.upstreams {
        let Ok(name) = PipelineId::parse(&upstream.pipeline) else { continue };
        let query = LedgerQuery {
            pipeline: Some(name),
            from: nominal.saturating_sub(UPSTREAM_REACH).unwrap_or(Timestamp::MIN),
            until: plus(nominal, UPSTREAM_REACH),
            ..LedgerQuery::everything(1_000)
        };
        let rows = store.ledger(&query).await?;
        let slot = rows.items.iter().rev().find_map(|row| match &row.entry {
            LedgerEntry::Slot(slot)
                if slot.date == date
                    && !is_mere_control(&row.schedule, slot)
                    && upstream.schedule.as_ref().is_none_or(|s| s == row.schedule.as_str()) =>
            {
                Some(slot)
            }
            LedgerEntry::Slot(_) | LedgerEntry::Span(_) => None,
        });
        let state = match slot.map(SlotRecord::to_core).transpose()? {
            None => UpstreamState::NoSlot,
            Some(slot) => upstream_state(slot.state),
        };
        found.insert(upstream.clone(), state);
    }
    Ok(found)
}

/// Whether a slot only records that a stop fired, or that a stop or restart did not: it says nothing about
/// the pipeline's work.
fn is_mere_control(schedule: &ScheduleId, slot: &SlotRecord) -> bool {
    schedule.is_control() && slot.generation == 0
}

fn upstream_state(state: SlotState) -> UpstreamState {
    match state {
        SlotState::Open(OpenState::Monitoring) => UpstreamState::Monitoring,
        SlotState::Open(_) => UpstreamState::Open,
        SlotState::Closed(Disposition::Completed) => UpstreamState::Completed,
        SlotState::Closed(_) => UpstreamState::Closed { disposition: state.to_string() },
    }
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
    store: &dyn Store,
    evaluators: &dyn Evaluators,
    spec: &Pipeline,
    slot: &AskedSlot,
    now: Timestamp,
) -> Result<Verdict, EngineError> {
    let sensors =
        if asks_sensors(spec) { sensors(store, &spec.name).await? } else { Sensors::new() };
    let upstreams = upstreams(store, spec, slot.nominal, slot.date).await?;
    let traits = ask_all(evaluators, spec).await;
    let gathered = Gathered { sensors: &sensors, traits: &traits, upstreams: &upstreams };
    let place = (slot.nominal, slot.schedule.clone());
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
