//! Slots and spans, in order of time.

use interlock_core::{
    id::{PipelineId, ScheduleId, SlotKey},
    slot::{Disposition, wire_status},
    text::TextError,
};
use interlock_store::{
    LedgerEntry, LedgerQuery, LedgerRow, ListOrder, RunRow,
    kept::floor,
    record::{MarksRecord, SlaRecord, SlotRecord, SpanRecord},
    scan::{SlotFilter, find_slots},
};
use jiff::{SignedDuration, Timestamp, civil::Date};

use super::{
    run::{one_of, pipeline_id, trigger_types, words},
    slot_expanded::PageStart,
};
use crate::{
    AnswerError, Cursor, ErrorCode, LIMIT_MAX, Listing, Reader,
    listing::limit,
    model::{
        page::ListingOrder,
        slot::{
            LedgerAnswer, MarksAnswer, SlaAnswer, SlotAnswer, SlotPath, SlotRunAnswer, SlotsQuery,
            SpanAnswer,
        },
    },
    words::{ShownTimes, SlotFacts, headline, short_reason, span_headline},
};

/// The word for slots that have not ended.
const OPEN: &str = "open";
/// What is listed before and after now when no time is asked for.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Which rows of the ledger a question means.
#[derive(Debug)]
pub(super) struct MeantSlots {
    pub(super) filter: SlotFilter,
}

impl MeantSlots {
    /// Whether a row may be meant, whatever became of it: a slot that is not meant wins over its span all the same.
    pub(super) fn concerns(&self, row: &LedgerRow) -> bool {
        let SlotFilter { schedule, opened_by, .. } = &self.filter;
        let is_opened_so = match &row.entry {
            LedgerEntry::Slot(slot) => opened_by.iter().any(|word| *word == *slot.opened_by),
            LedgerEntry::Span(_) => false,
        };
        schedule.as_ref().is_none_or(|schedule| row.schedule == *schedule)
            && (opened_by.is_empty() || is_opened_so)
    }

    pub(super) fn holds(&self, row: &LedgerRow) -> bool {
        let disposition = match &row.entry {
            LedgerEntry::Slot(slot) => slot.disposition.as_deref(),
            LedgerEntry::Span(span) => Some(span.disposition.as_str()),
        };
        self.concerns(row) && self.has_disposition(disposition)
    }

    /// Whether it ended in a way that is asked for.
    pub(super) fn has_disposition(&self, disposition: Option<&str>) -> bool {
        let (asked, word) = (&self.filter.dispositions, disposition.unwrap_or(OPEN));
        asked.is_empty() || asked.iter().any(|asked| asked == word)
    }
}

impl Reader<'_> {
    /// Slots and spans, in order of time.
    pub async fn slots(&self, asked: &SlotsQuery) -> Result<Listing<LedgerAnswer>, AnswerError> {
        let Some(meant) = self.meant_slots(asked)? else { return Ok(Listing::whole(vec![])) };
        let after = asked.after.as_deref().map(Cursor::decode).transpose()?;
        let after = after.map(Cursor::ledger).transpose()?;
        let limit = limit(asked.limit)?;
        if asked.expand {
            let pipeline = expanded_pipeline(asked, &meant)?;
            return self.expanded(&pipeline, &meant, PageStart { after, limit }).await;
        }
        let page = find_slots(self.store, &meant.filter, after, limit).await?;
        let next = page.next.map(|place| Cursor::of_ledger(&place).encode());
        let items = self.ledger_answers(page.items).await?;
        Ok(Listing { items, next, scanned: page.scanned as u64, unreadable: vec![] })
    }

    /// What is asked for; nothing if no slot can be meant.
    fn meant_slots(&self, asked: &SlotsQuery) -> Result<Option<MeantSlots>, AnswerError> {
        let dispositions = words(&asked.disposition, disposition)?;
        let Some(opened_by) = trigger_types(&asked.trigger_type)? else { return Ok(None) };
        let owned = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect();
        let begin = asked.until.map_or(self.now, |until| until.min(self.now));
        let end = asked.from.map_or(self.now, |from| from.max(self.now));
        let filter = SlotFilter {
            pipeline: asked.pipeline.as_deref().map(pipeline_id).transpose()?,
            schedule: asked.schedule.as_deref().map(schedule_id).transpose()?,
            from: asked.from.unwrap_or(begin.saturating_sub(DAY).unwrap_or(Timestamp::MIN)),
            until: asked.until.unwrap_or(end.saturating_add(DAY).unwrap_or(Timestamp::MAX)),
            dispositions: owned(dispositions),
            opened_by: owned(opened_by),
            order: asked.order.map_or(ListOrder::OldestFirst, ListOrder::from),
        };
        Ok(Some(MeantSlots { filter }))
    }

    /// One slot, by itself or out of its span.
    pub async fn slot(&self, asked: &SlotPath) -> Result<SlotAnswer, AnswerError> {
        let pipeline = self.known(&asked.pipeline).await?;
        let schedule = schedule_id(&asked.schedule)?;
        let key = SlotKey { pipeline, schedule, nominal: asked.instant };
        let rows = self.rows_at(&key.pipeline, key.nominal).await?;
        for row in rows.into_iter().filter(|row| row.schedule == key.schedule) {
            let date = match &row.entry {
                LedgerEntry::Slot(_) => None,
                LedgerEntry::Span(span) => match self.date_in_span(&key, &row, span).await {
                    SpanDate::NoSlot => continue,
                    SpanDate::Unknown => None,
                    SpanDate::At(date) => Some(date),
                },
            };
            let found = match row.entry {
                LedgerEntry::Span(span) => slot_of_span(&key, date, &span, self.now),
                LedgerEntry::Slot(_) => match self.ledger_answers(vec![row]).await?.pop() {
                    Some(LedgerAnswer::Slot(slot)) => slot,
                    Some(LedgerAnswer::Span(_)) | None => continue,
                },
            };
            return Ok(found);
        }
        Err(self.no_slot(&key).await?)
    }

    /// Why nothing is there, as far as a single answer says it.
    async fn no_slot(&self, key: &SlotKey) -> Result<AnswerError, AnswerError> {
        let message = format!("no slot {key} is recorded");
        let SlotKey { pipeline, schedule, nominal } = key;
        let story = format!("/api/v1/pipelines/{pipeline}/slots/{schedule}/{nominal}/story");
        let mut error = AnswerError::not_found(message, "");
        error.hint =
            format!("`interlock why {pipeline} {schedule}/{nominal}`, or {story}, says why.");
        if floor(self.store).await?.is_some_and(|floor| *nominal < floor) {
            error.code = ErrorCode::Archived;
        }
        Ok(error)
    }

    /// What stands at an instant: the slots, then the spans that cover it, over which they win.
    pub async fn rows_at(
        &self,
        pipeline: &PipelineId,
        at: Timestamp,
    ) -> Result<Vec<LedgerRow>, AnswerError> {
        let until = at.saturating_add(SignedDuration::from_millis(1)).unwrap_or(at);
        let everything = LedgerQuery::everything(LIMIT_MAX);
        let query = LedgerQuery { pipeline: Some(pipeline.clone()), from: at, until, ..everything };
        let mut rows = self.store.ledger(&query).await?.items;
        // A span stands where it begins, which may be earlier.
        rows.sort_by_key(|row| matches!(row.entry, LedgerEntry::Span(_)));
        Ok(rows)
    }

    /// What rows of the ledger say, slots with their runs.
    pub async fn ledger_answers(
        &self,
        rows: Vec<LedgerRow>,
    ) -> Result<Vec<LedgerAnswer>, AnswerError> {
        let mut runs = self.runs_of_slots(&rows).await?;
        let answer = |row: LedgerRow| {
            let runs = runs.remove(&slot_key(&row)).unwrap_or_default();
            ledger_answer(&row, &runs, self.now)
        };
        Ok(rows.into_iter().map(answer).collect())
    }
}

/// The date of a slot of a span.
pub(super) enum SpanDate {
    /// Its schedule owes nothing at that instant.
    NoSlot,
    /// It cannot be told: the declaration is not there.
    Unknown,
    /// This one.
    At(Date),
}

impl Reader<'_> {
    /// The local date of a slot that a span covers, if it is one of its slots.
    pub(super) async fn date_in_span(
        &self,
        key: &SlotKey,
        row: &LedgerRow,
        span: &SpanRecord,
    ) -> SpanDate {
        let Some(declared) = self.declared_for(row, span).await else { return SpanDate::Unknown };
        match declared.schedule(&key.schedule) {
            Some(schedule) if schedule.is_slot(key.nominal) => {
                SpanDate::At(schedule.occurrence(key.nominal).date)
            }
            Some(_) => SpanDate::NoSlot,
            None => SpanDate::Unknown,
        }
    }
}

/// The slot of a ledger row, or the first of its span.
pub fn slot_key(row: &LedgerRow) -> SlotKey {
    let LedgerRow { pipeline, schedule, nominal, .. } = row;
    SlotKey { pipeline: pipeline.clone(), schedule: schedule.clone(), nominal: *nominal }
}

/// What a row of the ledger says; with the runs of its slot, in the order in which they were made.
pub fn ledger_answer(row: &LedgerRow, runs: &[RunRow], now: Timestamp) -> LedgerAnswer {
    let key = slot_key(row);
    match &row.entry {
        LedgerEntry::Slot(slot) => LedgerAnswer::Slot(slot_answer(&key, slot, runs, now)),
        LedgerEntry::Span(span) => LedgerAnswer::Span(span_answer(&key, span, now)),
    }
}

/// A slot with a row of its own, as it is now.
pub fn slot_answer(
    key: &SlotKey,
    slot: &SlotRecord,
    runs: &[RunRow],
    now: Timestamp,
) -> SlotAnswer {
    let (facts, times) = (SlotFacts::from_rows(key, slot, runs), ShownTimes::utc(now));
    SlotAnswer {
        pipeline: key.pipeline.to_string(),
        schedule: key.schedule.to_string(),
        slot: key.to_string(),
        utc: key.nominal,
        date: Some(slot.date),
        state: slot.state.to_string(),
        disposition: slot.disposition.as_deref().map(str::to_owned),
        reason: slot.reason.as_deref().map(str::to_owned),
        status: slot.wire_status(),
        marks: marks(&slot.marks),
        generation: slot.generation,
        attempt: slot.attempt,
        opened_by: Some(slot.opened_by.to_string()),
        opened_at: Some(slot.opened_at),
        closes_at: slot.is_open().then_some(slot.closes_at),
        retry_at: slot.retry_at,
        version: slot.version.clone(),
        sla: slot.sla.as_deref().map(sla),
        headline: headline(&facts, &times),
        short_reason: short_reason(&facts, &times),
        blocking: facts.blocking.iter().map(|&it| it.to_owned()).collect(),
        waits_until: facts.waits_until,
        message: facts.message.map(str::to_owned),
        runs: runs.iter().map(slot_run).collect(),
    }
}

/// One slot of a span.
pub(super) fn slot_of_span(
    key: &SlotKey,
    date: Option<Date>,
    span: &SpanRecord,
    now: Timestamp,
) -> SlotAnswer {
    let SpanAnswer { pipeline, schedule, state, disposition, reason, status, version, .. } =
        span_answer(key, span, now);
    let mut slot = SlotAnswer {
        pipeline,
        schedule,
        slot: key.to_string(),
        utc: key.nominal,
        date,
        state,
        disposition: Some(disposition),
        reason,
        status,
        marks: MarksAnswer::default(),
        generation: 0,
        attempt: 0,
        opened_by: None,
        opened_at: None,
        closes_at: None,
        retry_at: None,
        version,
        sla: None,
        headline: String::new(),
        short_reason: String::new(),
        blocking: vec![],
        waits_until: None,
        message: None,
        runs: vec![],
    };
    let (facts, times) = (SlotFacts::from_answer(&slot), ShownTimes::utc(now));
    (slot.headline, slot.short_reason) = (headline(&facts, &times), short_reason(&facts, &times));
    slot
}

pub(super) fn span_answer(key: &SlotKey, span: &SpanRecord, now: Timestamp) -> SpanAnswer {
    const CLOSED: &str = "closed";
    let mut answer = SpanAnswer {
        pipeline: key.pipeline.to_string(),
        schedule: key.schedule.to_string(),
        first: key.nominal,
        last: span.last,
        count: span.count,
        state: CLOSED.to_owned(),
        disposition: span.disposition.to_string(),
        reason: span.reason.as_deref().map(str::to_owned),
        status: wire_status(CLOSED, Some(&span.disposition)),
        version: span.version.clone(),
        recorded_at: span.recorded_at,
        headline: String::new(),
    };
    answer.headline = span_headline(&answer, &ShownTimes::utc(now));
    answer
}

fn marks(marks: &MarksRecord) -> MarksAnswer {
    let MarksRecord { missed_at, late, uncertain, recovered } = *marks;
    MarksAnswer { missed_at, late, uncertain, recovered }
}

fn sla(sla: &SlaRecord) -> SlaAnswer {
    let seconds = |duration: Option<SignedDuration>| duration.map(|duration| duration.as_secs());
    SlaAnswer {
        evaluation_at: sla.evaluation_at,
        warning_at: sla.warning_at,
        breach_at: sla.breach_at,
        max_duration_seconds: seconds(sla.duration_max),
        expected_duration_seconds: seconds(sla.expected_duration),
    }
}

fn slot_run(run: &RunRow) -> SlotRunAnswer {
    SlotRunAnswer {
        id: run.key.id(&run.pipeline),
        generation: run.key.generation,
        attempt: run.key.attempt,
        status: run.record.status.to_string(),
        trigger_type: run.record.trigger_type.to_string(),
        started_at: run.record.started_at,
        ended_at: run.record.ended_at,
    }
}

/// The one pipeline whose slots are to be listed one by one.
fn expanded_pipeline(asked: &SlotsQuery, meant: &MeantSlots) -> Result<PipelineId, AnswerError> {
    let refused = |message: &str, hint: &str| {
        AnswerError::question(ErrorCode::BadParameter, message.to_owned(), hint.to_owned())
    };
    if asked.order == Some(ListingOrder::Newest) {
        let hint = "Leave `order` out, or take spans as they are.";
        return Err(refused("`expand` lists the oldest first", hint));
    }
    let pipeline = meant.filter.pipeline.clone();
    pipeline.ok_or_else(|| {
        let hint = "Name it with `pipeline=`, or take spans as they are.";
        refused("`expand` is for one pipeline", hint)
    })
}

/// The id of a schedule that a question names.
pub(crate) fn schedule_id(name: &str) -> Result<ScheduleId, AnswerError> {
    ScheduleId::any(name)
        .map_err(|error| AnswerError::question(ErrorCode::BadParameter, error.message, error.help))
}

fn disposition(word: &str) -> Result<&'static str, TextError> {
    let all: Vec<_> = Disposition::WORDS.into_iter().chain([OPEN]).collect();
    one_of("disposition", word, &all)
}
