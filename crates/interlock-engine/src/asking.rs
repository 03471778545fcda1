//! Asking evaluators beside the loop: every question gets an answer, and every answer a time.

use std::time::Duration;

use interlock_core::{
    id::PipelineId,
    readiness::{TraitResult, TraitSpec, TraitStatus},
    retry::FailureCategory,
};
use jiff::SignedDuration;
use tokio::sync::mpsc;

use crate::engine::Message;

/// How long an evaluator's answer is used unless its trait says otherwise.
const ANSWER_TTL: SignedDuration = SignedDuration::from_secs(30);
/// An answer that says nothing is used for the pass that it wakes and hardly longer: whatever was wrong may be over.
const NO_ANSWER_TTL: SignedDuration = SignedDuration::from_secs(5);
/// A shorter time would be over before the pass that the answer wakes, which would ask again, for ever.
const TTL_MIN: SignedDuration = SignedDuration::from_secs(1);

/// How long an answer may be used.
fn usable_for(result: &TraitResult, ttl: Option<SignedDuration>) -> SignedDuration {
    let ttl = ttl.unwrap_or(ANSWER_TTL).max(TTL_MIN);
    match result.status {
        TraitStatus::Pass | TraitStatus::Fail => ttl,
        TraitStatus::Error | TraitStatus::Stale => ttl.min(NO_ANSWER_TTL),
    }
}

/// What an evaluator said.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) result: TraitResult,
    /// When, if it did, by the clock that [`Trust`](crate::host::Trust) goes by.
    pub(crate) at: Option<Duration>,
}

impl Answered {
    /// Until when it may be used. A loop that is held up takes answers late: what says yes is then as old as it is (S8); what
    /// does not starts nothing, and would be asked for again by each pass of a loop that is slow.
    pub(crate) fn usable_until(&self, ttl: Option<SignedDuration>, now: Duration) -> Duration {
        let since = match self.result.status {
            TraitStatus::Pass => self.at.map_or(now, |at| at.min(now)),
            TraitStatus::Fail | TraitStatus::Error | TraitStatus::Stale => now,
        };
        since.saturating_add(usable_for(&self.result, ttl).unsigned_abs())
    }
}

/// A question that was put. Whatever becomes of the task that asks, a panic included, there is an answer: without one
/// the trait would count as asked for ever.
#[derive(Debug)]
pub(crate) struct OwedAnswer {
    sender: mpsc::UnboundedSender<Message>,
    question: Option<(PipelineId, Box<TraitSpec>)>,
}

impl OwedAnswer {
    pub(crate) fn new(
        sender: &mpsc::UnboundedSender<Message>,
        pipeline: &PipelineId,
        asked: &TraitSpec,
    ) -> Self {
        let question = Some((pipeline.clone(), Box::new(asked.clone())));
        Self { sender: sender.clone(), question }
    }

    /// Passes the answer on, and when it was given.
    pub(crate) fn give(mut self, result: TraitResult, at: Duration) {
        self.send(Answered { result, at: Some(at) });
    }

    fn send(&mut self, answered: Answered) {
        if let Some((pipeline, asked)) = self.question.take() {
            let _loop_is_gone = self.sender.send(Message::Answered(pipeline, asked, answered));
        }
    }
}

impl Drop for OwedAnswer {
    fn drop(&mut self) {
        let result = TraitResult {
            status: TraitStatus::Error,
            value: None,
            reason: Some("the call to the evaluator crashed: a bug in Interlock".to_owned()),
            category: Some(FailureCategory::EvaluatorCrash),
        };
        self.send(Answered { result, at: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_says_nothing_is_not_kept_as_long_as_one_that_does() {
        let seconds = |seconds| Some(SignedDuration::from_secs(seconds));
        for (status, ttl, expected) in [
            (TraitStatus::Pass, None, 30),
            (TraitStatus::Pass, seconds(3_600), 3_600),
            (TraitStatus::Fail, seconds(3_600), 3_600),
            (TraitStatus::Fail, seconds(2), 2),
            (TraitStatus::Error, None, 5),
            (TraitStatus::Error, seconds(3_600), 5),
            (TraitStatus::Stale, seconds(3_600), 5),
            (TraitStatus::Error, seconds(2), 2),
            (TraitStatus::Pass, Some(SignedDuration::from_millis(1)), 1),
            (TraitStatus::Error, seconds(0), 1),
        ] {
            let result = TraitResult { status, value: None, reason: None, category: None };
            let found = usable_for(&result, ttl);
            assert_eq!(found, SignedDuration::from_secs(expected), "{status:?} {ttl:?}");
        }
    }

    #[test]
    fn an_answer_that_waited_for_the_loop_is_as_old_as_it_is_if_it_says_yes() {
        let second = Duration::from_secs;
        let until = |status, at| {
            let result = TraitResult { status, value: None, reason: None, category: None };
            let answered = Answered { result, at };
            answered.usable_until(Some(SignedDuration::from_secs(60)), second(1_000)).as_secs()
        };
        assert_eq!(until(TraitStatus::Pass, Some(second(900))), 960, "it is over");
        assert_eq!(until(TraitStatus::Fail, Some(second(900))), 1_060);
        assert_eq!(until(TraitStatus::Error, None), 1_005);
    }
}
