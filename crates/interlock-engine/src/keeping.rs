//! Facts about all pipelines, kept under `_system`: tokens, the standing order to bark, what the files of each host declare, and
//! who could hear reports when.
//!
//! They are rows of sensors, as silences are: facts with a time, read by whoever needs them. What somebody keeps or
//! forgets is an event. That an instance still listens is not: it is said every few seconds, so its row is only extended,
//! and the answer to what it said before goes away.

use std::sync::Arc;

use interlock_core::id::PipelineId;
use interlock_store::{
    CHANGES_MAX, Change, Expect, Key, Record,
    kept::{COVERAGE_PREFIX, FILES_PREFIX, Stretch, TOKEN_PREFIX, heard, heard_value},
    record::SensorRecord,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    engine::{Engine, EngineError},
    inbox::Answer,
    write::{Event, Planned},
};

/// How long it matters when somebody could hear: longer than any slot waits for a report.
const HEARING_KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);
/// So many stretches of one instance are kept.
const STRETCHES_MAX: usize = 100;

/// What may be kept: the word for it, what its keys begin with, and the events for keeping and forgetting.
const KINDS: &[(&str, &str, [&str; 2])] = &[
    ("token", TOKEN_PREFIX, ["TOKEN_CREATED", "TOKEN_REVOKED"]),
    ("barks", "barks/", ["BARKS_ORDERED", "BARKS_ENDED"]),
    ("files", FILES_PREFIX, ["FILES_DECLARED", "FILES_FORGOTTEN"]),
];

/// A fact that somebody wants kept, or forgotten.
pub(crate) struct Keeping<'a> {
    pub(crate) kind: &'a str,
    pub(crate) id: &'a str,
    pub(crate) value: Option<&'a Value>,
    pub(crate) by: &'a str,
}

impl Engine {
    pub(crate) async fn keep(
        &self,
        pipeline: &PipelineId,
        asked: &Keeping<'_>,
        now: Timestamp,
        plan: &mut Planned,
    ) -> Result<Answer, EngineError> {
        let Keeping { kind, id, value, by } = asked;
        let Some((_, prefix, [kept, forgotten])) = KINDS.iter().find(|(word, ..)| word == kind)
        else {
            return Ok(Err(format!("`{kind}` is not a kind of setting")));
        };
        if *pipeline != PipelineId::system() {
            return Ok(Err(format!("it belongs to `_system`, not to {pipeline}")));
        }
        let key = Key::Sensor(format!("{prefix}{id}"));
        let found = self.store.read(pipeline, std::slice::from_ref(&key)).await?;
        let revision = found.into_iter().next().flatten().map_or(0, |row| row.revision);
        let event = match (value, revision) {
            (None, 0) => return Ok(Err(format!("there is no {kind} `{id}`"))),
            // An order is changed by giving another; a token never is.
            (Some(_), 1..) if *kind == "token" => {
                return Ok(Err(format!("there is a {kind} `{id}` already")));
            }
            (Some(value), revision) => {
                let record = SensorRecord {
                    value: (*value).clone(),
                    at: now,
                    received_at: now,
                    unheeded: false,
                };
                plan.put(key, revision, Record::Sensor(record.into()));
                let said = match *kind {
                    "files" => format!("{id} declares {} pipelines", value["count"]),
                    _ => format!("{by} made the {kind} {id}"),
                };
                Event::of(kept, now, said)
            }
            (None, revision) => {
                plan.group.changes.push(Change::Delete(key, Expect::Revision(revision)));
                Event::of(forgotten, now, format!("{by} ended the {kind} {id}"))
            }
        };
        plan.event(event.detail(kind, *id).detail("by", *by));
        Ok(Ok(json!({ *kind: id })))
    }

    /// Extends what is known of when an instance could hear.
    pub(crate) async fn hear(
        &self,
        (instance, after): (&str, Option<&str>),
        (since, until): Stretch,
        now: Timestamp,
        plan: &mut Planned,
    ) -> Result<Answer, EngineError> {
        let (pipeline, name) = (PipelineId::system(), format!("{COVERAGE_PREFIX}{instance}"));
        let key = Key::Sensor(name.clone());
        let found = self.store.read(&pipeline, std::slice::from_ref(&key)).await?;
        let value = match found.into_iter().next().flatten().map(|row| row.record) {
            Some(Record::Sensor(record)) => {
                longer(Arc::unwrap_or_clone(record).value, (since, until), now)
            }
            Some(_) | None => heard_value(&[(since, until)]),
        };
        let record = SensorRecord { value, at: until, received_at: now, unheeded: false };
        plan.group.changes.push(Change::Put(key, Expect::Any, Record::Sensor(record.into())));
        if let Some(after) = after {
            let key = Key::Applied(after.to_owned());
            plan.group.changes.push(Change::Delete(key, Expect::Any));
        } else {
            // A new process: those that are long gone are forgotten.
            for (key, row) in self.store.sensors(&pipeline).await? {
                let is_old = now.duration_since(row.record.at) > HEARING_KEPT;
                if is_old && key.starts_with(COVERAGE_PREFIX) && key != name {
                    let change = Change::Delete(Key::Sensor(key), Expect::Any);
                    plan.group.changes.push(change);
                }
            }
            // The rest goes with the next process.
            plan.group.changes.truncate(CHANGES_MAX - 2);
        }
        Ok(Ok(json!({ "until": until.to_string() })))
    }
}

/// Adds a stretch to a row's. Most of the time it is the last one, longer, and the others need not be read.
fn longer(mut value: Value, stretch: Stretch, now: Timestamp) -> Value {
    let (since, until) = (stretch.0.to_string(), stretch.1);
    let last = value.get_mut("heard").and_then(Value::as_array_mut).and_then(|all| all.last_mut());
    if let Some(Value::Array(last)) = last
        && let [began, end] = last.as_mut_slice()
        && began.as_str() == Some(&since)
        && end.as_str().and_then(|end| end.parse().ok()).is_some_and(|end: Timestamp| end <= until)
    {
        *end = until.to_string().into();
        return value;
    }
    heard_value(&extended(heard(&value), stretch, now))
}

/// Adds a stretch: the same one, longer, if it began when the last one did.
fn extended(mut known: Vec<Stretch>, (since, until): Stretch, now: Timestamp) -> Vec<Stretch> {
    match known.iter_mut().find(|(began, _)| *began == since) {
        Some((_, end)) => *end = until.max(*end),
        None => known.push((since, until)),
    }
    known.retain(|(_, end)| now.duration_since(*end) < HEARING_KEPT);
    known.sort_unstable();
    // The first stays: before it nobody listened yet, and it is enough that the watchdog was up. What is left out after
    // it is a time in which nobody heard (S10).
    let too_many = known.len().saturating_sub(STRETCHES_MAX);
    if too_many > 0 {
        known.drain(1..=too_many);
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_stretch_grows_while_its_process_lives_and_the_next_one_is_another() {
        let mut known = vec![];
        for (since, until) in [(0, 10), (0, 20), (0, 15), (100, 110)] {
            known = extended(known, (at(since), at(until)), at(200));
        }
        assert_eq!(known, [(at(0), at(20)), (at(100), at(110))]);
        assert_eq!(heard(&heard_value(&known)), known);
    }

    #[test]
    fn the_last_stretch_grows_as_if_all_were_read() {
        let mut value = heard_value(&[(at(0), at(10)), (at(20), at(30))]);
        // Longer, not shorter, one that is not the last, and a new one.
        for stretch in [(20, 40), (20, 35), (0, 15), (50, 60)] {
            let stretch = (at(stretch.0), at(stretch.1));
            let expected = heard_value(&extended(heard(&value), stretch, at(60)));
            value = longer(value, stretch, at(60));
            assert_eq!(value, expected, "{stretch:?}");
        }
    }

    #[test]
    fn what_no_longer_matters_is_dropped_and_a_crash_loop_does_not_grow_for_ever() {
        let mut known = vec![];
        for number in 0..500 {
            known = extended(known, (at(number * 10), at(number * 10 + 5)), at(number * 10 + 5));
        }
        assert_eq!((known.len(), known.last()), (100, Some(&(at(4_990), at(4_995)))));
        // What was left out is a break, not a time before anybody listened.
        assert_eq!(known[..2], [(at(0), at(5)), (at(4_010), at(4_015))]);
        let week = at(5_000 + 7 * 24 * 3_600);
        assert_eq!(extended(known, (week, week), week), [(week, week)]);
    }
}
