//! Sensors: named JSON facts reported about data, each with its time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

/// One reported fact.
#[derive(Debug, Clone, PartialEq)]
pub struct Sensor {
    /// What was reported.
    pub value: Value,
    /// When it was reported.
    pub at: Timestamp,
}

/// The sensors of one pipeline by key.
pub type Sensors = BTreeMap<String, Sensor>;
