//! Loading: the engine's memory, made from what the store says, when it takes a shard. What is loaded again later is `reload`'s.

use std::{collections::BTreeSet, sync::Arc};

use interlock_store::{AgendaRow, BackfillQuery, Key, LedgerEntry, Record, kept::uncertain_until};

use crate::engine::{Engine, EngineError};

/// Rows per page.
pub(crate) const PAGE: usize = 1_000;
/// Agendas per page: each is some kilobytes while it is read, of which little is kept.
const AGENDAS: usize = 200;

impl Engine {
    /// Loads everything that the shard's owner keeps in memory.
    pub(crate) async fn load(&mut self) -> Result<(), EngineError> {
        let shard = self.writer.shard;
        let store = Arc::clone(&self.store);
        if store.shard_count() == 1 {
            // Only a file is ever recovered; of several servers the one that is asked may be away.
            self.remembered.uncertain_until = uncertain_until(store.as_ref()).await?;
        }
        let mut page = store.agenda(shard, None, AGENDAS).await?;
        loop {
            let last = page.items.last().filter(|_| page.more).map(|row| row.pipeline.clone());
            // Most engines begin when they are asked: the next rows are read while these are taken up.
            let next = last.as_ref().map(|last| store.agenda(shard, Some(last), AGENDAS));
            for row in page.items {
                self.load_row(row);
            }
            let Some(next) = next else { break };
            page = next.await?;
        }
        let mut last = None;
        loop {
            let page = self.store.open_slots(shard, last.as_ref(), PAGE).await?;
            for row in &page.items {
                if let LedgerEntry::Slot(slot) = &row.entry {
                    self.progress.found(&row.pipeline, slot);
                }
                if let Err(unreadable) = self.pipelines.load_open(row) {
                    self.poisoned.push((row.pipeline.clone(), unreadable.to_string()));
                }
                self.dirty.insert(row.pipeline.clone());
            }
            last = page
                .items
                .last()
                .map(|row| (row.pipeline.clone(), row.nominal, row.schedule.clone()));
            if !page.more {
                break;
            }
        }
        let of_shard = BackfillQuery { shard: Some(shard), ..BackfillQuery::default() };
        self.load_backfills(of_shard, None).await?;
        let with_slots: BTreeSet<_> = self.dirty.clone();
        let unreadable = self.load_runs(&with_slots).await?;
        self.poisoned.extend(unreadable);
        for pipeline in &with_slots {
            self.active.count(pipeline, self.pipelines.get_mut(pipeline));
        }
        self.load_incidents(None).await
    }

    /// What is stored of one pipeline, without its slots.
    fn load_row(&mut self, row: AgendaRow) {
        let (record, revision) = (Record::Pipeline(row.record.record.into()), row.record.revision);
        let row_of = [(&Key::Pipeline, &record, revision)];
        if let Err(unreadable) = self.pipelines.load(&row.pipeline, &row_of) {
            self.poisoned.push((row.pipeline.clone(), unreadable.to_string()));
        }
        let state = self.pipelines.get_mut(&row.pipeline);
        for (id, row) in row.watermarks {
            state.put_watermark(&id, (row.record.at, row.revision));
        }
        self.take_up(&row.pipeline);
    }
}
