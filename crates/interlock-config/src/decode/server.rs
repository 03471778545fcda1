//! `interlock.yaml`, section by section.

mod alerts;

use std::path::PathBuf;

use interlock_core::{
    id::{check_key_prefix, check_schema},
    outbound::{Network, Outbound},
    pipeline::Secret,
};
use jiff::SignedDuration;

use super::{Decoder, count, flag, text, texts};
use crate::{
    placeholder::{self, Kind},
    problem::Code,
    server::{
        Archiver, Beacon, Dirs, Engine, Postgres, Redis, RedisTls, Retention, Scope, Server,
        ServerConfig, StoreConfig, Token, Watchdog, Watcher,
    },
    shape::STORES,
    yaml::Node,
};

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

impl Decoder<'_> {
    /// Everything in `interlock.yaml` besides `defaults`.
    pub(crate) fn server_config(&mut self, root: &Node) -> ServerConfig {
        let empty = Node::empty_map(root.span);
        let section = |key| root.get(key).unwrap_or(&empty);
        let store = self.store(root, &empty);
        let archiver = self.archiver(section("archiver"));
        let alerts = self.alerts(root);
        let server = self.server(section("server"));
        let beacons = self.beacons(root);
        ServerConfig {
            archiver,
            watchdog: self.watchdog(section("watchdog")),
            watcher: self.watcher(section("watcher")),
            engine: self.engine(section("engine")),
            server,
            alerts,
            dirs: dirs(root),
            beacons,
            retention: self.retention(section("retention")),
            zone: self.zone(root, "timezone").unwrap_or_else(|| self.around.zone.clone()),
            // Whatever is wrong with the store was reported; nobody opens this one.
            store: store.unwrap_or_else(|| embedded(&empty)),
        }
    }

    fn retention(&mut self, node: &Node) -> Retention {
        let slots = self.duration_or(node, "slots", 90 * DAY);
        if let Some(entry) =
            node.entry("slots").filter(|_| slots < SignedDuration::from_secs(8 * DAY))
        {
            let message = "slots and runs are kept for 8 days at least";
            self.problems.add(entry.value.span, Code::NoEffect, message, "Write `8d` or more.");
        }
        Retention {
            slots,
            events: self.duration_or(node, "events", 90 * DAY),
            logs: self.duration_or(node, "logs", 30 * DAY),
        }
    }

    fn duration_or(&mut self, map: &Node, key: &str, seconds: i64) -> SignedDuration {
        self.duration(map, key).unwrap_or_else(|| SignedDuration::from_secs(seconds))
    }

    /// A text with its `${ENV}` and `${file:/path}` replaced; one that is not set is an error that names only it.
    pub(super) fn resolved(&mut self, map: &Node, key: &str) -> Option<String> {
        let node = map.get(key)?;
        let written = node.text()?;
        let mut resolved = String::new();
        let (mut from, mut complete) = (0, true);
        let is_known = |kind: Kind| matches!(kind, Kind::Environment | Kind::File);
        for found in placeholder::find(written).filter(|found| is_known(found.kind)) {
            resolved.push_str(written.get(from..found.span.start).unwrap_or(""));
            from = found.span.end;
            if let Some(value) = (self.around.environment)(found.name) {
                resolved.push_str(&value);
            } else {
                complete = false;
                let (message, verb) = match found.name.strip_prefix("file:") {
                    Some(path) => (format!("the file `{path}` cannot be read"), "Put"),
                    None => {
                        (format!("the environment variable `{}` is not set", found.name), "Set")
                    }
                };
                self.problems.add(
                    node.span_within(found.span),
                    Code::VariableNotSet,
                    message,
                    format!("{verb} it where Interlock runs, or write `{key}` without it."),
                );
            }
        }
        resolved.push_str(written.get(from..).unwrap_or(""));
        complete.then_some(resolved)
    }

    /// A secret; an empty one is none.
    pub(super) fn secret(&mut self, map: &Node, key: &str) -> Option<Secret> {
        self.resolved(map, key).filter(|text| !text.is_empty()).map(Secret::new)
    }

    /// Which store it is, of a tree that was checked.
    pub(crate) fn store_config(&mut self, root: &Node) -> Option<StoreConfig> {
        self.store(root, &Node::empty_map(root.span))
    }

    fn store(&mut self, root: &Node, empty: &Node) -> Option<StoreConfig> {
        let written: Vec<_> = STORES.into_iter().filter(|key| root.get(key).is_some()).collect();
        let named = root.get("provider").and_then(Node::text);
        let provider = match (named, written.as_slice()) {
            (Some(named), _) => named,
            (None, [only]) => only,
            (None, []) => "embedded",
            (None, [_, second, ..]) => {
                let at = root.entry(second).map_or(root.span, |entry| entry.key_span);
                let message = format!("which of {} is the store?", written.join(" and "));
                self.problems.add(at, Code::Conflict, message, "Write `provider: ...`.");
                return None;
            }
        };
        for unused in written.iter().filter(|key| **key != provider) {
            let at = root.entry(unused).map_or(root.span, |entry| entry.key_span);
            let message = format!("`{unused}` has no effect, the store is `{provider}`");
            self.problems.add(at, Code::NoEffect, message, "Remove it, or change `provider`.");
        }
        let node = root.get(provider).unwrap_or(empty);
        match provider {
            "redis" => Some(StoreConfig::Redis(self.redis(node))),
            "postgres" => self.postgres(node, root).map(StoreConfig::Postgres),
            _ => Some(embedded(node)),
        }
    }

    fn redis(&mut self, node: &Node) -> Redis {
        Redis {
            addr: self.resolved(node, "addr").unwrap_or_else(|| "localhost:6379".to_owned()),
            username: self.resolved(node, "username"),
            password: self.secret(node, "password"),
            db: count(node, "db").unwrap_or(0),
            tls: self.redis_tls(node),
            key_prefix: self.store_name((node, "redis"), "keyPrefix", check_key_prefix),
            readiness_ttl: self.duration_or(node, "readinessTtl", HOUR),
            retention_ttl: self.duration_or(node, "retentionTtl", 168 * HOUR),
            run_index_limit: count(node, "runIndexLimit").unwrap_or(100),
            event_stream_max: count(node, "eventStreamMax").unwrap_or(10_000),
            shards: shards(node),
            folder: folder(node, "folder"),
        }
    }

    /// What tells stores on one server apart.
    fn store_name(
        &mut self,
        (node, store): (&Node, &str),
        key: &str,
        check: fn(&str) -> Result<(), &'static str>,
    ) -> String {
        let found = node.get(key).and_then(|found| Some((found, found.text()?)));
        let Some((found, name)) = found else { return "interlock".to_owned() };
        if let Err(reason) = check(name) {
            let message = format!("`{store}.{key}` cannot be `{name}`: {reason}");
            self.problems.add(found.span, Code::Name, message, "");
        }
        name.to_owned()
    }

    fn redis_tls(&mut self, node: &Node) -> Option<RedisTls> {
        let file = |key: &str| text(node, key).map(PathBuf::from);
        if !flag(node, "tls").unwrap_or(false) {
            for entry in ["ca", "cert", "key"].iter().filter_map(|key| node.entry(key)) {
                let message = format!("`{}` has no effect without `tls: true`", entry.key);
                self.problems.add(entry.key_span, Code::NoEffect, message, "Write `tls: true`.");
            }
            return None;
        }
        for (there, absent) in [("cert", "key"), ("key", "cert")] {
            if let Some(entry) = node.entry(there).filter(|_| node.get(absent).is_none()) {
                let message = format!("`redis.{there}` needs `redis.{absent}`");
                self.problems.add(entry.key_span, Code::Conflict, message, "");
            }
        }
        Some(RedisTls { ca: file("ca"), client: file("cert").zip(file("key")) })
    }

    fn postgres(&mut self, node: &Node, root: &Node) -> Option<Postgres> {
        Some(Postgres {
            connections_max: count(node, "maxConnections").unwrap_or(10),
            schema: self.store_name((node, "postgres"), "schema", check_schema),
            shards: shards(node),
            folder: folder(node, "folder"),
            retention_ttl: self.duration(node, "retentionTtl"),
            dsn: self.needed(node, root, "postgres", "dsn")?,
        })
    }

    /// A key without which a store cannot be used, even if its whole section is absent.
    fn needed(&mut self, node: &Node, root: &Node, store: &str, key: &str) -> Option<Secret> {
        if root.get(store).is_none() {
            let at = root.get("provider").map_or(root.span, |node| node.span);
            let message = format!("the store `{store}` needs `{store}.{key}`");
            self.problems.add(at, Code::MissingKey, message, "");
        }
        let found = self.secret(node, key);
        if found.is_none()
            && let Some(entry) = node.entry(key).filter(|entry| entry.value.text() == Some(""))
        {
            let message = format!("`{store}.{key}` is empty");
            self.problems.add(entry.key_span, Code::NoValue, message, "");
        }
        found
    }

    fn archiver(&mut self, node: &Node) -> Option<Archiver> {
        let interval = self.duration_or(node, "interval", 300);
        let enabled = flag(node, "enabled").unwrap_or(false);
        // A disabled archiver may name a variable that is not set.
        if !enabled {
            return None;
        }
        if node.get("dsn").is_none() {
            let at = node.entry("enabled").map_or(node.span, |entry| entry.key_span);
            let message = "the archiver needs `archiver.dsn`";
            self.problems.add(at, Code::MissingKey, message, "Write `dsn: ${ARCHIVE_DSN}`.");
        }
        let rows_at_once = count(node, "batchSize").unwrap_or(500);
        Some(Archiver { interval, rows_at_once, dsn: self.secret(node, "dsn")? })
    }

    fn watchdog(&mut self, node: &Node) -> Watchdog {
        Watchdog {
            enabled: flag(node, "enabled").unwrap_or(true),
            interval: self.duration_or(node, "interval", 300),
            stuck_run_threshold: self.duration_or(node, "stuckRunThreshold", 1_800),
        }
    }

    fn watcher(&mut self, node: &Node) -> Watcher {
        Watcher {
            enabled: flag(node, "enabled").unwrap_or(true),
            default_interval: self.duration_or(node, "defaultInterval", 300),
        }
    }

    fn engine(&mut self, node: &Node) -> Engine {
        let timeout = self.seconds(node, "defaultTimeout");
        Engine {
            default_timeout: timeout.unwrap_or(SignedDuration::from_secs(30)),
            runs_max: count(node, "maxConcurrentRuns").unwrap_or(100),
            evaluations_max: count(node, "maxConcurrentEvaluations").unwrap_or(32),
            catchup_runs_max: count(node, "catchupConcurrency").unwrap_or(10),
            catchup_per_minute: count(node, "catchupRate").unwrap_or(60_000),
            outbound: node.get("outbound").map(|map| self.outbound(map)).unwrap_or_default(),
        }
    }

    fn outbound(&mut self, node: &Node) -> Outbound {
        let allow = self.networks(node, "allow");
        Outbound { allow, deny: self.networks(node, "deny") }
    }

    fn networks(&mut self, node: &Node, key: &str) -> Vec<Network> {
        let items = node.get(key).map(Node::items).unwrap_or_default();
        let read = |item: &Node| self.read(item, Code::Network, Network::parse);
        items.iter().filter_map(read).collect()
    }

    fn server(&mut self, node: &Node) -> Server {
        let items = node.get("tokens").map(Node::items).unwrap_or_default();
        let mut tokens: Vec<Token> = Vec::new();
        for item in items {
            let token = self.token(item);
            if let Some(token) = &token
                && tokens.iter().any(|other| other.name == token.name)
            {
                let message = format!("two tokens have the name `{}`", token.name);
                let at = item.get("name").map_or(item.span, |name| name.span);
                self.problems.add(at, Code::Repeated, message, "Choose another name.");
            }
            tokens.extend(token);
        }
        Server {
            addr_is_written: node.get("addr").is_some(),
            addr: text(node, "addr").unwrap_or_else(|| "127.0.0.1:8420".to_owned()),
            probes: text(node, "probes"),
            api_key: self.secret(node, "apiKey"),
            tokens,
            request_body_max: count(node, "maxRequestBody").unwrap_or(1 << 20),
            requests_per_second: count(node, "maxRequestsPerSecond").unwrap_or(1_000),
        }
    }

    fn token(&mut self, node: &Node) -> Option<Token> {
        let pipelines = texts(node, "pipelines");
        let word = node.get("scope").and_then(Node::text);
        if (word == Some("ping")) == pipelines.is_empty() {
            let at = node.entry("pipelines").map_or(node.span, |entry| entry.key_span);
            let message = "a token for `ping` names its `pipelines`, and no other does";
            self.problems.add(at, Code::Conflict, message, "Write `pipelines: ['orders*']`.");
        }
        let scope = match word {
            Some("ping") => Scope::Ping(pipelines),
            Some("badge") => Scope::Badge,
            Some("admin") => Scope::Admin,
            Some("operator") => Scope::Operator,
            Some(_) | None => Scope::Viewer,
        };
        let token = self.secret(node, "token");
        if token.is_none()
            && let Some(entry) = node.entry("token").filter(|entry| entry.value.text() == Some(""))
        {
            self.problems.add(entry.key_span, Code::NoValue, "the token is empty", "");
        }
        Some(Token { name: text(node, "name")?, token: token?, scope })
    }

    fn beacons(&mut self, root: &Node) -> Vec<Beacon> {
        let items = root.get("beacons").map(Node::items).unwrap_or_default();
        let mut beacons = Vec::new();
        for item in items {
            let interval = self.duration_or(item, "interval", 60);
            if let Some(url) = self.secret_url(item, "url") {
                beacons.push(Beacon { url, interval });
            }
        }
        beacons
    }
}

fn shards(node: &Node) -> Option<u16> {
    count(node, "shards").and_then(|count| u16::try_from(count).ok())
}

pub(crate) fn embedded(node: &Node) -> StoreConfig {
    StoreConfig::Embedded { path: folder(node, "path") }
}

fn folder(node: &Node, key: &str) -> PathBuf {
    text(node, key).map_or_else(|| ".interlock".into(), PathBuf::from)
}

fn dirs(root: &Node) -> Dirs {
    let dirs = |key: &str, default: &str| -> Vec<PathBuf> {
        match root.get(key) {
            Some(_) => texts(root, key).into_iter().map(PathBuf::from).collect(),
            None => vec![default.into()],
        }
    };
    Dirs {
        pipelines: dirs("pipelineDirs", "pipelines"),
        calendars: dirs("calendarDirs", "calendars"),
        archetypes: dirs("archetypeDirs", "archetypes"),
        evaluators: dirs("evaluatorDirs", "evaluators"),
    }
}
