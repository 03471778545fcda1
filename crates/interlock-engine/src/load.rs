//! Loading: the engine's memory, made from what the store says. A start loads all of it, a conflict one pipeline.

use std::{collections::BTreeSet, sync::Arc};

use interlock_core::{
    agenda::Work,
    id::{PipelineId, ScheduleId},
};
use interlock_store::{
    AgendaRow, BackfillQuery, Key, LedgerEntry, LedgerQuery, LedgerRow, Record, RunQuery,
    kept::uncertain_until,
};

use crate::{
    engine::{Engine, EngineError},
    request::{is_active, request},
    state::{KnownRun, OpenSlot, SlotPlace},
    write::Act,
};

/// Rows per page.
const PAGE: usize = 1_000;
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
        self.load_backfills(of_shard).await?;
        for pipeline in self.dirty.clone() {
            self.load_runs(&pipeline).await?;
            self.active.count(&pipeline, self.pipelines.get_mut(&pipeline));
        }
        self.load_incidents().await
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

    /// Loads the runs of a pipeline's open slots.
    async fn load_runs(&mut self, pipeline: &PipelineId) -> Result<(), EngineError> {
        // A slot that waits for its first attempt has none.
        let open = self.pipelines.get_mut(pipeline).open.iter();
        let begun = open.filter(|(_, open)| open.slot.attempt > 0);
        let places: Vec<_> = begun.map(|(place, _)| place.clone()).collect();
        for (nominal, schedule) in places {
            let slot = Some((schedule, nominal));
            let query = RunQuery {
                pipeline: Some(pipeline.clone()),
                slot,
                limit: 100,
                ..RunQuery::default()
            };
            let mut page = self.store.runs(&query).await?;
            // Newest first is how people read them; here the oldest comes first.
            page.items.reverse();
            let state = self.pipelines.get_mut(pipeline);
            for row in page.items {
                let place = (row.key.nominal, row.key.schedule.clone());
                let generation = state.open.get(&place).map(|open| open.slot.generation);
                if generation == Some(row.key.generation) {
                    state.put_run(KnownRun {
                        key: row.key,
                        record: row.record.into(),
                        revision: row.revision,
                    });
                }
            }
        }
        Ok(())
    }

    /// Forgets what it thought of a pipeline and loads it again.
    pub(crate) async fn reload(&mut self, pipeline: &PipelineId) -> Result<(), EngineError> {
        let state = self.pipelines.get_mut(pipeline);
        let known = state.watermarked().cloned().collect();
        let running: Vec<_> = state
            .open
            .iter()
            .filter(|(_, open)| open.last_run().is_some_and(is_active))
            .filter(|_| state.agenda.work != Work::Watched)
            .map(|(place, open)| (place.clone(), open.clone()))
            .collect();
        self.load_one(pipeline, &known).await?;
        self.progress.touch(pipeline);
        self.end_what_was_closed(pipeline, running).await;
        // What was refused may have been a job's last word, which is not said twice: ask for it.
        for run in self.requests_of(pipeline).await {
            self.look_up(run);
        }
        self.take_up(pipeline);
        self.dirty.insert(pipeline.clone());
        Ok(())
    }

    /// Asks the jobs to end whose slots the watchdog has closed.
    async fn end_what_was_closed(
        &mut self,
        pipeline: &PipelineId,
        running: Vec<(SlotPlace, OpenSlot)>,
    ) {
        for (place, open) in running {
            if self.pipelines.get_mut(pipeline).open.contains_key(&place) {
                continue;
            }
            let Some(run) = open.last_run() else { continue };
            if let Ok(spec) = self.specs.pipeline(pipeline, open.slot.version).await {
                let asked = request(pipeline, &spec, (&place, &open), run);
                self.act(Act::Cancel(Box::new(asked)));
            }
        }
    }

    /// Loads a pipeline with the watermarks of these schedules and of those that it had when it was last declared.
    pub(crate) async fn load_one(
        &mut self,
        pipeline: &PipelineId,
        schedules: &BTreeSet<ScheduleId>,
    ) -> Result<(), EngineError> {
        let mut keys = vec![Key::Pipeline];
        keys.extend(schedules.iter().cloned().map(Key::Watermark));
        let rows = self.store.read(pipeline, &keys).await?;
        let found = keys
            .iter()
            .zip(&rows)
            .filter_map(|(key, row)| row.as_ref().map(|row| (key, &row.record, row.revision)));
        self.pipelines.load(pipeline, &found.collect::<Vec<_>>())?;
        let had = self.pipelines.get_mut(pipeline).agenda.starts.iter();
        let had = had.map(|start| start.schedule.id()).filter(|id| !schedules.contains(*id));
        let had: Vec<_> = had.cloned().map(Key::Watermark).collect();
        if !had.is_empty() {
            let rows = self.store.read(pipeline, &had).await?;
            let found = had.iter().zip(&rows);
            let found = found
                .filter_map(|(key, row)| row.as_ref().map(|it| (key, &it.record, it.revision)));
            self.pipelines.load(pipeline, &found.collect::<Vec<_>>())?;
        }
        let state = self.pipelines.get_mut(pipeline);
        let before = state.undecided();
        state.forget_open();
        state.sensors = None;
        state.backfills.clear();
        state.heard = None;
        let loaded = self.load_open_slots(pipeline).await;
        let after = self.pipelines.get_mut(pipeline).undecided();
        self.vitals.open_slots_reloaded(before, after);
        loaded?;
        self.load_runs(pipeline).await?;
        self.reload_incidents(pipeline).await?;
        let of_this =
            BackfillQuery { pipeline: Some(pipeline.clone()), ..BackfillQuery::default() };
        self.load_backfills(of_this).await?;
        self.active.count(pipeline, self.pipelines.get_mut(pipeline));
        Ok(())
    }

    /// Loads the backfills that are not finished.
    async fn load_backfills(&mut self, mut query: BackfillQuery) -> Result<(), EngineError> {
        (query.unfinished, query.limit) = (true, PAGE);
        loop {
            let page = self.store.backfills(&query).await?;
            query.after = page.items.last().map(|row| (row.pipeline.clone(), row.number));
            for row in page.items {
                let state = self.pipelines.get_mut(&row.pipeline);
                state.put_backfill(row.number, &row.record, row.revision);
                self.backfilling.insert(row.pipeline.clone());
                self.dirty.insert(row.pipeline);
            }
            if !page.more {
                return Ok(());
            }
        }
    }

    async fn load_open_slots(&mut self, pipeline: &PipelineId) -> Result<(), EngineError> {
        let mut query = LedgerQuery {
            pipeline: Some(pipeline.clone()),
            disposition: Some("open".to_owned()),
            ..LedgerQuery::everything(PAGE)
        };
        loop {
            let page = self.store.ledger(&query).await?;
            for row in &page.items {
                self.pipelines.load_open(row)?;
            }
            query.after = page.items.last().map(LedgerRow::place);
            if !page.more {
                return Ok(());
            }
        }
    }
}
