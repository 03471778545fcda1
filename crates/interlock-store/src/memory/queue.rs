//! What waits in the engine in memory: reports on their way in, notifications on their way out.

use std::ops::Bound;

use interlock_core::id::PipelineId;
use jiff::Timestamp;

use super::{read::page, state::State};
use crate::{
    contract::{InboxEntry, OutboxRow, Page, Settlement, Shard},
    key::Key,
    record::{InboxRecord, OutboxRecord, Record},
};

impl State {
    pub(super) fn post(
        &mut self,
        pipeline: &PipelineId,
        key: &str,
        record: &InboxRecord,
        received_at: Timestamp,
    ) {
        let is_applied = self.row(pipeline, &Key::Applied(key.to_owned())).is_some();
        let same = (pipeline.clone(), key.to_owned());
        if is_applied || self.inbox_numbers.contains_key(&same) {
            return;
        }
        self.inbox_last += 1;
        self.inbox_numbers.insert(same, self.inbox_last);
        let entry = InboxEntry {
            number: self.inbox_last,
            pipeline: pipeline.clone(),
            key: key.to_owned(),
            received_at,
            record: record.clone(),
        };
        self.inbox.insert(entry.number, entry);
    }

    pub(super) fn posted(&self, pipeline: &PipelineId, key: &str) -> Option<InboxRecord> {
        let number = self.inbox_numbers.get(&(pipeline.clone(), key.to_owned()))?;
        self.inbox.get(number).map(|entry| entry.record.clone())
    }

    pub(super) fn inbox(&self, shard: Shard, limit: usize) -> Page<InboxEntry> {
        let here = |entry: &&InboxEntry| Shard::of(&entry.pipeline, self.shard_count) == shard;
        page(self.inbox.values().filter(here).cloned(), limit)
    }

    pub(super) fn claim(
        &mut self,
        limit: usize,
        claimed_until: Timestamp,
        now: Timestamp,
    ) -> Vec<OutboxRow> {
        let due = self.lists.outbox.iter().take_while(|(not_before, ..)| *not_before <= now);
        let free = due.filter_map(|(_, pipeline, name)| {
            let row = self.rows.get(pipeline)?.get(&Key::Outbox(name.clone()))?;
            let Record::Outbox(record) = &row.record else { return None };
            let (pipeline, name) = (pipeline.clone(), name.clone());
            let found = || OutboxRow {
                pipeline,
                name,
                record: record.as_ref().clone(),
                revision: row.revision,
            };
            is_free(record, now).then(found)
        });
        let mut rows: Vec<OutboxRow> = free.take(limit).collect();
        for row in &mut rows {
            row.record.claimed_until = Some(claimed_until);
            row.revision += 1;
            self.keep(row);
        }
        rows
    }

    /// Answers with the rows that stay claimed.
    pub(super) fn settle(&mut self, settlement: &Settlement) -> Vec<OutboxRow> {
        let row = &settlement.row;
        let key = Key::Outbox(row.name.clone());
        if self.row(&row.pipeline, &key).is_none_or(|found| found.revision != row.revision) {
            return Vec::new();
        }
        self.unset(&row.pipeline, &key);
        let mut claimed = Vec::new();
        for (name, record) in settlement.claimed() {
            if self.row(&row.pipeline, &Key::Outbox(name.clone())).is_some() {
                continue;
            }
            let revision = if *name == row.name { row.revision + 1 } else { 1 };
            let (pipeline, name) = (row.pipeline.clone(), name.clone());
            let added = OutboxRow { pipeline, name, record, revision };
            self.keep(&added);
            claimed.push(added);
        }
        claimed.retain(|added| added.record.claimed_until.is_some());
        claimed
    }

    pub(super) fn dead_letters(&self, limit: usize) -> Page<OutboxRow> {
        let all = self.rows.keys().flat_map(|pipeline| self.outbox_after(pipeline, None));
        let mut rows: Vec<_> = all.filter(|row| row.2.dead).map(outbox_row).collect();
        rows.sort_by_key(|row| row.record.not_before);
        page(rows.into_iter(), limit)
    }

    pub(super) fn notifications(
        &self,
        pipeline: &PipelineId,
        after: Option<&str>,
        limit: usize,
    ) -> Page<OutboxRow> {
        page(self.outbox_after(pipeline, after).map(outbox_row), limit)
    }

    /// The notifications of a pipeline by name, after one.
    fn outbox_after<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        after: Option<&str>,
    ) -> impl Iterator<Item = StoredOutbox<'a>> {
        let key = |name: &str| Key::Outbox(name.to_owned());
        let first = after.map_or(Bound::Included(key("")), |name| Bound::Excluded(key(name)));
        let rows = self.rows.get(pipeline).into_iter();
        let rows = rows.flat_map(move |rows| rows.range((first.clone(), Bound::Unbounded)));
        rows.map_while(move |(key, row)| match (key, &row.record) {
            (Key::Outbox(name), Record::Outbox(record)) => {
                Some((pipeline, name.as_str(), record.as_ref(), row.revision))
            }
            _ => None,
        })
    }

    fn keep(&mut self, row: &OutboxRow) {
        let record = Record::Outbox(row.record.clone().into());
        self.set(&row.pipeline, Key::Outbox(row.name.clone()), record, |_| row.revision);
    }
}

/// A notification with its address and revision.
type StoredOutbox<'a> = (&'a PipelineId, &'a str, &'a OutboxRecord, u64);

fn outbox_row((pipeline, name, record, revision): StoredOutbox<'_>) -> OutboxRow {
    let (pipeline, name, record) = (pipeline.clone(), name.to_owned(), record.clone());
    OutboxRow { pipeline, name, record, revision }
}

fn is_free(record: &OutboxRecord, now: Timestamp) -> bool {
    let OutboxRecord { not_before, claimed_until, dead, .. } = record;
    !dead && *not_before <= now && claimed_until.is_none_or(|until| until <= now)
}
