//! Obligations: what stands in the due index, and how its rows are named.
//!
//! Who creates one writes its row in the same group; who handles it deletes the row, or replaces it by the next
//! stage. Names say which slot, so that a row can be checked against the ledger when its time comes: a row that
//! was overtaken is a row to delete, nothing more.

use std::collections::BTreeMap;

use interlock_core::{duration, id::ScheduleId, sla::Limit, slot::Slot};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    check::whole_milliseconds,
    contract::{Change, DueRow, Expect},
    key::{DueKind, Key, RunKey},
    record::{DueRecord, Record},
};

/// Something that somebody must look at.
#[derive(Debug, Clone, PartialEq)]
pub struct Obligation {
    // Invariant: whole milliseconds, as every instant in a key.
    at: Timestamp,
    /// As what.
    pub kind: DueKind,
    /// At what.
    pub subject: Subject,
    /// What the one who looks needs to know.
    pub details: BTreeMap<String, Value>,
}

/// What an obligation is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A slot.
    Slot(ScheduleId, Timestamp),
    /// The budget of a slot since its first sensor.
    Budget(ScheduleId, Timestamp),
    /// One run.
    Run(RunKey),
    /// The pipeline itself.
    Pipeline,
}

const BUDGET: &str = "budget";
/// Details of a budget's row.
const ARRIVED: &str = "sensorArrivalAt";
const GENERATION: &str = "generation";
const PIPELINE: &str = "pipeline";

impl Obligation {
    /// One without details.
    pub fn new(at: Timestamp, kind: DueKind, subject: Subject) -> Self {
        Self { at: not_before(at), kind, subject, details: BTreeMap::new() }
    }

    /// The first of a limit's warning and breach that is still to come.
    pub fn of_limit(limit: Limit, subject: Subject, now: Timestamp) -> Self {
        match limit.warning_at.filter(|at| *at > now) {
            Some(at) => Self::new(at, DueKind::SlaWarning, subject),
            None => Self::new(limit.breach_at, DueKind::SlaBreach, subject),
        }
    }

    /// The budget of a slot, from its first sensor on; none where the slot has none. It is that of one generation: a slot that
    /// is opened again gets a new one, and what is left of the old one is overtaken.
    pub fn of_budget(
        (nominal, schedule): &(Timestamp, ScheduleId),
        slot: &Slot,
        first: Timestamp,
    ) -> Option<Self> {
        let sla = slot.sla.as_deref()?;
        let (limit, budget) = (sla.relative(first)?, sla.duration_max?);
        let subject = Subject::Budget(schedule.clone(), *nominal);
        let due = Self::of_limit(limit, subject, first)
            .detail(ARRIVED, first.to_string())
            .detail(GENERATION, slot.generation)
            .detail("maxDuration", duration::format(budget));
        Some(due)
    }

    /// When the budget of a slot began, if this is about the generation that the slot is in.
    pub fn budget_began(&self, slot: &Slot) -> Option<Timestamp> {
        let generation = self.details.get(GENERATION).and_then(Value::as_u64);
        // Rows of before generations were written are about the first one.
        let is_of_slot = generation.unwrap_or(1) == u64::from(slot.generation.max(1));
        let arrived = self.details.get(ARRIVED).and_then(Value::as_str)?;
        arrived.parse().ok().filter(|_| is_of_slot)
    }

    /// When it is looked at.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// The same at another time.
    #[must_use]
    pub fn moved_to(&self, at: Timestamp) -> Self {
        Self { at: not_before(at), ..self.clone() }
    }

    /// The same with one more detail.
    #[must_use]
    pub fn detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// The address of its row.
    pub fn key(&self) -> Key {
        Key::Due(self.at, self.kind, self.subject.name())
    }

    /// Writes its row.
    pub fn put(self) -> Change {
        let key = self.key();
        Change::Put(key, Expect::Any, Record::Due(DueRecord { details: self.details }))
    }

    /// Deletes its row, if it is there.
    pub fn delete(&self) -> Change {
        Change::Delete(self.key(), Expect::Any)
    }
}

/// The first whole millisecond that is not before an instant: keys hold milliseconds, and half of one too early would
/// find nothing broken yet.
fn not_before(at: Timestamp) -> Timestamp {
    let floor = whole_milliseconds(at);
    if floor == at {
        return at;
    }
    floor.checked_add(jiff::SignedDuration::from_millis(1)).unwrap_or(floor)
}

impl Subject {
    fn name(&self) -> String {
        match self {
            Self::Slot(schedule, nominal) => format!("{schedule}/{nominal}"),
            Self::Budget(schedule, nominal) => format!("{BUDGET}/{schedule}/{nominal}"),
            Self::Run(RunKey { schedule, nominal, generation, attempt }) => {
                format!("{schedule}/{nominal}/{generation}/{attempt}")
            }
            Self::Pipeline => PIPELINE.to_owned(),
        }
    }

    fn parse(name: &str) -> Option<Self> {
        let parts: Vec<&str> = name.split('/').collect();
        let slot = |schedule: &str, nominal: &str| {
            Some((ScheduleId::any(schedule).ok()?, nominal.parse().ok()?))
        };
        match parts.as_slice() {
            [PIPELINE] => Some(Self::Pipeline),
            [schedule, nominal] => {
                slot(schedule, nominal).map(|(schedule, nominal)| Self::Slot(schedule, nominal))
            }
            [BUDGET, schedule, nominal] => {
                slot(schedule, nominal).map(|(schedule, nominal)| Self::Budget(schedule, nominal))
            }
            [schedule, nominal, generation, attempt] => {
                let (schedule, nominal) = slot(schedule, nominal)?;
                let (generation, attempt) = (generation.parse().ok()?, attempt.parse().ok()?);
                Some(Self::Run(RunKey { schedule, nominal, generation, attempt }))
            }
            _ => None,
        }
    }

    /// The slot that it is about, if it is about one.
    pub fn slot(&self) -> Option<(Timestamp, ScheduleId)> {
        match self {
            Self::Slot(schedule, nominal) | Self::Budget(schedule, nominal) => {
                Some((*nominal, schedule.clone()))
            }
            Self::Run(run) => Some((run.nominal, run.schedule.clone())),
            Self::Pipeline => None,
        }
    }
}

impl DueRow {
    /// What it stands for; `None` for a name that only a later version knows.
    pub fn obligation(&self) -> Option<Obligation> {
        Some(Obligation {
            at: self.at,
            kind: self.kind,
            subject: Subject::parse(&self.name)?,
            details: self.record.details.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let at: Timestamp = "2026-02-25T09:00:00.250Z".parse().unwrap();
        let daily = ScheduleId::any("daily").unwrap();
        let run = RunKey { schedule: daily.clone(), nominal: at, generation: 2, attempt: 3 };
        for subject in [
            Subject::Slot(daily.clone(), at),
            Subject::Budget(daily, at),
            Subject::Run(run),
            Subject::Pipeline,
        ] {
            assert_eq!(Subject::parse(&subject.name()), Some(subject));
        }
        for odd in ["", "a", "a/b", "a/2026-02-25T09:00:00Z/x", "a/2026-02-25T09:00:00Z/1/2/3"] {
            assert_eq!(Subject::parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn an_instant_between_milliseconds_is_looked_at_after_it() {
        let at = Timestamp::from_nanosecond(1_500_000_000_000_000_001).unwrap();
        let due = Obligation::new(at, DueKind::Pause, Subject::Pipeline);
        assert_eq!(due.at(), Timestamp::from_millisecond(1_500_000_000_001).unwrap());
        assert_eq!(due.moved_to(at), due, "however it came by its time");
        let last = Obligation::new(Timestamp::MAX, DueKind::Pause, Subject::Pipeline);
        assert_eq!(whole_milliseconds(last.at()), last.at());
    }
}
