//! What is asked of the engine in memory.

use std::{cmp::Reverse, collections::BTreeMap, ops::Bound, sync::Arc};

use interlock_core::id::{PipelineId, ScheduleId};
use jiff::Timestamp;

use super::state::State;
use crate::{
    contract::{
        AgendaRow, BackfillQuery, BackfillRow, DueRow, EventQuery, EventRow, IncidentPlace,
        IncidentQuery, LedgerEntry, LedgerPlace, LedgerQuery, LedgerRow, ListOrder, Page, Row,
        RunQuery, RunRow, Shard,
    },
    key::{Key, RunKey},
    record::{IncidentRecord, Record, SensorRecord},
};

/// The rows of one pipeline.
type Rows = BTreeMap<Key, Row<Record>>;

/// A row with its address.
type Stored<'a> = (&'a PipelineId, &'a Key, &'a Row<Record>);

/// The first so many of what there is, and whether there is more.
pub(super) fn page<T>(items: impl Iterator<Item = T>, limit: usize) -> Page<T> {
    let mut items = items.fuse();
    let first = items.by_ref().take(limit).collect();
    Page { items: first, more: items.next().is_some() }
}

/// An incident with its address.
type IncidentRow = (PipelineId, String, Row<IncidentRecord>);

fn incident_row((name, key, row): (&PipelineId, &Key, &Row<Record>)) -> Option<IncidentRow> {
    match (key, &row.record) {
        (Key::Incident(dedup), Record::Incident(record)) => {
            let row = Row { record: record.as_ref().clone(), revision: row.revision };
            Some((name.clone(), dedup.clone(), row))
        }
        _ => None,
    }
}

impl State {
    pub(super) fn row(&self, pipeline: &PipelineId, key: &Key) -> Option<Row<Record>> {
        self.rows.get(pipeline)?.get(key).cloned()
    }

    /// One pipeline with its rows, or all.
    fn pipelines<'a>(
        &'a self,
        only: Option<&'a PipelineId>,
    ) -> impl Iterator<Item = (&'a PipelineId, &'a Rows)> {
        let one = only.and_then(|wanted| self.rows.get_key_value(wanted));
        one.into_iter().chain(self.rows.iter().filter(move |_| only.is_none()))
    }

    fn is_in(&self, name: &PipelineId, shard: Shard) -> bool {
        self.shard_count <= 1 || Shard::of(name, self.shard_count) == shard
    }

    fn pipelines_in(&self, shard: Shard) -> impl Iterator<Item = (&PipelineId, &Rows)> {
        self.rows.iter().filter(move |(name, _)| self.is_in(name, shard))
    }

    fn pipelines_after<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a PipelineId>,
    ) -> impl Iterator<Item = (&'a PipelineId, &'a Rows)> {
        self.pipelines_in(shard).filter(move |(name, _)| after.is_none_or(|after| *name > after))
    }

    pub(super) fn agenda(
        &self,
        shard: Shard,
        after: Option<&PipelineId>,
        limit: usize,
    ) -> Page<AgendaRow> {
        let rows = self.pipelines_after(shard, after);
        page(rows.filter_map(|(name, rows)| agenda_row(name, rows)), limit)
    }

    pub(super) fn revisions(
        &self,
        shard: Shard,
        after: Option<&PipelineId>,
        limit: usize,
    ) -> Page<(PipelineId, u64)> {
        let rows = self.pipelines_after(shard, after);
        let own = rows.filter_map(|(name, rows)| {
            rows.get(&Key::Pipeline).map(|row| (name.clone(), row.revision))
        });
        page(own, limit)
    }

    pub(super) fn ledger(&self, query: &LedgerQuery) -> Page<LedgerRow> {
        let rows = self.pipelines(query.pipeline.as_ref()).flat_map(|(name, rows)| {
            let slots = slots_between(rows, query.from, query.until);
            slots.chain(spans(rows)).map(move |(key, row)| (name, key, row))
        });
        // A row is copied only if it is on the page.
        let mut found: Vec<Stored<'_>> = rows.filter(|row| is_asked_for(query, row)).collect();
        found.sort_by_key(|&(name, key, _)| listed(name, key));
        if query.order == ListOrder::NewestFirst {
            found.reverse();
        }
        page(found.into_iter().filter_map(ledger_row), query.limit)
    }

    pub(super) fn open_slots(
        &self,
        shard: Shard,
        after: Option<&(PipelineId, Timestamp, ScheduleId)>,
        limit: usize,
    ) -> Page<LedgerRow> {
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        let open = self.lists.open.range((first, Bound::Unbounded));
        let open = open.filter(|((name, ..), _)| self.is_in(name, shard));
        let rows = open.map(|((name, nominal, schedule), (slot, revision))| LedgerRow {
            pipeline: name.clone(),
            schedule: schedule.clone(),
            nominal: *nominal,
            entry: LedgerEntry::Slot(Arc::clone(slot)),
            revision: *revision,
        });
        page(rows, limit)
    }

    pub(super) fn runs(&self, query: &RunQuery) -> Page<RunRow> {
        let (schedule, nominal) =
            query.slot.clone().unwrap_or((ScheduleId::from_static(""), Timestamp::MIN));
        let first = Key::Run(RunKey { schedule, nominal, generation: 0, attempt: 0 });
        let is_of = |key: &Key| match (key, &query.slot) {
            (Key::Run(run), Some((schedule, nominal))) => {
                run.nominal == *nominal && run.schedule == *schedule
            }
            (Key::Run(_), None) => true,
            _ => false,
        };
        let rows = self.pipelines(query.pipeline.as_ref()).flat_map(|(name, rows)| {
            let runs = rows.range(&first..).take_while(|(key, _)| is_of(key));
            runs.map(move |(key, row)| (name, key, row))
        });
        let rows = rows.filter_map(run_row);
        let mut found: Vec<RunRow> = rows.filter(|row| is_run_asked_for(query, row)).collect();
        found.sort_by_cached_key(|row| Reverse(row.place()));
        page(found.into_iter(), query.limit)
    }

    pub(super) fn sensors(&self, pipeline: &PipelineId) -> BTreeMap<String, Row<SensorRecord>> {
        let rows = self.rows.get(pipeline).into_iter();
        let rows = rows.flat_map(|rows| rows.range(Key::Sensor(String::new())..));
        rows.map_while(|(key, row)| match (key, &row.record) {
            (Key::Sensor(name), Record::Sensor(record)) => Some((
                name.clone(),
                Row { record: record.as_ref().clone(), revision: row.revision },
            )),
            _ => None,
        })
        .collect()
    }

    pub(super) fn incidents(&self, query: &IncidentQuery) -> Page<IncidentRow> {
        let rows = self.pipelines(query.pipeline.as_ref());
        let rows = rows.flat_map(|(name, rows)| incident_rows(name, rows, ""));
        let is_asked_for = |row: &IncidentRow| {
            query.is_open.is_none_or(|is_open| row.2.record.is_open() == is_open)
                && query.after.as_ref().is_none_or(|after| IncidentPlace::of(row) < *after)
        };
        let mut found: Vec<_> = rows.filter_map(incident_row).filter(is_asked_for).collect();
        found.sort_by_cached_key(|row| Reverse(IncidentPlace::of(row)));
        page(found.into_iter(), query.limit)
    }

    pub(super) fn open_incidents(
        &self,
        shard: Shard,
        after: Option<&(PipelineId, String)>,
        limit: usize,
    ) -> Page<IncidentRow> {
        let rows = self.pipelines_in(shard).flat_map(|(name, rows)| {
            let first = after.filter(|(last, _)| last == name).map_or("", |(_, key)| key.as_str());
            incident_rows(name, rows, first)
        });
        let is_later = |name: &PipelineId, key: &Key| match (after, key) {
            (Some((last, last_key)), Key::Incident(key)) => (name, key) > (last, last_key),
            _ => true,
        };
        let open = rows.filter(|(name, key, row)| {
            matches!(&row.record, Record::Incident(incident) if incident.is_open())
                && is_later(name, key)
        });
        page(open.filter_map(incident_row), limit)
    }

    pub(super) fn backfills(&self, query: &BackfillQuery) -> Page<BackfillRow> {
        let rows = self.pipelines(query.pipeline.as_ref()).flat_map(|(name, rows)| {
            rows.range(Key::Backfill(0)..).map(move |(key, row)| (name, key, row))
        });
        let rows = rows.filter_map(backfill_row);
        let wanted = |row: &BackfillRow| {
            let is_later =
                |(name, number): &(PipelineId, u64)| (&row.pipeline, row.number) > (name, *number);
            query.shard.is_none_or(|shard| Shard::of(&row.pipeline, self.shard_count) == shard)
                && (!query.unfinished || row.record.is_unfinished())
                && query.after.as_ref().is_none_or(is_later)
        };
        page(rows.filter(wanted), query.limit)
    }

    pub(super) fn events(&self, query: &EventQuery) -> Page<EventRow> {
        let EventQuery { pipeline, after, before, order, limit } = query;
        let first = self.events.partition_point(|row| row.number <= *after);
        let end = self.events.partition_point(|row| row.number < *before).max(first);
        let asked = self.events.range(first..end);
        let wanted = |row: &&EventRow| pipeline.as_ref().is_none_or(|name| row.pipeline == *name);
        match order {
            ListOrder::OldestFirst => page(asked.filter(wanted).cloned(), *limit),
            ListOrder::NewestFirst => page(asked.rev().filter(wanted).cloned(), *limit),
        }
    }

    pub(super) fn due(&self, shard: Shard, until: Timestamp, limit: usize) -> Page<DueRow> {
        let due = self.lists.due.iter().take_while(|(at, ..)| *at <= until);
        let due = due.filter(|(_, name, ..)| self.is_in(name, shard));
        let rows = due.filter_map(|(at, name, kind, about)| {
            let key = Key::Due(*at, *kind, about.clone());
            let (key, row) = self.rows.get(name)?.get_key_value(&key)?;
            due_row((name, key, row))
        });
        page(rows, limit)
    }
}

fn backfill_row((name, key, row): (&PipelineId, &Key, &Row<Record>)) -> Option<BackfillRow> {
    let (Key::Backfill(number), Record::Backfill(record)) = (key, &row.record) else { return None };
    Some(BackfillRow {
        pipeline: name.clone(),
        number: *number,
        record: (**record).clone(),
        revision: row.revision,
    })
}

/// The slots of a pipeline between two instants, schedule by schedule: of each only those that lie there are walked.
fn slots_between(
    rows: &Rows,
    from: Timestamp,
    until: Timestamp,
) -> impl Iterator<Item = (&Key, &Row<Record>)> {
    let mut after = Key::Slot(ScheduleId::from_static(""), Timestamp::MIN);
    let schedules = std::iter::from_fn(move || {
        let (found, _) = rows.range((Bound::Excluded(&after), Bound::Unbounded)).next()?;
        let Key::Slot(schedule, _) = found else { return None };
        after = Key::Slot(schedule.clone(), Timestamp::MAX);
        Some(schedule)
    });
    schedules.flat_map(move |schedule| {
        let first = Key::Slot(schedule.clone(), from);
        let theirs = rows.range(first..);
        theirs.take_while(
            move |(key, _)| matches!(key, Key::Slot(id, at) if id == schedule && *at < until),
        )
    })
}

fn spans(rows: &Rows) -> impl Iterator<Item = (&Key, &Row<Record>)> {
    let first = Key::Span(ScheduleId::from_static(""), Timestamp::MIN);
    rows.range(first..).take_while(|(key, _)| matches!(key, Key::Span(..)))
}

/// The incidents of a pipeline from a dedup key on.
fn incident_rows<'a>(
    name: &'a PipelineId,
    rows: &'a Rows,
    first: &str,
) -> impl Iterator<Item = (&'a PipelineId, &'a Key, &'a Row<Record>)> {
    let incidents = rows.range(Key::Incident(first.to_owned())..);
    let incidents = incidents.take_while(|(key, _)| matches!(key, Key::Incident(_)));
    incidents.map(move |(key, row)| (name, key, row))
}

fn agenda_row(pipeline: &PipelineId, rows: &Rows) -> Option<AgendaRow> {
    let own = rows.get(&Key::Pipeline)?;
    let Record::Pipeline(record) = &own.record else { return None };
    let watermarks = rows.range(Key::Watermark(ScheduleId::from_static(""))..);
    let watermarks = watermarks.map_while(|(key, row)| match (key, &row.record) {
        (Key::Watermark(schedule), Record::Watermark(record)) => {
            Some((schedule.clone(), Row { record: *record, revision: row.revision }))
        }
        _ => None,
    });
    Some(AgendaRow {
        pipeline: pipeline.clone(),
        record: Row { record: record.as_ref().clone(), revision: own.revision },
        watermarks: watermarks.collect(),
    })
}

fn ledger_row((pipeline, key, row): (&PipelineId, &Key, &Row<Record>)) -> Option<LedgerRow> {
    let (schedule, nominal, entry) = match (key, &row.record) {
        (Key::Slot(schedule, nominal), Record::Slot(slot)) => {
            (schedule, nominal, LedgerEntry::Slot(slot.clone()))
        }
        (Key::Span(schedule, first), Record::Span(span)) => {
            (schedule, first, LedgerEntry::Span(span.as_ref().clone()))
        }
        _ => return None,
    };
    Some(LedgerRow {
        pipeline: pipeline.clone(),
        schedule: schedule.clone(),
        nominal: *nominal,
        entry,
        revision: row.revision,
    })
}

/// The place of a slot or a span among all that are listed, as [`LedgerRow::place`] says it.
fn listed<'a>(
    name: &'a PipelineId,
    key: &'a Key,
) -> (Timestamp, &'a PipelineId, Option<&'a ScheduleId>, bool) {
    if let Key::Slot(schedule, at) = key {
        (*at, name, Some(schedule), false)
    } else if let Key::Span(schedule, first) = key {
        (*first, name, Some(schedule), true)
    } else {
        (Timestamp::MIN, name, None, false)
    }
}

fn is_asked_for(query: &LedgerQuery, (name, key, row): &Stored<'_>) -> bool {
    let (last, disposition) = match (key, &row.record) {
        (Key::Slot(_, at), Record::Slot(slot)) if slot.is_open() => (*at, Some("open")),
        (Key::Slot(_, at), Record::Slot(slot)) => (*at, slot.disposition.as_deref()),
        (Key::Span(..), Record::Span(span)) => (span.last, Some(span.disposition.as_str())),
        _ => return false,
    };
    let place = listed(name, key);
    let is_later = |after: &LedgerPlace| {
        let after = (after.nominal, &after.pipeline, Some(&after.schedule), after.is_span);
        match query.order {
            ListOrder::OldestFirst => place > after,
            ListOrder::NewestFirst => place < after,
        }
    };
    place.0 < query.until
        && last >= query.from
        && query.disposition.as_deref().is_none_or(|word| disposition == Some(word))
        && query.after.as_ref().is_none_or(is_later)
}

fn run_row((pipeline, key, row): (&PipelineId, &Key, &Row<Record>)) -> Option<RunRow> {
    let (Key::Run(key), Record::Run(record)) = (key, &row.record) else { return None };
    Some(RunRow {
        pipeline: pipeline.clone(),
        key: key.clone(),
        record: record.as_ref().clone(),
        revision: row.revision,
    })
}

fn is_run_asked_for(query: &RunQuery, row: &RunRow) -> bool {
    let is_of = |(schedule, nominal): &(ScheduleId, Timestamp)| {
        row.key.schedule == *schedule && row.key.nominal == *nominal
    };
    query.slot.as_ref().is_none_or(is_of)
        && query.status.as_ref().is_none_or(|status| row.record.status == *status)
        && query.trigger_type.as_ref().is_none_or(|kind| row.record.trigger_type == *kind)
        && query.after.as_ref().is_none_or(|after| row.place() < *after)
}

fn due_row((pipeline, key, row): (&PipelineId, &Key, &Row<Record>)) -> Option<DueRow> {
    let (Key::Due(at, kind, name), Record::Due(record)) = (key, &row.record) else { return None };
    Some(DueRow {
        pipeline: pipeline.clone(),
        at: *at,
        kind: *kind,
        name: name.clone(),
        record: record.clone(),
    })
}
