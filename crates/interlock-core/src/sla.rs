//! SLA: by when a slot must have been evaluated and completed.
//!
//! Deadlines are resolved once, when the slot opens, from the slot's own date and zone, and stored
//! with it. They are never computed again from the current time: the Go controller rolled a
//! deadline that had passed forward by a day, so that a pipeline which finished an hour late was
//! told that it had met tomorrow's.
//!
//! A deadline belongs to the first moment of its kind that is not before the slot: a slot at 22:00
//! with a deadline of 02:00 means 02:00 of the next day, and `2h` (after midnight) is the same. That
//! depends on the slot alone.
//!
//! Slots that are opened out of turn (catch-up, backfill, rerun, by hand) promise nothing about the
//! time of day, only about how long the work may take.

use std::fmt;

use jiff::{SignedDuration, Timestamp, civil::Date};

use crate::{
    duration::{self, Units},
    text::TextError,
    time_of_day::{MINUTE, Parts, TimeOfDay},
    zone::Zone,
};

/// A deadline as written: `10:00`, `:30` (hourly), `2h` (after local midnight) or `+20m` (after the
/// slot's own instant).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// `HH:MM` on the slot's own date.
    TimeOfDay(TimeOfDay),
    /// `:MM`: that minute of the hour after the slot's hour.
    MinuteOfNextHour(u8),
    /// A duration after the local midnight of the slot's date.
    After(SignedDuration),
    /// A duration after the slot's own instant.
    AfterSlot(SignedDuration),
}

/// What a pipeline promises about time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SlaSpec {
    /// By when evaluation must have started.
    pub evaluation: Option<Deadline>,
    /// By when the run must have completed.
    pub completion: Option<Deadline>,
    /// The warning comes this long before the breach.
    pub expected_duration: Option<SignedDuration>,
    /// Budget counted from the first sensor.
    pub duration_max: Option<SignedDuration>,
    /// The zone of `HH:MM`; the schedule's when absent.
    pub zone: Option<Zone>,
    /// Marked as critical by its owner; carried to alerts.
    pub critical: bool,
}

const EXAMPLE: &str =
    "Write a time such as `10:00`, `:30` for hourly slots, or a duration such as `2h` or `+20m`.";

impl Deadline {
    /// Reads `HH:MM`, `:MM`, a duration (`2h`) or a duration after the slot (`+20m`).
    pub fn parse(text: &str) -> Result<Self, TextError> {
        if let Some(duration) = text.strip_prefix('+') {
            let parsed = duration::parse(duration, Units::SecondsToDays);
            return parsed.map(Self::AfterSlot).map_err(|error| error.shifted(1));
        }
        if text.starts_with(':') {
            return minute_of_next_hour(text);
        }
        // Digits alone, as in `0830`, are a time without its colon rather than a duration.
        if text.contains(':') || (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())) {
            return TimeOfDay::parse(text).map(Self::TimeOfDay);
        }
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return duration::parse(text, Units::SecondsToDays).map(Self::After);
        }
        let message = if text.is_empty() {
            "the deadline is empty".to_owned()
        } else {
            format!("`{text}` is not a deadline")
        };
        Err(TextError::new(0..text.len(), message, EXAMPLE))
    }

    /// The instant of this deadline for one slot, in a zone that may differ from the slot's own.
    fn resolve(self, slot: &SlotTimes<'_>, zone: &Zone) -> Timestamp {
        match self {
            Self::TimeOfDay(time) => first_not_before(slot, |date| {
                let found = time.on(date, zone);
                [found.first, found.last]
            }),
            Self::MinuteOfNextHour(minute) => {
                let wall = slot.nominal.to_zoned(zone.time_zone().clone());
                let since_hour = i64::from(wall.minute()) * 60 + i64::from(wall.second());
                let seconds = 3600 - since_hour + i64::from(minute) * 60;
                plus(slot.nominal, SignedDuration::from_secs(seconds))
            }
            Self::After(duration) => first_not_before(slot, |date| {
                [plus(TimeOfDay::MIDNIGHT.first_on(date, zone), duration)]
            }),
            Self::AfterSlot(duration) => plus(slot.nominal, duration),
        }
    }
}

impl fmt::Display for Deadline {
    /// As [`Deadline::parse`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimeOfDay(time) => write!(f, "{time}"),
            Self::MinuteOfNextHour(minute) => write!(f, ":{minute:02}"),
            Self::After(duration) => f.write_str(&duration::format(*duration)),
            Self::AfterSlot(duration) => write!(f, "+{}", duration::format(*duration)),
        }
    }
}

fn minute_of_next_hour(text: &str) -> Result<Deadline, TextError> {
    let mut parts = Parts { text, at: 1 };
    let minute = parts.next(MINUTE)?;
    if parts.at < text.len() {
        let message = format!("`{text}` goes on after the minute");
        return Err(TextError::new(parts.at..text.len(), message, EXAMPLE));
    }
    Ok(Deadline::MinuteOfNextHour(minute as u8))
}

/// What a deadline is resolved from.
#[derive(Debug, Clone, Copy)]
pub struct SlotTimes<'a> {
    /// The slot's instant.
    pub nominal: Timestamp,
    /// Its local date.
    pub date: Date,
    /// The schedule's zone.
    pub zone: &'a Zone,
    /// The schedule's own deadline for evaluation, in the schedule's zone: it wins over the
    /// pipeline's.
    pub deadline: Option<Deadline>,
}

/// How a slot came to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// By its schedule or its sensor, when it was its turn.
    Live,
    /// By catch-up, backfill, rerun or by hand.
    OutOfTurn,
}

/// What one slot promises, stored with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResolvedSla {
    /// By when evaluation must have started.
    pub evaluation_at: Option<Timestamp>,
    /// By when it must have completed.
    pub completion: Option<Limit>,
    /// How long it may take from its first sensor; see [`ResolvedSla::relative`].
    pub duration_max: Option<SignedDuration>,
    /// How long before a breach the warning comes.
    pub expected_duration: Option<SignedDuration>,
}

/// An instant that must not be passed, and when to warn of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// From here on it is at risk.
    pub warning_at: Option<Timestamp>,
    /// After this instant it is broken.
    pub breach_at: Timestamp,
}

impl Limit {
    fn new(breach_at: Timestamp, lead: Option<SignedDuration>) -> Self {
        Self { warning_at: lead.map(|lead| plus(breach_at, -lead)), breach_at }
    }
}

impl SlaSpec {
    /// What a slot promises that is opened out of turn: nothing about the time of day.
    pub fn out_of_turn(&self) -> ResolvedSla {
        ResolvedSla {
            duration_max: self.duration_max,
            expected_duration: self.expected_duration,
            ..ResolvedSla::default()
        }
    }
}

/// Resolves what a slot promises when it opens.
pub fn resolve(spec: &SlaSpec, slot: &SlotTimes<'_>, opening: Opening) -> ResolvedSla {
    let relative = spec.out_of_turn();
    match opening {
        Opening::OutOfTurn => relative,
        Opening::Live => {
            let zone = spec.zone.as_ref().unwrap_or(slot.zone);
            let own = slot.deadline.map(|deadline| deadline.resolve(slot, slot.zone));
            let general = || spec.evaluation.map(|deadline| deadline.resolve(slot, zone));
            let completion = spec.completion.map(|deadline| deadline.resolve(slot, zone));
            ResolvedSla {
                evaluation_at: own.or_else(general),
                completion: completion.map(|at| Limit::new(at, spec.expected_duration)),
                ..relative
            }
        }
    }
}

impl ResolvedSla {
    /// Whether it promises nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The limit that the first sensor's arrival sets.
    ///
    /// Without an expected duration the last quarter of the budget is the time to warn.
    pub fn relative(&self, first_sensor_at: Timestamp) -> Option<Limit> {
        let budget = self.duration_max?;
        let lead = self.expected_duration.unwrap_or(budget / 4);
        Some(Limit::new(plus(first_sensor_at, budget), Some(lead)))
    }
}

/// Whether a deadline is broken: strictly after it.
pub fn is_breached(deadline: Timestamp, now: Timestamp) -> bool {
    now > deadline
}

/// Whether a deadline is close: from `lead` before it up to the deadline itself.
///
/// The first instant counts, because an alarm set for it must find what it was set for.
pub fn is_at_risk(deadline: Timestamp, lead: SignedDuration, now: Timestamp) -> bool {
    lead.is_positive() && plus(deadline, -lead) <= now && !is_breached(deadline, now)
}

/// How far a slot has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It is owed or open: there may be a run or none.
    Unfinished,
    /// Its job succeeded then; the time it is monitored afterwards does not count.
    Completed(Timestamp),
    /// It closed then without success: failed, cancelled or skipped.
    Ended(Timestamp),
}

/// What is to be said about a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlaVerdict {
    /// There is time.
    NotDue,
    /// The warning time has come.
    AtRisk,
    /// It is broken.
    Breached,
    /// It was kept.
    Met,
    /// The slot closed in time without success, which was told as such: neither kept nor broken.
    Moot,
}

/// Judges a limit. Once a slot has finished, the answer no longer depends on `now`.
pub fn judge(limit: Limit, progress: Progress, now: Timestamp) -> SlaVerdict {
    let breached = |at| is_breached(limit.breach_at, at);
    match progress {
        Progress::Completed(at) | Progress::Ended(at) if breached(at) => SlaVerdict::Breached,
        Progress::Completed(_) => SlaVerdict::Met,
        Progress::Ended(_) => SlaVerdict::Moot,
        Progress::Unfinished if breached(now) => SlaVerdict::Breached,
        Progress::Unfinished => {
            let lead = limit.warning_at.map(|at| limit.breach_at.duration_since(at));
            match lead {
                Some(lead) if is_at_risk(limit.breach_at, lead, now) => SlaVerdict::AtRisk,
                Some(_) | None => SlaVerdict::NotDue,
            }
        }
    }
}

/// The first instant for the slot's date, or for a day after it, that is not before the slot.
fn first_not_before<const N: usize>(
    slot: &SlotTimes<'_>,
    instants_on: impl Fn(Date) -> [Timestamp; N],
) -> Timestamp {
    // Another zone's clock may be 26 hours ahead and two dates further than the slot's, and the
    // time may have passed on that date too: the fourth day is always late enough.
    let days = std::iter::successors(Some(slot.date), |date| date.tomorrow().ok()).take(4);
    let mut instants = days.flat_map(instants_on);
    instants.find(|at| *at >= slot.nominal).unwrap_or(Timestamp::MAX)
}

fn plus(at: Timestamp, duration: SignedDuration) -> Timestamp {
    let edge = if duration.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
    at.checked_add(duration).unwrap_or(edge)
}

#[cfg(test)]
mod tests;
