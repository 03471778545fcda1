//! Who owns which shard: even, sticky, and worked out by each instance for itself.
//!
//! Nobody hands shards out. Each instance looks at who is there and who holds what, and does its own part of the same
//! division: one that holds more than its share gives the surplus back, one that holds less takes what nobody holds.
//! A shard that somebody holds is never taken, so a wrong look costs time and never safety: leases and terms decide.

use std::collections::{BTreeMap, BTreeSet};

/// What an instance sees.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// How many shards there are.
    pub shards: u16,
    /// Who looks; it is there, whatever the others are told.
    pub me: &'a str,
    /// Who is there.
    pub present: &'a BTreeSet<String>,
    /// Who holds each shard that is held.
    pub held: &'a BTreeMap<u16, String>,
}

/// What an instance does about it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Division {
    /// More than its share: to be given back.
    pub give: Vec<u16>,
    /// Held by nobody: to be asked for, in this order.
    pub take: Vec<u16>,
}

/// An instance's own part of an even division. What is held stays where it is as far as that is even.
pub fn divide(situation: &Situation<'_>) -> Division {
    let Situation { shards, me, held, .. } = *situation;
    let present: BTreeSet<&str> =
        situation.present.iter().map(String::as_str).chain([me]).collect();
    let mut counts: BTreeMap<&str, u16> = present.iter().map(|name| (*name, 0)).collect();
    for holder in held.values() {
        if let Some(count) = counts.get_mut(holder.as_str()) {
            *count += 1;
        }
    }
    // Those that hold most keep what does not divide evenly: nothing moves for its sake.
    let mut ranks: Vec<(&str, u16)> = counts.into_iter().collect();
    ranks.sort_by(|(a, most), (b, least)| least.cmp(most).then(a.cmp(b)));
    let parties = u16::try_from(ranks.len()).unwrap_or(u16::MAX).max(1);
    let rank = ranks.iter().position(|(name, _)| *name == me).unwrap_or(0);
    let rank = u16::try_from(rank).unwrap_or(u16::MAX);
    let share = shards / parties + u16::from(rank < shards % parties);
    let mine: Vec<u16> = held.iter().filter(|(_, holder)| *holder == me).map(|(s, _)| *s).collect();
    if mine.len() > usize::from(share) {
        return Division {
            give: mine.into_iter().skip(usize::from(share)).collect(),
            take: vec![],
        };
    }
    let wanted = usize::from(share) - mine.len();
    // Each begins elsewhere, so that two rarely ask for the same one.
    let first = u32::from(shards) * u32::from(rank) / u32::from(parties);
    let order = (first..u32::from(shards)).chain(0..first).filter_map(|s| u16::try_from(s).ok());
    let take = order.filter(|shard| !held.contains_key(shard)).take(wanted).collect();
    Division { give: vec![], take }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Everybody looks and acts in turn until nobody has anything to do; how many shards changed hands.
    fn settle(shards: u16, present: &BTreeSet<String>, held: &mut BTreeMap<u16, String>) -> usize {
        let mut moved = 0;
        for _ in 0..10 {
            let mut is_quiet = true;
            for me in present {
                let plan = divide(&Situation { shards, me, present, held: &*held });
                is_quiet &= plan == Division::default();
                for shard in plan.give {
                    assert_eq!(held.remove(&shard).as_ref(), Some(me), "only one's own");
                }
                for shard in plan.take {
                    assert!(held.insert(shard, me.clone()).is_none(), "never what is held");
                    moved += 1;
                }
            }
            if is_quiet {
                return moved;
            }
        }
        panic!("it does not settle: {held:?}");
    }

    fn names(numbers: impl IntoIterator<Item = u8>) -> BTreeSet<String> {
        numbers.into_iter().map(|number| format!("i{number}")).collect()
    }

    fn spread(present: &BTreeSet<String>, held: &BTreeMap<u16, String>) -> (usize, usize) {
        let count = |name: &String| held.values().filter(|holder| *holder == name).count();
        let counts: Vec<usize> = present.iter().map(count).collect();
        (*counts.iter().min().unwrap(), *counts.iter().max().unwrap())
    }

    #[test]
    fn who_is_alone_takes_everything() {
        let mut held = BTreeMap::new();
        assert_eq!(settle(12, &names([1]), &mut held), 12);
        assert_eq!(spread(&names([1]), &held), (12, 12));
    }

    #[test]
    fn who_comes_gets_its_share_and_nothing_else_moves() {
        let mut held = BTreeMap::new();
        settle(12, &names([1, 2]), &mut held);
        assert_eq!(settle(12, &names([1, 2, 3]), &mut held), 4);
        assert_eq!(spread(&names([1, 2, 3]), &held), (4, 4));
    }

    #[test]
    fn who_dies_leaves_its_shards_and_the_others_keep_theirs() {
        let mut held = BTreeMap::new();
        settle(12, &names([1, 2, 3]), &mut held);
        let kept: BTreeMap<_, _> = held
            .iter()
            .filter(|(_, holder)| *holder != "i2")
            .map(|(s, h)| (*s, h.clone()))
            .collect();
        held = kept.clone();
        assert_eq!(settle(12, &names([1, 3]), &mut held), 4);
        assert!(kept.iter().all(|(shard, holder)| held.get(shard) == Some(holder)));
    }

    #[test]
    fn what_the_dead_still_hold_is_waited_for() {
        let held = (0..12).map(|shard| (shard, "dead".to_owned())).collect();
        let plan = divide(&Situation { shards: 12, me: "i1", present: &names([]), held: &held });
        assert_eq!(plan, Division::default());
    }

    proptest! {
        #[test]
        fn it_settles_evenly_whatever_comes_and_goes(
            shards in 1_u16..80,
            steps in prop::collection::vec(prop::collection::btree_set(0_u8..8, 1..8), 1..6),
        ) {
            let mut held: BTreeMap<u16, String> = BTreeMap::new();
            for step in steps {
                let present = names(step);
                held.retain(|_, holder| present.contains(holder));
                let orphans = usize::from(shards) - held.len();
                let (_, most) = spread(&present, &held);
                let moved = settle(shards, &present, &mut held);
                prop_assert_eq!(held.len(), usize::from(shards));
                let (least, now_most) = spread(&present, &held);
                prop_assert!(now_most - least <= 1);
                // Nothing moves but what nobody held, and what somebody held beyond its share.
                let share = usize::from(shards) / present.len();
                let surplus = most.saturating_sub(share) * present.len();
                prop_assert!(moved <= orphans + surplus, "{} moved, {} orphans", moved, orphans);
            }
        }
    }
}
