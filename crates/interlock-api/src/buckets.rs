//! How often: a bucket of allowances for each address, or each token, filled at a steady pace.
//!
//! Time is handed in. There are only so many buckets: one that is full says nothing and is dropped first.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Buckets that are remembered at once.
const BUCKETS_MAX: usize = 10_000;

/// A bucket for each of whatever is counted.
#[derive(Debug)]
pub(crate) struct Buckets<K> {
    per_second: f64,
    at_once: f64,
    all: Mutex<BTreeMap<K, Bucket>>,
}

/// How much was left, and when that was.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    level: f64,
    at: Instant,
}

impl<K: Ord> Buckets<K> {
    /// So many each second, and so many at once.
    pub(crate) fn new(per_second: u32, at_once: u32) -> Self {
        let (per_second, at_once) = (f64::from(per_second.max(1)), f64::from(at_once.max(1)));
        Self { per_second, at_once, all: Mutex::default() }
    }

    /// Takes one allowance; else says how long there is none.
    pub(crate) fn take(&self, whose: K, now: Instant) -> Result<(), Duration> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= BUCKETS_MAX && !all.contains_key(&whose) {
            all.retain(|_, bucket| self.level(bucket, now) < self.at_once);
            // Somebody with so many addresses is not kept out by this, nor may they fill the memory.
            if all.len() >= BUCKETS_MAX {
                all.clear();
            }
        }
        let bucket = all.entry(whose).or_insert(Bucket { level: self.at_once, at: now });
        let level = self.level(bucket, now);
        if level < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - level) / self.per_second));
        }
        *bucket = Bucket { level: level - 1.0, at: now };
        Ok(())
    }

    fn level(&self, bucket: &Bucket, now: Instant) -> f64 {
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        (bucket.level + since * self.per_second).min(self.at_once)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn so_many_at_once_then_at_a_steady_pace_for_each_address() {
        let buckets = Buckets::new(2, 3);
        let (start, one, other) = (Instant::now(), [10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let take = |who: IpAddr, millis| buckets.take(who, start + Duration::from_millis(millis));
        assert_eq!([0; 4].map(|at| take(one, at).is_ok()), [true, true, true, false]);
        assert_eq!(take(one, 250), Err(Duration::from_millis(250)));
        assert_eq!(
            [500, 500, 1_000, 60_000].map(|at| take(one, at).is_ok()),
            [true, false, true, true]
        );
        assert!(take(other, 0).is_ok());
    }

    #[test]
    fn a_crowd_of_addresses_does_not_fill_the_memory() {
        let (buckets, now) = (Buckets::new(1, 1), Instant::now());
        for number in 0..50_000_u32 {
            assert!(buckets.take(IpAddr::V4(number.into()), now).is_ok());
        }
        assert!(buckets.all.lock().unwrap().len() <= BUCKETS_MAX);
    }
}
