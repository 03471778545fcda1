//! The store, put together.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{Arc, atomic::Ordering},
};

use interlock_core::id::{PipelineId, ScheduleId, check_schema};
use interlock_postgres::Address;
use interlock_store::{
    Accepted, AgendaRow, Archived, BackfillQuery, BackfillRow, Changes, DueRow, EventQuery,
    EventRow, Forgetting, FoundRows, Freight, Group, Hint, InboxEntry, IncidentQuery, InstanceRow,
    Key, Lease, LedgerQuery, LedgerRow, Mark, OutboxRow, Page, Portion, Recalled, Record, Refusal,
    Role, Roll, Row, Rows, RowsQuery, RunQuery, RunRow, SettleOutcome, Settlement, Shard, Store,
    StoreError, StoreFuture, Writer, check_settlements,
    record::{InboxRecord, IncidentRecord, InstanceRecord, SensorRecord},
};
use interlock_store_remote::{Desk, OnRollback};
use jiff::{SignedDuration, Timestamp};

use crate::{
    apply, crowd::Crowd, hint::Hints, instances, lease, ledger, pool::Pool, queue, read, retention,
    roll, schema, settle, whole, witness::Witness,
};

/// Where a store is, and how it is used.
#[derive(Clone)]
pub struct PostgresSettings {
    /// How to reach the server, such as `postgres://user:secret@host/database`.
    pub dsn: String,
    /// The schema of its tables: a plain word.
    pub schema: String,
    /// How many connections it may use.
    pub connections_max: usize,
    /// How many shards it gets when it is made; later it keeps what it has.
    pub shards: u16,
    /// Hears of writes that the server has forgotten.
    pub on_rollback: Option<OnRollback>,
}

impl PostgresSettings {
    /// A server of which nothing but its address is said: one shard.
    pub fn new(dsn: String) -> Self {
        let schema = "interlock".to_owned();
        Self { dsn, schema, connections_max: 4, shards: 1, on_rollback: None }
    }
}

impl fmt::Debug for PostgresSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address holds a password.
        f.debug_struct("PostgresSettings").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// A store on a PostgreSQL server.
pub struct PostgresStore {
    schema: String,
    shards: u16,
    pool: Arc<Pool>,
    witness: Arc<Witness>,
    hints: Arc<Hints>,
    crowd: Arc<Crowd>,
    desk: Desk,
}

impl PostgresStore {
    /// Opens the store; makes it if it is not there, and brings it to the present. A server that may lose what it acknowledges is
    /// refused. Blocks meanwhile.
    pub fn open(settings: &PostgresSettings) -> Result<Self, StoreError> {
        let opened = Self::start(settings, Some(settings.shards))?;
        opened.ok_or_else(|| StoreError::retryable("the store went as it was made"))
    }

    /// Opens the store, if there is one: whoever only looks does not decide where it is and how many shards it has. Such a server is
    /// then not refused: to look is what somebody wants who has to mend it.
    pub fn find(settings: &PostgresSettings) -> Result<Option<Self>, StoreError> {
        Self::start(settings, None)
    }

    /// Opens it; where there is none, one is made with so many shards, if any.
    fn start(
        settings: &PostgresSettings,
        made_with: Option<u16>,
    ) -> Result<Option<Self>, StoreError> {
        let PostgresSettings { dsn, schema, connections_max, on_rollback, shards: _ } = settings;
        check_schema(schema).map_err(|reason| {
            StoreError::permanent(format!("`postgres.schema` cannot be `{schema}`: {reason}"))
        })?;
        let address = Address::parse(dsn).map_err(|error| {
            StoreError::permanent(format!("`postgres.dsn` is not the address of a server: {error}"))
        })?;
        let desk = Desk::start("postgres-store")?;
        let pool = Arc::new(Pool::new(address, schema, *connections_max));
        let (to_prepare, name) = (Arc::clone(&pool), schema.clone());
        let prepared = async move { schema::prepare(&to_prepare, &name, made_with).await };
        let Some(shards) = desk.wait(prepared)? else { return Ok(None) };
        let hints = Arc::new(Hints::new(schema, shards));
        let (witness, crowd) = (Witness::new(shards, on_rollback.clone()), Arc::default());
        let (schema, witness) = (schema.clone(), Arc::new(witness));
        Ok(Some(Self { schema, shards, pool, witness, hints, crowd, desk }))
    }

    /// How often the server was found to have forgotten something, by this process before any other.
    pub fn rollbacks(&self) -> u64 {
        self.witness.rollbacks.load(Ordering::Relaxed)
    }

    fn ask<'a, T: Send + 'static, F>(&self, work: impl FnOnce(Arc<Pool>) -> F) -> StoreFuture<'a, T>
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.desk.ask(work(Arc::clone(&self.pool)))
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("schema", &self.schema)
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}

impl Store for PostgresStore {
    fn cautions(&self) -> StoreFuture<'_, Vec<String>> {
        self.ask(|pool| async move { Ok(schema::unfitness(&pool).await?.into_iter().collect()) })
    }

    fn now(&self) -> StoreFuture<'_, Timestamp> {
        self.ask(|pool| async move { lease::now(&pool).await })
    }

    fn shard_count(&self) -> u16 {
        self.shards
    }

    fn commit(&self, groups: Vec<Group>) -> StoreFuture<'_, Vec<Result<Accepted, Refusal>>> {
        let (shards, witness) = (self.shards, Arc::clone(&self.witness));
        let checked = groups.iter().try_for_each(|group| group.check(shards));
        self.ask(move |pool| async move {
            checked?;
            apply::commit((&pool, &witness), groups, shards).await
        })
    }

    fn acquire<'a>(
        &'a self,
        role: Role,
        shard: Shard,
        holder: &'a str,
        ttl: SignedDuration,
    ) -> StoreFuture<'a, Option<Lease>> {
        let (holder, count) = (holder.to_owned(), self.shards);
        let witness = Arc::clone(&self.witness);
        self.ask(move |pool| async move {
            if shard.0 >= count {
                let message = format!("there is no shard {} among {count}", shard.0);
                return Err(StoreError::permanent(message));
            }
            lease::acquire((&pool, &witness), (role, shard), &holder, ttl).await
        })
    }

    fn renew(&self, writer: Writer, ttl: SignedDuration) -> StoreFuture<'_, Option<Lease>> {
        let witness = Arc::clone(&self.witness);
        self.ask(move |pool| async move { lease::renew((&pool, &witness), writer, ttl).await })
    }

    fn release(&self, writer: Writer) -> StoreFuture<'_, ()> {
        self.ask(move |pool| async move { lease::release(&pool, writer).await })
    }

    fn announce<'a>(
        &'a self,
        role: Role,
        instance: &'a str,
        ttl: SignedDuration,
    ) -> StoreFuture<'a, ()> {
        let instance = instance.to_owned();
        self.ask(move |pool| async move { roll::announce(&pool, role, &instance, ttl).await })
    }

    fn roll(&self) -> StoreFuture<'_, Option<Roll>> {
        self.ask(|pool| async move { roll::roll(&pool).await.map(Some) })
    }

    fn report_instance<'a>(
        &'a self,
        instance: &'a str,
        record: &'a InstanceRecord,
    ) -> StoreFuture<'a, ()> {
        let (instance, body) = (instance.to_owned(), record.encode());
        self.ask(move |pool| async move { instances::report(&pool, &instance, &body).await })
    }

    fn instances(&self) -> StoreFuture<'_, Vec<InstanceRow>> {
        self.ask(|pool| async move { instances::all(&pool).await })
    }

    fn read<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        keys: &'a [Key],
    ) -> StoreFuture<'a, Vec<Option<Row<Record>>>> {
        let (pipeline, keys) = (pipeline.clone(), keys.to_vec());
        let crowd = Arc::clone(&self.crowd);
        self.ask(move |pool| async move { crowd.read(&pool, pipeline, keys).await })
    }

    fn read_many<'a>(&'a self, asked: &'a [RowsQuery]) -> StoreFuture<'a, Vec<FoundRows>> {
        let asked = asked.to_vec();
        self.ask(move |pool| async move {
            let all: Vec<(&PipelineId, &[Key])> =
                asked.iter().map(|it| (&it.pipeline, it.keys.as_slice())).collect();
            read::rows(&pool, &all).await
        })
    }

    fn agenda<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a PipelineId>,
        limit: usize,
    ) -> StoreFuture<'a, Page<AgendaRow>> {
        let after = after.cloned();
        self.ask(move |pool| async move { read::agenda(&pool, shard, after, limit).await })
    }

    fn revisions<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a PipelineId>,
        limit: usize,
    ) -> StoreFuture<'a, Page<(PipelineId, u64)>> {
        let after = after.cloned();
        self.ask(move |pool| async move { read::revisions(&pool, shard, after, limit).await })
    }

    fn ledger<'a>(&'a self, query: &'a LedgerQuery) -> StoreFuture<'a, Page<LedgerRow>> {
        let query = query.clone();
        self.ask(move |pool| async move { ledger::ledger(&pool, &query).await })
    }

    fn open_slots<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a (PipelineId, Timestamp, ScheduleId)>,
        limit: usize,
    ) -> StoreFuture<'a, Page<LedgerRow>> {
        let after = after.cloned();
        self.ask(move |pool| async move { ledger::open_slots(&pool, shard, after, limit).await })
    }

    fn runs<'a>(&'a self, query: &'a RunQuery) -> StoreFuture<'a, Page<RunRow>> {
        let query = query.clone();
        self.ask(move |pool| async move { ledger::runs(&pool, &query).await })
    }

    fn sensors<'a>(
        &'a self,
        pipeline: &'a PipelineId,
    ) -> StoreFuture<'a, BTreeMap<String, Row<SensorRecord>>> {
        let pipeline = pipeline.clone();
        self.ask(move |pool| async move { read::sensors(&pool, &pipeline).await })
    }

    fn incidents_by<'a>(
        &'a self,
        query: &'a IncidentQuery,
    ) -> StoreFuture<'a, Page<(PipelineId, String, Row<IncidentRecord>)>> {
        let query = query.clone();
        self.ask(move |pool| async move { read::incidents(&pool, &query).await })
    }

    fn open_incidents<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a (PipelineId, String)>,
        limit: usize,
    ) -> StoreFuture<'a, Page<(PipelineId, String, Row<IncidentRecord>)>> {
        let after = after.cloned();
        self.ask(move |pool| async move { read::open_incidents(&pool, shard, after, limit).await })
    }

    fn backfills<'a>(&'a self, query: &'a BackfillQuery) -> StoreFuture<'a, Page<BackfillRow>> {
        let query = query.clone();
        self.ask(move |pool| async move { read::backfills(&pool, &query).await })
    }

    fn events_by<'a>(&'a self, query: &'a EventQuery) -> StoreFuture<'a, Page<EventRow>> {
        let query = query.clone();
        self.ask(move |pool| async move { read::events(&pool, &query).await })
    }

    fn due(&self, shard: Shard, until: Timestamp, limit: usize) -> StoreFuture<'_, Page<DueRow>> {
        self.ask(move |pool| async move { read::due(&pool, shard, until, limit).await })
    }

    fn post<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        key: &'a str,
        record: &'a InboxRecord,
    ) -> StoreFuture<'a, ()> {
        let shard = Shard::of(pipeline, self.shards);
        let (pipeline, key, record) = (pipeline.clone(), key.to_owned(), record.clone());
        let hints = Arc::clone(&self.hints);
        self.ask(move |pool| async move {
            queue::post(&pool, (shard, &pipeline), &key, &record).await?;
            hints.tell(&pool, shard);
            Ok(())
        })
    }

    fn posted<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        key: &'a str,
    ) -> StoreFuture<'a, Option<InboxRecord>> {
        let (pipeline, key) = (pipeline.clone(), key.to_owned());
        self.ask(move |pool| async move { queue::posted(&pool, &pipeline, &key).await })
    }

    fn hint(&self, shard: Shard) -> Option<Hint> {
        self.hints.wait(&self.desk, &self.pool, shard)
    }

    fn inbox(&self, shard: Shard, limit: usize) -> StoreFuture<'_, Page<InboxEntry>> {
        self.ask(move |pool| async move { queue::inbox(&pool, shard, limit).await })
    }

    fn claim(&self, limit: usize, ttl: SignedDuration) -> StoreFuture<'_, Vec<OutboxRow>> {
        self.ask(move |pool| async move { queue::claim(&pool, limit, ttl).await })
    }

    fn settle_many(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<SettleOutcome>> {
        let shards = self.shards;
        self.ask(move |pool| async move {
            check_settlements(&settlements)?;
            settle::settle_many(&pool, shards, &settlements).await
        })
    }

    fn notifications<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        after: Option<&'a str>,
        limit: usize,
    ) -> StoreFuture<'a, Page<OutboxRow>> {
        let (pipeline, after) = (pipeline.clone(), after.map(str::to_owned));
        self.ask(move |pool| async move {
            read::notifications(&pool, &pipeline, after.as_deref(), limit).await
        })
    }

    fn dead_letters(&self, limit: usize) -> StoreFuture<'_, Page<OutboxRow>> {
        self.ask(move |pool| async move { read::dead_letters(&pool, limit).await })
    }

    fn changes(&self, after: u64, limit: usize) -> StoreFuture<'_, Changes> {
        self.ask(move |pool| async move { whole::changes(&pool, after, limit).await })
    }

    fn mark(&self) -> StoreFuture<'_, Mark> {
        let witness = Arc::clone(&self.witness);
        self.ask(move |pool| async move { witness.mark(&pool).await })
    }

    fn recall(&self, remembered: Mark) -> StoreFuture<'_, Recalled> {
        let witness = Arc::clone(&self.witness);
        self.ask(move |pool| async move { witness.recall(&pool, remembered).await })
    }

    fn archived(&self, up_to: Option<Archived>) -> StoreFuture<'_, ()> {
        self.ask(move |pool| async move { whole::archived(&pool, up_to).await })
    }

    fn rows<'a>(&'a self, which: Rows, from: &'a str, limit: usize) -> StoreFuture<'a, Portion> {
        let from = from.to_owned();
        self.ask(move |pool| async move { whole::portion(&pool, which, &from, limit).await })
    }

    fn import(&self, freight: Freight) -> StoreFuture<'_, ()> {
        let shards = self.shards;
        self.ask(move |pool| async move { whole::import(&pool, shards, freight).await })
    }

    fn forget(&self, what: Forgetting) -> StoreFuture<'_, usize> {
        let shards = self.shards;
        self.ask(move |pool| async move {
            let now = lease::now(&pool).await?;
            retention::forget(&pool, shards, (what, now)).await
        })
    }
}
