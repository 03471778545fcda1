//! Facts about all pipelines, kept under `_system`: where they are, and how those are read that several parts read.
//!
//! They are rows of sensors: facts with a time. Nobody can declare a pipeline of that name, so no report mixes with them.

use interlock_core::id::PipelineId;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    contract::{Store, StoreError},
    key::{DueKind, Key},
    record::{DueRecord, Record, SensorRecord},
};

/// What the keys of tokens begin with.
pub const TOKEN_PREFIX: &str = "token/";
/// The key of the standing order to bark.
pub const BARKS_KEY: &str = "barks/standing";
/// What the keys of the rows begin with that say what the files of a host declare.
pub const FILES_PREFIX: &str = "files/";
/// What the keys of the rows begin with that say when an instance could hear reports.
pub const COVERAGE_PREFIX: &str = "coverage/";

/// The key of the row that a store has while it is a copy that is not finished.
pub const COPYING_KEY: &str = "copying";

/// The key of the row that a store has once it was moved elsewhere.
pub const MOVED_KEY: &str = "moved";

/// What the inbox keys begin with of what listeners say: nobody asked for anything, so it is not counted.
pub const HEARD_PREFIX: &str = "heard/";

/// The key of the row that says before which instant slots may have been taken out.
pub const FLOOR_KEY: &str = "retention/floor";

/// The key of the row that a recovered ledger has.
pub const RECOVERED_KEY: &str = "recovered";

/// Up to which instant a recovered ledger does not know what ran: nothing that is owed up to then may run by itself.
pub async fn uncertain_until(store: &dyn Store) -> Result<Option<Timestamp>, StoreError> {
    let key = Key::Sensor(RECOVERED_KEY.to_owned());
    let rows = store.read(&PipelineId::system(), &[key]).await?;
    let until = |record: &Record| if let Record::Sensor(it) = record { Some(it.at) } else { None };
    Ok(rows.into_iter().flatten().find_map(|row| until(&row.record)))
}

/// That row.
pub fn recovered_record(uncertain_until: Timestamp, now: Timestamp) -> Record {
    let value = json!({ "uncertainUntil": uncertain_until.to_string() });
    let at = uncertain_until;
    Record::Sensor(SensorRecord { value, at, received_at: now, unheeded: false }.into())
}

/// Before which instant slots and runs may have been taken out: one that is not there may have been there.
pub async fn floor(store: &dyn Store) -> Result<Option<Timestamp>, StoreError> {
    let key = Key::Sensor(FLOOR_KEY.to_owned());
    let rows = store.read(&PipelineId::system(), &[key]).await?;
    Ok(rows.into_iter().flatten().find_map(|row| floor_of(&row.record)))
}

/// What that row says.
pub fn floor_of(record: &Record) -> Option<Timestamp> {
    if let Record::Sensor(floor) = record { Some(floor.at) } else { None }
}

/// That row.
pub fn floor_record(before: Timestamp, now: Timestamp) -> Record {
    let value = json!({ "before": before.to_string() });
    Record::Sensor(SensorRecord { value, at: before, received_at: now, unheeded: false }.into())
}

/// A stretch of time, from the first to the last instant.
pub type Stretch = (Timestamp, Timestamp);

/// The stretches of time in which an instance could hear reports.
pub fn heard(value: &Value) -> Vec<Stretch> {
    let all = value.get("heard").and_then(Value::as_array).into_iter().flatten();
    let instant = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
    all.filter_map(|one| Some((instant(one.get(0)?)?, instant(one.get(1)?)?))).collect()
}

/// How they are written.
pub fn heard_value(stretches: &[Stretch]) -> Value {
    let heard =
        stretches.iter().map(|(since, until)| json!([since.to_string(), until.to_string()]));
    json!({ "heard": heard.collect::<Vec<_>>() })
}

/// How often a bark was ordered, and when that was.
pub fn barks(order: &SensorRecord) -> Option<(SignedDuration, Timestamp)> {
    let seconds = order.value.get("seconds")?.as_i64().filter(|seconds| *seconds > 0)?;
    Some((SignedDuration::from_secs(seconds), order.at))
}

/// The last bark of the watchdog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastBark {
    /// Its name.
    pub id: String,
    /// When.
    pub at: Timestamp,
    /// `out`, `heard` or `lost`.
    pub state: String,
}

impl LastBark {
    /// Its address: a due entry that is never due, because it holds no decision.
    pub fn key() -> Key {
        // The last day that every engine can write.
        let never = "9999-12-30T00:00:00Z".parse().unwrap_or(Timestamp::MAX);
        Key::Due(never, DueKind::Pause, "bark".to_owned())
    }

    /// As it is stored.
    pub fn to_record(&self) -> DueRecord {
        let (id, at, state) = (json!(self.id), json!(self.at.to_string()), json!(self.state));
        let details = [("id", id), ("at", at), ("state", state)];
        DueRecord { details: details.map(|(key, value)| (key.to_owned(), value)).into() }
    }

    /// Reads it.
    pub fn from_record(record: &DueRecord) -> Option<Self> {
        let text = |key: &str| record.details.get(key).and_then(Value::as_str);
        let (id, state) = (text("id")?.to_owned(), text("state")?.to_owned());
        Some(Self { id, at: text("at")?.parse().ok()?, state })
    }
}
