//! The recount: quarter by quarter the whole fleet is read again, so that no hint that was lost does lasting harm.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use interlock_core::id::PipelineId;
use interlock_store::{Shard, StoreError};
use jiff::Timestamp;

use super::{
    cells::Quarter,
    dirty::END,
    follow::{FleetFollower, PIPELINES_AT_ONCE},
    read::{
        SeenByPipeline, read_incidents, read_ledger, read_ledger_carefully, read_open,
        read_revisions,
    },
    seen::{OpenSlot, QuarterRange, SeenRows},
    table::FleetTable,
    tallied::{TalliedIncident, TalliedPipeline, first_kept},
};

impl FleetFollower {
    /// Counts one quarter of the whole fleet anew; after the last one what is declared, open and wrong.
    pub(super) async fn recount_step(&mut self, now: Timestamp) -> Result<(), StoreError> {
        if self.store.mark().await?.number < self.read_to.unwrap_or_default() {
            // The store has forgotten what it acknowledged.
            self.read_to = None;
            return Ok(());
        }
        self.recount.at = now;
        let from = self.recount.next.max(first_kept(now));
        let is_last = from > Quarter::of(now);
        let until = if is_last { END } else { from.after(1) };
        let range = QuarterRange { from, until };
        let seen = match read_ledger(&*self.store, None, range).await {
            Err(error) if !error.is_retryable => {
                let names = self.tally.read().pipelines().keys().cloned().collect();
                read_ledger_carefully(&*self.store, names, range).await?
            }
            seen => seen?,
        };
        self.take_recounted(range, &seen, now);
        self.recount.next = until;
        if is_last {
            self.recount.next = first_kept(now);
            self.recount_rest(now).await?;
        }
        Ok(())
    }

    fn take_recounted(&self, range: QuarterRange, seen: &SeenByPipeline, now: Timestamp) {
        let mut table = self.tally.write();
        let empty = SeenRows::default();
        // Of those of which nothing was seen, only the ones that say otherwise.
        let unseen = table.pipelines().iter();
        let unseen = unseen.filter(|(name, it)| !seen.contains_key(*name) && it.has_any(range));
        let unseen: Vec<PipelineId> = unseen.map(|(name, _)| name.clone()).collect();
        for (name, rows) in seen {
            table.change(name, now, |pipeline| pipeline.take(range, rows, now));
        }
        for name in &unseen {
            table.change(name, now, |pipeline| pipeline.take(range, &empty, now));
        }
    }

    /// Looks again which pipelines there are, what is open and what is wrong. Rows are read of those that have changed, and of those that
    /// look as if something were due and not recorded.
    async fn recount_rest(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let store = Arc::clone(&self.store);
        let names: Vec<PipelineId> = self.tally.read().pipelines().keys().cloned().collect();
        let open = read_open(&*store, names.clone()).await?;
        let incidents = read_incidents(&*store, names).await?;
        let (mut listed, mut stale) = (BTreeSet::new(), Vec::new());
        for shard in (0..store.shard_count()).map(Shard) {
            let revisions = read_revisions(&*store, shard).await?;
            let table = self.tally.read();
            for (name, revision) in revisions {
                let known = table.pipeline(&name);
                let is_known = |it: &TalliedPipeline| {
                    it.declared.revision == revision && !it.declared.owes(now)
                };
                if !known.is_some_and(is_known) {
                    stale.push(name.clone());
                }
                listed.insert(name);
            }
        }
        for chunk in stale.chunks(PIPELINES_AT_ONCE) {
            let rows = self.read_rows(chunk).await?;
            let tally = self.tally.clone();
            self.take_rows(&mut tally.write(), rows, now);
        }
        let mut table = self.tally.write();
        table.keep_only(&listed);
        take_open_of_all(&mut table, open, now);
        take_incidents_of_all(&mut table, incidents, now);
        self.shared.sweep();
        Ok(())
    }
}

impl TalliedPipeline {
    /// Whether anything is counted in a range.
    fn has_any(&self, range: QuarterRange) -> bool {
        self.cells.touches(range.from, range.until)
            || self.ahead.iter().any(|slot| range.has(slot.at))
            || self.open.iter().any(|slot| range.has(slot.at))
            || self.last.is_some_and(|last| range.has(last.at))
            || self.problem.as_ref().is_some_and(|it| range.from <= it.at && it.at < range.until)
    }
}

/// Takes over which slots are open, where that is not what is known.
pub(super) fn take_open_of_all(
    table: &mut FleetTable,
    mut open: BTreeMap<PipelineId, Vec<OpenSlot>>,
    now: Timestamp,
) {
    let has_open = table.pipelines().iter().filter(|(_, it)| !it.open.is_empty());
    for name in has_open.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
        open.entry(name).or_default();
    }
    for (name, open) in open {
        table.change(&name, now, |pipeline| pipeline.take_open(open));
    }
}

/// Takes over which incidents are open, where that is not what is known.
pub(super) fn take_incidents_of_all(
    table: &mut FleetTable,
    mut incidents: BTreeMap<PipelineId, Vec<TalliedIncident>>,
    now: Timestamp,
) {
    let has_any = table.pipelines().iter().filter(|(_, it)| !it.incidents.is_empty());
    for name in has_any.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
        incidents.entry(name).or_default();
    }
    for (name, incidents) in incidents {
        table.change(&name, now, |pipeline| pipeline.incidents = incidents.into());
    }
}
