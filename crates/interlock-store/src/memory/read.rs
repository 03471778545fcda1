//! What is asked of the engine in memory.

use std::{cmp::Reverse, collections::BTreeMap};

use interlock_core::id::{PipelineId, ScheduleId};
use jiff::Timestamp;

use super::state::State;
use crate::{
    contract::{
        AgendaRow, BackfillQuery, BackfillRow, DueRow, EventRow, LedgerEntry, LedgerQuery,
        LedgerRow, Page, Row, RunQuery, RunRow, Shard,
    },
    key::Key,
    record::{IncidentRecord, Record, SensorRecord},
};

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
            let row = Row { record: record.clone(), revision: row.revision };
            Some((name.clone(), dedup.clone(), row))
        }
        _ => None,
    }
}

impl State {
    pub(super) fn row(&self, pipeline: &PipelineId, key: &Key) -> Option<Row<Record>> {
        self.rows.get(pipeline)?.get(key).cloned()
    }

    /// The rows of one pipeline or of all.
    fn rows_of<'a>(
        &'a self,
        pipeline: Option<&'a PipelineId>,
    ) -> impl Iterator<Item = (&'a PipelineId, &'a Key, &'a Row<Record>)> {
        let one = pipeline.and_then(|wanted| self.rows.get_key_value(wanted));
        let all = self.rows.iter().filter(move |_| pipeline.is_none());
        one.into_iter()
            .chain(all)
            .flat_map(|(name, rows)| rows.iter().map(move |(key, row)| (name, key, row)))
    }

    fn rows_in(&self, shard: Shard) -> impl Iterator<Item = (&PipelineId, &Key, &Row<Record>)> {
        self.rows_of(None).filter(move |(name, ..)| Shard::of(name, self.shard_count) == shard)
    }

    pub(super) fn agenda(
        &self,
        shard: Shard,
        after: Option<&PipelineId>,
        limit: usize,
    ) -> Page<AgendaRow> {
        let wanted = |name: &PipelineId| {
            Shard::of(name, self.shard_count) == shard && after.is_none_or(|after| name > after)
        };
        let rows = self.rows.iter().filter(|(name, _)| wanted(name));
        page(rows.filter_map(|(name, rows)| agenda_row(name, rows)), limit)
    }

    pub(super) fn ledger(&self, query: &LedgerQuery) -> Page<LedgerRow> {
        let rows = self.rows_of(query.pipeline.as_ref()).filter(|(_, key, row)| {
            // A row is copied only if it may be asked for.
            is_in_time(query, key, &row.record)
        });
        let rows = rows.filter_map(ledger_row);
        let mut found: Vec<LedgerRow> = rows.filter(|row| is_asked_for(query, row)).collect();
        found.sort_by_cached_key(LedgerRow::place);
        page(found.into_iter(), query.limit)
    }

    pub(super) fn open_slots(
        &self,
        shard: Shard,
        after: Option<&(PipelineId, Timestamp, ScheduleId)>,
        limit: usize,
    ) -> Page<LedgerRow> {
        let place = |row: &LedgerRow| (row.pipeline.clone(), row.nominal, row.schedule.clone());
        let mut found: Vec<LedgerRow> = self
            .rows_in(shard)
            .filter(|(.., row)| matches!(&row.record, Record::Slot(slot) if slot.is_open()))
            .filter_map(ledger_row)
            .filter(|row| after.is_none_or(|after| place(row) > *after))
            .collect();
        found.sort_by_cached_key(place);
        page(found.into_iter(), limit)
    }

    pub(super) fn runs(&self, query: &RunQuery) -> Page<RunRow> {
        let is_of = |key: &Key| match (key, &query.slot) {
            (Key::Run(run), Some((schedule, nominal))) => {
                run.nominal == *nominal && run.schedule == *schedule
            }
            (Key::Run(_), None) => true,
            _ => false,
        };
        let rows = self.rows_of(query.pipeline.as_ref()).filter(|(_, key, _)| is_of(key));
        let rows = rows.filter_map(run_row);
        let mut found: Vec<RunRow> = rows.filter(|row| is_run_asked_for(query, row)).collect();
        found.sort_by_cached_key(|row| Reverse(row.place()));
        page(found.into_iter(), query.limit)
    }

    pub(super) fn sensors(&self, pipeline: &PipelineId) -> BTreeMap<String, Row<SensorRecord>> {
        let rows = self.rows_of(Some(pipeline));
        rows.filter_map(|(_, key, row)| match (key, &row.record) {
            (Key::Sensor(name), Record::Sensor(record)) => {
                Some((name.clone(), Row { record: record.clone(), revision: row.revision }))
            }
            _ => None,
        })
        .collect()
    }

    pub(super) fn incidents(
        &self,
        pipeline: Option<&PipelineId>,
        limit: usize,
    ) -> Page<IncidentRow> {
        let mut found: Vec<_> = self.rows_of(pipeline).filter_map(incident_row).collect();
        found.sort_by_key(|(.., row)| Reverse(row.record.opened_at));
        page(found.into_iter(), limit)
    }

    pub(super) fn open_incidents(
        &self,
        shard: Shard,
        after: Option<&(PipelineId, String)>,
        limit: usize,
    ) -> Page<IncidentRow> {
        let is_later = |name: &PipelineId, key: &str| {
            after.is_none_or(|(last, last_key)| (name, key) > (last, last_key.as_str()))
        };
        let rows = self.rows_in(shard).filter(
            |(.., row)| matches!(&row.record, Record::Incident(incident) if incident.is_open()),
        );
        let rows = rows.filter_map(incident_row);
        let open =
            rows.filter(|(name, key, row)| row.record.is_open() && is_later(name, key.as_str()));
        page(open, limit)
    }

    pub(super) fn backfills(&self, query: &BackfillQuery) -> Page<BackfillRow> {
        let rows = self.rows_of(query.pipeline.as_ref()).filter_map(backfill_row);
        let wanted = |row: &BackfillRow| {
            let is_later =
                |(name, number): &(PipelineId, u64)| (&row.pipeline, row.number) > (name, *number);
            query.shard.is_none_or(|shard| Shard::of(&row.pipeline, self.shard_count) == shard)
                && (!query.unfinished || row.record.is_unfinished())
                && query.after.as_ref().is_none_or(is_later)
        };
        page(rows.filter(wanted), query.limit)
    }

    pub(super) fn events(
        &self,
        pipeline: Option<&PipelineId>,
        after: u64,
        limit: usize,
    ) -> Page<EventRow> {
        let first = self.events.partition_point(|row| row.number <= after);
        let later = self.events.iter().skip(first);
        let wanted = |row: &&EventRow| pipeline.is_none_or(|name| row.pipeline == *name);
        page(later.filter(wanted).cloned(), limit)
    }

    pub(super) fn due(&self, shard: Shard, until: Timestamp, limit: usize) -> Page<DueRow> {
        let rows = self.rows_in(shard).filter_map(due_row);
        let mut found: Vec<DueRow> = rows.filter(|row| row.at <= until).collect();
        found.sort_by_key(|row| row.at);
        page(found.into_iter(), limit)
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

fn agenda_row(pipeline: &PipelineId, rows: &BTreeMap<Key, Row<Record>>) -> Option<AgendaRow> {
    let own = rows.get(&Key::Pipeline)?;
    let Record::Pipeline(record) = &own.record else { return None };
    let watermarks = rows.iter().filter_map(|(key, row)| match (key, &row.record) {
        (Key::Watermark(schedule), Record::Watermark(record)) => {
            Some((schedule.clone(), Row { record: *record, revision: row.revision }))
        }
        _ => None,
    });
    Some(AgendaRow {
        pipeline: pipeline.clone(),
        record: Row { record: record.clone(), revision: own.revision },
        watermarks: watermarks.collect(),
    })
}

fn ledger_row((pipeline, key, row): (&PipelineId, &Key, &Row<Record>)) -> Option<LedgerRow> {
    let (schedule, nominal, entry) = match (key, &row.record) {
        (Key::Slot(schedule, nominal), Record::Slot(slot)) => {
            (schedule, nominal, LedgerEntry::Slot(slot.clone()))
        }
        (Key::Span(schedule, first), Record::Span(span)) => {
            (schedule, first, LedgerEntry::Span(span.clone()))
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

fn is_in_time(query: &LedgerQuery, key: &Key, record: &Record) -> bool {
    match (key, record) {
        (Key::Slot(_, at), Record::Slot(slot)) => {
            let is_wanted = query.disposition.as_deref() != Some("open") || slot.is_open();
            *at < query.until && *at >= query.from && is_wanted
        }
        (Key::Span(_, first), Record::Span(span)) => {
            *first < query.until && span.last >= query.from
        }
        _ => false,
    }
}

fn is_asked_for(query: &LedgerQuery, row: &LedgerRow) -> bool {
    let (last, disposition) = match &row.entry {
        LedgerEntry::Slot(slot) if slot.is_open() => (row.nominal, Some("open")),
        LedgerEntry::Slot(slot) => (row.nominal, slot.disposition.as_deref()),
        LedgerEntry::Span(span) => (span.last, Some(span.disposition.as_str())),
    };
    row.nominal < query.until
        && last >= query.from
        && query.disposition.as_deref().is_none_or(|word| disposition == Some(word))
        && query.after.as_ref().is_none_or(|after| row.place() > *after)
}

fn run_row((pipeline, key, row): (&PipelineId, &Key, &Row<Record>)) -> Option<RunRow> {
    let (Key::Run(key), Record::Run(record)) = (key, &row.record) else { return None };
    Some(RunRow {
        pipeline: pipeline.clone(),
        key: key.clone(),
        record: record.clone(),
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
