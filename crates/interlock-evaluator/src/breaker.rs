//! The breaker of one evaluator: one that keeps failing is left alone for a while.
//!
//! | state | a question | becomes |
//! |---|---|---|
//! | closed | is asked | open at the fifth failure within 60 s, without a success in between |
//! | open | is answered at once: cannot tell | half-open 30 s after it opened |
//! | half-open | one is asked to find out, the others are answered at once | closed by a success, open again by a failure |
//!
//! A failure is that the evaluator could not do its work. `FAIL` is no failure, it is an answer. A PERMANENT one
//! is nobody's overload: waiting will not mend it, so it neither opens nor closes anything.
//!
//! Pure: durations are monotonic and handed in (S15), the wall clock only says since when.

use std::{collections::VecDeque, time::Duration};

use interlock_core::{
    readiness::{TraitResult, TraitStatus},
    retry::FailureCategory,
};
use jiff::Timestamp;

const FAILURES_MAX: usize = 5;
const WINDOW: Duration = Duration::from_mins(1);
const COOLDOWN: Duration = Duration::from_secs(30);

/// The time of a question or an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// Monotonic, from any beginning.
    pub(crate) elapsed: Duration,
    /// For people.
    pub(crate) wall: Timestamp,
}

/// Whether an evaluator is asked.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    state: State,
    /// Failures since the last success, oldest first, no more than count.
    failures: VecDeque<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Closed,
    Open {
        since: Timestamp,
        until: Duration,
    },
    /// One question is under way.
    Probing {
        since: Timestamp,
    },
}

/// Why a question may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// All is well.
    Usual,
    /// To find out whether all is well again.
    Probe,
}

/// What an answer says about its evaluator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Works,
    Fails,
    SaysNothing,
}

impl Health {
    pub(crate) fn of(result: &TraitResult) -> Self {
        match (result.status, result.category) {
            (TraitStatus::Pass | TraitStatus::Fail | TraitStatus::Stale, _) => Self::Works,
            (TraitStatus::Error, Some(FailureCategory::Permanent)) => Self::SaysNothing,
            (TraitStatus::Error, _) => Self::Fails,
        }
    }
}

impl Breaker {
    /// Since when nobody is asked, if so now.
    pub(crate) fn open_since(&self, now: Now) -> Option<Timestamp> {
        match self.state {
            State::Closed => None,
            State::Open { until, .. } if until <= now.elapsed => None,
            State::Open { since, .. } | State::Probing { since } => Some(since),
        }
    }

    /// Lets a question pass, or says since when none does.
    pub(crate) fn admit(&mut self, now: Now) -> Result<Admission, Timestamp> {
        if let Some(since) = self.open_since(now) {
            return Err(since);
        }
        match self.state {
            State::Closed => Ok(Admission::Usual),
            State::Open { since, .. } | State::Probing { since } => {
                self.state = State::Probing { since };
                Ok(Admission::Probe)
            }
        }
    }

    /// Takes note of how an admitted question went.
    pub(crate) fn record(&mut self, admission: Admission, health: Health, now: Now) {
        match (self.state, admission, health) {
            (State::Closed, _, Health::Works)
            | (State::Probing { .. }, Admission::Probe, Health::Works) => {
                *self = Self::default();
            }
            (State::Closed, _, Health::Fails) => self.failed(now),
            (State::Probing { since }, Admission::Probe, Health::Fails) => {
                self.state = State::Open { since, until: now.elapsed + COOLDOWN };
            }
            // The next question finds out.
            (State::Probing { since }, Admission::Probe, Health::SaysNothing) => {
                self.state = State::Open { since, until: now.elapsed };
            }
            // What was asked before it opened came too late to count.
            (State::Closed, _, Health::SaysNothing)
            | (State::Probing { .. }, Admission::Usual, _)
            | (State::Open { .. }, _, _) => {}
        }
    }

    fn failed(&mut self, now: Now) {
        self.failures.push_back(now.elapsed);
        while self.failures.front().is_some_and(|first| now.elapsed > *first + WINDOW) {
            self.failures.pop_front();
        }
        if self.failures.len() >= FAILURES_MAX {
            self.failures.clear();
            self.state = State::Open { since: now.wall, until: now.elapsed + COOLDOWN };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Now {
        let wall = Timestamp::from_second(1_000_000 + second.cast_signed()).unwrap();
        Now { elapsed: Duration::from_secs(second), wall }
    }

    /// Asks at a second and answers at once; `false` when it was not asked.
    fn ask(breaker: &mut Breaker, second: u64, health: Health) -> bool {
        let Ok(admission) = breaker.admit(at(second)) else { return false };
        breaker.record(admission, health, at(second));
        true
    }

    fn opened_at(second: u64) -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..FAILURES_MAX {
            assert!(ask(&mut breaker, second, Health::Fails));
        }
        breaker
    }

    #[test]
    fn case_42_it_opens_at_the_fifth_failure_within_the_window() {
        use Health::{Fails, SaysNothing, Works};
        let five = [0, 1, 2, 3, 4];
        for (what, seconds, healths, opens) in [
            ("five failures", five, [Fails; 5], true),
            ("four and a success", five, [Fails, Fails, Fails, Fails, Works], false),
            ("a success in between", five, [Fails, Fails, Works, Fails, Fails], false),
            ("permanent ones do not count", five, [SaysNothing; 5], false),
            (
                "a permanent one does not help",
                five,
                [Fails, Fails, SaysNothing, Fails, Fails],
                false,
            ),
            ("all within the window", [0, 15, 30, 45, 60], [Fails; 5], true),
            ("the first has left the window", [0, 15, 30, 45, 61], [Fails; 5], false),
            ("far apart", [0, 100, 200, 300, 400], [Fails; 5], false),
        ] {
            let mut breaker = Breaker::default();
            for (second, health) in seconds.into_iter().zip(healths) {
                assert!(ask(&mut breaker, second, health), "{what}: closed until the last");
            }
            assert_eq!(breaker.open_since(at(seconds[4])).is_some(), opens, "{what}");
        }
    }

    #[test]
    fn case_42_a_permanent_failure_leaves_the_others_counted() {
        let mut breaker = Breaker::default();
        for health in [Health::Fails, Health::SaysNothing].repeat(4) {
            assert!(ask(&mut breaker, 0, health));
        }
        assert!(ask(&mut breaker, 1, Health::Fails));
        assert_eq!(breaker.open_since(at(1)), Some(at(1).wall));
    }

    #[test]
    fn case_42_after_the_cooldown_one_question_finds_out() {
        let mut breaker = opened_at(10);
        assert_eq!(breaker.admit(at(10)), Err(at(10).wall));
        assert_eq!(breaker.admit(at(39)), Err(at(10).wall));
        assert_eq!(breaker.admit(at(40)), Ok(Admission::Probe));
        assert_eq!(breaker.admit(at(40)), Err(at(10).wall), "one at a time");
        breaker.record(Admission::Probe, Health::Works, at(41));
        assert_eq!(breaker.admit(at(41)), Ok(Admission::Usual));
        assert_eq!(breaker.admit(at(41)), Ok(Admission::Usual));
    }

    #[test]
    fn case_42_a_failed_probe_opens_it_again_for_a_whole_cooldown() {
        let mut breaker = opened_at(0);
        assert!(ask(&mut breaker, 30, Health::Fails));
        assert_eq!(breaker.admit(at(59)), Err(at(0).wall), "since it first opened");
        assert!(ask(&mut breaker, 60, Health::Works));
        assert_eq!(breaker.open_since(at(60)), None);
    }

    #[test]
    fn case_42_a_permanent_answer_to_a_probe_leaves_the_next_to_find_out() {
        let mut breaker = opened_at(0);
        assert!(ask(&mut breaker, 30, Health::SaysNothing));
        assert_eq!(breaker.admit(at(30)), Ok(Admission::Probe));
    }

    #[test]
    fn what_was_asked_before_it_opened_does_not_count_when_it_is_open() {
        let mut breaker = opened_at(0);
        breaker.record(Admission::Usual, Health::Works, at(1));
        assert_eq!(breaker.admit(at(1)), Err(at(0).wall));
        assert_eq!(breaker.admit(at(30)), Ok(Admission::Probe));
        breaker.record(Admission::Usual, Health::Works, at(31));
        assert_eq!(breaker.admit(at(31)), Err(at(0).wall), "its probe is still under way");
    }

    #[test]
    fn fail_is_an_answer_and_error_is_none() {
        let result = |status, category| TraitResult { status, value: None, reason: None, category };
        for (status, category, expected) in [
            (TraitStatus::Pass, None, Health::Works),
            (TraitStatus::Fail, Some(FailureCategory::Transient), Health::Works),
            (TraitStatus::Stale, None, Health::Works),
            (TraitStatus::Error, None, Health::Fails),
            (TraitStatus::Error, Some(FailureCategory::Transient), Health::Fails),
            (TraitStatus::Error, Some(FailureCategory::Timeout), Health::Fails),
            (TraitStatus::Error, Some(FailureCategory::EvaluatorCrash), Health::Fails),
            (TraitStatus::Error, Some(FailureCategory::Permanent), Health::SaysNothing),
        ] {
            assert_eq!(Health::of(&result(status, category)), expected, "{status:?} {category:?}");
        }
    }
}
