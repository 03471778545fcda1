//! When single passes of the watchdog reached the store (S10).
//!
//! Where no instance listens, a pass is all that sees: what it knows is that the store could be reached when it ran. Two
//! passes cover the time between them while they come at their usual distance; one that could not reach the store, or did
//! not run, leaves a hole.

use interlock_core::id::PipelineId;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    contract::{Store, StoreError},
    kept::{Stretch, heard, heard_value},
    key::{DueKind, Key},
    record::{DueRecord, Record},
};

/// Passes whose distances say what is usual.
const RECENT_MAX: usize = 8;
/// Two passes may be so far apart while their usual distance is not known.
const FIRST_GAP_MAX: SignedDuration = SignedDuration::from_mins(15);
/// A pass may begin so much later than a crontab says.
const JITTER: SignedDuration = SignedDuration::from_secs(30);
/// How long covered times are kept: longer than any watch-only slot waits.
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(7 * 24);
const STRETCHES_MAX: usize = 100;

/// The times that passes covered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PassCoverage {
    covered: Vec<Stretch>,
    /// Times in which a pass was due and none reached the store.
    holes: Vec<Stretch>,
    /// The last passes, oldest first.
    recent: Vec<Timestamp>,
}

impl PassCoverage {
    /// Its address: a due entry that is never due, because it holds no decision.
    pub fn key() -> Key {
        // The last day that every engine can write.
        let never = "9999-12-30T00:00:00Z".parse().unwrap_or(Timestamp::MAX);
        Key::Due(never, DueKind::Pause, "passes".to_owned())
    }

    /// Reads it.
    pub async fn read(store: &dyn Store) -> Result<Self, StoreError> {
        let rows = store.read(&PipelineId::system(), &[Self::key()]).await?;
        let row = rows.into_iter().flatten().next().map(|row| row.record);
        let Some(Record::Due(record)) = row else { return Ok(Self::default()) };
        let recent = record.details.get("recent").and_then(Value::as_array).into_iter().flatten();
        let recent = recent.filter_map(|at| at.as_str()?.parse().ok()).collect();
        let stretches = |name: &str| record.details.get(name).map(heard).unwrap_or_default();
        Ok(Self { covered: stretches("covered"), holes: stretches("holes"), recent })
    }

    /// As it is stored.
    pub fn to_record(&self) -> Record {
        let recent: Vec<Value> = self.recent.iter().map(|at| json!(at.to_string())).collect();
        let (covered, holes) = (heard_value(&self.covered), heard_value(&self.holes));
        let details = [("covered", covered), ("holes", holes), ("recent", json!(recent))];
        let details = details.map(|(name, value)| (name.to_owned(), value));
        Record::Due(DueRecord { details: details.into() })
    }

    /// The same, after a pass that reached the store now.
    #[must_use]
    pub fn extended(mut self, now: Timestamp) -> Self {
        let usual = self.usual_gap_max();
        let last = self.recent.last().copied();
        let is_on_time = last.is_some_and(|last| {
            let gap = now.duration_since(last);
            // A clock that was set back proves nothing about the time between.
            !gap.is_negative() && gap <= usual.unwrap_or(FIRST_GAP_MAX)
        });
        match self.covered.last_mut().filter(|_| is_on_time) {
            Some((_, until)) => *until = (*until).max(now),
            None => self.covered.push((now, now)),
        }
        if let (Some(last), Some(_)) = (last.filter(|last| !is_on_time && *last < now), usual) {
            self.holes.push((last, now));
        }
        self.recent.retain(|at| *at < now);
        self.recent.push(now);
        self.recent.drain(..self.recent.len().saturating_sub(RECENT_MAX));
        for stretches in [&mut self.covered, &mut self.holes] {
            stretches.retain(|(_, until)| now.duration_since(*until) < KEPT_FOR);
            stretches.drain(..stretches.len().saturating_sub(STRETCHES_MAX));
        }
        self
    }

    /// How far apart two passes may be, once that is known: half as much again as usual, so that one that is missing shows.
    fn usual_gap_max(&self) -> Option<SignedDuration> {
        let apart = self.recent.windows(2).filter_map(|pair| match pair {
            [one, other] => Some(other.duration_since(*one)),
            _ => None,
        });
        let mut apart: Vec<SignedDuration> = apart.collect();
        apart.sort_unstable();
        let usual = apart.get(apart.len() / 2)?;
        Some(usual.saturating_add(*usual / 2).saturating_add(JITTER))
    }

    /// The covered times.
    pub fn covered(&self) -> &[Stretch] {
        &self.covered
    }

    /// The times in which a pass was due and none reached the store. Where no instance ever listened, only these are
    /// known not to be covered.
    pub fn holes(&self) -> &[Stretch] {
        &self.holes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    fn check(passes: &[i64], expected: &[(i64, i64)]) {
        let coverage =
            passes.iter().fold(PassCoverage::default(), |it, pass| it.extended(at(*pass)));
        let expected: Vec<_> =
            expected.iter().map(|(from, until)| (at(*from), at(*until))).collect();
        assert_eq!(coverage.covered(), expected, "{passes:?}");
    }

    #[test]
    fn s10_passes_cover_the_time_between_them_and_one_that_is_missing_leaves_a_hole() {
        check(&[0], &[(0, 0)]);
        check(&[0, 5, 10, 15], &[(0, 15)]);
        // One did not reach the store; then they come as before.
        check(&[0, 5, 10, 20, 25], &[(0, 10), (20, 25)]);
        // A night without a machine.
        check(&[0, 5, 10, 500, 505], &[(0, 10), (500, 505)]);
        // Once a day, which shows with the second one.
        check(&[0, 1_440, 2_880], &[(0, 0), (1_440, 2_880)]);
        check(&[0, 1_440, 2_880, 5_760], &[(0, 0), (1_440, 2_880), (5_760, 5_760)]);
        let learnt = [0, 1_440, 2_880, 5_760].map(at).into_iter();
        let learnt = learnt.fold(PassCoverage::default(), PassCoverage::extended);
        assert_eq!(
            learnt.holes(),
            [(at(2_880), at(5_760))],
            "how far apart they are is known by then"
        );
        // A clock that was set back.
        check(&[0, 5, 10, 7, 12], &[(0, 10), (7, 12)]);
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let store = crate::memory::MemoryStore::new(1, std::sync::Arc::new(|| at(0)));
        let none = crate::block_on(PassCoverage::read(&store)).unwrap();
        assert_eq!(none, PassCoverage::default());
        let coverage = PassCoverage::default().extended(at(0)).extended(at(5)).extended(at(50));
        let Record::Due(record) = coverage.to_record() else { panic!("no due entry") };
        assert_eq!(record.details["covered"].as_object().map(serde_json::Map::len), Some(1));
        let writer = crate::block_on(store.acquire(
            crate::Role::Watchdog,
            crate::Shard(0),
            "w",
            SignedDuration::from_secs(10),
        ));
        let writer = writer.unwrap().unwrap().writer;
        let change =
            crate::Change::Put(PassCoverage::key(), crate::Expect::Any, coverage.to_record());
        let group = crate::Group { pipeline: PipelineId::system(), writer, changes: vec![change] };
        let results = crate::block_on(store.commit(vec![group])).unwrap();
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        assert_eq!(crate::block_on(PassCoverage::read(&store)).unwrap(), coverage);
    }
}
