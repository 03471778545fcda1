//! Shards that cannot be reached now, by what came of trying.
//!
//! A store may lie on several servers, of which one may be away. Whoever works on its shards tries again and again, in vain:
//! that is no loop's fault, as little as if the whole store were away, and people are told the same way. The sentinel's own
//! question goes to one server and cannot find it out, so those who try say what they found.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use interlock_store::{Away, Role, Shard, StoreError};
use tokio::time::Instant;

/// A try that is older proves nothing: whoever hangs must not be excused by what it found before.
const HOLDS_FOR: Duration = Duration::from_secs(30);

/// The shards that cannot be reached.
#[derive(Debug, Default)]
pub(crate) struct Unreached(Mutex<BTreeMap<(Role, Shard), (Instant, String)>>);

impl Unreached {
    /// Somebody tried, and the store did not answer; true if that was not so before.
    pub(crate) fn failed(&self, role: Role, shard: Shard, error: &StoreError) -> bool {
        let failed = (Instant::now(), error.to_string());
        error.is_retryable && self.lock().insert((role, shard), failed).is_none()
    }

    /// Somebody came round, or it is not ours to reach any more.
    pub(crate) fn reached(&self, role: Role, shard: Shard) {
        self.lock().remove(&(role, shard));
    }

    /// Whether this shard could not be reached lately.
    pub(crate) fn has(&self, shard: Shard) -> bool {
        self.lock().keys().any(|(_, known)| *known == shard)
    }

    /// Which shards of so many, and why, in a sentence; nothing when all are reached.
    pub(crate) fn says(&self, count: u16, now: Instant) -> Option<String> {
        let mut known = self.lock();
        known.retain(|_, (at, _)| now.saturating_duration_since(*at) < HOLDS_FOR);
        let (_, error) = known.values().max_by_key(|(at, _)| *at)?;
        if count <= 1 {
            return Some(error.clone());
        }
        let shards: BTreeSet<_> = known.keys().map(|(_, shard)| shard.0).collect();
        let shards = shards.into_iter().map(Shard).collect();
        Some(Away { shards, why: error.clone() }.sentence(count))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Role, Shard), (Instant, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_which_shards_and_why_until_they_are_reached_or_nobody_tries_any_more() {
        let unreached = Unreached::default();
        let refused = StoreError::retryable("connection refused");
        let now = Instant::now();
        assert_eq!(unreached.says(12, now), None);
        unreached.failed(Role::Engine, Shard(4), &refused);
        unreached.failed(Role::Watchdog, Shard(4), &refused);
        unreached.failed(Role::Watchdog, Shard(11), &refused);
        unreached.failed(Role::Engine, Shard(1), &StoreError::permanent("it is damaged"));
        let both = "shards 4, 11 of 12 cannot be reached: connection refused";
        assert_eq!(unreached.says(12, now).as_deref(), Some(both));
        unreached.reached(Role::Watchdog, Shard(11));
        unreached.reached(Role::Engine, Shard(4));
        let one = "shard 4 of 12 cannot be reached: connection refused";
        assert_eq!(unreached.says(12, now).as_deref(), Some(one));
        assert_eq!(unreached.says(12, now + HOLDS_FOR * 2), None);
    }
}
