//! Which of the named servers is used, when they stand alone: the primary. There may be two of them.
//!
//! A primary that failed and was replaced comes back as a primary, unless somebody sees to it (Sentinel does, when it gets to it). Both
//! then hold the same store, and whoever used the one would do again what was done by those who use the other. So all are asked, and
//! the one is used that is further: every instance finds the same one, wherever it begins to look. What decides is what only grows:
//! the last term (which is a time), the last number of an event, and how often something was written, which is more often every second as
//! long as anybody is there.

use std::collections::BTreeSet;

use interlock_store::{StoreError, StoreId};

/// How far a store has got, on one of the servers that hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Progress {
    pub(crate) term: u64,
    pub(crate) event: u64,
    pub(crate) writes: u64,
}

/// A named server, as it describes itself.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) addr: String,
    /// By which it is known under whatever name.
    pub(crate) process: String,
    pub(crate) is_replica: bool,
    /// Which store it holds, if any.
    pub(crate) store: Option<StoreId>,
    pub(crate) progress: Progress,
}

/// The one that is used.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) addr: String,
    /// What is to be done about the others.
    pub(crate) warnings: Vec<String>,
}

/// Chooses among those that answered; `ours` is the store that was opened, if one was.
pub(crate) fn choose(seen: &[Seen], ours: Option<StoreId>) -> Result<Chosen, StoreError> {
    let mut known = BTreeSet::new();
    let primaries: Vec<&Seen> = seen
        .iter()
        .filter(|server| !server.is_replica && known.insert(server.process.as_str()))
        .collect();
    let stores: BTreeSet<StoreId> = primaries.iter().filter_map(|server| server.store).collect();
    let wanted = match ours {
        Some(ours) if stores.contains(&ours) => Some(ours),
        Some(_) if primaries.len() > 1 => {
            return Err(refused(
                &primaries,
                "are primaries, and none of them holds this store any more",
            ));
        }
        None if stores.len() > 1 => {
            return Err(refused(&primaries, "are primaries of different stores"));
        }
        None if stores.is_empty() && primaries.len() > 1 => {
            return Err(refused(&primaries, "are primaries, and none of them holds a store yet"));
        }
        // One that was emptied under us: whoever writes to it finds that out.
        Some(_) => primaries.first().and_then(|server| server.store),
        None => stores.first().copied(),
    };
    let mut holders: Vec<&Seen> =
        primaries.iter().copied().filter(|server| server.store == wanted).collect();
    holders.sort_by_key(|server| std::cmp::Reverse(server.progress));
    let (used, rest) = match holders.as_slice() {
        [] => return Err(StoreError::retryable(REPLICAS)),
        [first, second, ..] if first.progress == second.progress => {
            return Err(refused(
                &holders,
                "are primaries of the same store, and neither is further",
            ));
        }
        [first, rest @ ..] => (*first, rest),
    };
    let addr = &used.addr;
    let older = rest.iter().map(|other| {
        format!(
            "{addr} and {other} are both primaries of this store: {addr} is used, which is further, and what is written to {other} \
             is lost; make it a replica of {addr} (`{}`) or end it",
            replicaof(other, used),
            other = other.addr,
        )
    });
    let strange = primaries.iter().filter(|server| server.store != wanted).map(|other| {
        let holds = if other.store.is_some() { "another store" } else { "no store" };
        format!(
            "{other}, which `redis.addr` names, is a primary that holds {holds}, not a replica of {addr}; make it a replica of \
             {addr} (`{}`; that deletes what it holds) or name it no more",
            replicaof(other, used),
            other = other.addr,
        )
    });
    Ok(Chosen { addr: addr.clone(), warnings: older.chain(strange).collect() })
}

/// Nobody there takes writes.
pub(crate) const REPLICAS: &str =
    "this Redis is a replica, which takes no writes: name the primary in `redis.addr`, or both";

fn refused(servers: &[&Seen], what: &str) -> StoreError {
    let addresses: Vec<&str> = servers.iter().map(|server| server.addr.as_str()).collect();
    StoreError::retryable(format!(
        "{} {what}, so it is not clear which one to use: make all but one replicas of that one (`replicaof HOST PORT`), or name only \
         that one in `redis.addr`",
        addresses.join(" and "),
    ))
}

/// The command by which one becomes a replica of another.
fn replicaof(server: &Seen, primary: &Seen) -> String {
    let parts = |addr: &str| {
        let (host, port) = addr.rsplit_once(':').unwrap_or((addr, "6379"));
        (host.to_owned(), port.to_owned())
    };
    let ((host, port), (to_host, to_port)) = (parts(&server.addr), parts(&primary.addr));
    format!("redis-cli -h {host} -p {port} replicaof {to_host} {to_port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(addr: &str, store: Option<u64>, [term, event, writes]: [u64; 3]) -> Seen {
        Seen {
            addr: addr.to_owned(),
            process: format!("process of {addr}"),
            is_replica: false,
            store: store.map(StoreId),
            progress: Progress { term, event, writes },
        }
    }

    fn replica(addr: &str, store: Option<u64>, progress: [u64; 3]) -> Seen {
        Seen { is_replica: true, ..primary(addr, store, progress) }
    }

    /// Whom all choose, in whatever order they name them.
    fn chosen(mut seen: Vec<Seen>, ours: Option<u64>) -> Result<Chosen, String> {
        let ours = ours.map(StoreId);
        let one = choose(&seen, ours).map_err(|error| error.message);
        seen.reverse();
        let other = choose(&seen, ours);
        assert_eq!(
            one.as_ref().ok().map(|one| &one.addr),
            other.as_ref().ok().map(|one| &one.addr)
        );
        one
    }

    #[test]
    fn the_primary_that_is_further_is_used_and_the_other_is_told_of() {
        let further = [[2, 0, 0], [1, 6, 0], [1, 5, 8]];
        for progress in further {
            let seen = vec![primary("a:1", Some(7), [1, 5, 7]), primary("b:2", Some(7), progress)];
            let found = chosen(seen, None).unwrap();
            assert_eq!(found.addr, "b:2");
            let [warning] = found.warnings.as_slice() else { panic!("{found:?}") };
            assert!(warning.contains("redis-cli -h a -p 1 replicaof b 2"), "{warning}");
        }
    }

    #[test]
    fn a_primary_and_its_replica_are_nothing_to_tell() {
        let seen = vec![replica("a:1", Some(7), [9, 9, 9]), primary("b:2", Some(7), [1, 1, 1])];
        let found = chosen(seen, Some(7)).unwrap();
        assert_eq!((found.addr.as_str(), found.warnings.len()), ("b:2", 0));
        assert_eq!(chosen(vec![replica("a:1", Some(7), [1, 1, 1])], None).unwrap_err(), REPLICAS);
    }

    #[test]
    fn one_server_under_two_names_is_one() {
        let one = primary("a:1", Some(7), [1, 1, 1]);
        let same = Seen { addr: "b:1".to_owned(), ..one.clone() };
        assert_eq!(choose(&[one, same], None).unwrap().warnings, [""; 0]);
    }

    #[test]
    fn where_nothing_decides_none_is_used() {
        let like = |store| vec![primary("a:1", store, [1, 1, 1]), primary("b:2", store, [1, 1, 1])];
        assert!(chosen(like(Some(7)), None).unwrap_err().contains("neither is further"));
        assert!(chosen(like(None), None).unwrap_err().contains("holds a store yet"));
        assert!(chosen(like(Some(8)), Some(7)).unwrap_err().contains("this store any more"));
        let different =
            vec![primary("a:1", Some(7), [1, 1, 1]), primary("b:2", Some(8), [2, 2, 2])];
        assert!(chosen(different, None).unwrap_err().contains("different stores"));
    }

    #[test]
    fn servers_of_another_store_and_of_none_are_told_of() {
        let seen = vec![
            primary("a:1", Some(8), [9, 9, 9]),
            primary("b:2", Some(7), [1, 1, 1]),
            primary("c:3", None, [0, 0, 0]),
        ];
        let found = chosen(seen, Some(7)).unwrap();
        assert_eq!((found.addr.as_str(), found.warnings.len()), ("b:2", 2));
        let fresh = vec![primary("b:2", Some(7), [1, 1, 1]), primary("c:3", None, [0, 0, 0])];
        assert_eq!(chosen(fresh, None).unwrap().addr, "b:2");
        // Emptied under us, and its replica with it.
        let emptied = vec![primary("a:1", None, [0, 0, 0]), replica("b:2", None, [0, 0, 0])];
        assert_eq!(chosen(emptied, Some(7)).unwrap().addr, "a:1");
    }
}
