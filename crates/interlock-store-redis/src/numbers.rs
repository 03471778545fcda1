//! One order of events and changes over all shards of a cluster.
//!
//! Whoever reads all events up to a number must miss nothing below it, and a script sees one place only. So:
//!
//! - The home gives numbers to a shard before they are written there, and remembers the last that it gave to each.
//! - A shard remembers up to which number it is *closed*: nothing up to there is written any more. Writing closes it up to the last number
//!   of the request, and numbers that come later than higher ones are refused; whoever has them asks for others.
//! - Who reads asks the home for the last number given, waits until each shard is closed up to what it was given, and reads up to that
//!   number only. All that is written later has higher numbers.
//! - Numbers whose owner died are never written. They hold up a reader for [`GIVEN_UP_AFTER_MS`]; then it closes the shard itself.
//!
//! A shard that is closed less far than the home heard that it has written has forgotten something; so has a home that gave out
//! less than a shard has. Where everything is at home nothing of this is needed: the script that writes takes the numbers.

use std::{sync::atomic::Ordering, time::Duration};

use interlock_store::{StoreError, for_each};
use redis::Value;

use crate::{
    link::Script,
    place::Place,
    recover::{close, recover},
    request::{Server, list, number, text},
};

/// Numbers that were given longer ago than this, by the server's clock, and are not written may be written by nobody. Whoever was
/// only slow asks for others.
const GIVEN_UP_AFTER_MS: i64 = 3_000;
/// How long to wait for somebody who is just writing.
const PAUSE: Duration = Duration::from_millis(5);

/// How many numbers a request may need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) events: usize,
    /// For notes, if somebody archives.
    pub(crate) notes: usize,
}

/// Numbers for one request, and what the home knows that a shard needs to write.
pub(crate) struct Numbers {
    first: u64,
    pub(crate) last: u64,
    done: u64,
    followed: String,
    archived: String,
}

impl Numbers {
    /// As arguments of the script that writes them.
    pub(crate) fn words(&self) -> [String; 5] {
        let Self { first, last, done, followed, archived } = self;
        [first.to_string(), last.to_string(), done.to_string(), followed.clone(), archived.clone()]
    }
}

/// Has the home give numbers to a shard.
pub(crate) async fn reserve(
    server: &Server,
    place: &Place,
    Wanted { events, notes }: Wanted,
) -> Result<Numbers, StoreError> {
    let shard = place.shard.map_or(0, |shard| shard.0);
    let known = server.last_event.load(Ordering::Relaxed);
    let arguments = vec![
        known.to_string(),
        shard.to_string(),
        events.to_string(),
        notes.to_string(),
        place.closed().to_string(),
    ];
    let answer = server.write(&server.places.home, Script::Numbers, arguments).await?;
    let mut parts = answer.into_iter();
    let mut next = || parts.next().unwrap_or(Value::Nil);
    let (first, last, done) = (number(next())?, number(next())?, number(next())?);
    let (followed, archived) = (text(next())?, text(next())?);
    server.last_event.fetch_max(last, Ordering::Relaxed);
    Ok(Numbers { first, last, done, followed, archived })
}

/// What the home gave to a shard.
struct Given {
    last: u64,
    age_ms: i64,
    /// What it heard that the shard has written.
    done: u64,
}

/// The last number that was given, and what each shard was given.
async fn given(server: &Server) -> Result<(u64, Vec<Given>), StoreError> {
    let asked = vec!["numbers".to_owned(), server.places.shards.len().to_string()];
    let mut parts = list(server.read(&server.places.home, asked).await?)?.into_iter();
    let last = parts.next().map_or(Ok(0), number)?;
    let each = parts.map(|part| {
        let mut parts = list(part)?.into_iter();
        let mut next = || parts.next().unwrap_or(Value::Nil);
        Ok(Given { last: number(next())?, age_ms: number(next())?, done: number(next())? })
    });
    Ok((last, each.collect::<Result<_, StoreError>>()?))
}

/// Up to which number a shard is closed.
async fn closed(server: &Server, place: &Place) -> Result<u64, StoreError> {
    let mut ask = redis::cmd("HGET");
    ask.arg(&place.anchor).arg("event");
    let found: Option<u64> = server.ask(place, &ask).await?;
    let found = found.unwrap_or(0);
    place.closes(found);
    Ok(found)
}

/// The last number that was given, once everything up to there is written that ever will be in some places. Nothing where all is
/// at home.
pub(crate) async fn settled(server: &Server, places: &[&Place]) -> Result<Option<u64>, StoreError> {
    if !server.places.are_apart() {
        return Ok(None);
    }
    let (last, given) = given(server).await?;
    let open: Vec<(&Place, Given)> = server
        .places
        .shards
        .iter()
        .zip(given)
        .filter(|(place, _)| places.iter().any(|asked| std::ptr::eq(*asked, *place)))
        .filter(|(place, given)| place.closed() < given.last)
        .collect();
    for_each(open, |(place, given)| settle(server, place, given)).await?;
    Ok(Some(last))
}

/// The last number that is to be read, as the end of a range.
pub(crate) fn bound(up_to: Option<u64>) -> String {
    up_to.map_or_else(|| "+".to_owned(), |number| number.to_string())
}

/// Waits until a shard is closed up to what it was given.
async fn settle(server: &Server, place: &Place, given: Given) -> Result<(), StoreError> {
    let mut waited = 0;
    loop {
        let found = closed(server, place).await?;
        if found < given.done {
            let acknowledged = place.acknowledged.load(Ordering::Acquire);
            return recover(server, place, (acknowledged, 0)).await;
        }
        if found >= given.last {
            return Ok(());
        }
        if given.age_ms + waited >= GIVEN_UP_AFTER_MS {
            return close(server, place, given.last).await;
        }
        tokio::time::sleep(PAUSE).await;
        waited += PAUSE.as_millis() as i64;
    }
}

/// The highest number that a shard has: what the home gave at least.
pub(crate) async fn highest(server: &Server) -> Result<u64, StoreError> {
    let all = server.places.shards.iter().collect();
    let found = for_each(all, |place: &Place| closed(server, place)).await?;
    Ok(found.into_iter().max().unwrap_or(0))
}

/// The same of the shards that answer, and which of them have less than they said they have. One whose server is away is compared
/// when somebody writes to it.
pub(crate) async fn compared(server: &Server) -> Result<(u64, Vec<&Place>), StoreError> {
    if !server.places.are_apart() {
        return Ok((0, vec![]));
    }
    let (_, given) = given(server).await?;
    let all = server.places.shards.iter().zip(given).collect();
    let answers = for_each(all, |(place, given): (&Place, Given)| async move {
        match closed(server, place).await {
            Ok(closed) => Ok((closed, (closed < given.done).then_some(place))),
            Err(error) if error.is_retryable => Ok((0, None)),
            Err(error) => Err(error),
        }
    });
    let (closed, behind): (Vec<u64>, Vec<Option<&Place>>) = answers.await?.into_iter().unzip();
    Ok((closed.into_iter().max().unwrap_or(0), behind.into_iter().flatten().collect()))
}
