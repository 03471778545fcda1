//! What becomes of a slot: its states, its end, and the marks that stay on it.
//!
//! A slot is open or closed. Every change goes through [`Slot::open`], [`Slot::reopen`],
//! [`Slot::rerun`], [`Slot::advance`] and [`Slot::close`], which refuse what the design does not allow; there is no
//! other way to make a slot say something new. What is never decided here is *when*: the caller hands
//! in every instant.
//!
//! Invariant (S19): an open slot has an instant at which it is closed by force.

mod rerun;

use std::{collections::BTreeMap, fmt};

use jiff::{Timestamp, civil::Date};

pub use self::rerun::{RerunError, RerunRefused, RerunSource, Reruns};
use crate::{run::TriggerType, sla::ResolvedSla, text::TextError};

/// Where an open slot stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpenState {
    /// Not ready yet; it holds nobody back.
    Waiting,
    /// Ready or not, it is not its turn.
    Queued,
    /// A run is under way.
    Running,
    /// The last run failed; the next attempt has its time.
    Backoff,
    /// The run completed and its data is still watched.
    Monitoring,
}

/// How a slot ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Disposition {
    /// A run completed.
    Completed,
    /// The last run failed.
    Failed,
    /// Somebody ended it.
    Cancelled,
    /// It was decided not to run it.
    Skipped(SkipReason),
    /// It should have run and did not.
    Missed,
    /// We could not see.
    Unknown,
}

/// Why a slot was not run: a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SkipReason {
    /// Another run of the pipeline was under way.
    Overlap,
    /// A newer slot took its place.
    Superseded,
    /// It lay too far back, or waited too long for its turn.
    Expired,
    /// It was missed, and the pipeline catches nothing up.
    NoCatchup,
    /// It was missed, and there were more than a plan may hold.
    Capped,
    /// The pipeline was paused.
    Paused,
    /// Its data did not come in time.
    NotReady,
    /// Its sensor did not come in time.
    NoSensor,
    /// Its pipeline or schedule is gone.
    Retired,
    /// The pipeline only records what it would do.
    DryRun,
}

/// Open or closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SlotState {
    /// It is still to be decided.
    Open(OpenState),
    /// It is decided.
    Closed(Disposition),
}

/// What stays on a slot for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// When it was found missing.
    pub missed_at: Option<Timestamp>,
    /// Its end came after it had been called missed or unknown.
    pub late: bool,
    /// A run's outcome could not be found out.
    pub uncertain: bool,
    /// It was opened by a repair.
    pub recovered: bool,
}

/// One slot as the ledger knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Where it stands.
    pub state: SlotState,
    /// 1 at its first opening, one more at each closed → open; 0 for a slot that never was open.
    pub generation: u32,
    /// The attempt of this generation that is under way or was the last; 0 before the first.
    pub attempt: u32,
    /// What opened this generation.
    pub opened_by: TriggerType,
    /// The local date it stands for.
    pub date: Date,
    /// When this generation was opened.
    pub opened_at: Timestamp,
    /// When it is closed by force (S19); of no meaning once closed.
    pub closes_at: Timestamp,
    /// When the next attempt may begin, in backoff.
    pub retry_at: Option<Timestamp>,
    /// What stays.
    pub marks: Marks,
    /// The pipeline's version in force when it was recorded (S16).
    pub version: u64,
    /// What somebody asked for beside running it.
    pub wish: Option<Box<Wish>>,
    /// How often it was run again, if ever.
    pub reruns: Option<Box<Reruns>>,
    /// What it promises about time, resolved when it was opened; nothing when absent.
    pub sla: Option<Box<ResolvedSla>>,
    /// The first look at its readiness that found it not ready; kept if it promises an evaluation.
    pub evaluated: Option<Box<Evaluated>>,
}

/// A look at a slot's readiness. It tells the watchdog that somebody looked, and what for people waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluated {
    /// When.
    pub at: Timestamp,
    /// What it waited for.
    pub blocking: Vec<String>,
    /// Whether people were told that it was not ready by its deadline.
    pub is_told: bool,
}

/// What whoever asks for a run may ask for beside it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wish {
    /// Parameters of the job.
    pub params: BTreeMap<String, String>,
    /// Whether readiness is passed over.
    pub force: bool,
    /// Why it runs again.
    pub reason: Option<String>,
    /// The run that gave rise to it.
    pub original_run: Option<String>,
    /// The backfill that opened it.
    pub backfill: Option<u64>,
    /// How it had ended when that backfill opened it; nothing if it was not recorded.
    pub before: Option<Disposition>,
}

/// A change that the slot machine does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a slot that is {from} cannot become {to}")]
pub struct IllegalSlotChange {
    /// Where it stood.
    pub from: SlotState,
    /// Where it was to go.
    pub to: SlotState,
}

impl OpenState {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Waiting, Self::Queued, Self::Running, Self::Backoff, Self::Monitoring];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Backoff => "backoff",
            Self::Monitoring => "monitoring",
        }
    }

    /// Whether it takes one of the pipeline's places (S6): from its run's beginning until closed,
    /// except while it is only monitored.
    pub fn occupies_place(self) -> bool {
        matches!(self, Self::Running | Self::Backoff)
    }
}

impl SkipReason {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Overlap,
        Self::Superseded,
        Self::Expired,
        Self::NoCatchup,
        Self::Capped,
        Self::Paused,
        Self::NotReady,
        Self::NoSensor,
        Self::Retired,
        Self::DryRun,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Overlap => "overlap",
            Self::Superseded => "superseded",
            Self::Expired => "expired",
            Self::NoCatchup => "no_catchup",
            Self::Capped => "capped",
            Self::Paused => "paused",
            Self::NotReady => "not_ready",
            Self::NoSensor => "no_sensor",
            Self::Retired => "retired",
            Self::DryRun => "dry_run",
        }
    }

    /// Reads one of the words.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let found = Self::ALL.into_iter().find(|reason| reason.as_str() == text);
        found.ok_or_else(|| {
            TextError::not_one_of("skip reason", text, Self::ALL.map(Self::as_str).as_slice())
        })
    }

    /// Why, for people, after "skipped:".
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Overlap => "the run before it was still going",
            Self::Superseded => "a newer slot took its place",
            Self::Expired => "too old by the time that it could run",
            Self::NoCatchup => "missed, and no catch-up is set",
            Self::Capped => "missed, and beyond the catch-up limit",
            Self::Paused => "the pipeline was paused",
            Self::NotReady => "it was not ready in time",
            Self::NoSensor => "its sensor was not reported in time",
            Self::Retired => "the pipeline or schedule was removed",
            Self::DryRun => "dry run: nothing is started",
        }
    }

    /// Whether a slot that was skipped for this reason counts as missed for people.
    pub fn counts_as_missed(self) -> bool {
        matches!(self, Self::NoCatchup | Self::Expired | Self::Capped)
    }
}

impl Disposition {
    /// The words, without reasons.
    pub const WORDS: [&'static str; 6] =
        ["completed", "failed", "cancelled", "skipped", "missed", "unknown"];

    /// The word for it, without the reason of a skip.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Skipped(_) => "skipped",
            Self::Missed => "missed",
            Self::Unknown => "unknown",
        }
    }

    /// Why, for a skip.
    pub fn reason(self) -> Option<SkipReason> {
        match self {
            Self::Skipped(reason) => Some(reason),
            Self::Completed | Self::Failed | Self::Cancelled | Self::Missed | Self::Unknown => None,
        }
    }

    /// Reads a word and, for a skip, its reason.
    pub fn parse(word: &str, reason: Option<&str>) -> Result<Self, TextError> {
        Ok(match (word, reason) {
            ("completed", None) => Self::Completed,
            ("failed", None) => Self::Failed,
            ("cancelled", None) => Self::Cancelled,
            ("missed", None) => Self::Missed,
            ("unknown", None) => Self::Unknown,
            ("skipped", Some(reason)) => Self::Skipped(SkipReason::parse(reason)?),
            _ => return Err(TextError::not_one_of("disposition", word, &Self::WORDS)),
        })
    }

    /// Whether catch-up and late reports may still change it.
    fn is_provisional(self) -> bool {
        matches!(self, Self::Missed | Self::Unknown)
    }

    /// Whether it says that nothing was heard of the slot, so that a late report still decides it.
    pub fn is_absence(self) -> bool {
        match self {
            Self::Missed | Self::Unknown => true,
            Self::Skipped(reason) => reason.counts_as_missed(),
            Self::Completed | Self::Failed | Self::Cancelled => false,
        }
    }

    /// Whether it says that the slot was missed, by that word or by giving it up.
    pub fn is_miss(self) -> bool {
        self.is_absence() && self != Self::Unknown
    }
}

/// What readers of the first Interlock know a failed slot as: no attempt is left, and nothing starts one by itself.
pub const FAILED_FINAL: &str = "FAILED_FINAL";

/// The status of a slot in the words of the first Interlock, whose readers look for it in run logs: by its state and, once
/// closed, its disposition, as stored.
pub fn wire_status(state: &str, disposition: Option<&str>) -> String {
    match disposition.unwrap_or(state) {
        "waiting" | "queued" => "PENDING".to_owned(),
        // The next attempt is to come: its trigger is not over.
        "backoff" => "RUNNING".to_owned(),
        "monitoring" => "COMPLETED_MONITORING".to_owned(),
        "failed" => FAILED_FINAL.to_owned(),
        word => word.to_uppercase(),
    }
}

impl SlotState {
    /// Whether it is still to be decided.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// What an event that a slot closes with says: the reason of a skip, else the state.
    pub fn in_words(self) -> String {
        match self {
            Self::Closed(Disposition::Skipped(reason)) => reason.in_words().to_owned(),
            Self::Closed(disposition) => disposition.as_str().to_owned(),
            Self::Open(state) => state.as_str().to_owned(),
        }
    }
}

impl fmt::Display for SlotState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(state) => write!(f, "open({})", state.as_str()),
            Self::Closed(Disposition::Skipped(reason)) => write!(f, "skipped({})", reason.as_str()),
            Self::Closed(disposition) => f.write_str(disposition.as_str()),
        }
    }
}

/// What is known when a slot is recorded.
#[derive(Debug, Clone, Copy)]
pub struct Opening {
    /// What opens it.
    pub opened_by: TriggerType,
    /// The local date it stands for.
    pub date: Date,
    /// Now.
    pub at: Timestamp,
    /// When it is closed by force.
    pub closes_at: Timestamp,
    /// The pipeline's version in force.
    pub version: u64,
}

impl Slot {
    /// A slot that was not recorded before, open.
    pub fn open(state: OpenState, opening: Opening) -> Self {
        Self { generation: 1, ..Self::recorded(SlotState::Open(state), opening) }
    }

    /// A slot that was not recorded before, and is decided at once without ever being open.
    pub fn decided(disposition: Disposition, opening: Opening) -> Self {
        let mut slot = Self::recorded(SlotState::Closed(disposition), opening);
        if disposition == Disposition::Missed {
            slot.marks.missed_at = Some(opening.at);
        }
        slot
    }

    /// Whether somebody asked, when a pause ended, that it be caught up.
    pub fn is_asked_for(&self) -> bool {
        self.opened_by == TriggerType::Catchup && self.wish.is_some()
    }

    fn recorded(state: SlotState, opening: Opening) -> Self {
        let Opening { opened_by, date, at, closes_at, version } = opening;
        Self {
            state,
            generation: 0,
            attempt: 0,
            opened_by,
            date,
            opened_at: at,
            closes_at,
            retry_at: None,
            marks: Marks::default(),
            version,
            wish: None,
            reruns: None,
            sla: None,
            evaluated: None,
        }
    }

    /// The same slot with what it promises about time.
    #[must_use]
    pub fn promising(self, sla: ResolvedSla) -> Self {
        Self { sla: (!sla.is_empty()).then(|| Box::new(sla)), ..self }
    }

    /// The marks that stay on it when it opens again. One that was given up (`skipped`, without a catch-up that would run it)
    /// was missed too, and is marked so now at the latest: its state will say something else.
    pub fn inherited_marks(&self) -> Marks {
        let SlotState::Closed(disposition) = self.state else { return self.marks };
        // It was decided when it was recorded, or at the end of the time that it had.
        let decided_at = if self.generation == 0 { self.opened_at } else { self.closes_at };
        let missed_at = disposition.is_miss().then_some(decided_at);
        Marks { missed_at: self.marks.missed_at.or(missed_at), ..self.marks }
    }

    /// Opens a closed slot again, as its next generation.
    pub fn reopen(&self, state: OpenState, opening: Opening) -> Result<Self, IllegalSlotChange> {
        if self.state.is_open() {
            return Err(IllegalSlotChange { from: self.state, to: SlotState::Open(state) });
        }
        let mut slot = Self::open(state, opening);
        slot.generation = self.generation + 1;
        slot.marks = self.inherited_marks();
        slot.reruns.clone_from(&self.reruns);
        Ok(slot)
    }

    /// Moves an open slot on.
    pub fn advance(&self, to: OpenState, closes_at: Timestamp) -> Result<Self, IllegalSlotChange> {
        use OpenState::{Backoff, Monitoring, Queued, Running, Waiting};

        let illegal = IllegalSlotChange { from: self.state, to: SlotState::Open(to) };
        let SlotState::Open(from) = self.state else { return Err(illegal) };
        let legal = match from {
            // A queued slot is asked again at its turn, and may turn out not to be ready.
            Waiting | Queued => matches!(to, Waiting | Queued | Running),
            Running => matches!(to, Running | Backoff | Monitoring),
            Backoff => matches!(to, Running | Backoff),
            Monitoring => false,
        };
        if !legal {
            return Err(illegal);
        }
        Ok(Self { state: SlotState::Open(to), closes_at, retry_at: None, ..self.clone() })
    }

    /// Completes a slot of what somebody else runs that had failed: it was tried again, and a run of it ended well. That it
    /// failed first stays with the run that did, and with its event (ADR 35).
    pub fn repair(&self) -> Result<Self, IllegalSlotChange> {
        let to = SlotState::Closed(Disposition::Completed);
        if self.state == SlotState::Closed(Disposition::Failed) {
            Ok(Self { state: to, ..self.clone() })
        } else {
            Err(IllegalSlotChange { from: self.state, to })
        }
    }

    /// Decides a slot: an open one, or one that was called missed or unknown.
    pub fn close(
        &self,
        disposition: Disposition,
        at: Timestamp,
    ) -> Result<Self, IllegalSlotChange> {
        let to = SlotState::Closed(disposition);
        let illegal = IllegalSlotChange { from: self.state, to };
        let mut slot = Self { state: to, retry_at: None, ..self.clone() };
        match self.state {
            // It was called missed, and ran all the same.
            SlotState::Open(_) => {
                let is_end = matches!(disposition, Disposition::Completed | Disposition::Failed);
                slot.marks.late |= is_end && self.marks.missed_at.is_some();
            }
            SlotState::Closed(before) if before.is_provisional() => match disposition {
                // S11: a success after a miss closes it as late and never erases it.
                Disposition::Completed | Disposition::Failed => slot.marks.late = true,
                Disposition::Skipped(_) => {}
                Disposition::Cancelled | Disposition::Missed | Disposition::Unknown => {
                    return Err(illegal);
                }
            },
            // Nobody looked when it was due, and somebody ran it all the same.
            SlotState::Closed(before)
                if before.is_absence()
                    && matches!(disposition, Disposition::Completed | Disposition::Failed) =>
            {
                slot.marks.late = true;
            }
            SlotState::Closed(_) => return Err(illegal),
        }
        if disposition == Disposition::Missed {
            slot.marks.missed_at = Some(slot.marks.missed_at.unwrap_or(at));
        }
        Ok(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn readers_of_the_first_interlock_find_their_words() {
        for (state, disposition, status) in [
            ("waiting", None, "PENDING"),
            ("queued", None, "PENDING"),
            ("running", None, "RUNNING"),
            ("backoff", None, "RUNNING"),
            ("monitoring", None, "COMPLETED_MONITORING"),
            ("closed", Some("completed"), "COMPLETED"),
            ("closed", Some("failed"), "FAILED_FINAL"),
            ("closed", Some("cancelled"), "CANCELLED"),
            ("closed", Some("skipped"), "SKIPPED"),
            ("closed", Some("missed"), "MISSED"),
        ] {
            assert_eq!(wire_status(state, disposition), status, "{state} {disposition:?}");
        }
    }

    fn opening(opened_by: TriggerType) -> Opening {
        let date = Date::constant(2026, 2, 25);
        Opening { opened_by, date, at: at(100), closes_at: at(200), version: 7 }
    }

    fn waiting() -> Slot {
        Slot::open(OpenState::Waiting, opening(TriggerType::Scheduler))
    }

    #[test]
    fn open_slots_move_only_along_the_machine() {
        use OpenState::{Backoff, Monitoring, Queued, Running, Waiting};
        let legal = [
            (Waiting, &[Waiting, Queued, Running][..]),
            (Queued, &[Waiting, Queued, Running]),
            (Running, &[Running, Backoff, Monitoring]),
            (Backoff, &[Running, Backoff]),
            (Monitoring, &[]),
        ];
        for (from, targets) in legal {
            let slot = Slot { state: SlotState::Open(from), ..waiting() };
            for to in OpenState::ALL {
                let moved = slot.advance(to, at(300));
                assert_eq!(moved.is_ok(), targets.contains(&to), "{from:?} to {to:?}");
                if let Ok(moved) = moved {
                    assert_eq!((moved.state, moved.closes_at), (SlotState::Open(to), at(300)));
                }
            }
        }
    }

    #[test]
    fn a_decided_slot_stays_decided() {
        let done = waiting().close(Disposition::Completed, at(150)).unwrap();
        assert!(done.close(Disposition::Failed, at(160)).is_err());
        assert!(done.advance(OpenState::Running, at(300)).is_err());
    }

    #[test]
    fn s11_a_success_after_a_miss_is_late_and_the_miss_stays() {
        let missed = waiting().close(Disposition::Missed, at(150)).unwrap();
        assert_eq!(missed.marks.missed_at, Some(at(150)));
        let late = missed.close(Disposition::Completed, at(400)).unwrap();
        assert_eq!(late.state, SlotState::Closed(Disposition::Completed));
        assert_eq!((late.marks.missed_at, late.marks.late), (Some(at(150)), true));
        assert!(missed.close(Disposition::Cancelled, at(400)).is_err());
    }

    #[test]
    fn a_generation_begins_when_a_closed_slot_is_opened_again() {
        let missed = Slot::decided(Disposition::Missed, opening(TriggerType::Scheduler));
        assert_eq!((missed.generation, missed.marks.missed_at), (0, Some(at(100))));
        let again = missed.reopen(OpenState::Waiting, opening(TriggerType::Catchup)).unwrap();
        assert_eq!((again.generation, again.marks.missed_at), (1, Some(at(100))));
        // One that was given up was missed too; one that was left out was not.
        for (reason, missed_at) in [
            (SkipReason::NoCatchup, Some(at(100))),
            (SkipReason::Capped, Some(at(100))),
            (SkipReason::Overlap, None),
            (SkipReason::Paused, None),
        ] {
            let given_up =
                Slot::decided(Disposition::Skipped(reason), opening(TriggerType::Scheduler));
            let again = given_up.reopen(OpenState::Waiting, opening(TriggerType::Manual)).unwrap();
            assert_eq!(again.marks.missed_at, missed_at, "{reason:?}");
            let third = again.close(Disposition::Completed, at(160)).unwrap();
            assert_eq!(third.marks.late, missed_at.is_some(), "{reason:?}");
        }
        assert!(again.reopen(OpenState::Waiting, opening(TriggerType::Manual)).is_err());
        let done = again.close(Disposition::Failed, at(150)).unwrap();
        let third = done.reopen(OpenState::Waiting, opening(TriggerType::Manual)).unwrap();
        assert_eq!((third.generation, third.attempt), (2, 0));
    }

    #[test]
    fn words_are_read_again() {
        for reason in SkipReason::ALL {
            let skipped = Disposition::Skipped(reason);
            let read = Disposition::parse(skipped.as_str(), Some(reason.as_str()));
            assert_eq!(read, Ok(skipped));
        }
        for word in Disposition::WORDS.into_iter().filter(|word| *word != "skipped") {
            assert_eq!(Disposition::parse(word, None).unwrap().as_str(), word);
        }
        assert!(Disposition::parse("skipped", None).is_err());
    }
}
