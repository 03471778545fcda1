//! Asking a remote job for its state until it has one that is final.
//!
//! A question that fails says nothing about the job: it is asked again. Polling is bounded by the
//! run's timeout, and without one by a day, after which the job is lost sight of (facts D1-22).

use std::time::Duration;

use interlock_core::retry::FailureCategory;
use jiff::SignedDuration;
use tokio::time::{sleep, timeout};

use crate::local::Tools;
use interlock_ports::trigger::{Metadata, Outcome, StartRequest, TriggerFuture, What};

const PAUSE_DEFAULT: Duration = Duration::from_secs(30);
const WINDOW_DEFAULT: Duration = Duration::from_hours(24);

/// What one question found.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Seen {
    /// Not over.
    Running,
    /// Over.
    Ended(Outcome),
    /// The other side does not know it.
    Unknown,
}

/// One question; an error is a sentence about why it could not be put.
pub(super) type Question =
    for<'a> fn(&'a Tools, &'a StartRequest) -> TriggerFuture<'a, Result<Seen, String>>;

/// Watches a run, unless it is watched already, and reports its end.
pub(super) fn watch(tools: &Tools, request: &StartRequest, question: Question) {
    let (tools, request) = (tools.clone(), request.clone());
    let watches = tools.watches.clone();
    let run_id = request.run_id.clone();
    watches.watch(&run_id, async move {
        let window = duration(request.timeout, WINDOW_DEFAULT);
        let what = match timeout(window, until_end(&tools, &request, question)).await {
            Ok(outcome) => What::Finished(outcome),
            Err(_) if request.timeout.is_some() => What::Finished(Outcome::Failure {
                message: format!("it did not end within its timeout of {window:?}"),
                category: FailureCategory::Timeout,
                metadata: Metadata::new(),
            }),
            Err(_) => What::Lost { reason: "it was asked for a day and did not end".to_owned() },
        };
        tools.report(&request.run_id, what);
    });
}

async fn until_end(tools: &Tools, request: &StartRequest, question: Question) -> Outcome {
    let pause = duration(request.poll_interval, PAUSE_DEFAULT);
    loop {
        sleep(pause).await;
        if let Ok(Seen::Ended(outcome)) = question(tools, request).await {
            return outcome;
        }
    }
}

fn duration(said: Option<SignedDuration>, default: Duration) -> Duration {
    said.and_then(|said| Duration::try_from(said).ok()).unwrap_or(default)
}
