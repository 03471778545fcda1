//! Coming slots, with what daylight saving and calendars do to them.

use interlock_core::{
    id::{PipelineId, SlotKey},
    pipeline::{ControlAction, ControlSchedule, Pipeline, StartSchedule},
    schedule::{DstEffect, Occurrence, Omission, Recurrence, Schedule, jitter_offset},
};
use jiff::Timestamp;

use super::run::pipeline_id;
use crate::{
    AnswerError, ErrorCode, Reader,
    listing::LIMIT_MAX,
    model::next_slot::{LeftOutAnswer, NextSlotAnswer, NextSlotsAnswer, NextSlotsQuery},
};

/// Slots of each pipeline when neither a count nor an end is given.
pub const COUNT_DEFAULT: usize = 5;
/// Omissions named in one note; the rest is counted.
const OMISSIONS_NAMED: usize = 3;

/// Which slots of a schedule are meant.
#[derive(Debug, Clone, Copy)]
pub struct SlotWindow {
    /// The first instant.
    pub from: Timestamp,
    /// The first instant behind it.
    pub until: Timestamp,
    /// At most so many.
    pub count: usize,
}

impl Reader<'_> {
    /// The coming slots of a pipeline.
    pub async fn next_slots(
        &self,
        name: &str,
        asked: &NextSlotsQuery,
    ) -> Result<NextSlotsAnswer, AnswerError> {
        let reader = self.at(asked.at);
        let count = match (asked.count, asked.to) {
            (Some(count @ 1..=LIMIT_MAX), _) => count,
            (Some(count), _) => return Err(count_refused(count)),
            (None, Some(_)) => LIMIT_MAX,
            (None, None) => COUNT_DEFAULT,
        };
        let declared = reader.declared_pipeline(name).await?;
        let from = asked.from.unwrap_or(reader.now);
        let until = asked.to.unwrap_or(Timestamp::MAX);
        let window = SlotWindow { from, until, count: count + 1 };
        let mut answer = next_slots_of(&declared, reader.now, |_| window);
        answer.more = answer.items.len() > count;
        answer.items.truncate(count);
        Ok(answer)
    }

    /// The declaration that is in force of a pipeline; an error if there is none.
    pub(crate) async fn declared_pipeline(
        &self,
        name: &str,
    ) -> Result<std::sync::Arc<Pipeline>, AnswerError> {
        let id = pipeline_id(name)?;
        let unreadable = |message: String| AnswerError::unreadable_declaration(name, &message);
        let declared = self.declarations.current(&id).await.map_err(unreadable)?;
        if let Some(declared) = declared {
            return Ok(declared);
        }
        if self.agenda_row(&id).await?.is_none() {
            return Err(AnswerError::unknown_pipeline(name));
        }
        let message = format!("`{name}` is no longer declared");
        Err(AnswerError::not_found(message, "What was recorded of it is kept: `interlock slots`."))
    }
}

fn count_refused(count: usize) -> AnswerError {
    AnswerError::question(
        ErrorCode::BadParameter,
        format!("`count` is {count}"),
        format!("It is 1 to {LIMIT_MAX}; `from` goes on behind the last slot."),
    )
}

/// The coming slots of a declaration, at most as many as the window of the first schedule says.
pub fn next_slots_of(
    pipeline: &Pipeline,
    now: Timestamp,
    window: impl Fn(&Schedule) -> SlotWindow,
) -> NextSlotsAnswer {
    let mut answer = NextSlotsAnswer::default();
    if let Some(reason) = never_due(pipeline) {
        answer.remarks.push(format!("{} is never due: {reason}", pipeline.name));
        return answer;
    }
    let mut count = usize::MAX;
    for start in &pipeline.starts {
        let schedule = &start.schedule;
        let window = window(schedule);
        count = count.min(window.count);
        let note = standing_note(pipeline, start);
        answer.items.extend(slots_within(&pipeline.name, schedule, &note, window));
    }
    answer.items.sort_by(|one, other| (one.utc, &one.schedule).cmp(&(other.utc, &other.schedule)));
    answer.items.truncate(count);
    if answer.items.is_empty() {
        answer.remarks.push(format!("{} has no slots in this time", pipeline.name));
    }
    answer.remarks.extend(pipeline.controls.iter().filter_map(|it| coming(pipeline, it, now)));
    answer
}

/// When a stop or restart schedule fires next. It owes no run that could be listed.
fn coming(pipeline: &Pipeline, control: &ControlSchedule, now: Timestamp) -> Option<String> {
    let at = control.schedule.after(now)?;
    let what = match control.action {
        ControlAction::Stop => "ends what runs",
        ControlAction::Restart => "ends what runs and starts a new run",
    };
    Some(format!("{}/{} {what}, next at {at}", pipeline.name, control.schedule.id()))
}

fn never_due(pipeline: &Pipeline) -> Option<&'static str> {
    if !pipeline.enabled {
        return Some("`watch.enabled` is false");
    }
    if pipeline.trigger.is_none() {
        return Some("it has no trigger");
    }
    if pipeline.starts.is_empty() {
        return None;
    }
    let owes_nothing = pipeline
        .starts
        .iter()
        .all(|start| matches!(start.schedule.recurrence(), Recurrence::SinceLast { .. }));
    owes_nothing.then_some("it only watches the time since the last report")
}

/// What is to be said about every slot of a schedule.
fn standing_note(pipeline: &Pipeline, start: &StartSchedule) -> String {
    if let Recurrence::Sensor { rule, .. } = start.schedule.recurrence() {
        return format!("when sensor `{}` says so", rule.key);
    }
    let offset = jitter_offset(&pipeline.name, start.schedule.id(), start.jitter);
    match offset.as_secs() {
        0 => String::new(),
        seconds => format!("opens {seconds}s later (jitter)"),
    }
}

/// The slots of one schedule within a window, with a note that each has.
pub fn slots_within(
    pipeline: &PipelineId,
    schedule: &Schedule,
    standing_note: &str,
    window: SlotWindow,
) -> Vec<NextSlotAnswer> {
    let mut since = window.from;
    let slots = schedule.slots(window.from, window.until, window.count).found;
    let mut items = Vec::with_capacity(slots.len());
    for slot in slots {
        let omissions = schedule.omissions(since, slot, OMISSIONS_NAMED + 1);
        since = slot;
        let occurrence = schedule.occurrence(slot);
        let note = note(&occurrence, &omissions, standing_note);
        let named = omissions.iter().take(OMISSIONS_NAMED);
        let zone = schedule.timing().zone.time_zone().clone();
        let local = slot.to_zoned(zone).strftime("%Y-%m-%dT%H:%M:%S%:z");
        let (pipeline, schedule) = (pipeline.clone(), schedule.id().clone());
        let key = SlotKey { pipeline, schedule, nominal: slot };
        items.push(NextSlotAnswer {
            pipeline: key.pipeline.to_string(),
            schedule: key.schedule.to_string(),
            slot: key.to_string(),
            utc: slot,
            local: local.to_string(),
            date: occurrence.date,
            dst: occurrence.dst.map(dst_word).map(str::to_owned),
            left_out: named.map(left_out_answer).collect(),
            note,
        });
    }
    items
}

/// The word for what daylight saving does to a slot.
fn dst_word(effect: DstEffect) -> &'static str {
    match effect {
        DstEffect::Moved { .. } => "moved",
        DstEffect::FirstOfTwo => "first_of_two",
        DstEffect::SecondOfTwo => "second_of_two",
    }
}

fn left_out_answer(omission: &Omission) -> LeftOutAnswer {
    match omission {
        Omission::Date { date, reason } => LeftOutAnswer { date: *date, reason: reason.clone() },
        Omission::Gap { missing } => LeftOutAnswer {
            date: missing.date(),
            reason: format!("{} does not exist", missing.strftime("%H:%M")),
        },
    }
}

/// What daylight saving did to a slot, and what was left out since the one before.
fn note(occurrence: &Occurrence, omissions: &[Omission], standing_note: &str) -> String {
    let mut notes: Vec<String> = Vec::new();
    notes.extend(occurrence.dst.map(|effect| effect.to_string()));
    if !omissions.is_empty() {
        let named = omissions.iter().take(OMISSIONS_NAMED).map(ToString::to_string);
        let and_more = if omissions.len() > OMISSIONS_NAMED { ", and more" } else { "" };
        notes.push(format!("before it: {}{and_more}", named.collect::<Vec<_>>().join(", ")));
    }
    if !standing_note.is_empty() {
        notes.push(standing_note.to_owned());
    }
    notes.join("; ")
}
