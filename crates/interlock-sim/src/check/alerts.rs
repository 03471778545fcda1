//! Who is told: incidents, their notifications, and silences (S12, S13, S14).

use std::collections::{BTreeMap, BTreeSet};

use interlock_core::id::PipelineId;
use interlock_engine::SILENCE_PREFIX;
use interlock_store::{
    Change, Group, Key, OutboxRow, Record,
    record::{IncidentRecord, OutboxRecord},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Finding, book::Book, silences::Hush};

/// The pipeline and the name of a notification.
type Place = (String, String);

/// A notification that was made and is not settled.
#[derive(Debug)]
pub(crate) struct OnItsWay {
    pub(crate) channel: String,
    pub(crate) since: Timestamp,
    /// What it is the end of.
    after: Option<String>,
    /// Whether somebody sent it on its way who did not know what is silenced: its channel may take it hours later.
    is_unsure: bool,
}

impl OnItsWay {
    fn new(record: &OutboxRecord, since: Timestamp) -> Self {
        let (channel, after) = (record.channel.clone(), record.after.clone());
        Self { channel, since, after, is_unsure: false }
    }
}

/// What is known of notifications.
#[derive(Debug, Default)]
pub(crate) struct Alerts {
    /// What channels took, by channel and key.
    taken: BTreeSet<(String, String)>,
    /// Dead letters, by pipeline and name.
    dead: BTreeSet<Place>,
    /// Notifications that were made and are not settled.
    on_their_way: BTreeMap<Place, OnItsWay>,
    /// Alerts that channels took as part of a digest, and that are not settled.
    digested: BTreeMap<String, u64>,
    /// Who is silenced from when until when; all, if nobody is named.
    silences: Vec<(Vec<String>, Timestamp, Timestamp)>,
    /// When somebody last did not know what is silenced: such a one tells.
    unsure_at: Option<Timestamp>,
    resolved: u64,
}

/// How long what is in somebody's hands may still be told after a silence began: as long as an instance may stand still.
const IN_HAND: SignedDuration = SignedDuration::from_mins(15);

impl Alerts {
    /// A channel took an alert; not the beginning of one that came while it was silenced (S14).
    pub(crate) fn delivered(
        &mut self,
        channel: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<(), Finding> {
        match key.rsplit_once('+').and_then(|(_, count)| count.parse::<u64>().ok()) {
            Some(count) => *self.digested.entry(channel.to_owned()).or_default() += count,
            None => {
                self.taken.insert((channel.to_owned(), key.to_owned()));
            }
        }
        if self.is_unsure(now) {
            return Ok(());
        }
        let (pipeline, name) = key.split_once('/').unwrap_or((key, ""));
        let is_beginning = name.contains("~opened") && !name.contains("~dead");
        // What was on its way to a channel before the silence began goes on.
        let place = (pipeline.to_owned(), name.to_owned());
        let way = self.on_their_way.get(&place);
        if way.is_some_and(|way| way.is_unsure) {
            return Ok(());
        }
        let made = way.map_or(now, |way| way.since);
        let is_silenced = |(names, since, until): &(Vec<String>, Timestamp, Timestamp)| {
            (names.is_empty() || names.iter().any(|name| name == pipeline))
                && *since < made
                && *since + IN_HAND < now
                && now + IN_HAND < *until
        };
        match self.silences.iter().find(|silence| is_beginning && is_silenced(silence)) {
            None => Ok(()),
            Some((_, since, until)) => {
                let message = format!("{key} was told, and is silenced from {since} to {until}");
                Err(Finding::of("S14", message))
            }
        }
    }

    /// Whether somebody may tell now because it did not know what is silenced.
    fn is_unsure(&self, now: Timestamp) -> bool {
        self.unsure_at.is_some_and(|at| now < at + IN_HAND)
    }

    /// Somebody does not know what is silenced.
    pub(crate) fn could_not_ask(&mut self, now: Timestamp) {
        self.unsure_at = Some(now);
    }

    /// A silence is in force from now on.
    fn silenced(&mut self, value: &Value, now: Timestamp) {
        let until = value.get("until").and_then(Value::as_str).and_then(|at| at.parse().ok());
        let names = value.pointer("/when/pipelines").and_then(Value::as_array);
        let names = names.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        if let Some(until) = until {
            self.silences.push((names.collect(), now, until));
        }
    }

    /// Whether a pipeline is silenced now.
    pub(crate) fn hush(&self, pipeline: &PipelineId, now: Timestamp) -> Hush {
        let is_silenced = self.silences.iter().any(|(names, since, until)| {
            (names.is_empty() || names.iter().any(|name| name == pipeline.as_str()))
                && (*since..*until).contains(&now)
        });
        if is_silenced { Hush::Yes } else { Hush::No }
    }

    /// How many incidents were resolved.
    pub(crate) fn resolved(&self) -> u64 {
        self.resolved
    }

    /// What is on its way, and what about.
    pub(crate) fn on_their_way(&self) -> impl Iterator<Item = (&Place, &OnItsWay)> {
        self.on_their_way.iter()
    }

    /// A group was accepted.
    pub(crate) fn group(
        &mut self,
        group: &Group,
        book: &mut Book,
        now: Timestamp,
    ) -> Result<(), Finding> {
        let mut made = BTreeMap::new();
        for change in &group.changes {
            if let Change::Put(Key::Sensor(key), _, Record::Sensor(record)) = change
                && group.pipeline == PipelineId::system()
                && key.starts_with(SILENCE_PREFIX)
            {
                self.silenced(&record.value, now);
            }
            if let Change::Put(Key::Outbox(name), _, Record::Outbox(record)) = change {
                made.insert(name.as_str(), record.as_ref());
                let place = (group.pipeline.to_string(), name.clone());
                self.on_their_way.insert(place, OnItsWay::new(record, now));
            }
        }
        for change in &group.changes {
            if let Change::Put(Key::Incident(key), _, Record::Incident(record)) = change {
                self.incident(key, record, &made, book)?;
            }
        }
        Ok(())
    }

    fn incident(
        &mut self,
        key: &str,
        record: &IncidentRecord,
        made: &BTreeMap<&str, &OutboxRecord>,
        book: &mut Book,
    ) -> Result<(), Finding> {
        let is_open = record.state != "resolved";
        let was_open = book.incidents.insert(key.to_owned(), is_open).unwrap_or(false);
        let told = record.told.as_deref();
        let is_told = told.is_some_and(|name| made.contains_key(name));
        let has_end = made.values().any(|row| row.after.as_deref() == told && told.is_some());
        let wrong = match (was_open, is_open) {
            (false, true) if !is_told => "opened without a notification in its group",
            (true, true) if is_told => "told again while it was open",
            (true, false) if told.is_some() && !has_end => "resolved without a notification",
            (true, false) => {
                self.resolved += 1;
                return Ok(());
            }
            // The last: opened and resolved by one group.
            (false | true, true) | (false, false) => return Ok(()),
        };
        Err(Finding::of("S12", format!("the incident {key} was {wrong}")))
    }

    /// A notification becomes something else, or nothing.
    pub(crate) fn settles(
        &mut self,
        row: &OutboxRow,
        becomes: &[(String, OutboxRecord)],
        now: Timestamp,
    ) -> Result<(), Finding> {
        let pipeline = row.pipeline.to_string();
        let channel = &row.record.channel;
        let known = self.on_their_way.remove(&(pipeline.clone(), row.name.clone()));
        let is_unsure = self.is_unsure(now) || known.as_ref().is_some_and(|it| it.is_unsure);
        let since = known.map_or(Timestamp::MIN, |it| it.since);
        for (name, record) in becomes {
            let place = (pipeline.clone(), name.clone());
            if record.dead {
                self.dead.insert(place);
            } else {
                // Who holds it back will ask again.
                let is_unsure = is_unsure && record.held.is_none();
                let way = OnItsWay { is_unsure, ..OnItsWay::new(record, since) };
                self.on_their_way.insert(place, way);
            }
        }
        if !becomes.is_empty() {
            return Ok(());
        }
        let key = format!("{pipeline}/{}", row.name);
        if row.record.held.is_some() {
            return self.is_dropped(row);
        }
        if channel.is_empty() {
            return Err(Finding::of("S13", format!("the alert {key} went to nobody")));
        }
        let is_moot = row.record.after.as_ref().is_some_and(|after| {
            self.dead.contains(&(pipeline.clone(), format!("{after}@{channel}")))
        });
        if is_moot || self.taken.contains(&(channel.clone(), key.clone())) {
            return Ok(());
        }
        if let Some(left) = self.digested.get_mut(channel).filter(|left| **left > 0) {
            *left -= 1;
            return Ok(());
        }
        Err(Finding::of("S13", format!("the alert {key} is gone, and {channel} never took it")))
    }

    /// What was held back is told to nobody if it was over before it was told; then its end is not told either (S12).
    fn is_dropped(&self, row: &OutboxRow) -> Result<(), Finding> {
        let OutboxRow { pipeline, name, record, .. } = row;
        let told = |message: String| Err(Finding::of("S12", message));
        if let Some(after) = &record.after {
            let begins = format!("{pipeline}/{after}@{}", record.channel);
            let is_heard = self.taken.iter().any(|(_, key)| match record.channel.as_str() {
                "" => key.starts_with(&begins),
                _ => *key == begins,
            });
            let message = format!("the end {name} was dropped, and its beginning was told");
            return if is_heard { told(message) } else { Ok(()) };
        }
        // What would only have been told again has no end of its own.
        let opening = name.strip_suffix(&format!("@{}", record.channel)).unwrap_or(name);
        let mut theirs = self.on_their_way.iter().filter(|(place, _)| place.0 == pipeline.as_str());
        let is_over = theirs.any(|(_, way)| way.after.as_deref() == Some(opening));
        if is_over || name.ends_with("~again") {
            return Ok(());
        }
        told(format!("{name} was held back and dropped, and no end of it is on its way"))
    }
}
