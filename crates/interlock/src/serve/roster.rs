//! Which instances have died.
//!
//! Who leaves gives its leases back, or is soon there again; who dies lets them run out. So an instance whose leases ran out,
//! and of whose host nobody is there a while later, is gone, and people are told: others do its work, but there is one less of
//! them. What is known here is only what was seen: no instance is missed that nobody here has met.

use std::collections::{BTreeMap, BTreeSet};

use interlock_store::{Role, Roll, Store};
use jiff::{SignedDuration, Timestamp};

use super::notice::{Over, is_open, notice};

/// After its leases have run out. A restart takes less, and after an outage of the store everybody is back by then.
const GONE_AFTER: SignedDuration = SignedDuration::from_secs(15);
const EVENT: &str = "INSTANCE_GONE";

/// Those that were seen.
#[derive(Debug, Default)]
pub(super) struct Roster {
    /// When the leases run out, by holder.
    leases: BTreeMap<String, Timestamp>,
    /// Hosts that let theirs run out.
    missing: BTreeMap<String, Missing>,
}

#[derive(Debug)]
struct Missing {
    since: Timestamp,
    is_told: bool,
}

/// What people should hear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum News {
    Gone(String),
    Back(String),
}

impl Roster {
    /// Takes in who holds what now, in one role.
    pub(super) fn look(&mut self, role: Role, roll: &Roll) {
        let mut held: BTreeMap<&str, Timestamp> = BTreeMap::new();
        for ((_, _), (holder, until)) in roll.held.iter().filter(|((of, _), _)| *of == role) {
            let last = held.entry(holder).or_insert(*until);
            *last = (*last).max(*until);
        }
        self.leases.retain(|holder, until| {
            let is_over = !held.contains_key(holder.as_str());
            if is_over && *until <= roll.now {
                let missing = Missing { since: roll.now, is_told: false };
                self.missing.entry(host(holder).to_owned()).or_insert(missing);
            }
            !is_over
        });
        self.leases.extend(held.into_iter().map(|(holder, until)| (holder.to_owned(), until)));
        let here = hosts(role, roll);
        self.missing.retain(|host, missing| missing.is_told || !here.contains(host.as_str()));
    }

    /// What is to be told now, until it is.
    pub(super) fn news(&self, (role, me): (Role, &str), roll: &Roll) -> Vec<News> {
        let here = hosts(role, roll);
        let is_ours_to_say = speaks_for_all((role, me), roll);
        let news = self.missing.iter().filter_map(|(host, missing)| {
            let is_here = here.contains(host.as_str());
            let is_long = roll.now.duration_since(missing.since) >= GONE_AFTER;
            match missing.is_told {
                true if is_here => Some(News::Back(host.clone())),
                false if !is_here && is_long && is_ours_to_say => Some(News::Gone(host.clone())),
                _ => None,
            }
        });
        news.collect()
    }

    fn is_told(&mut self, news: &News) {
        match news {
            News::Gone(host) => {
                if let Some(missing) = self.missing.get_mut(host) {
                    missing.is_told = true;
                }
            }
            News::Back(host) => drop(self.missing.remove(host)),
        }
    }

    /// Looks, and has people told.
    pub(super) async fn attend(
        &mut self,
        (role, me): (Role, &str),
        roll: &Roll,
        store: &dyn Store,
    ) {
        self.look(role, roll);
        for news in self.news((role, me), roll) {
            let (host, message, over) = match &news {
                News::Gone(host) => {
                    let message = format!(
                        "no sign of life for {} s; the other instances run its pipelines, and its jobs are uncertain until \
                         it is back. Start it again, or resolve this incident if it will not return",
                        GONE_AFTER.as_secs()
                    );
                    tracing::warn!(host, "an instance is gone");
                    (host, message, Over::No)
                }
                News::Back(host) => (host, "it is back".to_owned(), Over::Yes),
            };
            if notice(store, (EVENT, host), message, over).await {
                self.is_told(&news);
            }
        }
    }
}

/// Says that this host is back, if somebody was told that it is gone: those who told may not remember it.
pub(crate) async fn say_back(store: &dyn Store, host: &str) {
    if is_open(store, format!("instance:{host}")).await.unwrap_or(false) {
        notice(store, (EVENT, host), "it was started again".to_owned(), Over::Yes).await;
    }
}

/// Whether it is this instance that says what concerns all: the first of those that are there.
pub(super) fn speaks_for_all((role, me): (Role, &str), roll: &Roll) -> bool {
    let mut present = roll.present.iter().filter(|(of, _)| *of == role);
    present.next().is_none_or(|(_, name)| name.as_str() >= me)
}

pub(super) fn hosts(role: Role, roll: &Roll) -> BTreeSet<&str> {
    roll.present.iter().filter(|(of, _)| *of == role).map(|(_, name)| host(name)).collect()
}

/// The host of a holder: `host/process`.
fn host(holder: &str) -> &str {
    holder.rsplit_once('/').map_or(holder, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use interlock_store::Shard;

    use super::*;

    const LEASE: i64 = 4;

    /// Who is there at a second, and holds a shard until when.
    fn roll(second: i64, present: &[&str], held: &[(&str, i64)]) -> Roll {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let held = held.iter().zip(0..).map(|((holder, until), shard)| {
            ((Role::Engine, Shard(shard)), ((*holder).to_owned(), at(*until)))
        });
        Roll {
            now: at(second),
            present: present.iter().map(|name| (Role::Engine, (*name).to_owned())).collect(),
            held: held.collect(),
        }
    }

    fn hears(roster: &mut Roster, me: &str, roll: &Roll) -> Vec<News> {
        roster.look(Role::Engine, roll);
        let news = roster.news((Role::Engine, me), roll);
        for news in &news {
            roster.is_told(news);
        }
        news
    }

    /// Everybody at work; then `b` is off the roll, and its lease is gone a moment later, or when it has run out.
    fn without_b(gone_at: i64) -> Roster {
        let mut roster = Roster::default();
        let all = roll(0, &["a/1", "b/1"], &[("a/1", LEASE), ("b/1", LEASE)]);
        assert_eq!(hears(&mut roster, "a/1", &all), []);
        let fewer = roll(gone_at, &["a/1"], &[("a/1", gone_at + LEASE)]);
        assert_eq!(hears(&mut roster, "a/1", &fewer), []);
        roster
    }

    #[test]
    fn an_instance_that_dies_is_told_once_and_that_it_is_back_too() {
        let mut roster = without_b(LEASE);
        for (second, expected) in [(10, vec![]), (19, vec![News::Gone("b".into())]), (30, vec![])] {
            let alone = roll(second, &["a/1"], &[("a/1", second + LEASE)]);
            assert_eq!(hears(&mut roster, "a/1", &alone), expected, "after {second} s");
        }
        let back = roll(40, &["a/1", "b/2"], &[("a/1", 44)]);
        assert_eq!(hears(&mut roster, "a/1", &back), [News::Back("b".into())]);
        assert_eq!(hears(&mut roster, "a/1", &back), []);
    }

    #[test]
    fn an_instance_that_leaves_or_is_soon_back_is_not_missed() {
        let late = roll(60, &["a/1"], &[("a/1", 64)]);
        let mut roster = without_b(LEASE - 1);
        assert_eq!(hears(&mut roster, "a/1", &late), [], "it gave its lease back");
        let mut roster = without_b(LEASE);
        let soon = roll(10, &["a/1", "b/2"], &[("a/1", 14), ("b/2", 14)]);
        assert_eq!(hears(&mut roster, "a/1", &soon), []);
        let mut elsewhere = without_b(LEASE);
        let others = roll(60, &["a/1", "A/1"], &[("a/1", 64), ("A/1", 64)]);
        assert_eq!(hears(&mut elsewhere, "a/1", &others), [], "another one tells");
    }
}
