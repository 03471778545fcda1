//! What a sentence about a slot is made of.

use interlock_core::{id::SlotKey, run::RunState};
use interlock_store::{RunRow, record::SlotRecord};
use jiff::{SignedDuration, Timestamp};

use crate::model::{slot::SlotAnswer, story::StoryAnswer};

/// What is known of a slot. Whatever is not known is left out of its sentences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotFacts<'a> {
    /// Its instant.
    pub nominal: Timestamp,
    /// `waiting` to `closed`.
    pub state: &'a str,
    /// How it ended.
    pub disposition: Option<&'a str>,
    /// Why it was skipped.
    pub reason: Option<&'a str>,
    /// The trigger type that opened it.
    pub opened_by: Option<&'a str>,
    /// When it was called missed.
    pub missed_at: Option<Timestamp>,
    /// Whether its end came after that.
    pub is_late: bool,
    /// Whether the outcome of a run of it could not be found out.
    pub is_uncertain: bool,
    /// The last attempt.
    pub attempt: u32,
    /// When the job of the last run began.
    pub started_at: Option<Timestamp>,
    /// When the last run ended.
    pub ended_at: Option<Timestamp>,
    /// Why the last run failed.
    pub message: Option<&'a str>,
    /// When the next attempt may begin.
    pub retry_at: Option<Timestamp>,
    /// Until when it waits, or waited, for what it needs.
    pub waits_until: Option<Timestamp>,
    /// By when it is to be completed.
    pub breach_at: Option<Timestamp>,
    /// What it waits for, or did not get, as its verdict says it.
    pub blocking: Vec<&'a str>,
    /// Since when, and until when, Interlock could not see.
    pub blind: Option<(Timestamp, Timestamp)>,
    /// How long runs of its schedule usually take.
    pub usual: Option<SignedDuration>,
}

impl<'a> SlotFacts<'a> {
    /// What its row and its runs say, the runs in the order in which they were made.
    pub fn from_rows(key: &SlotKey, slot: &'a SlotRecord, runs: &'a [RunRow]) -> Self {
        let last = runs.last().map(|run| &run.record);
        let evaluated = slot.evaluated.as_deref();
        Self {
            nominal: key.nominal,
            state: &slot.state,
            disposition: slot.disposition.as_deref(),
            reason: slot.reason.as_deref(),
            opened_by: Some(&slot.opened_by),
            missed_at: slot.marks.missed_at,
            is_late: slot.marks.late,
            is_uncertain: slot.marks.uncertain,
            attempt: slot.attempt,
            started_at: last.and_then(|run| run.started_at),
            ended_at: last.and_then(|run| run.ended_at),
            message: last
                .filter(|run| run.status == RunState::Failed.as_str())
                .and_then(|run| run.message.as_deref()),
            retry_at: slot.retry_at,
            waits_until: waits_until(slot),
            breach_at: slot.sla.as_deref().and_then(|sla| sla.breach_at),
            blocking: evaluated
                .map(|it| it.blocking.iter().map(String::as_str).collect())
                .unwrap_or_default(),
            blind: None,
            usual: None,
        }
    }

    /// What an answer about it says.
    pub fn from_answer(slot: &'a SlotAnswer) -> Self {
        let last = slot.runs.last();
        Self {
            nominal: slot.utc,
            state: &slot.state,
            disposition: slot.disposition.as_deref(),
            reason: slot.reason.as_deref(),
            opened_by: slot.opened_by.as_deref(),
            missed_at: slot.marks.missed_at,
            is_late: slot.marks.late,
            is_uncertain: slot.marks.uncertain,
            attempt: slot.attempt,
            started_at: last.and_then(|run| run.started_at),
            ended_at: last.and_then(|run| run.ended_at),
            message: slot.message.as_deref(),
            retry_at: slot.retry_at,
            waits_until: slot.waits_until,
            breach_at: slot.sla.as_ref().and_then(|sla| sla.breach_at),
            blocking: slot.blocking.iter().map(String::as_str).collect(),
            blind: None,
            usual: None,
        }
    }

    /// What the story of a recorded slot says: its row, and the evidence in its events.
    pub fn from_story(story: &'a StoryAnswer) -> Option<Self> {
        let mut facts = Self::from_answer(story.slot.as_ref()?);
        let newest = || story.events.iter().rev();
        if let Some(blocking) = newest().find_map(|event| event.details.get("blocking")?.as_array())
            && !blocking.is_empty()
        {
            facts.blocking = blocking.iter().filter_map(|reason| reason.as_str()).collect();
        }
        facts.blind = newest().find_map(|event| {
            let time = |name| event.details.get(name)?.as_str()?.parse::<Timestamp>().ok();
            Some((time("deafFrom")?, time("deafUntil")?))
        });
        Some(facts)
    }

    /// How long its last run took, or has been going by now.
    pub(super) fn ran_for(&self, now: Timestamp) -> Option<SignedDuration> {
        let ended = if self.state == "running" { None } else { Some(self.ended_at?) };
        let taken = ended.unwrap_or(now).duration_since(self.started_at?);
        (!taken.is_negative()).then_some(taken)
    }

    /// How long after its time it began; of one whose beginning is not known, ended.
    pub(super) fn behind(&self) -> SignedDuration {
        let at = self.started_at.or(self.ended_at).unwrap_or(self.nominal);
        at.duration_since(self.nominal).max(SignedDuration::ZERO)
    }
}

/// Until when a slot waits, or waited if it was given up then: the instant at which it is closed by force.
pub(crate) fn waits_until(slot: &SlotRecord) -> Option<Timestamp> {
    let has_waited = match (slot.disposition.as_deref(), slot.reason.as_deref()) {
        (None, _) => &*slot.state == "waiting",
        (Some("missed"), _) | (Some("skipped"), Some("not_ready" | "no_sensor")) => {
            slot.generation > 0
        }
        (Some(_), _) => false,
    };
    has_waited.then_some(slot.closes_at)
}
