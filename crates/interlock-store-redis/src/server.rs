//! What a server must promise before anything is kept on it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    time::Duration,
};

use interlock_store::{Away, Shard, StoreError, StoreId, for_each};
use interlock_store_remote::chance;
use tokio::time::timeout;

use crate::{
    keys::Keys,
    link::Link,
    place::{Layout, Place, Places},
};

/// The oldest major version that has all that is used.
const OLDEST: u32 = 7;
/// The format of the keys, on a server that stands alone and on a cluster.
const FORMAT: &str = "1";
const FORMAT_APART: &str = "2";

/// How long the server of a shard may be looked for before others are turned to.
const VISIT_MAX: Duration = Duration::from_secs(2);

/// What can be left to a server.
#[derive(Debug)]
pub(crate) enum Fitness {
    /// Nothing: it loses what it acknowledges.
    Unfit(String),
    /// What is recorded.
    Fit(Findings),
}

/// What the owner of a server should know.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// It may lose what it acknowledges.
    pub(crate) dangers: Vec<String>,
    /// It loses nothing by that, or nobody knows.
    pub(crate) notes: Vec<String>,
    /// What could not be looked at now.
    pub(crate) away: Vec<Away>,
}

impl Findings {
    /// All of it, for whoever begins on a store of so many shards.
    pub(crate) fn all(&self, count: u16) -> Vec<String> {
        let away = self.away.iter().map(|away| away.sentence(count));
        self.dangers.iter().chain(&self.notes).cloned().chain(away).collect()
    }
}

/// Whom a check must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// All: a store is to be made.
    Everybody,
    /// The home. A shard whose server is away is only told of: whoever asks for others need not wait for it.
    Home,
}

/// Looks how the servers are set up that have a place of the store; refuses one on which nothing would work.
pub(crate) async fn check(
    link: &Link,
    places: &Places,
    presence: Presence,
) -> Result<Fitness, StoreError> {
    let (mut seen, mut all, mut away) = (BTreeSet::new(), Findings::default(), BTreeMap::new());
    let visits =
        for_each(
            places.all(),
            |place: &Place| async move { Ok((place, visit(link, place).await)) },
        );
    for (place, visited) in visits.await? {
        match (visited, place.shard) {
            (Err(error), Some(shard)) if error.is_retryable && presence == Presence::Home => {
                link.give_up(&place.anchor);
                away.entry(error.message).or_insert_with(Vec::new).push(shard);
                continue;
            }
            (visited, _) => visited?,
        }
        let addr = link.whom(&place.anchor);
        let said = |message: String| {
            if places.are_apart() { format!("{addr}: {message}") } else { message }
        };
        if !seen.insert(addr.clone()) {
            continue;
        }
        match check_one(link, place).await? {
            Fitness::Fit(Findings { dangers, notes, .. }) => {
                all.dangers.extend(dangers.into_iter().map(said));
                all.notes.extend(notes.into_iter().map(said));
            }
            Fitness::Unfit(message) => return Ok(Fitness::Unfit(said(message))),
        }
    }
    if !places.are_apart() {
        all.dangers.extend(link.rivals().await);
    }
    all.away = away.into_iter().map(|(why, shards)| Away { shards, why }).collect();
    Ok(Fitness::Fit(all))
}

/// Finds out who has a place; whoever has it is known after that.
async fn visit(link: &Link, place: &Place) -> Result<(), StoreError> {
    let mut exists = redis::cmd("EXISTS");
    let asked = link.ask(&place.anchor, exists.arg(&place.anchor));
    let Some(_shard) = place.shard else {
        let _found: i64 = asked.await?;
        return Ok(());
    };
    let silent = || {
        let addr = link.whom(&place.anchor);
        StoreError::retryable(format!("Redis at {addr} did not answer in time"))
    };
    let _found: i64 = timeout(VISIT_MAX, asked).await.map_err(|_elapsed| silent())??;
    refuse_moving(link, place).await
}

async fn check_one(link: &Link, place: &Place) -> Result<Fitness, StoreError> {
    let info: String = link.ask(&place.anchor, redis::cmd("INFO").arg("everything")).await?;
    let told: BTreeMap<&str, &str> =
        info.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
    let get = |name: &str| told.get(name).copied().unwrap_or_default();
    let major = get("redis_version").split('.').next().and_then(|text| text.parse::<u32>().ok());
    if major.is_none_or(|major| major < OLDEST) {
        let message = format!("this Redis is {}: Interlock needs 7 or later", get("redis_version"));
        return Err(StoreError::permanent(message));
    }
    let (policy, is_limited) = (get("maxmemory_policy"), get("maxmemory") != "0");
    if is_limited && policy.starts_with("allkeys") {
        return Ok(Fitness::Unfit(format!(
            "this Redis deletes keys when it is full (`maxmemory-policy {policy}`), and with them what is recorded: set it to \
             `noeviction`"
        )));
    }
    let mut findings = match persistence((link, place), get("aof_enabled")).await {
        Fitness::Fit(findings) => findings,
        unfit @ Fitness::Unfit(_) => return Ok(unfit),
    };
    if is_limited && policy.starts_with("volatile") {
        findings.dangers.push(format!(
            "this Redis deletes keys that expire when it is full (`maxmemory-policy {policy}`): a request may then be done twice, \
             or be taken for forgotten; set it to `noeviction`"
        ));
    } else if policy.starts_with("allkeys") {
        // A limit can be set at any time, and takes effect at once.
        findings.dangers.push(format!(
            "this Redis would delete what is recorded as soon as it is given a `maxmemory` (`maxmemory-policy {policy}`): set it \
             to `noeviction`"
        ));
    }
    if get("cluster_enabled") == "1"
        && setting((link, place), "cluster-require-full-coverage").await.as_deref() == Some("yes")
    {
        findings.notes.push(
            "one server of this Redis Cluster that is away stops the shards of all of them (`cluster-require-full-coverage yes`): \
             set it to `no`"
                .to_owned(),
        );
    }
    Ok(Fitness::Fit(findings))
}

/// A setting of a server; nothing if it does not tell.
async fn setting((link, place): (&Link, &Place), name: &str) -> Option<String> {
    let found: Result<BTreeMap<String, String>, _> =
        link.ask(&place.anchor, redis::cmd("CONFIG").arg("GET").arg(name)).await;
    found.ok().and_then(|found| found.into_values().next())
}

/// While a slot moves from one server of a cluster to another, its keys are on both, and the shard stands still.
async fn refuse_moving(link: &Link, place: &Place) -> Result<(), StoreError> {
    let anchor = &place.anchor;
    let slot: u16 = link.ask(anchor, redis::cmd("CLUSTER").arg("KEYSLOT").arg(anchor)).await?;
    let nodes: String = link.ask(anchor, redis::cmd("CLUSTER").arg("NODES")).await?;
    if nodes.contains(&format!("[{slot}-")) {
        let message = "their hash slots are being moved to another server of the cluster: wait until they are there";
        return Err(StoreError::retryable(message));
    }
    Ok(())
}

/// The shards that are on one server with a place, by what that server says.
pub(crate) async fn beside(
    link: &Link,
    places: &Places,
    place: &Place,
) -> Result<Vec<Shard>, StoreError> {
    let nodes: String = link.ask(&place.anchor, redis::cmd("CLUSTER").arg("NODES")).await?;
    let slots = own_slots(&nodes);
    let slots = &slots;
    let found = for_each(places.shards.iter().collect(), |other: &Place| async move {
        let mut ask = redis::cmd("CLUSTER");
        let slot: u16 = link.ask(&place.anchor, ask.arg("KEYSLOT").arg(&other.anchor)).await?;
        let is_here = slots.iter().any(|range| range.contains(&slot));
        Ok(other.shard.filter(|_| is_here))
    });
    Ok(found.await?.into_iter().flatten().collect())
}

/// The hash slots of the server that says this: `ID HOST:PORT@BUS myself,master - 0 0 1 connected 0-5460 5500 [77->-ID]`.
fn own_slots(nodes: &str) -> Vec<RangeInclusive<u16>> {
    let own = nodes.lines().find(|line| {
        line.split(' ').nth(2).is_some_and(|flags| flags.split(',').any(|flag| flag == "myself"))
    });
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    own.into_iter().flat_map(|line| line.split(' ').skip(8)).filter_map(range).collect()
}

async fn persistence(server: (&Link, &Place), log: &str) -> Fitness {
    let danger =
        |message: String| Fitness::Fit(Findings { dangers: vec![message], ..Findings::default() });
    if log != "1" {
        return match setting(server, "save").await.as_deref() {
            Some("") => Fitness::Unfit(
                "this Redis keeps nothing on disk: start it with `appendonly yes` and `appendfsync always`"
                    .to_owned(),
            ),
            Some(_) | None => danger(
                "this Redis has no append-only file: a restart forgets minutes of what was acknowledged; start it with \
                 `appendonly yes` and `appendfsync always`"
                    .to_owned(),
            ),
        };
    }
    match setting(server, "appendfsync").await.as_deref() {
        Some("always") => Fitness::Fit(Findings::default()),
        Some(other) => danger(format!(
            "this Redis has `appendfsync {other}`: a failing machine forgets what was acknowledged last; `always` does not"
        )),
        // Managed servers do not tell their settings: that must not be an incident for ever.
        None => Fitness::Fit(Findings {
            notes: vec![
                "this Redis does not tell whether it has `appendfsync always`, without which a failing machine forgets what was \
                 acknowledged last: allow the user `+config|get`, or look yourself"
                    .to_owned(),
            ],
            ..Findings::default()
        }),
    }
}

/// Makes the store with so many shards, unless it is there.
pub(crate) async fn make(
    link: &Link,
    (home, layout): (&Keys, Layout),
    shards: u16,
) -> Result<(), StoreError> {
    let about = home.name("about");
    for (name, value) in made_of(layout, shards, StoreId(chance())) {
        let mut set = redis::cmd("HSETNX");
        let _made: i64 = link.ask(&about, set.arg(&about).arg(name).arg(value)).await?;
    }
    Ok(())
}

/// What says that there is a store, and which: without all of it nobody finds one.
pub(crate) fn made_of(
    layout: Layout,
    shards: u16,
    identity: StoreId,
) -> [(&'static str, String); 3] {
    [
        ("format", format_of(layout).to_owned()),
        ("shards", shards.max(1).to_string()),
        ("identity", identity.to_string()),
    ]
}

/// How many shards the store has; nothing if it is not there.
pub(crate) async fn shard_count(
    link: &Link,
    (home, layout): (&Keys, Layout),
) -> Result<Option<u16>, StoreError> {
    let about = home.name("about");
    let mut get = redis::cmd("HMGET");
    get.arg(&about).arg("format").arg("shards");
    let found: Vec<Option<String>> = link.ask(&about, &get).await?;
    if found.iter().all(Option::is_none) {
        return Ok(None);
    }
    let mut found = found.into_iter().map(Option::unwrap_or_default);
    let (kept, shards) = (found.next().unwrap_or_default(), found.next().unwrap_or_default());
    if layout == Layout::Apart && kept == FORMAT {
        let message = format!(
            "the store under `{}` was made when all of a store was one hash slot of a cluster; now each shard is one: use another \
             `redis.keyPrefix`, or delete these keys; nothing was changed",
            home.prefix
        );
        return Err(StoreError::permanent(message));
    }
    let known = format_of(layout);
    if kept != known {
        let message = format!(
            "the keys under `{}` were written by another Interlock (format {kept}, this one knows {known}): use that version, or \
             another `redis.keyPrefix`; nothing was changed",
            home.prefix
        );
        return Err(StoreError::permanent(message));
    }
    if shards.is_empty() {
        // Somebody is just making it.
        return Ok(None);
    }
    shards.parse().map(Some).map_err(|_broken| {
        StoreError::permanent(format!("the store says that it has `{shards}` shards"))
    })
}

fn format_of(layout: Layout) -> &'static str {
    match layout {
        Layout::Together => FORMAT,
        Layout::Apart => FORMAT_APART,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_knows_its_own_hash_slots() {
        let nodes = "a1 10.0.0.1:1@2,one master - 0 1 2 connected 0-5460\n\
                     b2 10.0.0.2:1@2,two myself,master - 0 1 3 connected 5461-10922 12000 [77->-c3]\n\
                     c3 :0@0 slave,fail,noaddr b2 0 1 3 disconnected\n";
        assert_eq!(own_slots(nodes), [5461..=10_922, 12_000..=12_000]);
        assert_eq!(own_slots(""), []);
    }
}
