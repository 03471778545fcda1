//! Readiness: whether a slot should run now, rule by rule, with the values seen.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::Value;

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
#[derive(Debug, Clone, PartialEq, Eq)]
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
