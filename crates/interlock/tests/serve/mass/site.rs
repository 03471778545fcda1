//! One `serve` on one store with many pipelines, and everything around it that says how it did.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use interlock_private_server::{PrivatePostgres, PrivateRedis};
use interlock_store::{Record, Rows, Shard, Store, block_on};
use interlock_store_embedded::EmbeddedStore;
use interlock_store_postgres::{PostgresSettings, PostgresStore};
use interlock_store_redis::{RedisSettings, RedisStore};
use jiff::{SignedDuration, Timestamp};

use super::{
    observer::{Observer, Opener, Sightings},
    receiver::{Message, Receiver, in_file},
};
use crate::{
    Daemon,
    ha::proxy::Proxy,
    log,
    project::{Project, tail},
    watched::Hung,
};

const SHARDS: u16 = 12;
const PAGE: usize = 5_000;
/// Between two looks at something that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How slow a store is that is slow: each answer of a server, each sync of a file.
const SLOW_BY: Duration = Duration::from_millis(150);

/// A command each second: how late it begins says what a mass event costs everybody else.
const NEIGHBOUR: &str = "
name: neighbour
schedule: {cron: '* * * * * *', seconds: true}
startGrace: 5s
catchupWindow: 1h
overlapPolicy: all
maxActiveRuns: 5
trigger: {type: command, command: 'echo \"$INTERLOCK_SLOT $(date +%s.%N)\" >> neighbour.log'}
";

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Embedded,
    Redis,
    Postgres,
}

/// Whether it has to be ready all the while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    Always,
    ComesAndGoes,
}

enum Server {
    None,
    Redis(PrivateRedis),
    Postgres(PrivatePostgres),
}

/// Where all of it is.
pub(crate) struct Site {
    pub(crate) project: Project,
    pub(crate) receiver: Receiver,
    pub(crate) observer: Observer,
    pub(crate) pipelines: usize,
    /// What was found to be wrong.
    pub(crate) faults: Vec<String>,
    server: Server,
    proxy: Option<Proxy>,
    daemon: Option<Daemon>,
    began: Timestamp,
}

impl Site {
    /// The servers and the folder of so many pipelines; nothing is written of these yet, and nothing serves.
    pub(crate) fn new(engine: Engine, pipelines: usize) -> Self {
        let (project, receiver) = (Project::new(&[("neighbour", NEIGHBOUR)]), Receiver::start());
        let server = match engine {
            Engine::Embedded => Server::None,
            Engine::Redis => Server::Redis(PrivateRedis::start()),
            Engine::Postgres => Server::Postgres(PrivatePostgres::start()),
        };
        let proxy = match &server {
            Server::None => None,
            Server::Redis(redis) => Some(Proxy::to(redis.port())),
            Server::Postgres(postgres) => Some(Proxy::to(postgres.port())),
        };
        let port = proxy.as_ref().map_or(0, |proxy| proxy.port);
        let store = match engine {
            Engine::Embedded => String::new(),
            Engine::Redis => format!("provider: redis\nredis: {{addr: '127.0.0.1:{port}'}}\n"),
            Engine::Postgres => format!(
                "provider: postgres\npostgres: {{dsn: 'postgres://interlock@127.0.0.1:{port}/postgres?sslmode=disable'}}\n"
            ),
        };
        let url = &receiver.url;
        let settings = format!(
            "{store}server: {{addr: '127.0.0.1:0'}}\nalerts:\n\
             - {{type: webhook, name: program, url: '{url}/program'}}\n\
             - {{type: webhook, name: people, url: '{url}/people', digest: true}}\n\
             - {{type: file, name: log, path: alerts.jsonl}}\n"
        );
        fs::write(project.path().join("interlock.yaml"), settings).unwrap();
        let observer = Observer::start(&project.folder(), opener(&server, &project));
        Self {
            project,
            receiver,
            observer,
            pipelines,
            faults: Vec::new(),
            server,
            proxy,
            daemon: None,
            began: Timestamp::now(),
        }
    }

    /// Writes the files of all pipelines, each whole; their names stand for `NAME` in the text.
    pub(crate) fn write_all(&self, text: &str) {
        let (temporary, folder) =
            (self.project.path().join("new"), self.project.path().join("pipelines"));
        for name in self.names() {
            fs::write(&temporary, text.replace("NAME", &name)).unwrap();
            fs::rename(&temporary, folder.join(format!("{name}.yaml"))).unwrap();
        }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = String> + use<> {
        (0..self.pipelines).map(|number| format!("p{number:06}"))
    }

    /// Starts it; it serves all pipelines when this returns, or a fault says that it does not.
    pub(crate) fn serve(&mut self, bound: Duration) -> Option<Duration> {
        let began = Instant::now();
        let _gone = fs::remove_file(self.project.folder().join("http.json"));
        let daemon = Daemon::start(self.project.path());
        self.observer.look_at(daemon.0.id());
        self.daemon = Some(daemon);
        let all = self.pipelines + 1;
        self.within("all pipelines are served", bound, |_, seen| {
            (seen.is_ready && seen.events_of("PIPELINE_DECLARED") >= all).then(|| began.elapsed())
        })
    }

    /// What a crash looks like.
    pub(crate) fn kill(&mut self) {
        self.observer.look_at(0);
        self.daemon = None;
    }

    /// From now on, until what is returned is dropped, the store is slow.
    pub(crate) fn slow_down(&self) -> Slowness<'_> {
        if let Some(proxy) = &self.proxy {
            proxy.slow_by(SLOW_BY);
            return Slowness { proxy: Some(proxy), _strace: None };
        }
        let pid = self.daemon.as_ref().unwrap().0.id();
        Slowness { proxy: None, _strace: Some(Hung::slow(pid, &["ledger-writer"], SLOW_BY)) }
    }

    /// Waits until something holds; none, and a fault, when it does not in time, or the process has ended.
    pub(crate) fn within<T>(
        &mut self,
        what: &str,
        bound: Duration,
        mut look: impl FnMut(&Self, &Sightings) -> Option<T>,
    ) -> Option<T> {
        let began = Instant::now();
        loop {
            if let Some(found) = look(self, &self.observer.seen()) {
                return Some(found);
            }
            let has_ended = self.has_ended();
            if began.elapsed() > bound || has_ended {
                let instead = if has_ended { "the process has ended" } else { "not so" };
                self.faults.push(format!("{what}: {instead} after {:.0?}", began.elapsed()));
                return None;
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Stays for so long, or until the process ends.
    pub(crate) fn stay(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.has_ended() {
            thread::sleep(LOOK_EVERY);
        }
    }

    fn has_ended(&mut self) -> bool {
        self.daemon.as_mut().is_some_and(|daemon| daemon.0.try_wait().unwrap().is_some())
    }

    /// The store, past whatever makes it slow.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        opener(&self.server, &self.project)().unwrap()
    }

    /// How many incidents of each kind there are, of ours and of the system's, in each state.
    pub(crate) fn incidents(&self) -> BTreeMap<(String, String), Vec<String>> {
        let store = self.store();
        let (mut found, mut from): (BTreeMap<_, Vec<_>>, _) = (BTreeMap::new(), String::new());
        loop {
            let portion = block_on(store.rows(Rows::Incidents, &from, PAGE)).unwrap();
            for item in portion.items {
                let Record::Incident(row) = &item.row.record else { continue };
                let group = (row.kind.to_string(), row.state.to_string());
                found.entry(group).or_default().push(item.pipeline.to_string());
            }
            match portion.next {
                Some(next) => from = next,
                None => return found,
            }
        }
    }

    /// How many slots are open.
    pub(crate) fn open_slots(&self) -> usize {
        let store = self.store();
        let mut count = 0;
        for shard in (0..store.shard_count()).map(Shard) {
            let mut after = None;
            loop {
                let page = block_on(store.open_slots(shard, after.as_ref(), PAGE)).unwrap();
                count += page.items.len();
                let last = page.items.last();
                after = last.map(|row| (row.pipeline.clone(), row.nominal, row.schedule.clone()));
                if !page.more {
                    break;
                }
            }
        }
        count
    }

    /// What reached the channels of programs, by name.
    pub(crate) fn programs(&self) -> [(&'static str, Vec<Message>); 2] {
        let file = in_file(&self.project.path().join("alerts.jsonl"));
        [("program", self.receiver.messages("/program")), ("file", file)]
    }

    /// The longest that a command of the neighbour began after its second, from an instant on.
    pub(crate) fn neighbour_lag(&self, from: Timestamp) -> f64 {
        let text =
            fs::read_to_string(self.project.path().join("neighbour.log")).unwrap_or_default();
        let mut last = from;
        let mut longest = 0.0_f64;
        for line in text.lines() {
            let Some((slot, began)) = line.split_once(' ') else { continue };
            let (Ok(slot), Ok(began)) = (slot.parse::<Timestamp>(), began.parse::<f64>()) else {
                continue;
            };
            if slot >= from {
                longest =
                    longest.max(began - SignedDuration::from_secs(slot.as_second()).as_secs_f64());
                last = last.max(slot);
            }
        }
        // What has not begun yet is late too.
        let silent = Timestamp::now().duration_since(last).as_secs_f64() - 1.0;
        longest.max(silent)
    }

    /// Everything that must hold whatever happened: nothing stood still, nothing was unwell, nothing hung.
    pub(crate) fn judge_health(&mut self, readiness: Readiness) -> Sightings {
        if self.has_ended() {
            self.faults.push("the process has ended by itself".to_owned());
        }
        let seen = self.observer.seen();
        let text = log(self.project.path());
        let troubled = text.lines().filter(|line| {
            line.contains(r#""level":"warn""#) || line.contains(r#""level":"error""#)
        });
        let troubled: Vec<&str> = troubled.collect();
        for word in ["LOOP_LATE", "has not come round", "made no progress", "panicked"] {
            let lines: Vec<&&str> = troubled.iter().filter(|line| line.contains(word)).collect();
            if let Some(first) = lines.first() {
                self.faults.push(format!("{} warnings with {word}: {first}", lines.len()));
            }
        }
        let answers = [
            ("healthz", &seen.unhealthy, false),
            ("readyz", &seen.unready, readiness == Readiness::ComesAndGoes),
        ];
        for (path, bad, may_be) in answers {
            if let (Some(first), false) = (bad.first(), may_be) {
                self.faults.push(format!("/{path} was bad {} times: {first}", bad.len()));
            }
        }
        seen
    }

    /// The end of the log, for the person who has to find out.
    pub(crate) fn log_tail(&self) -> String {
        tail(&log(self.project.path())).to_owned()
    }

    /// How often lines of the log say each thing that is no news.
    pub(crate) fn warnings(&self) -> String {
        let text = log(self.project.path());
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for line in text.lines() {
            let value: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            if matches!(value["level"].as_str(), Some("warn" | "error")) {
                let message = value["message"].as_str().unwrap_or_default();
                let message: String = message.chars().take(120).collect();
                let message = message.replace(|c: char| c.is_ascii_digit(), "#");
                *counts.entry(message).or_default() += 1;
            }
        }
        let mut said = String::new();
        for (message, count) in counts {
            let _infallible = writeln!(said, "    {count} × {message}");
        }
        said
    }

    pub(crate) fn began(&self) -> Timestamp {
        self.began
    }
}

/// A store that is slow until this is dropped.
pub(crate) struct Slowness<'a> {
    proxy: Option<&'a Proxy>,
    _strace: Option<Hung>,
}

impl Drop for Slowness<'_> {
    fn drop(&mut self) {
        if let Some(proxy) = self.proxy {
            proxy.slow_by(Duration::ZERO);
        }
    }
}

fn opener(server: &Server, project: &Project) -> Opener {
    match server {
        Server::None => {
            let folder = project.folder();
            Box::new(move || {
                let store = EmbeddedStore::open_reader(&folder, Arc::new(Timestamp::now)).ok()?;
                Some(Arc::new(store))
            })
        }
        Server::Redis(redis) => {
            let settings = RedisSettings { shards: SHARDS, ..RedisSettings::new(redis.address()) };
            Box::new(move || Some(Arc::new(RedisStore::open(&settings).ok()?)))
        }
        Server::Postgres(postgres) => {
            let dsn = postgres.dsn();
            let settings = PostgresSettings { shards: SHARDS, ..PostgresSettings::new(dsn) };
            Box::new(move || Some(Arc::new(PostgresStore::open(&settings).ok()?)))
        }
    }
}

/// How long after an instant another was.
pub(crate) fn since(from: Timestamp, until: Option<Timestamp>) -> String {
    let seconds = |until: Timestamp| until.duration_since(from).as_secs_f64();
    until.map_or_else(|| "never".to_owned(), |until| format!("{:.1} s", seconds(until)))
}

/// A whole second, so far from now.
pub(crate) fn in_seconds(seconds: u64) -> Timestamp {
    let at = Timestamp::now() + SignedDuration::from_secs(seconds as i64);
    at.round(jiff::Unit::Second).unwrap()
}
