//! What a sensor report can still change, besides the sensor itself.
//!
//! A report may open a slot, may be late data for one that is completed, or may show that data drifted
//! after its job (`postRun`). Which slots a report concerns depends on its own period, never on the time at
//! which we look; what follows depends on the slot alone. See `docs/adr/0008-after-completion.md`.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp, civil::Date};
use serde_json::Value;

use crate::{
    id::ScheduleId,
    pipeline::{Pipeline, PostRun, StartSchedule},
    readiness::{Condition, Evidence, Readiness, Rule, Verdict, evaluate, number_in},
    run::TriggerType,
    schedule::{Period, Recurrence},
    sensor::{self, Sensor, SensorError, Sensors, SlotPeriod},
    slot::{Disposition, OpenState, SkipReason, Slot, SlotState},
};

/// How a report relates to what is known of its sensor (S11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// It says something new.
    New,
    /// It says the same again, at a later time.
    Confirmed,
    /// It is the report that we have.
    Repeated,
    /// It is older than the report that we have.
    Outdated,
}

/// Compares a report with the last one.
pub fn freshness(known: Option<&Sensor>, new: &Sensor) -> Freshness {
    match known {
        None => Freshness::New,
        Some(known) if new.at < known.at => Freshness::Outdated,
        Some(known) if known.value != new.value => Freshness::New,
        Some(known) if new.at == known.at => Freshness::Repeated,
        Some(_) => Freshness::Confirmed,
    }
}

/// What a report means to a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Means {
    /// The slot's schedule waits for it.
    Data,
    /// It is checked after the slot's job.
    PostRun,
}

/// A schedule that a report is about, and which of its slots.
#[derive(Debug, Clone, PartialEq)]
pub enum Concern {
    /// One slot.
    Slot {
        /// Of which schedule.
        schedule: ScheduleId,
        /// Which.
        nominal: Timestamp,
        /// As what.
        means: Means,
    },
    /// The calendar leaves the date out.
    Excluded {
        /// Of which schedule.
        schedule: ScheduleId,
        /// Which date.
        date: Date,
    },
    /// Its period cannot be told.
    Unplaced {
        /// Of which schedule.
        schedule: ScheduleId,
        /// Why.
        error: SensorError,
    },
}

/// Which slots of a pipeline a report is about.
pub fn concerns(pipeline: &Pipeline, key: &str, sensor: &Sensor, now: Timestamp) -> Vec<Concern> {
    let base = sensor::base_key(key);
    let is_post_run = pipeline.post_run.iter().flat_map(|post| &post.rules).any(|r| r.key == base);
    let mut found = Vec::new();
    for start in &pipeline.starts {
        found.extend(start.data_of(key, sensor, now));
        if is_post_run {
            found.push(start.concern(key, sensor, (start.period_length(), Means::PostRun)));
        }
    }
    found
}

impl StartSchedule {
    /// Which slot of a sensor schedule a report opens; none if its condition is about another sensor or is not
    /// met.
    pub fn data_of(&self, key: &str, sensor: &Sensor, now: Timestamp) -> Option<Concern> {
        let Recurrence::Sensor { rule, period } = self.schedule.recurrence() else { return None };
        let is_met = rule.key == sensor::base_key(key) && rule.is_met_by(sensor, now);
        is_met.then(|| self.concern(key, sensor, (*period, Means::Data)))
    }

    /// Whether what a report means to it may change only because the report grows older.
    pub fn minds_age(&self) -> bool {
        matches!(self.schedule.recurrence(), Recurrence::Sensor { rule, .. } if rule.minds_age())
    }

    fn concern(&self, key: &str, sensor: &Sensor, (length, means): (Period, Means)) -> Concern {
        let (schedule, zone) = (self.schedule.id().clone(), &self.schedule.timing().zone);
        let period = match sensor::period_of(key, sensor, zone, length) {
            Ok(period) => period,
            Err(error) => return Concern::Unplaced { schedule, error },
        };
        match self.slot_of(period, (sensor.at, means)) {
            Some(nominal) => Concern::Slot { schedule, nominal, means },
            None => Concern::Excluded { schedule, date: period.date() },
        }
    }

    /// Whether its slots stand for hours or for whole dates.
    fn period_length(&self) -> Period {
        match self.schedule.recurrence() {
            Recurrence::Sensor { period, .. } => *period,
            Recurrence::Every { step, .. } if *step < 86_400 => Period::Hour,
            Recurrence::Cron(_) => {
                let first = self.schedule.next(Timestamp::UNIX_EPOCH);
                let second = first.and_then(|first| self.schedule.after(first));
                let date = |at| self.schedule.occurrence(at).date;
                if first.zip(second).is_some_and(|(first, second)| date(first) == date(second)) {
                    Period::Hour
                } else {
                    Period::Day
                }
            }
            Recurrence::Every { .. }
            | Recurrence::SinceLast { .. }
            | Recurrence::At { .. }
            | Recurrence::Once(_)
            | Recurrence::Dates { .. }
            | Recurrence::Daily => Period::Day,
        }
    }

    /// The slot of a period. Should there be several, data is of the one that its time lies in (an hour is there twice when
    /// a clock is set back), and what is checked after a job is checked after the last.
    fn slot_of(&self, period: SlotPeriod, (at, means): (Timestamp, Means)) -> Option<Timestamp> {
        let start = period.start(&self.schedule.timing().zone);
        // A slot of a date may be moved over midnight by a gap, never by a whole day; an hour may be there twice.
        let reach = if period.is_hour() { 3 } else { 26 };
        let end = start.saturating_add(SignedDuration::from_hours(reach)).ok()?;
        let mut slots = self.schedule.slots(start, end, 200).found;
        slots.retain(|nominal| self.belongs_to(*nominal, period));
        let has_begun = |nominal: &&Timestamp| means == Means::PostRun || **nominal <= at;
        slots.iter().rev().find(has_begun).or(slots.first()).copied()
    }

    fn belongs_to(&self, nominal: Timestamp, period: SlotPeriod) -> bool {
        let zone = &self.schedule.timing().zone;
        if period.is_hour() {
            SlotPeriod::containing(nominal, zone, Period::Hour) == period
        } else {
            self.schedule.occurrence(nominal).date == period.date()
        }
    }
}

/// What is known of a slot when a report about it comes.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The slot, if it is recorded.
    pub slot: Option<&'a Slot>,
    /// What the `postRun` sensors said when its job completed, by rule key.
    pub baseline: Option<&'a BTreeMap<String, Value>>,
    /// All sensors, the report included.
    pub sensors: &'a Sensors,
    /// The period of the slot.
    pub period: SlotPeriod,
    /// When its job completed: what was reported before that says nothing about the job's result.
    pub completed_at: Option<Timestamp>,
    /// The one time of this decision.
    pub now: Timestamp,
}

/// What follows from a report for one slot.
#[derive(Debug, Clone, PartialEq)]
pub enum Consequence {
    /// Nothing.
    Nothing,
    /// The slot opens.
    Opens,
    /// The slot waited for it.
    Arrives,
    /// Data came after the job had completed: it runs again if the budget allows.
    LateData,
    /// Data drifted while the job runs: nothing to do but to say so.
    DriftInFlight(Drift),
    /// Data drifted after the job had completed: it runs again if the budget allows.
    Drift(Drift),
    /// The `postRun` rules were asked.
    PostRun(PostRunCheck),
}

/// What the `postRun` rules say of the reports that came after the job.
#[derive(Debug, Clone, PartialEq)]
pub struct PostRunCheck {
    /// Over the rules whose sensor was reported after the job: all of them must hold.
    pub verdict: Verdict,
    /// The keys of the rules whose sensor has not been reported since.
    pub missing: Vec<String>,
}

/// A field that is no longer what the job saw.
#[derive(Debug, Clone, PartialEq)]
pub struct Drift {
    /// Of which sensor, by the rule's key.
    pub key: String,
    /// What it was.
    pub before: f64,
    /// What it is.
    pub after: f64,
}

const WAITING: SlotState = SlotState::Open(OpenState::Waiting);
const DRY_RUN: SlotState = SlotState::Closed(Disposition::Skipped(SkipReason::DryRun));

/// Decides what follows from a report about `key`, which says something new.
pub fn consequence(pipeline: &Pipeline, means: Means, key: &str, known: &Known<'_>) -> Consequence {
    let state = known.slot.map(|slot| slot.state);
    let is_done = matches!(
        state,
        Some(SlotState::Closed(Disposition::Completed) | SlotState::Open(OpenState::Monitoring))
    );
    match means {
        Means::Data => match known.slot {
            None => Consequence::Opens,
            Some(_) if is_done => Consequence::LateData,
            Some(slot) if slot.state == DRY_RUN => Consequence::LateData,
            Some(slot) if slot.state == WAITING && slot.opened_by == TriggerType::Scheduler => {
                Consequence::Arrives
            }
            Some(_) => Consequence::Nothing,
        },
        Means::PostRun => {
            let Some(post_run) = &pipeline.post_run else { return Consequence::Nothing };
            let drift = drift(post_run, sensor::base_key(key), known);
            match (drift, is_done) {
                (Some(drift), true) => Consequence::Drift(drift),
                (Some(drift), false) if state == Some(SlotState::Open(OpenState::Running)) => {
                    Consequence::DriftInFlight(drift)
                }
                (None, true) => judge_post_run(post_run, known)
                    .map_or(Consequence::Nothing, Consequence::PostRun),
                (_, false) => Consequence::Nothing,
            }
        }
    }
}

/// Whether a sensor's `driftField` is further from the baseline than it may be. Zero is a number.
fn drift(post_run: &PostRun, key: &str, known: &Known<'_>) -> Option<Drift> {
    let field = |value: &Value| number_in(value.get(&post_run.drift_field)?);
    let before = field(known.baseline?.get(key)?)?;
    let (_, sensor) = sensor::find(known.sensors, key, Some(known.period))?;
    let after = field(&sensor.value)?;
    let is_far = (after - before).abs() > post_run.drift_threshold;
    is_far.then(|| Drift { key: key.to_owned(), before, after })
}

/// The keys of the rules whose sensor was not reported after the job, as the watchdog's post-run check sees them.
pub fn missing_after_run(post_run: &PostRun, known: &Known<'_>) -> Vec<String> {
    let is_missing = |key: &str| {
        let newest = sensor::find(known.sensors, key, Some(known.period));
        let is_newer = |sensor: &Sensor| known.completed_at.is_none_or(|done| sensor.at > done);
        !newest.is_some_and(|(_, sensor)| is_newer(sensor))
    };
    let keys = post_run.rules.iter().map(|rule| rule.key.clone());
    keys.filter(|key| is_missing(key)).collect()
}

/// Judges what came after the job; nothing while nothing did.
fn judge_post_run(post_run: &PostRun, known: &Known<'_>) -> Option<PostRunCheck> {
    let missing = missing_after_run(post_run, known);
    let came: Vec<Condition> = post_run
        .rules
        .iter()
        .filter(|rule| !missing.contains(&rule.key))
        .cloned()
        .map(Condition::Sensor)
        .collect();
    if came.is_empty() {
        return None;
    }
    let readiness =
        Readiness { rule: Rule::All, conditions: came, upstreams: vec![], fail_open: false };
    let evidence = Evidence {
        sensors: known.sensors,
        traits: &BTreeMap::new(),
        upstreams: &BTreeMap::new(),
        period: Some(known.period),
        now: known.now,
    };
    Some(PostRunCheck { verdict: evaluate(&readiness, &evidence), missing })
}

/// What the `postRun` sensors say now, by rule key: kept with the run that completes.
pub fn baseline(
    post_run: &PostRun,
    sensors: &Sensors,
    period: Option<SlotPeriod>,
) -> BTreeMap<String, Value> {
    let found = post_run.rules.iter().filter_map(|rule| {
        let (_, sensor) = sensor::find(sensors, &rule.key, period)?;
        Some((rule.key.clone(), sensor.value.clone()))
    });
    found.collect()
}

#[cfg(test)]
mod tests;
