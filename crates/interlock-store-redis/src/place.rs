//! Where things are.
//!
//! A server that stands alone is one place, the home, and everything is there. On a cluster each shard is a place of its own, in a
//! hash slot of its own (`{prefix:N}`), and the home (`{prefix}`) has what belongs to no shard: which store it is, who is there, the
//! giving out of numbers, a copy of each lease, and the rows of `_system`. A script sees one place only.

use std::sync::atomic::{AtomicU64, Ordering};

use interlock_core::id::PipelineId;
use interlock_store::{Away, Shard, StoreError};

use crate::keys::Keys;

/// Keys that scripts can reach together.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) keys: Keys,
    /// The key that every script names: by it a cluster says who has the place.
    pub(crate) anchor: String,
    /// Whose it is, if it is not the home.
    pub(crate) shard: Option<Shard>,
    /// How many of our requests were acknowledged here.
    pub(crate) acknowledged: AtomicU64,
    /// Up to which number everything is written here that ever will be, as far as we know. Not for the home.
    closed: AtomicU64,
    /// Why it is left alone, if it is: its server could not be reached, and whoever looks at the others is not kept waiting.
    left_out: Option<String>,
}

impl Place {
    fn new(keys: Keys, shard: Option<Shard>) -> Self {
        let anchor = keys.name("about");
        let (acknowledged, closed) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { keys, anchor, shard, acknowledged, closed, left_out: None }
    }

    /// Refuses a place that is left alone.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let Some(why) = &self.left_out else { return Ok(()) };
        Err(StoreError::retryable(why))
    }

    pub(crate) fn closed(&self) -> u64 {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn closes(&self, number: u64) {
        self.closed.fetch_max(number, Ordering::AcqRel);
    }
}

/// How a store lies on its servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// On one server: everything is at home.
    Together,
    /// On a cluster: each shard is a place of its own.
    Apart,
}

/// All places of a store.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) count: u16,
    pub(crate) home: Place,
    /// One for each shard; none where everything is at home.
    pub(crate) shards: Vec<Place>,
}

impl Places {
    /// Those of a store with so many shards.
    pub(crate) fn new(home: Keys, count: u16, layout: Layout) -> Self {
        let place = |shard| Place::new(home.of_shard(shard), Some(shard));
        let apart = if layout == Layout::Apart { count } else { 0 };
        let shards = (0..apart).map(Shard).map(place).collect();
        Self { count, home: Place::new(home, None), shards }
    }

    /// Leaves shards alone from now on.
    pub(crate) fn leave_out(&mut self, away: &[Away]) {
        for Away { shards, why } in away {
            for shard in shards {
                if let Some(place) = self.shards.get_mut(usize::from(shard.0)) {
                    let away = Away { shards: vec![*shard], why: why.clone() };
                    place.left_out = Some(away.sentence(self.count));
                }
            }
        }
    }

    /// Refuses what needs all of the store where places are left alone.
    pub(crate) fn check_whole(&self) -> Result<(), StoreError> {
        self.shards.iter().try_for_each(Place::check)
    }

    /// Whether shards have places of their own.
    pub(crate) fn are_apart(&self) -> bool {
        !self.shards.is_empty()
    }

    pub(crate) fn layout(&self) -> Layout {
        if self.are_apart() { Layout::Apart } else { Layout::Together }
    }

    /// Where the rows of a pipeline are.
    pub(crate) fn of(&self, pipeline: &PipelineId) -> &Place {
        if *pipeline == PipelineId::system() {
            return &self.home;
        }
        self.of_shard(Shard::of(pipeline, self.count))
    }

    /// Where a shard's own rows and leases are.
    pub(crate) fn of_shard(&self, shard: Shard) -> &Place {
        self.shards.get(usize::from(shard.0)).unwrap_or(&self.home)
    }

    /// Where there may be rows that are listed with a shard: `_system` is counted to one. Nowhere if that is left alone.
    pub(crate) fn listed_with(&self, shard: Shard) -> Vec<&Place> {
        let has_system = Shard::of(&PipelineId::system(), self.count) == shard;
        let home = (has_system && self.are_apart()).then_some(&self.home);
        let places = std::iter::once(self.of_shard(shard)).chain(home);
        places.filter(|place| place.left_out.is_none()).collect()
    }

    /// All but those that are left alone.
    pub(crate) fn all(&self) -> Vec<&Place> {
        let places = std::iter::once(&self.home).chain(&self.shards);
        places.filter(|place| place.left_out.is_none()).collect()
    }
}

/// What several places listed, as one list in its order.
pub(crate) fn merged<T, K: Ord>(mut lists: Vec<Vec<T>>, order: impl FnMut(&T) -> K) -> Vec<T> {
    if lists.len() == 1 {
        return lists.remove(0);
    }
    let mut all: Vec<T> = lists.into_iter().flatten().collect();
    all.sort_by_cached_key(order);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys { prefix: "{p}".to_owned() }
    }

    #[test]
    fn shards_have_places_of_their_own_on_a_cluster_only() {
        let orders = PipelineId::parse("orders").expect("a name");
        let apart = Places::new(keys(), 4, Layout::Apart);
        let own = apart.of(&orders);
        assert_eq!(own.shard, Some(Shard::of(&orders, 4)));
        assert_eq!(own.anchor, format!("{{p:{}}}:about", Shard::of(&orders, 4).0));
        assert_eq!(apart.of(&PipelineId::system()).anchor, "{p}:about");
        assert_eq!(apart.all().len(), 5);
        let together = Places::new(Keys { prefix: "p".to_owned() }, 4, Layout::Together);
        assert_eq!(together.of(&orders).anchor, "p:about");
        assert_eq!(together.all().len(), 1);
    }

    #[test]
    fn what_is_left_out_is_in_no_list_and_says_why_when_it_is_asked_for() {
        let mut apart = Places::new(keys(), 4, Layout::Apart);
        assert!(apart.check_whole().is_ok());
        let why = "Redis at a:1 cannot be reached".to_owned();
        apart.leave_out(&[Away { shards: vec![Shard(1), Shard(3)], why }]);
        let listed: Vec<_> = apart.all().into_iter().map(|place| place.shard).collect();
        assert_eq!(listed, [None, Some(Shard(0)), Some(Shard(2))]);
        assert!(apart.of_shard(Shard(0)).check().is_ok());
        let error = apart.of_shard(Shard(3)).check().unwrap_err();
        let said = "shard 3 of 4 cannot be reached: Redis at a:1 cannot be reached";
        assert_eq!((error.message.as_str(), error.is_retryable), (said, true));
        assert!(apart.check_whole().is_err());
    }

    #[test]
    fn home_is_listed_with_one_shard() {
        let apart = Places::new(keys(), 4, Layout::Apart);
        let with_home = (0..4).filter(|shard| apart.listed_with(Shard(*shard)).len() == 2);
        let system = Shard::of(&PipelineId::system(), 4);
        assert_eq!(with_home.collect::<Vec<_>>(), [system.0]);
        let together = Places::new(Keys { prefix: "p".to_owned() }, 4, Layout::Together);
        assert!((0..4).all(|shard| together.listed_with(Shard(shard)).len() == 1));
    }
}
