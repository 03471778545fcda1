//! The rows in the orders in which they are asked for, kept with every change of a row.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use interlock_core::id::{PipelineId, ScheduleId};
use jiff::Timestamp;

use super::state::State;
use crate::{
    contract::Row,
    key::{DueKind, Key},
    record::{Record, SlotRecord},
};

/// What the rows are listed by.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Lists {
    /// Invariant: the slots among the rows that are open, each with its revision. They are read far more often than
    /// they change.
    pub(super) open: BTreeMap<(PipelineId, Timestamp, ScheduleId), (Arc<SlotRecord>, u64)>,
    /// Invariant: the due entries among the rows.
    pub(super) due: BTreeSet<(Timestamp, PipelineId, DueKind, String)>,
    /// Invariant: the notifications among the rows that may be claimed one day.
    pub(super) outbox: BTreeSet<(Timestamp, PipelineId, String)>,
}

impl Lists {
    /// A row changes, comes or goes.
    fn change(
        &mut self,
        (pipeline, key): (&PipelineId, &Key),
        before: Option<&Record>,
        after: Option<&Row<Record>>,
    ) {
        match key {
            Key::Slot(schedule, nominal) => {
                let place = (pipeline.clone(), *nominal, schedule.clone());
                match after {
                    Some(Row { record: Record::Slot(slot), revision }) if slot.is_open() => {
                        self.open.insert(place, (Arc::clone(slot), *revision));
                    }
                    Some(_) | None => {
                        self.open.remove(&place);
                    }
                }
            }
            Key::Due(at, kind, name) => {
                let place = (*at, pipeline.clone(), *kind, name.clone());
                if after.is_some() {
                    self.due.insert(place);
                } else {
                    self.due.remove(&place);
                }
            }
            Key::Outbox(name) => {
                let place = |not_before: Timestamp| (not_before, pipeline.clone(), name.clone());
                if let Some(Record::Outbox(before)) = before {
                    self.outbox.remove(&place(before.not_before));
                }
                if let Some(Row { record: Record::Outbox(record), .. }) = after
                    && !record.dead
                {
                    self.outbox.insert(place(record.not_before));
                }
            }
            Key::Pipeline
            | Key::Version(_)
            | Key::Watermark(_)
            | Key::Span(..)
            | Key::Run(_)
            | Key::Sensor(_)
            | Key::Incident(_)
            | Key::Applied(_)
            | Key::Backfill(_) => {}
        }
    }
}

impl State {
    /// Makes a row what it is from now on; its revision follows from the one before, 0 if there was none.
    pub(super) fn set(
        &mut self,
        pipeline: &PipelineId,
        key: Key,
        record: Record,
        revision: impl FnOnce(u64) -> u64,
    ) {
        use std::collections::btree_map::Entry;
        let Self { rows, lists, .. } = self;
        let rows = rows.entry(pipeline.clone()).or_default();
        match rows.entry(key) {
            Entry::Occupied(mut known) => {
                let row = Row { record, revision: revision(known.get().revision) };
                let before = known.insert(row);
                lists.change((pipeline, known.key()), Some(&before.record), Some(known.get()));
            }
            Entry::Vacant(empty) => {
                let row = Row { record, revision: revision(0) };
                lists.change((pipeline, empty.key()), None, Some(&row));
                empty.insert(row);
            }
        }
    }

    /// Takes a row out, if it is there.
    pub(super) fn unset(&mut self, pipeline: &PipelineId, key: &Key) {
        let found = self.rows.get_mut(pipeline).and_then(|rows| rows.remove(key));
        if let Some(row) = found {
            self.lists.change((pipeline, key), Some(&row.record), None);
        }
    }
}
