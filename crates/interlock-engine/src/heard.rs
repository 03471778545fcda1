//! What is remembered of a watch-only pipeline's reports, so that a repeated one costs no read.
//!
//! A decided slot is not in memory, and its runs are not either. Of the latest one a few words are kept, and the
//! names (`rid`) of the last runs, from the first report that has one on. All of it follows from accepted groups,
//! as everything here does, and is dropped when the pipeline is loaded again.

use std::collections::VecDeque;

use interlock_core::{report::RunSeen, retry::FailureCategory, slot::Slot};
use interlock_store::{RunKey, record::RunRecord};
use jiff::Timestamp;

use crate::state::{KnownRun, SlotPlace};

/// Names of runs that are remembered per pipeline.
pub(crate) const RIDS_KEPT: usize = 64;
/// Runs of a decided slot that are remembered.
const RUNS_KEPT: usize = 8;
/// The field of a run's metadata that holds its name.
pub(crate) const RID: &str = "rid";

/// What is remembered.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// The latest slot that is decided.
    pub(crate) decided: Option<Decided>,
    /// The names of the last runs, oldest first; `None` until somebody asks.
    pub(crate) rids: Option<VecDeque<(String, RunKey)>>,
}

/// A decided slot with a few words about its runs, oldest first.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) place: SlotPlace,
    pub(crate) slot: Slot,
    pub(crate) revision: u64,
    pub(crate) runs: Vec<(RunKey, RunSeen)>,
}

impl Heard {
    /// A slot was decided, or changed after it was.
    pub(crate) fn decided(
        &mut self,
        place: &SlotPlace,
        (slot, revision): (Slot, u64),
        runs: &[KnownRun],
    ) {
        match &mut self.decided {
            Some(known) if known.place == *place => (known.slot, known.revision) = (slot, revision),
            Some(known) if known.place > *place => {}
            Some(_) | None => {
                let runs = runs.iter().map(|run| (run.key.clone(), seen(&run.record)));
                let runs = runs.collect();
                self.decided = Some(Decided { place: place.clone(), slot, revision, runs });
            }
        }
    }

    /// A run began, or changed.
    pub(crate) fn run(&mut self, key: &RunKey, record: &RunRecord) {
        let place = (key.nominal, key.schedule.clone());
        if let Some(decided) = self.decided.as_mut().filter(|decided| decided.place == place) {
            match decided.runs.iter_mut().find(|(known, _)| known == key) {
                Some((_, known)) => *known = seen(record),
                None => decided.runs.push((key.clone(), seen(record))),
            }
            let surplus = decided.runs.len().saturating_sub(RUNS_KEPT);
            decided.runs.drain(..surplus);
        }
        let rid = rid_of(record);
        if let (Some(rids), Some(rid)) = (&mut self.rids, rid)
            && !rids.iter().any(|(_, known)| known == key)
        {
            rids.push_back((rid.to_owned(), key.clone()));
            if rids.len() > RIDS_KEPT {
                rids.pop_front();
            }
        }
    }

    /// The newest run of a name, if names are known.
    pub(crate) fn find(&self, rid: &str) -> Option<&RunKey> {
        let found = self.rids.as_ref()?.iter().rev().find(|(known, _)| known == rid);
        found.map(|(_, key)| key)
    }
}

/// The reporter's name for a run.
pub(crate) fn rid_of(record: &RunRecord) -> Option<&str> {
    record.metadata.get(RID).and_then(|rid| rid.as_str())
}

/// A run, as the rules about reports see it.
pub(crate) fn seen(record: &RunRecord) -> RunSeen {
    let state = record.state().unwrap_or(interlock_core::run::RunState::Failed);
    let RunRecord { started_at, ended_at, .. } = record;
    let rid = rid_of(record).map(str::to_owned);
    let is_given_up = record.category.as_deref() == Some(FailureCategory::Timeout.as_str());
    RunSeen { rid, state, started_at: *started_at, ended_at: *ended_at, is_given_up }
}

/// The order of runs for whoever looks for the newest.
pub(crate) fn began(run: &RunSeen) -> Option<Timestamp> {
    run.started_at.or(run.ended_at)
}
