//! Backfills, by pipeline and number.

use interlock_store::{BackfillQuery, BackfillRow, Key, Record, record::BackfillRecord};
use jiff::{SignedDuration, Timestamp};

use super::run::{one_of, pipeline_id, words};
use crate::{
    AnswerError, Cursor, Listing, Reader,
    listing::{Scan, limit},
    model::backfill::{BackfillAnswer, BackfillPath, BackfillsQuery},
};

/// How a backfill may stand.
const STATES: [&str; 4] = ["running", "paused", "cancelled", "done"];

impl Reader<'_> {
    /// Backfills, by pipeline and number.
    pub async fn backfills(
        &self,
        asked: &BackfillsQuery,
    ) -> Result<Listing<BackfillAnswer>, AnswerError> {
        let states = words(&asked.state, |word| one_of("state of a backfill", word, &STATES))?;
        let after = asked.after.as_deref().map(Cursor::decode).transpose()?;
        let mut query = BackfillQuery {
            pipeline: asked.pipeline.as_deref().map(pipeline_id).transpose()?,
            after: after.map(Cursor::backfill).transpose()?,
            ..BackfillQuery::default()
        };
        let holds =
            |row: &BackfillRow| states.is_empty() || states.contains(&row.record.state.as_str());
        let mut scan = Scan::new(limit(asked.limit)?);
        while let Some(rows) = scan.wants() {
            query.limit = rows;
            let page = self.store.backfills(&query).await?;
            query.after = page.items.last().map(|row| (row.pipeline.clone(), row.number));
            scan.take(page, place, holds);
        }
        Ok(scan.listing(|row| backfill_answer(&row, self.now)))
    }

    /// One backfill.
    pub async fn backfill(&self, asked: &BackfillPath) -> Result<BackfillAnswer, AnswerError> {
        let pipeline = self.known(&asked.pipeline).await?;
        let number = asked.id;
        let rows = self.store.read(&pipeline, &[Key::Backfill(number)]).await?;
        let row = rows.into_iter().flatten().next();
        let Some((Record::Backfill(record), revision)) = row.map(|row| (row.record, row.revision))
        else {
            let message = format!("{pipeline} has no backfill {number}");
            return Err(AnswerError::not_found(message, "`interlock backfill list` has them."));
        };
        let record = std::sync::Arc::unwrap_or_clone(record);
        Ok(backfill_answer(&BackfillRow { pipeline, number, record, revision }, self.now))
    }
}

fn place(row: &BackfillRow) -> Cursor {
    Cursor::Backfills { pipeline: row.pipeline.to_string(), number: row.number }
}

/// What a backfill's row says at an instant.
pub fn backfill_answer(row: &BackfillRow, now: Timestamp) -> BackfillAnswer {
    let it = &row.record;
    let slot = |schedule: &str, nominal| format!("{schedule}/{nominal}");
    BackfillAnswer {
        pipeline: row.pipeline.to_string(),
        id: row.number,
        state: it.state.clone(),
        from: it.from,
        to: it.to,
        schedules: it.schedules.clone(),
        reprocess: it.reprocess.clone(),
        order: it.order.clone(),
        concurrency: it.concurrency,
        reason: it.reason.clone(),
        by: it.by.clone(),
        plan: it.plan.clone(),
        total: it.total,
        opened: it.counts.opened,
        passed: it.counts.passed,
        completed: it.counts.completed,
        failed: it.counts.failed,
        cancelled: it.counts.cancelled,
        skipped: it.counts.skipped,
        open: it.open.iter().map(|it| slot(&it.schedule, it.nominal)).collect(),
        cursor: it.cursor.as_ref().map(|it| slot(&it.schedule, it.nominal)),
        started_at: it.since,
        updated_at: it.updated_at,
        ended_at: it.ended_at,
        eta_seconds: backfill_eta(it, now).map(|eta| eta.as_secs()),
    }
}

/// How long a backfill may still take, going by how long it took so far.
pub fn backfill_eta(record: &BackfillRecord, now: Timestamp) -> Option<SignedDuration> {
    let ended = record.counts.ended();
    if record.state != "running" || ended == 0 {
        return None;
    }
    let left = i128::from(record.total.saturating_sub(ended));
    let seconds = i128::from(now.duration_since(record.since).as_secs()) * left / i128::from(ended);
    Some(SignedDuration::from_secs(i64::try_from(seconds).ok()?))
}
