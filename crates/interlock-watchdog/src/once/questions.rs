//! What a pass asks about besides the clock: what is due by the due index, every open slot, every sensor.

use interlock_core::{id::PipelineId, incident::IncidentState, run::RunState, slot::OpenState};
use interlock_store::{
    DueKind, Key, LedgerEntry, LedgerRow, Obligation, Record, RunQuery, StoreError, Subject,
    record::SlotRecord,
};
use jiff::SignedDuration;

use super::pass::{Pass, Questions};
use crate::{
    gather::Reconciles,
    judging::{DUE_INDEX, OPEN_SLOTS, UsableChecks},
    load,
    owed::plus,
    resident::WatchdogError,
    sweep::ask_about_open,
    watched::Watchlist,
};

/// Due entries that one pass looks at.
const DUE_MAX: usize = 100_000;

impl Pass<'_> {
    pub(super) async fn questions(
        &self,
        list: &Watchlist,
        usable: &mut UsableChecks,
    ) -> Result<Questions, WatchdogError> {
        let mut asked = Questions::new();
        let due = self.due().await;
        for (pipeline, due) in usable.read(DUE_INDEX, due) {
            asked.entry(pipeline).or_default().due.push(due);
        }
        let open = self.ask_about_open_slots(&mut asked).await;
        usable.read(OPEN_SLOTS, open);
        self.renew_lease().await?;
        for name in list.with_sensors(0..list.len()) {
            asked.entry(name.clone()).or_default().reconciles = Reconciles::Yes;
        }
        Ok(asked)
    }

    /// What is due by the due index. It knows the threshold of each pipeline, which another one replaces.
    async fn due(&self) -> Result<Vec<(PipelineId, Obligation)>, StoreError> {
        let page = self.options.store.due(self.shard, self.options.now, DUE_MAX).await?;
        let is_asked = |due: &Obligation| {
            self.options.stuck_run_threshold.is_none() || due.kind != DueKind::Stuck
        };
        let rows = page.items.into_iter().filter_map(|row| {
            let due = row.obligation().filter(is_asked)?;
            Some((row.pipeline, due))
        });
        Ok(rows.collect())
    }

    async fn ask_about_open_slots(&self, asked: &mut Questions) -> Result<(), StoreError> {
        let (store, now) = (self.options.store.as_ref(), self.options.now);
        let mut after = None;
        loop {
            let (rows, next) =
                load::open_slots(store, self.shard, (after.as_ref(), load::PAGE)).await?;
            for row in &rows {
                ask_about_open(row, now, asked);
                if let Some(threshold) = self.options.stuck_run_threshold
                    && let Some(due) = self.stuck(row, threshold).await?
                {
                    asked.entry(row.pipeline.clone()).or_default().due.push(due);
                }
            }
            after = next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// The run of an open slot that has not ended for longer than a threshold, unless people know.
    async fn stuck(
        &self,
        row: &LedgerRow,
        threshold: SignedDuration,
    ) -> Result<Option<Obligation>, StoreError> {
        let LedgerEntry::Slot(slot) = &row.entry else { return Ok(None) };
        if *slot.state != *OpenState::Running.as_str() {
            return Ok(None);
        }
        let (store, now) = (self.options.store.as_ref(), self.options.now);
        let query = RunQuery {
            pipeline: Some(row.pipeline.clone()),
            slot: Some((row.schedule.clone(), row.nominal)),
            limit: 1,
            ..RunQuery::default()
        };
        let Some(run) = store.runs(&query).await?.items.into_iter().next() else {
            return Ok(None);
        };
        let is_under_way = matches!(
            run.record.state(),
            Ok(RunState::Pending | RunState::Triggering | RunState::Running)
        );
        let at = plus(run.record.created_at, threshold);
        if !is_under_way || now < at || self.is_told_stuck(row, slot).await? {
            return Ok(None);
        }
        Ok(Some(Obligation::new(at, DueKind::Stuck, Subject::Run(run.key))))
    }

    /// Whether the incident of the day is there already: one alert for a pipeline, schedule and day.
    async fn is_told_stuck(&self, row: &LedgerRow, slot: &SlotRecord) -> Result<bool, StoreError> {
        let key = format!("watchdog:stuck:{}:{}:{}", row.pipeline, row.schedule, slot.date);
        let rows = self.options.store.read(&row.pipeline, &[Key::Incident(key)]).await?;
        Ok(rows.into_iter().flatten().any(|row| {
            let Record::Incident(incident) = &row.record else { return false };
            incident.standing() != Ok(IncidentState::Resolved)
        }))
    }
}
