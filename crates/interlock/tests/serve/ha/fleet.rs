//! Three instances on one server, and what can be done to them.

use std::{collections::BTreeMap, fs, sync::Arc};

use interlock_core::id::PipelineId;
use interlock_private_server::{PrivateCluster, PrivatePostgres, PrivateRedis};
use interlock_store::{
    Key, LedgerEntry, LedgerQuery, LedgerRow, Record, Role, Roll, RunQuery, Store, block_on,
};
use interlock_store_postgres::{PostgresSettings, PostgresStore};
use interlock_store_redis::{RedisSettings, RedisStore};
use jiff::Timestamp;

use super::{
    checker::{Evidence, Recorded, Slot},
    proxy::Proxy,
    rights::Way,
};
use crate::{
    Daemon,
    project::{Dice, Project, signal},
};

/// How many instances there are.
pub(crate) const INSTANCES: usize = 3;
const PAGE: usize = 5_000;

/// What they share.
pub(crate) enum Server {
    Redis(PrivateRedis),
    /// Three servers. A way that is cut is the one to the first of them, and not the only one.
    Cluster(PrivateCluster),
    Postgres(PrivatePostgres),
}

impl Server {
    fn port(&self) -> u16 {
        match self {
            Self::Redis(server) => server.port(),
            Self::Cluster(cluster) => cluster.ports()[0],
            Self::Postgres(server) => server.port(),
        }
    }

    /// What `interlock.yaml` says about it, behind a port.
    fn settings(&self, port: u16) -> String {
        match self {
            Self::Redis(_) | Self::Cluster(_) => {
                format!("provider: redis\nredis: {{addr: '127.0.0.1:{port}'}}\n")
            }
            Self::Postgres(_) => {
                let dsn = format!("postgres://interlock@127.0.0.1:{port}/postgres?sslmode=disable");
                format!("provider: postgres\npostgres: {{dsn: '{dsn}'}}\n")
            }
        }
    }

    /// The store, as the test itself reads it.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Redis(_) | Self::Cluster(_) => {
                let addr = format!("127.0.0.1:{}", self.port());
                let settings = RedisSettings { shards: 12, ..RedisSettings::new(addr) };
                Arc::new(RedisStore::open(&settings).unwrap())
            }
            Self::Postgres(server) => {
                let settings =
                    PostgresSettings { shards: 12, ..PostgresSettings::new(server.dsn()) };
                Arc::new(PostgresStore::open(&settings).unwrap())
            }
        }
    }

    /// Whether an instance whose way is cut has another.
    pub(crate) fn has_other_ways(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Past the store, to the server itself.
    pub(crate) fn way(&self) -> Way {
        match self {
            Self::Redis(server) => Way::to_redis(server),
            Self::Cluster(cluster) => Way::to_cluster(cluster),
            Self::Postgres(server) => Way::to_postgres(server),
        }
    }

    /// Dies and comes back on what it has kept; of a cluster one server.
    pub(crate) fn restart(&mut self, dice: &mut Dice) {
        let is_back = match self {
            Self::Cluster(cluster) => {
                let number = dice.below(cluster.ports().len() as u64) as usize;
                cluster.kill(number);
                cluster.start_again(number);
                true
            }
            Self::Redis(server) => {
                server.kill();
                server.start_again()
            }
            Self::Postgres(server) => {
                server.kill();
                server.start_again()
            }
        };
        assert!(is_back, "the server comes back");
    }
}

/// One of them, on a machine of its own as far as it can see.
pub(crate) struct Instance {
    pub(crate) project: Project,
    pub(crate) proxy: Proxy,
    pub(crate) daemon: Option<Daemon>,
    pub(crate) is_stopped: bool,
}

impl Instance {
    pub(crate) fn start(&mut self) {
        self.daemon = Some(Daemon::start(self.project.path()));
        self.is_stopped = false;
    }

    /// What a crash looks like.
    pub(crate) fn kill(&mut self) {
        self.daemon = None;
        self.is_stopped = false;
    }

    pub(crate) fn signal(&mut self, name: &str) {
        let Some(daemon) = &self.daemon else { return };
        assert!(signal(daemon.0.id(), name));
        self.is_stopped = name == "-STOP";
    }

    /// Whether the process has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.daemon.as_mut().is_some_and(|daemon| daemon.0.try_wait().unwrap().is_some())
    }
}

/// All of them.
pub(crate) struct Fleet {
    pub(crate) server: Server,
    pub(crate) instances: Vec<Instance>,
    /// The names of the pipelines.
    pub(crate) pipelines: Vec<String>,
}

impl Fleet {
    /// Instances that run so many pipelines, each every second.
    pub(crate) fn new(server: Server, pipelines: usize) -> Self {
        let names: Vec<String> = (0..pipelines).map(|number| format!("tick-{number}")).collect();
        let texts: Vec<(String, String)> = names.iter().map(|it| (it.clone(), text(it))).collect();
        let texts: Vec<(&str, &str)> =
            texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let instance = |_| {
            let (project, proxy) = (Project::new(&texts), Proxy::to(server.port()));
            let settings = server.settings(proxy.port);
            let settings = format!("{settings}server: {{addr: '127.0.0.1:0'}}\n");
            fs::write(project.path().join("interlock.yaml"), settings).unwrap();
            Instance { project, proxy, daemon: None, is_stopped: false }
        };
        let instances = (0..INSTANCES).map(instance).collect();
        Self { server, instances, pipelines: names }
    }

    pub(crate) fn start(&mut self) {
        for instance in &mut self.instances {
            instance.start();
        }
    }

    /// Waits until something holds of the store.
    #[track_caller]
    pub(crate) fn until<T>(&self, what: &str, holds: impl FnMut() -> Option<T>) -> T {
        self.instances[0].project.until(what, holds)
    }

    /// What jobs say that they ran for, up to an instant.
    fn executions(&self, end: Timestamp) -> Vec<Slot> {
        let mut found = Vec::new();
        for instance in &self.instances {
            let log = fs::read_to_string(instance.project.path().join("ran.log"));
            for line in log.unwrap_or_default().lines().filter(|line| line.starts_with("start ")) {
                let words: Vec<&str> = line.split(' ').collect();
                let pipeline = words[1].split('~').next().unwrap().to_owned();
                let at: Timestamp = words[2].parse().unwrap();
                found.extend((at <= end).then_some((pipeline, at)));
            }
        }
        found
    }

    /// Everything that is left, up to an instant.
    pub(crate) fn evidence(&self, store: &dyn Store, end: Timestamp) -> Evidence {
        let (executions, written) = (self.executions(end), self.server.way().written());
        let mut evidence = Evidence { executions, written, ..Evidence::default() };
        for name in &self.pipelines {
            let pipeline = PipelineId::parse(name).unwrap();
            let rows = block_on(store.read(&pipeline, &[Key::Pipeline])).unwrap();
            let Some(Record::Pipeline(row)) = rows[0].clone().map(|row| row.record) else {
                panic!("{name} was never declared")
            };
            let first = row.first_seen.as_second() + 1;
            let owed = (first..=end.as_second())
                .map(|second| (name.clone(), Timestamp::from_second(second).unwrap()));
            evidence.expected.extend(owed);
            for row in ledger(store, &pipeline) {
                evidence.ledger.extend(recorded(name, row));
            }
            let incidents = block_on(store.incidents(Some(&pipeline), PAGE)).unwrap();
            if incidents.items.iter().any(|(.., row)| row.record.kind == "RUN_UNCERTAIN") {
                evidence.told.insert(name.clone());
            }
            let mut after = 0;
            loop {
                let page = block_on(store.events(Some(&pipeline), after, PAGE)).unwrap();
                for row in page.items {
                    after = row.number;
                    evidence.events.extend(
                        row.record.run_id.clone().map(|run| (run, row.record.kind.to_string())),
                    );
                }
                if !page.more {
                    break;
                }
            }
        }
        evidence
    }

    /// What the ledger says of each open slot and of its runs, for people.
    pub(crate) fn open_slots(&self, store: &dyn Store) -> Vec<String> {
        let mut said = Vec::new();
        for name in &self.pipelines {
            let pipeline = PipelineId::parse(name).unwrap();
            for row in ledger(store, &pipeline) {
                let LedgerEntry::Slot(slot) = &row.entry else { continue };
                if !slot.is_open() {
                    continue;
                }
                let place = Some((row.schedule.clone(), row.nominal));
                let pipeline = Some(pipeline.clone());
                let of_slot = RunQuery { pipeline, slot: place, limit: 9, ..RunQuery::default() };
                let runs = block_on(store.runs(&of_slot)).unwrap().items;
                said.push(format!("{name}/{} {slot:?} {runs:?}", row.nominal));
            }
        }
        said
    }
}

/// Everything that the ledger says of a pipeline.
pub(crate) fn ledger(store: &dyn Store, pipeline: &PipelineId) -> Vec<LedgerRow> {
    let mut query =
        LedgerQuery { pipeline: Some(pipeline.clone()), ..LedgerQuery::everything(PAGE) };
    let mut rows = Vec::new();
    loop {
        let page = block_on(store.ledger(&query)).unwrap();
        query.after = page.items.last().map(LedgerRow::place);
        rows.extend(page.items);
        if !page.more {
            return rows;
        }
    }
}

/// What a row says of each of its slots. A row of its own wins over the span that covers it.
fn recorded(name: &str, row: LedgerRow) -> Vec<(Slot, Recorded)> {
    match row.entry {
        LedgerEntry::Slot(slot) => {
            let (disposition, uncertain) = (slot.disposition.clone(), slot.marks.uncertain);
            vec![(
                (name.to_owned(), row.nominal),
                Recorded { disposition: disposition.map(String::from), uncertain },
            )]
        }
        LedgerEntry::Span(span) => {
            let disposition = Some(span.disposition.clone());
            let seconds = row.nominal.as_second()..=span.last.as_second();
            let slot = |second| (name.to_owned(), Timestamp::from_second(second).unwrap());
            let said = Recorded { disposition: disposition.map(String::from), uncertain: false };
            seconds.map(|second| (slot(second), said.clone())).collect()
        }
    }
}

/// Who owns how many shards in a role, if all are owned.
pub(crate) fn owners(roll: &Roll, role: Role, count: u16) -> Option<BTreeMap<String, usize>> {
    let mut owners = BTreeMap::new();
    for (_, (holder, _)) in roll.held.iter().filter(|((of, _), _)| *of == role) {
        *owners.entry(holder.clone()).or_default() += 1;
    }
    (owners.values().sum::<usize>() == usize::from(count)).then_some(owners)
}

/// Every second, one after the other; what a crash hides keeps its place until its machine is back.
fn text(name: &str) -> String {
    format!(
        "name: {name}\nschedules: [{{id: second, every: 1s}}]\noverlapPolicy: all\nmaxActiveRuns: 20\n\
         catchupWindow: 1h\ntrigger: {{type: command, command: sh job.sh whole 0.4 0}}\n"
    )
}
