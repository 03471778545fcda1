//! The store, put together.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use interlock_core::id::{PipelineId, ScheduleId, check_key_prefix};
use interlock_store::{
    Accepted, AgendaRow, Archived, Away, BackfillQuery, BackfillRow, Changes, DueRow, EventQuery,
    EventRow, Forgetting, FoundRows, Freight, Group, InboxEntry, IncidentQuery, InstanceRow, Key,
    Lease, LedgerQuery, LedgerRow, Mark, OutboxRow, Page, Portion, ReadinessView, Recalled, Record,
    Refusal, Role, Roll, Row, Rows, RowsQuery, RunQuery, RunRow, SettleOutcome, Settlement, Shard,
    Store, StoreError, StoreFuture, Writer, check_name, check_settlements,
    record::{InboxRecord, IncidentRecord, InstanceRecord, SensorRecord},
};
use interlock_store_remote::{Desk, OnRollback, chance, instant};
use jiff::{SignedDuration, Timestamp};
use std::sync::atomic::Ordering;

use crate::{
    apply, instances,
    keys::Keys,
    lease, ledger,
    link::Link,
    place::{Layout, Places},
    queue, read,
    request::{Server, number},
    roll,
    server::{self, Findings, Fitness, Presence},
    views::Views,
    whole,
};

/// How often it is looked whether two servers are taken for the primary.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Where a store is, and how it is used.
#[derive(Clone)]
pub struct RedisSettings {
    /// `host:port`; several, separated by commas, where one may follow another.
    pub addr: String,
    /// Who we are to it, where it has users.
    pub username: Option<String>,
    /// Its password; none when absent.
    pub password: Option<String>,
    /// Which database.
    pub db: u32,
    /// TLS, if the server speaks it.
    pub tls: Option<RedisTls>,
    /// In front of every key.
    pub key_prefix: String,
    /// How long it is shown whether a pipeline was ready.
    pub readiness_ttl: SignedDuration,
    /// How long run logs and events are kept.
    pub retention_ttl: SignedDuration,
    /// How many runs the index of a pipeline has that people look at.
    pub run_index_limit: u32,
    /// How many events a pipeline's stream has, about.
    pub event_stream_max: u32,
    /// How many shards it gets when it is made; later it keeps what it has.
    pub shards: u16,
    /// Hears of writes that the server has forgotten.
    pub on_rollback: Option<OnRollback>,
}

/// Whom to believe, and who we are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RedisTls {
    /// A file with the authorities that are believed, instead of those of the machine.
    pub ca: Option<PathBuf>,
    /// Files with our certificate and its key, for a server that asks for one.
    pub client: Option<(PathBuf, PathBuf)>,
}

impl RedisSettings {
    /// A server of which nothing but its address is said: one shard, and the first Interlock's sizes.
    pub fn new(addr: String) -> Self {
        Self {
            addr,
            username: None,
            password: None,
            db: 0,
            tls: None,
            key_prefix: "interlock".to_owned(),
            readiness_ttl: SignedDuration::from_hours(1),
            retention_ttl: SignedDuration::from_hours(168),
            run_index_limit: 100,
            event_stream_max: 10_000,
            shards: 1,
            on_rollback: None,
        }
    }
}

impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings")
            .field("addr", &self.addr)
            .field("key_prefix", &self.key_prefix)
            .finish_non_exhaustive()
    }
}

/// A store on a Redis server.
pub struct RedisStore {
    server: Arc<Server>,
    views: Arc<Views>,
    warnings: Vec<String>,
    left_out: Vec<Away>,
    desk: Desk,
}

/// For what a store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To be used; where there is none, one is made with so many shards.
    Use(u16),
    /// To be read, all of it.
    Read,
    /// To be looked at, as far as it can be reached.
    Look,
}

impl RedisStore {
    /// Opens the store; makes it if it is not there. A server that may lose what it acknowledges is refused. Blocks meanwhile.
    pub fn open(settings: &RedisSettings) -> Result<Self, StoreError> {
        let opened = Self::start(settings, Purpose::Use(settings.shards))?;
        opened.ok_or_else(|| StoreError::retryable("the store went as it was made"))
    }

    /// Opens the store, if there is one: whoever only reads does not decide where it is and how many shards it has. Such a server is
    /// then only warned of: to look is what somebody wants who has to mend it.
    pub fn find(settings: &RedisSettings) -> Result<Option<Self>, StoreError> {
        Self::start(settings, Purpose::Read)
    }

    /// The same for a person who looks: shards of a cluster whose server cannot be reached are left out of lists over all pipelines, and
    /// who asks for one of their pipelines hears at once which server that is ([`Store::left_out`]).
    pub fn look(settings: &RedisSettings) -> Result<Option<Self>, StoreError> {
        Self::start(settings, Purpose::Look)
    }

    /// Whether there is a store.
    pub fn exists(settings: &RedisSettings) -> Result<bool, StoreError> {
        let desk = Desk::start("redis-store")?;
        let (prefix, link) = (prefix(&settings.key_prefix)?, Link::new(settings)?);
        desk.wait(async move { Ok(found(&link, prefix).await?.count.is_some()) })
    }

    fn start(settings: &RedisSettings, purpose: Purpose) -> Result<Option<Self>, StoreError> {
        let desk = Desk::start("redis-store")?;
        let (prefix, link) = (prefix(&settings.key_prefix)?, Link::new(settings)?);
        let on_rollback = settings.on_rollback.clone();
        let opened = desk.wait(async move {
            let Some((places, findings)) = open(&link, prefix, purpose).await? else {
                return Ok(None);
            };
            let layout = places.layout();
            let server = Server::new(link, places, identity(), on_rollback);
            server.link.opened(server.mark().await?.store);
            let server = Arc::new(server);
            if layout == Layout::Together && server.link.names_several() {
                tokio::spawn(keep_looking(Arc::downgrade(&server)));
            }
            Ok(Some((server, findings)))
        })?;
        let Some((server, findings)) = opened else { return Ok(None) };
        let views = Views {
            retention_ms: interlock_store_remote::whole_ttl(settings.retention_ttl),
            runs_max: settings.run_index_limit,
            events_max: settings.event_stream_max,
            readiness_ms: interlock_store_remote::whole_ttl(settings.readiness_ttl),
        };
        let warnings = findings.all(server.shard_count());
        let left_out = if purpose == Purpose::Look { findings.away } else { vec![] };
        Ok(Some(Self { server, views: Arc::new(views), warnings, left_out, desk }))
    }

    /// What the server may lose, in sentences for its owner.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// How often the server was found to have forgotten something.
    pub fn rollbacks(&self) -> u64 {
        self.server.rollbacks.load(Ordering::Relaxed)
    }

    fn ask<'a, T: Send + 'static, F>(
        &self,
        work: impl FnOnce(Arc<Server>) -> F,
    ) -> StoreFuture<'a, T>
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.desk.ask(work(Arc::clone(&self.server)))
    }

    /// The same for what needs all shards, however the store was opened.
    fn ask_whole<'a, T: Send + 'static, F>(
        &self,
        work: impl FnOnce(Arc<Server>) -> F,
    ) -> StoreFuture<'a, T>
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        match self.server.places.check_whole() {
            Ok(()) => self.ask(work),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

/// What is found on a server before anything is opened.
struct FoundStore {
    home: Keys,
    layout: Layout,
    /// How many shards it has; nothing if there is no store.
    count: Option<u16>,
}

/// Looks for a store. That there is none is believed only when every server says so that was named.
async fn found(link: &Link, prefix: String) -> Result<FoundStore, StoreError> {
    let (home, layout) = if link.is_cluster().await? {
        (home_of_shards(&prefix)?, Layout::Apart)
    } else {
        (Keys { prefix }, Layout::Together)
    };
    let count = server::shard_count(link, (&home, layout)).await?;
    if count.is_none() && layout == Layout::Together {
        link.require_all().await?;
    }
    Ok(FoundStore { home, layout, count })
}

/// Opens a store, or makes it, and says what its owner should know.
async fn open(
    link: &Link,
    prefix: String,
    purpose: Purpose,
) -> Result<Option<(Places, Findings)>, StoreError> {
    let FoundStore { home, layout, count: found } = found(link, prefix).await?;
    let made_with = match purpose {
        Purpose::Use(shards) => Some(shards),
        Purpose::Read | Purpose::Look => None,
    };
    let Some(count) = found.or(made_with) else { return Ok(None) };
    let places = Places::new(home.clone(), count.max(1), layout);
    let presence = if found.is_some() { Presence::Home } else { Presence::Everybody };
    let findings = match server::check(link, &places, presence).await? {
        Fitness::Unfit(message) if made_with.is_some() => {
            return Err(StoreError::permanent(message));
        }
        Fitness::Unfit(message) => Findings { dangers: vec![message], ..Findings::default() },
        Fitness::Fit(findings) => findings,
    };
    if let Some(shards) = made_with {
        server::make(link, (&home, layout), shards).await?;
    }
    // Somebody else may have made it meanwhile, with another number.
    let Some(count) = server::shard_count(link, (&home, layout)).await? else { return Ok(None) };
    let mut places = Places::new(home, count, layout);
    if purpose == Purpose::Look {
        places.leave_out(&findings.away);
    }
    Ok(Some((places, findings)))
}

/// Looks now and then, for as long as the store is used, whether it is further on another server.
async fn keep_looking(server: Weak<Server>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(server) = server.upgrade() else { return };
        server.link.look().await;
    }
}

fn prefix(prefix: &str) -> Result<String, StoreError> {
    let unusable =
        |reason| StoreError::permanent(format!("`redis.keyPrefix` cannot be `{prefix}`: {reason}"));
    check_key_prefix(prefix).map_err(unusable)?;
    Ok(prefix.to_owned())
}

/// The home of a store on a cluster. Its shards add their numbers to the name, which must not be the name of another store.
fn home_of_shards(prefix: &str) -> Result<Keys, StoreError> {
    if let Some((other, number)) = prefix.rsplit_once(':')
        && !number.is_empty()
        && number.bytes().all(|letter| letter.is_ascii_digit())
    {
        let message = format!(
            "`redis.keyPrefix` cannot be `{prefix}` on a cluster: that is where shard {number} of a store `{other}` is; let it end \
             in a letter"
        );
        return Err(StoreError::permanent(message));
    }
    Ok(Keys { prefix: format!("{{{prefix}}}") })
}

/// A name that no other client has.
fn identity() -> String {
    format!("{:016x}{:016x}", chance(), chance())
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Store for RedisStore {
    fn cautions(&self) -> StoreFuture<'_, Vec<String>> {
        self.ask(|server| async move {
            let found = server::check(&server.link, &server.places, Presence::Home).await?;
            let Findings { dangers, away, .. } = match found {
                Fitness::Unfit(message) => return Ok(vec![message]),
                Fitness::Fit(findings) => findings,
            };
            // Of a server that is away nobody knows whether it is safe, and it is not unsafe for that.
            if dangers.is_empty() && !away.is_empty() {
                let count = server.shard_count();
                let said: Vec<_> = away.iter().map(|away| away.sentence(count)).collect();
                return Err(StoreError::retryable(said.join("; ")));
            }
            Ok(dangers)
        })
    }

    fn left_out(&self) -> &[Away] {
        &self.left_out
    }

    fn now(&self) -> StoreFuture<'_, Timestamp> {
        self.ask(|server| async move {
            let told = server.read(&server.places.home, vec!["now".to_owned()]).await?;
            instant(number(told)?)
        })
    }

    fn shard_count(&self) -> u16 {
        self.server.shard_count()
    }

    fn commit(&self, groups: Vec<Group>) -> StoreFuture<'_, Vec<Result<Accepted, Refusal>>> {
        let count = self.server.shard_count();
        let checked = groups.iter().try_for_each(|group| group.check(count));
        let views = self.views.clone();
        self.ask(|server| async move {
            checked?;
            apply::commit(&server, &views, groups).await
        })
    }

    fn acquire<'a>(
        &'a self,
        role: Role,
        shard: Shard,
        holder: &'a str,
        ttl: SignedDuration,
    ) -> StoreFuture<'a, Option<Lease>> {
        let (holder, count) = (holder.to_owned(), self.server.shard_count());
        self.ask(move |server| async move {
            if shard.0 >= count {
                let message = format!("there is no shard {} among {count}", shard.0);
                return Err(StoreError::permanent(message));
            }
            lease::acquire(&server, (role, shard), holder, ttl).await
        })
    }

    fn renew(&self, writer: Writer, ttl: SignedDuration) -> StoreFuture<'_, Option<Lease>> {
        self.ask(move |server| async move { lease::renew(&server, writer, ttl).await })
    }

    fn release(&self, writer: Writer) -> StoreFuture<'_, ()> {
        self.ask(move |server| async move { lease::release(&server, writer).await })
    }

    fn announce<'a>(
        &'a self,
        role: Role,
        instance: &'a str,
        ttl: SignedDuration,
    ) -> StoreFuture<'a, ()> {
        let instance = instance.to_owned();
        self.ask(move |server| async move { roll::announce(&server, role, &instance, ttl).await })
    }

    fn roll(&self) -> StoreFuture<'_, Option<Roll>> {
        self.ask(|server| async move { roll::roll(&server).await.map(Some) })
    }

    fn report_instance<'a>(
        &'a self,
        instance: &'a str,
        record: &'a InstanceRecord,
    ) -> StoreFuture<'a, ()> {
        let (instance, body) = (instance.to_owned(), record.encode());
        self.ask(move |server| async move { instances::report(&server, instance, body).await })
    }

    fn instances(&self) -> StoreFuture<'_, Vec<InstanceRow>> {
        self.ask(|server| async move { instances::all(&server).await })
    }

    fn read<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        keys: &'a [Key],
    ) -> StoreFuture<'a, Vec<Option<Row<Record>>>> {
        let (pipeline, keys) = (pipeline.clone(), keys.to_vec());
        self.ask(move |server| async move { read::rows(&server, &pipeline, &keys).await })
    }

    fn read_many<'a>(&'a self, asked: &'a [RowsQuery]) -> StoreFuture<'a, Vec<FoundRows>> {
        let asked = asked.to_vec();
        self.ask(move |server| async move { read::rows_of_many(&server, &asked).await })
    }

    fn agenda<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a PipelineId>,
        limit: usize,
    ) -> StoreFuture<'a, Page<AgendaRow>> {
        let after = after.cloned();
        self.ask(move |server| async move { read::agenda(&server, shard, after, limit).await })
    }

    fn revisions<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a PipelineId>,
        limit: usize,
    ) -> StoreFuture<'a, Page<(PipelineId, u64)>> {
        let after = after.cloned();
        self.ask(move |server| async move { read::revisions(&server, shard, after, limit).await })
    }

    fn ledger<'a>(&'a self, query: &'a LedgerQuery) -> StoreFuture<'a, Page<LedgerRow>> {
        let query = query.clone();
        self.ask(move |server| async move { ledger::ledger(&server, &query).await })
    }

    fn open_slots<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a (PipelineId, Timestamp, ScheduleId)>,
        limit: usize,
    ) -> StoreFuture<'a, Page<LedgerRow>> {
        let after = after.cloned();
        self.ask(
            move |server| async move { ledger::open_slots(&server, shard, after, limit).await },
        )
    }

    fn runs<'a>(&'a self, query: &'a RunQuery) -> StoreFuture<'a, Page<RunRow>> {
        let query = query.clone();
        self.ask(move |server| async move { ledger::runs(&server, &query).await })
    }

    fn sensors<'a>(
        &'a self,
        pipeline: &'a PipelineId,
    ) -> StoreFuture<'a, BTreeMap<String, Row<SensorRecord>>> {
        let pipeline = pipeline.clone();
        self.ask(move |server| async move { read::sensors(&server, &pipeline).await })
    }

    fn incidents_by<'a>(
        &'a self,
        query: &'a IncidentQuery,
    ) -> StoreFuture<'a, Page<(PipelineId, String, Row<IncidentRecord>)>> {
        let query = query.clone();
        self.ask(move |server| async move { read::incidents(&server, &query).await })
    }

    fn open_incidents<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a (PipelineId, String)>,
        limit: usize,
    ) -> StoreFuture<'a, Page<(PipelineId, String, Row<IncidentRecord>)>> {
        let after = after.cloned();
        self.ask(
            move |server| async move { read::open_incidents(&server, shard, after, limit).await },
        )
    }

    fn backfills<'a>(&'a self, query: &'a BackfillQuery) -> StoreFuture<'a, Page<BackfillRow>> {
        let query = query.clone();
        self.ask(move |server| async move { read::backfills(&server, &query).await })
    }

    fn events_by<'a>(&'a self, query: &'a EventQuery) -> StoreFuture<'a, Page<EventRow>> {
        let query = query.clone();
        self.ask(move |server| async move { read::events(&server, &query).await })
    }

    fn events_for(
        &self,
        shard: Shard,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'_, Page<EventRow>> {
        self.ask(move |server| async move { read::events_for(&server, shard, after, limit).await })
    }

    fn due(&self, shard: Shard, until: Timestamp, limit: usize) -> StoreFuture<'_, Page<DueRow>> {
        self.ask(move |server| async move { read::due(&server, shard, until, limit).await })
    }

    fn post<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        key: &'a str,
        record: &'a InboxRecord,
    ) -> StoreFuture<'a, ()> {
        if let Err(error) = check_name(key) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let (pipeline, key, body) = (pipeline.clone(), key.to_owned(), record.encode());
        self.ask(move |server| async move { queue::post(&server, &pipeline, &key, body).await })
    }

    fn readiness_ttl(&self) -> Option<SignedDuration> {
        Some(SignedDuration::from_millis(self.views.readiness_ms))
    }

    fn show_readiness(&self, shown: Vec<ReadinessView>) -> StoreFuture<'_, ()> {
        let views = Arc::clone(&self.views);
        self.ask(move |server| async move { queue::show_readiness(&server, &views, &shown).await })
    }

    fn posted<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        key: &'a str,
    ) -> StoreFuture<'a, Option<InboxRecord>> {
        let (pipeline, key) = (pipeline.clone(), key.to_owned());
        self.ask(move |server| async move { queue::posted(&server, &pipeline, &key).await })
    }

    fn inbox(&self, shard: Shard, limit: usize) -> StoreFuture<'_, Page<InboxEntry>> {
        self.ask(move |server| async move { queue::inbox(&server, shard, limit).await })
    }

    fn claim(&self, limit: usize, ttl: SignedDuration) -> StoreFuture<'_, Vec<OutboxRow>> {
        self.ask(move |server| async move { queue::claim(&server, limit, ttl).await })
    }

    fn settle_many(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<SettleOutcome>> {
        let views = Arc::clone(&self.views);
        self.ask(move |server| async move {
            check_settlements(&settlements)?;
            queue::settle_many(&server, &views, &settlements).await
        })
    }

    fn notifications<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        after: Option<&'a str>,
        limit: usize,
    ) -> StoreFuture<'a, Page<OutboxRow>> {
        let (pipeline, after) = (pipeline.clone(), after.map(str::to_owned));
        self.ask(move |server| async move {
            read::notifications(&server, &pipeline, after.as_deref(), limit).await
        })
    }

    /// Sets are by time alone: one for each word would be written with every run.
    fn has_word_indexes(&self) -> bool {
        false
    }

    fn dead_letters(&self, limit: usize) -> StoreFuture<'_, Page<OutboxRow>> {
        self.ask(move |server| async move { read::dead_letters(&server, limit).await })
    }

    fn changes(&self, after: u64, limit: usize) -> StoreFuture<'_, Changes> {
        self.ask_whole(move |server| async move { whole::changes(&server, after, limit).await })
    }

    fn mark(&self) -> StoreFuture<'_, Mark> {
        self.ask(|server| async move { server.mark().await })
    }

    fn recall(&self, remembered: Mark) -> StoreFuture<'_, Recalled> {
        self.ask(move |server| async move { server.recall(remembered).await })
    }

    fn archived(&self, up_to: Option<Archived>) -> StoreFuture<'_, ()> {
        self.ask_whole(move |server| async move { whole::archived(&server, up_to).await })
    }

    fn rows<'a>(&'a self, which: Rows, from: &'a str, limit: usize) -> StoreFuture<'a, Portion> {
        let from = from.to_owned();
        self.ask_whole(
            move |server| async move { whole::portion(&server, which, &from, limit).await },
        )
    }

    fn import(&self, freight: Freight) -> StoreFuture<'_, ()> {
        let views = self.views.clone();
        self.ask_whole(move |server| async move { whole::import(&server, &views, freight).await })
    }

    fn forget(&self, what: Forgetting) -> StoreFuture<'_, usize> {
        let views = self.views.clone();
        self.ask_whole(move |server| async move {
            what.check()?;
            let now = server.read(&server.places.home, vec!["now".to_owned()]).await?;
            let now = instant(number(now)?)?;
            whole::forget(&server, &views, (what, now)).await
        })
    }
}
