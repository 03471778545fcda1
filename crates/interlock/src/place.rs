//! Where a project's ledger is: in a folder, or on a server beside which the folder holds only what belongs to this
//! machine (the runner, the index of files, where the interface is).

use std::{
    fmt, fs,
    hash::{BuildHasher as _, RandomState},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use interlock_api::HostLogs;
use interlock_config::{
    SystemZones,
    load::CONFIG_FILE,
    parse_config, parse_store,
    problem::Severity,
    server::{ServerConfig, StoreConfig},
};
use interlock_core::id::PipelineId;
use interlock_engine::Pace;
use interlock_private_files::{self as private_files, Exposed, Extent};
use interlock_store::Store;
use interlock_store_embedded::{DaemonLock, EmbeddedStore, LockHolder, LockOutcome};
use interlock_trigger::runner::log_path;
use jiff::SignedDuration;
use tokio::time::Instant;

use self::server::Asked;
use crate::{
    clock, environment,
    exit::Failure,
    writer::{self, HOLDER, SERVE, SERVE_WAITS, Writing},
};

/// Commands that begin at the same moment are in each other's way for an instant.
const BUSY_MAX: Duration = Duration::from_secs(1);
/// How long a ledger may take to be made, and how often it is looked at.
const MAKING_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A store on a server is made with so many shards where nobody says how many: as many instances as divide it are served
/// evenly, and one alone does not do much more for the sake of others that never come.
#[cfg(any(feature = "redis", feature = "postgres"))]
const SHARDS: u16 = 12;
/// How often the inbox of a shard is looked at, where there are several.
const INBOX_EVERY: SignedDuration = SignedDuration::from_millis(250);

/// A dead instance is followed within this and a moment.
const SHORT_LEASE: SignedDuration = SignedDuration::from_secs(4);

/// Where a ledger is.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// What belongs to this machine.
    pub(crate) folder: PathBuf,
    /// The project, to which files that it names are relative.
    pub(crate) directory: PathBuf,
    store: StoreConfig,
}

/// The right to serve a folder, for as long as it lives.
#[derive(Debug, Default)]
pub(crate) struct Held(
    #[expect(dead_code, reason = "a lock ends with its file")] Option<DaemonLock>,
);

impl Place {
    /// The place of a project. Only `interlock.yaml` is read, so that asking the ledger costs the same however
    /// many pipelines there are, and of it only what is about the store: whatever else is wrong there (a variable that
    /// `serve` has and a crontab has not, say) moves no ledger. Where that cannot be told, there is no place: a default would
    /// be another ledger, in which everything looks well.
    pub(crate) fn of(directory: &Path) -> Result<Self, Failure> {
        let store = store(&config_file(directory))?;
        Ok(Self::named(directory, &store))
    }

    /// The place that a file names.
    pub(crate) fn named(directory: &Path, store: &StoreConfig) -> Self {
        let folder = match store {
            StoreConfig::Embedded { path } => directory.join(path),
            StoreConfig::Redis(config) => directory.join(&config.folder),
            StoreConfig::Postgres(config) => directory.join(&config.folder),
        };
        Self { folder, directory: directory.to_owned(), store: store.clone() }
    }

    /// Whether the ledger is a file of this machine.
    pub(crate) fn is_embedded(&self) -> bool {
        matches!(self.store, StoreConfig::Embedded { .. })
    }

    /// Whether anything was ever recorded there.
    pub(crate) fn exists(&self) -> Result<bool, Failure> {
        match &self.store {
            StoreConfig::Embedded { .. } => {
                let ledger = self.folder.join("ledger.db");
                ledger.try_exists().map_err(|error| self.closed_to_us(&error))
            }
            StoreConfig::Redis(config) => server::redis_exists(config, &self.directory),
            StoreConfig::Postgres(_) => Ok(self.on_server(Asked::Find)?.is_some()),
        }
    }

    /// Whether `interlock serve` runs on this machine for it.
    pub(crate) fn is_served(&self) -> bool {
        writer::writing(&self.folder) == Writing::Serve
    }

    /// The process on this machine that judges absence for it, if there is one.
    pub(crate) fn watched_by(&self) -> Option<String> {
        match writer::writing(&self.folder) {
            Writing::Serve => Some(format!("`{SERVE}`")),
            Writing::StandIn(process) => Some(process),
            Writing::Nobody | Writing::Command(_) => None,
        }
    }

    /// Opens the ledger to read it and to leave requests; one that somebody is just making is waited for.
    pub(crate) fn open_reader(&self) -> Result<Arc<dyn Store>, Failure> {
        if self.is_embedded() {
            // Whether there is one is found out by opening it; whether we may look is said first.
            self.exists()?;
            return Ok(Arc::new(open_reader(&self.folder)?));
        }
        self.on_server(Asked::Find)?.ok_or_else(|| self.nothing_recorded())
    }

    /// What a user hears who may not look into the folder: not that nothing is there.
    fn closed_to_us(&self, error: &io::Error) -> Failure {
        let folder = self.folder.display();
        let owner = private_files::owner(&self.folder).unwrap_or_else(|| "its owner".to_owned());
        Failure::failed(
            format!("cannot look into {folder}: {error}"),
            format!(
                "Only {owner} may read it: run the command as that user (`sudo -u {owner} interlock …`), or ask the HTTP interface."
            ),
        )
    }

    /// Whether this user may add files to the folder; one that does not exist yet is tried.
    pub(crate) fn may_write(&self) -> bool {
        use rustix::fs::{Access, access};
        !matches!(
            access(&self.folder, Access::WRITE_OK | Access::EXEC_OK),
            Err(rustix::io::Errno::ACCESS)
        )
    }

    /// Opens the ledger for a person who looks: what cannot be reached of it is left out, and the store says so.
    pub(crate) fn open_to_look(&self) -> Result<Arc<dyn Store>, Failure> {
        if self.is_embedded() {
            return self.open_reader();
        }
        self.on_server(Asked::Look)?.ok_or_else(|| self.nothing_recorded())
    }

    /// Opens the ledger to write it; makes it if there is none.
    pub(crate) fn open_writer(
        &self,
        what: &str,
        patience: Duration,
    ) -> Result<Arc<dyn Store>, Failure> {
        match self.open_server()? {
            Some(store) => Ok(store),
            None => Ok(Arc::new(writer::open(&self.folder, what, patience)?)),
        }
    }

    /// Opens the store on its server, if it is on one; makes it if there is none. Everybody may write there: leases decide.
    pub(crate) fn open_server(&self) -> Result<Option<Arc<dyn Store>>, Failure> {
        if self.is_embedded() { Ok(None) } else { self.on_server(Asked::Open) }
    }

    fn on_server(&self, asked: Asked) -> Result<Option<Arc<dyn Store>>, Failure> {
        let store = match &self.store {
            StoreConfig::Embedded { .. } => return Ok(None),
            StoreConfig::Redis(config) => server::redis(config, &self.directory, asked)?,
            StoreConfig::Postgres(config) => server::postgres(config, asked)?,
        };
        if let (Some(store), Some(said)) = (&store, self.shards())
            && store.shard_count() != said
        {
            let count = store.shard_count();
            return Err(Failure::failed(
                format!("{self} has {count} shards, and interlock.yaml says {said}"),
                "The number is fixed when a store is made. To change it, name another prefix or schema in a copy of \
                 interlock.yaml, and move there with `interlock store copy`.",
            ));
        }
        Ok(store)
    }

    /// What is said to whoever asks for what is not there.
    pub(crate) fn nothing_recorded(&self) -> Failure {
        Failure::failed(
            format!("nothing was recorded yet in {self}"),
            "Start `interlock serve`, or run a pipeline with `interlock run`; or name another project with `-C DIR`.",
        )
    }

    /// How somebody takes out all that it holds, in words of its engine.
    pub(crate) fn how_to_empty(&self) -> String {
        match &self.store {
            StoreConfig::Embedded { .. } => {
                format!("remove the files {}*.", self.folder.join("ledger.db").display())
            }
            StoreConfig::Redis(config) => {
                let prefix = &config.key_prefix;
                let server = config.addr.split(',').next().unwrap_or_default().trim();
                let at = format!("redis-cli -u redis://{server}/{}", config.db);
                format!(
                    "`{at} --scan --pattern '{prefix}:*'` shows its keys, and with ` | xargs -d '\\n' {at} unlink` behind it removes \
                     them. On a cluster their patterns are '{{{prefix}}}:*' and '{{{prefix}:*', on each of its servers."
                )
            }
            StoreConfig::Postgres(config) => {
                format!("`DROP SCHEMA {} CASCADE;` in that database.", config.schema)
            }
        }
    }

    /// How many shards the file says that it has.
    fn shards(&self) -> Option<u16> {
        match &self.store {
            StoreConfig::Redis(config) => config.shards,
            StoreConfig::Postgres(config) => config.shards,
            StoreConfig::Embedded { .. } => None,
        }
    }

    /// Keeps a second `serve` of this machine away. The file of an embedded store has a lock of its own. One that is not seen to run, because
    /// it is just ending or runs in another container, is waited for.
    pub(crate) fn hold(&self) -> Result<Held, Failure> {
        if self.is_embedded() {
            return Ok(Held::default());
        }
        private_files::create_folder(&self.folder)
            .map_err(|error| Failure::file("create", &self.folder, &error))?;
        let began = Instant::now();
        loop {
            let attempt = DaemonLock::attempt(&self.folder, SERVE);
            let path = self.folder.join("daemon.lock");
            let holder = match attempt.map_err(|error| Failure::file("lock", &path, &error))? {
                LockOutcome::Taken(lock) => return Ok(Held(Some(lock))),
                LockOutcome::HeldBy(holder) => holder,
            };
            let runs_here = holder.as_ref().is_some_and(LockHolder::is_running);
            if runs_here || began.elapsed() >= SERVE_WAITS {
                let who = holder.map_or_else(|| "another process".to_owned(), |it| it.to_string());
                return Err(Failure::failed(
                    format!("`interlock serve` runs here already: {who}"),
                    "Stop that one first, or serve from another folder.",
                ));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// What of the folder is closed to other users. A folder that is the project itself holds files that they may read.
    pub(crate) fn private_extent(&self) -> Extent<'static> {
        let canonical = |path: &Path| fs::canonicalize(path).ok();
        let is_project = canonical(&self.folder) == canonical(&self.directory);
        if is_project {
            Extent::Files(interlock_store_embedded::FILE_NAMES)
        } else {
            Extent::Folder
        }
    }

    /// Closes the folder to other users; answers what is left open to them because it belongs to another user.
    pub(crate) fn make_private(&self) -> Result<Vec<Exposed>, Failure> {
        private_files::create_folder(&self.folder)
            .and_then(|()| private_files::restrict(&self.folder, self.private_extent()))
            .map_err(|error| Failure::file("restrict", &self.folder, &error))
    }

    /// How long a lease lasts, and how often the inbox is looked at. Where others wait for a lease, they must not wait for
    /// long; where there are many shards, each is asked less often.
    pub(crate) fn pace(&self) -> Pace {
        if self.is_embedded() {
            return Pace::default();
        }
        let inbox = if self.shards() == Some(1) { Pace::default().inbox } else { INBOX_EVERY };
        Pace { lease: SHORT_LEASE, inbox }
    }

    /// Where the runner of this machine keeps its files.
    pub(crate) fn runner_folder(&self) -> PathBuf {
        self.folder.join("runner")
    }

    /// Where the output of a run's job is, if it ran on this machine. What the run itself says was true on its host alone.
    pub(crate) fn log_path(&self, pipeline: &PipelineId, run: &str) -> PathBuf {
        log_path(&self.runner_folder(), pipeline.as_str(), run)
    }

    /// The logs of this machine, for questions over HTTP.
    pub(crate) fn host_logs(&self) -> Result<HostLogs, Failure> {
        let (place, host) = (self.clone(), self.host()?);
        Ok(HostLogs { host, find: Arc::new(move |pipeline, run| place.log_path(pipeline, run)) })
    }

    /// What [`Place::host`] said once.
    pub(crate) fn known_host(&self) -> Option<String> {
        let name = fs::read_to_string(self.folder.join("host")).ok()?;
        Some(name.trim().to_owned()).filter(|name| !name.is_empty())
    }

    /// Where the jobs of this process can be found again, if they could be looked for elsewhere; kept for the next one.
    pub(crate) fn host(&self) -> Result<Option<String>, Failure> {
        if self.is_embedded() {
            return Ok(None);
        }
        if let Some(name) = self.known_host() {
            return Ok(Some(name));
        }
        let path = self.folder.join("host");
        let name = format!("{}-{:08x}", host_name(), chance() & 0xffff_ffff);
        private_files::create_folder(&self.folder)
            .and_then(|()| private_files::create_whole(&path, &name))
            .map_err(|error| Failure::file("write", &path, &error))?;
        // Two processes of one folder may begin at once: both go by the name of the first.
        Ok(Some(self.known_host().unwrap_or(name)))
    }

    /// Who this process is to the store's leases. Where a lock of the machine keeps others away it is always the same
    /// one, so that a restart need not wait for the dead one's lease.
    pub(crate) fn holder(&self) -> String {
        if self.is_embedded() {
            return HOLDER.to_owned();
        }
        let host = self.host().ok().flatten().unwrap_or_else(host_name);
        format!("{host}/{}-{:08x}", std::process::id(), chance() & 0xffff_ffff)
    }
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

fn chance() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// The file that says where everything is, by the name that it has.
pub(crate) fn config_file(directory: &Path) -> PathBuf {
    let (usual, other) = (directory.join(CONFIG_FILE), directory.join("interlock.yml"));
    if !usual.exists() && other.exists() { other } else { usual }
}

/// Where a file says that the ledger is; one that is not there says nothing else than the defaults.
pub(crate) fn store(path: &Path) -> Result<StoreConfig, Failure> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| Failure::file("read", path, &error))?,
    };
    let store = parse_store(path, &text, &SystemZones::new(), &environment::variable);
    store.map_err(|problems| {
        let errors = problems.iter().filter(|problem| problem.severity == Severity::Error);
        let said: Vec<_> = errors.map(|problem| problem.message.as_str()).collect();
        Failure::failed(
            format!("{} does not say where the ledger is: {}", path.display(), said.join("; ")),
            "`interlock validate` shows the place. Nothing was read or written.",
        )
    })
}

/// What a file says, if it can be used.
pub(crate) fn config(path: &Path) -> Option<ServerConfig> {
    let text = fs::read_to_string(path).unwrap_or_default();
    parse_config(path, &text, &SystemZones::new(), &environment::variable).0
}

/// Says where it is, without a password.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.store {
            StoreConfig::Embedded { .. } => write!(f, "{}", self.folder.display()),
            StoreConfig::Redis(config) => {
                write!(f, "redis {} (prefix {})", config.addr, config.key_prefix)
            }
            StoreConfig::Postgres(config) => {
                let server = server::postgres_place(config).unwrap_or_default();
                write!(f, "postgres {server} (schema {})", config.schema)
            }
        }
    }
}

#[cfg(not(all(feature = "redis", feature = "postgres")))]
fn absent(provider: &str) -> Failure {
    Failure::failed(
        format!("this build has no store on {provider}"),
        "Write `provider: embedded` in interlock.yaml, or build with that feature.",
    )
}

/// Opens a ledger to read it; one that somebody is just making, or was making a moment ago, is waited for.
fn open_reader(folder: &Path) -> Result<EmbeddedStore, Failure> {
    let mut waited = Duration::ZERO;
    loop {
        match EmbeddedStore::open_reader(folder, Arc::new(clock::now)) {
            Err(error)
                if error.is_retryable
                    && waited < MAKING_MAX
                    && (waited < BUSY_MAX || writer::writing(folder) != Writing::Nobody) =>
            {
                thread::sleep(LOOK_EVERY);
                waited += LOOK_EVERY;
            }
            opened => return Ok(opened?),
        }
    }
}

/// Stores on servers, as far as they are built in.
mod server {
    use std::{path::Path, sync::Arc};

    use interlock_config::server::{Postgres, Redis};
    use interlock_store::Store;

    use crate::exit::Failure;

    /// For what a store is opened.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Asked {
        /// To be used, and made if it is not there.
        Open,
        /// To be read, if it is there.
        Find,
        /// To be looked at, if it is there, as far as it can be reached.
        Look,
    }

    /// A server that lets nobody in, or is not there. Its address may hold a password, so only what may be shown is.
    #[cfg(any(feature = "redis", feature = "postgres"))]
    fn closed(server: &str, error: &interlock_store::StoreError, hint: &str) -> Failure {
        Failure::failed(
            format!("the store on {server} cannot be opened: {error}"),
            format!("Check that the server runs, and what interlock.yaml says about it.{hint}"),
        )
    }

    /// What a Redis that cannot be used says of it only to those who know it.
    #[cfg(feature = "redis")]
    fn redis_hint(config: &Redis, error: &interlock_store::StoreError) -> String {
        let says = |words: &[&str]| words.iter().any(|word| error.message.contains(word));
        if config.db != 0 && says(&["DB index", "SELECT", "cluster mode"]) {
            return format!(
                " `redis.db` is {}: a server has 16 databases unless it is set up otherwise, and a cluster has only 0.",
                config.db
            );
        }
        match config.tls {
            Some(_)
                if says(&[
                    "timed out",
                    "did not answer",
                    "InvalidContentType",
                    "TLS",
                    "corrupt message",
                ]) =>
            {
                " `redis.tls` is true: does the server speak TLS on that port?".to_owned()
            }
            None if says(&["reset by peer", "broken pipe", "terminated", "closed", "eof"]) => {
                " If the server speaks TLS on that port, write `redis.tls: true`.".to_owned()
            }
            Some(_) | None => String::new(),
        }
    }

    /// Where a PostgreSQL is, as far as that may be shown.
    #[cfg(feature = "postgres")]
    pub(super) fn postgres_place(config: &Postgres) -> Option<String> {
        interlock_store_postgres::place(config.dsn.expose())
    }

    #[cfg(not(feature = "postgres"))]
    pub(super) fn postgres_place(_config: &Postgres) -> Option<String> {
        None
    }

    /// How the store on Redis is used.
    #[cfg(feature = "redis")]
    fn redis_settings(config: &Redis, project: &Path) -> interlock_store_redis::RedisSettings {
        use interlock_store_redis::{RedisSettings, RedisTls};
        let tls = config.tls.as_ref().map(|tls| RedisTls {
            ca: tls.ca.as_ref().map(|file| project.join(file)),
            client: tls.client.as_ref().map(|(cert, key)| (project.join(cert), project.join(key))),
        });
        RedisSettings {
            addr: config.addr.clone(),
            username: config.username.clone(),
            password: config.password.as_ref().map(|secret| secret.expose().to_owned()),
            db: config.db,
            tls,
            key_prefix: config.key_prefix.clone(),
            readiness_ttl: config.readiness_ttl,
            retention_ttl: config.retention_ttl,
            run_index_limit: config.run_index_limit,
            event_stream_max: config.event_stream_max,
            shards: config.shards.unwrap_or(super::SHARDS),
            on_rollback: Some(Arc::new(|said: &str| tracing::error!("{said}"))),
        }
    }

    #[cfg(feature = "redis")]
    fn redis_closed(config: &Redis, error: &interlock_store::StoreError) -> Failure {
        closed(&format!("Redis at {}", config.addr), error, &redis_hint(config, error))
    }

    /// Whether there is a store, for which nobody needs to look how its servers are set up.
    #[cfg(feature = "redis")]
    pub(super) fn redis_exists(config: &Redis, project: &Path) -> Result<bool, Failure> {
        let found = interlock_store_redis::RedisStore::exists(&redis_settings(config, project));
        found.map_err(|error| redis_closed(config, &error))
    }

    #[cfg(not(feature = "redis"))]
    pub(super) fn redis_exists(_config: &Redis, _project: &Path) -> Result<bool, Failure> {
        Err(super::absent("redis"))
    }

    #[cfg(feature = "redis")]
    pub(super) fn redis(
        config: &Redis,
        project: &Path,
        asked: Asked,
    ) -> Result<Option<Arc<dyn Store>>, Failure> {
        use interlock_store_redis::RedisStore;
        let settings = redis_settings(config, project);
        let store = match asked {
            Asked::Open => RedisStore::open(&settings).map(Some),
            Asked::Find => RedisStore::find(&settings),
            Asked::Look => RedisStore::look(&settings),
        };
        let store = store.map_err(|error| redis_closed(config, &error))?;
        let Some(store) = store else { return Ok(None) };
        for warning in store.warnings() {
            tracing::warn!("{warning}");
        }
        Ok(Some(Arc::new(store)))
    }

    #[cfg(not(feature = "redis"))]
    pub(super) fn redis(
        _config: &Redis,
        _project: &Path,
        _asked: Asked,
    ) -> Result<Option<Arc<dyn Store>>, Failure> {
        Err(super::absent("redis"))
    }

    #[cfg(feature = "postgres")]
    pub(super) fn postgres(
        config: &Postgres,
        asked: Asked,
    ) -> Result<Option<Arc<dyn Store>>, Failure> {
        use interlock_store_postgres::{PostgresSettings, PostgresStore};
        let settings = PostgresSettings {
            dsn: config.dsn.expose().to_owned(),
            schema: config.schema.clone(),
            connections_max: config.connections_max as usize,
            shards: config.shards.unwrap_or(super::SHARDS),
            on_rollback: Some(Arc::new(|said: &str| tracing::error!("{said}"))),
        };
        let store = match asked {
            Asked::Open => PostgresStore::open(&settings).map(Some),
            Asked::Find | Asked::Look => PostgresStore::find(&settings),
        };
        let store = store.map_err(|error| closed("PostgreSQL", &error, ""))?;
        Ok(store.map(|store| Arc::new(store) as _))
    }

    #[cfg(not(feature = "postgres"))]
    pub(super) fn postgres(
        _config: &Postgres,
        _asked: Asked,
    ) -> Result<Option<Arc<dyn Store>>, Failure> {
        Err(super::absent("postgres"))
    }
}
