//! What people ask of backfills: start, pause, resume, cancel. Each is one group; the rest follows in passes.

use std::sync::Arc;

use interlock_core::{
    backfill::{self, CONCURRENCY_MAX, Fingerprint, Order, Reprocess, State, has_slots},
    id::{PipelineId, ScheduleId},
    pipeline::Pipeline,
    text::counted,
};
use interlock_store::{
    BackfillQuery, Key, Record,
    record::{BackfillCounts, BackfillRecord, InboxRecord, version_text},
};
use jiff::Timestamp;
use serde_json::json;

use super::event;
use crate::{
    engine::{Engine, EngineError},
    inbox::Answer,
    write::Planned,
};

/// Rows per page.
const PAGE: usize = 1_000;

impl Engine {
    /// Applies a request about backfills.
    pub(crate) async fn about_backfill(
        &self,
        (pipeline, spec): (&PipelineId, &Pipeline),
        (asked, now): (&InboxRecord, Timestamp),
        plan: &mut Planned,
    ) -> Result<Answer, EngineError> {
        let change = match asked {
            InboxRecord::StartBackfill { .. } => {
                return self.start_backfill((pipeline, spec), (asked, now), plan).await;
            }
            InboxRecord::PauseBackfill { backfill } => (*backfill, State::Paused, ""),
            InboxRecord::ResumeBackfill { backfill } => (*backfill, State::Running, ""),
            InboxRecord::CancelBackfill { backfill, reason, .. } => {
                (*backfill, State::Cancelled, reason.as_str())
            }
            InboxRecord::Sensor { .. }
            | InboxRecord::Run { .. }
            | InboxRecord::Rerun { .. }
            | InboxRecord::Cancel { .. }
            | InboxRecord::Pause { .. }
            | InboxRecord::Resume { .. }
            | InboxRecord::Catchup {}
            | InboxRecord::StopCatchup { .. }
            | InboxRecord::SendAgain { .. }
            | InboxRecord::Asked { .. }
            | InboxRecord::Look {}
            | InboxRecord::File { .. }
            | InboxRecord::Incident { .. }
            | InboxRecord::Noticed { .. }
            | InboxRecord::Heard { .. }
            | InboxRecord::Keep { .. }
            | InboxRecord::Silence { .. }
            | InboxRecord::Bark { .. }
            | InboxRecord::Report(_)
            | InboxRecord::Job { .. }
            | InboxRecord::Unreadable { .. }
            | InboxRecord::Complete { .. } => {
                return Ok(Err("the request names no backfill".to_owned()));
            }
        };
        let ends_runs = matches!(asked, InboxRecord::CancelBackfill { ends_runs: true, .. });
        self.steer_backfill(pipeline, change, ends_runs, (now, plan)).await
    }

    async fn start_backfill(
        &self,
        (pipeline, spec): (&PipelineId, &Pipeline),
        (asked, now): (&InboxRecord, Timestamp),
        plan: &mut Planned,
    ) -> Result<Answer, EngineError> {
        let record = match backfill_of(spec, asked, now) {
            Ok(record) => record,
            Err(reason) => return Ok(Err(reason)),
        };
        if self.pipelines.0.get(pipeline).is_none_or(|state| state.is_retired()) {
            return Ok(Err(format!("{pipeline} is retired: its file is gone")));
        }
        let number = self.last_backfill(pipeline).await? + 1;
        let message = format!(
            "backfill {number}: {} from {} to {}, {}{}",
            counted(record.total, "slot"),
            record.from,
            record.to,
            record.reprocess,
            if record.reason.is_empty() { String::new() } else { format!(" ({})", record.reason) },
        );
        plan.event(event("BACKFILL_STARTED", now, message, (number, &record)));
        let answer = json!({ "backfill": number, "slots": record.total });
        plan.put(Key::Backfill(number), 0, Record::Backfill(Box::new(record).into()));
        Ok(Ok(answer))
    }

    /// The number of a pipeline's last backfill, 0 if there was none.
    async fn last_backfill(&self, pipeline: &PipelineId) -> Result<u64, EngineError> {
        let mut last = 0;
        loop {
            let query = BackfillQuery {
                pipeline: Some(pipeline.clone()),
                after: Some((pipeline.clone(), last)),
                limit: PAGE,
                ..BackfillQuery::default()
            };
            let page = self.store.backfills(&query).await?;
            last = page.items.last().map_or(last, |row| row.number);
            if !page.more {
                return Ok(last);
            }
        }
    }

    #[expect(clippy::fn_params_excessive_bools, reason = "the flag of the request is a bool")]
    async fn steer_backfill(
        &self,
        pipeline: &PipelineId,
        (number, to, why): (u64, State, &str),
        ends_runs: bool,
        (now, plan): (Timestamp, &mut Planned),
    ) -> Result<Answer, EngineError> {
        let rows = self.store.read(pipeline, &[Key::Backfill(number)]).await?;
        let row = rows.into_iter().next().flatten().map(|row| (row.record, row.revision));
        let Some((Record::Backfill(record), revision)) = row else {
            return Ok(Err(format!(
                "{pipeline} has no backfill {number}: `interlock backfill list {pipeline}` lists them"
            )));
        };
        let mut record = Arc::unwrap_or_clone(record);
        let from = record.standing()?;
        let (kind, done) = match (from, to) {
            (State::Running, State::Paused) => ("BACKFILL_PAUSED", "paused"),
            (State::Paused, State::Running) => ("BACKFILL_RESUMED", "resumed"),
            (State::Running | State::Paused, State::Cancelled) => {
                record.ended_at = Some(now);
                record.ends_runs = ends_runs;
                ("BACKFILL_CANCELLED", why)
            }
            // The runs that a first cancel left.
            (State::Cancelled, State::Cancelled) if ends_runs && !record.open.is_empty() => {
                record.ends_runs = true;
                ("BACKFILL_CANCELLED", why)
            }
            (
                State::Running | State::Paused | State::Cancelled | State::Done,
                State::Running | State::Paused | State::Cancelled | State::Done,
            ) => return Ok(Err(format!("backfill {number} of {pipeline} is {}", from.as_str()))),
        };
        to.as_str().clone_into(&mut record.state);
        record.updated_at = now;
        let message = format!("backfill {number}: {done}");
        plan.event(event(kind, now, message, (number, &record)));
        plan.put(Key::Backfill(number), revision, Record::Backfill(record.into()));
        Ok(Ok(json!({ "backfill": number, "state": to.as_str() })))
    }
}

/// The backfill that a request asks for, as it begins, or a sentence why it makes no sense.
pub fn backfill_of(
    spec: &Pipeline,
    asked: &InboxRecord,
    now: Timestamp,
) -> Result<BackfillRecord, String> {
    let InboxRecord::StartBackfill {
        from,
        to,
        schedules,
        reprocess,
        order,
        concurrency,
        reason,
        by,
        total,
        plan,
    } = asked
    else {
        return Err("the request starts no backfill".to_owned());
    };
    if from >= to {
        return Err(format!("{from} is not before {to}"));
    }
    if *to > now {
        return Err(format!("{to} is in the future: a backfill covers the past"));
    }
    if Reprocess::parse(reprocess).is_none() {
        return Err(format!("`{reprocess}` is none of missing, failed, all"));
    }
    if Order::parse(order).is_none() {
        return Err(format!("`{order}` is none of asc, desc"));
    }
    if !(1..=CONCURRENCY_MAX).contains(concurrency) {
        return Err(format!("a concurrency of {concurrency} is not within 1 to {CONCURRENCY_MAX}"));
    }
    Ok(BackfillRecord {
        state: State::Running.as_str().to_owned(),
        from: *from,
        to: *to,
        schedules: meant(spec, schedules)?,
        reprocess: reprocess.clone(),
        order: order.clone(),
        concurrency: *concurrency,
        reason: reason.clone(),
        by: by.clone(),
        total: *total,
        plan: plan.clone(),
        since: now,
        updated_at: now,
        ended_at: None,
        cursor: None,
        open: vec![],
        counts: BackfillCounts::default(),
        opened: version_text(Fingerprint::default().0),
        ends_runs: false,
    })
}

/// The schedules that are meant: those named, else all that have slots.
fn meant(spec: &Pipeline, named: &[String]) -> Result<Vec<String>, String> {
    if let Some(reason) = backfill::refusal(spec, None) {
        return Err(reason);
    }
    for id in named {
        let known = ScheduleId::any(id).map_err(|error| error.message)?;
        if let Some(reason) = backfill::refusal(spec, Some(&known)) {
            return Err(reason);
        }
    }
    if !named.is_empty() {
        return Ok(named.to_vec());
    }
    let own = spec.starts.iter().filter(|start| has_slots(&start.schedule));
    Ok(own.map(|start| start.schedule.id().to_string()).collect())
}
