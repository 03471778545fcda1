//! The story of a slot, from its row, its runs, its events and its incidents; or why there is none.

use interlock_core::{
    id::{PipelineId, ScheduleId, SlotKey},
    pipeline::Pipeline,
    schedule::Schedule,
};
use interlock_store::{
    EventRow, Key, LedgerEntry, LedgerRow, Record, RunRow, kept::floor, story::About,
};
use jiff::{Timestamp, civil::Date};

use super::{
    absence::{AbsenceInput, absence, taken_out},
    event::event_answer,
    incident::opened_incidents,
    run::run_answer,
    slot::{SpanDate, schedule_id, slot_answer, slot_of_span, span_answer},
};
use crate::{
    AnswerError, LIMIT_MAX, Reader,
    model::{
        incident::IncidentDetailAnswer,
        slot::{SlotAnswer, SlotPath, SpanAnswer},
        story::{AbsenceAnswer, AbsenceReason, StoryAnswer},
    },
    words::{ShownTimes, SlotFacts, absence_headline, full_reason, headline},
};

/// How many pages of events are looked through for those of one slot.
const PAGES_MAX: usize = 20;

/// Of which slots the stories are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoryQuery {
    /// Of this pipeline.
    pub pipeline: PipelineId,
    /// Of this schedule; else of each that has something recorded, or starts jobs.
    pub schedule: Option<ScheduleId>,
    /// At this instant.
    pub at: Timestamp,
}

/// What happened to a slot.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotEvents {
    /// Oldest first.
    pub found: Vec<EventRow>,
    /// The event behind which no others were looked at.
    pub looked_at_until: Option<u64>,
}

/// What the ledger holds about one slot.
#[derive(Debug, Clone)]
pub struct StoryRows {
    /// Which.
    pub key: SlotKey,
    /// Its row, or that of the span that covers it.
    pub row: LedgerRow,
    /// The local date of a slot of a span, where its schedule is known.
    pub date: Option<Date>,
    /// Its runs, in the order in which they were made.
    pub runs: Vec<RunRow>,
    /// What happened to it.
    pub events: SlotEvents,
}

/// An instant at which nothing is recorded, and before which instant what was decided may have been taken out.
struct UnrecordedInstant<'a> {
    asked: &'a StoryQuery,
    floor: Option<Timestamp>,
}

impl Reader<'_> {
    /// The story of one slot, or why there is none.
    pub async fn story(&self, asked: &SlotPath) -> Result<StoryAnswer, AnswerError> {
        let pipeline = self.known(&asked.pipeline).await?;
        let (schedule, at) = (Some(schedule_id(&asked.schedule)?), asked.instant);
        let stories = self.stories(&StoryQuery { pipeline, schedule, at }).await?;
        let unknown = || AnswerError::not_found(format!("there is no slot at {at}"), "");
        stories.into_iter().next().ok_or_else(unknown)
    }

    /// The stories of the slots that are recorded at an instant, one for each schedule; where there are none, why.
    pub async fn stories(&self, asked: &StoryQuery) -> Result<Vec<StoryAnswer>, AnswerError> {
        let found = self.recorded_stories(asked).await?;
        if found.is_empty() { self.absences(asked).await } else { Ok(found) }
    }

    async fn recorded_stories(&self, asked: &StoryQuery) -> Result<Vec<StoryAnswer>, AnswerError> {
        let StoryQuery { pipeline, schedule, at } = asked;
        let is_below = floor(self.store).await?.is_some_and(|floor| *at < floor);
        let rows = self.rows_at(pipeline, *at).await?;
        let mut stories: Vec<StoryAnswer> = Vec::new();
        let mut told: Vec<&ScheduleId> = Vec::new();
        for row in &rows {
            let is_asked_for = schedule.as_ref().is_none_or(|schedule| *schedule == row.schedule);
            // A row comes before the span that covers it, and wins.
            if !is_asked_for || told.contains(&&row.schedule) {
                continue;
            }
            let (schedule, nominal) = (row.schedule.clone(), *at);
            let key = SlotKey { pipeline: pipeline.clone(), schedule, nominal };
            let date = match &row.entry {
                LedgerEntry::Slot(slot) => Some(slot.date),
                // A span may have covered a row that was taken out.
                LedgerEntry::Span(_) if is_below => continue,
                LedgerEntry::Span(span) => match self.date_in_span(&key, row, span).await {
                    SpanDate::NoSlot => continue,
                    SpanDate::Unknown => None,
                    SpanDate::At(date) => Some(date),
                },
            };
            told.push(&row.schedule);
            let runs = self.runs_of(&key).await?;
            let events = self.slot_events(&key, &rows, &runs).await?;
            let row = row.clone();
            stories.push(self.told(StoryRows { key, row, date, runs, events }).await?);
        }
        Ok(stories)
    }

    /// The story, with its incidents.
    async fn told(&self, rows: StoryRows) -> Result<StoryAnswer, AnswerError> {
        let keys = opened_incidents(&rows);
        let pipeline = rows.key.pipeline.clone();
        let incidents = self.incidents_under(&pipeline, &keys).await?;
        Ok(story_answer(rows, incidents, self.now))
    }

    /// The events about a slot, from before its first opening on.
    pub async fn slot_events(
        &self,
        key: &SlotKey,
        rows: &[LedgerRow],
        runs: &[RunRow],
    ) -> Result<SlotEvents, AnswerError> {
        let own = rows.iter().filter(|row| row.schedule == key.schedule);
        let recorded = own.map(|row| match &row.entry {
            LedgerEntry::Slot(slot) => slot.opened_at,
            LedgerEntry::Span(span) => span.recorded_at,
        });
        let created = runs.iter().map(|run| run.record.created_at);
        let since = created.chain(recorded).chain([key.nominal]).min().unwrap_or(key.nominal);
        let about = About::new(key, rows);
        let mut found = Vec::new();
        let mut after = self.events_since(&key.pipeline, since).await?;
        for _ in 0..PAGES_MAX {
            let page = self.store.events(Some(&key.pipeline), after, LIMIT_MAX).await?;
            after = page.items.last().map_or(after, |event| event.number);
            found.extend(page.items.into_iter().filter(|event| about.is_told_by(event)));
            if !page.more {
                return Ok(SlotEvents { found, looked_at_until: None });
            }
        }
        Ok(SlotEvents { found, looked_at_until: Some(after) })
    }

    /// Why nothing is recorded at an instant: a story for each schedule that is meant.
    pub async fn absences(&self, asked: &StoryQuery) -> Result<Vec<StoryAnswer>, AnswerError> {
        let StoryQuery { pipeline, schedule, at } = asked;
        let rows = self.store.read(pipeline, &[Key::Pipeline]).await?;
        let known = rows.into_iter().flatten().find_map(|row| {
            let Record::Pipeline(record) = row.record else { return None };
            Some(record)
        });
        let floor = floor(self.store).await?;
        let unrecorded = UnrecordedInstant { asked, floor };
        let declared = match self.declarations.current(pipeline).await {
            Ok(Some(declared)) => declared,
            Ok(None) => {
                let why =
                    format!("Nothing is recorded then, and {pipeline} is no longer declared.");
                return Ok(vec![unrecorded.story(AbsenceReason::Undeclared, &why)]);
            }
            Err(error) => {
                let why = format!(
                    "Nothing is recorded then, and the declaration of {pipeline} cannot be loaded: {error}."
                );
                return Ok(vec![unrecorded.story(AbsenceReason::DeclarationUnreadable, &why)]);
            }
        };
        let mut stories = Vec::new();
        for schedule in meant(&declared, schedule.as_ref()) {
            let watermark = self.watermark(pipeline, schedule.id()).await?;
            let (known, now) = (known.as_deref(), self.now);
            let input = AbsenceInput {
                declared: &declared,
                schedule,
                at: *at,
                known,
                watermark,
                floor,
                now,
            };
            stories.push(absent_story(asked, Some(schedule.id()), absence(&input)));
        }
        if stories.is_empty() {
            let why = format!("{pipeline} has no such schedule, and nothing is recorded then.");
            stories.push(unrecorded.story(AbsenceReason::NoSuchSchedule, &why));
        }
        Ok(stories)
    }

    /// How far a schedule is recorded.
    async fn watermark(
        &self,
        pipeline: &PipelineId,
        schedule: &ScheduleId,
    ) -> Result<Option<Timestamp>, AnswerError> {
        let rows = self.store.read(pipeline, &[Key::Watermark(schedule.clone())]).await?;
        Ok(rows.into_iter().flatten().find_map(|row| {
            let Record::Watermark(record) = row.record else { return None };
            Some(record.at)
        }))
    }
}

/// The schedule that is named, or all that start jobs: a stop is meant only if it is named.
fn meant<'a>(declared: &'a Pipeline, named: Option<&ScheduleId>) -> Vec<&'a Schedule> {
    match named {
        Some(id) => declared.schedule(id).into_iter().collect(),
        None => declared.starts.iter().map(|start| &start.schedule).collect(),
    }
}

impl UnrecordedInstant<'_> {
    /// The story of a schedule that is not declared.
    fn story(&self, reason: AbsenceReason, why: &str) -> StoryAnswer {
        let StoryQuery { schedule, at, .. } = self.asked;
        let perhaps = match self.floor.filter(|floor| at < floor) {
            Some(floor) => format!(" Perhaps {}.", taken_out(floor)),
            None => String::new(),
        };
        let sentence = format!("{why}{perhaps}");
        let headline = absence_headline(reason, &sentence);
        let absence = AbsenceAnswer { reason, sentence, headline, previous: None, next: None };
        absent_story(self.asked, schedule.as_ref(), absence)
    }
}

/// The story of an instant at which nothing is recorded.
fn absent_story(
    asked: &StoryQuery,
    schedule: Option<&ScheduleId>,
    absence: AbsenceAnswer,
) -> StoryAnswer {
    StoryAnswer {
        pipeline: asked.pipeline.to_string(),
        schedule: schedule.map(ToString::to_string),
        utc: asked.at,
        headline: absence.headline.clone(),
        full_reason: absence.headline.clone(),
        slot: None,
        span: None,
        absence: Some(absence),
        runs: vec![],
        events: vec![],
        events_looked_at_until: None,
        incidents: vec![],
    }
}

/// The story that rows of the ledger tell, as it is now; with the incidents of the slot.
pub fn story_answer(
    rows: StoryRows,
    incidents: Vec<IncidentDetailAnswer>,
    now: Timestamp,
) -> StoryAnswer {
    let StoryRows { key, row, date, runs, events } = rows;
    let (slot, span): (SlotAnswer, Option<SpanAnswer>) = match &row.entry {
        LedgerEntry::Slot(slot) => (slot_answer(&key, slot, &runs, now), None),
        LedgerEntry::Span(span) => {
            let first = SlotKey { nominal: row.nominal, ..key.clone() };
            (slot_of_span(&key, date, span, now), Some(span_answer(&first, span, now)))
        }
    };
    let mut story = StoryAnswer {
        pipeline: slot.pipeline.clone(),
        schedule: Some(slot.schedule.clone()),
        utc: key.nominal,
        headline: String::new(),
        full_reason: String::new(),
        slot: Some(slot),
        span,
        absence: None,
        runs: runs.into_iter().map(run_answer).collect(),
        events: events.found.into_iter().map(event_answer).collect(),
        events_looked_at_until: events.looked_at_until,
        incidents,
    };
    let times = ShownTimes::utc(now);
    if let Some(facts) = SlotFacts::from_story(&story) {
        story.headline = headline(&facts, &times);
    }
    story.full_reason = full_reason(&story, &times);
    story
}
