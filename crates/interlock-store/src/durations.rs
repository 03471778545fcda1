//! How long the runs of a schedule usually take, out of those that completed last.

use interlock_core::{
    id::{PipelineId, ScheduleId},
    usual_duration::{RUNS_MAX, usual_duration},
};
use jiff::SignedDuration;

use crate::{
    Store, StoreError,
    record::RunRecord,
    scan::{RunFilter, find_runs},
};

/// The usual duration of a schedule's runs; none while too few of them completed. In bounded work: where other schedules of the
/// pipeline ran thousands of times since, older runs are not looked for.
pub async fn usual_duration_of(
    store: &dyn Store,
    pipeline: &PipelineId,
    schedule: &ScheduleId,
) -> Result<Option<SignedDuration>, StoreError> {
    let filter = RunFilter {
        pipeline: Some(pipeline.clone()),
        schedule: Some(schedule.clone()),
        statuses: vec!["COMPLETED".to_owned()],
        ..RunFilter::default()
    };
    let page = find_runs(store, &filter, None, RUNS_MAX).await?;
    let durations: Vec<_> = page.items.iter().filter_map(|row| row.record.duration()).collect();
    Ok(usual_duration(&durations))
}

impl RunRecord {
    /// How long its job took; none while it is under way.
    pub fn duration(&self) -> Option<SignedDuration> {
        Some(self.ended_at?.duration_since(self.started_at.unwrap_or(self.created_at)))
    }
}
