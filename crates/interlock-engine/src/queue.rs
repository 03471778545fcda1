//! Long queues: of thousands of slots that wait for their turn only the first are kept and looked at.

use interlock_core::{
    id::PipelineId,
    pipeline::{OverlapPolicy, Pipeline},
    run::TriggerType,
    slot::{OpenState, Slot, SlotState},
};
use interlock_store::LedgerQuery;
use jiff::Timestamp;

use crate::{
    engine::{Engine, EngineError},
    state::{OpenSlot, SlotPlace},
};

/// The next are fetched when so few are left of those that may be kept: a quarter.
const LOW: usize = 4;
/// Of a pipeline that runs more at a time so many are fetched at least.
const AT_ONCE_MAX: usize = 100;
/// So many beyond the places of a pipeline are looked at: some may turn out not to be ready.
const TURNS_AHEAD: usize = 3;

impl Engine {
    /// Fetches the next queued slots from the store when few are left here.
    pub(crate) async fn fetch_queued(
        &mut self,
        pipeline: &PipelineId,
        spec: &Pipeline,
    ) -> Result<(), EngineError> {
        let share = self.pipelines.share();
        // Who runs many at a time needs as many.
        let low = (share / LOW).max(spec.active_runs_max as usize + 1).min(AT_ONCE_MAX);
        let share = share.max(2 * low);
        let state = self.pipelines.get_mut(pipeline);
        let (count, last) = state.open.deferrable();
        if !state.has_more_queued || count >= low {
            return Ok(());
        }
        let from = last.map_or(Timestamp::MIN, |(nominal, _)| *nominal);
        self.settle().await?;
        let query = LedgerQuery {
            pipeline: Some(pipeline.clone()),
            disposition: Some("open".to_owned()),
            from,
            ..LedgerQuery::everything(self.pipelines.get_mut(pipeline).open.len() + share)
        };
        let page = self.store.ledger(&query).await?;
        let state = self.pipelines.get_mut(pipeline);
        let before = state.undecided();
        state.fetch(&page, share)?;
        self.vitals.open_slots_reloaded(before, state.undecided());
        Ok(())
    }

    /// Which queued slots cannot have their turn now, so that nobody need be asked about them.
    pub(crate) fn beyond_their_turn(
        &self,
        pipeline: &PipelineId,
        spec: &Pipeline,
        now: Timestamp,
    ) -> Beyond {
        // Under `latest` all but one are closed, if nobody asked for them.
        let all_stay = spec.catchup.overlap != OverlapPolicy::Latest;
        let nobody = Beyond { first: None, all_stay, now };
        let Some(state) = self.pipelines.0.get(pipeline) else { return nobody };
        // In a pipeline that is gone all are.
        if state.is_retired() {
            return nobody;
        }
        let turns = spec.active_runs_max as usize + TURNS_AHEAD;
        let mut in_line = state
            .open
            .iter()
            .filter(|(place, open)| nobody.is_in_line(&open.slot) && self.scope.drives(place));
        Beyond { first: in_line.nth(turns).map(|(place, _)| place.clone()), ..nobody }
    }
}

/// The queued slots from one on: it is not their turn.
#[derive(Debug)]
pub(crate) struct Beyond {
    first: Option<SlotPlace>,
    /// Whether every queued slot stays until its turn.
    all_stay: bool,
    now: Timestamp,
}

impl Beyond {
    /// The other open slots: those whose turn may have come, and those that do not wait for one.
    pub(crate) fn near<'a>(
        &self,
        open: impl Iterator<Item = (&'a SlotPlace, &'a OpenSlot)>,
    ) -> Vec<SlotPlace> {
        let near = open.filter(|(place, open)| !self.has(place, &open.slot));
        near.map(|(place, _)| place.clone()).collect()
    }

    fn has(&self, place: &SlotPlace, slot: &Slot) -> bool {
        self.first.as_ref().is_some_and(|first| place >= first) && self.is_in_line(slot)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Whether a slot waits for its turn among those that the schedule owed: what people and backfills ask for comes
    /// after these, and is never that much.
    fn is_in_line(&self, slot: &Slot) -> bool {
        slot.state == SlotState::Open(OpenState::Queued)
            && matches!(slot.opened_by, TriggerType::Scheduler | TriggerType::Catchup)
            && self.now < slot.closes_at
            && (self.all_stay || slot.is_asked_for())
    }
}
