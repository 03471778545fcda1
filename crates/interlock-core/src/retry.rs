//! Retry: which failures are tried again, how often, and after how long.
//!
//! Two budgets, which never pay for each other: a PERMANENT failure draws on
//! `permanent_retries_max`, every other one on `attempts_max`. Otherwise a job whose code is broken
//! would use up the attempts that are meant for bad weather. A failure without a category is tried
//! again: a missing label must not stop a recovery.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::text::TextError;

/// Why a run or an evaluation failed, as far as retrying is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureCategory {
    /// May pass by itself.
    Transient,
    /// Took too long.
    Timeout,
    /// Will fail again until somebody changes something.
    Permanent,
    /// An evaluator died.
    EvaluatorCrash,
}

impl FailureCategory {
    /// Every category.
    pub const ALL: [Self; 4] =
        [Self::Transient, Self::Timeout, Self::Permanent, Self::EvaluatorCrash];

    /// The name in files and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "TRANSIENT",
            Self::Timeout => "TIMEOUT",
            Self::Permanent => "PERMANENT",
            Self::EvaluatorCrash => "EVALUATOR_CRASH",
        }
    }

    /// Reads a name from a file or from the wire.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let found = Self::ALL.into_iter().find(|category| category.as_str() == text);
        found.ok_or_else(|| {
            TextError::not_one_of("failure category", text, Self::ALL.map(Self::as_str).as_slice())
        })
    }
}

impl fmt::Display for FailureCategory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a pipeline's failed runs are tried again.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    /// How many attempts in all, the first included.
    pub attempts_max: u32,
    /// Wait before the second attempt.
    pub backoff: SignedDuration,
    /// Each further wait is this many times the last.
    pub multiplier: f64,
    /// No wait is longer than this.
    pub backoff_max: SignedDuration,
    /// Which categories are tried again under `attempts_max`.
    pub retryable: Vec<FailureCategory>,
    /// How many further attempts a PERMANENT failure gets: its own small budget.
    pub permanent_retries_max: u32,
}

const MULTIPLIER_DEFAULT: f64 = 2.0;

impl Default for RetryPolicy {
    /// Three attempts, 30 s doubling up to an hour, for TRANSIENT and TIMEOUT only.
    fn default() -> Self {
        Self {
            attempts_max: 3,
            backoff: SignedDuration::from_secs(30),
            multiplier: MULTIPLIER_DEFAULT,
            backoff_max: SignedDuration::from_hours(1),
            retryable: vec![FailureCategory::Transient, FailureCategory::Timeout],
            permanent_retries_max: 0,
        }
    }
}

impl RetryPolicy {
    /// The wait after the given attempt, counted from 1, has failed.
    pub fn backoff(&self, attempt: u32) -> SignedDuration {
        let sane = self.multiplier.is_finite() && self.multiplier > 0.0;
        let multiplier = if sane { self.multiplier } else { MULTIPLIER_DEFAULT };
        let exponent = attempt.saturating_sub(1).min(i32::MAX.unsigned_abs()) as i32;
        let seconds = self.backoff.as_secs_f64().max(0.0) * multiplier.powi(exponent);
        // Zero times infinity is no number; a wait of zero stays zero.
        let seconds = if seconds.is_nan() { 0.0 } else { seconds };
        let capped = seconds.min(self.backoff_max.as_secs_f64());
        SignedDuration::try_from_secs_f64(capped).unwrap_or(self.backoff_max)
    }
}

/// How many reruns each source may ask for; the budgets are separate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RerunBudgets {
    /// Late data and drift together.
    pub drift_max: u32,
    /// By hand, per distinct reason.
    pub manual_max: u32,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Why, if that is known.
    pub category: Option<FailureCategory>,
    /// When.
    pub at: Timestamp,
}

/// What follows a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// One more attempt.
    Retry {
        /// Not before this instant.
        at: Timestamp,
        /// Its number.
        attempt: u32,
    },
    /// The slot closes as failed.
    GiveUp {
        /// Why there is no further attempt.
        reason: GiveUp,
    },
}

/// Why a failed run is not tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveUp {
    /// Its category is not among the retryable ones.
    NotRetryable(FailureCategory),
    /// `attempts_max` is reached.
    AttemptsSpent {
        /// The budget.
        attempts_max: u32,
    },
    /// The budget for PERMANENT failures is used up.
    PermanentSpent {
        /// The budget.
        retries_max: u32,
    },
}

impl fmt::Display for GiveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRetryable(category) => write!(f, "{category} failures are not tried again"),
            Self::AttemptsSpent { attempts_max: 0 | 1 } => f.write_str("only one attempt is made"),
            Self::AttemptsSpent { attempts_max } => {
                write!(f, "all {attempts_max} attempts are used up")
            }
            Self::PermanentSpent { retries_max: 0 } => {
                f.write_str("PERMANENT failures are not tried again")
            }
            Self::PermanentSpent { retries_max: 1 } => {
                f.write_str("the one retry for PERMANENT failures is used up")
            }
            Self::PermanentSpent { retries_max } => {
                write!(f, "all {retries_max} retries for PERMANENT failures are used up")
            }
        }
    }
}

/// Decides what follows a failure, given the failures of the same generation before it.
///
/// The wait grows with the number of the attempt, whatever its budget.
pub fn next_attempt(policy: &RetryPolicy, earlier: &[Failure], failed: Failure) -> Decision {
    let is_permanent = |failure: &Failure| failure.category == Some(FailureCategory::Permanent);
    let permanent_before = count(earlier.iter().filter(|failure| is_permanent(failure)));
    let attempt = count(earlier.iter()).saturating_add(1);
    let give_up = if is_permanent(&failed) {
        let retries_max = policy.permanent_retries_max;
        (permanent_before >= retries_max).then_some(GiveUp::PermanentSpent { retries_max })
    } else {
        let attempts_max = policy.attempts_max;
        let spent = attempt - permanent_before >= attempts_max;
        failed
            .category
            .filter(|category| !policy.retryable.contains(category))
            .map(GiveUp::NotRetryable)
            .or(spent.then_some(GiveUp::AttemptsSpent { attempts_max }))
    };
    match give_up {
        Some(reason) => Decision::GiveUp { reason },
        None => Decision::Retry {
            at: failed.at.checked_add(policy.backoff(attempt)).unwrap_or(Timestamp::MAX),
            attempt: attempt.saturating_add(1),
        },
    }
}

fn count<'a>(failures: impl Iterator<Item = &'a Failure>) -> u32 {
    u32::try_from(failures.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSIENT: Option<FailureCategory> = Some(FailureCategory::Transient);
    const TIMEOUT: Option<FailureCategory> = Some(FailureCategory::Timeout);
    const PERMANENT: Option<FailureCategory> = Some(FailureCategory::Permanent);
    const CRASH: Option<FailureCategory> = Some(FailureCategory::EvaluatorCrash);

    fn policy(attempts_max: u32, permanent_retries_max: u32) -> RetryPolicy {
        RetryPolicy { attempts_max, permanent_retries_max, ..RetryPolicy::default() }
    }

    /// The last of the categories has just failed. The expectation is "attempt and wait" or the
    /// reason for giving up.
    fn check(policy: &RetryPolicy, categories: &[Option<FailureCategory>], expected: &str) {
        let failures: Vec<_> = categories
            .iter()
            .map(|category| Failure { category: *category, at: Timestamp::UNIX_EPOCH })
            .collect();
        let (failed, earlier) = failures.split_last().unwrap();
        let found = match next_attempt(policy, earlier, *failed) {
            Decision::Retry { at, attempt } => {
                format!("attempt {attempt} after {}", at.as_second())
            }
            Decision::GiveUp { reason } => reason.to_string(),
        };
        assert_eq!(found, expected, "{categories:?}");
    }

    #[test]
    fn case_35_backoff_doubles_and_is_capped() {
        let default = RetryPolicy::default();
        let steep = RetryPolicy {
            backoff: SignedDuration::from_secs(1800),
            multiplier: 4.0,
            ..RetryPolicy::default()
        };
        let no_multiplier = RetryPolicy { multiplier: 0.0, ..RetryPolicy::default() };
        let long_base =
            RetryPolicy { backoff: SignedDuration::from_hours(5), ..RetryPolicy::default() };
        for (policy, attempt, seconds) in [
            (&default, 0, 30),
            (&default, 1, 30),
            (&default, 2, 60),
            (&default, 3, 120),
            (&default, 4, 240),
            (&default, u32::MAX, 3600),
            (&steep, 3, 3600),
            (&no_multiplier, 3, 120),
            // Go let the first wait exceed the cap; here it holds always.
            (&long_base, 1, 3600),
        ] {
            assert_eq!(policy.backoff(attempt), SignedDuration::from_secs(seconds), "{attempt}");
        }
    }

    #[test]
    fn a_broken_policy_still_gives_a_wait() {
        let zero = RetryPolicy { backoff: SignedDuration::ZERO, ..RetryPolicy::default() };
        assert_eq!(zero.backoff(u32::MAX), SignedDuration::ZERO);
        let negative =
            RetryPolicy { backoff: SignedDuration::from_secs(-5), ..RetryPolicy::default() };
        assert_eq!(negative.backoff(1), SignedDuration::ZERO);
        let endless = RetryPolicy { multiplier: f64::INFINITY, ..RetryPolicy::default() };
        assert_eq!(endless.backoff(2), SignedDuration::from_secs(60));
    }

    #[test]
    fn case_35_transient_timeout_and_unknown_failures_are_tried_again() {
        let default = RetryPolicy::default();
        check(&default, &[TRANSIENT], "attempt 2 after 30");
        check(&default, &[TIMEOUT], "attempt 2 after 30");
        check(&default, &[None], "attempt 2 after 30");
        check(&default, &[CRASH], "EVALUATOR_CRASH failures are not tried again");
        let only_transient =
            RetryPolicy { retryable: vec![FailureCategory::Transient], ..RetryPolicy::default() };
        check(&only_transient, &[TIMEOUT], "TIMEOUT failures are not tried again");
        check(&only_transient, &[None], "attempt 2 after 30");
    }

    #[test]
    fn cases_23_25_and_50_attempts_count_the_first_run() {
        check(&policy(3, 0), &[TIMEOUT], "attempt 2 after 30");
        check(&policy(3, 0), &[TIMEOUT, None], "attempt 3 after 60");
        check(&policy(3, 0), &[TIMEOUT, None, TRANSIENT], "all 3 attempts are used up");
        check(&policy(2, 0), &[TRANSIENT, TRANSIENT], "all 2 attempts are used up");
        check(&policy(1, 0), &[TRANSIENT], "only one attempt is made");
        check(&policy(0, 0), &[None], "only one attempt is made");
    }

    #[test]
    fn cases_26_and_51_permanent_failures_end_the_slot_by_default() {
        check(&RetryPolicy::default(), &[PERMANENT], "PERMANENT failures are not tried again");
    }

    #[test]
    fn permanent_failures_have_a_budget_of_their_own() {
        let one = policy(2, 1);
        check(&one, &[PERMANENT], "attempt 2 after 30");
        check(&one, &[PERMANENT, PERMANENT], "the one retry for PERMANENT failures is used up");
        check(&policy(2, 2), &[PERMANENT; 3], "all 2 retries for PERMANENT failures are used up");
        check(&one, &[PERMANENT, TRANSIENT], "attempt 3 after 60");
        check(&one, &[TRANSIENT, PERMANENT], "attempt 3 after 60");
        check(&one, &[TRANSIENT, PERMANENT, TRANSIENT], "all 2 attempts are used up");
        // Listing PERMANENT as retryable does not open the other budget to it.
        let listed = RetryPolicy { retryable: FailureCategory::ALL.to_vec(), ..policy(5, 0) };
        check(&listed, &[PERMANENT], "PERMANENT failures are not tried again");
    }

    #[test]
    fn a_retry_at_the_end_of_time_does_not_overflow() {
        let failed = Failure { category: None, at: Timestamp::MAX };
        let expected = Decision::Retry { at: Timestamp::MAX, attempt: 2 };
        assert_eq!(next_attempt(&RetryPolicy::default(), &[], failed), expected);
    }

    #[test]
    fn categories_are_read_back() {
        for category in FailureCategory::ALL {
            assert_eq!(FailureCategory::parse(category.as_str()), Ok(category));
        }
        let error = FailureCategory::parse("transient").unwrap_err();
        assert_eq!(error.help, "Use one of TRANSIENT, TIMEOUT, PERMANENT, EVALUATOR_CRASH.");
    }
}
