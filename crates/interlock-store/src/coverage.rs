//! Times in which nobody could have reported (S10).
//!
//! Whoever listens to reports says so every few seconds; one row per instance has the stretches of time in which it could
//! hear, and the inbox what is not yet applied. Single passes of the watchdog cover time too ([`PassCoverage`]). What lies
//! between the stretches of all of them is a time in which nobody heard. Before anybody ever listened, and where nobody does,
//! reports come by command alone; what counts then is whether the watchdog's process was up.

use interlock_core::id::PipelineId;
use jiff::{SignedDuration, Timestamp};

use crate::{
    contract::{Shard, Store, StoreError},
    kept::{COVERAGE_PREFIX, Stretch, heard},
    pass_coverage::PassCoverage,
    record::InboxRecord,
};

/// Entries of the inbox that are looked through.
const PAGE: usize = 1_000;

/// A break that is not longer cannot be told from the pace at which listeners speak up, every ten seconds.
pub const DEAF_AFTER: SignedDuration = SignedDuration::from_secs(15);

/// All of time.
pub const ALWAYS: Stretch = (Timestamp::MIN, Timestamp::MAX);

/// When nobody could have reported, given when nobody watched.
pub async fn deaf(
    store: &dyn Store,
    unwatched: &[Stretch],
    now: Timestamp,
) -> Result<Vec<Stretch>, StoreError> {
    let passes = PassCoverage::read(store).await?;
    deaf_beside(store, unwatched, &passes, now).await
}

/// The same for a pass that knows when passes saw, itself included.
pub async fn deaf_beside(
    store: &dyn Store,
    unwatched: &[Stretch],
    passes: &PassCoverage,
    now: Timestamp,
) -> Result<Vec<Stretch>, StoreError> {
    let mut stretches = Vec::new();
    for (key, row) in store.sensors(&PipelineId::system()).await? {
        if key.starts_with(COVERAGE_PREFIX) {
            stretches.extend(heard(&row.record.value));
        }
    }
    // A hung engine makes nobody deaf.
    let shard = Shard::of(&PipelineId::system(), store.shard_count());
    for entry in store.inbox(shard, PAGE).await?.items {
        if let InboxRecord::Heard { since, until, .. } = entry.record {
            stretches.push((since, until));
        }
    }
    if stretches.is_empty() {
        return Ok(unwatched.iter().chain(passes.holes()).copied().collect());
    }
    stretches.extend(passes.covered());
    Ok(breaks(stretches, unwatched, now))
}

/// What lies between stretches.
fn breaks(mut stretches: Vec<Stretch>, unwatched: &[Stretch], now: Timestamp) -> Vec<Stretch> {
    stretches.sort_unstable();
    let Some((first, _)) = stretches.first().copied() else { return unwatched.to_vec() };
    let before = unwatched.iter().filter(|(from, _)| *from < first);
    let mut found: Vec<Stretch> =
        before.map(|(from, until)| (*from, (*until).min(first))).collect();
    let mut end = first;
    for (since, until) in stretches.into_iter().chain([(now, now)]) {
        if since.duration_since(end) > DEAF_AFTER {
            found.push((end, since));
        }
        end = end.max(until);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn check(stretches: &[(i64, i64)], now: i64, expected: &[(i64, i64)]) {
        let as_instants = |all: &[(i64, i64)]| -> Vec<Stretch> {
            all.iter().map(|(from, until)| (at(*from), at(*until))).collect()
        };
        let unwatched = as_instants(&[(10, 20), (500, 600)]);
        let found = breaks(as_instants(stretches), &unwatched, at(now));
        assert_eq!(found, as_instants(expected), "{stretches:?}");
    }

    #[test]
    fn s10_what_lies_between_all_listeners_is_when_nobody_could_have_reported() {
        check(&[], 1_000, &[(10, 20), (500, 600)]);
        // One from the beginning on: that the watchdog was away does not matter.
        check(&[(0, 995)], 1_000, &[]);
        // The first came late: before it the watchdog counts.
        check(&[(15, 995)], 1_000, &[(10, 15)]);
        // A break, a restart that was too short to tell, and an end.
        check(&[(0, 100), (200, 300), (310, 400)], 1_000, &[(100, 200), (400, 1_000)]);
        // Another one heard meanwhile, in part or all along.
        check(&[(0, 100), (200, 990), (50, 150)], 1_000, &[(150, 200)]);
        check(&[(0, 100), (200, 300), (0, 999)], 1_000, &[]);
    }
}
