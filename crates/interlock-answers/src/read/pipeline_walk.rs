//! Pipelines by name, over all shards: what is recorded, and what is only declared.

use std::collections::{BTreeMap, VecDeque};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    AgendaRow, Key, Record, Row, Shard, Store, StoreError, for_each,
    record::{PipelineRecord, WatermarkRecord},
};

use crate::{Reader, model::pipeline::DeclaredAnswer};

/// Rows asked of a shard at once, at most.
const PORTION_MAX: usize = 1_000;
/// Rows asked of a shard at once, at least: of many shards each has a few of a page.
const PORTION_MIN: usize = 8;

/// A pipeline that is declared or recorded.
#[derive(Debug, Clone)]
pub(crate) struct ListedPipeline {
    pub(crate) name: PipelineId,
    /// What is recorded of it.
    pub(crate) row: Option<AgendaRow>,
}

/// Goes through pipelines in the order of their names.
pub(crate) struct PipelineWalk<'a> {
    store: &'a dyn Store,
    shards: Vec<ShardRows>,
    /// Those that are declared, if it is not what is recorded.
    declared: Option<&'a BTreeMap<PipelineId, DeclaredAnswer>>,
    after: Option<PipelineId>,
    portion: usize,
}

/// The rows of a shard that were read and not yet passed.
struct ShardRows {
    shard: Shard,
    rows: VecDeque<AgendaRow>,
    last: Option<PipelineId>,
    more: bool,
}

impl<'a> PipelineWalk<'a> {
    /// Those behind a name; about so many are wanted.
    pub(crate) fn new(reader: &Reader<'a>, after: Option<PipelineId>, wanted: usize) -> Self {
        let count = reader.store.shard_count();
        let shards = (0..count).map(|shard| ShardRows {
            shard: Shard(shard),
            rows: VecDeque::new(),
            last: after.clone(),
            more: true,
        });
        let portion = (wanted / usize::from(count.max(1))).saturating_add(1);
        Self {
            store: reader.store,
            shards: shards.collect(),
            declared: reader.declarations.declared(),
            after,
            portion: portion.clamp(PORTION_MIN, PORTION_MAX),
        }
    }

    /// The next so many; fewer only at the end.
    pub(crate) async fn take(&mut self, count: usize) -> Result<Vec<ListedPipeline>, StoreError> {
        let mut found = Vec::new();
        while found.len() < count {
            self.refill().await?;
            let Some(next) = self.next() else { break };
            found.push(next);
        }
        Ok(found)
    }

    /// Reads on in each shard of which nothing is left.
    async fn refill(&mut self) -> Result<(), StoreError> {
        let (store, portion) = (self.store, self.portion);
        let empty = self.shards.iter_mut().filter(|it| it.rows.is_empty() && it.more);
        for_each(empty.collect(), |it: &mut ShardRows| async move {
            let page = store.agenda(it.shard, it.last.as_ref(), portion).await?;
            it.more = page.more;
            it.rows = page.items.into();
            if let Some(last) = it.rows.back() {
                it.last = Some(last.pipeline.clone());
            }
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// The next one, of what was read.
    fn next(&mut self) -> Option<ListedPipeline> {
        let firsts = self.shards.iter().filter_map(|it| it.rows.front().map(|row| &row.pipeline));
        let recorded = firsts.min().cloned();
        let declared = self.next_declared();
        let name = match (recorded, declared) {
            (Some(recorded), Some(declared)) => recorded.min(declared),
            (recorded, declared) => recorded.or(declared)?,
        };
        let is_first =
            |it: &&mut ShardRows| it.rows.front().is_some_and(|row| row.pipeline == name);
        let row = self.shards.iter_mut().find(is_first).and_then(|it| it.rows.pop_front());
        self.after = Some(name.clone());
        Some(ListedPipeline { name, row })
    }

    fn next_declared(&self) -> Option<PipelineId> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = self.after.as_ref().map_or(Unbounded, Excluded);
        let mut names = self.declared?.range::<PipelineId, _>((after, Unbounded));
        names.next().map(|(name, _)| name.clone())
    }
}

impl Reader<'_> {
    /// What is recorded of one pipeline: its row, and how far the schedules are that it has or had.
    pub(crate) async fn agenda_row(
        &self,
        name: &PipelineId,
    ) -> Result<Option<AgendaRow>, StoreError> {
        let mut rows = self.store.read(name, &[Key::Pipeline]).await?;
        let Some(Row { record: Record::Pipeline(record), revision }) = rows.pop().flatten() else {
            return Ok(None);
        };
        let record: PipelineRecord = std::sync::Arc::unwrap_or_clone(record);
        let stored = record.agenda.iter().flat_map(|agenda| {
            let starts = agenda.starts.iter().map(|start| &start.schedule.id);
            starts.chain(agenda.controls.iter().map(|control| &control.schedule.id))
        });
        let mut ids: Vec<_> = stored.filter_map(|id| ScheduleId::any(id).ok()).collect();
        if let Ok(Some(declared)) = self.declarations.current(name).await {
            ids.extend(declared.starts.iter().map(|start| start.schedule.id().clone()));
            ids.extend(declared.controls.iter().map(|control| control.schedule.id().clone()));
        }
        ids.sort();
        ids.dedup();
        let keys: Vec<_> = ids.iter().cloned().map(Key::Watermark).collect();
        let found = self.store.read(name, &keys).await?;
        let watermark = |row: Option<Row<Record>>| -> Option<Row<WatermarkRecord>> {
            let row = row?;
            let Record::Watermark(record) = row.record else { return None };
            Some(Row { record, revision: row.revision })
        };
        let watermarks = ids.into_iter().zip(found);
        let watermarks = watermarks.filter_map(|(id, row)| Some((id, watermark(row)?))).collect();
        let record = Row { record, revision };
        Ok(Some(AgendaRow { pipeline: name.clone(), record, watermarks }))
    }
}
