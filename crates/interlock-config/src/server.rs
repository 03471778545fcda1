//! What `interlock.yaml` says, validated, every default filled in.

use std::{collections::BTreeMap, path::PathBuf};

use interlock_core::{outbound::Outbound, pipeline::Secret, zone::Zone};
use jiff::SignedDuration;

/// The whole of `interlock.yaml`.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerConfig {
    /// Which store.
    pub store: StoreConfig,
    /// Long keeping in Postgres; off when absent.
    pub archiver: Option<Archiver>,
    /// Who judges absence.
    pub watchdog: Watchdog,
    /// Who asks for readiness.
    pub watcher: Watcher,
    /// Limits of scheduler and controller.
    pub engine: Engine,
    /// The HTTP interface.
    pub server: Server,
    /// Who is told, and how.
    pub alerts: Vec<Alert>,
    /// Where files are.
    pub dirs: Dirs,
    /// Who learns when Interlock stops.
    pub beacons: Vec<Beacon>,
    /// How long history is kept.
    pub retention: Retention,
    /// The zone of pipelines that name none.
    pub zone: Zone,
}

/// The store and its options.
#[derive(Debug, Clone, PartialEq)]
pub enum StoreConfig {
    /// One file, no server.
    Embedded {
        /// Its directory.
        path: PathBuf,
    },
    /// Redis or Valkey.
    Redis(Redis),
    /// Postgres.
    Postgres(Postgres),
}

/// Redis or Valkey.
#[derive(Debug, Clone, PartialEq)]
pub struct Redis {
    /// Host and port; several, with commas, where one follows another.
    pub addr: String,
    /// Who we are, where it has users.
    pub username: Option<String>,
    /// Its password; none when absent.
    pub password: Option<Secret>,
    /// Which database.
    pub db: u32,
    /// TLS, if the server speaks it.
    pub tls: Option<RedisTls>,
    /// In front of every key.
    pub key_prefix: String,
    /// How long a cached readiness is shown.
    pub readiness_ttl: SignedDuration,
    /// How long events and the run log of each day are kept.
    pub retention_ttl: SignedDuration,
    /// Runs in a pipeline's index.
    pub run_index_limit: u32,
    /// Events in a pipeline's stream.
    pub event_stream_max: u32,
    /// How many shards it gets when it is made; nothing when the file does not say.
    pub shards: Option<u16>,
    /// Where a host keeps what is its own.
    pub folder: PathBuf,
}

/// TLS to Redis; files are relative to the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisTls {
    /// Authorities that are believed instead of those of the machine.
    pub ca: Option<PathBuf>,
    /// A certificate of ours and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Postgres.
#[derive(Debug, Clone, PartialEq)]
pub struct Postgres {
    /// Where it is.
    pub dsn: Secret,
    /// Connections at most.
    pub connections_max: u32,
    /// The database schema of the tables.
    pub schema: String,
    /// How long events are kept, if less than `retention` says.
    pub retention_ttl: Option<SignedDuration>,
    /// How many shards it gets when it is made; nothing when the file does not say.
    pub shards: Option<u16>,
    /// Where a host keeps what is its own.
    pub folder: PathBuf,
}

/// Long keeping in Postgres.
#[derive(Debug, Clone, PartialEq)]
pub struct Archiver {
    /// How often.
    pub interval: SignedDuration,
    /// How many rows are read at once.
    pub rows_at_once: u32,
    /// Where to.
    pub dsn: Secret,
}

/// Who judges absence.
#[derive(Debug, Clone, PartialEq)]
pub struct Watchdog {
    /// Whether it runs.
    pub enabled: bool,
    /// How often everything is swept besides every deadline.
    pub interval: SignedDuration,
    /// When a run counts as stuck.
    pub stuck_run_threshold: SignedDuration,
}

/// Who asks for readiness.
#[derive(Debug, Clone, PartialEq)]
pub struct Watcher {
    /// Whether it runs.
    pub enabled: bool,
    /// How often, where a pipeline does not say.
    pub default_interval: SignedDuration,
}

/// Limits of scheduler and controller.
#[derive(Debug, Clone, PartialEq)]
pub struct Engine {
    /// How long an evaluator may take.
    pub default_timeout: SignedDuration,
    /// Runs at the same time, over all pipelines.
    pub runs_max: u32,
    /// Evaluators at the same time.
    pub evaluations_max: u32,
    /// Catch-up runs at the same time.
    pub catchup_runs_max: u32,
    /// Catch-up runs started per minute.
    pub catchup_per_minute: u32,
    /// Which addresses may be called.
    pub outbound: Outbound,
}

/// The HTTP interface.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// Where it listens.
    pub addr: String,
    /// Whether somebody wrote that down: an address that is only the default may be missed.
    pub addr_is_written: bool,
    /// With which certificate it speaks HTTPS; plain HTTP when absent.
    pub tls: Option<ListenerTls>,
    /// Where the guard answers liveness and readiness probes, on a thread of its own; nowhere when absent.
    pub probes: Option<String>,
    /// A single key with every right.
    pub api_key: Option<Secret>,
    /// Scoped tokens.
    pub tokens: Vec<Token>,
    /// Bytes in one request at most.
    pub request_body_max: u32,
    /// Requests from one address each second.
    pub requests_per_second: u32,
}

/// The certificate of the listener; files are relative to the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerTls {
    /// The certificate, and those that vouch for it.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A scoped token.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// Whose it is.
    pub name: String,
    /// The token itself.
    pub token: Secret,
    /// What it may do.
    pub scope: Scope,
}

/// What a token may do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Report on pipelines with these names; `*` stands for anything.
    Ping(Vec<String>),
    /// Show badges, and nothing else.
    Badge,
    /// Look.
    Viewer,
    /// Act on pipelines.
    Operator,
    /// Everything.
    Admin,
}

/// One channel for alerts.
#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    /// Its name, for silences and dead letters.
    pub name: String,
    /// How.
    pub channel: Channel,
    /// Which alerts it gets.
    pub when: AlertFilter,
    /// Only what lasts so long while nobody looks at it: a later step of escalation.
    pub after: Option<SignedDuration>,
    /// Only once so many were found in a row.
    pub findings: u32,
    /// Of the last so many slots, instead of in a row; 0 means in a row.
    pub of: u32,
    /// The end only once so many slots in a row went well.
    pub recovered: u32,
    /// Again after so long, while it lasts and nobody looks at it.
    pub repeat: Option<SignedDuration>,
    /// Where people read what to do, for pipelines that do not say.
    pub runbook: Option<String>,
    /// Whether many at once are one message; what its kind does when absent.
    pub digest: Option<bool>,
    /// What a program is sent.
    pub format: AlertFormat,
}

/// What a channel for programs is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AlertFormat {
    /// The alert, as the local controller wrote it.
    #[default]
    Alert,
    /// The event that it tells of, as the AWS controller published it.
    Events,
}

/// How people are told.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "the keys are those of the files, and the reference page says them"
)]
pub enum Channel {
    Console,
    File { path: PathBuf },
    Webhook { url: Secret, secret: Option<Secret>, headers: BTreeMap<String, Secret> },
    Slack(Slack),
    Email(Email),
    Pagerduty { routing_key: Secret, url: Option<Secret> },
    Http { url: Secret, method: String, headers: BTreeMap<String, Secret>, body: Option<String> },
}

/// Slack.
#[derive(Debug, Clone, PartialEq)]
pub struct Slack {
    /// An incoming webhook; or the API, with a token.
    pub url: Option<Secret>,
    /// A bot's token, with a channel.
    pub token: Option<Secret>,
    /// Where the bot writes.
    pub channel: Option<String>,
}

/// Mail.
#[derive(Debug, Clone, PartialEq)]
pub struct Email {
    /// Host and port of the server.
    pub smtp: String,
    /// The sender.
    pub from: String,
    /// The receivers.
    pub to: Vec<String>,
    /// For the server.
    pub username: Option<String>,
    /// For the server.
    pub password: Option<Secret>,
    /// How the connection is kept from others.
    pub tls: MailTls,
}

/// How a connection to a mail server is kept from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailTls {
    /// From the first byte, as on port 465.
    Tls,
    /// After a greeting in the open, as on port 587; without it nothing is sent.
    Starttls,
    /// Not at all.
    None,
}

/// Which alerts a channel gets; an empty list lets everything pass.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AlertFilter {
    /// Levels.
    pub levels: Vec<String>,
    /// Alert types.
    pub types: Vec<String>,
    /// Pipelines; `*` stands for anything.
    pub pipelines: Vec<String>,
    /// Owners.
    pub owners: Vec<String>,
    /// Labels, all of which must be there.
    pub labels: BTreeMap<String, String>,
}

/// Where files are, relative to `interlock.yaml`.
#[derive(Debug, Clone, PartialEq)]
pub struct Dirs {
    /// Pipelines.
    pub pipelines: Vec<PathBuf>,
    /// Calendars.
    pub calendars: Vec<PathBuf>,
    /// Archetypes.
    pub archetypes: Vec<PathBuf>,
    /// Evaluators.
    pub evaluators: Vec<PathBuf>,
}

/// An outside party that expects to hear from Interlock.
#[derive(Debug, Clone, PartialEq)]
pub struct Beacon {
    /// Pinged while the loops make progress.
    pub url: Secret,
    /// How often.
    pub interval: SignedDuration,
}

/// How long history is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Retention {
    /// Slots and runs.
    pub slots: SignedDuration,
    /// Events.
    pub events: SignedDuration,
    /// Job output.
    pub logs: SignedDuration,
}
