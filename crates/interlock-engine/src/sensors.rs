//! Sensor reports: kept by their own time, and what follows from them for slots.
//!
//! A report is one group: its row, its event, and the slots that it opens or runs again
//! (`docs/adr/0008-after-completion.md`). Reports that come twice or in another order change nothing (S11).

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::{
    agenda::Agenda,
    arrival::{self, Concern, Consequence, Drift, Freshness, Known, Means, PostRunCheck},
    id::PipelineId,
    pipeline::Pipeline,
    readiness::Outcome,
    run::{RunEvent, TriggerType},
    sensor::{Sensor, Sensors},
    slot::{OpenState, RerunSource, Slot, SlotState},
};
use interlock_store::{Key, Record, Row, RunQuery, record::SensorRecord, retention};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    controller::SpecsInUse,
    engine::{Engine, EngineError},
    rerun::Rerun,
    scheduler::{Opener, plus},
    state::{KnownRun, SlotPlace},
    write::{Event, Planned},
};

/// Slots that one report may touch: a group holds 25 changes. The rest is said, and found by the watchdog.
const CONCERNS_MAX: usize = 5;

/// A report on its way into the ledger.
pub(crate) struct Arrival<'a> {
    pub(crate) pipeline: &'a PipelineId,
    pub(crate) spec: &'a Arc<Pipeline>,
    pub(crate) key: &'a str,
    pub(crate) sensor: Sensor,
    /// When it reached us; it may have waited for an owner.
    pub(crate) received_at: Timestamp,
    pub(crate) now: Timestamp,
}

/// A slot that a report is about, with what the ledger knows of it.
struct Touched {
    place: SlotPlace,
    means: Means,
    slot: Option<(Slot, u64)>,
    last_run: Option<KnownRun>,
    baseline: Option<BTreeMap<String, Value>>,
}

impl Engine {
    /// Writes a report and what follows from it.
    pub(crate) async fn take_sensor(
        &mut self,
        arrival: &Arrival<'_>,
        plan: &mut Planned,
    ) -> Result<Value, EngineError> {
        let Arrival { pipeline, spec, key, sensor, now, received_at: _ } = arrival;
        self.load_sensors(pipeline, &SpecsInUse::only(Arc::clone(spec))).await?;
        let known = self.known_sensor(pipeline, key).await?;
        let freshness = arrival::freshness(known.as_ref(), sensor);
        let state = self.pipelines.get_mut(pipeline);
        let is_closed = state.is_paused(*now) || state.is_retired() || !spec.enabled;
        match freshness {
            Freshness::Repeated => return Ok(json!({ "sensor": key, "repeated": true })),
            Freshness::Outdated => {
                let message = format!("{key}: ignored, a newer report is already here");
                plan.event(Event::of("SENSOR_OUTDATED", *now, message).report(sensor));
            }
            Freshness::New | Freshness::Confirmed => {
                let (value, at) = (sensor.value.clone(), sensor.at);
                let record = SensorRecord { value, at, received_at: *now, unheeded: is_closed };
                plan.put_any(Key::Sensor((*key).to_owned()), Record::Sensor(record.into()));
                plan.event(Event::of("SENSOR_REPORTED", *now, *key).report(sensor));
            }
        }
        if is_closed || spec.trigger.is_none() {
            return Ok(json!({ "sensor": key }));
        }
        let mut concerns = arrival::concerns(spec, key, sensor, *now);
        if concerns.len() > CONCERNS_MAX {
            let message = format!(
                "{key}: it concerns {} slots, more than one report may; the rest is left out",
                concerns.len()
            );
            plan.event(Event::of("SENSOR_CUT_OFF", *now, message));
            concerns.truncate(CONCERNS_MAX);
        }
        for concern in concerns {
            self.follow(arrival, freshness, concern, plan).await?;
        }
        Ok(json!({ "sensor": key }))
    }

    async fn known_sensor(
        &self,
        pipeline: &PipelineId,
        key: &str,
    ) -> Result<Option<Sensor>, EngineError> {
        let rows = self.store.read(pipeline, &[Key::Sensor(key.to_owned())]).await?;
        Ok(rows.into_iter().flatten().find_map(|row| {
            let Record::Sensor(record) = row.record else { return None };
            let SensorRecord { value, at, .. } = Arc::unwrap_or_clone(record);
            Some(Sensor { value, at })
        }))
    }

    /// Writes what follows for one schedule.
    async fn follow(
        &mut self,
        arrival: &Arrival<'_>,
        freshness: Freshness,
        concern: Concern,
        plan: &mut Planned,
    ) -> Result<(), EngineError> {
        let (key, now) = (arrival.key, arrival.now);
        let (schedule, nominal, means) = match concern {
            Concern::Slot { schedule, nominal, means } => (schedule, nominal, means),
            Concern::Excluded { schedule, date } => {
                let message = format!("{key}: {schedule} has no slot for {date}");
                plan.event(Event::of("PIPELINE_EXCLUDED", now, message));
                return Ok(());
            }
            Concern::Unplaced { schedule, error } => {
                let message = format!(
                    "{key}: {schedule} cannot tell which period the report is about: {error}"
                );
                plan.event(Event::of("SENSOR_UNPLACED", now, message));
                return Ok(());
            }
        };
        let place = (nominal, schedule);
        if plan.writes_slot(&place) {
            return Ok(());
        }
        let touched = self.touched(arrival.pipeline, place, means).await?;
        if touched.slot.is_none() && self.is_below_floor(nominal, now).await? {
            let message =
                format!("{key}: the slot of {} is older than the ledger keeps", touched.place.1);
            plan.event(Event::of("SENSOR_TOO_OLD", now, message));
            return Ok(());
        }
        let is_given_up = touched.slot.is_none()
            && self.span_over(arrival.pipeline, &touched.place).await?.is_some();
        if is_given_up {
            // Among others, which is as good as by itself: only by hand from then on (S11).
            return Ok(());
        }
        let state = self.pipelines.get_mut(arrival.pipeline);
        let Some(mut sensors) = state.sensors.take() else { return Ok(()) };
        // They are as this report has them for as long as it takes to see what follows: it counts when it is committed.
        let before = (freshness != Freshness::Outdated)
            .then(|| sensors.insert(key.to_owned(), arrival.sensor.clone()));
        arrival.write(&touched, (freshness, &sensors, state.version), plan);
        match before {
            Some(Some(before)) => drop(sensors.insert(key.to_owned(), before)),
            Some(None) => drop(sensors.remove(key)),
            None => {}
        }
        state.sensors = Some(sensors);
        Ok(())
    }

    async fn touched(
        &self,
        pipeline: &PipelineId,
        place: SlotPlace,
        means: Means,
    ) -> Result<Touched, EngineError> {
        let slot = self.read_slot(pipeline, &place).await?;
        let query = RunQuery {
            pipeline: Some(pipeline.clone()),
            slot: Some((place.1.clone(), place.0)),
            limit: 20,
            ..RunQuery::default()
        };
        let runs = match slot {
            Some(_) => self.store.runs(&query).await?.items,
            None => vec![],
        };
        let baseline = runs.iter().find_map(|run| match run.record.metadata.get("baseline") {
            Some(Value::Object(fields)) => {
                Some(fields.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
            }
            Some(_) | None => None,
        });
        let last_run = runs.into_iter().next().map(|run| KnownRun {
            key: run.key,
            record: run.record.into(),
            revision: run.revision,
        });
        Ok(Touched { place, means, slot, last_run, baseline })
    }

    /// Whether a slot that is not there may have been taken out: what cannot be known is not done again (S2).
    pub(crate) async fn is_below_floor(
        &self,
        nominal: Timestamp,
        now: Timestamp,
    ) -> Result<bool, EngineError> {
        if nominal >= plus(now, -retention::KEPT_MIN) {
            return Ok(false);
        }
        let floor = interlock_store::kept::floor(self.store.as_ref()).await?;
        Ok(floor.is_some_and(|floor| nominal < floor))
    }

    /// A slot as the ledger has it.
    pub(crate) async fn read_slot(
        &self,
        pipeline: &PipelineId,
        place: &SlotPlace,
    ) -> Result<Option<(Slot, u64)>, EngineError> {
        let rows = self.store.read(pipeline, &[Key::Slot(place.1.clone(), place.0)]).await?;
        match rows.into_iter().next().flatten() {
            Some(Row { record: Record::Slot(record), revision }) => {
                Ok(Some((record.to_core()?, revision)))
            }
            Some(_) | None => Ok(None),
        }
    }
}

impl Arrival<'_> {
    /// When it reached us, by the clock of the process that took it in, which may be ahead of ours.
    fn came(&self) -> Timestamp {
        self.received_at.min(self.now)
    }

    /// Writes what follows from the report for a slot.
    fn write(
        &self,
        touched: &Touched,
        (freshness, sensors, version): (Freshness, &Sensors, u64),
        plan: &mut Planned,
    ) {
        let Some(start) = self.spec.starts.iter().find(|s| *s.schedule.id() == touched.place.1)
        else {
            return;
        };
        let known = Known {
            slot: touched.slot.as_ref().map(|(slot, _)| slot),
            baseline: touched.baseline.as_ref(),
            sensors,
            period: start.period_of(touched.place.0),
            completed_at: touched.last_run.as_ref().and_then(|run| run.record.ended_at),
            now: self.now,
        };
        let follows = arrival::consequence(self.spec, touched.means, self.key, &known);
        match follows {
            Consequence::Nothing => {}
            Consequence::Opens => {
                let agenda = Agenda::of(self.spec);
                let opener = Opener { agenda: &agenda, start, version, now: self.now };
                let slot = opener.open(touched.place.0, TriggerType::Sensor);
                plan.slot(&touched.place, 0, &slot);
                plan.will_complete(&touched.place, &slot, self.now);
                plan.spends(&touched.place, &slot, self.came());
                let message = format!("sensor {} arrived", self.key);
                plan.event(Event::of("SLOT_OPENED", self.now, message).about(&touched.place));
            }
            Consequence::Arrives => self.arrives(touched, start, plan),
            // Only new data is late data: what we knew already changes nothing (S11).
            Consequence::LateData if freshness != Freshness::New => {}
            Consequence::LateData => self.again(touched, version, ("late-data", None), plan),
            Consequence::DriftInFlight(drift) => {
                plan.event(self.drift("POST_RUN_DRIFT_INFLIGHT", &drift).about(&touched.place));
            }
            Consequence::Drift(drift) => {
                self.again(touched, version, ("data-drift", Some(drift)), plan);
            }
            Consequence::PostRun(check) => self.check_post_run(touched, &check, plan),
        }
        if touched.means == Means::PostRun {
            self.record_late_sensors(touched, &known, plan);
        }
    }

    /// Records what the `postRun` rules say of the reports that came after the job. While some have not come and those that
    /// have are fine, nothing is said yet: the watchdog says when it is too late.
    fn check_post_run(&self, touched: &Touched, check: &PostRunCheck, plan: &mut Planned) {
        let Some((slot, _)) = &touched.slot else { return };
        let PostRunCheck { verdict, missing } = check;
        let event = |kind: &'static str| {
            let event = Event::of(kind, self.now, self.key).about(&touched.place);
            let event = event.detail("evidence", verdict.to_string());
            event.detail("date", slot.date.to_string())
        };
        if verdict.outcome != Outcome::Ready {
            let (pipeline, schedule, at) = (self.pipeline, &touched.place.1, touched.place.0);
            let why = verdict.blocking().into_iter().map(|it| match it.reason.as_str() {
                "" => it.asked.clone(),
                reason => format!("{}, {reason}", it.asked),
            });
            let alert = format!(
                "Pipeline {pipeline} schedule {schedule} on {}: completed, but its result fails the postRun rules: {}. \
                 Look at the data; `interlock rerun {pipeline} {schedule}/{at} --reason 'bad result'` runs it again.",
                slot.date,
                why.collect::<Vec<_>>().join("; "),
            );
            plan.event(event("POST_RUN_FAILED").detail("alert", alert));
        } else if missing.is_empty() {
            plan.event(event("POST_RUN_PASSED"));
        }
    }

    /// All sensors after a job have come, and late: what the watchdog said of them is over, whatever they say.
    fn record_late_sensors(&self, touched: &Touched, known: &Known<'_>, plan: &mut Planned) {
        let (Some(post_run), Some(completed)) = (&self.spec.post_run, known.completed_at) else {
            return;
        };
        let Some(slot) = known.slot else { return };
        let is_late = self.now >= plus(completed, post_run.sensor_timeout);
        let is_passed = plan.has_event("POST_RUN_PASSED");
        if !is_late || is_passed || !arrival::missing_after_run(post_run, known).is_empty() {
            return;
        }
        let message = format!("{}: all post-run sensors have arrived", self.key);
        let event = Event::of("POST_RUN_SENSORS_ARRIVED", self.now, message).about(&touched.place);
        plan.event(event.detail("date", slot.date.to_string()));
    }

    /// A slot that waited for its sensor is the sensor's from now on, with its own time to be ready.
    fn arrives(
        &self,
        touched: &Touched,
        start: &interlock_core::pipeline::StartSchedule,
        plan: &mut Planned,
    ) {
        let Some((slot, revision)) = &touched.slot else { return };
        let agenda = Agenda::of(self.spec);
        let opener = Opener { agenda: &agenda, start, version: slot.version, now: self.now };
        let opening = opener.opening(touched.place.0, TriggerType::Sensor);
        let Ok(mut waiting) = slot.advance(OpenState::Waiting, opening.closes_at) else { return };
        waiting.opened_by = TriggerType::Sensor;
        plan.slot(&touched.place, *revision, &waiting);
        plan.spends(&touched.place, &waiting, self.came());
        let message = format!("sensor {} arrived", self.key);
        plan.event(Event::of("SENSOR_ARRIVED", self.now, message).about(&touched.place));
    }

    /// Late data or drift: the slot runs again, if its budget allows it.
    fn again(
        &self,
        touched: &Touched,
        version: u64,
        (why, drift): (&str, Option<Drift>),
        plan: &mut Planned,
    ) {
        let Some((slot, revision)) = &touched.slot else { return };
        let now = self.now;
        let event = match (&drift, self.spec.dry_run) {
            (Some(drift), true) => self.drift("DRY_RUN_DRIFT", drift),
            (Some(drift), false) => self.drift("POST_RUN_DRIFT", drift),
            (None, true) => Event::of("DRY_RUN_LATE_DATA", now, self.key),
            (None, false) => Event::of("LATE_DATA_ARRIVAL", now, self.key),
        };
        plan.event(event.about(&touched.place));
        if self.spec.dry_run {
            return;
        }
        let rerun = Rerun {
            place: &touched.place,
            slot,
            revision: *revision,
            version,
            source: RerunSource::Drift,
            why,
            original_run: touched.last_run.as_ref().map(|run| run.key.id(self.pipeline)),
        };
        match rerun.plan(self.spec, now, plan) {
            Ok(()) if slot.state == SlotState::Open(OpenState::Monitoring) => {
                if let Some(run) = &touched.last_run {
                    plan.run(run, RunEvent::MonitoringEnded, |_| {});
                }
            }
            Ok(()) => {}
            Err(refused) => {
                let event = Event::of("RERUN_REJECTED", now, refused.to_string());
                plan.event(event.about(&touched.place));
            }
        }
    }

    fn drift(&self, kind: &'static str, drift: &Drift) -> Event<'static> {
        let message = format!("{}: {} was {}", drift.key, drift.after, drift.before);
        let event = Event::of(kind, self.now, message).detail("baseline", drift.before);
        event.detail("current", drift.after)
    }
}

impl Event<'_> {
    /// What a sensor said.
    fn report(self, sensor: &Sensor) -> Self {
        self.detail("value", sensor.value.clone()).detail("at", sensor.at.to_string())
    }
}
