//! Which slot comes next: what is due is derived from it by [`catchup`](crate::catchup).

use jiff::{SignedDuration, Timestamp};

use crate::schedule::Schedule;

/// The first slot after an instant.
pub fn after(schedule: &Schedule, instant: Timestamp) -> Option<Timestamp> {
    schedule.next(instant.saturating_add(SignedDuration::from_nanos(1)).ok()?)
}
