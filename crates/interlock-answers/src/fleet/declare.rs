//! How the follower takes over what is declared: pipelines' rows and how far their schedules are recorded.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    AgendaRow, Key, Record, Row, RowsQuery, Shard, Store, StoreError, read_batches,
    record::PipelineRecord,
};
use jiff::Timestamp;

use super::{
    follow::{FleetFollower, PIPELINES_AT_ONCE},
    read::read_revisions,
    table::FleetTable,
    tallied::{DeclarationParts, StoredPipeline, TalliedDeclaration, TalliedPipeline},
};

/// Pipelines' rows that are read at once.
const ROWS_AT_ONCE: usize = 1_000;

impl FleetFollower {
    /// Reads what is declared of all pipelines.
    pub(super) async fn declare_all(
        &mut self,
        table: &mut FleetTable,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let store = Arc::clone(&self.store);
        let mut listed = BTreeSet::new();
        for shard in (0..store.shard_count()).map(Shard) {
            let mut after = None;
            loop {
                // Page by page: a row as it is stored is many times what is kept of it.
                match store.agenda(shard, after.as_ref(), ROWS_AT_ONCE).await {
                    Ok(page) => {
                        after = page.items.last().map(|row| row.pipeline.clone());
                        for row in page.items {
                            self.declare_stored(table, &row, now);
                            listed.insert(row.pipeline);
                        }
                        if !page.more {
                            break;
                        }
                    }
                    Err(error) if error.is_retryable => return Err(error),
                    // One of them cannot be read: each by itself, then.
                    Err(_unreadable) => {
                        let revisions = read_revisions(&*store, shard).await?;
                        let names: Vec<_> = revisions.into_iter().map(|(name, _)| name).collect();
                        for chunk in names.chunks(PIPELINES_AT_ONCE) {
                            let rows = self.read_rows(chunk).await?;
                            self.take_rows(table, rows, now);
                        }
                        listed.extend(names);
                        break;
                    }
                }
            }
        }
        table.keep_only(&listed);
        self.shared.sweep();
        Ok(())
    }

    fn declare_stored(&mut self, table: &mut FleetTable, row: &AgendaRow, now: Timestamp) {
        let marks = |id: &ScheduleId| Some(row.watermarks.get(id)?.record.at);
        let Row { record, revision } = &row.record;
        let stored = StoredPipeline { name: &row.pipeline, record, revision: *revision };
        self.declare(table, stored, marks, now);
    }

    /// Takes over a pipeline's row. Says whether its slots have to be counted anew.
    fn declare(
        &mut self,
        table: &mut FleetTable,
        row: StoredPipeline<'_>,
        watermark: impl Fn(&ScheduleId) -> Option<Timestamp>,
        now: Timestamp,
    ) -> bool {
        let name = row.name;
        if *name == PipelineId::system() {
            return false;
        }
        if let Some(known) = table.pipeline(name)
            && known.declared.revision == row.revision
        {
            if !known.is_recorded_to(&watermark) {
                table.change(name, now, |known| known.recorded_to(watermark));
            }
            return false;
        }
        let zones = |zone: &str| self.declarations.zone(zone);
        let mut parts = DeclarationParts { shared: &mut self.shared, zones: &zones };
        let Some((declared, problem)) = parts.declaration(row, watermark) else {
            table.remove(name);
            table.unreadable.remove(name);
            return false;
        };
        match problem {
            Some(problem) => drop(table.unreadable.insert(name.clone(), problem)),
            None => drop(table.unreadable.remove(name)),
        }
        if let Some(known) = table.pipeline(name) {
            let is_other = starts_differ(&known.declared, &declared);
            table.change(name, now, |known| known.declare(declared));
            return is_other;
        }
        table.insert(name, TalliedPipeline::new(declared), now);
        true
    }

    /// The rows of some pipelines with their watermarks; a sentence for one that cannot be read.
    pub(super) async fn read_rows(
        &self,
        names: &[PipelineId],
    ) -> Result<Vec<FoundPipeline>, StoreError> {
        let store = &*self.store;
        let rows: Vec<_> = names.iter().map(|name| query(name, vec![Key::Pipeline])).collect();
        let records = read_each(store, &rows).await?;
        let mut found = Vec::with_capacity(names.len());
        let mut marks = Vec::new();
        for (name, record) in names.iter().zip(records) {
            let row = record.map(|rows| {
                let row = rows.into_iter().next().flatten()?;
                let Record::Pipeline(record) = row.record else { return None };
                let record = Arc::unwrap_or_clone(record);
                marks.push(query(name, watermark_keys(&record)));
                Some(DeclaredRow { record, revision: row.revision, watermarks: BTreeMap::new() })
            });
            found.push(FoundPipeline { name: name.clone(), row });
        }
        let mut watermarks = marks.iter().zip(read_each(store, &marks).await?);
        for FoundPipeline { row, .. } in &mut found {
            let Ok(Some(row)) = row else { continue };
            let Some((asked, Ok(found))) = watermarks.next() else { continue };
            for (key, found) in asked.keys.iter().zip(found) {
                if let (Key::Watermark(id), Some(Record::Watermark(mark))) =
                    (key, found.map(|row| row.record))
                {
                    row.watermarks.insert(id.clone(), mark.at);
                }
            }
        }
        Ok(found)
    }

    /// Takes over rows that were read again. Says whose slots have to be counted anew.
    pub(super) fn take_rows(
        &mut self,
        table: &mut FleetTable,
        rows: Vec<FoundPipeline>,
        now: Timestamp,
    ) -> BTreeSet<PipelineId> {
        let mut anew = BTreeSet::new();
        for FoundPipeline { name, row } in rows {
            match row {
                Ok(Some(row)) => {
                    let marks = |id: &ScheduleId| row.watermarks.get(id).copied();
                    let DeclaredRow { record, revision, .. } = &row;
                    let record = StoredPipeline { name: &name, record, revision: *revision };
                    if self.declare(table, record, marks, now) {
                        anew.insert(name);
                    }
                }
                Ok(None) => table.remove(&name),
                Err(problem) => drop(table.unreadable.insert(name, problem)),
            }
        }
        anew
    }
}

/// A pipeline's row with its watermarks.
pub(super) struct DeclaredRow {
    record: PipelineRecord,
    revision: u64,
    watermarks: BTreeMap<ScheduleId, Timestamp>,
}

/// What was found of a pipeline: no row of one that has gone, and a sentence for one that cannot be read.
pub(super) struct FoundPipeline {
    name: PipelineId,
    row: Result<Option<DeclaredRow>, String>,
}

fn starts_differ(one: &TalliedDeclaration, other: &TalliedDeclaration) -> bool {
    let starts = |declared: &TalliedDeclaration| {
        declared.schedules.iter().map(|it| Arc::clone(&it.start)).collect::<Vec<_>>()
    };
    one.revision != other.revision && starts(one) != starts(other)
}

fn query(name: &PipelineId, keys: Vec<Key>) -> RowsQuery {
    RowsQuery { pipeline: name.clone(), keys }
}

fn watermark_keys(record: &PipelineRecord) -> Vec<Key> {
    let starts = record.agenda.iter().flat_map(|agenda| agenda.starts.iter());
    let ids = starts.filter_map(|start| ScheduleId::any(&start.schedule.id).ok());
    ids.map(Key::Watermark).collect()
}

/// Rows of many pipelines; of those that cannot be read a sentence each.
async fn read_each(
    store: &dyn Store,
    asked: &[RowsQuery],
) -> Result<Vec<Result<interlock_store::FoundRows, String>>, StoreError> {
    let mut found = Vec::with_capacity(asked.len());
    for batch in read_batches(asked) {
        match store.read_many(batch).await {
            Ok(rows) => found.extend(rows.into_iter().map(Ok)),
            Err(error) if error.is_retryable => return Err(error),
            Err(_unreadable) => {
                for query in batch {
                    match store.read(&query.pipeline, &query.keys).await {
                        Ok(rows) => found.push(Ok(rows)),
                        Err(error) if error.is_retryable => return Err(error),
                        Err(error) => found.push(Err(error.message)),
                    }
                }
            }
        }
    }
    Ok(found)
}
