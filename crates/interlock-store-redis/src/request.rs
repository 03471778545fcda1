//! Requests that change something: done once, and noticed if the server has forgotten one.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use interlock_core::id::PipelineId;
use interlock_store::{Mark, Recalled, Role, Shard, StoreError, StoreId};
use interlock_store_remote::{NUMBERS_SKIPPED, OnRollback, forgotten, letter};
use redis::Value;

use crate::{
    keys::Keys,
    link::{Link, Script},
    queue,
};

/// How long the server keeps an answer: longer than a request is sent again.
const ANSWER_KEPT_MS: &str = "60000";

/// How it comes about.
const HOW: &str = "a failover, or a restart without `appendfsync always`";

/// What all requests share.
pub(crate) struct Server {
    pub(crate) link: Link,
    pub(crate) keys: Keys,
    pub(crate) shards: AtomicU64,
    /// Which store it was when it was opened.
    pub(crate) identity: AtomicU64,
    /// Who we are to the server.
    pub(crate) client: String,
    /// How many of our requests the server has acknowledged.
    acknowledged: AtomicU64,
    sent: AtomicU64,
    /// The number of the last event that we know of.
    pub(crate) last_event: AtomicU64,
    pub(crate) rollbacks: AtomicU64,
    pub(crate) on_rollback: Option<OnRollback>,
}

impl Server {
    pub(crate) fn new(
        link: Link,
        keys: Keys,
        client: String,
        on_rollback: Option<OnRollback>,
    ) -> Self {
        Self {
            link,
            keys,
            shards: AtomicU64::new(1),
            identity: AtomicU64::new(0),
            client,
            acknowledged: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            last_event: AtomicU64::new(0),
            rollbacks: AtomicU64::new(0),
            on_rollback,
        }
    }

    pub(crate) fn shard_count(&self) -> u16 {
        self.shards.load(Ordering::Relaxed) as u16
    }

    /// Asks something.
    pub(crate) async fn read(&self, arguments: Vec<String>) -> Result<Value, StoreError> {
        let words = std::iter::once(&self.keys.prefix).chain(&arguments);
        let all: Vec<&[u8]> = words.map(String::as_bytes).collect();
        self.link.run(Script::Read, &all).await
    }

    /// Changes something, once; the answer without what is only between us.
    pub(crate) async fn write(
        &self,
        script: Script,
        arguments: Vec<String>,
    ) -> Result<Vec<Value>, StoreError> {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}-{number}", self.client);
        let packed = packed(&arguments);
        loop {
            let acknowledged = self.acknowledged.load(Ordering::Acquire);
            let count = acknowledged.to_string();
            let words = [&self.keys.prefix, &id, ANSWER_KEPT_MS, &self.client, &count];
            let mut all = words.map(str::as_bytes).to_vec();
            all.push(&packed);
            let answer = list(self.link.run(script, &all).await?)?;
            let mut parts = answer.into_iter();
            let first = parts.next().map(text).transpose()?.unwrap_or_default();
            if first == "rollback" {
                self.recover(acknowledged, 0).await?;
                continue;
            }
            let count = first.parse().map_err(|_broken| strange("an answer without a number"))?;
            self.acknowledged.fetch_max(count, Ordering::AcqRel);
            return Ok(parts.collect());
        }
    }

    /// Which store it is, and the last number that it has given.
    pub(crate) async fn mark(&self) -> Result<Mark, StoreError> {
        let mut ask = redis::cmd("HMGET");
        ask.arg(self.keys.name("about")).arg("identity").arg("event");
        let found: Vec<Option<String>> = self.link.ask(&ask).await?;
        let mut found = found.into_iter().map(Option::unwrap_or_default);
        let (identity, number) = (found.next().unwrap_or_default(), found.next());
        // Nothing at all is what a server that was emptied says; then it is a store that nobody knows.
        let store = StoreId::parse(&identity).unwrap_or(StoreId(0));
        Ok(Mark { store, number: number.and_then(|text| text.parse().ok()).unwrap_or(0) })
    }

    /// Compares with what somebody remembers of before.
    pub(crate) async fn recall(&self, remembered: Mark) -> Result<Recalled, StoreError> {
        let recalled = self.mark().await?.recall(remembered);
        if recalled == Recalled::Forgotten {
            self.last_event.fetch_max(remembered.number, Ordering::Relaxed);
            let acknowledged = self.acknowledged.load(Ordering::Acquire);
            self.recover(acknowledged, remembered.number).await?;
        }
        Ok(recalled)
    }

    /// Ends every term, since nobody knows any more what was done under it; owners then read again. Who only remembers a
    /// number (0 if it is not that) does nothing if somebody else was first.
    async fn recover(&self, acknowledged: u64, remembered: u64) -> Result<(), StoreError> {
        let count = self.shard_count();
        let mut all = vec![
            self.keys.prefix.clone(),
            self.client.clone(),
            acknowledged.to_string(),
            self.last_event.load(Ordering::Relaxed).to_string(),
            NUMBERS_SKIPPED.to_string(),
            remembered.to_string(),
            StoreId(self.identity.load(Ordering::Relaxed)).to_string(),
            (usize::from(count) * 2).to_string(),
        ];
        for shard in (0..count).map(Shard) {
            for role in [Role::Engine, Role::Watchdog] {
                all.extend(self.keys.lease(role, shard));
            }
        }
        let words: Vec<&[u8]> = all.iter().map(String::as_bytes).collect();
        let done = text(self.link.run(Script::Recover, &words).await?)?;
        if done == "0" {
            return Ok(());
        }
        self.rollbacks.fetch_add(1, Ordering::Relaxed);
        let message = forgotten("Redis", HOW);
        if let Some(tell) = &self.on_rollback {
            tell(&format!("STORE_ROLLBACK: {message}"));
        }
        let key = format!("rollback/{}/{acknowledged}", self.client);
        let record = letter(message);
        Box::pin(queue::post(self, &PipelineId::system(), &key, record.encode())).await
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("keys", &self.keys).finish_non_exhaustive()
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
