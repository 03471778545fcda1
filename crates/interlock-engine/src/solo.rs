//! One pipeline only, or only requests about incidents, for a command while `serve` is not running.
//!
//! It holds the shard's lease like any owner, and does less: it applies that pipeline's inbox, records what
//! its jobs report, and steps only the slots that it was told to drive. It opens nothing that is due by itself, moves
//! no watermark, retires nothing and judges nobody's absence: all of that waits for `serve`. A slot that is owed and that
//! a person names (`run --slot`, a backfill) becomes a row ahead of the watermark, which the next catch-up passes over
//! (`docs/adr/0051-rows-ahead-of-the-watermark.md`). The other open
//! slots of the pipeline keep their places (S6); what the runner tells about other pipelines stays with the
//! runner, unacknowledged, and is told again to the next owner.
//!
//! A pipeline that the ledger does not know yet is declared: its row and the watermarks of its schedules are
//! created at this moment. That is a first sight, not a move of a watermark; without it a command could do
//! nothing in a fresh project. The same goes for an edited file: the gap before it is a gap after downtime,
//! which the current version fills (S16).

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use interlock_core::{
    backfill::State,
    id::{PipelineId, ScheduleId},
    readiness::Verdict,
    slot::{Slot, SlotState},
};
use interlock_store::{
    InboxEntry, RunKey, Shard,
    record::{BackfillSlot, InboxRecord},
};
use jiff::Timestamp;

use crate::{
    engine::{Declaration, Engine, EngineError, Parts},
    inbox::ENTRIES_MAX,
    state::{OpenSlot, SlotPlace},
};

/// What an engine looks after.
#[derive(Debug, Default)]
pub(crate) enum Scope {
    /// Every pipeline of its shard.
    #[default]
    Shard,
    /// One pipeline, and of that only what it is told to.
    One(One),
    /// Requests about incidents of every pipeline of its shard, and nothing else.
    Incidents,
}

#[derive(Debug)]
pub(crate) struct One {
    pipeline: PipelineId,
    /// The slots to drive, with the last verdict.
    driven: BTreeMap<SlotPlace, Option<Verdict>>,
    /// The backfill to drive.
    backfill: Option<u64>,
}

impl One {
    /// Brings more slots to their end.
    pub(crate) fn drive_all(&mut self, places: impl Iterator<Item = SlotPlace>) {
        self.driven.extend(places.map(|place| (place, None)));
    }
}

impl Scope {
    pub(crate) fn is_shard(&self) -> bool {
        matches!(self, Self::Shard)
    }

    /// Whether an entry of the inbox is this engine's to apply.
    fn is_about(&self, entry: &InboxEntry) -> bool {
        match self {
            Self::Shard => true,
            Self::One(one) => one.pipeline == entry.pipeline,
            Self::Incidents => matches!(entry.record, InboxRecord::Incident { .. }),
        }
    }

    /// Whether news about a run is for this engine.
    pub(crate) fn is_about_run(&self, run_id: &str) -> bool {
        match self {
            Self::Shard => true,
            Self::One(one) => RunKey::parse(run_id).is_ok_and(|(name, _)| one.pipeline == name),
            Self::Incidents => false,
        }
    }

    /// Whether a backfill is to be moved on. What a cancelled one left open is closed by anybody.
    pub(crate) fn may_advance(&self, number: u64, state: State) -> bool {
        match self {
            Self::Shard => true,
            Self::One(one) => one.backfill == Some(number) || state == State::Cancelled,
            Self::Incidents => false,
        }
    }

    /// Whether a slot may be started and closed.
    pub(crate) fn drives(&self, place: &SlotPlace) -> bool {
        match self {
            Self::Shard => true,
            Self::One(one) => one.driven.contains_key(place),
            Self::Incidents => false,
        }
    }

    /// The open slots of a pipeline as the plan is to see them: those that are driven as they are, of the
    /// others only the ones that hold a place, which they keep whatever their time says. Only those `near` their turn.
    pub(crate) fn view<'a>(
        &self,
        open: &'a BTreeMap<SlotPlace, OpenSlot>,
        near: &[SlotPlace],
    ) -> Vec<(&'a SlotPlace, Cow<'a, Slot>)> {
        let near = near.iter().filter_map(|place| open.get_key_value(place));
        let seen = near.filter_map(|(place, open)| {
            if self.drives(place) {
                return Some((place, Cow::Borrowed(&open.slot)));
            }
            let holds_place =
                matches!(open.slot.state, SlotState::Open(state) if state.occupies_place());
            let kept = || Slot { closes_at: Timestamp::MAX, ..open.slot.clone() };
            holds_place.then(|| (place, Cow::Owned(kept())))
        });
        seen.collect()
    }

    /// Remembers why driven slots wait.
    pub(crate) fn saw(&mut self, verdicts: &BTreeMap<SlotPlace, Arc<Verdict>>) {
        let Self::One(one) = self else { return };
        for (place, verdict) in verdicts {
            if let Some(last) = one.driven.get_mut(place) {
                *last = Some(Verdict::clone(verdict));
            }
        }
    }
}

impl Engine {
    /// Takes the lease for one pipeline, and declares it if its file is at hand; `None` while somebody else
    /// holds the shard.
    pub async fn open_one(
        parts: Parts,
        pipeline: &PipelineId,
        declared: Option<&Declaration>,
    ) -> Result<Option<Self>, EngineError> {
        let shard = Shard::of(pipeline, parts.store.shard_count());
        let scope =
            Scope::One(One { pipeline: pipeline.clone(), driven: BTreeMap::new(), backfill: None });
        let Some(mut engine) = Self::take(parts, shard, scope).await? else { return Ok(None) };
        let starts = declared.iter().flat_map(|declared| &declared.pipeline.starts);
        let controls = declared.iter().flat_map(|declared| &declared.pipeline.controls);
        let starts = starts.map(|start| start.schedule.id());
        let controls = controls.map(|control| control.schedule.id());
        let schedules: BTreeSet<_> = starts.chain(controls).cloned().collect();
        engine.load_one(pipeline, &schedules).await?;
        if let Some(declared) = declared {
            let planned = engine.plan_succession(declared, engine.world.now()).await?;
            engine.commit(planned).await?;
        }
        Ok(Some(engine))
    }

    /// Takes the lease for requests about incidents, of all pipelines of a shard; `None` while another process holds it. Nothing of
    /// the pipelines is loaded: each pass reads the incidents that it is asked about.
    pub async fn open_for_incidents(
        parts: Parts,
        shard: Shard,
    ) -> Result<Option<Self>, EngineError> {
        Self::take(parts, shard, Scope::Incidents).await
    }

    /// Brings a slot of the one pipeline to its end from now on. What an earlier process started is looked
    /// up first (S18).
    pub async fn drive(&mut self, schedule: &ScheduleId, nominal: Timestamp) {
        let Scope::One(one) = &mut self.scope else { return };
        one.driven.insert((nominal, schedule.clone()), None);
        let pipeline = one.pipeline.clone();
        self.dirty.insert(pipeline);
        self.look_up_what_runs().await;
    }

    /// Brings a backfill of the one pipeline to its end from now on, with the slots of it that are open.
    pub async fn drive_backfill(&mut self, number: u64) -> Result<(), EngineError> {
        let Scope::One(one) = &mut self.scope else { return Ok(()) };
        one.backfill = Some(number);
        let pipeline = one.pipeline.clone();
        let known = self.pipelines.get_mut(&pipeline).backfills.get(&number);
        let open = known.map(|(record, _)| record.open.iter().map(BackfillSlot::place));
        let places: Vec<_> = open.into_iter().flatten().collect::<Result<_, _>>()?;
        if let Scope::One(one) = &mut self.scope {
            one.drive_all(places.into_iter());
        }
        self.dirty.insert(pipeline);
        self.look_up_what_runs().await;
        Ok(())
    }

    /// Whether the backfill that is driven has nothing open and nothing to open, and is not over: it is paused, or its
    /// pipeline starts nothing.
    pub fn backfill_waits(&self) -> bool {
        let Scope::One(one) = &self.scope else { return false };
        let state = self.pipelines.0.get(&one.pipeline);
        let known = one.backfill.and_then(|number| state?.backfills.get(&number));
        known.is_some_and(|(record, _)| record.open.is_empty())
            && !self.dirty.contains(&one.pipeline)
    }

    /// Why a driven slot waited when it was last looked at.
    pub fn verdict(&self, schedule: &ScheduleId, nominal: Timestamp) -> Option<&Verdict> {
        match &self.scope {
            Scope::Shard | Scope::Incidents => None,
            Scope::One(one) => one.driven.get(&(nominal, schedule.clone()))?.as_ref(),
        }
    }

    /// Waits until an instant, or until there is something for the next pass.
    pub async fn wait(&mut self, until: Timestamp) {
        let sleep = self.world.sleep_until(until);
        tokio::select! {
            biased;
            Some(report) = self.reports.recv() => self.take_report(report),
            Some(message) = self.messages.recv() => self.take_message(message),
            () = sleep => {}
        }
    }

    /// Gives the lease back; jobs go on without it.
    pub async fn close(self) -> Result<(), EngineError> {
        Ok(self.store.release(self.writer).await?)
    }

    /// The inbox entries that are this engine's to apply. Without a daemon those of other pipelines pile up;
    /// they are read over.
    pub(crate) async fn entries(&self) -> Result<Vec<InboxEntry>, EngineError> {
        let mut limit = ENTRIES_MAX;
        if self.clock.doubt().is_some() {
            // Reports wait, and whoever says that the clock is right must not wait behind them.
            limit = limit.saturating_mul(50);
        }
        loop {
            let page = self.store.inbox(self.writer.shard, limit).await?;
            let mut items = page.items;
            items.retain(|entry| self.scope.is_about(entry));
            if !items.is_empty() || !page.more || self.scope.is_shard() {
                return Ok(items);
            }
            limit = limit.saturating_mul(4);
        }
    }
}
