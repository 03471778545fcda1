//! The end of a pause, and what becomes of what lay in it.

use interlock_engine::PlanLine;
use interlock_store::record::PauseRecord;

use super::catchup::{EXPANDED_MAX, counts_of, hash_of, line_answers};
use crate::{
    AnswerError, ErrorCode, Reader,
    model::{
        pipeline::PauseAnswer,
        plan::{ResumePlanAnswer, ResumePlanRequest},
    },
    read::run::pipeline_id,
};

/// What may become of the slots that lay in a pause.
const WISHES: [&str; 4] = ["none", "latest", "all", "policy"];

/// A pause, and what becomes of what lay in it when it ends.
#[derive(Debug, Default)]
pub struct ResumeLines {
    /// The one that is in force.
    pub pause: Option<PauseRecord>,
    /// In order of time, slots in a row with the same fate together.
    pub lines: Vec<PlanLine>,
}

impl ResumePlanRequest {
    /// What is asked for instead of the policy.
    pub fn wish(&self) -> Result<Option<String>, AnswerError> {
        match self.catchup.as_deref() {
            None | Some("policy") => Ok(None),
            Some(word) if WISHES.contains(&word) => Ok(Some(word.to_owned())),
            Some(word) => Err(AnswerError::question(
                ErrorCode::BadParameter,
                format!("`catchup` is `{word}`"),
                format!("It is one of {}.", WISHES.join(", ")),
            )),
        }
    }
}

impl Reader<'_> {
    /// What a resume of a pipeline would do now.
    pub async fn plan_resume(
        &self,
        name: &str,
        asked: &ResumePlanRequest,
    ) -> Result<ResumePlanAnswer, AnswerError> {
        let ResumeLines { pause, lines: found } = self.resume_lines(name, asked).await?;
        let lines = line_answers(self, &found, EXPANDED_MAX).await;
        Ok(ResumePlanAnswer {
            pipeline: name.to_owned(),
            at: self.now,
            plan: hash_of(&found),
            paused: pause.map(|it| PauseAnswer {
                reason: it.reason,
                since: it.since,
                until: it.until,
            }),
            has_ranges: lines.iter().any(|line| line.count > 1),
            lines,
            counts: counts_of(&found),
            missed: found.iter().filter(|it| it.is_missed()).map(|it| it.count).sum(),
        })
    }

    /// The same, slots in a row with the same fate together.
    pub async fn resume_lines(
        &self,
        name: &str,
        asked: &ResumePlanRequest,
    ) -> Result<ResumeLines, AnswerError> {
        let catchup = asked.wish()?;
        let id = pipeline_id(name)?;
        let Some(row) = self.agenda_row(&id).await? else {
            // One that is only declared has never been paused.
            self.declared_pipeline(name).await?;
            return Ok(ResumeLines::default());
        };
        let pause = row.record.record.pause.clone();
        let Some(pause) = pause.filter(|pause| pause.is_in_force(self.now)) else {
            return Ok(ResumeLines::default());
        };
        let ended = PauseRecord { until: Some(self.now), catchup, ..pause.clone() };
        let lines = self.owed_lines(&row, Some(&ended), None).await?;
        Ok(ResumeLines { pause: Some(pause), lines })
    }
}
