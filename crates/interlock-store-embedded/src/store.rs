//! The store, put together: which thread does what.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    Accepted, AgendaRow, Archived, BackfillQuery, BackfillRow, Changes, DueRow, EventQuery,
    EventRow, Forgetting, FoundRows, Freight, Group, InboxEntry, IncidentQuery, InstanceRow, Key,
    Lease, LedgerQuery, LedgerRow, Mark, OutboxRow, Page, Portion, Record, Refusal, Role, Row,
    Rows, RowsQuery, RunQuery, RunRow, SettleOutcome, Settlement, Shard, Store, StoreError,
    StoreFuture, Writer as Right, check_name, check_settlements,
    record::{InboxRecord, IncidentRecord, InstanceRecord, SensorRecord},
    whole_milliseconds,
};
use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;

use crate::{
    apply::{self, PreparedGroup},
    failure::{Failure, Health},
    file,
    file_guard::{FileGuard, FileWatch},
    glance::{self, Glance},
    instances, lease,
    leave::leave_one,
    ledger,
    lock::DaemonLock,
    log::LogKeeper,
    mailbox::{self, Mailbox},
    memory::name_id,
    queue::{self, Letter},
    read,
    readers::Readers,
    recover, runs, schema, whole,
    writer::{LITTLE, Ledger, Writer},
};

/// Tells the store the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How many shards there are: only one process can own any, so more would be of no use.
const SHARDS: u16 = 1;
/// How many groups of a commit, or settlements, are written without a chance for others in between.
const PORTION: usize = 100;
/// How many connections read.
const READERS: usize = 3;

/// A store in a folder.
pub struct EmbeddedStore {
    folder: PathBuf,
    clock: Clock,
    // Fields are dropped in this order: whoever uses another part goes first, the lock last.
    access: Access,
    readers: Readers,
    glance: Glance,
    _lock: Option<DaemonLock>,
}

/// What this process may do.
enum Access {
    /// Everything.
    Daemon {
        courier: Readers,
        mailbox: Arc<Mailbox>,
        writer: Arc<Writer>,
        /// The newest inbox entry's number when the inbox was last found empty.
        emptied_at: AtomicI64,
        /// Notices without work that the files are gone.
        _watch: FileWatch,
    },
    /// Read, and leave letters.
    Reader,
}

impl EmbeddedStore {
    /// Opens the ledger of a folder to write it; makes both if they do not exist.
    pub fn open_daemon(folder: &Path, clock: Clock) -> Result<Self, StoreError> {
        Self::open_daemon_as(folder, clock, "")
    }

    /// Opens the ledger to write it, and has whoever comes second told what the first one is.
    pub fn open_daemon_as(folder: &Path, clock: Clock, what: &str) -> Result<Self, StoreError> {
        file::create_folder(folder)?;
        file::check_folder(folder)?;
        let lock = DaemonLock::take(folder, what)?;
        file::restrict(folder)?;
        recover::finish(folder)?;
        let path = file::ledger_path(folder);
        let mut db = file::open_writing(&path)?;
        schema::migrate(&mut db, &path)?;
        let health = Health::new(path.clone());
        let guard = FileGuard::of(folder, &lock).map(Arc::new).map_err(|error| {
            StoreError::permanent(format!("cannot look at {}: {error}", path.display()))
        })?;
        let watch = FileWatch::start(Arc::clone(&guard), health.clone())?;
        let log = LogKeeper::start(file::open_copying(&path)?, health.clone())?;
        let writer = Arc::new(Writer::start(db, log, health.clone(), guard)?);
        let courier = Readers::start(vec![file::open_reading(&path)?], health.clone())?;
        let mailbox = Arc::new(Mailbox::new(folder));
        Ok(Self {
            folder: folder.to_owned(),
            clock,
            access: Access::Daemon {
                courier,
                mailbox,
                writer,
                emptied_at: AtomicI64::new(-1),
                _watch: watch,
            },
            readers: start_readers(&path, health.clone())?,
            glance: Glance::open(&path, health)?,
            _lock: Some(lock),
        })
    }

    /// Opens the ledger of a folder to read it, beside a daemon or without one.
    pub fn open_reader(folder: &Path, clock: Clock) -> Result<Self, StoreError> {
        let path = file::ledger_path(folder);
        if !path.exists() {
            let message = format!(
                "there is no ledger in {} yet: `interlock serve` makes one",
                folder.display()
            );
            return Err(StoreError::permanent(message));
        }
        file::check_folder(folder)?;
        schema::expect_present(&file::open_reading(&path)?, &path)?;
        let health = Health::new(path.clone());
        Ok(Self {
            folder: folder.to_owned(),
            clock,
            access: Access::Reader,
            readers: start_readers(&path, health.clone())?,
            glance: Glance::open(&path, health)?,
            _lock: None,
        })
    }

    /// Copies the ledger, as it is at one instant, to a file that does not exist yet; blocks meanwhile.
    pub fn backup(&self, to: &Path) -> Result<(), StoreError> {
        crate::backup(&self.folder, to)
    }

    /// Looks for damage; a sentence for each problem, none if it is sound; blocks meanwhile.
    pub fn check(&self) -> Result<Vec<String>, StoreError> {
        crate::check(&self.folder)
    }

    fn time(&self) -> Timestamp {
        whole_milliseconds((self.clock)())
    }

    /// Hands work to the writing thread, if this process has one.
    fn write<T: Send + 'static>(
        &self,
        weight: usize,
        work: impl FnMut(&mut Ledger<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        match &self.access {
            Access::Daemon { writer, .. } => Box::pin(writer.submit(weight, work)),
            Access::Reader => Box::pin(std::future::ready(Err(self.read_only()))),
        }
    }

    fn read_only(&self) -> StoreError {
        let folder = self.folder.display();
        let message = format!(
            "this process only reads the ledger in {folder}: the daemon writes it, and takes requests \
             through the inbox"
        );
        StoreError::permanent(message)
    }

    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(self.readers.submit(work))
    }
}

fn start_readers(path: &Path, health: Health) -> Result<Readers, StoreError> {
    let connections = (0..READERS).map(|_| file::open_reading(path)).collect::<Result<_, _>>()?;
    Readers::start(connections, health)
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = match &self.access {
            Access::Daemon { .. } => "daemon",
            Access::Reader => "reader",
        };
        f.debug_struct("EmbeddedStore")
            .field("folder", &self.folder)
            .field("access", &access)
            .finish_non_exhaustive()
    }
}

impl Store for EmbeddedStore {
    fn now(&self) -> StoreFuture<'_, Timestamp> {
        Box::pin(std::future::ready(Ok(self.time())))
    }

    fn shard_count(&self) -> u16 {
        SHARDS
    }

    fn moved(&self) -> Option<u64> {
        match &self.access {
            Access::Daemon { writer, .. } => Some(writer.moved()),
            Access::Reader => None,
        }
    }

    fn commit(&self, groups: Vec<Group>) -> StoreFuture<'_, Vec<Result<Accepted, Refusal>>> {
        if let Err(error) = groups.iter().try_for_each(|group| group.check(SHARDS)) {
            return Box::pin(std::future::ready(Err(error)));
        }
        // In portions, between which those with little to write may come; the last, which may be little, stays the last.
        let weight_min = if groups.len() > PORTION { LITTLE + 1 } else { 0 };
        let mut groups = groups.into_iter().map(PreparedGroup::new).peekable();
        let mut portions = Vec::new();
        while groups.peek().is_some() {
            let portion: Vec<PreparedGroup> = groups.by_ref().take(PORTION).collect();
            let weight = portion.len().max(weight_min);
            portions.push(self.write(weight, move |ledger| apply::commit(ledger, &portion)));
        }
        Box::pin(async move {
            let mut all = Vec::new();
            for portion in portions {
                all.extend(portion.await?);
            }
            Ok(all)
        })
    }

    fn acquire<'a>(
        &'a self,
        role: Role,
        shard: Shard,
        holder: &'a str,
        ttl: SignedDuration,
    ) -> StoreFuture<'a, Option<Lease>> {
        if shard.0 >= SHARDS {
            let message = format!("there is no shard {} among {SHARDS}", shard.0);
            return Box::pin(std::future::ready(Err(StoreError::permanent(message))));
        }
        let (holder, now) = (holder.to_owned(), self.time());
        let expires = until(now, ttl);
        self.write(1, move |ledger| lease::acquire(ledger, (role, shard), &holder, expires, now))
    }

    fn renew(&self, writer: Right, ttl: SignedDuration) -> StoreFuture<'_, Option<Lease>> {
        let expires = until(self.time(), ttl);
        self.write(1, move |ledger| lease::renew(ledger, writer, expires))
    }

    fn release(&self, writer: Right) -> StoreFuture<'_, ()> {
        self.write(1, move |ledger| lease::release(ledger, writer))
    }

    fn report_instance<'a>(
        &'a self,
        instance: &'a str,
        record: &'a InstanceRecord,
    ) -> StoreFuture<'a, ()> {
        let (instance, body, now) = (instance.to_owned(), record.encode(), self.time());
        self.write(1, move |ledger| instances::report(ledger.db, (&instance, &body), now))
    }

    fn instances(&self) -> StoreFuture<'_, Vec<InstanceRow>> {
        self.ask(instances::all)
    }

    fn read<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        keys: &'a [Key],
    ) -> StoreFuture<'a, Vec<Option<Row<Record>>>> {
        if keys.len() <= glance::ROWS_MAX
            && let Some(rows) = self.glance.take(|db| read::rows(db, pipeline, keys))
        {
            return Box::pin(std::future::ready(Ok(rows)));
        }
        let (pipeline, keys) = (pipeline.clone(), keys.to_vec());
        self.ask(move |db| read::rows(db, &pipeline, &keys))
    }

    fn read_many<'a>(&'a self, asked: &'a [RowsQuery]) -> StoreFuture<'a, Vec<FoundRows>> {
        let asked = asked.to_vec();
        self.ask(move |db| {
            asked.iter().map(|query| read::rows(db, &query.pipeline, &query.keys)).collect()
        })
    }

    fn agenda<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a PipelineId>,
        limit: usize,
    ) -> StoreFuture<'a, Page<AgendaRow>> {
        let after = after.cloned();
        if shard.0 >= SHARDS {
            return nothing();
        }
        self.ask(move |db| read::agenda(db, after.as_ref(), limit))
    }

    fn revisions<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a PipelineId>,
        limit: usize,
    ) -> StoreFuture<'a, Page<(PipelineId, u64)>> {
        let after = after.cloned();
        if shard.0 >= SHARDS {
            return nothing();
        }
        self.ask(move |db| read::revisions(db, after.as_ref(), limit))
    }

    fn ledger<'a>(&'a self, query: &'a LedgerQuery) -> StoreFuture<'a, Page<LedgerRow>> {
        let query = query.clone();
        self.ask(move |db| ledger::ledger(db, &query))
    }

    fn open_slots<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a (PipelineId, Timestamp, ScheduleId)>,
        limit: usize,
    ) -> StoreFuture<'a, Page<LedgerRow>> {
        let after = after.cloned();
        if shard.0 >= SHARDS {
            return nothing();
        }
        self.ask(move |db| ledger::open_slots(db, after.as_ref(), limit))
    }

    fn runs<'a>(&'a self, query: &'a RunQuery) -> StoreFuture<'a, Page<RunRow>> {
        let query = query.clone();
        self.ask(move |db| runs::runs(db, &query))
    }

    fn sensors<'a>(
        &'a self,
        pipeline: &'a PipelineId,
    ) -> StoreFuture<'a, BTreeMap<String, Row<SensorRecord>>> {
        let pipeline = pipeline.clone();
        self.ask(move |db| read::sensors(db, &pipeline))
    }

    fn incidents_by<'a>(
        &'a self,
        query: &'a IncidentQuery,
    ) -> StoreFuture<'a, Page<(PipelineId, String, Row<IncidentRecord>)>> {
        let query = query.clone();
        self.ask(move |db| read::incidents(db, &query))
    }

    fn open_incidents<'a>(
        &'a self,
        shard: Shard,
        after: Option<&'a (PipelineId, String)>,
        limit: usize,
    ) -> StoreFuture<'a, Page<(PipelineId, String, Row<IncidentRecord>)>> {
        let after = after.cloned();
        if shard.0 >= SHARDS {
            return nothing();
        }
        self.ask(move |db| read::open_incidents(db, after.as_ref(), limit))
    }

    fn backfills<'a>(&'a self, query: &'a BackfillQuery) -> StoreFuture<'a, Page<BackfillRow>> {
        if query.shard.is_some_and(|shard| shard.0 >= SHARDS) {
            return nothing();
        }
        let query = query.clone();
        self.ask(move |db| read::backfills(db, &query))
    }

    fn events_by<'a>(&'a self, query: &'a EventQuery) -> StoreFuture<'a, Page<EventRow>> {
        let query = query.clone();
        self.ask(move |db| read::events(db, &query))
    }

    fn due(&self, shard: Shard, until: Timestamp, limit: usize) -> StoreFuture<'_, Page<DueRow>> {
        if shard.0 >= SHARDS {
            return nothing();
        }
        self.ask(move |db| read::due(db, until, limit))
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
        let letter = Letter {
            pipeline: pipeline.clone(),
            key: key.to_owned(),
            received_at: self.time(),
            body: record.encode(),
        };
        let folder = self.folder.clone();
        match &self.access {
            Access::Daemon { .. } => self.write(1, move |ledger| queue::post(ledger, &letter)),
            Access::Reader => self.ask(move |db| leave(db, &folder, &letter)),
        }
    }

    fn posted<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        key: &'a str,
    ) -> StoreFuture<'a, Option<InboxRecord>> {
        let (pipeline, key) = (pipeline.clone(), key.to_owned());
        // What other processes leave, the daemon sees once it has taken it over.
        let folder = matches!(self.access, Access::Reader).then(|| self.folder.clone());
        self.ask(move |db| posted_under(db, folder.as_deref(), (&pipeline, &key)))
    }

    fn inbox(&self, shard: Shard, limit: usize) -> StoreFuture<'_, Page<InboxEntry>> {
        if shard.0 >= SHARDS {
            return nothing();
        }
        let Access::Daemon { courier, mailbox, writer, emptied_at, .. } = &self.access else {
            let folder = self.folder.clone();
            return self.ask(move |db| inbox_beside(db, &folder, limit));
        };
        Box::pin(async move {
            if !mailbox.looks_empty() {
                let (mailbox, writer) = (Arc::clone(mailbox), Arc::clone(writer));
                courier.submit(move |db| mailbox.take_over(db, &writer)).await?;
            }
            // Only the writer adds entries, and their numbers grow.
            let last = writer.last_inbox();
            if emptied_at.load(Ordering::Acquire) == last {
                self.readers.check()?;
                return Ok(Page { items: vec![], more: false });
            }
            let page = self
                .readers
                .submit(move |db| Ok(read::page(read::inbox(db, limit)?, limit)))
                .await?;
            if page.items.is_empty() && !page.more {
                emptied_at.store(last, Ordering::Release);
            }
            Ok(page)
        })
    }

    fn claim(&self, limit: usize, ttl: SignedDuration) -> StoreFuture<'_, Vec<OutboxRow>> {
        let now = self.time();
        self.write(1, move |ledger| queue::claim(ledger, limit, until(now, ttl), now))
    }

    fn settle_many(&self, settlements: Vec<Settlement>) -> StoreFuture<'_, Vec<SettleOutcome>> {
        if let Err(error) = check_settlements(&settlements) {
            return Box::pin(std::future::ready(Err(error)));
        }
        let (mut portions, mut left) = (Vec::new(), settlements);
        while !left.is_empty() {
            let rest = left.split_off(left.len().min(PORTION));
            let portion = std::mem::replace(&mut left, rest);
            let weight = portion.len();
            let work = move |ledger: &mut Ledger<'_>| queue::settle_many(ledger, &portion);
            portions.push(self.write(weight, work));
        }
        Box::pin(async move {
            let mut all = Vec::new();
            for portion in portions {
                all.extend(portion.await?);
            }
            Ok(all)
        })
    }

    fn notifications<'a>(
        &'a self,
        pipeline: &'a PipelineId,
        after: Option<&'a str>,
        limit: usize,
    ) -> StoreFuture<'a, Page<OutboxRow>> {
        let (pipeline, after) = (pipeline.clone(), after.map(str::to_owned));
        self.ask(move |db| read::notifications(db, &pipeline, after.as_deref(), limit))
    }

    fn dead_letters(&self, limit: usize) -> StoreFuture<'_, Page<OutboxRow>> {
        self.ask(move |db| read::dead_letters(db, limit))
    }

    fn changes(&self, after: u64, limit: usize) -> StoreFuture<'_, Changes> {
        self.ask(move |db| whole::changes(db, after, limit))
    }

    fn mark(&self) -> StoreFuture<'_, Mark> {
        self.ask(whole::mark)
    }

    fn archived(&self, up_to: Option<Archived>) -> StoreFuture<'_, ()> {
        self.write(1, move |ledger| whole::archived(ledger, up_to))
    }

    fn rows<'a>(&'a self, which: Rows, from: &'a str, limit: usize) -> StoreFuture<'a, Portion> {
        let from = from.to_owned();
        self.ask(move |db| whole::portion(db, which, &from, limit))
    }

    fn import(&self, freight: Freight) -> StoreFuture<'_, ()> {
        self.write(freight.rows.len(), move |ledger| whole::import(ledger, &freight))
    }

    fn forget(&self, what: Forgetting) -> StoreFuture<'_, usize> {
        if let Err(error) = what.check() {
            return Box::pin(std::future::ready(Err(error)));
        }
        let now = self.time();
        self.write(what.rows.len(), move |ledger| whole::forget(ledger, &what, now))
    }
}

/// The end of a time to live; at the end of time if that lies beyond it.
fn until(now: Timestamp, ttl: SignedDuration) -> Timestamp {
    now.checked_add(ttl).unwrap_or(Timestamp::MAX)
}

/// What a shard that does not exist holds.
fn nothing<'a, T: Send + 'a>() -> StoreFuture<'a, Page<T>> {
    Box::pin(std::future::ready(Ok(Page { items: vec![], more: false })))
}

/// Leaves a letter for the daemon, unless it has or had one with this key.
fn leave(db: &Connection, folder: &Path, letter: &Letter) -> Result<(), Failure> {
    let known = match name_id(db, &letter.pipeline)? {
        Some(pipeline) => queue::is_known(db, pipeline, &letter.key)?,
        None => false,
    };
    if known { Ok(()) } else { leave_one(folder, letter).map_err(Failure::Said) }
}

/// The inbox as another process sees it: what the daemon has, then what it has not taken over yet.
/// The entry that waits under a key: in the ledger, else among the letters of a folder that nobody has taken over.
fn posted_under(
    db: &Connection,
    folder: Option<&Path>,
    (pipeline, key): (&PipelineId, &str),
) -> Result<Option<InboxRecord>, Failure> {
    let named = name_id(db, pipeline)?;
    if let Some(id) = named {
        if let Some(body) = queue::posted(db, id, key)? {
            return Ok(Some(InboxRecord::read(&body)));
        }
        if queue::is_known(db, id, key)? {
            return Ok(None);
        }
    }
    let Some(folder) = folder else { return Ok(None) };
    let letters = mailbox::waiting(folder, db)?;
    let own = letters.into_iter().find(|it| it.pipeline == *pipeline && it.key == key);
    Ok(own.map(|letter| InboxRecord::read(&letter.body)))
}

fn inbox_beside(db: &Connection, folder: &Path, limit: usize) -> Result<Page<InboxEntry>, Failure> {
    let mut found = read::inbox(db, limit)?;
    let mut number = found.last().map_or(0, |entry| entry.number);
    for letter in mailbox::waiting(folder, db)? {
        let known = match name_id(db, &letter.pipeline)? {
            Some(pipeline) => queue::is_known(db, pipeline, &letter.key)?,
            None => false,
        };
        if !known {
            number += 1;
            let record = InboxRecord::read(&letter.body);
            let Letter { pipeline, key, received_at, .. } = letter;
            found.push(InboxEntry { number, pipeline, key, received_at, record });
        }
    }
    Ok(read::page(found, limit))
}
