//! The verbs and what they speak of.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
};

use interlock_core::id::{PipelineId, ScheduleId, fnv1a};
use jiff::{SignedDuration, Timestamp};

use crate::{
    key::{DueKind, Key, RunKey},
    record::{
        BackfillRecord, DueRecord, EventRecord, InboxRecord, IncidentRecord, InstanceRecord,
        OutboxRecord, PipelineRecord, Record, RunRecord, SensorRecord, SlotRecord, SpanRecord,
        WatermarkRecord,
    },
    together,
    whole::{Archived, Changes, Forgetting, Freight, Mark, Portion, Recalled, Rows},
};

/// Most changes in one group: what the smallest transaction of any engine can hold.
pub const CHANGES_MAX: usize = 25;

/// Most rows that one [`Store::read_many`] is asked for: milliseconds of work on every engine.
pub const READ_MAX: usize = 500;

/// How long it is kept what an instance said of itself that says nothing any more.
pub const INSTANCES_KEPT: SignedDuration = SignedDuration::from_hours(24);

/// A future that an engine hands out.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Ends when there may be something to look at.
pub type Hint = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Who writes, as far as leases are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Scheduler and controller.
    Engine,
    /// The watchdog: opens absent slots, closes slots, marks, incidents, events.
    Watchdog,
}

impl Role {
    /// The word for it, as stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Watchdog => "watchdog",
        }
    }

    /// The role of a stored word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Engine, Self::Watchdog].into_iter().find(|role| role.as_str() == word)
    }
}

/// The unit of ownership and scanning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u16);

impl Shard {
    /// The shard of a pipeline among so many.
    pub fn of(pipeline: &PipelineId, count: u16) -> Self {
        Self((fnv1a(pipeline.as_str().as_bytes()) % u64::from(count.max(1))) as u16)
    }
}

/// The ever-growing number of a lease: the fencing token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// Under which right a group is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Writer {
    /// As what.
    pub role: Role,
    /// Where.
    pub shard: Shard,
    /// Since when.
    pub term: Term,
}

/// A lease that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// What to write under.
    pub writer: Writer,
    /// Until when, by the store's clock. The holder must stop earlier, by its own.
    pub expires: Timestamp,
}

/// Who is there and who holds what, at one instant of the store's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roll {
    /// When.
    pub now: Timestamp,
    /// Who said that it is there, as what, and has not left.
    pub present: BTreeSet<(Role, String)>,
    /// The leases that live: their holders, and until when.
    pub held: BTreeMap<(Role, Shard), (String, Timestamp)>,
}

/// What an instance said of itself last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceRow {
    /// Which one: its host and process, as it holds leases.
    pub instance: String,
    /// When, by the store's clock: one that has said nothing for a while is gone.
    pub said_at: Timestamp,
    /// What it said.
    pub record: InstanceRecord,
}

/// Everything that changes about one pipeline at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Which pipeline.
    pub pipeline: PipelineId,
    /// By which right.
    pub writer: Writer,
    /// What, in order; at most [`CHANGES_MAX`].
    pub changes: Vec<Change>,
}

/// One change of one row.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Creates or replaces a row.
    Put(Key, Expect, Record),
    /// Removes a row.
    Delete(Key, Expect),
    /// Appends an event to the pipeline's stream.
    Append(Arc<EventRecord>),
}

/// What must be true of a row before it is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// It is not there.
    Absent,
    /// It has this revision.
    Revision(u64),
    /// Nothing: only for rows that hold no decision (due entries, sensors by their own time).
    Any,
}

/// A group that was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// The number of the last event it appended, 0 if none.
    pub last_event: u64,
}

/// Why a group was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A row was not as expected: reload and plan again.
    #[error("{key} is at revision {found}, not as expected")]
    Conflict {
        /// Which row.
        key: Key,
        /// Its revision, 0 when it is not there.
        found: u64,
    },
    /// The writer's term is over: stop.
    #[error("the term is over; the last one given is {current:?}")]
    Term {
        /// The highest term that was given, 0 if none was.
        current: Term,
    },
    /// An earlier group of the same pipeline in the same call was refused.
    #[error("an earlier group of the pipeline was refused")]
    Behind,
    /// It holds more changes than a group may.
    #[error("{0} changes are more than a group may hold")]
    TooLarge(usize),
    /// It changes one row twice: which precondition is meant, and in which order, would be a guess.
    #[error("{key} occurs twice in one group")]
    Twice {
        /// Which row.
        key: Key,
    },
    /// The writer's role may not do this, or nobody may: see [`may_write`](crate::may_write).
    #[error("this role may not change {key} in this way")]
    Forbidden {
        /// Which row.
        key: Key,
    },
}

/// A store that did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    /// What went wrong, and with what.
    pub message: String,
    /// Whether the same call may succeed later.
    pub is_retryable: bool,
}

impl StoreError {
    /// An error that trying again cannot cure, such as a mistake of the caller.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_retryable: false }
    }

    /// An error that may pass by itself.
    pub fn retryable(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_retryable: true }
    }
}

/// A row with its revision.
#[derive(Debug, Clone, PartialEq)]
pub struct Row<T> {
    /// What it holds.
    pub record: T,
    /// How often it was written.
    pub revision: u64,
}

/// Rows of one pipeline that are asked for by their keys.
#[derive(Debug, Clone, PartialEq)]
pub struct RowsQuery {
    /// Whose.
    pub pipeline: PipelineId,
    /// Which ones.
    pub keys: Vec<Key>,
}

/// What was found of a [`RowsQuery`]: a row for each of its keys, `None` where there is none.
pub type FoundRows = Vec<Option<Row<Record>>>;

/// An event with its number.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRow {
    /// Ever-growing within the store.
    pub number: u64,
    /// Whose it is.
    pub pipeline: PipelineId,
    /// What happened.
    pub record: Arc<EventRecord>,
}

/// A page of a listing: as many as were asked for, and fewer only if there is no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// What was found, in order.
    pub items: Vec<T>,
    /// Whether there is more after the last.
    pub more: bool,
}

/// Which end of a listing comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListOrder {
    /// The oldest, or first.
    #[default]
    OldestFirst,
    /// The newest, or last.
    NewestFirst,
}

/// Which events are asked for. A page goes on after the number of its last, or before it where the newest come first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventQuery {
    /// Only of this pipeline.
    pub pipeline: Option<PipelineId>,
    /// Only those with a greater number.
    pub after: u64,
    /// Only those with a smaller number.
    pub before: u64,
    /// In which order of their numbers.
    pub order: ListOrder,
    /// At most so many.
    pub limit: usize,
}

impl EventQuery {
    /// All of one pipeline or of all, oldest first, at most so many.
    pub fn new(pipeline: Option<PipelineId>, limit: usize) -> Self {
        Self { pipeline, after: 0, before: u64::MAX, order: ListOrder::OldestFirst, limit }
    }
}

/// A slot or a span as it stands in the ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerRow {
    /// Whose it is.
    pub pipeline: PipelineId,
    /// Of which schedule.
    pub schedule: ScheduleId,
    /// The slot's instant, or the span's first.
    pub nominal: Timestamp,
    /// What the ledger says.
    pub entry: LedgerEntry,
    /// How often the row was written.
    pub revision: u64,
}

/// Where a row stands in the ledger's order. A span and the row of its first slot share everything but
/// the last part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerPlace {
    /// The slot's instant, or the span's first.
    pub nominal: Timestamp,
    /// Whose it is.
    pub pipeline: PipelineId,
    /// Of which schedule.
    pub schedule: ScheduleId,
    /// Slots come before spans.
    pub is_span: bool,
}

impl LedgerRow {
    /// Its place: what to continue after.
    pub fn place(&self) -> LedgerPlace {
        LedgerPlace {
            nominal: self.nominal,
            pipeline: self.pipeline.clone(),
            schedule: self.schedule.clone(),
            is_span: matches!(self.entry, LedgerEntry::Span(_)),
        }
    }
}

/// One slot, or many in a row.
#[derive(Debug, Clone, PartialEq)]
pub enum LedgerEntry {
    /// One.
    Slot(Arc<SlotRecord>),
    /// Many.
    Span(SpanRecord),
}

/// Which part of the ledger is asked for. A span is found if the time from its first to its last slot
/// touches the interval, also when it began before it; a row wins over the span that covers it, and both
/// are returned: the reader subtracts.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerQuery {
    /// Only this pipeline.
    pub pipeline: Option<PipelineId>,
    /// From this instant on.
    pub from: Timestamp,
    /// Before this instant.
    pub until: Timestamp,
    /// Only with this disposition (a word of `Disposition::WORDS`), or `open` for open ones. A word that
    /// nothing has finds nothing.
    pub disposition: Option<String>,
    /// In which order of places.
    pub order: ListOrder,
    /// After this place in that order.
    pub after: Option<LedgerPlace>,
    /// At most so many.
    pub limit: usize,
}

impl LedgerQuery {
    /// All of it, at most so many rows.
    pub fn everything(limit: usize) -> Self {
        Self {
            pipeline: None,
            from: Timestamp::MIN,
            until: Timestamp::MAX,
            disposition: None,
            order: ListOrder::OldestFirst,
            after: None,
            limit,
        }
    }
}

/// Which runs are asked for, newest first: by (`created_at`, pipeline, key), descending.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunQuery {
    /// Only this pipeline.
    pub pipeline: Option<PipelineId>,
    /// Only this slot.
    pub slot: Option<(ScheduleId, Timestamp)>,
    /// Only with this status.
    pub status: Option<String>,
    /// Only with this trigger type.
    pub trigger_type: Option<String>,
    /// After this place: older ones.
    pub after: Option<RunPlace>,
    /// At most so many.
    pub limit: usize,
}

/// Where a run stands in the order of [`RunQuery`], which is descending.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunPlace {
    /// When it was made.
    pub created_at: Timestamp,
    /// Whose it is.
    pub pipeline: PipelineId,
    /// Which attempt.
    pub key: RunKey,
}

impl RunRow {
    /// Its place: what to continue after.
    pub fn place(&self) -> RunPlace {
        RunPlace {
            created_at: self.record.created_at,
            pipeline: self.pipeline.clone(),
            key: self.key.clone(),
        }
    }
}

/// Which incidents are asked for, newest first: by (`opened_at`, pipeline, key), descending.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IncidentQuery {
    /// Only of this pipeline.
    pub pipeline: Option<PipelineId>,
    /// Only those that are not resolved, or only those that are.
    pub is_open: Option<bool>,
    /// After this place: older ones.
    pub after: Option<IncidentPlace>,
    /// At most so many.
    pub limit: usize,
}

/// Where an incident stands in the order of [`IncidentQuery`], which is descending.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IncidentPlace {
    /// When it was opened.
    pub opened_at: Timestamp,
    /// Whose it is.
    pub pipeline: PipelineId,
    /// Its key.
    pub key: String,
}

impl IncidentPlace {
    /// The place of a row: what to continue after.
    pub fn of((pipeline, key, row): &(PipelineId, String, Row<IncidentRecord>)) -> Self {
        let opened_at = row.record.opened_at;
        Self { opened_at, pipeline: pipeline.clone(), key: key.clone() }
    }
}

/// A run with its address.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// Whose it is.
    pub pipeline: PipelineId,
    /// Which attempt.
    pub key: RunKey,
    /// What is known of it.
    pub record: RunRecord,
    /// How often it was written.
    pub revision: u64,
}

/// What a pipeline's loops need at start: its row and its watermarks.
#[derive(Debug, Clone, PartialEq)]
pub struct AgendaRow {
    /// Which pipeline.
    pub pipeline: PipelineId,
    /// Its row.
    pub record: Row<PipelineRecord>,
    /// How far each schedule is recorded.
    pub watermarks: BTreeMap<ScheduleId, Row<WatermarkRecord>>,
}

/// Which backfills are asked for, in the order (pipeline, number).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BackfillQuery {
    /// Only of this pipeline.
    pub pipeline: Option<PipelineId>,
    /// Only of pipelines of this shard.
    pub shard: Option<Shard>,
    /// Only those whose owner still has something to do with them.
    pub unfinished: bool,
    /// After this one.
    pub after: Option<(PipelineId, u64)>,
    /// At most so many.
    pub limit: usize,
}

/// A backfill with its address.
#[derive(Debug, Clone, PartialEq)]
pub struct BackfillRow {
    /// Of which pipeline.
    pub pipeline: PipelineId,
    /// Its number there.
    pub number: u64,
    /// What it says.
    pub record: BackfillRecord,
    /// How often the row was written.
    pub revision: u64,
}

/// A report or request with its address.
#[derive(Debug, Clone, PartialEq)]
pub struct InboxEntry {
    /// Its place in the inbox; entries are applied in this order per pipeline.
    pub number: u64,
    /// For which pipeline.
    pub pipeline: PipelineId,
    /// Who sends the same key again means the same entry.
    pub key: String,
    /// When it reached us.
    pub received_at: Timestamp,
    /// What it says.
    pub record: InboxRecord,
}

/// A due entry with its address.
#[derive(Debug, Clone, PartialEq)]
pub struct DueRow {
    /// For which pipeline.
    pub pipeline: PipelineId,
    /// When.
    pub at: Timestamp,
    /// What there is to look at.
    pub kind: DueKind,
    /// Of which thing.
    pub name: String,
    /// What the one who looks needs to know.
    pub record: DueRecord,
}

/// A notification that was handed out.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboxRow {
    /// Of which pipeline.
    pub pipeline: PipelineId,
    /// Its name.
    pub name: String,
    /// What to send.
    pub record: OutboxRecord,
    /// How often the row was written.
    pub revision: u64,
}

/// What becomes of a notification that was handed out.
#[derive(Debug, Clone, PartialEq)]
pub struct Settlement {
    /// The notification, as it was handed out.
    pub row: OutboxRow,
    /// What takes its place, by name: see [`Store::settle_many`].
    pub becomes: Vec<(String, OutboxRecord)>,
    /// Whether its claim passes to what it becomes under other names, instead of ending.
    pub keeps_claim: bool,
}

impl Settlement {
    /// A settlement after which nothing is claimed any more.
    pub fn new(row: OutboxRow, becomes: Vec<(String, OutboxRecord)>) -> Self {
        Self { row, becomes, keeps_claim: false }
    }

    /// What it becomes, each with the claim that it has then.
    pub fn claimed(&self) -> impl Iterator<Item = (&String, OutboxRecord)> {
        let kept = self.row.record.claimed_until.filter(|_| self.keeps_claim);
        self.becomes.iter().map(move |(name, record)| {
            let claimed_until = kept.filter(|_| *name != self.row.name);
            (name, OutboxRecord { claimed_until, ..record.clone() })
        })
    }
}

/// What came of a settlement: the rows that it added and that are claimed for the caller now, none if no claim was to be kept
/// or the notification had changed since.
pub type SettleOutcome = Result<Vec<OutboxRow>, StoreError>;

/// Shards that cannot be reached, all for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away {
    /// Which ones.
    pub shards: Vec<Shard>,
    /// Why, and which server has them.
    pub why: String,
}

impl Away {
    /// Which shards of so many, and why, in a sentence.
    pub fn sentence(&self, count: u16) -> String {
        let noun = if self.shards.len() == 1 { "shard" } else { "shards" };
        let shards: Vec<_> = self.shards.iter().map(|shard| shard.0.to_string()).collect();
        format!("{noun} {} of {count} cannot be reached: {}", shards.join(", "), self.why)
    }
}

/// Whether a pipeline is ready, as it is shown to those who look into the store itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadinessView {
    /// Whose.
    pub pipeline: PipelineId,
    /// Of which slot, as `schedule/instant`.
    pub slot: String,
    /// When that was found out.
    pub at: Timestamp,
    /// What it waits for; ready when empty.
    pub blocking: Vec<String>,
    /// The whole verdict, for people.
    pub evidence: String,
    /// What evaluators said, by the trait's type: `status`, `value` and `reason`.
    pub traits: serde_json::Map<String, serde_json::Value>,
}

/// An engine. Each verb's promise is in the crate's documentation.
pub trait Store: Send + Sync + fmt::Debug {
    /// The present instant by the store's clock, in whole milliseconds.
    fn now(&self) -> StoreFuture<'_, Timestamp>;

    /// How many shards there are; fixed for the life of a store.
    fn shard_count(&self) -> u16;

    /// A number that has changed whenever a group may have been applied since it was last asked, by anybody: who
    /// finds it unchanged need not read again. `None` from an engine that cannot tell for nothing.
    fn moved(&self) -> Option<u64> {
        None
    }

    /// Applies groups; a result each, in order. Durable when it returns.
    fn commit(&self, groups: Vec<Group>) -> StoreFuture<'_, Vec<Result<Accepted, Refusal>>>;

    /// Gives a role's shard to a holder, with a new term, if nobody holds it, its lease has expired, or the
    /// holder itself holds it (its older term is then over too).
    fn acquire<'a>(
        &'a self,
        role: Role,
        shard: Shard,
        holder: &'a str,
        ttl: SignedDuration,
    ) -> StoreFuture<'a, Option<Lease>>;

    /// Extends a lease from now; `None` when its term is over. One that has only expired can be extended.
    fn renew(&self, writer: Writer, ttl: SignedDuration) -> StoreFuture<'_, Option<Lease>>;

    /// Ends a lease at once; ending one that is over is no error.
    fn release(&self, writer: Writer) -> StoreFuture<'_, ()>;

    /// Says that an instance is there in a role, for a while by the store's clock; for no time: that it leaves. It is
    /// what others divide the shards by, and gives no right to anything.
    fn announce<'a>(
        &'a self,
        _role: Role,
        _instance: &'a str,
        _ttl: SignedDuration,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Who is there, and who holds what. `None` from an engine that one process alone can write: there is nobody to
    /// share with.
    fn roll(&self) -> StoreFuture<'_, Option<Roll>> {
        Box::pin(async { Ok(None) })
    }

    /// Keeps what an instance says of itself, in place of what it said before. It decides nothing, needs no lease, and need not
    /// outlive the server. What others said more than [`INSTANCES_KEPT`] ago goes.
    fn report_instance<'a>(
        &'a self,
        instance: &'a str,
        record: &'a InstanceRecord,
    ) -> StoreFuture<'a, ()>;

    /// What the instances said of themselves last, by name; those that are gone too, for [`INSTANCES_KEPT`].
    fn instances(&self) -> StoreFuture<'_, Vec<InstanceRow>>;

    /// Reads rows by their keys, in the order asked; `None` for those that are not there.
    fn read<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        keys: &'a [Key],
    ) -> StoreFuture<'a, Vec<Option<Row<Record>>>>;

    /// The same for many pipelines, in the order asked, in as few calls of the engine as it can. Each pipeline's rows are of one
    /// instant; those of two pipelines need not be. More rows than [`READ_MAX`] are for several calls of the caller's, which can
    /// show in between that it goes on.
    fn read_many<'a>(&'a self, asked: &'a [RowsQuery]) -> StoreFuture<'a, Vec<FoundRows>> {
        let reads = asked.iter().map(|query| self.read(&query.pipeline, &query.keys));
        Box::pin(together(reads.collect()))
    }

    /// The pipelines of a shard with their watermarks, by name, after a given one.
    fn agenda<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a PipelineId>,
        limit: usize,
    ) -> StoreFuture<'a, Page<AgendaRow>>;

    /// The same pipelines with no more than the revisions of their rows, in an order of the engine's own, after a given
    /// one: what somebody asks who keeps them, to see which to read again. An engine that can tell without reading the
    /// rows does so.
    fn revisions<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a PipelineId>,
        limit: usize,
    ) -> StoreFuture<'a, Page<(PipelineId, u64)>> {
        Box::pin(async move {
            let page = self.agenda(shard, after, limit).await?;
            let items = page.items.into_iter().map(|row| (row.pipeline, row.record.revision));
            Ok(Page { items: items.collect(), more: page.more })
        })
    }

    /// The ledger, in the order of [`LedgerPlace`] or the reverse.
    fn ledger<'a>(&'a self, query: &'a LedgerQuery) -> StoreFuture<'a, Page<LedgerRow>>;

    /// Every open slot of a shard, in the order (pipeline, nominal, schedule), after a given one.
    fn open_slots<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a (PipelineId, Timestamp, ScheduleId)>,
        limit: usize,
    ) -> StoreFuture<'a, Page<LedgerRow>>;

    /// Runs, newest first.
    fn runs<'a>(&'a self, query: &'a RunQuery) -> StoreFuture<'a, Page<RunRow>>;

    /// Whether what is listed of all pipelines by a status, trigger type, disposition or state that few rows have is found
    /// without looking at the others. Where it is not, [`scan`](crate::scan) looks at all rows, and counts them.
    fn has_word_indexes(&self) -> bool {
        true
    }

    /// The sensors of a pipeline.
    fn sensors<'a>(
        &'a self,
        pipeline: &'a PipelineId,
    ) -> StoreFuture<'a, BTreeMap<String, Row<SensorRecord>>>;

    /// Incidents, newest first.
    fn incidents_by<'a>(
        &'a self,
        query: &'a IncidentQuery,
    ) -> StoreFuture<'a, Page<(PipelineId, String, Row<IncidentRecord>)>>;

    /// The newest incidents of one pipeline or of all.
    fn incidents<'a>(
        &'a self,
        pipeline: Option<&'a PipelineId>,
        limit: usize,
    ) -> StoreFuture<'a, Page<(PipelineId, String, Row<IncidentRecord>)>> {
        let query = IncidentQuery { pipeline: pipeline.cloned(), limit, ..Default::default() };
        Box::pin(async move { self.incidents_by(&query).await })
    }

    /// Every incident of a shard that is not resolved, in the order (pipeline, key), after a given one.
    fn open_incidents<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a (PipelineId, String)>,
        limit: usize,
    ) -> StoreFuture<'a, Page<(PipelineId, String, Row<IncidentRecord>)>>;

    /// Backfills, in the order (pipeline, number).
    fn backfills<'a>(&'a self, query: &'a BackfillQuery) -> StoreFuture<'a, Page<BackfillRow>>;

    /// Events by their numbers. Who has read up to a number has missed nothing below it: no event appears later with a smaller
    /// one.
    fn events_by<'a>(&'a self, query: &'a EventQuery) -> StoreFuture<'a, Page<EventRow>>;

    /// Events after a number, of one pipeline or of all, oldest first.
    fn events<'a>(
        &'a self,
        pipeline: Option<&'a PipelineId>,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'a, Page<EventRow>> {
        let query = EventQuery { after, ..EventQuery::new(pipeline.cloned(), limit) };
        Box::pin(async move { self.events_by(&query).await })
    }

    /// The same for whoever looks after a shard: at least those of its pipelines and of `_system`, and perhaps others. An engine
    /// whose shards are on several servers asks no more of them than it must.
    fn events_for(
        &self,
        _shard: Shard,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'_, Page<EventRow>> {
        self.events(None, after, limit)
    }

    /// Due entries of a shard at or before an instant, earliest first.
    fn due(&self, shard: Shard, until: Timestamp, limit: usize) -> StoreFuture<'_, Page<DueRow>>;

    /// Appends to the inbox; a key of this pipeline that is there already, or was applied already, changes
    /// nothing. The pipeline need not exist. A key with a NUL is refused. Durable when it returns.
    fn post<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        key: &'a str,
        record: &'a InboxRecord,
    ) -> StoreFuture<'a, ()>;

    /// The entry that waits in the inbox under a key of a pipeline; none before it is posted and once its answer is written.
    /// After a post, this or the answer's `request` says which request has the key.
    fn posted<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        key: &'a str,
    ) -> StoreFuture<'a, Option<InboxRecord>>;

    /// How long it is shown beside the ledger whether pipelines are ready, for those who look into the store itself; none
    /// where nothing is shown.
    fn readiness_ttl(&self) -> Option<SignedDuration> {
        None
    }

    /// Shows of pipelines that wait what they wait for. Nothing is decided by it, it expires, and needs no lease; what an
    /// event says of readiness is shown with the event.
    fn show_readiness(&self, _shown: Vec<ReadinessView>) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Ends when something may have been posted for a shard after this was called. It may come for nothing, or not at all: who
    /// waits for it looks into the inbox now and then as well. `None` from an engine that gives no hints, or cannot now.
    fn hint(&self, _shard: Shard) -> Option<Hint> {
        None
    }

    /// Unapplied inbox entries of a shard, oldest first. An entry is gone from here once a group with its
    /// `Applied` row was accepted.
    fn inbox(&self, shard: Shard, limit: usize) -> StoreFuture<'_, Page<InboxEntry>>;

    /// Hands out up to `limit` outbox rows that may be tried now (not dead, `not_before` reached, not
    /// claimed), to nobody else for `ttl`; those that have waited longest first. A claim is a change: the
    /// row says until when, and its revision grows.
    fn claim(&self, limit: usize, ttl: SignedDuration) -> StoreFuture<'_, Vec<OutboxRow>>;

    /// Replaces claimed notifications by what came of them, each all or nothing and independent of the others: by nothing
    /// (delivered), by itself under its own name (to be tried again, or dead), by others of the same pipeline (one for
    /// each channel, or a dead letter and those who hear of it). At most [`CHANGES_MAX`] rows for each; its claim is
    /// then over, or passes to the rows under other names ([`Settlement::keeps_claim`]). A name that is taken by
    /// another row keeps that row. Refused silently when the notification has changed since (another claim, a
    /// deletion). An outcome each, in order: one that fails may have been done. Durable when it returns.
    fn settle_many(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<SettleOutcome>>;

    /// Settles one notification: see [`Store::settle_many`].
    fn settle<'a>(
        &'a self,
        row: &'a OutboxRow,
        becomes: Vec<(String, OutboxRecord)>,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let outcomes = self.settle_many(vec![Settlement::new(row.clone(), becomes)]).await?;
            outcomes.into_iter().try_for_each(|outcome| outcome.map(drop))
        })
    }

    /// The notifications of a pipeline that are in the outbox, whether they wait, are tried or are dead, in the order of their
    /// names, after one. To look at them claims none.
    fn notifications<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        after: Option<&'a str>,
        limit: usize,
    ) -> StoreFuture<'a, Page<OutboxRow>>;

    /// Dead letters, those that came first first: by `not_before`.
    fn dead_letters(&self, limit: usize) -> StoreFuture<'_, Page<OutboxRow>>;

    /// Slots, spans, runs and incidents that were written or deleted after a number, in the order of commits, each as
    /// it is now: who has read up to a number, and not less far than `since`, has missed nothing below it.
    fn changes(&self, after: u64, limit: usize) -> StoreFuture<'_, Changes>;

    /// What it may lose of what it acknowledges, as its server is set up now: sentences for its owner, none if all is well.
    fn cautions(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Shards that lists over all pipelines leave out: those of a server that could not be reached when the store was opened to be looked
    /// at. None in a store that was opened in any other way; there such a list fails.
    fn left_out(&self) -> &[Away] {
        &[]
    }

    /// Which store it is, and the last number that it has given: what whoever uses it remembers.
    fn mark(&self) -> StoreFuture<'_, Mark>;

    /// Says whether the store still has what somebody remembers of it. An engine on a server that has not ends every
    /// term, so that owners read again, and has people told (`STORE_ROLLBACK`), once however many remember it.
    fn recall(&self, remembered: Mark) -> StoreFuture<'_, Recalled> {
        Box::pin(async move { Ok(self.mark().await?.recall(remembered)) })
    }

    /// Says how far an archive has read: changes up to there are forgotten, and no event after it is trimmed. With the
    /// first call changes begin to be noted; with `None` nobody archives any more, and they no longer are.
    fn archived(&self, up_to: Option<Archived>) -> StoreFuture<'_, ()>;

    /// Every row, or every one of a kind, under whatever name, in portions of about `limit` and an order of the engine's
    /// own: a row that is there all the while comes at least once. `from` is empty at first, then what the last portion of
    /// the same walk says. Rows of other kinds are not read.
    fn rows<'a>(&'a self, which: Rows, from: &'a str, limit: usize) -> StoreFuture<'a, Portion>;

    /// Takes over what another store holds, as it is: revisions, numbers and instants included. Only for a store that
    /// nobody else uses yet; the same freight again changes nothing. Durable when it returns.
    fn import(&self, freight: Freight) -> StoreFuture<'_, ()>;

    /// Takes out for good what is old: slots with their runs, spans, answers, incidents, notifications and events, each row
    /// only at the revision that is named. The floor ([`kept::floor`](crate::kept::floor)) is raised in the same step, and never goes back. Nobody's
    /// term is asked for, and no archive is told. A key whose answer is gone is a new one. Says how many of the named rows
    /// went. What may go is decided in [`retention`](crate::retention).
    fn forget(&self, what: Forgetting) -> StoreFuture<'_, usize>;
}
