//! Who had the right to write when, and under which right each event was written: asked of the server itself, past the store.
//!
//! A look is one instant: the last number that was given to an event, and the term of every lease. Whatever has a later
//! number was committed after it, so an older term than the one that was seen is a dead one (S9).

use std::{
    collections::BTreeMap,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use interlock_private_server::{PrivateCluster, PrivatePostgres, PrivateRedis};
use interlock_wait::{BOUND, CommandWithin as _, ThreadWithin as _};

/// A role's shard, as `role:shard`, and its term.
pub(crate) type Terms = BTreeMap<String, u64>;

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// One instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Look {
    /// The last number that was given.
    pub(crate) last: u64,
    pub(crate) terms: Terms,
}

/// An event: its number, the role's shard and the term it was written under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) number: u64,
    pub(crate) right: String,
    pub(crate) term: u64,
}

/// Where to ask.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// The ports of all servers, that of the home first, and what keys begin with: those of the home, and all.
    Redis {
        ports: Vec<String>,
        home: &'static str,
        all: &'static str,
    },
    Postgres(String),
}

/// `role:shard:term` in its parts.
fn parse(text: &str) -> Option<(String, u64)> {
    let (right, term) = text.rsplit_once(':')?;
    Some((right.to_owned(), term.parse().ok()?))
}

impl Way {
    pub(crate) fn to_redis(server: &PrivateRedis) -> Self {
        Self::Redis { ports: vec![server.port().to_string()], home: "interlock", all: "interlock" }
    }

    /// The home has a copy of each lease, which is never ahead of it.
    pub(crate) fn to_cluster(cluster: &PrivateCluster) -> Self {
        let mut ports: Vec<String> = cluster.ports().iter().map(u16::to_string).collect();
        ports.swap(0, cluster.owner_of("{interlock}:about"));
        Self::Redis { ports, home: "{interlock}", all: "{interlock*}" }
    }

    pub(crate) fn to_postgres(server: &PrivatePostgres) -> Self {
        Self::Postgres(server.dsn())
    }

    /// Lines of text, of so many servers; nothing while one is away.
    fn ask(&self, servers: usize, script: &str, statement: &str) -> Option<Vec<String>> {
        match self {
            Self::Redis { ports, home, all } => {
                let mut lines = Vec::new();
                for port in ports.iter().take(servers) {
                    let words = ["-p", port, "--raw", "-e", "EVAL", script, "0", home, all];
                    let said = Command::new("redis-cli").args(words).output_within(BOUND).unwrap();
                    let text = String::from_utf8(said.stdout).unwrap();
                    lines.extend(said.status.success().then_some(text)?.lines().map(str::to_owned));
                }
                Some(lines)
            }
            Self::Postgres(dsn) => {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let (client, connection) =
                        tokio_postgres::connect(dsn, tokio_postgres::NoTls).await.ok()?;
                    tokio::spawn(async move { connection.await.unwrap_or_default() });
                    let rows = client.query(statement, &[]).await.ok()?;
                    Some(rows.iter().map(|row| row.get(0)).collect())
                })
            }
        }
    }

    fn look(&self) -> Option<Look> {
        let script = "local home = ARGV[1]
            local said = {redis.call('HGET', home .. ':about', 'event') or '0'}
            for _, key in ipairs(redis.call('KEYS', home .. ':lease:*')) do
                local right = string.sub(key, #home + 8)
                said[#said + 1] = right .. ':' .. (redis.call('HGET', key, 'term') or '0')
            end
            return said";
        // One statement sees one instant.
        let statement = "SELECT value::text FROM interlock.counters WHERE name = 'event'
            UNION ALL SELECT concat_ws(':', role, shard, term) FROM interlock.leases";
        let mut lines = self.ask(1, script, statement)?.into_iter();
        let last = lines.next()?.parse().ok()?;
        let terms: Terms = lines.filter_map(|line| parse(&line)).collect();
        (!terms.is_empty()).then_some(Look { last, terms })
    }

    /// All events; those that came with a copy say nothing of their right.
    pub(crate) fn written(&self) -> Vec<Written> {
        let script = "local said = {}
            for _, key in ipairs(redis.call('KEYS', ARGV[2] .. ':events:*')) do
                for _, entry in ipairs(redis.call('XRANGE', key, '-', '+')) do
                    said[#said + 1] = string.match(entry[1], '^%d+') .. ' ' .. (entry[2][6] or '')
                end
            end
            return said";
        let statement = "SELECT number || ' ' || coalesce(writer, '') FROM interlock.events";
        let line = |line: &String| {
            let (number, writer) = line.split_once(' ')?;
            let (right, term) = parse(writer)?;
            Some(Written { number: number.parse().ok()?, right, term })
        };
        let lines = self.ask(usize::MAX, script, statement).expect("the server is back");
        lines.iter().filter_map(line).collect()
    }
}

/// Looks again and again until it is asked for what it saw.
pub(crate) struct Watcher {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Look>>,
}

impl Watcher {
    pub(crate) fn start(way: Way) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut looks: Vec<Look> = Vec::new();
            // Bounded: the test asks for its end, and waits for it with a bound.
            while !asked.load(Ordering::Relaxed) {
                looks.extend(way.look().filter(|look| looks.last() != Some(look)));
                thread::sleep(LOOK_EVERY);
            }
            looks
        });
        Self { is_over, thread }
    }

    pub(crate) fn saw(self) -> Vec<Look> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join_within("the watcher's last look", BOUND).unwrap()
    }
}
