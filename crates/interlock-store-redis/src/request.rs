//! Requests that change something: done once, and noticed if the server has forgotten one.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use interlock_core::id::PipelineId;
use interlock_store::{Role, Shard, StoreError, record::InboxRecord};
use redis::Value;

use crate::{
    keys::Keys,
    link::{Link, Script},
    queue,
};

/// How long the server keeps an answer: longer than a request is sent again.
const ANSWER_KEPT_MS: &str = "60000";

/// What is said then.
const FORGOTTEN: &str = "Redis has forgotten writes that it acknowledged (a failover, or a restart without `appendfsync always`); \
     every term was ended, and owners read the store again: look whether jobs ran whose runs are not recorded";

/// Hears that the server has forgotten what it acknowledged.
pub type OnRollback = Arc<dyn Fn(&str) + Send + Sync>;

/// What all requests share.
pub(crate) struct Server {
    pub(crate) link: Link,
    pub(crate) keys: Keys,
    pub(crate) shards: AtomicU64,
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
                self.recover(acknowledged).await?;
                continue;
            }
            let count = first.parse().map_err(|_broken| strange("an answer without a number"))?;
            self.acknowledged.fetch_max(count, Ordering::AcqRel);
            return Ok(parts.collect());
        }
    }

    /// Ends every term, since nobody knows any more what was done under it; owners then read again.
    async fn recover(&self, acknowledged: u64) -> Result<(), StoreError> {
        let count = self.shard_count();
        let mut all = vec![
            self.keys.prefix.clone(),
            self.client.clone(),
            acknowledged.to_string(),
            self.last_event.load(Ordering::Relaxed).to_string(),
            (usize::from(count) * 2).to_string(),
        ];
        for shard in (0..count).map(Shard) {
            for role in [Role::Engine, Role::Watchdog] {
                all.extend(self.keys.lease(role, shard));
            }
        }
        let words: Vec<&[u8]> = all.iter().map(String::as_bytes).collect();
        self.link.run(Script::Recover, &words).await?;
        self.rollbacks.fetch_add(1, Ordering::Relaxed);
        if let Some(tell) = &self.on_rollback {
            tell(&format!("STORE_ROLLBACK: {FORGOTTEN}"));
        }
        // A letter, because whoever is the owner then has to know, and this process may end before it is.
        let record = InboxRecord::Noticed {
            event: "STORE_ROLLBACK".to_owned(),
            thing: "the store".to_owned(),
            message: FORGOTTEN.to_owned(),
            over: false,
        };
        let key = format!("rollback/{}/{acknowledged}", self.client);
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
