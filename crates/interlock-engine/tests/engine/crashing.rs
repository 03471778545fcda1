//! A store in front of which, and behind which, the engine can be killed.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    Accepted, AgendaRow, BackfillQuery, BackfillRow, DueRow, EventRow, Group, InboxEntry, Key,
    Lease, LedgerQuery, LedgerRow, OutboxRow, Page, Record, Refusal, Role, Row, RunQuery, RunRow,
    Shard, Store, StoreFuture, Writer,
    record::{InboxRecord, IncidentRecord, OutboxRecord, SensorRecord},
};
use jiff::{SignedDuration, Timestamp};

/// Every call waits once before and once after it was done; at the chosen wait the process dies.
#[derive(Debug)]
pub(crate) struct Crashing {
    inner: Arc<dyn Store>,
    waits: AtomicU64,
    dies_at: u64,
    is_dead: AtomicBool,
}

impl Crashing {
    pub(crate) fn new(inner: Arc<dyn Store>, dies_at: u64) -> Self {
        Self { inner, waits: AtomicU64::new(0), dies_at, is_dead: AtomicBool::new(false) }
    }

    /// A process that ends with its life or dies with its store, whichever comes first.
    pub(crate) async fn end_of(&self, life: impl Future<Output = ()>) {
        let mut life = std::pin::pin!(life);
        std::future::poll_fn(|context| {
            let ended = life.as_mut().poll(context).is_ready();
            if ended || self.is_dead.load(Ordering::Relaxed) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    async fn wait(&self) {
        let number = self.waits.fetch_add(1, Ordering::Relaxed);
        if number >= self.dies_at {
            self.is_dead.store(true, Ordering::Relaxed);
            std::future::pending::<()>().await;
        }
        let mut waited = false;
        std::future::poll_fn(|context| {
            if std::mem::replace(&mut waited, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

macro_rules! between_waits {
    ($($(#[$doc:meta])* fn $name:ident $(<$life:lifetime>)? (& $($self_life:lifetime)? self $(, $arg:ident: $ty:ty)*) -> StoreFuture<$out_life:lifetime, $out:ty>;)*) => {
        $(fn $name $(<$life>)? (& $($self_life)? self $(, $arg: $ty)*) -> StoreFuture<$out_life, $out> {
            Box::pin(async move {
                self.wait().await;
                let result = self.inner.$name($($arg),*).await;
                self.wait().await;
                result
            })
        })*
    };
}

impl Store for Crashing {
    fn shard_count(&self) -> u16 {
        self.inner.shard_count()
    }

    between_waits! {
        fn now(&self) -> StoreFuture<'_, Timestamp>;
        fn commit(&self, groups: Vec<Group>) -> StoreFuture<'_, Vec<Result<Accepted, Refusal>>>;
        fn acquire<'a>(&'a self, role: Role, shard: Shard, holder: &'a str, ttl: SignedDuration) -> StoreFuture<'a, Option<Lease>>;
        fn renew(&self, writer: Writer, ttl: SignedDuration) -> StoreFuture<'_, Option<Lease>>;
        fn release(&self, writer: Writer) -> StoreFuture<'_, ()>;
        fn read<'a>(&'a self, pipeline: &'a PipelineId, keys: &'a [Key]) -> StoreFuture<'a, Vec<Option<Row<Record>>>>;
        fn agenda<'a>(&'a self, shard: Shard, after: Option<&'a PipelineId>, limit: usize) -> StoreFuture<'a, Page<AgendaRow>>;
        fn ledger<'a>(&'a self, query: &'a LedgerQuery) -> StoreFuture<'a, Page<LedgerRow>>;
        fn open_slots<'a>(&'a self, shard: Shard, after: Option<&'a (PipelineId, Timestamp, ScheduleId)>, limit: usize) -> StoreFuture<'a, Page<LedgerRow>>;
        fn runs<'a>(&'a self, query: &'a RunQuery) -> StoreFuture<'a, Page<RunRow>>;
        fn sensors<'a>(&'a self, pipeline: &'a PipelineId) -> StoreFuture<'a, BTreeMap<String, Row<SensorRecord>>>;
        fn incidents<'a>(&'a self, pipeline: Option<&'a PipelineId>, limit: usize) -> StoreFuture<'a, Page<(PipelineId, String, Row<IncidentRecord>)>>;
        fn backfills<'a>(&'a self, query: &'a BackfillQuery) -> StoreFuture<'a, Page<BackfillRow>>;
        fn events<'a>(&'a self, pipeline: Option<&'a PipelineId>, after: u64, limit: usize) -> StoreFuture<'a, Page<EventRow>>;
        fn due(&self, shard: Shard, until: Timestamp, limit: usize) -> StoreFuture<'_, Page<DueRow>>;
        fn post<'a>(&'a self, pipeline: &'a PipelineId, key: &'a str, record: &'a InboxRecord) -> StoreFuture<'a, ()>;
        fn inbox(&self, shard: Shard, limit: usize) -> StoreFuture<'_, Page<InboxEntry>>;
        fn claim(&self, limit: usize, ttl: SignedDuration) -> StoreFuture<'_, Vec<OutboxRow>>;
        fn settle<'a>(&'a self, row: &'a OutboxRow, becomes: Vec<(String, OutboxRecord)>) -> StoreFuture<'a, ()>;
        fn dead_letters(&self, limit: usize) -> StoreFuture<'_, Page<OutboxRow>>;
        fn open_incidents<'a>(&'a self, shard: Shard, after: Option<&'a (PipelineId, String)>, limit: usize) -> StoreFuture<'a, Page<(PipelineId, String, Row<IncidentRecord>)>>;
    }
}
