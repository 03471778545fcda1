//! Requests that change something: done once, and noticed if the place that did it has forgotten one.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use interlock_core::id::PipelineId;
use interlock_store::{Mark, Recalled, Shard, StoreError, StoreId};
use interlock_store_remote::{EVERY_TERM, OnRollback, THE_STORE, forgotten, letter};
use redis::{Cmd, FromRedisValue, Value};

use crate::{
    link::{Link, Script},
    numbers::{self, Numbers, Wanted},
    place::{Place, Places},
    queue, recover,
    server::beside,
};

/// How long the server keeps an answer: longer than a request is sent again.
const ANSWER_KEPT_MS: &str = "60000";

/// How often a request asks for other numbers because somebody else's were written first. One of those who race always gets on.
const LATE_MAX: usize = 100;

/// How it comes about.
const HOW: &str = "a failover, or a restart without `appendfsync always`";

/// What all requests share.
pub(crate) struct Server {
    pub(crate) link: Link,
    pub(crate) places: Places,
    /// Who we are to the server.
    pub(crate) client: String,
    sent: AtomicU64,
    /// The highest number that we know was given.
    pub(crate) last_event: AtomicU64,
    pub(crate) rollbacks: AtomicU64,
    on_rollback: Option<OnRollback>,
}

/// Something to be done once.
struct Request {
    id: String,
    packed: Vec<u8>,
}

/// What a place says to a request.
enum Answer {
    Done(Vec<Value>),
    /// Its numbers come too late: up to this one all is written.
    Late(u64),
}

impl Server {
    pub(crate) fn new(
        link: Link,
        places: Places,
        client: String,
        on_rollback: Option<OnRollback>,
    ) -> Self {
        Self {
            link,
            places,
            client,
            sent: AtomicU64::new(0),
            last_event: AtomicU64::new(0),
            rollbacks: AtomicU64::new(0),
            on_rollback,
        }
    }

    pub(crate) fn shard_count(&self) -> u16 {
        self.places.count
    }

    /// Asks something of a place.
    pub(crate) async fn read(
        &self,
        place: &Place,
        arguments: Vec<String>,
    ) -> Result<Value, StoreError> {
        place.check()?;
        let words = std::iter::once(&place.keys.prefix).chain(&arguments);
        let all: Vec<&[u8]> = words.map(String::as_bytes).collect();
        self.link.run(&place.anchor, Script::Read, &all).await
    }

    /// The same by a plain command.
    pub(crate) async fn ask<T: FromRedisValue>(
        &self,
        place: &Place,
        command: &Cmd,
    ) -> Result<T, StoreError> {
        place.check()?;
        self.link.ask(&place.anchor, command).await
    }

    /// Changes something in a place, once; the answer without what is only between us.
    pub(crate) async fn write(
        &self,
        place: &Place,
        script: Script,
        arguments: Vec<String>,
    ) -> Result<Vec<Value>, StoreError> {
        match self.send(place, script, &self.request(&arguments), &[]).await? {
            Answer::Done(parts) => Ok(parts),
            Answer::Late(_) => Err(strange("numbers that come too late, and there were none")),
        }
    }

    /// The same, where the home has to give numbers for it first.
    pub(crate) async fn write_numbered(
        &self,
        place: &Place,
        (script, wanted): (Script, Wanted),
        arguments: Vec<String>,
    ) -> Result<Vec<Value>, StoreError> {
        let request = self.request(&arguments);
        for _ in 0..LATE_MAX {
            let numbers: Numbers = numbers::reserve(self, place, wanted).await?;
            match self.send(place, script, &request, &numbers.words()).await? {
                Answer::Done(parts) => {
                    place.closes(numbers.last);
                    return Ok(parts);
                }
                Answer::Late(closed) => drop(self.last_event.fetch_max(closed, Ordering::Relaxed)),
            }
        }
        Err(StoreError::retryable("others were always faster to write to the shard"))
    }

    fn request(&self, arguments: &[String]) -> Request {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        Request { id: format!("{}-{number}", self.client), packed: packed(arguments) }
    }

    async fn send(
        &self,
        place: &Place,
        script: Script,
        request: &Request,
        more: &[String],
    ) -> Result<Answer, StoreError> {
        place.check()?;
        loop {
            let acknowledged = place.acknowledged.load(Ordering::Acquire);
            let count = acknowledged.to_string();
            let words = [&place.keys.prefix, &request.id, ANSWER_KEPT_MS, &self.client, &count];
            let mut all = words.map(str::as_bytes).to_vec();
            all.push(&request.packed);
            all.extend(more.iter().map(String::as_bytes));
            let answer = list(self.link.run(&place.anchor, script, &all).await?)?;
            let mut parts = answer.into_iter();
            let first = parts.next().map(text).transpose()?.unwrap_or_default();
            match first.as_str() {
                "rollback" => recover::recover(self, place, (acknowledged, 0)).await?,
                "late" => return Ok(Answer::Late(parts.next().map_or(Ok(0), number)?)),
                count => {
                    let count =
                        count.parse().map_err(|_broken| strange("an answer without a number"))?;
                    place.acknowledged.fetch_max(count, Ordering::AcqRel);
                    return Ok(Answer::Done(parts.collect()));
                }
            }
        }
    }

    /// Which store it is, and the last number that it has given.
    pub(crate) async fn mark(&self) -> Result<Mark, StoreError> {
        let home = &self.places.home;
        let mut ask = redis::cmd("HMGET");
        ask.arg(&home.anchor).arg("identity").arg("event");
        let found: Vec<Option<String>> = self.ask(home, &ask).await?;
        let mut found = found.into_iter().map(Option::unwrap_or_default);
        let (identity, number) = (found.next().unwrap_or_default(), found.next());
        // Nothing at all is what a server that was emptied says; then it is a store that nobody knows.
        let store = StoreId::parse(&identity).unwrap_or(StoreId(0));
        Ok(Mark { store, number: number.and_then(|text| text.parse().ok()).unwrap_or(0) })
    }

    /// Compares with what somebody remembers of before; and on a cluster the places with what they know of each other.
    pub(crate) async fn recall(&self, remembered: Mark) -> Result<Recalled, StoreError> {
        let (highest, behind) = numbers::compared(self).await?;
        let mark = self.mark().await?;
        let recalled = mark.recall(Mark { number: remembered.number.max(highest), ..remembered });
        match recalled {
            Recalled::Another => {}
            Recalled::Forgotten => {
                let number = remembered.number.max(highest);
                self.last_event.fetch_max(number, Ordering::Relaxed);
                let home = &self.places.home;
                let acknowledged = home.acknowledged.load(Ordering::Acquire);
                recover::recover(self, home, (acknowledged, number)).await?;
            }
            Recalled::Kept => {
                for place in &behind {
                    let acknowledged = place.acknowledged.load(Ordering::Acquire);
                    recover::recover(self, place, (acknowledged, 0)).await?;
                }
                if !behind.is_empty() {
                    return Ok(Recalled::Forgotten);
                }
            }
        }
        Ok(recalled)
    }

    /// Tells whoever hears of it that a place has forgotten something, and has people told.
    pub(crate) async fn tell_rollback(
        &self,
        place: &Place,
        acknowledged: u64,
    ) -> Result<(), StoreError> {
        self.rollbacks.fetch_add(1, Ordering::Relaxed);
        let (thing, message) = match place.shard {
            Some(shard) => self.of_a_server(place, shard).await,
            None => (THE_STORE.to_owned(), forgotten("Redis", HOW, EVERY_TERM)),
        };
        if let Some(tell) = &self.on_rollback {
            tell(&format!("STORE_ROLLBACK: {message}"));
        }
        let which = place.shard.map_or_else(String::new, |shard| format!("/{}", shard.0));
        let key = format!("rollback/{}{which}/{acknowledged}", self.client);
        let record = letter(&thing, message);
        Box::pin(queue::post(self, &PipelineId::system(), &key, record.encode())).await
    }

    /// What is said of a server of a cluster. Its shards were lost together, and are one trouble: each that is found to have lost something
    /// is an event, and joins the incident of the first.
    async fn of_a_server(&self, place: &Place, shard: Shard) -> (String, String) {
        let server = format!("Redis at {}", self.link.whom(&place.anchor));
        // That it cannot be asked now makes the letter no less urgent.
        let found = beside(&self.link, &self.places, place).await;
        let shards = found.ok().filter(|found| found.contains(&shard)).unwrap_or(vec![shard]);
        let shards: Vec<_> = shards.iter().map(|shard| shard.0.to_string()).collect();
        let which = format!("{server}, on which shards {} of the store are,", shards.join(", "));
        let ended =
            format!("the terms of shard {}, and of each other that has lost any, were", shard.0);
        (server, forgotten(&which, HOW, &ended))
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("home", &self.places.home).finish_non_exhaustive()
    }
}

/// Words as one: a list of texts in the form of `cmsgpack`, which the server's scripts can read.
fn packed(words: &[String]) -> Vec<u8> {
    let size = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    let length: usize = words.iter().map(|word| word.len() + 5).sum();
    let mut bytes = Vec::with_capacity(length + 5);
    bytes.push(0xdd);
    bytes.extend(size(words.len()));
    for word in words {
        match u8::try_from(word.len()) {
            Ok(short @ ..32) => bytes.push(0xa0 | short),
            Ok(length) => bytes.extend([0xd9, length]),
            Err(_longer) => {
                bytes.push(0xdb);
                bytes.extend(size(word.len()));
            }
        }
        bytes.extend(word.as_bytes());
    }
    bytes
}

/// A list out of an answer.
pub(crate) fn list(value: Value) -> Result<Vec<Value>, StoreError> {
    redis::from_redis_value(value).map_err(|error| strange(&error.to_string()))
}

/// A text out of an answer.
pub(crate) fn text(value: Value) -> Result<String, StoreError> {
    redis::from_redis_value(value).map_err(|error| strange(&error.to_string()))
}

/// A text out of an answer, or nothing.
pub(crate) fn optional(value: Value) -> Result<Option<String>, StoreError> {
    redis::from_redis_value(value).map_err(|error| strange(&error.to_string()))
}

/// A number out of an answer.
pub(crate) fn number<T: std::str::FromStr>(value: Value) -> Result<T, StoreError> {
    let said = text(value)?;
    said.parse().map_err(|_broken| strange(&format!("`{said}` for a number")))
}

fn strange(what: &str) -> StoreError {
    StoreError::permanent(format!("Redis gave a strange answer: {what}"))
}
