//! The engine in memory as a whole: what an archive follows, what a move takes along.

use std::ops::Bound;

use interlock_core::id::{PipelineId, ScheduleId};
use jiff::Timestamp;

use super::state::State;
use crate::{
    contract::{EventRow, Row, StoreError},
    kept,
    key::{Key, RunKey},
    record::Record,
    whole::{Archived, ChangedRow, Changes, Forgetting, Freight, Portion, Rows, StoredRow},
};

/// Changes that an archive has not read yet.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Followed {
    since: u64,
    read: Archived,
    /// Invariant: their numbers grow.
    pub(super) noted: Vec<(u64, PipelineId, Key)>,
}

impl State {
    /// Notes that a row was written or deleted, if somebody follows.
    pub(super) fn note(&mut self, pipeline: &PipelineId, key: &Key) {
        if let Some(followed) = &mut self.followed
            && key.is_followed()
        {
            self.event_last += 1;
            followed.noted.push((self.event_last, pipeline.clone(), key.clone()));
        }
    }

    pub(super) fn changes(&self, after: u64, limit: usize) -> Changes {
        let last = self.event_last;
        let Some(followed) = &self.followed else {
            return Changes { items: vec![], more: false, since: None, last, archived: None };
        };
        let first = followed.noted.partition_point(|(number, ..)| *number <= after);
        let later = followed.noted.get(first..).unwrap_or_default();
        let changed = |(number, pipeline, key): &(u64, PipelineId, Key)| ChangedRow {
            number: *number,
            pipeline: pipeline.clone(),
            key: key.clone(),
            row: self.row(pipeline, key),
        };
        let items = later.iter().take(limit).map(changed).collect();
        let (more, since) = (later.len() > limit, Some(followed.since));
        Changes { items, more, since, last, archived: Some(followed.read) }
    }

    pub(super) fn archived(&mut self, up_to: Option<Archived>) {
        let Some(up_to) = up_to else {
            self.followed = None;
            return;
        };
        let since = self.event_last;
        let followed = self.followed.get_or_insert(Followed { since, ..Followed::default() });
        followed.read = up_to;
        followed.noted.retain(|(number, ..)| *number > up_to.changes);
        followed.since = followed.since.max(up_to.changes.min(self.event_last));
    }

    pub(super) fn portion(
        &self,
        which: Rows,
        from: &str,
        limit: usize,
    ) -> Result<Portion, StoreError> {
        let first = if from.is_empty() { None } else { Some(place(from)?) };
        let all = self.rows.iter().flat_map(|(name, rows)| {
            let begins = match &first {
                Some((last, key)) if last == name => Bound::Excluded(key.clone()),
                _ => which.first_key().map_or(Bound::Unbounded, Bound::Included),
            };
            let rows = rows.range((begins, Bound::Unbounded));
            let rows = rows.take_while(move |(key, _)| which.includes(key.kind()));
            rows.map(move |(key, row)| (name, key, row))
        });
        let is_later = |name: &PipelineId| first.as_ref().is_none_or(|(last, _)| name >= last);
        let mut items: Vec<StoredRow> = all
            .filter(|(name, ..)| is_later(name))
            .take(limit.max(1))
            .map(|(name, key, row)| stored(name, key, row))
            .collect();
        items.shrink_to_fit();
        let last = items.last().filter(|_| items.len() >= limit.max(1));
        let next = last.map(|last| format!("{} {}", last.pipeline, last.key));
        Ok(Portion { items, next })
    }

    pub(super) fn forget(&mut self, what: &Forgetting, now: Timestamp) -> usize {
        if let Some(floor) = what.floor {
            self.raise_floor(floor, now);
        }
        let mut count = 0;
        for (pipeline, key, revision) in &what.rows {
            let found = self.rows.get(pipeline).and_then(|rows| rows.get(key));
            if found.is_none_or(|row| row.revision != *revision) {
                continue;
            }
            self.unset(pipeline, key);
            count += 1;
            if let Key::Slot(schedule, nominal) = key {
                for run in self.runs_of(pipeline, (schedule, *nominal)) {
                    self.unset(pipeline, &run);
                }
            }
        }
        let gone = self.events.partition_point(|event| event.number <= what.events);
        self.events.drain(..gone);
        count
    }

    fn runs_of(
        &self,
        pipeline: &PipelineId,
        (schedule, nominal): (&ScheduleId, Timestamp),
    ) -> Vec<Key> {
        let run = |generation, attempt| {
            Key::Run(RunKey { schedule: schedule.clone(), nominal, generation, attempt })
        };
        let rows = self.rows.get(pipeline).into_iter();
        let runs = rows.flat_map(|rows| rows.range(run(0, 0)..=run(u32::MAX, u32::MAX)));
        runs.map(|(key, _)| key.clone()).collect()
    }

    fn raise_floor(&mut self, floor: Timestamp, now: Timestamp) {
        let rows = self.rows.entry(PipelineId::system()).or_default();
        let key = Key::Sensor(kept::FLOOR_KEY.to_owned());
        let known = rows.get(&key);
        if known.and_then(|row| kept::floor_of(&row.record)).is_none_or(|known| known < floor) {
            let revision = known.map_or(1, |row| row.revision + 1);
            rows.insert(key, Row { record: kept::floor_record(floor, now), revision });
        }
    }

    pub(super) fn import(&mut self, freight: Freight) {
        for StoredRow { pipeline, key, row } in freight.rows {
            self.set(&pipeline, key, row.record, |_| row.revision);
        }
        for event in freight.events {
            let at = self.events.partition_point(|known| known.number < event.number);
            if self.events.get(at).is_none_or(|known: &EventRow| known.number != event.number) {
                self.event_last = self.event_last.max(event.number);
                self.events.insert(at, event);
            }
        }
        for entry in freight.inbox {
            self.post(&entry.pipeline, &entry.key, &entry.record, entry.received_at);
        }
        self.event_last = self.event_last.max(freight.last);
    }
}

fn stored(pipeline: &PipelineId, key: &Key, row: &Row<Record>) -> StoredRow {
    StoredRow { pipeline: pipeline.clone(), key: key.clone(), row: row.clone() }
}

fn place(from: &str) -> Result<(PipelineId, Key), StoreError> {
    let parts = from.split_once(' ');
    let found = parts.and_then(|(name, key)| Some((PipelineId::any(name).ok()?, Key::parse(key)?)));
    found.ok_or_else(|| StoreError::permanent(format!("`{from}` is no place in this store")))
}
