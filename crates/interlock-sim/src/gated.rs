//! A store behind a gate: what goes wrong on the way to a store and back, and who looks on.
//!
//! Every call passes the gate twice, on its way in and on its way out. Whoever keeps the gate may let it wait, turn
//! it back (nothing was done), lose its answer (it was done), or never let it through: that is how processes die.

use std::{collections::BTreeMap, fmt, future::Future, pin::Pin, sync::Arc};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    Accepted, AgendaRow, Archived, BackfillQuery, BackfillRow, Changes, DueRow, EventQuery,
    EventRow, Forgetting, FoundRows, Freight, Group, InboxEntry, IncidentQuery, InstanceRow, Key,
    Lease, LedgerQuery, LedgerRow, Mark, OutboxRow, Page, Portion, Recalled, Record, Refusal, Role,
    Roll, Row, Rows, RowsQuery, RunQuery, RunRow, SettleOutcome, Settlement, Shard, Store,
    StoreError, StoreFuture, Writer,
    record::{InboxRecord, IncidentRecord, InstanceRecord, OutboxRecord, SensorRecord},
};
use jiff::{SignedDuration, Timestamp};

/// A wait at the gate; an error turns the call back.
pub type Passage<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

/// Keeps a gate. `None` lets a call through at once.
pub trait Gate: Send + Sync + fmt::Debug {
    /// A call with this name is on its way in.
    fn enter(&self, verb: &'static str) -> Option<Passage<'_>>;

    /// Its answer is on its way out.
    fn leave(&self, verb: &'static str) -> Option<Passage<'_>>;

    /// Groups are about to be applied; what is applied is what it answers.
    fn commits(&self, groups: Vec<Group>) -> Vec<Group> {
        groups
    }

    /// Whether a commit arrives twice.
    fn repeats(&self) -> bool {
        false
    }

    /// Whether it wants to see what came of groups.
    fn looks_on(&self) -> bool {
        false
    }

    /// What came of groups.
    fn committed(&self, _groups: Vec<Group>, _results: &[Result<Accepted, Refusal>]) {}

    /// Whether a row cannot be read, so that nothing can be that asks for it.
    fn is_damaged(&self, _pipeline: &PipelineId, _key: &Key) -> bool {
        false
    }

    /// A question was answered with so many rows.
    fn gave(&self, _rows: usize) {}

    /// A lease was given.
    fn acquired(&self, _holder: &str, _lease: Lease) {}

    /// A notification is about to be replaced; false if nothing is to happen.
    fn settles(&self, _row: &OutboxRow, _becomes: &[(String, OutboxRecord)]) -> bool {
        true
    }
}

/// A store behind a gate.
#[derive(Debug)]
pub struct Gated<G> {
    store: Arc<dyn Store>,
    gate: G,
}

impl<G: Gate> Gated<G> {
    /// Puts a gate in front of a store.
    pub fn new(store: Arc<dyn Store>, gate: G) -> Self {
        Self { store, gate }
    }

    /// Its gate.
    pub fn gate(&self) -> &G {
        &self.gate
    }

    async fn enter(&self, verb: &'static str) -> Result<(), StoreError> {
        match self.gate.enter(verb) {
            Some(passage) => passage.await,
            None => Ok(()),
        }
    }

    async fn leave(&self, verb: &'static str) -> Result<(), StoreError> {
        match self.gate.leave(verb) {
            Some(passage) => passage.await,
            None => Ok(()),
        }
    }
}

type IncidentPage = Page<(PipelineId, String, Row<IncidentRecord>)>;

impl<G: Gate> Gated<G> {
    /// Lets an answer out.
    async fn gives<T: Rowed>(
        &self,
        verb: &'static str,
        result: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if let Ok(answer) = &result {
            self.gate.gave(answer.rows());
        }
        self.leave(verb).await?;
        result
    }

    /// What a store says of a row that cannot be read, if one of these cannot.
    fn damaged<'a>(
        &self,
        mut rows: impl Iterator<Item = (&'a PipelineId, &'a Key)>,
    ) -> Option<StoreError> {
        let (pipeline, key) = rows.find(|(pipeline, key)| self.gate.is_damaged(pipeline, key))?;
        let message = format!("the store holds what cannot be read: {key} of {pipeline}");
        Some(StoreError::permanent(message))
    }

    /// A page of which all can be read.
    fn whole_incidents(&self, page: IncidentPage) -> Result<IncidentPage, StoreError> {
        let keys = page.items.iter().map(|(name, key, _)| (name, Key::Incident(key.clone())));
        let keys: Vec<_> = keys.collect();
        match self.damaged(keys.iter().map(|(name, key)| (*name, key))) {
            Some(error) => Err(error),
            None => Ok(page),
        }
    }
}

/// How many rows an answer has.
trait Rowed {
    fn rows(&self) -> usize {
        0
    }
}

impl Rowed for () {}
impl Rowed for usize {}
impl Rowed for Timestamp {}
impl Rowed for Mark {}
impl Rowed for Recalled {}
impl<T> Rowed for Option<T> {}

impl<T> Rowed for Page<T> {
    fn rows(&self) -> usize {
        self.items.len()
    }
}

impl<T> Rowed for Vec<T> {
    fn rows(&self) -> usize {
        self.len()
    }
}

impl<K, V> Rowed for BTreeMap<K, V> {
    fn rows(&self) -> usize {
        self.len()
    }
}

impl Rowed for Changes {
    fn rows(&self) -> usize {
        self.items.len()
    }
}

impl Rowed for Portion {
    fn rows(&self) -> usize {
        self.items.len()
    }
}

macro_rules! through_the_gate {
    ($(fn $name:ident $(<$life:lifetime>)? (& $($self_life:lifetime)? self $(, $arg:ident: $ty:ty)*) -> StoreFuture<$out_life:lifetime, $out:ty>;)*) => {
        $(fn $name $(<$life>)? (& $($self_life)? self $(, $arg: $ty)*) -> StoreFuture<$out_life, $out> {
            Box::pin(async move {
                self.enter(stringify!($name)).await?;
                let result = self.store.$name($($arg),*).await;
                self.gives(stringify!($name), result).await
            })
        })*
    };
}

impl<G: Gate> Store for Gated<G> {
    fn shard_count(&self) -> u16 {
        self.store.shard_count()
    }

    fn moved(&self) -> Option<u64> {
        self.store.moved()
    }

    fn commit(&self, groups: Vec<Group>) -> StoreFuture<'_, Vec<Result<Accepted, Refusal>>> {
        Box::pin(async move {
            self.enter("commit").await?;
            let groups = self.gate.commits(groups);
            let seen = self.gate.looks_on().then(|| groups.clone());
            let again = self.gate.repeats().then(|| groups.clone());
            let results = self.store.commit(groups).await;
            if let Some(again) = again {
                // Its answer goes nowhere.
                let _answer = self.store.commit(again).await;
            }
            if let (Some(seen), Ok(results)) = (seen, &results) {
                self.gate.committed(seen, results);
            }
            self.leave("commit").await?;
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
            self.enter("acquire").await?;
            let lease = self.store.acquire(role, shard, holder, ttl).await;
            if let Ok(Some(lease)) = &lease {
                self.gate.acquired(holder, *lease);
            }
            self.leave("acquire").await?;
            lease
        })
    }

    fn settle_many(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<SettleOutcome>> {
        Box::pin(async move {
            self.enter("settle_many").await?;
            let mut outcomes = Vec::new();
            // One by one: what the gate's keeper sees of the store is as the one before left it.
            for settlement in settlements {
                let outcome = if self.gate.settles(&settlement.row, &settlement.becomes) {
                    self.store.settle_many(vec![settlement]).await?
                } else {
                    vec![Ok(Vec::new())]
                };
                outcomes.extend(outcome);
            }
            self.leave("settle_many").await?;
            Ok(outcomes)
        })
    }

    fn read<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        keys: &'a [Key],
    ) -> StoreFuture<'a, Vec<Option<Row<Record>>>> {
        Box::pin(async move {
            self.enter("read").await?;
            let found = match self.damaged(keys.iter().map(|key| (pipeline, key))) {
                Some(error) => Err(error),
                None => self.store.read(pipeline, keys).await,
            };
            self.gives("read", found).await
        })
    }

    fn read_many<'a>(&'a self, asked: &'a [RowsQuery]) -> StoreFuture<'a, Vec<FoundRows>> {
        Box::pin(async move {
            self.enter("read_many").await?;
            let keys = asked.iter().flat_map(|of| of.keys.iter().map(|key| (&of.pipeline, key)));
            let found = match self.damaged(keys) {
                Some(error) => Err(error),
                None => self.store.read_many(asked).await,
            };
            self.gives("read_many", found).await
        })
    }

    fn incidents_by<'a>(&'a self, query: &'a IncidentQuery) -> StoreFuture<'a, IncidentPage> {
        Box::pin(async move {
            self.enter("incidents_by").await?;
            let page = self.store.incidents_by(query).await;
            let page = page.and_then(|page| self.whole_incidents(page));
            self.gives("incidents_by", page).await
        })
    }

    fn open_incidents<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a (PipelineId, String)>,
        limit: usize,
    ) -> StoreFuture<'a, IncidentPage> {
        Box::pin(async move {
            self.enter("open_incidents").await?;
            let page = self.store.open_incidents(shard, after, limit).await;
            let page = page.and_then(|page| self.whole_incidents(page));
            self.gives("open_incidents", page).await
        })
    }

    through_the_gate! {
        fn backfills<'a>(&'a self, query: &'a BackfillQuery) -> StoreFuture<'a, Page<BackfillRow>>;
        fn now(&self) -> StoreFuture<'_, Timestamp>;
        fn renew(&self, writer: Writer, ttl: SignedDuration) -> StoreFuture<'_, Option<Lease>>;
        fn release(&self, writer: Writer) -> StoreFuture<'_, ()>;
        fn announce<'a>(&'a self, role: Role, instance: &'a str, ttl: SignedDuration) -> StoreFuture<'a, ()>;
        fn roll(&self) -> StoreFuture<'_, Option<Roll>>;
        fn report_instance<'a>(&'a self, instance: &'a str, record: &'a InstanceRecord) -> StoreFuture<'a, ()>;
        fn instances(&self) -> StoreFuture<'_, Vec<InstanceRow>>;
        fn agenda<'a>(&'a self, shard: Shard, after: Option<&'a PipelineId>, limit: usize) -> StoreFuture<'a, Page<AgendaRow>>;
        fn revisions<'a>(&'a self, shard: Shard, after: Option<&'a PipelineId>, limit: usize) -> StoreFuture<'a, Page<(PipelineId, u64)>>;
        fn ledger<'a>(&'a self, query: &'a LedgerQuery) -> StoreFuture<'a, Page<LedgerRow>>;
        fn open_slots<'a>(&'a self, shard: Shard, after: Option<&'a (PipelineId, Timestamp, ScheduleId)>, limit: usize) -> StoreFuture<'a, Page<LedgerRow>>;
        fn runs<'a>(&'a self, query: &'a RunQuery) -> StoreFuture<'a, Page<RunRow>>;
        fn sensors<'a>(&'a self, pipeline: &'a PipelineId) -> StoreFuture<'a, BTreeMap<String, Row<SensorRecord>>>;
        fn incidents<'a>(&'a self, pipeline: Option<&'a PipelineId>, limit: usize) -> StoreFuture<'a, Page<(PipelineId, String, Row<IncidentRecord>)>>;
        fn events_by<'a>(&'a self, query: &'a EventQuery) -> StoreFuture<'a, Page<EventRow>>;
        fn notifications<'a>(&'a self, pipeline: &'a PipelineId, after: Option<&'a str>, limit: usize) -> StoreFuture<'a, Page<OutboxRow>>;
        fn due(&self, shard: Shard, until: Timestamp, limit: usize) -> StoreFuture<'_, Page<DueRow>>;
        fn post<'a>(&'a self, pipeline: &'a PipelineId, key: &'a str, record: &'a InboxRecord) -> StoreFuture<'a, ()>;
        fn posted<'a>(&'a self, pipeline: &'a PipelineId, key: &'a str) -> StoreFuture<'a, Option<InboxRecord>>;
        fn inbox(&self, shard: Shard, limit: usize) -> StoreFuture<'_, Page<InboxEntry>>;
        fn claim(&self, limit: usize, ttl: SignedDuration) -> StoreFuture<'_, Vec<OutboxRow>>;
        fn dead_letters(&self, limit: usize) -> StoreFuture<'_, Page<OutboxRow>>;
        fn changes(&self, after: u64, limit: usize) -> StoreFuture<'_, Changes>;
        fn cautions(&self) -> StoreFuture<'_, Vec<String>>;
        fn mark(&self) -> StoreFuture<'_, Mark>;
        fn recall(&self, remembered: Mark) -> StoreFuture<'_, Recalled>;
        fn archived(&self, up_to: Option<Archived>) -> StoreFuture<'_, ()>;
        fn rows<'a>(&'a self, which: Rows, from: &'a str, limit: usize) -> StoreFuture<'a, Portion>;
        fn import(&self, freight: Freight) -> StoreFuture<'_, ()>;
        fn forget(&self, what: Forgetting) -> StoreFuture<'_, usize>;
    }
}
