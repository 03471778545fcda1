//! Readiness: whether a slot should run now, rule by rule, with the values seen.
//!
//! An archetype with traits and a plain list of sensor rules are two spellings of one thing: a
//! number of conditions and how many of them must hold. Each condition has three answers, because
//! "no" and "cannot tell" are different news: the first says that the data is not there, the second
//! that somebody has to look. Neither starts a job (S8), unless the pipeline is fail-open, which
//! forgives the second one only.
//!
//! The answer is a [`Verdict`], a tree that keeps every rule with the value seen, in the order of
//! the file. It is what `explain` prints and what is stored with the decision.

mod compare;
mod judge;
mod verdict;

use std::{collections::BTreeMap, fmt};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

pub use self::{
    compare::number_in,
    judge::unreported_sensor,
    verdict::{Outcome, Verdict, Weight},
};
use crate::{
    retry::FailureCategory,
    sensor::{Sensors, SlotPeriod},
    text::TextError,
};

/// How a sensor is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The sensor is there.
    Exists,
    /// The field equals the value.
    Equals,
    /// The field is greater.
    Gt,
    /// The field is greater or equal.
    Gte,
    /// The field is less.
    Lt,
    /// The field is less or equal.
    Lte,
    /// The time in the field is younger than the duration.
    AgeLt,
    /// The time in the field is older than the duration.
    AgeGt,
}

impl Check {
    /// Every check.
    pub const ALL: [Self; 8] = [
        Self::Exists,
        Self::Equals,
        Self::Gt,
        Self::Gte,
        Self::Lt,
        Self::Lte,
        Self::AgeLt,
        Self::AgeGt,
    ];

    /// The name in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exists => "exists",
            Self::Equals => "equals",
            Self::Gt => "gt",
            Self::Gte => "gte",
            Self::Lt => "lt",
            Self::Lte => "lte",
            Self::AgeLt => "age_lt",
            Self::AgeGt => "age_gt",
        }
    }

    /// Reads a name from a file.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let found = Self::ALL.into_iter().find(|check| check.as_str() == text);
        found.ok_or_else(|| {
            TextError::not_one_of("check", text, Self::ALL.map(Self::as_str).as_slice())
        })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a rule compares with.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// `exists` needs none.
    None,
    /// A JSON value, for `equals` and the numeric checks.
    Value(Value),
    /// A duration, for the age checks.
    Age(SignedDuration),
}

/// One condition on one sensor.
#[derive(Debug, Clone, PartialEq)]
pub struct SensorRule {
    /// The sensor's key; a key `key#date` of the slot's period wins over the plain key.
    pub key: String,
    /// How to compare.
    pub check: Check,
    /// Which field of the sensor's JSON; the whole value when absent.
    pub field: Option<String>,
    /// With what.
    pub operand: Operand,
}

/// A trait of an archetype with the pipeline's overrides merged in.
#[derive(Debug, Clone, PartialEq)]
pub struct TraitSpec {
    /// The trait's type, unique within its archetype.
    pub kind: String,
    /// Optional traits are evaluated and shown, never blocking.
    pub required: bool,
    /// Which evaluator answers; a trait without one cannot be told.
    pub evaluator: Option<String>,
    /// Handed to the evaluator as JSON.
    pub config: BTreeMap<String, Value>,
    /// How long a result may be reused.
    pub ttl: Option<SignedDuration>,
    /// How long the evaluator may take.
    pub timeout: Option<SignedDuration>,
}

/// One thing that readiness asks.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// A rule on a sensor.
    Sensor(SensorRule),
    /// A trait, answered by an evaluator.
    Trait(TraitSpec),
}

/// A dependency on another pipeline: its slot is read, never written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Upstream {
    /// The upstream pipeline's name.
    pub pipeline: String,
    /// Which of its schedules; any when absent.
    pub schedule: Option<String>,
}

/// How the answers to the conditions become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Every required condition passes (`all-required-pass`, `trigger: ALL`).
    All,
    /// At least one passes (`trigger: ANY`).
    Any,
    /// More than half of the required pass, or at least the given number.
    Majority {
        /// `parameters.threshold`.
        threshold: Option<usize>,
    },
}

/// What must hold before a slot of a pipeline may run.
#[derive(Debug, Clone, PartialEq)]
pub struct Readiness {
    /// How answers combine.
    pub rule: Rule,
    /// What is asked, in the order of the file.
    pub conditions: Vec<Condition>,
    /// Upstream dependencies: all of them must hold besides the rule.
    pub upstreams: Vec<Upstream>,
    /// Run even when a condition cannot be told.
    pub fail_open: bool,
}

/// How an evaluator answered for a trait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraitStatus {
    /// It holds.
    Pass,
    /// It does not hold.
    Fail,
    /// The evaluator could not find out.
    Error,
    /// The last answer is too old.
    Stale,
}

impl TraitStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Pass, Self::Fail, Self::Error, Self::Stale];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Error => "ERROR",
            Self::Stale => "STALE",
        }
    }

    /// Reads a name from the wire; the Go controller stored any string and took it for a failure.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let found = Self::ALL.into_iter().find(|status| status.as_str() == text);
        found.ok_or_else(|| {
            TextError::not_one_of("trait status", text, Self::ALL.map(Self::as_str).as_slice())
        })
    }
}

/// An evaluator's answer for a trait.
#[derive(Debug, Clone, PartialEq)]
pub struct TraitResult {
    /// The answer.
    pub status: TraitStatus,
    /// What it measured.
    pub value: Option<Value>,
    /// Why, for people.
    pub reason: Option<String>,
    /// What kind of failure it was.
    pub category: Option<FailureCategory>,
}

/// What became of an upstream's slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamState {
    /// The upstream has no slot for this period.
    NoSlot,
    /// The slot is open, and its job is not over.
    Open,
    /// The job succeeded and is being monitored.
    Monitoring,
    /// The job succeeded.
    Completed,
    /// The slot closed without success.
    Closed {
        /// As what: `failed`, `skipped(overlap)`.
        disposition: String,
    },
}

/// What is known when a slot is evaluated.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The pipeline's sensors.
    pub sensors: &'a Sensors,
    /// Answers for traits, by their type.
    pub traits: &'a BTreeMap<String, TraitResult>,
    /// The upstreams' slots; one that is not here was not looked up.
    pub upstreams: &'a BTreeMap<Upstream, UpstreamState>,
    /// Which period the slot is about.
    pub period: Option<SlotPeriod>,
    /// The one time of this evaluation.
    pub now: Timestamp,
}

/// Answers whether a slot may run.
pub fn evaluate(readiness: &Readiness, evidence: &Evidence<'_>) -> Verdict {
    let conditions =
        readiness.conditions.iter().map(|condition| condition.judge(evidence)).collect();
    let by_rule = Verdict::combined("conditions", readiness.rule, conditions);
    if readiness.upstreams.is_empty() {
        return by_rule;
    }
    // No conditions at all, and none asked for, is not worth a line of its own.
    let silent = readiness.conditions.is_empty() && by_rule.outcome == Outcome::Ready;
    let mut parts = if silent { vec![] } else { vec![by_rule] };
    parts.extend(readiness.upstreams.iter().map(|upstream| upstream.judge(evidence)));
    Verdict::combined("readiness", Rule::All, parts)
}

#[cfg(test)]
mod tests;
