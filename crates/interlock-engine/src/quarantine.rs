//! Setting a pipeline aside: one whose plan fails must not stop the others.
//!
//! A plan may fail because rows or a declaration cannot be read, or because of a mistake of ours (a panic). The
//! pipeline is then left alone for a while, with growing pauses, an event and so an incident; everything else
//! goes on. Only the store and the lease can stop a pass.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
};

use interlock_core::id::PipelineId;
use jiff::{SignedDuration, Timestamp};

use crate::{
    engine::{Engine, EngineError},
    scheduler::plus,
    write::{Event, Planned},
};

const FIRST_PAUSE: SignedDuration = SignedDuration::from_mins(1);
const PAUSES_MAX: u32 = 6;

/// Pipelines that are left alone: how often in a row they failed, and until when.
pub(crate) type Aside = BTreeMap<PipelineId, (u32, Timestamp)>;

/// What came of a plan: a value, or why its pipeline must be set aside.
pub(crate) type Guarded<T> = Result<T, String>;

/// Runs the plan of one pipeline so that what goes wrong in it is that pipeline's alone.
pub(crate) async fn guarded<T>(
    plan: impl Future<Output = Result<T, EngineError>>,
) -> Result<Guarded<T>, EngineError> {
    let mut plan = pin!(plan);
    // The engine's memory is a projection of the store, and the pipeline is loaded again before it is
    // planned again: what a panic left half done is not used.
    let polled =
        poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| plan.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(result)) => Poll::Ready(Ok(result)),
            Err(panic) => Poll::Ready(Err(words_of(panic.as_ref()))),
        });
    match polled.await {
        Ok(Ok(value)) => Ok(Ok(value)),
        Ok(Err(
            error @ (EngineError::Unreadable(_)
            | EngineError::Damaged(_)
            | EngineError::Declaration(_)),
        )) => Ok(Err(error.to_string())),
        Ok(Err(error @ (EngineError::Store(_) | EngineError::Deposed))) => Err(error),
        Err(panic) => Ok(Err(format!("a bug in Interlock: {panic}"))),
    }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no words".into())
}

impl Engine {
    /// Whether a pipeline is to be left alone now.
    pub(crate) fn is_aside(&self, pipeline: &PipelineId, now: Timestamp) -> bool {
        self.aside.get(pipeline).is_some_and(|(_, until)| now < *until)
    }

    /// Sets aside what could not be read while something was recorded.
    pub(crate) async fn set_poisoned_aside(&mut self) -> Result<(), EngineError> {
        for (pipeline, reason) in std::mem::take(&mut self.poisoned) {
            self.set_aside(&pipeline, &reason).await?;
        }
        Ok(())
    }

    /// Leaves a pipeline alone for a while, and says so the first time.
    pub(crate) async fn set_aside(
        &mut self,
        pipeline: &PipelineId,
        reason: &str,
    ) -> Result<(), EngineError> {
        let now = self.world.now();
        let (failures, until) = self.aside.entry(pipeline.clone()).or_insert((0, now));
        let pause = FIRST_PAUSE * (1 << (*failures).min(PAUSES_MAX));
        *failures += 1;
        *until = plus(now, pause);
        let (is_first, until) = (*failures == 1, *until);
        tracing::error!(%pipeline, reason, %until, "set aside");
        self.wake_at(pipeline, until);
        if is_first {
            let mut plan = Planned::new(pipeline, self.writer);
            plan.event(Event::of("PIPELINE_SET_ASIDE", now, reason));
            self.commit(vec![plan]).await?;
        }
        Ok(())
    }

    /// A pipeline that was set aside was planned again: it is back.
    pub(crate) async fn take_back(&mut self, pipeline: &PipelineId) -> Result<(), EngineError> {
        if self.aside.remove(pipeline).is_some() {
            let mut plan = Planned::new(pipeline, self.writer);
            plan.event(Event::of(
                "PIPELINE_TAKEN_BACK",
                self.world.now(),
                "it can be planned again",
            ));
            self.commit(vec![plan]).await?;
        }
        Ok(())
    }
}
