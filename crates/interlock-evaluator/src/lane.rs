//! The gates before an evaluator: its breaker, its own places, and the places of the host.
//!
//! An evaluator has at most half of the host's places. It waits for one of its own first and takes one of the
//! host's last, so that questions to one that hangs queue up among themselves and leave the rest to others. A
//! question waits as long as it must: whoever holds a place has a time limit, so the queue always moves.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use interlock_core::{readiness::TraitResult, retry::FailureCategory};
use interlock_trigger::{Clock, web::host_of};
use jiff::Timestamp;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use crate::{
    answer,
    breaker::{Admission, Breaker, Health, Now},
    http,
};

/// All evaluators.
pub(crate) struct Lanes {
    /// By the name that traits give it. Names come from files, so there are few.
    known: Mutex<BTreeMap<String, Arc<Lane>>>,
    places: Arc<Semaphore>,
    places_each: usize,
    begun: Instant,
    clock: Clock,
}

/// One evaluator.
#[derive(Debug)]
pub(crate) struct Lane {
    /// What it is called before people; an address may hold a secret.
    shown: String,
    places: Arc<Semaphore>,
    breaker: Mutex<Breaker>,
}

/// The right to ask once.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    lane: &'a Lane,
    lanes: &'a Lanes,
    admission: Option<Admission>,
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes").field("places", &self.places).finish_non_exhaustive()
    }
}

impl Lanes {
    pub(crate) fn new(at_once: usize, clock: Clock) -> Self {
        let at_once = at_once.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            known: Mutex::default(),
            places: Arc::new(Semaphore::new(at_once)),
            places_each: at_once.div_ceil(2),
            begun: Instant::now(),
            clock,
        }
    }

    /// The lane of an evaluator.
    pub(crate) fn of(&self, name: &str) -> Arc<Lane> {
        let mut known = lock(&self.known);
        if let Some(lane) = known.get(name) {
            return Arc::clone(lane);
        }
        let lane = Arc::new(Lane {
            shown: if http::is_address(name) { host_of(name) } else { name.to_owned() },
            places: Arc::new(Semaphore::new(self.places_each)),
            breaker: Mutex::default(),
        });
        known.insert(name.to_owned(), Arc::clone(&lane));
        lane
    }

    fn now(&self) -> Now {
        Now { elapsed: self.begun.elapsed(), wall: (self.clock)() }
    }
}

impl Lane {
    /// Waits for a place; the answer when the evaluator is suspended.
    pub(crate) async fn enter<'a>(&'a self, lanes: &'a Lanes) -> Result<Place<'a>, TraitResult> {
        if let Some(since) = lock(&self.breaker).open_since(lanes.now()) {
            return Err(self.suspended(since));
        }
        let closed = |_never_closed| self.suspended(lanes.now().wall);
        let own = Arc::clone(&self.places).acquire_owned().await.map_err(closed)?;
        let of_all = Arc::clone(&lanes.places).acquire_owned().await.map_err(closed)?;
        // It may have opened meanwhile.
        let admitted = lock(&self.breaker).admit(lanes.now());
        let admission = admitted.map_err(|since| self.suspended(since))?;
        let admission = Some(admission);
        Ok(Place { lane: self, lanes, admission, _own: own, _of_all: of_all })
    }

    fn suspended(&self, since: Timestamp) -> TraitResult {
        let reason = format!(
            "EVALUATOR_SUSPENDED: `{}` failed too often and is left alone since {since}; it is tried \
             again every 30 s (breaker open)",
            self.shown
        );
        answer::failed(&reason, FailureCategory::Transient)
    }
}

impl Place<'_> {
    /// Gives the place back and takes note of how it went.
    pub(crate) fn leave(mut self, result: &TraitResult) {
        self.record(Health::of(result));
    }

    fn record(&mut self, health: Health) {
        if let Some(admission) = self.admission.take() {
            lock(&self.lane.breaker).record(admission, health, self.lanes.now());
        }
    }
}

impl Drop for Place<'_> {
    /// Nobody waited for the answer, or asking panicked. A probe must not stay out for ever.
    fn drop(&mut self) {
        self.record(Health::Fails);
    }
}

/// Whoever panicked left nothing half done: every change is one assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn questions_that_break_off_count_as_failures_and_secrets_are_not_shown() {
        let lanes = Lanes::new(2, Arc::new(|| Timestamp::UNIX_EPOCH));
        let lane = lanes.of("https://user:s3cret@traits.example.com/fresh?key=s3cret");
        for _ in 0..5 {
            drop(lane.enter(&lanes).await.expect("it is not suspended yet"));
        }
        let suspended = lane.enter(&lanes).await.expect_err("it is suspended");
        let reason = suspended.reason.unwrap();
        assert!(reason.contains("`traits.example.com` failed too often"), "{reason}");
        assert!(reason.contains("since 1970-01-01T00:00:00Z"), "{reason}");
        assert!(!reason.contains("s3cret"), "{reason}");
    }
}
