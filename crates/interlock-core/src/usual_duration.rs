//! How long the runs of a schedule usually take, when one that is under way should end, and whether it is at risk.
//!
//! The usual duration is the median of the last runs that completed: one run that hung for a day moves it by nothing. Everything that
//! shows an expected end or calls a run "at risk" asks here, so that it is the same everywhere.

use jiff::{SignedDuration, Timestamp};

use crate::sla::ResolvedSla;

/// Of so many completed runs, the newest, the median is taken.
pub const RUNS_MAX: usize = 20;
/// From fewer runs nothing is concluded.
pub const RUNS_MIN: usize = 5;

/// A run takes longer than usual from half as long again on, and never for less than a minute: what takes a second may take two.
const LONGER_BY: (i32, i32) = (3, 2);
const LONGER_BY_MIN: SignedDuration = SignedDuration::from_mins(1);

/// The median of the durations of completed runs, newest first; none of too few.
pub fn usual_duration(newest_first: &[SignedDuration]) -> Option<SignedDuration> {
    let mut last: Vec<_> = newest_first.iter().take(RUNS_MAX).copied().collect();
    if last.len() < RUNS_MIN {
        return None;
    }
    last.sort_unstable();
    let (middle, is_even) = (last.len() / 2, last.len().is_multiple_of(2));
    let upper = *last.get(middle)?;
    let lower = if is_even { *last.get(middle - 1)? } else { upper };
    Some(lower + (upper - lower) / 2)
}

/// A run under way, and what is known about how long it should take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningJob {
    /// When its job began.
    pub started_at: Timestamp,
    /// How long runs of its schedule usually take.
    pub usual: Option<SignedDuration>,
    /// What its slot promises.
    pub sla: ResolvedSla,
}

/// Why a run under way is at risk. The first that holds is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunRisk {
    /// The instant by which it must have completed has passed.
    DeadlinePassed,
    /// It is expected to end after the instant by which it must have completed.
    ExpectedTooLate,
    /// The warning of its deadline is due.
    DeadlineNear,
    /// It takes longer than its declaration expects (`sla.expectedDuration`).
    LongerThanExpected,
    /// It takes longer than its schedule's runs usually do.
    LongerThanUsual,
}

impl RunRisk {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DeadlinePassed => "deadlinePassed",
            Self::ExpectedTooLate => "expectedTooLate",
            Self::DeadlineNear => "deadlineNear",
            Self::LongerThanExpected => "longerThanExpected",
            Self::LongerThanUsual => "longerThanUsual",
        }
    }
}

impl RunningJob {
    /// When it should end: by how long runs usually take, else by what its declaration expects. Never before now, because it has
    /// not ended yet.
    pub fn expected_end(&self, now: Timestamp) -> Option<Timestamp> {
        let duration = self.usual.or(self.sla.expected_duration)?;
        Some(plus(self.started_at, duration).max(now))
    }

    /// Whether it is at risk, and why.
    pub fn risk(&self, now: Timestamp) -> Option<RunRisk> {
        let has_run_for = now.duration_since(self.started_at);
        if let Some(limit) = self.sla.completion {
            if now > limit.breach_at {
                return Some(RunRisk::DeadlinePassed);
            }
            if self.expected_end(now).is_some_and(|end| end > limit.breach_at) {
                return Some(RunRisk::ExpectedTooLate);
            }
            if limit.warning_at.is_some_and(|warning_at| now >= warning_at) {
                return Some(RunRisk::DeadlineNear);
            }
        }
        if self.sla.expected_duration.is_some_and(|expected| has_run_for > expected) {
            return Some(RunRisk::LongerThanExpected);
        }
        let is_long = |usual: SignedDuration| {
            let (by, of) = LONGER_BY;
            has_run_for > (usual * by / of).max(usual + LONGER_BY_MIN)
        };
        self.usual.is_some_and(is_long).then_some(RunRisk::LongerThanUsual)
    }
}

fn plus(at: Timestamp, duration: SignedDuration) -> Timestamp {
    at.checked_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sla::Limit;

    fn minutes(numbers: &[i64]) -> Vec<SignedDuration> {
        numbers.iter().copied().map(SignedDuration::from_mins).collect()
    }

    #[track_caller]
    fn check(newest_first: &[i64], expected: Option<SignedDuration>) {
        assert_eq!(usual_duration(&minutes(newest_first)), expected, "{newest_first:?}");
    }

    #[test]
    fn the_usual_duration_is_the_median_of_the_last_twenty_and_none_of_too_few() {
        let minutes = |number| Some(SignedDuration::from_mins(number));
        check(&[], None);
        check(&[1, 2, 3, 4], None);
        check(&[5, 1, 4, 2, 3], minutes(3));
        check(&[1_440, 10, 10, 11, 10], minutes(10));
        check(&[1, 2, 3, 4, 5, 6], Some(SignedDuration::from_secs(210)));
        let mut long = vec![7; 20];
        long.extend([900; 100]);
        check(&long, minutes(7));
    }

    const START: Timestamp = Timestamp::constant(1_772_010_000, 0);

    fn after(minutes: i64) -> Timestamp {
        START + SignedDuration::from_mins(minutes)
    }

    fn job(usual: Option<i64>, expected: Option<i64>, deadline: Option<(i64, i64)>) -> RunningJob {
        let completion = deadline.map(|(warning, breach)| Limit {
            warning_at: Some(after(warning)),
            breach_at: after(breach),
        });
        let expected_duration = expected.map(SignedDuration::from_mins);
        RunningJob {
            started_at: START,
            usual: usual.map(SignedDuration::from_mins),
            sla: ResolvedSla { completion, expected_duration, ..ResolvedSla::default() },
        }
    }

    #[test]
    fn a_run_is_expected_to_end_as_usual_and_never_in_the_past() {
        assert_eq!(job(None, None, None).expected_end(after(1)), None);
        assert_eq!(job(Some(10), Some(30), None).expected_end(after(1)), Some(after(10)));
        assert_eq!(job(None, Some(30), None).expected_end(after(1)), Some(after(30)));
        assert_eq!(job(Some(10), None, None).expected_end(after(12)), Some(after(12)));
    }

    #[test]
    fn a_run_is_at_risk_for_the_gravest_reason_that_holds() {
        use RunRisk::{
            DeadlineNear, DeadlinePassed, ExpectedTooLate, LongerThanExpected, LongerThanUsual,
        };
        let table = [
            (job(None, None, None), 100_000, None),
            // Half as long again, and at least a minute.
            (job(Some(10), None, None), 15, None),
            (job(Some(10), None, None), 16, Some(LongerThanUsual)),
            (job(Some(0), None, None), 1, None),
            (job(Some(0), None, None), 2, Some(LongerThanUsual)),
            (job(Some(10), Some(12), None), 12, None),
            (job(Some(10), Some(12), None), 13, Some(LongerThanExpected)),
            (job(Some(10), Some(12), Some((40, 60))), 39, Some(LongerThanExpected)),
            (job(Some(10), None, Some((5, 60))), 5, Some(DeadlineNear)),
            (job(Some(90), None, Some((30, 60))), 1, Some(ExpectedTooLate)),
            (job(Some(90), None, Some((30, 60))), 60, Some(ExpectedTooLate)),
            (job(Some(90), None, Some((30, 60))), 61, Some(DeadlinePassed)),
            (job(None, None, Some((30, 60))), 29, None),
        ];
        for (job, minutes, expected) in table {
            assert_eq!(job.risk(after(minutes)), expected, "{job:?} after {minutes} minutes");
        }
    }
}
