//! Retry: which failures are tried again, how often, and after how long.

use jiff::SignedDuration;

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

/// How many reruns each source may ask for; the budgets are separate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RerunBudgets {
    /// Late data and drift together.
    pub drift_max: u32,
    /// By hand, per distinct reason.
    pub manual_max: u32,
}
