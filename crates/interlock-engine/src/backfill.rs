//! Backfills: slots of a range, opened a few at a time behind a cursor.
//!
//! A pass that finds a pipeline with a backfill dirty counts what has ended, judges on from the cursor and opens
//! what runs, in groups that hold the slots and the backfill's row together. So whoever comes after a crash goes
//! on exactly there. The slots themselves are the controller's, like all others; see `docs/adr/0012-backfill.md`.

mod asked;
mod step;

pub use asked::backfill_of;

use interlock_core::{
    backfill::{Place, State, Verdict},
    control::Lane,
    id::{PipelineId, ScheduleId},
    pipeline::Pipeline,
    run::RunState,
    slot::{Disposition, OpenState, Slot, SlotState},
};
use interlock_store::{
    Key, Record, RunQuery,
    record::{BackfillCounts, BackfillRecord},
};
use jiff::Timestamp;

use self::step::Step;
use crate::{
    ending::{Ender, end_wanted},
    engine::{Engine, EngineError},
    prospect::Prospect,
    quarantine::guarded,
    solo::Scope,
    state::{OpenSlot, PipelineState},
    write::{Event, Planned},
};

/// Open slots of a backfill beyond those that may run: some may turn out not to be ready.
const AHEAD: usize = 3;
/// Slots that one group opens, with an event each; a group holds 25 changes.
const OPENED_PER_GROUP: usize = 10;
/// Slots that one group ends, with two changes each.
const ENDED_PER_GROUP: usize = 8;
/// Slots that are judged before others have their turn (S17), and at a time.
const JUDGED_MAX: usize = 2_000;
const JUDGED_AT_ONCE: usize = 500;
/// Groups of one backfill before others have their turn.
const ROUNDS_MAX: usize = 50;

/// What a step of a backfill came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    /// So many slots were judged, and there may be more to do right now.
    On(usize),
    /// Nothing is to be done until something happens.
    ToRest,
}

impl Engine {
    /// Moves the backfills on of pipelines that something happened to.
    pub(crate) async fn advance_backfills(&mut self) -> Result<(), EngineError> {
        let now = self.world.now();
        self.dirty.extend(self.wakes.due(now));
        let dirty: Vec<_> = self.backfilling.intersection(&self.dirty).cloned().collect();
        for pipeline in dirty {
            if self.is_aside(&pipeline, now) {
                continue;
            }
            let numbers: Vec<_> =
                self.pipelines.get_mut(&pipeline).backfills.keys().copied().collect();
            for number in numbers {
                if let Err(reason) = guarded(self.advance_backfill(&pipeline, number)).await? {
                    self.poisoned.push((pipeline.clone(), reason));
                }
            }
        }
        Ok(())
    }

    async fn advance_backfill(
        &mut self,
        pipeline: &PipelineId,
        number: u64,
    ) -> Result<(), EngineError> {
        let (mut judged, mut rounds) = (0, 0);
        let mut at_once = 0;
        loop {
            match self.step_backfill(pipeline, number, at_once).await? {
                Came::ToRest => return Ok(()),
                Came::On(count) => judged += count,
            }
            // Where nothing runs, many are looked at together.
            at_once = JUDGED_AT_ONCE;
            rounds += 1;
            if judged >= JUDGED_MAX || rounds >= ROUNDS_MAX {
                self.dirty.insert(pipeline.clone());
                return Ok(());
            }
        }
    }

    /// One group, at most.
    async fn step_backfill(
        &mut self,
        pipeline: &PipelineId,
        number: u64,
        at_once: usize,
    ) -> Result<Came, EngineError> {
        let Some(state) = self.pipelines.0.get(pipeline) else { return Ok(Came::ToRest) };
        let Some((record, revision)) = state.backfills.get(&number).cloned() else {
            return Ok(Came::ToRest);
        };
        let standing = record.standing()?;
        if !self.scope.may_advance(number, standing) {
            return Ok(Came::ToRest);
        }
        let mut step = Step {
            pipeline,
            number,
            before: record.clone(),
            record,
            now: self.world.now(),
            plan: Planned::new(pipeline, self.writer),
        };
        self.count_what_ended(&mut step).await?;
        let Some(state) = self.pipelines.0.get(pipeline) else { return Ok(Came::ToRest) };
        let mut came = Came::ToRest;
        match standing {
            State::Running | State::Paused if state.is_retired() => {
                step.end(State::Cancelled, "its pipeline is gone");
                came = Came::On(0);
            }
            State::Running => came = self.open_more(&mut step, at_once).await?,
            State::Cancelled => came = self.close_what_is_left(&mut step).await?,
            // There is nothing left that the pause could hold; it would keep history from being taken out for ever.
            State::Paused if self.is_through(&step).await? => step.end(State::Done, ""),
            State::Paused | State::Done => {}
        }
        if step.record == step.before && step.plan.group.changes.is_empty() {
            return Ok(came);
        }
        step.record.updated_at = step.now;
        step.plan.put(
            Key::Backfill(number),
            revision,
            Record::Backfill(Box::new(step.record).into()),
        );
        // Committed with the runs that begin; what is refused is planned again on what the store says.
        self.hold(vec![step.plan]).await?;
        Ok(came)
    }

    /// Counts the slots that have ended since the last look.
    async fn count_what_ended(&mut self, step: &mut Step<'_>) -> Result<(), EngineError> {
        let mut open = Vec::new();
        for slot in std::mem::take(&mut step.record.open) {
            let place = slot.place()?;
            let state = self.pipelines.0.get(step.pipeline);
            let known = state.and_then(|state| state.open.get(&place));
            let is_under_way = known.is_some_and(|open| {
                open.slot.generation == slot.generation
                    && open.slot.state != SlotState::Open(OpenState::Monitoring)
            });
            if is_under_way {
                open.push(slot);
                continue;
            }
            self.settle().await?;
            match self.end_of(step.pipeline, &place, slot.generation).await? {
                None => open.push(slot),
                Some(disposition) => count(&mut step.record.counts, disposition),
            }
        }
        step.record.open = open;
        Ok(())
    }

    /// How a generation of a slot ended; `None` while it has not.
    async fn end_of(
        &self,
        pipeline: &PipelineId,
        place: &Place,
        generation: u32,
    ) -> Result<Option<Disposition>, EngineError> {
        let row = self.read_slot(pipeline, place).await?;
        if let Some((slot, _)) = row.filter(|(slot, _)| slot.generation == generation) {
            return Ok(match slot.state {
                SlotState::Closed(disposition) => Some(disposition),
                SlotState::Open(OpenState::Monitoring) => Some(Disposition::Completed),
                SlotState::Open(_) => None,
            });
        }
        // It was opened again since: its last run says how it ended.
        let query = RunQuery {
            pipeline: Some(pipeline.clone()),
            slot: Some((place.1.clone(), place.0)),
            limit: 100,
            ..RunQuery::default()
        };
        let runs = self.store.runs(&query).await?.items;
        let last = runs.iter().find(|run| run.key.generation == generation);
        Ok(Some(match last.map(|run| run.record.state()).transpose()? {
            Some(RunState::Completed) => Disposition::Completed,
            Some(RunState::Failed) => Disposition::Failed,
            Some(_) | None => Disposition::Cancelled,
        }))
    }

    /// Judges on from the cursor and opens what runs, as long as there is room.
    async fn open_more(
        &mut self,
        step: &mut Step<'_>,
        at_once: usize,
    ) -> Result<Came, EngineError> {
        let Some(state) = self.pipelines.0.get(step.pipeline) else { return Ok(Came::ToRest) };
        let version = state.version;
        let spec = self.specs.pipeline(step.pipeline, version).await;
        let spec = spec.map_err(EngineError::Declaration)?;
        let places = step.record.concurrency.min(spec.active_runs_max) as usize + AHEAD;
        let room = places.saturating_sub(step.record.open.len()).min(OPENED_PER_GROUP);
        if room == 0 {
            return Ok(Came::ToRest);
        }
        self.settle().await?;
        let Some(state) = self.pipelines.0.get(step.pipeline) else { return Ok(Came::ToRest) };
        let prospect = state.prospect(&spec, &step.record, (step.now, &self.scope))?;
        let cursor = step.record.cursor()?;
        let portion =
            prospect.portion(self.store.as_ref(), cursor.as_ref(), at_once.max(room)).await?;
        let opened = step.take(&portion, (&spec, version), room);
        if let Scope::One(one) = &mut self.scope {
            one.drive_all(opened.iter().cloned());
        }
        if portion.is_end && portion.slots.is_empty() {
            if step.record.open.is_empty() {
                step.end(State::Done, "");
            }
            return Ok(Came::ToRest);
        }
        let is_held_up = portion.slots.iter().any(|(_, verdict)| *verdict == Verdict::Owed);
        let waits = is_held_up && step.record.cursor == step.before.cursor;
        Ok(if waits { Came::ToRest } else { Came::On(portion.slots.len()) })
    }

    /// Whether all its slots are judged, and those that it opened have ended.
    async fn is_through(&mut self, step: &Step<'_>) -> Result<bool, EngineError> {
        if !step.record.open.is_empty() {
            return Ok(false);
        }
        self.settle().await?;
        let Some(state) = self.pipelines.0.get(step.pipeline) else { return Ok(false) };
        let spec = self.specs.pipeline(step.pipeline, state.version).await;
        let spec = spec.map_err(EngineError::Declaration)?;
        let prospect = state.prospect(&spec, &step.record, (step.now, &self.scope))?;
        let cursor = step.record.cursor()?;
        let portion = prospect.portion(self.store.as_ref(), cursor.as_ref(), 1).await?;
        Ok(portion.is_end && portion.slots.is_empty())
    }

    /// Closes what has not begun of a backfill that was cancelled, and ends what runs if that was asked for.
    async fn close_what_is_left(&self, step: &mut Step<'_>) -> Result<Came, EngineError> {
        let mut ended = 0;
        for slot in &step.record.open {
            let place = slot.place()?;
            let state = self.pipelines.0.get(step.pipeline);
            let Some(open) = state.and_then(|state| state.open.get(&place)) else { continue };
            if !is_to_end(open, &step.record) {
                continue;
            }
            if ended == ENDED_PER_GROUP {
                return Ok(Came::On(ended));
            }
            ended += 1;
            let spec = self.specs.pipeline(step.pipeline, open.slot.version).await;
            let spec = spec.map_err(EngineError::Declaration)?;
            let why = format!("backfill {} was cancelled", step.number);
            let (pipeline, now) = (step.pipeline, step.now);
            let ender = Ender { pipeline, spec: &spec, place: &place, open, why: &why, now };
            ender.end(&mut step.plan);
        }
        // What was closed is counted by the next look.
        Ok(if ended > 0 { Came::On(ended) } else { Came::ToRest })
    }
}

/// Whether a cancel of its backfill ends a slot, and that was not asked for yet.
fn is_to_end(open: &OpenSlot, record: &BackfillRecord) -> bool {
    match open.slot.state {
        SlotState::Open(OpenState::Waiting | OpenState::Queued | OpenState::Backoff) => true,
        SlotState::Open(OpenState::Running) => {
            record.ends_runs && open.last_run().and_then(|run| end_wanted(&run.record)).is_none()
        }
        SlotState::Open(OpenState::Monitoring) | SlotState::Closed(_) => false,
    }
}

fn count(counts: &mut BackfillCounts, disposition: Disposition) {
    match disposition {
        Disposition::Completed => counts.completed += 1,
        Disposition::Failed => counts.failed += 1,
        Disposition::Cancelled => counts.cancelled += 1,
        Disposition::Skipped(_) | Disposition::Missed | Disposition::Unknown => counts.skipped += 1,
    }
}

/// An event about a backfill, with its counts.
pub(crate) fn event(
    kind: &'static str,
    now: Timestamp,
    message: String,
    (number, record): (u64, &BackfillRecord),
) -> Event<'static> {
    let counts = record.counts;
    Event::of(kind, now, message)
        .detail("backfill", number)
        .detail("total", record.total)
        .detail("opened", counts.opened)
        .detail("completed", counts.completed)
        .detail("failed", counts.failed)
        .detail("cancelled", counts.cancelled)
        .detail("skipped", counts.skipped)
}

impl PipelineState {
    /// What a backfill of it goes through, as things are now. Whoever owns one pipeline only records nothing that is
    /// due: what is owed then is the backfill's, and becomes rows ahead of the watermark.
    pub(crate) fn prospect<'a>(
        &self,
        spec: &'a Pipeline,
        record: &BackfillRecord,
        (now, scope): (Timestamp, &Scope),
    ) -> Result<Prospect<'a>, EngineError> {
        let is_held = self.is_paused(now) || !spec.enabled || !scope.is_shard();
        let recorded_until =
            |id: &ScheduleId| self.watermark(id).map(|(at, _)| at).filter(|_| !is_held);
        Ok(Prospect::new(spec, record, recorded_until)?)
    }

    /// The lane of a slot that a backfill opened.
    pub(crate) fn lane(&self, slot: &Slot) -> Option<Lane> {
        let number = slot.wish.as_ref()?.backfill?;
        let (record, _) = self.backfills.get(&number)?;
        let places = match record.standing() {
            Ok(State::Running) => record.concurrency,
            Ok(State::Paused | State::Cancelled | State::Done) | Err(_) => 0,
        };
        Some(Lane { number, places, order: record.order().ok()? })
    }
}
