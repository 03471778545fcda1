//! Loading pipelines again that others wrote to, or that were set aside.
//!
//! A few are read one by one. Of many (10,000 that the watchdog closed slots of at one instant) the rows are read in batches and
//! the lists page by page over the whole shard, so that what it costs is counted in hundreds of rows, not in pipelines. After each
//! batch the engine shows that it goes on.

use std::collections::{BTreeMap, BTreeSet};

use interlock_core::{
    agenda::Work,
    id::{PipelineId, ScheduleId},
};
use interlock_store::{
    BackfillQuery, FoundRows, Key, LedgerQuery, LedgerRow, READ_MAX, Record, RowsQuery, RunKey,
    StoreError, read_apart, read_batches,
};

use crate::{
    engine::{Engine, EngineError},
    load::PAGE,
    quarantine::guarded,
    request::{is_active, request},
    state::{KnownRun, OpenSlot, SlotPlace},
    write::Act,
};

/// So many pipelines are loaded again one by one; each is half a dozen calls.
pub(crate) const ONE_BY_ONE_MAX: usize = 20;
/// Attempts at one slot that are kept in memory, the newest: a job that is tried for ever has thousands.
const ATTEMPTS_MAX: u32 = 100;

/// What was known of a pipeline that is loaded again, and what must be done about it after that.
struct Before {
    undecided: usize,
    /// Slots with a run under way.
    running: Vec<(SlotPlace, OpenSlot)>,
}

impl Engine {
    /// Loads pipelines again, and sets aside those whose rows cannot be read.
    pub(crate) async fn reload_all(
        &mut self,
        pipelines: &BTreeSet<PipelineId>,
    ) -> Result<(), EngineError> {
        let before = pipelines.iter().map(|it| (it.clone(), self.before_reload(it)));
        let mut before: BTreeMap<PipelineId, Before> = before.collect();
        if pipelines.len() > ONE_BY_ONE_MAX {
            // A list that cannot be read because of one of them is read of each by itself: slow, and only that one's trouble.
            let loading = Box::pin(self.reload_many(pipelines, &mut before));
            if let Err(reason) = guarded(loading).await? {
                tracing::error!(
                    reason,
                    "pipelines cannot be loaded together, so each is by itself"
                );
            }
        }
        for (number, (pipeline, before)) in before.into_iter().enumerate() {
            if number > 0 {
                self.show_progress().await?;
            }
            let loading = Box::pin(self.reload_since(&pipeline, before));
            if let Err(reason) = guarded(loading).await? {
                self.poisoned.push((pipeline, reason));
            }
        }
        Ok(())
    }

    /// Forgets what it thought of a pipeline and loads it again.
    pub(crate) async fn reload(&mut self, pipeline: &PipelineId) -> Result<(), EngineError> {
        let before = self.before_reload(pipeline);
        self.reload_since(pipeline, before).await
    }

    async fn reload_since(
        &mut self,
        pipeline: &PipelineId,
        before: Before,
    ) -> Result<(), EngineError> {
        let schedules = self.pipelines.get_mut(pipeline).watermarked().cloned().collect();
        self.load_one(pipeline, &schedules).await?;
        self.after_reload(pipeline, before).await;
        Ok(())
    }

    /// Loads a pipeline with the watermarks of these schedules and of those that it had when it was last declared.
    pub(crate) async fn load_one(
        &mut self,
        pipeline: &PipelineId,
        schedules: &BTreeSet<ScheduleId>,
    ) -> Result<(), EngineError> {
        let mut keys = vec![Key::Pipeline];
        keys.extend(schedules.iter().cloned().map(Key::Watermark));
        self.load_rows(pipeline, keys).await?;
        let had = self.missing_watermarks(pipeline);
        if !had.is_empty() {
            self.load_rows(pipeline, had).await?;
        }
        let before = self.pipelines.get_mut(pipeline).undecided();
        self.forget_lists(pipeline);
        let loaded = self.load_open_slots(pipeline).await;
        let after = self.pipelines.get_mut(pipeline).undecided();
        self.vitals.open_slots_reloaded(before, after);
        loaded?;
        let unreadable = self.load_runs(&BTreeSet::from([pipeline.clone()])).await?;
        if let Some((_, reason)) = unreadable.into_iter().next() {
            return Err(EngineError::Damaged(reason));
        }
        self.reload_incidents(pipeline).await?;
        let of_this =
            BackfillQuery { pipeline: Some(pipeline.clone()), ..BackfillQuery::default() };
        self.load_backfills(of_this, None).await?;
        self.active.count(pipeline, self.pipelines.get_mut(pipeline));
        Ok(())
    }

    async fn load_rows(
        &mut self,
        pipeline: &PipelineId,
        keys: Vec<Key>,
    ) -> Result<(), EngineError> {
        let rows = self.store.read(pipeline, &keys).await;
        let rows = rows.map_err(EngineError::of_one_pipeline)?;
        self.take_rows(&RowsQuery { pipeline: pipeline.clone(), keys }, &rows)
    }

    /// Takes over rows as the store has them.
    fn take_rows(&mut self, query: &RowsQuery, rows: &FoundRows) -> Result<(), EngineError> {
        let found = query.keys.iter().zip(rows);
        let found =
            found.filter_map(|(key, row)| row.as_ref().map(|it| (key, &it.record, it.revision)));
        Ok(self.pipelines.load(&query.pipeline, &found.collect::<Vec<_>>())?)
    }

    /// The watermarks of a pipeline's schedules that are not known.
    fn missing_watermarks(&mut self, pipeline: &PipelineId) -> Vec<Key> {
        let state = self.pipelines.get_mut(pipeline);
        let ids = state.agenda.starts.iter().map(|start| start.schedule.id());
        let missing = ids.filter(|id| state.watermark(id).is_none());
        missing.cloned().map(Key::Watermark).collect()
    }

    fn before_reload(&mut self, pipeline: &PipelineId) -> Before {
        let state = self.pipelines.get_mut(pipeline);
        let is_started = state.agenda.work != Work::Watched;
        let running = state
            .open
            .iter()
            .filter(|(_, open)| is_started && open.last_run().is_some_and(is_active));
        let running = running.map(|(place, open)| (place.clone(), open.clone())).collect();
        Before { undecided: state.undecided(), running }
    }

    /// Forgets what is listed of a pipeline, which is read again.
    fn forget_lists(&mut self, pipeline: &PipelineId) {
        let state = self.pipelines.get_mut(pipeline);
        state.forget_open();
        state.sensors = None;
        state.backfills.clear();
        state.heard = None;
    }

    async fn after_reload(&mut self, pipeline: &PipelineId, before: Before) {
        self.progress.touch(pipeline);
        self.end_what_was_closed(pipeline, before.running).await;
        // What was refused may have been a job's last word, which is not said twice: ask for it.
        for run in self.requests_of(pipeline).await {
            self.look_up(run);
        }
        self.take_up(pipeline);
        self.dirty.insert(pipeline.clone());
    }

    /// Asks the jobs to end whose slots others have closed.
    pub(crate) async fn end_what_was_closed(
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

    /// The same as [`Engine::reload`] of very many, which are then no longer among those that are to be loaded.
    async fn reload_many(
        &mut self,
        pipelines: &BTreeSet<PipelineId>,
        to_load: &mut BTreeMap<PipelineId, Before>,
    ) -> Result<(), EngineError> {
        let known = |state: &crate::state::PipelineState| {
            let marks = state.watermarked().cloned().map(Key::Watermark);
            std::iter::once(Key::Pipeline).chain(marks).collect()
        };
        let keys: Vec<(&PipelineId, Vec<Key>)> = pipelines
            .iter()
            .map(|pipeline| (pipeline, known(self.pipelines.get_mut(pipeline))))
            .collect();
        self.load_rows_of_many(keys).await?;
        let missing: Vec<(&PipelineId, Vec<Key>)> = pipelines
            .iter()
            .map(|pipeline| (pipeline, self.missing_watermarks(pipeline)))
            .filter(|(_, keys)| !keys.is_empty())
            .collect();
        self.load_rows_of_many(missing).await?;
        for pipeline in pipelines {
            self.forget_lists(pipeline);
        }
        let listed = self.load_open_slots_of(pipelines).await;
        for (pipeline, before) in &*to_load {
            let after = self.pipelines.get_mut(pipeline).undecided();
            self.vitals.open_slots_reloaded(before.undecided, after);
        }
        listed?;
        let unreadable = self.load_runs(pipelines).await?;
        self.poisoned.extend(unreadable);
        self.reload_incidents_of(pipelines).await?;
        let of_shard = BackfillQuery { shard: Some(self.writer.shard), ..BackfillQuery::default() };
        self.load_backfills(of_shard, Some(pipelines)).await?;
        for (pipeline, before) in std::mem::take(to_load) {
            self.active.count(&pipeline, self.pipelines.get_mut(&pipeline));
            self.after_reload(&pipeline, before).await;
        }
        Ok(())
    }

    async fn load_rows_of_many(
        &mut self,
        asked: Vec<(&PipelineId, Vec<Key>)>,
    ) -> Result<(), EngineError> {
        let queries = asked
            .into_iter()
            .map(|(pipeline, keys)| RowsQuery { pipeline: pipeline.clone(), keys });
        let queries: Vec<_> = queries.collect();
        let found = self.read_rows(&queries).await?;
        for (query, rows) in queries.iter().zip(found) {
            let taken =
                async { self.take_rows(query, &rows.map_err(EngineError::of_one_pipeline)?) };
            if let Err(reason) = guarded(taken).await? {
                self.poisoned.push((query.pipeline.clone(), reason));
            }
        }
        Ok(())
    }

    /// Reads rows of many pipelines, in batches. What cannot be read of one is its own result.
    pub(crate) async fn read_rows(
        &mut self,
        queries: &[RowsQuery],
    ) -> Result<Vec<Result<FoundRows, StoreError>>, EngineError> {
        let mut found = Vec::with_capacity(queries.len());
        for (number, batch) in read_batches(queries).into_iter().enumerate() {
            if number > 0 {
                self.show_progress().await?;
            }
            found.extend(read_apart(self.store.as_ref(), batch).await?);
        }
        Ok(found)
    }

    /// Shows that a long pass goes on, and keeps the lease for it.
    pub(crate) async fn show_progress(&mut self) -> Result<(), EngineError> {
        self.pulse().beat();
        self.keep_the_lease().await
    }

    async fn load_open_slots(&mut self, pipeline: &PipelineId) -> Result<(), EngineError> {
        let mut query = LedgerQuery {
            pipeline: Some(pipeline.clone()),
            disposition: Some("open".to_owned()),
            ..LedgerQuery::everything(PAGE)
        };
        loop {
            let page = self.store.ledger(&query).await;
            let page = page.map_err(EngineError::of_one_pipeline)?;
            for row in &page.items {
                self.pipelines.load_open(row)?;
            }
            query.after = page.items.last().map(LedgerRow::place);
            if !page.more {
                return Ok(());
            }
        }
    }

    /// Takes over the open slots of these pipelines from the list of the shard's.
    async fn load_open_slots_of(
        &mut self,
        pipelines: &BTreeSet<PipelineId>,
    ) -> Result<(), EngineError> {
        let mut last = None;
        loop {
            let page = self.store.open_slots(self.writer.shard, last.as_ref(), PAGE).await;
            let page = page.map_err(EngineError::of_one_pipeline)?;
            for row in page.items.iter().filter(|row| pipelines.contains(&row.pipeline)) {
                if let Err(unreadable) = self.pipelines.load_open(row) {
                    self.poisoned.push((row.pipeline.clone(), unreadable.to_string()));
                }
            }
            last = page
                .items
                .last()
                .map(|row| (row.pipeline.clone(), row.nominal, row.schedule.clone()));
            let is_past = last.as_ref().is_some_and(|(at, ..)| Some(at) > pipelines.last());
            if !page.more || is_past {
                return Ok(());
            }
            self.show_progress().await?;
        }
    }

    /// Loads the runs of the open slots of these pipelines; answers with those whose runs cannot be read, and why.
    pub(crate) async fn load_runs(
        &mut self,
        pipelines: &BTreeSet<PipelineId>,
    ) -> Result<BTreeMap<PipelineId, String>, EngineError> {
        let (mut queries, mut unreadable) = (Vec::new(), BTreeMap::new());
        for pipeline in pipelines {
            let Some(state) = self.pipelines.0.get(pipeline) else { continue };
            // A slot that waits for its first attempt has none.
            let begun = state.open.iter().filter(|(_, open)| open.slot.attempt > 0);
            let keys: Vec<Key> = begun.flat_map(|(place, open)| attempts(place, open)).collect();
            let parts = keys.chunks(READ_MAX);
            queries.extend(
                parts.map(|keys| RowsQuery { pipeline: pipeline.clone(), keys: keys.to_vec() }),
            );
        }
        let found = self.read_rows(&queries).await?;
        for (query, rows) in queries.into_iter().zip(found) {
            let rows = match rows {
                Ok(rows) => rows,
                Err(error) => {
                    unreadable.insert(query.pipeline, error.message);
                    continue;
                }
            };
            let state = self.pipelines.get_mut(&query.pipeline);
            for (key, row) in query.keys.into_iter().zip(rows) {
                let Some(row) = row else { continue };
                if let (Key::Run(key), Record::Run(record)) = (key, row.record) {
                    state.put_run(KnownRun { key, record, revision: row.revision });
                }
            }
        }
        Ok(unreadable)
    }

    /// Loads the backfills that are not finished, of these pipelines or of all that are asked for.
    pub(crate) async fn load_backfills(
        &mut self,
        mut query: BackfillQuery,
        only: Option<&BTreeSet<PipelineId>>,
    ) -> Result<(), EngineError> {
        (query.unfinished, query.limit) = (true, PAGE);
        loop {
            let page = self.store.backfills(&query).await;
            let page = page.map_err(EngineError::of_one_pipeline)?;
            query.after = page.items.last().map(|row| (row.pipeline.clone(), row.number));
            let wanted = page.items.into_iter();
            for row in wanted.filter(|row| only.is_none_or(|only| only.contains(&row.pipeline))) {
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
}

/// The newest attempts at a slot, oldest first.
fn attempts(place: &SlotPlace, open: &OpenSlot) -> impl Iterator<Item = Key> {
    let (nominal, schedule) = place.clone();
    let (generation, last) = (open.slot.generation, open.slot.attempt);
    let first = last.saturating_sub(ATTEMPTS_MAX - 1).max(1);
    (first..=last).map(move |attempt| {
        Key::Run(RunKey { schedule: schedule.clone(), nominal, generation, attempt })
    })
}
