//! Whether the fleet's tally follows the store, for those who ask how this process is.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// So long it may fail before the process complains: shorter is on the page alone.
const FAILS_FOR: Duration = Duration::from_mins(1);

/// Since when it does not follow.
#[derive(Debug, Default)]
pub(crate) struct FleetHealth(Mutex<Option<FailingFollow>>);

#[derive(Debug)]
struct FailingFollow {
    since: Instant,
    why: String,
}

impl FleetHealth {
    /// It has followed, or rests.
    pub(crate) fn follows(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// It could not. Says whether that is new.
    pub(crate) fn fails(&self, why: String) -> bool {
        let mut failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = failing.as_ref().map(|it| it.since);
        let since = known.unwrap_or_else(Instant::now);
        *failing = Some(FailingFollow { since, why });
        known.is_none()
    }

    /// What to complain of.
    pub(crate) fn complaint(&self) -> Option<String> {
        self.complaint_after(FAILS_FOR)
    }

    fn complaint_after(&self, fails_for: Duration) -> Option<String> {
        let failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failing = failing.as_ref().filter(|it| it.since.elapsed() >= fails_for)?;
        let (minutes, why) = (failing.since.elapsed().as_secs() / 60, &failing.why);
        Some(format!(
            "the fleet's tally cannot follow the store for {minutes} min, its pages are old: {why}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_that_cannot_follow_for_a_while_is_complained_of_until_it_can() {
        let health = FleetHealth::default();
        assert_eq!(health.complaint_after(Duration::ZERO), None);
        assert!(health.fails("the disk is gone".to_owned()), "that is new");
        assert!(!health.fails("the disk is gone".to_owned()), "that is not");
        assert_eq!(health.complaint(), None, "a moment is no complaint");
        let complaint = health.complaint_after(Duration::ZERO).unwrap();
        assert!(complaint.ends_with("the disk is gone"), "{complaint}");
        health.follows();
        assert_eq!(health.complaint_after(Duration::ZERO), None);
    }
}
