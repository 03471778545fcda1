//! Runs, newest first.

use std::collections::BTreeSet;

use interlock_core::{
    id::{PipelineId, SlotKey},
    run::{OUTPUT, RunState, TriggerType},
    text::TextError,
};
use interlock_store::{
    Key, Record, RunKey, RunPlace, RunRow,
    scan::{RunFilter, ScanPage, find_runs},
};

use super::pipeline_facts::PipelineFilter;
use crate::{
    AnswerError, Cursor, ErrorCode, LIMIT_MAX, Listing, Reader, SCAN_MAX,
    listing::limit,
    model::run::{RunAnswer, RunsQuery},
};

/// What of a run's metadata is about its host alone: where the output of its job lies.
pub(crate) const LOG_PATH: &str = "log";
/// A trigger type that is promised and that nothing has yet.
const RESERVED: &str = "subdag";

impl Reader<'_> {
    /// Runs, newest first.
    pub async fn runs(&self, asked: &RunsQuery) -> Result<Listing<RunAnswer>, AnswerError> {
        let statuses = words(&asked.status, |word| RunState::parse(word).map(RunState::as_str))?;
        let Some(types) = trigger_types(&asked.trigger_type)? else {
            return Ok(Listing::whole(vec![]));
        };
        let owned = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect();
        let filter = RunFilter {
            pipeline: asked.pipeline.as_deref().map(pipeline_id).transpose()?,
            schedule: None,
            statuses: owned(statuses),
            trigger_types: owned(types),
            from: asked.from,
            until: asked.until,
        };
        let after = asked.after.as_deref().map(Cursor::decode).transpose()?;
        let after = after.map(Cursor::run).transpose()?;
        let limit = limit(asked.limit)?;
        let pipelines = PipelineFilter::of(&asked.owner, &asked.label)?;
        let page = if pipelines.is_given() {
            self.runs_of_pipelines(&pipelines, &filter, after, limit).await?
        } else {
            find_runs(self.store, &filter, after, limit).await?
        };
        let next = page.next.map(|place| Cursor::of_run(&place).encode());
        let items = page.items.into_iter().map(run_answer).collect();
        Ok(Listing { items, next, scanned: page.scanned as u64, unreadable: vec![] })
    }

    /// Those whose pipelines are such: rows of runs do not say that, so pages are looked through, in bounded work.
    async fn runs_of_pipelines(
        &self,
        pipelines: &PipelineFilter<'_>,
        filter: &RunFilter,
        mut after: Option<RunPlace>,
        limit: usize,
    ) -> Result<ScanPage<RunRow, RunPlace>, AnswerError> {
        let (mut items, mut scanned) = (Vec::new(), 0);
        loop {
            let page = find_runs(self.store, filter, after, LIMIT_MAX).await?;
            scanned += page.scanned;
            let named: BTreeSet<_> = page.items.iter().map(|row| row.pipeline.clone()).collect();
            let facts = self.pipeline_facts(named).await?;
            let mut rows = page.items.into_iter().peekable();
            let mut last = None;
            while items.len() < limit
                && let Some(row) = rows.next()
            {
                last = Some(row.place());
                if pipelines.holds(&row.pipeline, &facts) {
                    items.push(row);
                }
            }
            after = if rows.peek().is_some() { last } else { page.next };
            if items.len() >= limit || after.is_none() || scanned >= SCAN_MAX {
                return Ok(ScanPage { items, next: after, scanned });
            }
        }
    }

    /// One run, by its id.
    pub async fn run(&self, id: &str) -> Result<RunAnswer, AnswerError> {
        Ok(run_answer(self.run_row(id).await?))
    }

    /// The row of a run, by its id.
    pub(crate) async fn run_row(&self, id: &str) -> Result<RunRow, AnswerError> {
        let unknown = || {
            let message = format!("there is no run `{id}`");
            AnswerError::not_found(message, "`interlock runs` lists them.")
        };
        let (pipeline, key) = RunKey::parse(id).map_err(|_malformed| unknown())?;
        let rows = self.store.read(&pipeline, &[Key::Run(key.clone())]).await?;
        let row = rows.into_iter().flatten().next().ok_or_else(unknown)?;
        let Record::Run(record) = row.record else { return Err(unknown()) };
        let record = std::sync::Arc::unwrap_or_clone(record);
        Ok(RunRow { pipeline, key, record, revision: row.revision })
    }
}

/// What a run's row says.
pub fn run_answer(row: RunRow) -> RunAnswer {
    let id = row.key.id(&row.pipeline);
    let slot =
        SlotKey { pipeline: row.pipeline, schedule: row.key.schedule, nominal: row.key.nominal };
    let mut metadata = row.record.metadata;
    metadata.remove(LOG_PATH);
    // Up to 16 KiB: who wants it asks for the run's log.
    metadata.remove(OUTPUT);
    RunAnswer {
        id,
        pipeline: slot.pipeline.to_string(),
        schedule: slot.schedule.to_string(),
        slot: slot.to_string(),
        utc: slot.nominal,
        generation: row.key.generation,
        attempt: row.key.attempt,
        status: row.record.status.to_string(),
        trigger_type: row.record.trigger_type.to_string(),
        created_at: row.record.created_at,
        started_at: row.record.started_at,
        ended_at: row.record.ended_at,
        message: row.record.message,
        category: row.record.category.map(|word| word.to_string()),
        metadata,
    }
}

/// The id of a pipeline that a question names.
pub(crate) fn pipeline_id(name: &str) -> Result<PipelineId, AnswerError> {
    PipelineId::parse(name).map_err(|_malformed| AnswerError::unknown_pipeline(name))
}

/// The trigger types of a filter; `None` if nothing can have them, as only the reserved one is asked for.
pub(super) fn trigger_types(asked: &[String]) -> Result<Option<Vec<&'static str>>, AnswerError> {
    let types: Vec<_> = asked.iter().filter(|it| *it != RESERVED).cloned().collect();
    let is_nothing = types.is_empty() && !asked.is_empty();
    let types = words(&types, |word| TriggerType::parse(word).map(TriggerType::as_str))?;
    Ok((!is_nothing).then_some(types))
}

/// The words of a filter, as the store has them.
pub(crate) fn words(
    asked: &[String],
    parse: impl Fn(&str) -> Result<&'static str, TextError>,
) -> Result<Vec<&'static str>, AnswerError> {
    let word = |text: &String| {
        parse(text).map_err(|error| {
            AnswerError::question(ErrorCode::BadParameter, error.message, error.help)
        })
    };
    asked.iter().map(word).collect()
}

/// A word of a closed list.
pub(crate) fn one_of(
    what: &str,
    word: &str,
    known: &[&'static str],
) -> Result<&'static str, TextError> {
    let found = known.iter().find(|known| **known == word).copied();
    found.ok_or_else(|| TextError::not_one_of(what, word, known))
}
