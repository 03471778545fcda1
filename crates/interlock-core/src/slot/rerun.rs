//! Running a slot again: who may ask for it, and how often.

use std::collections::BTreeMap;

use super::{Disposition, IllegalSlotChange, OpenState, Opening, Slot, SlotState};
use crate::retry::RerunBudgets;

/// How often a slot was run again, by who asked: the budgets are separate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reruns {
    /// For late data and drift.
    pub drift: u32,
    /// By hand, for each reason that was given.
    pub manual: BTreeMap<String, u32>,
}

/// Who asks for a rerun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RerunSource<'a> {
    /// Late data or drift.
    Drift,
    /// A person, with a reason.
    Manual(&'a str),
}

/// A rerun that its budget does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RerunRefused {
    /// For late data and drift.
    #[error("all {max} reruns for late data and drift are used up (`maxDriftReruns`)")]
    Drift {
        /// The budget.
        max: u32,
    },
    /// By hand.
    #[error(
        "all {max} reruns for the reason \"{reason}\" are used up: give another reason, or raise \
         `maxManualReruns`"
    )]
    Manual {
        /// The budget.
        max: u32,
        /// The reason given.
        reason: String,
    },
}

/// Why a slot does not run again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RerunError {
    /// It is open, or the machine does not know the change.
    #[error(transparent)]
    Illegal(#[from] IllegalSlotChange),
    /// The budget is used up.
    #[error(transparent)]
    Refused(#[from] RerunRefused),
}

impl Slot {
    /// Opens a slot whose work is done once more, as its next generation, if the budget allows it. One that
    /// is only being monitored is completed by that.
    pub fn rerun(
        &self,
        source: RerunSource<'_>,
        budgets: RerunBudgets,
        opening: Opening,
    ) -> Result<Self, RerunError> {
        let closed = match self.state {
            SlotState::Open(OpenState::Monitoring) => {
                self.close(Disposition::Completed, opening.at)?
            }
            SlotState::Open(_) | SlotState::Closed(_) => self.clone(),
        };
        let mut slot = closed.reopen(OpenState::Waiting, opening)?;
        let mut reruns = self.reruns.as_deref().cloned().unwrap_or_default();
        match source {
            RerunSource::Drift if reruns.drift >= budgets.drift_max => {
                return Err(RerunRefused::Drift { max: budgets.drift_max }.into());
            }
            RerunSource::Drift => reruns.drift += 1,
            RerunSource::Manual(reason) => {
                let count = reruns.manual.entry(reason.to_owned()).or_default();
                if *count >= budgets.manual_max {
                    let (max, reason) = (budgets.manual_max, reason.to_owned());
                    return Err(RerunRefused::Manual { max, reason }.into());
                }
                *count += 1;
            }
        }
        slot.reruns = Some(Box::new(reruns));
        Ok(slot)
    }
}

#[cfg(test)]
mod tests {
    use jiff::{Timestamp, civil::Date};

    use super::*;
    use crate::run::TriggerType;

    const BUDGETS: RerunBudgets = RerunBudgets { drift_max: 1, manual_max: 2 };

    fn opening(second: i64) -> Opening {
        let at = Timestamp::from_second(second).unwrap();
        let date = Date::constant(2026, 2, 25);
        Opening { opened_by: TriggerType::Manual, date, at, closes_at: at, version: 7 }
    }

    fn completed() -> Slot {
        let open = Slot::open(OpenState::Waiting, opening(1));
        open.close(Disposition::Completed, opening(2).at).unwrap()
    }

    #[test]
    fn budgets_never_pay_for_each_other() {
        let again = completed().rerun(RerunSource::Drift, BUDGETS, opening(3)).unwrap();
        assert_eq!((again.generation, again.state), (2, SlotState::Open(OpenState::Waiting)));
        let done = again.close(Disposition::Completed, opening(4).at).unwrap();
        let refused = done.rerun(RerunSource::Drift, BUDGETS, opening(5)).unwrap_err();
        assert_eq!(refused, RerunRefused::Drift { max: 1 }.into());

        let mut slot = done;
        for reason in ["typo", "typo", "other"] {
            let again = slot.rerun(RerunSource::Manual(reason), BUDGETS, opening(6)).unwrap();
            slot = again.close(Disposition::Failed, opening(7).at).unwrap();
        }
        let refused = slot.rerun(RerunSource::Manual("typo"), BUDGETS, opening(8)).unwrap_err();
        assert!(refused.to_string().contains("all 2 reruns for the reason \"typo\""), "{refused}");
        assert!(slot.rerun(RerunSource::Manual("other"), BUDGETS, opening(8)).is_ok());
    }

    #[test]
    fn only_a_slot_whose_work_is_done_runs_again() {
        let open = Slot::open(OpenState::Waiting, opening(1));
        let refused = open.rerun(RerunSource::Manual("x"), BUDGETS, opening(2)).unwrap_err();
        assert!(matches!(refused, RerunError::Illegal(_)));
        let running = open.advance(OpenState::Running, opening(9).at).unwrap();
        assert!(running.rerun(RerunSource::Drift, BUDGETS, opening(2)).is_err());
        let watched = running.advance(OpenState::Monitoring, opening(9).at).unwrap();
        let again = watched.rerun(RerunSource::Drift, BUDGETS, opening(2)).unwrap();
        assert_eq!(again.generation, 2);
    }
}
