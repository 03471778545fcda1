//! Reports whose keys name a period go when that period is older than what is kept (ADR 46).
//!
//! Their owner takes them out, a few with each new report of the pipeline: it has them in memory too, and it knows what is still open
//! and may ask for them.

use interlock_core::id::PipelineId;
use interlock_store::{CHANGES_MAX, Change, Expect, Key, kept, retention};
use jiff::{SignedDuration, Timestamp};

use crate::{
    engine::{Engine, EngineError},
    scheduler::plus,
    write::Planned,
};

/// So many go with one report: a group has other changes too.
const AT_ONCE: usize = 8;
/// What is kept moves four times a day; a pipeline whose reports were looked through is left alone for as long.
const LOOK_EVERY: SignedDuration = SignedDuration::from_hours(6);
/// The data of a slot may be of a period that began so long before it.
const BEFORE_SLOT: SignedDuration = SignedDuration::from_hours(2 * 24);

impl Engine {
    /// Takes out some of what a pipeline's reports say about periods that are older than what is kept.
    pub(crate) async fn drop_old_reports(
        &mut self,
        pipeline: &PipelineId,
        (reported, now): (&str, Timestamp),
        plan: &mut Planned,
    ) -> Result<(), EngineError> {
        let state = self.pipelines.get_mut(pipeline);
        let is_looked_through = self.old_reports_at.get(pipeline).is_some_and(|at| now < *at);
        if is_looked_through || !state.backfills.is_empty() {
            return Ok(());
        }
        let first_open = state.open.keys().next().map(|(nominal, _)| plus(*nominal, -BEFORE_SLOT));
        let mut are_left = false;
        if let Some(floor) = kept::floor(self.store.as_ref()).await? {
            let before = first_open.map_or(floor, |first| first.min(floor));
            let rows = self.store.sensors(pipeline).await?;
            let mut old = rows.into_iter().filter(|(key, row)| {
                key != reported && retention::is_old_report(key, row.record.received_at, before)
            });
            let room = (CHANGES_MAX / 2).saturating_sub(plan.group.changes.len()).min(AT_ONCE);
            let go: Vec<Change> = old
                .by_ref()
                .take(room)
                .map(|(key, row)| Change::Delete(Key::Sensor(key), Expect::Revision(row.revision)))
                .collect();
            are_left = old.next().is_some();
            if !go.is_empty() {
                plan.group.changes.extend(go);
                // They are read again when a slot needs them, without those.
                self.pipelines.get_mut(pipeline).sensors = None;
            }
        }
        if !are_left {
            self.old_reports_at.insert(pipeline.clone(), plus(now, LOOK_EVERY));
        }
        Ok(())
    }
}
