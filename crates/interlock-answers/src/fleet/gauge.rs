//! What is measured of single pipelines, for those that are asked for.

use interlock_config::route::fits;
use interlock_core::{id::PipelineId, run::RunState};
use interlock_store::{RunQuery, for_each};
use jiff::Timestamp;

use super::{table::FleetTally, tallied::TalliedPipeline};
use crate::{AnswerError, Reader, model::fleet::FleetPlace};

/// Pipelines that are measured at most.
pub const PIPELINES_MAX: usize = 1_000;

/// What is measured of some pipelines.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PipelineGauges {
    /// Of each, by name.
    pub pipelines: Vec<PipelineGauge>,
    /// How many others were asked for.
    pub left_out: usize,
}

/// What is measured of a pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct PipelineGauge {
    /// Its name.
    pub pipeline: String,
    /// For how many seconds its oldest slot is due that has not completed; 0 when all is well.
    pub overdue_seconds: i64,
    /// When a run last completed, in seconds since the epoch.
    pub last_success: Option<i64>,
    /// How long that took, in seconds.
    pub last_duration_seconds: Option<f64>,
    /// Incidents that are not resolved.
    pub open_incidents: u64,
}

impl Reader<'_> {
    /// Measures the pipelines whose names match one of some patterns (`*` stands for anything), by name, at most [`PIPELINES_MAX`].
    pub async fn pipeline_gauges(
        &self,
        tally: &FleetTally,
        patterns: &[String],
    ) -> Result<PipelineGauges, AnswerError> {
        let (measured, left_out) = self.tallied(tally, patterns);
        let store = self.store;
        let pipelines = for_each(measured, |(name, mut gauge)| async move {
            let query = RunQuery {
                pipeline: Some(name),
                status: Some(RunState::Completed.as_str().to_owned()),
                limit: 1,
                ..RunQuery::default()
            };
            let run = store.runs(&query).await?.items.into_iter().next();
            let run = run.map(|run| run.record);
            gauge.last_success =
                run.as_ref().and_then(|run| run.ended_at).map(Timestamp::as_second);
            gauge.last_duration_seconds =
                run.and_then(|run| run.duration()).map(|took| took.as_secs_f64());
            Ok(gauge)
        });
        Ok(PipelineGauges { pipelines: pipelines.await?, left_out })
    }

    fn tallied(
        &self,
        tally: &FleetTally,
        patterns: &[String],
    ) -> (Vec<(PipelineId, PipelineGauge)>, usize) {
        let table = tally.read();
        let is_asked_for =
            |name: &PipelineId| patterns.iter().any(|pattern| fits(pattern, name.as_str()));
        let mut asked = table.pipelines().iter().filter(|(name, _)| is_asked_for(name));
        let measured = asked.by_ref().take(PIPELINES_MAX).map(|(name, pipeline)| {
            let gauge = PipelineGauge {
                pipeline: name.to_string(),
                overdue_seconds: pipeline
                    .overdue_since(self.now)
                    .map_or(0, |since| self.now.duration_since(since).as_secs().max(0)),
                last_success: None,
                last_duration_seconds: None,
                open_incidents: pipeline.incidents.len() as u64,
            };
            (name.clone(), gauge)
        });
        let measured = measured.collect();
        (measured, asked.count())
    }
}

impl TalliedPipeline {
    /// Since when its oldest slot is due that has not completed.
    fn overdue_since(&self, now: Timestamp) -> Option<Timestamp> {
        let open = self.open.iter().map(|slot| slot.at);
        let owed = self.declared.schedules.iter().filter_map(|it| it.owed_from);
        let last = self.last.filter(|last| {
            matches!(last.place, FleetPlace::Failed | FleetPlace::Missed | FleetPlace::Unknown)
        });
        let all = open.chain(owed).chain(last.map(|last| last.at));
        all.filter(|at| *at <= now).min()
    }
}
