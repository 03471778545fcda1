//! What a report means that a job makes about itself, when somebody else runs it (watch only).
//!
//! A report belongs to a run, else to a slot ([`place`]); what follows from it depends on those two alone
//! ([`meaning`]), and so does what becomes of the slot ([`slot_after`]). A report that comes twice, late or in
//! another order changes no verdict (S11). See `docs/adr/0016-reports.md`.

use jiff::{SignedDuration, Timestamp};

use crate::{
    id::ScheduleId,
    pipeline::StartSchedule,
    run::{RunEvent, RunState},
    schedule::Recurrence,
    slot::{Disposition, IllegalSlotChange, OpenState, Opening, Slot, SlotState},
};

/// A report may come at most so long before its slot, unless the schedule says otherwise.
const EARLY_MAX: SignedDuration = SignedDuration::from_hours(1);

/// What a job says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// It begins.
    Start,
    /// It ended well.
    Success,
    /// It ended badly.
    Fail,
    /// Something to be kept.
    Log,
}

impl Said {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Start, Self::Success, Self::Fail, Self::Log];

    /// The word for it, as stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Success => "success",
            Self::Fail => "fail",
            Self::Log => "log",
        }
    }

    /// Reads the word for it.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|said| said.as_str() == word)
    }

    /// What a program's exit code says.
    pub fn of_exit_code(code: i64) -> Self {
        if code == 0 { Self::Success } else { Self::Fail }
    }

    /// How a run ends by it, if it does.
    pub fn end(self) -> Option<End> {
        match self {
            Self::Success => Some(End::Well),
            Self::Fail => Some(End::Badly),
            Self::Start | Self::Log => None,
        }
    }
}

/// How a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It succeeded.
    Well,
    /// It failed.
    Badly,
}

impl End {
    /// What the slot becomes.
    pub fn disposition(self) -> Disposition {
        match self {
            Self::Well => Disposition::Completed,
            Self::Badly => Disposition::Failed,
        }
    }

    /// What happens to the run.
    pub fn event(self) -> RunEvent {
        match self {
            Self::Well => RunEvent::Succeeded,
            Self::Badly => RunEvent::Failed,
        }
    }

    /// What the run is then.
    pub fn state(self) -> RunState {
        match self {
            Self::Well => RunState::Completed,
            Self::Badly => RunState::Failed,
        }
    }
}

/// A report, as far as the rules need it.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// What it says.
    pub said: Said,
    /// Of which run, by the reporter's own name for it.
    pub rid: Option<&'a str>,
    /// Its true time.
    pub at: Timestamp,
}

/// A run that reports are compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSeen {
    /// The reporter's name for it.
    pub rid: Option<String>,
    /// Where it stands.
    pub state: RunState,
    /// When it began, if that was heard.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Whether it is over because nobody waited any longer, and not because it said so.
    pub is_given_up: bool,
}

impl RunSeen {
    /// Whether it has not ended.
    pub fn is_under_way(&self) -> bool {
        match self.state {
            RunState::Pending | RunState::Triggering | RunState::Running => true,
            RunState::CompletedMonitoring
            | RunState::Completed
            | RunState::Failed
            | RunState::Cancelled => false,
        }
    }
}

impl Report<'_> {
    /// Which of some runs, the oldest first, it is about. With a name that is the run of this name. Without one
    /// an end is that of the newest nameless run that had begun. A start is told again while a nameless run of
    /// its slot is under way, or told late of one whose end came first; so for a start the runs are those of its
    /// slot.
    pub fn run_among(&self, runs: &[RunSeen]) -> Option<usize> {
        let is_meant = |run: &RunSeen| match (self.rid, &run.rid) {
            (Some(rid), Some(known)) => rid == known,
            (Some(_), None) | (None, Some(_)) => false,
            (None, None) => match self.said {
                Said::Success | Said::Fail | Said::Log => {
                    run.is_under_way() && run.started_at.is_none_or(|began| began <= self.at)
                }
                Said::Start => {
                    run.is_under_way() || run.ended_at.is_some_and(|ended| self.at <= ended)
                }
            },
        };
        runs.iter().rposition(is_meant)
    }
}

impl StartSchedule {
    /// How long before its time a report may already belong to a slot: what the schedule says, else a tenth of
    /// the gap before it, at most an hour. A dead-man's switch waits for it all the time.
    pub fn early_for(&self, nominal: Timestamp) -> SignedDuration {
        if let Recurrence::SinceLast { step } = self.schedule.recurrence() {
            return SignedDuration::from_secs(*step);
        }
        self.early.unwrap_or_else(|| {
            let before = self.schedule.previous(nominal);
            before.map_or(EARLY_MAX, |it| (nominal.duration_since(it) / 10).min(EARLY_MAX))
        })
    }

    /// The latest slot whose reports may come at an instant.
    pub fn slot_of_report(&self, at: Timestamp) -> Option<Timestamp> {
        let next = self.schedule.after(at).filter(|next| {
            let from = next.saturating_sub(self.early_for(*next)).unwrap_or(Timestamp::MIN);
            from <= at
        });
        let latest = || {
            let after = at.saturating_add(SignedDuration::from_nanos(1)).unwrap_or(at);
            self.schedule.previous(after)
        };
        next.or_else(latest)
    }

    /// When a run of it that began at an instant has taken too long.
    pub fn limit_of_run(&self, began: Timestamp) -> Timestamp {
        plus(began, self.duration_max)
    }

    /// The next slot of a dead-man's switch after an end; `None` if it is none.
    pub fn next_of_switch(&self, at: Timestamp) -> Option<Timestamp> {
        let Recurrence::SinceLast { step } = self.schedule.recurrence() else { return None };
        let at = Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at);
        Some(plus(at, SignedDuration::from_secs(*step)))
    }

    /// Whether it is a dead-man's switch.
    pub fn is_switch(&self) -> bool {
        matches!(self.schedule.recurrence(), Recurrence::SinceLast { .. })
    }
}

/// The slot that a report of no known run belongs to: the latest over all schedules, of two at one instant that of
/// the schedule that comes first. Dead-man's switches have no slots by the clock.
pub fn place<'a>(
    starts: impl Iterator<Item = &'a StartSchedule>,
    at: Timestamp,
) -> Option<(Timestamp, ScheduleId)> {
    let places = starts.filter_map(|start| {
        let nominal = start.slot_of_report(at)?;
        Some((nominal, std::cmp::Reverse(start.schedule.id())))
    });
    places.max().map(|(nominal, std::cmp::Reverse(id))| (nominal, id.clone()))
}

/// What a report means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// A run begins.
    Begins,
    /// The run that it is about ends.
    Ends(End),
    /// A run ended whose beginning nobody heard.
    Happened(End),
    /// The beginning of a run whose end came first.
    BeganBefore,
    /// Something to be kept.
    Noted,
    /// What is known already.
    Repeated,
    /// One report more than there should be: kept, told, and nothing changes.
    Extra(Extra),
}

/// Why there is one report more than there should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extra {
    /// The slot is decided.
    SlotIsDecided,
    /// The run ended otherwise.
    RunIsOver,
    /// It has the name of a run of another slot, which is over.
    NameIsTaken,
}

/// What a report means, given the run that it is about and how its slot stands.
pub fn meaning(report: &Report<'_>, run: Option<&RunSeen>, slot: Option<SlotState>) -> Meaning {
    match (report.said, run) {
        (Said::Log, _) => Meaning::Noted,
        (Said::Start, None) => Meaning::Begins,
        (Said::Start, Some(run)) => match (run.started_at, run.ended_at) {
            (None, Some(ended)) if report.at <= ended => Meaning::BeganBefore,
            _ => Meaning::Repeated,
        },
        (Said::Success | Said::Fail, run) => {
            let end = if report.said == Said::Success { End::Well } else { End::Badly };
            match run {
                Some(run) if run.is_under_way() => Meaning::Ends(end),
                // What was given up says itself how it ended. A failure is what it was called already.
                Some(run) if run.is_given_up && end == End::Well => happened(end, slot),
                Some(run) if run.state == end.state() => Meaning::Repeated,
                Some(_) => Meaning::Extra(Extra::RunIsOver),
                None => happened(end, slot),
            }
        }
    }
}

fn happened(end: End, slot: Option<SlotState>) -> Meaning {
    if slot.is_none_or(|state| takes(state, end)) {
        Meaning::Happened(end)
    } else {
        Meaning::Extra(Extra::SlotIsDecided)
    }
}

/// Whether an end decides a slot: it is open, or was only called missed or unknown; or it failed, and was tried again
/// with success. So one run that ended well completes a slot, in whatever order its runs are told of (S11).
pub fn takes(state: SlotState, end: End) -> bool {
    let is_failed = state == SlotState::Closed(Disposition::Failed);
    takes_an_end(state) || (is_failed && end == End::Well)
}

/// Whether any end still decides a slot: it is open, or was only called missed or unknown.
pub fn takes_an_end(state: SlotState) -> bool {
    match state {
        SlotState::Open(_) => true,
        SlotState::Closed(disposition) => disposition.is_absence(),
    }
}

/// What becomes of a slot; `None` if it stays as it is. `limit` is when a run that begins now has taken too long.
/// A further run is a further attempt, also of a slot that is decided.
pub fn slot_after(
    slot: Option<&Slot>,
    meaning: Meaning,
    opening: Opening,
    limit: Timestamp,
) -> Result<Option<Slot>, IllegalSlotChange> {
    let now = opening.at;
    let known = || slot.cloned().unwrap_or_else(|| Slot::open(OpenState::Waiting, opening));
    match meaning {
        Meaning::Begins => {
            let before = known();
            let mut after = match before.state {
                SlotState::Open(OpenState::Running) => {
                    before.advance(OpenState::Running, limit.min(before.closes_at))?
                }
                SlotState::Open(_) => before.advance(OpenState::Running, limit)?,
                SlotState::Closed(_) => before,
            };
            (after.attempt, after.generation) = (after.attempt + 1, after.generation.max(1));
            Ok(Some(after))
        }
        Meaning::Happened(end) => {
            let mut after = ended(&known(), end, now)?;
            (after.attempt, after.generation) = (after.attempt + 1, after.generation.max(1));
            Ok(Some(after))
        }
        Meaning::Ends(end) => match slot.filter(|slot| takes(slot.state, end)) {
            Some(slot) => ended(slot, end, now).map(Some),
            None => Ok(None),
        },
        Meaning::BeganBefore | Meaning::Noted | Meaning::Repeated | Meaning::Extra(_) => Ok(None),
    }
}

fn ended(slot: &Slot, end: End, now: Timestamp) -> Result<Slot, IllegalSlotChange> {
    if takes_an_end(slot.state) { slot.close(end.disposition(), now) } else { slot.repair() }
}

fn plus(at: Timestamp, duration: SignedDuration) -> Timestamp {
    at.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
