//! Slots that the watchdog should have closed by now, and mostly has.
//!
//! The owner closes such a slot a minute after its time if the watchdog has not, which it may be dead or too slow to do. Most
//! often the watchdog has, and the owner does not know yet: it reads those rows first, in batches. Ten thousand pipelines that
//! miss one instant are then 20 reads, instead of 10,000 groups that the store refuses.

use std::{collections::BTreeSet, sync::Arc};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{Key, Record, Row, RowsQuery, coverage, kept::Stretch};
use jiff::Timestamp;

use crate::{
    engine::{Engine, EngineError},
    quarantine::guarded,
    request::is_active,
    state::{OpenSlot, SlotPlace},
};

impl Engine {
    /// Reads the overdue slots of pipelines that are about to be planned, and takes over what others made of them.
    pub(crate) async fn learn_what_others_closed(
        &mut self,
        pipelines: &[PipelineId],
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let queries = self.overdue_slots(pipelines, now);
        if queries.is_empty() {
            return Ok(());
        }
        // What is held and not yet in the store must not be taken for what others wrote.
        self.settle().await?;
        let found = self.read_rows(&queries).await?;
        let (mut learned, mut unclear) = (BTreeSet::new(), BTreeSet::new());
        for (query, rows) in queries.iter().zip(found) {
            let rows = match rows {
                Ok(rows) => rows,
                Err(error) => {
                    self.poisoned.push((query.pipeline.clone(), error.message));
                    continue;
                }
            };
            for (key, row) in query.keys.iter().zip(rows) {
                match self.is_closed_elsewhere(&query.pipeline, key, row.as_ref()) {
                    Some(true) => {
                        let taken = async { self.take_closed(&query.pipeline, key, row) };
                        match guarded(taken).await? {
                            Ok(ended) => {
                                self.end_what_was_closed(&query.pipeline, ended).await;
                                learned.insert(query.pipeline.clone());
                            }
                            Err(reason) => self.poisoned.push((query.pipeline.clone(), reason)),
                        }
                    }
                    Some(false) => {}
                    None => drop(unclear.insert(query.pipeline.clone())),
                }
            }
        }
        if !learned.is_empty() {
            tracing::debug!(
                pipelines = learned.len(),
                "the watchdog closed slots of these pipelines"
            );
            match guarded(self.reload_incidents_of(&learned)).await? {
                Ok(()) => {}
                // The list of the shard's cannot be read because of one of them.
                Err(_) => unclear.append(&mut learned),
            }
        }
        self.reload_all(&unclear).await?;
        // What cannot be read is not planned on what was known before.
        self.set_poisoned_aside().await
    }

    /// The slots that others should have closed by now.
    fn overdue_slots(&self, pipelines: &[PipelineId], now: Timestamp) -> Vec<RowsQuery> {
        let of = |pipeline: &PipelineId| {
            // One that is set aside is loaded again before it is planned.
            let is_aside = self.aside.contains_key(pipeline);
            let state = self.pipelines.0.get(pipeline).filter(|_| !is_aside)?;
            let overdue = state.open.iter().filter(|(place, open)| {
                self.scope.drives(place) && state.is_overdue(place, &open.slot, now)
            });
            let key = |(at, schedule): &SlotPlace| Key::Slot(schedule.clone(), *at);
            let keys: Vec<Key> = overdue.map(|(place, _)| key(place)).collect();
            (!keys.is_empty()).then(|| RowsQuery { pipeline: pipeline.clone(), keys })
        };
        pipelines.iter().filter_map(of).collect()
    }

    /// Whether a slot's row says that it is decided, while it is open here. None if the row says something else that is not known here.
    fn is_closed_elsewhere(
        &self,
        pipeline: &PipelineId,
        key: &Key,
        row: Option<&Row<Record>>,
    ) -> Option<bool> {
        let known = self.pipelines.0.get(pipeline)?.open.get(&place_of(key)?)?;
        let row = row?;
        let Record::Slot(record) = &row.record else { return None };
        match (row.revision == known.revision, record.is_open()) {
            (true, _) => Some(false),
            (false, false) => Some(true),
            (false, true) => None,
        }
    }

    /// Takes over a slot that others closed; answers with the run that was under way, if one was.
    fn take_closed(
        &mut self,
        pipeline: &PipelineId,
        key: &Key,
        row: Option<Row<Record>>,
    ) -> Result<Vec<(SlotPlace, OpenSlot)>, EngineError> {
        let (Some(row), Some(place)) = (row, place_of(key)) else { return Ok(vec![]) };
        let state = self.pipelines.get_mut(pipeline);
        let is_started = state.agenda.work != interlock_core::agenda::Work::Watched;
        let open = state.open.get(&place).filter(|open| open.last_run().is_some_and(is_active));
        let ended = open.filter(|_| is_started).map(|open| (place, open.clone()));
        let before = state.undecided();
        self.pipelines.load(pipeline, &[(key, &row.record, row.revision)])?;
        let after = self.pipelines.get_mut(pipeline).undecided();
        self.vitals.open_slots_reloaded(before, after);
        self.active.count(pipeline, self.pipelines.get_mut(pipeline));
        self.progress.touch(pipeline);
        self.dirty.extend(self.dependents.of(pipeline));
        Ok(ended.into_iter().collect())
    }

    /// Times in which no report could arrive, if that decides how a slot is closed which the watchdog has not. They are the same
    /// for all pipelines of a pass, and read once.
    pub(crate) async fn outages_for_overdue(
        &mut self,
        pipeline: &PipelineId,
        now: Timestamp,
    ) -> Result<Arc<[Stretch]>, EngineError> {
        use interlock_core::{
            agenda::Work,
            slot::{OpenState, SlotState},
        };
        let state = self.pipelines.0.get(pipeline).filter(|it| it.agenda.work == Work::Watched);
        let waits = |open: &OpenSlot| open.slot.state == SlotState::Open(OpenState::Waiting);
        let is_asked = state.is_some_and(|state| {
            let mut open = state.open.iter();
            open.any(|(place, open)| waits(open) && state.is_overdue(place, &open.slot, now))
        });
        if !is_asked {
            return Ok([].into());
        }
        if let Some((_, known)) = self.remembered.outages.as_ref().filter(|(at, _)| *at == now) {
            return Ok(Arc::clone(known));
        }
        let outages: Arc<[Stretch]> = coverage::deaf(self.store.as_ref(), &[], now).await?.into();
        self.remembered.outages = Some((now, Arc::clone(&outages)));
        Ok(outages)
    }
}

/// Where a slot stands whose key this is.
fn place_of(key: &Key) -> Option<SlotPlace> {
    let slot = |schedule: &ScheduleId, at: Timestamp| (at, schedule.clone());
    if let Key::Slot(schedule, at) = key { Some(slot(schedule, *at)) } else { None }
}
