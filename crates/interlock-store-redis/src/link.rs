//! The way to the servers: a connection to each, made again when it breaks.
//!
//! Every request is for one place and names the key that stands for it, its anchor. On a cluster a server that does not have
//! the place answers who has it; that one is asked from then on. When it is gone, the others are asked in turn, and say who
//! follows. Without a cluster all anchors are on the same server: the primary of those that were named (`named`).
//!
//! Every request that changes something has an id, and the server keeps its answer for a while. So a request
//! whose answer was lost is simply sent again, over the next connection: it is done once.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex as Lock, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use interlock_store::{StoreError, StoreId, for_each};
use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, RedisError, Value, aio::MultiplexedConnection,
};
use tokio::{
    sync::Mutex,
    time::{Instant, error::Elapsed, timeout},
};

use crate::{
    client::client,
    keys::Keys,
    named::{Chosen, Progress, REPLICAS, Seen, choose},
    store::RedisSettings,
};

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// How long the server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long a request is sent again before it has failed, and after which pause.
const TRY_FOR: Duration = Duration::from_secs(8);
/// The same for one that finds nobody while the store is opened: a person waits to hear that the address is wrong.
const OPEN_FOR: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);
/// How long a reader tries a place that was tried in vain for long enough.
const GLANCE: Duration = Duration::from_secs(1);

/// The scripts, each with the text that all share in front.
const SCRIPTS: [&str; 8] = [
    concat!(include_str!("scripts/prelude.lua"), include_str!("scripts/commit.lua")),
    concat!(include_str!("scripts/prelude.lua"), include_str!("scripts/lease.lua")),
    concat!(include_str!("scripts/prelude.lua"), include_str!("scripts/queue.lua")),
    concat!(include_str!("scripts/prelude.lua"), include_str!("scripts/read.lua")),
    concat!(include_str!("scripts/prelude.lua"), include_str!("scripts/recover.lua")),
    concat!(include_str!("scripts/prelude.lua"), include_str!("scripts/whole.lua")),
    concat!(include_str!("scripts/prelude.lua"), include_str!("scripts/forget.lua")),
    concat!(include_str!("scripts/prelude.lua"), include_str!("scripts/numbers.lua")),
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
    Numbers,
}

/// A connection that works, as far as is known.
#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    hashes: Arc<Vec<String>>,
    number: u64,
}

/// A connection to one server, if there is one now.
#[derive(Default)]
struct Line {
    live: Option<Live>,
    /// When it was last tried in vain, and what came of it.
    failed: Option<(Instant, Trouble)>,
}

type Way = Arc<Mutex<Line>>;

/// Who wants an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asker {
    /// Who can do without: a place that nobody has reached for a while is tried once.
    Reader,
    /// Who has something to record, which should survive that a server follows another one.
    Writer,
}

/// The way to the servers.
pub(crate) struct Link {
    settings: RedisSettings,
    /// Those that the settings name.
    named: Vec<String>,
    /// Which store was opened, by which it is found among them.
    store: OnceLock<StoreId>,
    /// Whom to ask for what nobody is known to have: the first, and when it does not answer or only follows another the next.
    nodes: Lock<VecDeque<String>>,
    /// Whether the servers are a cluster, as the first one said that was asked.
    is_on_cluster: AtomicBool,
    /// Who has which place of a cluster, by its anchor.
    owners: Lock<BTreeMap<String, String>>,
    ways: Lock<BTreeMap<String, Way>>,
    /// From when on readers wait no more for a place that does not answer, by its anchor: all of them together wait once.
    given_up: Lock<BTreeMap<String, Instant>>,
    /// Whether somebody waits to hear that the address is wrong.
    is_opening: AtomicBool,
    made: AtomicU64,
}

/// Why a request got no answer.
#[derive(Debug, Clone)]
enum Trouble {
    /// Another server has the place.
    Elsewhere(StoreError),
    /// Over this connection; another may do.
    Broken(StoreError),
    /// There was none to be had, or it ended.
    Away(StoreError),
    /// The server will not.
    Final(StoreError),
}

impl Trouble {
    fn error(self) -> StoreError {
        match self {
            Self::Elsewhere(error)
            | Self::Broken(error)
            | Self::Away(error)
            | Self::Final(error) => error,
        }
    }
}

/// What a server is.
struct Nature {
    is_replica: bool,
    is_cluster: bool,
    /// By which it is known under whatever name.
    process: String,
}

/// Why a server cannot be used.
enum Unfit {
    Said(RedisError),
    Silent,
    /// It follows another one.
    Replica,
    /// It belongs to no cluster, and the store is on one.
    Alone,
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
        let named: Vec<String> =
            settings.addr.split(',').map(|addr| addr.trim().to_owned()).collect();
        // Mistakes are found before anything is tried.
        for addr in &named {
            client(&RedisSettings { addr: addr.clone(), ..settings.clone() })?;
        }
        Ok(Self {
            settings: settings.clone(),
            nodes: Lock::new(named.iter().cloned().collect()),
            named,
            store: OnceLock::new(),
            is_on_cluster: AtomicBool::new(false),
            owners: Lock::default(),
            ways: Lock::default(),
            given_up: Lock::default(),
            is_opening: AtomicBool::new(true),
            made: AtomicU64::new(0),
        })
    }

    /// Whether it is a cluster; its other servers are then known too.
    pub(crate) async fn is_cluster(&self) -> Result<bool, StoreError> {
        let info: String = self.ask("", redis::cmd("INFO").arg("cluster")).await?;
        let is_cluster = info.lines().any(|line| line.trim_end() == "cluster_enabled:1");
        self.is_on_cluster.store(is_cluster, Ordering::Relaxed);
        if is_cluster {
            let nodes: String = self.ask("", redis::cmd("CLUSTER").arg("NODES")).await?;
            // `ID HOST:PORT@BUS,NAME FLAGS …`
            let others = nodes.lines().filter_map(|line| line.split(' ').nth(1)?.split('@').next());
            for other in others.filter(|other| !other.starts_with(':')) {
                self.meet(other);
            }
        }
        Ok(is_cluster)
    }

    /// The store is open, and it is this one. From now on it is known that somebody is there.
    pub(crate) fn opened(&self, store: StoreId) {
        self.store.get_or_init(|| store);
        self.is_opening.store(false, Ordering::Relaxed);
    }

    pub(crate) fn identity(&self) -> StoreId {
        self.store.get().copied().unwrap_or(StoreId(0))
    }

    /// Whether servers were named among which there is something to choose; those of a cluster choose by themselves.
    pub(crate) fn names_several(&self) -> bool {
        self.named.len() > 1
    }

    /// Asks all that were named, unless one of them belongs to a cluster.
    async fn survey(&self) -> Vec<(&str, Result<Seen, Unfit>)> {
        let all = self.named.iter().map(String::as_str).collect();
        let asked = for_each(all, |addr: &str| async move {
            let seen = timeout(CONNECT_MAX, self.describe(addr)).await;
            Ok((addr, seen.unwrap_or(Err(Unfit::Silent))))
        });
        asked.await.unwrap_or_default()
    }

    /// Which one is to be used, and what is to be said of the others.
    async fn choose(&self) -> Result<Chosen, StoreError> {
        let seen = self.survey().await;
        let seen: Vec<Seen> = seen.into_iter().filter_map(|(_, seen)| seen.ok()).collect();
        choose(&seen, self.store.get().copied())
    }

    /// What is to be said of the servers that were named beside the one that is used.
    pub(crate) async fn rivals(&self) -> Vec<String> {
        if !self.names_several() {
            return vec![];
        }
        match self.choose().await {
            Ok(chosen) => chosen.warnings,
            Err(error) => vec![error.message],
        }
    }

    /// None was found: it may be on a server that cannot be asked.
    pub(crate) async fn require_all(&self) -> Result<(), StoreError> {
        if !self.names_several() {
            return Ok(());
        }
        for (addr, seen) in self.survey().await {
            if let Err(unfit) = seen {
                let why = trouble(addr, &unfit).error().message;
                return Err(StoreError::retryable(format!(
                    "no store was found, and {addr}, which may hold it, does not answer: {why}"
                )));
            }
        }
        Ok(())
    }

    /// Turns to another server if that one is further than the one that is used: both may have been taken for the only primary.
    pub(crate) async fn look(&self) {
        let used = self.whom("");
        let seen = self.survey().await;
        let seen: Vec<Seen> = seen.into_iter().filter_map(|(_, seen)| seen.ok()).collect();
        // One that is slow to answer is not left for one that is quick and old. If it is gone, the next request finds out.
        if seen.iter().any(|server| server.addr == used)
            && let Ok(Chosen { addr, .. }) = choose(&seen, self.store.get().copied())
            && addr != used
        {
            self.prefer(&addr);
            self.way(&used).lock().await.live = None;
        }
    }

    /// From now on this one is asked first.
    fn prefer(&self, addr: &str) {
        let mut nodes = held(&self.nodes);
        if let Some(at) = nodes.iter().position(|node| node == addr) {
            nodes.rotate_left(at);
        }
    }

    /// Remembers a server.
    fn meet(&self, node: &str) {
        let mut known = held(&self.nodes);
        if !known.iter().any(|other| other == node) {
            known.push_back(node.to_owned());
        }
    }

    /// Whom to ask for a place.
    pub(crate) fn whom(&self, anchor: &str) -> String {
        let owner = held(&self.owners).get(anchor).cloned();
        owner.or_else(|| held(&self.nodes).front().cloned()).unwrap_or_default()
    }

    fn way(&self, addr: &str) -> Way {
        Arc::clone(held(&self.ways).entry(addr.to_owned()).or_default())
    }

    /// A server has said who has a place.
    fn follow(&self, anchor: &str, (asked, node): (&str, &str)) {
        // Without a name it is on the machine that was asked.
        let host = asked.rsplit_once(':').map_or(asked, |(host, _)| host);
        let node = if node.starts_with(':') { format!("{host}{node}") } else { node.to_owned() };
        self.meet(&node);
        held(&self.owners).insert(anchor.to_owned(), node);
    }

    /// A server did not do what it was asked for: others are asked for this place.
    fn turn(&self, anchor: &str, asked: &str) {
        held(&self.owners).remove(anchor);
        let mut nodes = held(&self.nodes);
        if nodes.front().is_some_and(|first| first == asked) {
            nodes.rotate_left(1);
        }
    }

    /// Runs a script where a place is, however often the connection breaks meanwhile.
    pub(crate) async fn run(
        &self,
        anchor: &str,
        script: Script,
        arguments: &[&[u8]],
    ) -> Result<Value, StoreError> {
        let asker = if let Script::Read = script { Asker::Reader } else { Asker::Writer };
        self.persist(asker, anchor, |live| {
            let mut command = redis::cmd("EVALSHA");
            command.arg(live.hashes.get(script as usize)).arg(1).arg(anchor).arg(arguments);
            command
        })
        .await
    }

    /// Runs a command that only reads, where a place is.
    pub(crate) async fn ask<T: FromRedisValue>(
        &self,
        anchor: &str,
        command: &Cmd,
    ) -> Result<T, StoreError> {
        let value = self.persist(Asker::Reader, anchor, |_| command.clone()).await?;
        redis::from_redis_value(value).map_err(|error| StoreError::permanent(error.to_string()))
    }

    async fn persist(
        &self,
        asker: Asker,
        anchor: &str,
        command: impl Fn(&Live) -> Cmd,
    ) -> Result<Value, StoreError> {
        // All of it counts: an attempt over a way on which nothing comes back takes seconds itself.
        let began = Instant::now();
        let mut was_sent_on = false;
        loop {
            let is_opening = self.is_opening.load(Ordering::Relaxed);
            let (error, patience) = match self.attempt(asker, anchor, &command).await {
                Ok(value) => {
                    held(&self.given_up).remove(anchor);
                    return Ok(value);
                }
                Err(Trouble::Final(error)) => return Err(error),
                // Two that name each other would be asked without a pause.
                Err(Trouble::Elsewhere(_)) if !std::mem::replace(&mut was_sent_on, true) => {
                    continue;
                }
                Err(Trouble::Away(error)) if is_opening => (error, OPEN_FOR),
                Err(Trouble::Away(error) | Trouble::Broken(error) | Trouble::Elsewhere(error)) => {
                    (error, TRY_FOR)
                }
            };
            let until = *held(&self.given_up).entry(anchor.to_owned()).or_insert(began + patience);
            let is_given_up = asker == Asker::Reader && Instant::now() >= until;
            if is_given_up || began.elapsed() >= patience {
                return Err(error);
            }
            was_sent_on = false;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Readers wait for a place no more, until it has answered somebody.
    pub(crate) fn give_up(&self, anchor: &str) {
        held(&self.given_up).insert(anchor.to_owned(), Instant::now());
    }

    /// Tries once; for a reader shortly, if the place was tried in vain for long enough.
    async fn attempt(
        &self,
        asker: Asker,
        anchor: &str,
        command: &impl Fn(&Live) -> Cmd,
    ) -> Result<Value, Trouble> {
        let until = held(&self.given_up).get(anchor).copied();
        let is_given_up = until.is_some_and(|until| Instant::now() >= until);
        if asker == Asker::Writer || !is_given_up {
            return self.try_once(anchor, command).await;
        }
        let tried = timeout(GLANCE, self.try_once(anchor, command)).await;
        tried.unwrap_or_else(|_elapsed| Err(unanswered(&self.whom(anchor))))
    }

    async fn try_once(
        &self,
        anchor: &str,
        command: &impl Fn(&Live) -> Cmd,
    ) -> Result<Value, Trouble> {
        let addr = self.whom(anchor);
        let way = self.way(&addr);
        let live = match self.live(&addr, &way).await {
            Ok(live) => live,
            Err(trouble) => {
                self.turn(anchor, &addr);
                return Err(trouble);
            }
        };
        let mut connection = live.connection.clone();
        let command = command(&live);
        let error = match timeout(ANSWER_MAX, command.query_async(&mut connection)).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => Some(error),
            Err(_elapsed) => None,
        };
        let trouble = error.as_ref().map_or_else(|| unanswered(&addr), |error| said(&addr, error));
        if let (Trouble::Elsewhere(_), Some(error)) = (&trouble, &error) {
            match error.redirect_node() {
                Some((node, _slot)) => self.follow(anchor, (&addr, node)),
                None => self.turn(anchor, &addr),
            }
        } else if !matches!(trouble, Trouble::Final(_)) {
            let mut line = way.lock().await;
            if line.live.as_ref().is_some_and(|found| found.number == live.number) {
                line.live = None;
            }
            self.turn(anchor, &addr);
        }
        Err(trouble)
    }

    /// The connection to a server: the one there is, else a new one with its scripts.
    async fn live(&self, addr: &str, way: &Way) -> Result<Live, Trouble> {
        let came = Instant::now();
        let mut line = way.lock().await;
        if let Some(live) = &line.live {
            return Ok(live.clone());
        }
        // Whoever waited here while somebody else tried in vain need not find out the same: each would wait longer than the last.
        if let Some((at, trouble)) = &line.failed
            && *at >= came
        {
            return Err(trouble.clone());
        }
        let made = self.begin(addr).await;
        match &made {
            Ok(live) => *line = Line { live: Some(live.clone()), failed: None },
            Err(trouble) => line.failed = Some((Instant::now(), trouble.clone())),
        }
        made
    }

    /// Makes a connection to a server, if that is the one to be used.
    async fn begin(&self, addr: &str) -> Result<Live, Trouble> {
        let (connection, hashes, is_cluster) =
            self.connect(addr).await.map_err(|unfit| trouble(addr, &unfit))?;
        if self.names_several() && !is_cluster {
            let chosen = self.choose().await.map_err(Trouble::Away)?.addr;
            if chosen != addr {
                self.prefer(&chosen);
                let message = format!("{chosen} is further than {addr}, and both are primaries");
                return Err(Trouble::Elsewhere(StoreError::retryable(message)));
            }
        }
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        Ok(Live { connection, hashes: Arc::new(hashes), number })
    }

    /// A connection to a server, whatever it is.
    async fn open(&self, addr: &str) -> Result<(MultiplexedConnection, Nature), Unfit> {
        let settings = RedisSettings { addr: addr.to_owned(), ..self.settings.clone() };
        let client = client(&settings).map_err(|error| {
            RedisError::from((redis::ErrorKind::InvalidClientConfig, "address", error.message))
        })?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_MAX))
            .set_response_timeout(None);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = timeout(CONNECT_MAX, connecting).await??;
        let info = redis::cmd("INFO");
        let info: String = timeout(ANSWER_MAX, info.query_async(&mut connection)).await??;
        let says = |word: &str| info.lines().any(|line| line.trim_end() == word);
        let process = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        let nature = Nature {
            is_replica: says("role:slave"),
            is_cluster: says("cluster_enabled:1"),
            process: process.unwrap_or(addr).trim_end().to_owned(),
        };
        Ok((connection, nature))
    }

    /// What a server says of itself and of the store on it.
    async fn describe(&self, addr: &str) -> Result<Seen, Unfit> {
        let (mut connection, Nature { is_replica, process, .. }) = self.open(addr).await?;
        let home = Keys { prefix: self.settings.key_prefix.clone() };
        let mut ask = redis::cmd("HMGET");
        ask.arg(home.name("about")).arg(&["identity", "term", "event", "writes"]);
        let found: Vec<Option<String>> = ask.query_async(&mut connection).await?;
        let mut found = found.into_iter().map(Option::unwrap_or_default);
        let store = found.next().and_then(|text| StoreId::parse(&text));
        let mut number = || found.next().and_then(|text| text.parse().ok()).unwrap_or(0);
        let progress = Progress { term: number(), event: number(), writes: number() };
        Ok(Seen { addr: addr.to_owned(), process, is_replica, store, progress })
    }

    /// A connection to a server, if it takes writes, with its scripts; and whether it belongs to a cluster.
    async fn connect(
        &self,
        addr: &str,
    ) -> Result<(MultiplexedConnection, Vec<String>, bool), Unfit> {
        let (mut connection, nature) = self.open(addr).await?;
        // One that was the primary reads on after another has followed, and what it says is old.
        if nature.is_replica {
            return Err(Unfit::Replica);
        }
        // The others still name the address of a server that died. If another machine has got that address since, its Redis would be
        // taken for a place that has forgotten everything, and written to.
        if self.is_on_cluster.load(Ordering::Relaxed) && !nature.is_cluster {
            return Err(Unfit::Alone);
        }
        let mut hashes = Vec::with_capacity(SCRIPTS.len());
        for script in SCRIPTS {
            let mut load = redis::cmd("SCRIPT");
            let loading = load.arg("LOAD").arg(script).query_async(&mut connection);
            hashes.push(timeout(ANSWER_MAX, loading).await??);
        }
        Ok((connection, hashes, nature.is_cluster))
    }
}

fn held<T>(lock: &Lock<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn trouble(addr: &str, unfit: &Unfit) -> Trouble {
    match unfit {
        Unfit::Said(error) => said(addr, error),
        Unfit::Silent => unanswered(addr),
        Unfit::Replica => Trouble::Away(StoreError::retryable(REPLICAS)),
        Unfit::Alone => Trouble::Away(StoreError::retryable(format!(
            "Redis at {addr} does not belong to the cluster that the store is on: the server that had this address is gone"
        ))),
    }
}

fn unanswered(addr: &str) -> Trouble {
    Trouble::Broken(StoreError::retryable(format!("Redis at {addr} did not answer in time")))
}

/// What an error of the server or of the way to it means.
fn said(addr: &str, error: &RedisError) -> Trouble {
    if error.kind() == redis::ErrorKind::AuthenticationFailed {
        return Trouble::Final(StoreError::permanent(
            "Redis does not take the password: `redis.password` must be that of the server, or of `redis.username` where it has \
             users",
        ));
    }
    if let redis::ErrorKind::Parse | redis::ErrorKind::UnexpectedReturnType = error.kind() {
        return Trouble::Away(StoreError::retryable(format!(
            "what answers at {addr} does not speak as Redis does: is that its port?"
        )));
    }
    let code = error.code().unwrap_or_default();
    match code {
        "NOAUTH" => Trouble::Final(StoreError::permanent(
            "Redis wants a password: name it in `redis.password`, such as `${REDIS_PASSWORD}`",
        )),
        // It has been started again, is not the primary any more, or is busy.
        "NOSCRIPT" | "LOADING" | "READONLY" | "MASTERDOWN" | "TRYAGAIN" | "BUSY"
        | "CLUSTERDOWN" | "ASK" => Trouble::Broken(StoreError::retryable(format!(
            "Redis at {addr} cannot do it now: {error}"
        ))),
        "MOVED" => Trouble::Elsewhere(StoreError::retryable(format!(
            "the servers of the Redis Cluster do not agree on who has the place: {error}"
        ))),
        "OOM" => Trouble::Final(StoreError::retryable(
            "Redis is full (`maxmemory`) and takes nothing more: give it more memory",
        )),
        "" => match distrust(&error.to_string()) {
            Some(message) => Trouble::Final(StoreError::permanent(message)),
            None => Trouble::Away(StoreError::retryable(format!(
                "Redis at {addr} cannot be reached: {error}"
            ))),
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
