//! Whether the fleet's tally is asked for. It is counted only then: a process whose pages no reader opens pays nothing for it.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use interlock_answers::FleetTally;
use tokio::{sync::Notify, time::Instant};

/// So long after the last question the tally is still kept.
const KEPT_FOR: Duration = Duration::from_mins(15);
/// So long a question waits for the first count: that of a small fleet is done by then, and of a large one it is said that it is counted.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// How often it is looked whether it is done.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// When the tally was last asked for.
#[derive(Debug)]
pub(crate) struct FleetDemand {
    asked_at: Mutex<Option<Instant>>,
    asked: Notify,
    kept_for: Duration,
    wait_max: Duration,
}

impl Default for FleetDemand {
    fn default() -> Self {
        Self::new(KEPT_FOR, WAIT_MAX)
    }
}

impl FleetDemand {
    fn new(kept_for: Duration, wait_max: Duration) -> Self {
        Self { asked_at: Mutex::default(), asked: Notify::new(), kept_for, wait_max }
    }

    /// Asks for the tally, and waits a moment if it has to be counted first.
    pub(crate) async fn ask(&self, tally: &FleetTally) {
        let now = Instant::now();
        *self.asked_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        // The thread that waits for this goes on, also if it begins to wait a moment later.
        self.asked.notify_one();
        while tally.freshness().is_counting && now.elapsed() < self.wait_max {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Whether it was asked for lately.
    pub(crate) fn is_asked(&self) -> bool {
        let asked_at = *self.asked_at.lock().unwrap_or_else(PoisonError::into_inner);
        asked_at.is_some_and(|at| at.elapsed() < self.kept_for)
    }

    /// Waits until it is asked for.
    pub(crate) async fn until_asked(&self) {
        while !self.is_asked() {
            self.asked.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::Pin, task::Poll};

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);
    const MOMENT: Duration = Duration::from_millis(30);

    async fn is_done(future: &mut Pin<Box<impl Future<Output = ()>>>) -> bool {
        poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
    }

    #[tokio::test]
    async fn the_first_question_starts_the_count_and_waits_a_moment_for_it() {
        let (demand, tally) = (FleetDemand::new(HOUR, MOMENT), FleetTally::default());
        let mut counting = Box::pin(demand.until_asked());
        assert!(!demand.is_asked() && !is_done(&mut counting).await, "no question, no count");
        let asked_at = Instant::now();
        demand.ask(&tally).await;
        assert!(asked_at.elapsed() >= MOMENT, "it waits, and answers without a count at last");
        assert!(demand.is_asked() && is_done(&mut counting).await);
    }

    #[tokio::test]
    async fn a_question_that_is_long_ago_keeps_no_tally() {
        let (demand, tally) = (FleetDemand::new(Duration::ZERO, MOMENT), FleetTally::default());
        demand.ask(&tally).await;
        assert!(!demand.is_asked());
        assert!(!is_done(&mut Box::pin(demand.until_asked())).await, "the thread sleeps");
    }
}
