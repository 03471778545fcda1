//! Asking evaluators beside the loop: every question gets an answer, and every answer a time.

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
pub(crate) fn usable_for(result: &TraitResult, ttl: Option<SignedDuration>) -> SignedDuration {
    let ttl = ttl.unwrap_or(ANSWER_TTL).max(TTL_MIN);
    match result.status {
        TraitStatus::Pass | TraitStatus::Fail => ttl,
        TraitStatus::Error | TraitStatus::Stale => ttl.min(NO_ANSWER_TTL),
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

    /// Passes the answer on.
    pub(crate) fn give(mut self, result: TraitResult) {
        self.send(result);
    }

    fn send(&mut self, result: TraitResult) {
        if let Some((pipeline, asked)) = self.question.take() {
            let _loop_is_gone = self.sender.send(Message::Answered(pipeline, asked, result));
        }
    }
}

impl Drop for OwedAnswer {
    fn drop(&mut self) {
        self.send(TraitResult {
            status: TraitStatus::Error,
            value: None,
            reason: Some("asking the evaluator broke off: a mistake in Interlock".to_owned()),
            category: Some(FailureCategory::EvaluatorCrash),
        });
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
}
