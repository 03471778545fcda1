//! Answering one condition: a sensor rule, a trait, or an upstream.
//!
//! What has not been reported yet is "not ready"; what was reported and cannot be understood is
//! "cannot tell", because waiting will not mend it.

use std::cmp::Ordering;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{
    Check, Condition, Evidence, Operand, Outcome, SensorRule, TraitResult, TraitSpec, TraitStatus,
    Upstream, UpstreamState, Verdict, Weight, compare,
};
use crate::{
    duration,
    sensor::{self, Sensor, Sensors, SlotPeriod},
};

const UNREPORTED: [&str; 2] = ["sensor `", "` has not been reported"];

/// Says that a sensor has not been reported.
fn unreported(key: &str) -> String {
    let [before, after] = UNREPORTED;
    [before, key, after].concat()
}

/// The sensor that has not been reported, if that is what a reason says: what is kept with a slot is the sentence alone.
pub fn unreported_sensor(reason: &str) -> Option<&str> {
    let [before, after] = UNREPORTED;
    reason.strip_prefix(before)?.strip_suffix(after)
}

/// An answer without its question.
struct Answer {
    outcome: Outcome,
    seen: Option<Value>,
    reason: String,
}

impl Answer {
    fn new(outcome: Outcome, reason: impl Into<String>) -> Self {
        Self { outcome, seen: None, reason: reason.into() }
    }

    fn cannot_tell(seen: &Value, reason: impl Into<String>) -> Self {
        Self { seen: Some(seen.clone()), ..Self::new(Outcome::CannotTell, reason) }
    }

    /// A comparison that could be made: `statement` is what is true or false.
    fn compared(seen: &Value, statement: &str, outcome: Outcome) -> Self {
        let reason = format!("{statement} is {}", outcome == Outcome::Ready);
        Self { seen: Some(seen.clone()), ..Self::new(outcome, reason) }
    }

    fn to(self, name: impl Into<String>, asked: impl Into<String>) -> Verdict {
        Verdict {
            outcome: self.outcome,
            name: name.into(),
            asked: asked.into(),
            seen: self.seen,
            reason: self.reason,
            answered: None,
            weight: Weight::Required,
            parts: vec![],
        }
    }
}

impl Condition {
    pub(super) fn judge(&self, evidence: &Evidence<'_>) -> Verdict {
        match self {
            Self::Sensor(rule) => rule.judge(evidence.sensors, evidence.period, evidence.now),
            Self::Trait(spec) => spec.judge(evidence.traits.get(&spec.kind)),
        }
    }
}

impl SensorRule {
    /// Answers whether this rule holds for a slot of a period.
    pub fn judge(&self, sensors: &Sensors, period: Option<SlotPeriod>, now: Timestamp) -> Verdict {
        let Some((key, sensor)) = sensor::find(sensors, &self.key, period) else {
            let reason = unreported(&self.key);
            return Answer::new(Outcome::NotReady, reason).to(&self.key, self.asked(&self.key));
        };
        self.answer(key, sensor, now).to(&self.key, self.asked(key))
    }

    /// Whether a sensor by itself is what this rule waits for.
    pub(crate) fn is_met_by(&self, sensor: &Sensor, now: Timestamp) -> bool {
        self.answer(&self.key, sensor, now).outcome == Outcome::Ready
    }

    /// Whether its answer about one and the same report changes with time.
    pub(crate) fn minds_age(&self) -> bool {
        matches!(self.check, Check::AgeLt | Check::AgeGt)
    }

    fn answer(&self, key: &str, sensor: &Sensor, now: Timestamp) -> Answer {
        let answer = match self.check {
            Check::Exists => Ok(Answer::new(Outcome::Ready, format!("reported at {}", sensor.at))),
            Check::Equals => self.field(key, sensor).map(|seen| self.equals(seen)),
            Check::Gt => self.field(key, sensor).map(|seen| self.number(seen, Ordering::is_gt)),
            Check::Gte => self.field(key, sensor).map(|seen| self.number(seen, Ordering::is_ge)),
            Check::Lt => self.field(key, sensor).map(|seen| self.number(seen, Ordering::is_lt)),
            Check::Lte => self.field(key, sensor).map(|seen| self.number(seen, Ordering::is_le)),
            Check::AgeLt => {
                self.time(key, sensor).map(|at| self.age(at, now, |age, max| age < max))
            }
            Check::AgeGt => {
                self.time(key, sensor).map(|at| self.age(at, now, |age, min| age > min))
            }
        };
        answer.unwrap_or_else(|problem| problem)
    }

    /// The rule as text, with the key that was found.
    fn asked(&self, key: &str) -> String {
        let field = self.field.as_ref().map(|field| format!(".{field}")).unwrap_or_default();
        let operand = match &self.operand {
            Operand::None => String::new(),
            Operand::Value(value) => format!(" {}", shown(value)),
            Operand::Age(age) => format!(" {}", duration::format(*age)),
        };
        format!("{key}{field} {}{operand}", self.check)
    }

    fn field<'a>(&self, key: &str, sensor: &'a Sensor) -> Result<&'a Value, Answer> {
        let Some(field) = &self.field else {
            return Ok(&sensor.value);
        };
        if !sensor.value.is_object() {
            let reason = format!("sensor `{key}` is not an object and has no field `{field}`");
            return Err(Answer::cannot_tell(&sensor.value, reason));
        }
        sensor.value.get(field).ok_or_else(|| {
            let reason = format!("field `{field}` not found in sensor `{key}`");
            Answer::new(Outcome::NotReady, reason)
        })
    }

    fn equals(&self, seen: &Value) -> Answer {
        match &self.operand {
            Operand::Value(value) => {
                let statement = format!("{} equals {}", shown(seen), shown(value));
                Answer::compared(seen, &statement, compare::equal(seen, value).into())
            }
            Operand::None | Operand::Age(_) => self.no_operand(seen),
        }
    }

    fn number(&self, seen: &Value, holds: fn(Ordering) -> bool) -> Answer {
        let value = match &self.operand {
            Operand::Value(value) => value,
            Operand::None | Operand::Age(_) => return self.no_operand(seen),
        };
        let Some(order) = compare::order(seen, value) else {
            let wrong = if compare::is_number(seen) { value } else { seen };
            return Answer::cannot_tell(seen, format!("{} is not a number", shown(wrong)));
        };
        let statement = format!("{} {} {}", shown(seen), self.check, shown(value));
        Answer::compared(seen, &statement, holds(order).into())
    }

    /// The time that an age is counted from.
    ///
    /// Without a field it is the value itself if that could be a time, else when the sensor was
    /// reported.
    fn time(&self, key: &str, sensor: &Sensor) -> Result<(Timestamp, Value), Answer> {
        let seen = self.field(key, sensor)?;
        let scalar = seen.is_string() || seen.is_number();
        if self.field.is_none() && !scalar {
            return Ok((sensor.at, Value::String(sensor.at.to_string())));
        }
        match sensor::parse_time(seen) {
            Ok(at) => Ok((at, seen.clone())),
            Err(error) => Err(Answer::cannot_tell(seen, error.to_string())),
        }
    }

    fn age(
        &self,
        (at, seen): (Timestamp, Value),
        now: Timestamp,
        holds: fn(SignedDuration, SignedDuration) -> bool,
    ) -> Answer {
        let limit = match &self.operand {
            Operand::Age(limit) => *limit,
            Operand::None | Operand::Value(_) => return self.no_operand(&seen),
        };
        let age = now.duration_since(at);
        let rule = format!("{} {}", self.check, duration::format(limit));
        // A clock that runs ahead is no reason to hold fresh data back, but people should see it.
        let statement = if age.is_negative() {
            format!("{at} lies {} in the future: {rule}", whole_seconds(-age))
        } else {
            format!("{at} is {} old: {rule}", whole_seconds(age))
        };
        Answer::compared(&seen, &statement, holds(age, limit).into())
    }

    fn no_operand(&self, seen: &Value) -> Answer {
        Answer::cannot_tell(
            seen,
            format!("the rule gives `{}` nothing to compare with", self.check),
        )
    }
}

impl TraitSpec {
    fn judge(&self, result: Option<&TraitResult>) -> Verdict {
        let answer = match result {
            None if self.evaluator.is_none() => {
                Answer::new(Outcome::CannotTell, "no evaluator is configured")
            }
            None => Answer::new(Outcome::CannotTell, "it has not been evaluated"),
            Some(result) => result.answer(),
        };
        let weight = if self.required { Weight::Required } else { Weight::Optional };
        let answered = result.map(|result| result.status);
        Verdict { answered, weight, ..answer.to(&self.kind, format!("trait `{}`", self.kind)) }
    }
}

impl TraitResult {
    fn answer(&self) -> Answer {
        let outcome = match self.status {
            TraitStatus::Pass => Outcome::Ready,
            TraitStatus::Fail => Outcome::NotReady,
            TraitStatus::Error | TraitStatus::Stale => Outcome::CannotTell,
        };
        let mut reason = self.status.as_str().to_owned();
        if let Some(category) = self.category {
            reason = format!("{reason} ({category})");
        }
        if let Some(text) = &self.reason {
            reason = format!("{reason}: {text}");
        }
        Answer { outcome, seen: self.value.clone(), reason }
    }
}

impl Upstream {
    pub(super) fn judge(&self, evidence: &Evidence<'_>) -> Verdict {
        let answer = match evidence.upstreams.get(self) {
            None => Answer::new(Outcome::CannotTell, "its slot was not looked up"),
            Some(state) => state.answer(),
        };
        let schedule = self.schedule.as_ref().map(|id| format!("/{id}")).unwrap_or_default();
        let name = format!("{}{schedule}", self.pipeline);
        let asked = format!("upstream `{name}` completed");
        answer.to(name, asked)
    }
}

impl UpstreamState {
    fn answer(&self) -> Answer {
        match self {
            Self::NoSlot => Answer::new(Outcome::NotReady, "it has no slot for this period"),
            Self::Open => Answer::new(Outcome::NotReady, "its slot is still open"),
            Self::Monitoring => Answer::new(Outcome::Ready, "its slot is being monitored"),
            Self::Completed => Answer::new(Outcome::Ready, "its slot is completed"),
            Self::Closed { disposition } => {
                Answer::new(Outcome::NotReady, format!("its slot closed as {disposition}"))
            }
        }
    }
}

const SHOWN_CHARACTERS_MAX: usize = 80;

/// A value as JSON, cut off where a line would become unreadable.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

fn whole_seconds(age: SignedDuration) -> String {
    duration::format(SignedDuration::from_secs(age.as_secs()))
}
