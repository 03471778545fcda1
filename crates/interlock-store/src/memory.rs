//! The engine in memory: the smallest one that is right.
//!
//! It keeps everything in ordered maps behind one lock, so that the same calls always give the same
//! answers in the same order; nothing is kept from one process to the next. All decisions are in [`State`],
//! which is plain data: a simulator takes it out ([`MemoryStore::snapshot`]), puts an older one back to play
//! a crash that lost what was not durable ([`MemoryStore::restore`]), or wraps the store to make calls fail.
//!
//! A call does its work when its future is first polled, and is then ready.

mod lists;
mod queue;
mod read;
mod state;
mod whole;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use interlock_core::id::{PipelineId, ScheduleId};
use jiff::{SignedDuration, Timestamp};

pub use self::state::State;
use crate::{
    check::{check_name, check_settlements, whole_milliseconds},
    contract::{
        Accepted, AgendaRow, BackfillQuery, BackfillRow, DueRow, EventQuery, EventRow, FoundRows,
        Group, InboxEntry, IncidentQuery, InstanceRow, Lease, LedgerQuery, LedgerRow, OutboxRow,
        Page, Refusal, Role, Roll, Row, RowsQuery, RunQuery, RunRow, SettleOutcome, Settlement,
        Shard, Store, StoreError, StoreFuture, Writer,
    },
    key::Key,
    record::{InboxRecord, IncidentRecord, InstanceRecord, Record, SensorRecord},
    whole::{Archived, Changes, Forgetting, Freight, Mark, Portion, Rows, StoreId},
};

/// Tells a [`MemoryStore`] the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A store that lives and dies with its process.
pub struct MemoryStore {
    state: Mutex<State>,
    clock: Clock,
    shard_count: u16,
    /// How often it was changed.
    moved: AtomicU64,
    /// Which one it is, in this process.
    identity: AtomicU64,
}

/// How many were made.
static MADE: AtomicU64 = AtomicU64::new(0);

impl MemoryStore {
    /// An empty store.
    pub fn new(shard_count: u16, clock: Clock) -> Self {
        let state = Mutex::new(State::new(shard_count));
        let identity = AtomicU64::new(MADE.fetch_add(1, Ordering::Relaxed) + 1);
        Self { state, clock, shard_count, moved: AtomicU64::new(0), identity }
    }

    /// All that it holds now.
    pub fn snapshot(&self) -> State {
        self.lock().clone()
    }

    /// Makes it hold something else, such as what was durable before a crash.
    pub fn restore(&self, state: State) {
        *self.lock() = state;
        self.moved.fetch_add(1, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock cannot leave half a group: changes begin after the last check.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn time(&self) -> Timestamp {
        whole_milliseconds((self.clock)())
    }

    fn with<'a, T: Send + 'a>(
        &'a self,
        work: impl FnOnce(&mut State, Timestamp) -> T + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move { Ok(work(&mut self.lock(), self.time())) })
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("shard_count", &self.shard_count)
            .finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn now(&self) -> StoreFuture<'_, Timestamp> {
        self.with(|_, now| now)
    }

    fn shard_count(&self) -> u16 {
        self.shard_count
    }

    fn moved(&self) -> Option<u64> {
        Some(self.moved.load(Ordering::Acquire))
    }

    fn commit(&self, groups: Vec<Group>) -> StoreFuture<'_, Vec<Result<Accepted, Refusal>>> {
        Box::pin(async move {
            let results = self.lock().commit(groups);
            self.moved.fetch_add(1, Ordering::Release);
            results
        })
    }

    fn acquire<'a>(
        &'a self,
        role: Role,
        shard: Shard,
        holder: &'a str,
        ttl: SignedDuration,
    ) -> StoreFuture<'a, Option<Lease>> {
        Box::pin(async move {
            if shard.0 >= self.shard_count.max(1) {
                let (shard, count) = (shard.0, self.shard_count);
                let message = format!("there is no shard {shard} among {count}");
                return Err(StoreError::permanent(message));
            }
            let now = self.time();
            Ok(self.lock().acquire((role, shard), holder, until(now, ttl), now))
        })
    }

    fn renew(&self, writer: Writer, ttl: SignedDuration) -> StoreFuture<'_, Option<Lease>> {
        self.with(move |state, now| state.renew(writer, until(now, ttl)))
    }

    fn release(&self, writer: Writer) -> StoreFuture<'_, ()> {
        self.with(move |state, _| state.release(writer))
    }

    fn announce<'a>(
        &'a self,
        role: Role,
        instance: &'a str,
        ttl: SignedDuration,
    ) -> StoreFuture<'a, ()> {
        self.with(move |state, now| state.announce(role, instance, until(now, ttl)))
    }

    fn roll(&self) -> StoreFuture<'_, Option<Roll>> {
        self.with(|state, now| Some(state.roll(now)))
    }

    fn report_instance<'a>(
        &'a self,
        instance: &'a str,
        record: &'a InstanceRecord,
    ) -> StoreFuture<'a, ()> {
        self.with(move |state, now| state.report_instance(instance, record, now))
    }

    fn instances(&self) -> StoreFuture<'_, Vec<InstanceRow>> {
        self.with(|state, _| state.instances())
    }

    fn read<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        keys: &'a [Key],
    ) -> StoreFuture<'a, Vec<Option<Row<Record>>>> {
        self.with(move |state, _| keys.iter().map(|key| state.row(pipeline, key)).collect())
    }

    fn read_many<'a>(&'a self, asked: &'a [RowsQuery]) -> StoreFuture<'a, Vec<FoundRows>> {
        self.with(move |state, _| {
            let of = |query: &RowsQuery| {
                query.keys.iter().map(|key| state.row(&query.pipeline, key)).collect()
            };
            asked.iter().map(of).collect()
        })
    }

    fn agenda<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a PipelineId>,
        limit: usize,
    ) -> StoreFuture<'a, Page<AgendaRow>> {
        self.with(move |state, _| state.agenda(shard, after, limit))
    }

    fn revisions<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a PipelineId>,
        limit: usize,
    ) -> StoreFuture<'a, Page<(PipelineId, u64)>> {
        self.with(move |state, _| state.revisions(shard, after, limit))
    }

    fn ledger<'a>(&'a self, query: &'a LedgerQuery) -> StoreFuture<'a, Page<LedgerRow>> {
        self.with(move |state, _| state.ledger(query))
    }

    fn open_slots<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a (PipelineId, Timestamp, ScheduleId)>,
        limit: usize,
    ) -> StoreFuture<'a, Page<LedgerRow>> {
        self.with(move |state, _| state.open_slots(shard, after, limit))
    }

    fn runs<'a>(&'a self, query: &'a RunQuery) -> StoreFuture<'a, Page<RunRow>> {
        self.with(move |state, _| state.runs(query))
    }

    fn sensors<'a>(
        &'a self,
        pipeline: &'a PipelineId,
    ) -> StoreFuture<'a, BTreeMap<String, Row<SensorRecord>>> {
        self.with(move |state, _| state.sensors(pipeline))
    }

    fn incidents_by<'a>(
        &'a self,
        query: &'a IncidentQuery,
    ) -> StoreFuture<'a, Page<(PipelineId, String, Row<IncidentRecord>)>> {
        self.with(move |state, _| state.incidents(query))
    }

    fn open_incidents<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a (PipelineId, String)>,
        limit: usize,
    ) -> StoreFuture<'a, Page<(PipelineId, String, Row<IncidentRecord>)>> {
        self.with(move |state, _| state.open_incidents(shard, after, limit))
    }

    fn backfills<'a>(&'a self, query: &'a BackfillQuery) -> StoreFuture<'a, Page<BackfillRow>> {
        self.with(move |state, _| state.backfills(query))
    }

    fn events_by<'a>(&'a self, query: &'a EventQuery) -> StoreFuture<'a, Page<EventRow>> {
        self.with(move |state, _| state.events(query))
    }

    fn due(&self, shard: Shard, until: Timestamp, limit: usize) -> StoreFuture<'_, Page<DueRow>> {
        self.with(move |state, _| state.due(shard, until, limit))
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
        self.with(move |state, now| state.post(pipeline, key, record, now))
    }

    fn posted<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        key: &'a str,
    ) -> StoreFuture<'a, Option<InboxRecord>> {
        self.with(move |state, _| state.posted(pipeline, key))
    }

    fn inbox(&self, shard: Shard, limit: usize) -> StoreFuture<'_, Page<InboxEntry>> {
        self.with(move |state, _| state.inbox(shard, limit))
    }

    fn claim(&self, limit: usize, ttl: SignedDuration) -> StoreFuture<'_, Vec<OutboxRow>> {
        self.with(move |state, now| state.claim(limit, until(now, ttl), now))
    }

    fn settle_many(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<SettleOutcome>> {
        Box::pin(async move {
            check_settlements(&settlements)?;
            let mut state = self.lock();
            Ok(settlements.iter().map(|settlement| Ok(state.settle(settlement))).collect())
        })
    }

    fn notifications<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        after: Option<&'a str>,
        limit: usize,
    ) -> StoreFuture<'a, Page<OutboxRow>> {
        self.with(move |state, _| state.notifications(pipeline, after, limit))
    }

    fn dead_letters(&self, limit: usize) -> StoreFuture<'_, Page<OutboxRow>> {
        self.with(move |state, _| state.dead_letters(limit))
    }

    fn changes(&self, after: u64, limit: usize) -> StoreFuture<'_, Changes> {
        self.with(move |state, _| state.changes(after, limit))
    }

    fn mark(&self) -> StoreFuture<'_, Mark> {
        let store = StoreId(self.identity.load(Ordering::Relaxed));
        self.with(move |state, _| Mark { store, number: state.event_last })
    }

    fn archived(&self, up_to: Option<Archived>) -> StoreFuture<'_, ()> {
        self.with(move |state, _| state.archived(up_to))
    }

    fn rows<'a>(&'a self, which: Rows, from: &'a str, limit: usize) -> StoreFuture<'a, Portion> {
        Box::pin(async move { self.lock().portion(which, from, limit) })
    }

    fn import(&self, freight: Freight) -> StoreFuture<'_, ()> {
        if let Some(store) = freight.store {
            self.identity.store(store.0, Ordering::Relaxed);
        }
        self.with(move |state, _| state.import(freight))
    }

    fn forget(&self, what: Forgetting) -> StoreFuture<'_, usize> {
        Box::pin(async move {
            what.check()?;
            let now = self.time();
            Ok(self.lock().forget(&what, now))
        })
    }
}

/// The end of a time to live; at the end of time if that lies beyond it.
fn until(now: Timestamp, ttl: SignedDuration) -> Timestamp {
    now.checked_add(ttl).unwrap_or(Timestamp::MAX)
}
