//! Who owns the shards of a store, for people.

use std::collections::BTreeMap;

use interlock_answers::model::instance::ShardAnswer;
use interlock_store::{Role, Roll};

/// Who owns how many shards, in one sentence; `None` where one process has all there is.
pub(crate) fn sentence(roll: Option<&Roll>, count: u16) -> Option<String> {
    let roll = roll?;
    let mut owned: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, name) in roll.present.iter().filter(|(role, _)| *role == Role::Engine) {
        owned.insert(name, 0);
    }
    for (holder, _) in held(roll) {
        *owned.entry(holder).or_default() += 1;
    }
    let free = unowned(roll, count);
    let mut parts: Vec<String> =
        owned.into_iter().map(|(name, count)| format!("{name} {count}")).collect();
    if free > 0 {
        parts.push(format!("unowned {free}"));
    }
    Some(format!("{count}: {}", parts.join(", ")))
}

/// The same, by what a server says of its shards.
pub(crate) fn sentence_of(shards: &[ShardAnswer]) -> Option<String> {
    let mut owned: BTreeMap<&str, usize> = BTreeMap::new();
    for owner in shards.iter().filter_map(|shard| shard.engine.as_ref()) {
        *owned.entry(&owner.instance).or_default() += 1;
    }
    let free = shards.iter().filter(|shard| shard.engine.is_none()).count();
    // A store that is a file has one, and one process that has it.
    if shards.len() < 2 {
        return None;
    }
    let mut parts: Vec<String> =
        owned.into_iter().map(|(name, count)| format!("{name} {count}")).collect();
    if free > 0 {
        parts.push(format!("unowned {free}"));
    }
    Some(format!("{}: {}", shards.len(), parts.join(", ")))
}

/// How many shards nobody owns.
pub(crate) fn unowned(roll: &Roll, count: u16) -> usize {
    usize::from(count).saturating_sub(held(roll).count())
}

fn held(roll: &Roll) -> impl Iterator<Item = (&str, u16)> {
    let engines = roll.held.iter().filter(|((role, _), _)| *role == Role::Engine);
    engines.map(|((_, shard), (holder, _))| (holder.as_str(), shard.0))
}

#[cfg(test)]
mod tests {
    use interlock_store::Shard;
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn everybody_is_named_and_what_nobody_owns_is_said() {
        let now = Timestamp::UNIX_EPOCH;
        let name = |text: &str| (Role::Engine, text.to_owned());
        let held = |shard, text: &str| ((Role::Engine, Shard(shard)), (text.to_owned(), now));
        let roll = Roll {
            now,
            present: [name("a/1"), name("b/1"), (Role::Watchdog, "c/1".to_owned())].into(),
            held: [held(0, "a/1"), held(1, "a/1"), held(2, "gone/1")].into(),
        };
        let said = sentence(Some(&roll), 4);
        assert_eq!(said.as_deref(), Some("4: a/1 2, b/1 0, gone/1 1, unowned 1"));
        assert_eq!((unowned(&roll, 4), sentence(None, 1)), (1, None));
    }
}
