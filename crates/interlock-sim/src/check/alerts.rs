//! Who is told: incidents and their notifications (S12, S13).

use std::collections::{BTreeMap, BTreeSet};

use interlock_store::{
    Change, Group, Key, OutboxRow, Record,
    record::{IncidentRecord, OutboxRecord},
};

use super::{Finding, book::Book};

/// What is known of notifications.
#[derive(Debug, Default)]
pub(crate) struct Alerts {
    /// What channels took, by channel and key.
    taken: BTreeSet<(String, String)>,
    /// Dead letters, by pipeline and name.
    dead: BTreeSet<(String, String)>,
    /// Notifications that were made and are not settled, by pipeline and name.
    on_their_way: BTreeMap<(String, String), String>,
    resolved: u64,
}

impl Alerts {
    pub(crate) fn delivered(&mut self, channel: &str, key: &str) {
        self.taken.insert((channel.to_owned(), key.to_owned()));
    }

    /// How many incidents were resolved.
    pub(crate) fn resolved(&self) -> u64 {
        self.resolved
    }

    /// What is on its way, and what about.
    pub(crate) fn on_their_way(&self) -> impl Iterator<Item = (&(String, String), &String)> {
        self.on_their_way.iter()
    }

    /// A group was accepted.
    pub(crate) fn group(&mut self, group: &Group, book: &mut Book) -> Result<(), Finding> {
        let mut made = BTreeMap::new();
        for change in &group.changes {
            if let Change::Put(Key::Outbox(name), _, Record::Outbox(record)) = change {
                made.insert(name.as_str(), record);
                let place = (group.pipeline.to_string(), name.clone());
                self.on_their_way.insert(place, record.channel.clone());
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
    ) -> Result<(), Finding> {
        let pipeline = row.pipeline.to_string();
        let channel = &row.record.channel;
        self.on_their_way.remove(&(pipeline.clone(), row.name.clone()));
        for (name, record) in becomes {
            let place = (pipeline.clone(), name.clone());
            if record.dead {
                self.dead.insert(place);
            } else if record.held.is_none() {
                // One that is held back waits for what speaks against it, which may last longer than this world.
                self.on_their_way.insert(place, record.channel.clone());
            }
        }
        if !becomes.is_empty() {
            return Ok(());
        }
        let key = format!("{pipeline}/{}", row.name);
        // What was held back until it was over, and its end, are told to nobody (S12).
        if row.record.held.is_some() {
            return Ok(());
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
        Err(Finding::of("S13", format!("the alert {key} is gone, and {channel} never took it")))
    }
}
