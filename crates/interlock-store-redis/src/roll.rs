//! Who is there, and who holds what.

use std::collections::{BTreeMap, BTreeSet};

use interlock_store::{Role, Roll, Shard, StoreError};
use interlock_store_remote::{instant, whole_ttl};
use jiff::SignedDuration;

use crate::{
    link::Script,
    request::{Server, list, number, text},
};

const INSTANCES: &str = "instances";

/// Says that an instance is there for a while; those that are gone are forgotten.
pub(crate) async fn announce(
    server: &Server,
    role: Role,
    instance: &str,
    ttl: SignedDuration,
) -> Result<(), StoreError> {
    let member = format!("{} {instance}", role.as_str());
    let ttl = whole_ttl(ttl).to_string();
    let home = &server.places.home;
    let arguments = vec!["announce".to_owned(), home.keys.name(INSTANCES), member, ttl];
    server.write(home, Script::Lease, arguments).await.map(drop)
}

/// Everything at one instant: the home has a copy of each lease.
pub(crate) async fn roll(server: &Server) -> Result<Roll, StoreError> {
    let home = &server.places.home;
    let shards = (0..server.shard_count()).map(Shard);
    let places: Vec<_> =
        shards.flat_map(|shard| [(Role::Engine, shard), (Role::Watchdog, shard)]).collect();
    let mut arguments =
        vec!["roll".to_owned(), home.keys.name(INSTANCES), places.len().to_string()];
    for (role, shard) in &places {
        let [lease, _lock] = home.keys.lease(*role, *shard);
        arguments.push(lease);
    }
    let mut answer = list(server.read(home, arguments).await?)?.into_iter();
    let now = instant(answer.next().map(number).transpose()?.unwrap_or_default())?;
    let mut present = BTreeSet::new();
    for member in answer.next().map(list).transpose()?.unwrap_or_default() {
        let member = text(member)?;
        let Some((word, name)) = member.split_once(' ') else { continue };
        present.extend(Role::parse(word).map(|role| (role, name.to_owned())));
    }
    let mut held = BTreeMap::new();
    for (place, lease) in
        places.into_iter().zip(answer.next().map(list).transpose()?.unwrap_or_default())
    {
        let mut parts = list(lease)?.into_iter();
        if let (Some(holder), Some(expires)) = (parts.next(), parts.next()) {
            held.insert(place, (text(holder)?, instant(number(expires)?)?));
        }
    }
    Ok(Roll { now, present, held })
}
