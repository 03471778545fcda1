//! The way to the server: one connection that is made again when it breaks.
//!
//! In a cluster that is the server that has the store's hash slot. Every script names one key of it, so any other server
//! answers who has it; that one is asked from then on. When it is gone, the others are asked in turn.
//!
//! Every request that changes something has an id, and the server keeps its answer for a while. So a request
//! whose answer was lost is simply sent again, over the next connection: it is done once.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex as Lock, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use interlock_store::StoreError;
use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, RedisError, Value, aio::MultiplexedConnection,
};
use tokio::{
    sync::Mutex,
    time::{Instant, error::Elapsed, timeout},
};

use crate::{client::client, store::RedisSettings};

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// How long the server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long a request is sent again before it has failed, and after which pause.
const TRY_FOR: Duration = Duration::from_secs(8);
/// The same for one that finds nobody while the store is opened: a person waits to hear that the address is wrong.
const OPEN_FOR: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);

/// The scripts, each with the text that all share in front.
const SCRIPTS: [&str; 7] = [
    concat!(include_str!("scripts/prelude.lua"), include_str!("scripts/commit.lua")),
    concat!(include_str!("scripts/prelude.lua"), include_str!("scripts/lease.lua")),
    concat!(include_str!("scripts/prelude.lua"), include_str!("scripts/queue.lua")),
    concat!(include_str!("scripts/prelude.lua"), include_str!("scripts/read.lua")),
    concat!(include_str!("scripts/prelude.lua"), include_str!("scripts/recover.lua")),
    concat!(include_str!("scripts/prelude.lua"), include_str!("scripts/whole.lua")),
    concat!(include_str!("scripts/prelude.lua"), include_str!("scripts/forget.lua")),
];

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Script {
    Commit,
    Lease,
    Queue,
    Read,
    Recover,
    Whole,
    Forget,
}

/// A connection that works, as far as is known.
#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    hashes: Arc<Vec<String>>,
    number: u64,
}

/// The way to the server.
pub(crate) struct Link {
    settings: RedisSettings,
    /// Whom to ask: the first, and when it does not answer or only follows another the next. One alone, unless it is a
    /// cluster or several were named.
    nodes: Lock<VecDeque<String>>,
    /// A key that every script names.
    home: OnceLock<String>,
    live: Mutex<Option<Live>>,
    made: AtomicU64,
}

/// Why a request got no answer.
enum Trouble {
    /// Over this connection; another may do.
    Broken(StoreError),
    /// There was none to be had, or it ended.
    Away(StoreError),
    /// The server will not.
    Final(StoreError),
}

/// Why a server cannot be used.
enum Unfit {
    Said(RedisError),
    Silent,
    /// It follows another one.
    Replica,
}

impl From<RedisError> for Unfit {
    fn from(error: RedisError) -> Self {
        Self::Said(error)
    }
}

impl From<Elapsed> for Unfit {
    fn from(_: Elapsed) -> Self {
        Self::Silent
    }
}

impl Link {
    pub(crate) fn new(settings: &RedisSettings) -> Result<Self, StoreError> {
        let nodes: VecDeque<String> =
            settings.addr.split(',').map(|addr| addr.trim().to_owned()).collect();
        // Mistakes are found before anything is tried.
        for addr in &nodes {
            client(&RedisSettings { addr: addr.clone(), ..settings.clone() })?;
        }
        Ok(Self {
            settings: settings.clone(),
            nodes: Lock::new(nodes),
            home: OnceLock::new(),
            live: Mutex::new(None),
            made: AtomicU64::new(0),
        })
    }

    /// Whether it is a cluster; its other servers are then known too.
    pub(crate) async fn is_cluster(&self) -> Result<bool, StoreError> {
        let info: String = self.ask(redis::cmd("INFO").arg("cluster")).await?;
        if !info.lines().any(|line| line.trim_end() == "cluster_enabled:1") {
            return Ok(false);
        }
        let nodes: String = self.ask(redis::cmd("CLUSTER").arg("NODES")).await?;
        // `ID HOST:PORT@BUS,NAME FLAGS …`
        let others = nodes.lines().filter_map(|line| line.split(' ').nth(1)?.split('@').next());
        let mut known = self.nodes();
        for other in others.filter(|other| !other.starts_with(':')) {
            if !known.iter().any(|node| node == other) {
                known.push_back(other.to_owned());
            }
        }
        Ok(true)
    }

    /// Names the key by which the right server of a cluster is found.
    pub(crate) async fn settle_at(&self, home: String) {
        // Nobody else has named one: this is done once, by whoever opens the store.
        drop(self.home.set(home));
        *self.live.lock().await = None;
    }

    fn nodes(&self) -> std::sync::MutexGuard<'_, VecDeque<String>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whom to ask next, after an answer or none.
    fn turn(&self, error: Option<&RedisError>) {
        let mut nodes = self.nodes();
        match error
            .filter(|error| error.code() == Some("MOVED"))
            .and_then(RedisError::redirect_node)
        {
            Some((node, _slot)) => {
                nodes.retain(|known| known != node);
                nodes.push_front(node.to_owned());
            }
            None => nodes.rotate_left(1),
        }
    }

    /// Runs a script, however often the connection breaks meanwhile.
    pub(crate) async fn run(
        &self,
        script: Script,
        arguments: &[&[u8]],
    ) -> Result<Value, StoreError> {
        self.persist(|live| {
            let mut command = redis::cmd("EVALSHA");
            let home = self.home.get().map(String::as_str).into_iter();
            command.arg(live.hashes.get(script as usize));
            command.arg(home.len()).arg(home.collect::<Vec<_>>()).arg(arguments);
            command
        })
        .await
    }

    /// Runs a command that only reads.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        let value = self.persist(|_| command.clone()).await?;
        redis::from_redis_value(value).map_err(|error| StoreError::permanent(error.to_string()))
    }

    async fn persist(&self, command: impl Fn(&Live) -> Cmd) -> Result<Value, StoreError> {
        // All of it counts: an attempt over a way on which nothing comes back takes seconds itself.
        let began = Instant::now();
        loop {
            let is_open = self.home.get().is_some();
            let (error, patience) = match self.try_once(&command).await {
                Ok(value) => return Ok(value),
                Err(Trouble::Final(error)) => return Err(error),
                Err(Trouble::Away(error)) if !is_open => (error, OPEN_FOR),
                Err(Trouble::Away(error) | Trouble::Broken(error)) => (error, TRY_FOR),
            };
            if began.elapsed() >= patience {
                return Err(error);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_once(&self, command: &impl Fn(&Live) -> Cmd) -> Result<Value, Trouble> {
        let live = self.live().await?;
        let mut connection = live.connection.clone();
        let command = command(&live);
        let error = match timeout(ANSWER_MAX, command.query_async(&mut connection)).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => Some(error),
            Err(_elapsed) => None,
        };
        let trouble = error.as_ref().map_or_else(unanswered, said);
        if !matches!(trouble, Trouble::Final(_)) {
            let mut place = self.live.lock().await;
            if place.as_ref().is_some_and(|found| found.number == live.number) {
                *place = None;
                self.turn(error.as_ref());
            }
        }
        Err(trouble)
    }

    /// The connection: the one there is, else a new one with its scripts.
    async fn live(&self) -> Result<Live, Trouble> {
        let mut place = self.live.lock().await;
        if let Some(live) = &*place {
            return Ok(live.clone());
        }
        match self.connect().await {
            Ok((connection, hashes)) => {
                let number = self.made.fetch_add(1, Ordering::Relaxed);
                let live = Live { connection, hashes: Arc::new(hashes), number };
                *place = Some(live.clone());
                Ok(live)
            }
            Err(unfit) => {
                self.turn(if let Unfit::Said(error) = &unfit { Some(error) } else { None });
                Err(match &unfit {
                    Unfit::Said(error) => said(error),
                    Unfit::Silent => unanswered(),
                    Unfit::Replica => Trouble::Away(StoreError::retryable(
                        "this Redis is a replica, which takes no writes: name the primary in `redis.addr`, or both",
                    )),
                })
            }
        }
    }

    /// A connection to the server whose turn it is, if it has the home and takes writes.
    async fn connect(&self) -> Result<(MultiplexedConnection, Vec<String>), Unfit> {
        let addr = self.nodes().front().cloned().unwrap_or_default();
        let settings = RedisSettings { addr, ..self.settings.clone() };
        let client = client(&settings).map_err(|error| {
            RedisError::from((redis::ErrorKind::InvalidClientConfig, "address", error.message))
        })?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_MAX))
            .set_response_timeout(None);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = timeout(CONNECT_MAX, connecting).await??;
        // One that was the primary reads on after another has followed, and what it says is old.
        let mut role = redis::cmd("INFO");
        let role = role.arg("replication").query_async(&mut connection);
        let role: String = timeout(ANSWER_MAX, role).await??;
        if role.lines().any(|line| line.trim_end() == "role:slave") {
            return Err(Unfit::Replica);
        }
        if let Some(home) = self.home.get() {
            let mut find = redis::cmd("EXISTS");
            let found = find.arg(home).query_async(&mut connection);
            let _found: i64 = timeout(ANSWER_MAX, found).await??;
        }
        let mut hashes = Vec::with_capacity(SCRIPTS.len());
        for script in SCRIPTS {
            let mut load = redis::cmd("SCRIPT");
            let loading = load.arg("LOAD").arg(script).query_async(&mut connection);
            hashes.push(timeout(ANSWER_MAX, loading).await??);
        }
        Ok((connection, hashes))
    }
}

fn unanswered() -> Trouble {
    Trouble::Broken(StoreError::retryable("Redis did not answer in time"))
}

/// What an error of the server or of the way to it means.
fn said(error: &RedisError) -> Trouble {
    if error.kind() == redis::ErrorKind::AuthenticationFailed {
        return Trouble::Final(StoreError::permanent(
            "Redis does not take the password: `redis.password` must be that of the server, or of `redis.username` where it has \
             users",
        ));
    }
    let code = error.code().unwrap_or_default();
    match code {
        "NOAUTH" => Trouble::Final(StoreError::permanent(
            "Redis wants a password: name it in `redis.password`, such as `${REDIS_PASSWORD}`",
        )),
        // It has been started again, is not the primary any more, or is busy.
        "NOSCRIPT" | "LOADING" | "READONLY" | "MASTERDOWN" | "TRYAGAIN" | "BUSY"
        | "CLUSTERDOWN" | "MOVED" | "ASK" => {
            Trouble::Broken(StoreError::retryable(format!("Redis cannot do it now: {error}")))
        }
        "OOM" => Trouble::Final(StoreError::retryable(
            "Redis is full (`maxmemory`) and takes nothing more: give it more memory",
        )),
        "" => match distrust(&error.to_string()) {
            Some(message) => Trouble::Final(StoreError::permanent(message)),
            None => {
                Trouble::Away(StoreError::retryable(format!("Redis cannot be reached: {error}")))
            }
        },
        _ => Trouble::Final(StoreError::permanent(format!("Redis refused: {error}"))),
    }
}

/// What TLS found wrong, which another attempt does not mend. It comes as an error of the connection, and only its text tells.
fn distrust(said: &str) -> Option<String> {
    let text = said.to_lowercase();
    let what_to_do = if text.contains("alert") && text.contains("certificate") {
        "it wants to see a certificate of ours: name one in `redis.cert` and its key in `redis.key`"
    } else if text.contains("certificate") {
        "name the authority that signed it in `redis.ca`, and the server in `redis.addr` as its certificate does"
    } else {
        return None;
    };
    Some(format!("TLS with Redis failed: {said}; {what_to_do}"))
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client holds a password.
        f.debug_struct("Link").finish_non_exhaustive()
    }
}
