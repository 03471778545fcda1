//! How long the runs of a pipeline usually take, and which of those that are under way are at risk.

use std::collections::BTreeMap;

use interlock_core::{
    id::{PipelineId, ScheduleId, SlotKey},
    run::RunState,
    usual_duration::{RUNS_MAX, RunningJob, usual_duration},
};
use interlock_store::{
    Key, LedgerEntry, LedgerRow, Record, Row, RunKey, RunQuery, StoreError, record::SlaRecord,
};
use jiff::SignedDuration;

use crate::{
    Reader,
    model::pipeline::{RunningSlotAnswer, UsualDurationAnswer},
};

/// Completed runs that are looked at, of all schedules of a pipeline together.
const RUNS_LOOKED_AT: usize = 1_000;
/// Running slots that are told.
const RUNNING_SHOWN: usize = 100;

/// How long runs of a pipeline take.
pub(super) struct PipelineDurations {
    pub(super) usual: Vec<UsualDurationAnswer>,
    pub(super) running: Vec<RunningSlotAnswer>,
}

impl Reader<'_> {
    /// How long runs of a pipeline take; of its slots those that run are told.
    pub(super) async fn durations(
        &self,
        pipeline: &PipelineId,
        open: &[LedgerRow],
    ) -> Result<PipelineDurations, StoreError> {
        let found = self.completed_durations(pipeline).await?;
        let mut running = Vec::new();
        for row in open {
            let LedgerEntry::Slot(slot) = &row.entry else { continue };
            if slot.state != "running" || running.len() >= RUNNING_SHOWN {
                continue;
            }
            let (schedule, nominal) = (row.schedule.clone(), row.nominal);
            let (generation, attempt) = (slot.generation, slot.attempt);
            let key = RunKey { schedule: schedule.clone(), nominal, generation, attempt };
            let rows = self.store.read(pipeline, &[Key::Run(key.clone())]).await?;
            let Some(Row { record: Record::Run(run), .. }) = rows.into_iter().flatten().next()
            else {
                continue;
            };
            let Some(started_at) = run.started_at else { continue };
            let usual = found.get(&schedule).and_then(|found| usual_duration(found));
            let sla = slot.sla.as_deref().copied().map(SlaRecord::to_core).unwrap_or_default();
            let job = RunningJob { started_at, usual, sla };
            let slot = SlotKey { pipeline: pipeline.clone(), schedule, nominal };
            running.push(RunningSlotAnswer {
                slot: slot.to_string(),
                run: key.id(pipeline),
                started_at,
                expected_end: job.expected_end(self.now),
                risk: job.risk(self.now).map(|risk| risk.as_str().to_owned()),
            });
        }
        let usual = found.iter().map(|(schedule, found)| UsualDurationAnswer {
            schedule: schedule.to_string(),
            seconds: usual_duration(found).map(|usual| usual.as_secs()),
            runs: found.len() as u64,
        });
        Ok(PipelineDurations { usual: usual.collect(), running })
    }

    /// How long the last completed runs of each schedule took, newest first.
    async fn completed_durations(
        &self,
        pipeline: &PipelineId,
    ) -> Result<BTreeMap<ScheduleId, Vec<SignedDuration>>, StoreError> {
        let query = RunQuery {
            pipeline: Some(pipeline.clone()),
            status: Some(RunState::Completed.as_str().to_owned()),
            limit: RUNS_LOOKED_AT,
            ..RunQuery::default()
        };
        let mut found: BTreeMap<ScheduleId, Vec<SignedDuration>> = BTreeMap::new();
        for run in self.store.runs(&query).await?.items {
            let (Some(began), Some(ended)) = (run.record.started_at, run.record.ended_at) else {
                continue;
            };
            let durations = found.entry(run.key.schedule).or_default();
            if durations.len() < RUNS_MAX {
                durations.push(ended.duration_since(began));
            }
        }
        Ok(found)
    }
}
