//! What is done about a place that has forgotten what it acknowledged.

use std::sync::atomic::Ordering;

use interlock_store::{Role, Shard, StoreError};
use interlock_store_remote::NUMBERS_SKIPPED;
use redis::Value;

use crate::{
    link::Script,
    numbers,
    place::Place,
    request::{Server, number, text},
    server::made_of,
};

const ROLES: [Role; 2] = [Role::Engine, Role::Watchdog];

/// Ends every term there, since nobody knows any more what was done under it; owners then read again. Who only remembers a number
/// (0 if it is not that) does nothing if somebody else was first.
pub(crate) async fn recover(
    server: &Server,
    place: &Place,
    (acknowledged, remembered): (u64, u64),
) -> Result<(), StoreError> {
    let is_done = if let Some(shard) = place.shard {
        // What the shard was given and has forgotten must not be written by somebody who is late.
        let last = lost(server, shard).await?;
        forgotten(server, place, &[shard], Loss { acknowledged, last, ..Loss::default() }).await?
    } else {
        // What the shards have was given here once.
        let highest = numbers::highest(server).await?;
        let last = server.last_event.load(Ordering::Relaxed).max(highest);
        let identity = server.link.identity();
        let made = made_of(server.places.layout(), server.shard_count(), identity).into();
        let all: Vec<Shard> = (0..server.shard_count()).map(Shard).collect();
        let loss = Loss { acknowledged, last, skipped: NUMBERS_SKIPPED, remembered, made };
        forgotten(server, place, &all, loss).await?
    };
    if is_done { server.tell_rollback(place, acknowledged).await } else { Ok(()) }
}

/// What is known of what was forgotten.
#[derive(Default)]
struct Loss {
    acknowledged: u64,
    /// The last number that is known to have been given.
    last: u64,
    /// How many numbers after it are left out.
    skipped: u64,
    remembered: u64,
    /// What the store is made of: one that was emptied is the same store all the same.
    made: Vec<(&'static str, String)>,
}

async fn forgotten(
    server: &Server,
    place: &Place,
    shards: &[Shard],
    loss: Loss,
) -> Result<bool, StoreError> {
    let Loss { acknowledged, last, skipped, remembered, made } = loss;
    let apart = if place.shard.is_none() { server.places.shards.len() } else { 0 };
    let mut words = vec!["forgotten".to_owned(), server.client.clone(), acknowledged.to_string()];
    words.extend([last, skipped, remembered].map(|number| number.to_string()));
    words.extend([apart.to_string(), (shards.len() * ROLES.len()).to_string()]);
    for (shard, role) in shards.iter().flat_map(|shard| ROLES.map(|role| (*shard, role))) {
        words.extend(place.keys.lease(role, shard));
    }
    words.push(made.len().to_string());
    words.extend(made.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
    Ok(text(mend(server, place, words).await?)? != "0")
}

/// Ends the terms of a shard at home too; the last number that was given there.
async fn lost(server: &Server, shard: Shard) -> Result<u64, StoreError> {
    let home = &server.places.home;
    let leases = ROLES.map(|role| {
        let [lease, _lock] = home.keys.lease(role, shard);
        lease
    });
    let mut words = vec!["lost".to_owned(), leases.len().to_string()];
    words.extend(leases);
    number(mend(server, home, words).await?)
}

/// Has a shard write nothing any more up to a number.
pub(crate) async fn close(server: &Server, place: &Place, up_to: u64) -> Result<(), StoreError> {
    let words = vec!["close".to_owned(), up_to.to_string()];
    let closed: u64 = number(mend(server, place, words).await?)?;
    place.closes(closed);
    Ok(())
}

async fn mend(server: &Server, place: &Place, words: Vec<String>) -> Result<Value, StoreError> {
    let words = std::iter::once(&place.keys.prefix).chain(&words);
    let all: Vec<&[u8]> = words.map(String::as_bytes).collect();
    server.link.run(&place.anchor, Script::Recover, &all).await
}
