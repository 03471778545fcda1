//! The project's ledger, opened to be read: what commands ask it, page by page, without a runtime.

use std::{
    cmp::Reverse, collections::BTreeMap, io::Write as _, path::Path, sync::Arc, time::Duration,
};

use interlock_answers::{AnswerError, ErrorCode, Reader, StoredIncident};
use interlock_core::id::{PipelineId, ScheduleId, SlotKey};
use interlock_store::{
    Away, EventRow, FoundRows, IncidentPlace, IncidentQuery, Key, LedgerEntry, LedgerQuery,
    LedgerRow, Page, Record, Roll, Row, RowsQuery, RunQuery, RunRow, Shard, Store, StoreError,
    block_on, for_each,
    memory::MemoryStore,
    read_batches,
    record::{
        AppliedRecord, BackfillRecord, InboxRecord, OutboxRecord, PipelineRecord, SlotRecord,
    },
};
use jiff::Timestamp;

use crate::{
    clock,
    declarations::FileDeclarations,
    exit::{Failure, INCOMPLETE, SUCCESS},
    output::Output,
    place::Place,
    project,
    project_summary::Project,
    writer::{self, Writing},
};

/// Rows asked for at once.
const PAGE: usize = 1_000;
/// How long others are waited for that leave requests at the same moment.
const INBOX_PATIENCE: Duration = Duration::from_secs(5);
/// More attempts at one slot than anybody makes.
const ATTEMPTS_MAX: usize = 10_000;

/// A request for the one who writes, under its key.
#[derive(Debug, Clone)]
pub(crate) struct PendingRequest {
    pub(crate) pipeline: PipelineId,
    pub(crate) key: String,
    pub(crate) record: InboxRecord,
}

/// A ledger to read, and to leave requests for the one who writes it.
#[derive(Debug)]
pub(crate) struct Ledger {
    store: Arc<dyn Store>,
    declarations: FileDeclarations,
    place: Place,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let help = if error.is_retryable { "Trying again may help." } else { "" };
        Self::failed(error.message, help)
    }
}

impl From<AnswerError> for Failure {
    fn from(AnswerError { code, message, hint }: AnswerError) -> Self {
        match code.status() {
            404 if code == ErrorCode::PipelineUnknown => Self::usage(message, hint),
            400 => Self::usage(message, hint),
            401..=499 => Self::refused(message, hint),
            _ => Self::failed(message, hint),
        }
    }
}

impl Ledger {
    /// Opens the ledger of a project.
    pub(crate) fn open(directory: &Path) -> Result<Self, Failure> {
        if !directory.is_dir() {
            return Err(Failure::failed(
                format!("there is no directory {}", directory.display()),
                "Name the project with `-C DIR`, or write a new one with `interlock init DIR`.",
            ));
        }
        let place = Place::of(directory)?;
        // An embedded one that is not there would be waited for; a server says so itself.
        if place.is_embedded() && !place.exists()? {
            return Err(place.nothing_recorded());
        }
        let store = place.open_to_look()?;
        let shared = Arc::clone(&store);
        let declarations = FileDeclarations::new(directory.to_owned(), place.clone(), shared);
        Ok(Self { store, declarations, place })
    }

    /// The same; where nothing was recorded yet, an empty one that is kept nowhere.
    pub(crate) fn open_or_empty(directory: &Path) -> Result<Self, Failure> {
        if !directory.is_dir() || Place::of(directory)?.exists()? {
            return Self::open(directory);
        }
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1, Arc::new(clock::now)));
        let (place, shared) = (Place::of(directory)?, Arc::clone(&store));
        let declarations = FileDeclarations::new(directory.to_owned(), place.clone(), shared);
        Ok(Self { store, declarations, place })
    }

    /// Answers questions as of now, as the API does.
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader { store: self.store(), declarations: &self.declarations, now: clock::now() }
    }

    /// What is declared, as far as the files are asked.
    pub(crate) fn declarations(&self) -> &FileDeclarations {
        &self.declarations
    }

    /// What lists say of the project's files.
    pub(crate) fn project(&self) -> &Project {
        self.declarations.project()
    }

    /// The store itself.
    pub(crate) fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// The store, to be kept.
    pub(crate) fn shared(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// Where it is.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Whether `interlock serve` runs on it now.
    pub(crate) fn is_served(&self) -> bool {
        self.place.is_served()
    }

    /// Who writes it now.
    pub(crate) fn writing(&self) -> Writing {
        writer::writing(&self.place.folder)
    }

    /// Why a pipeline's shard cannot be read, if it cannot.
    pub(crate) fn away(&self, pipeline: &PipelineId) -> Option<Away> {
        let shard = Shard::of(pipeline, self.store.shard_count());
        let away = self.store.left_out().iter().find(|away| away.shards.contains(&shard))?;
        // What belongs to no pipeline is in no shard.
        let is_there = *pipeline == PipelineId::system();
        (!is_there).then(|| Away { shards: vec![shard], why: away.why.clone() })
    }

    /// Says what a list lacks because it could not be reached, and answers with the code to end with. What is about one pipeline is whole,
    /// or failed.
    pub(crate) fn conclude(
        &self,
        only: Option<&PipelineId>,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        let lacks = self.lacks();
        if only.is_some() || lacks.is_empty() {
            return Ok(SUCCESS);
        }
        for which in lacks {
            writeln!(output.err, "part of the store cannot be reached: {which}")?;
        }
        Ok(INCOMPLETE)
    }

    /// What lists over all pipelines leave out because it cannot be reached, in sentences.
    pub(crate) fn lacks(&self) -> Vec<String> {
        let count = self.store.shard_count();
        self.store.left_out().iter().map(|away| away.sentence(count)).collect()
    }

    /// The id of a pipeline that the ledger or the files know.
    pub(crate) fn known(&self, directory: &Path, name: &str) -> Result<PipelineId, Failure> {
        if let Ok(id) = PipelineId::parse(name) {
            if let Some(away) = self.away(&id) {
                return Err(Failure::failed(
                    format!(
                        "`{name}` cannot be read now: {}",
                        away.sentence(self.store.shard_count())
                    ),
                    "It works again as soon as that server is back, or its replica has followed; other pipelines can be asked about.",
                ));
            }
            if self.pipeline(&id)?.is_some() {
                return Ok(id);
            }
        }
        let loaded = project::load(directory)?;
        project::pipeline(&loaded, name).map(|pipeline| pipeline.name.clone())
    }

    /// The same, or `_system`, which has incidents and events and no file.
    pub(crate) fn known_or_system(
        &self,
        directory: &Path,
        name: &str,
    ) -> Result<PipelineId, Failure> {
        let system = PipelineId::system();
        if name == system.as_str() { Ok(system) } else { self.known(directory, name) }
    }

    /// What stands in an interval, spans included, in order of time.
    pub(crate) fn rows(&self, query: &LedgerQuery) -> Result<Vec<LedgerRow>, Failure> {
        let mut query = LedgerQuery { limit: PAGE, ..query.clone() };
        if query.pipeline.is_none() && query.disposition.as_deref() == Some("open") {
            // Stores list them by shard and pipeline: in order of time each page would be a search among all.
            let times = query.from..query.until;
            let mut rows: Vec<_> = self.open_slots(None)?.into_values().flatten().collect();
            rows.retain(|row| times.contains(&row.nominal));
            rows.sort_by_cached_key(LedgerRow::place);
            return Ok(rows);
        }
        let mut rows = Vec::new();
        loop {
            let page = block_on(self.store.ledger(&query))?;
            query.after = page.items.last().map(LedgerRow::place);
            rows.extend(page.items);
            if !page.more {
                return Ok(rows);
            }
        }
    }

    /// What stands at an instant: the slots, then the spans that cover it, over which they win.
    pub(crate) fn rows_at(
        &self,
        pipeline: &PipelineId,
        at: Timestamp,
    ) -> Result<Vec<LedgerRow>, Failure> {
        Ok(block_on(self.reader().rows_at(pipeline, at))?)
    }

    /// Everything of a listing that is read shard by shard, page by page.
    fn of_shards<T>(
        &self,
        page: impl Fn(Shard, Option<&T>) -> Result<Page<T>, StoreError>,
    ) -> Result<Vec<T>, Failure> {
        let count = self.store.shard_count();
        let mut all = Vec::new();
        for shard in (0..count).map(Shard) {
            all.extend(Self::of_shard(shard, &page)?);
        }
        Ok(all)
    }

    fn of_shard<T>(
        shard: Shard,
        page: impl Fn(Shard, Option<&T>) -> Result<Page<T>, StoreError>,
    ) -> Result<Vec<T>, Failure> {
        let mut all = Vec::new();
        loop {
            let found = page(shard, all.last())?;
            all.extend(found.items);
            if !found.more {
                return Ok(all);
            }
        }
    }

    /// Who is there, and who holds what, where that can be told.
    pub(crate) fn roll(&self) -> Result<Option<Roll>, Failure> {
        Ok(block_on(self.store.roll())?)
    }

    /// The open slots of one pipeline or of all, by pipeline, in order of time.
    pub(crate) fn open_slots(
        &self,
        only: Option<&PipelineId>,
    ) -> Result<BTreeMap<PipelineId, Vec<LedgerRow>>, Failure> {
        let rows = match only {
            Some(only) => self.rows(&open_of(only))?,
            None => self.of_shards(|shard, last: Option<&LedgerRow>| {
                let after =
                    last.map(|row| (row.pipeline.clone(), row.nominal, row.schedule.clone()));
                block_on(self.store.open_slots(shard, after.as_ref(), PAGE))
            })?,
        };
        let mut all: BTreeMap<PipelineId, Vec<LedgerRow>> = BTreeMap::new();
        for row in rows {
            all.entry(row.pipeline.clone()).or_default().push(row);
        }
        Ok(all)
    }

    /// The open slots of one pipeline, in order of time.
    pub(crate) fn open_slots_of(
        &self,
        pipeline: &PipelineId,
    ) -> Result<Vec<(SlotKey, SlotRecord)>, Failure> {
        let slot = |row: LedgerRow| match row.entry {
            LedgerEntry::Slot(slot) => {
                let LedgerRow { pipeline, schedule, nominal, .. } = row;
                Some((SlotKey { pipeline, schedule, nominal }, Arc::unwrap_or_clone(slot)))
            }
            LedgerEntry::Span(_) => None,
        };
        Ok(self.rows(&open_of(pipeline))?.into_iter().filter_map(slot).collect())
    }

    /// Every incident of one pipeline or of all that is not resolved, newest first.
    pub(crate) fn open_incidents(
        &self,
        pipeline: Option<&PipelineId>,
    ) -> Result<Vec<StoredIncident>, Failure> {
        let Some(pipeline) = pipeline else {
            let mut open = self.of_shards(|shard, last: Option<&StoredIncident>| {
                let after = last.map(|(name, key, _)| (name.clone(), key.clone()));
                block_on(self.store.open_incidents(shard, after.as_ref(), PAGE))
            })?;
            open.sort_by_key(|(.., row)| Reverse(row.record.opened_at));
            return Ok(open);
        };
        let pipeline = Some(pipeline.clone());
        let mut query = IncidentQuery { pipeline, is_open: Some(true), after: None, limit: PAGE };
        let mut open = Vec::new();
        loop {
            let page = block_on(self.store.incidents_by(&query))?;
            query.after = page.items.last().map(IncidentPlace::of);
            open.extend(page.items);
            if !page.more {
                return Ok(open);
            }
        }
    }

    /// The newest of those that are resolved and meant, so many of them.
    pub(crate) fn resolved_incidents(
        &self,
        pipeline: Option<&PipelineId>,
        limit: usize,
        is_meant: impl Fn(&StoredIncident) -> bool,
    ) -> Result<Page<StoredIncident>, Failure> {
        let pipeline = pipeline.cloned();
        let limit_now = limit.saturating_add(1).min(PAGE);
        let mut query =
            IncidentQuery { pipeline, is_open: Some(false), after: None, limit: limit_now };
        let mut items = Vec::new();
        loop {
            let page = block_on(self.store.incidents_by(&query))?;
            query.after = page.items.last().map(IncidentPlace::of);
            items.extend(page.items.into_iter().filter(&is_meant));
            if items.len() > limit {
                items.truncate(limit);
                return Ok(Page { items, more: true });
            }
            if !page.more {
                return Ok(Page { items, more: false });
            }
        }
    }

    /// Incidents of one pipeline or of all: every open one, then the newest of the others, so many of them.
    pub(crate) fn incidents(
        &self,
        pipeline: Option<&PipelineId>,
        limit: usize,
    ) -> Result<Page<StoredIncident>, Failure> {
        let mut items = self.open_incidents(pipeline)?;
        let resolved = self.resolved_incidents(pipeline, limit, |_| true)?;
        items.extend(resolved.items);
        Ok(Page { items, more: resolved.more })
    }

    /// Rows of many pipelines, in the order asked.
    pub(crate) fn read_all(&self, asked: &[RowsQuery]) -> Result<Vec<FoundRows>, Failure> {
        let mut found = Vec::with_capacity(asked.len());
        for batch in read_batches(asked) {
            found.extend(block_on(self.store.read_many(batch))?);
        }
        Ok(found)
    }

    /// A notification on its way.
    pub(crate) fn outbox(
        &self,
        pipeline: &PipelineId,
        name: &str,
    ) -> Result<Option<OutboxRecord>, Failure> {
        match self.read(pipeline, Key::Outbox(name.to_owned()))? {
            Some(Record::Outbox(record)) => Ok(Some(Arc::unwrap_or_clone(record))),
            _ => Ok(None),
        }
    }

    /// Runs, newest first.
    pub(crate) fn runs(&self, query: &RunQuery) -> Result<Page<RunRow>, Failure> {
        Ok(block_on(self.store.runs(query))?)
    }

    /// The runs of a slot, in the order in which they were made.
    pub(crate) fn runs_of(
        &self,
        pipeline: &PipelineId,
        schedule: &ScheduleId,
        nominal: Timestamp,
    ) -> Result<Vec<RunRow>, Failure> {
        let query = RunQuery {
            pipeline: Some(pipeline.clone()),
            slot: Some((schedule.clone(), nominal)),
            limit: ATTEMPTS_MAX,
            ..RunQuery::default()
        };
        let mut runs = self.runs(&query)?.items;
        runs.sort_by_key(|run| (run.key.generation, run.key.attempt));
        Ok(runs)
    }

    /// A page of events after a number, oldest first.
    pub(crate) fn events(
        &self,
        pipeline: Option<&PipelineId>,
        after: u64,
    ) -> Result<Page<EventRow>, Failure> {
        Ok(block_on(self.store.events(pipeline, after, PAGE))?)
    }

    /// A number after which every event of a pipeline from an instant on is found.
    pub(crate) fn events_since(
        &self,
        pipeline: &PipelineId,
        since: Timestamp,
    ) -> Result<u64, Failure> {
        Ok(block_on(self.reader().events_since(pipeline, since))?)
    }

    /// A pipeline's row.
    pub(crate) fn pipeline(&self, name: &PipelineId) -> Result<Option<PipelineRecord>, Failure> {
        match self.read(name, Key::Pipeline)? {
            Some(Record::Pipeline(record)) => Ok(Some(Arc::unwrap_or_clone(record))),
            _ => Ok(None),
        }
    }

    /// A slot's row.
    pub(crate) fn slot(
        &self,
        pipeline: &PipelineId,
        schedule: &ScheduleId,
        nominal: Timestamp,
    ) -> Result<Option<SlotRecord>, Failure> {
        match self.read(pipeline, Key::Slot(schedule.clone(), nominal))? {
            Some(Record::Slot(record)) => Ok(Some(Arc::unwrap_or_clone(record))),
            _ => Ok(None),
        }
    }

    /// One backfill.
    pub(crate) fn backfill(
        &self,
        pipeline: &PipelineId,
        number: u64,
    ) -> Result<Option<BackfillRecord>, Failure> {
        match self.read(pipeline, Key::Backfill(number))? {
            Some(Record::Backfill(record)) => Ok(Some(Arc::unwrap_or_clone(record))),
            _ => Ok(None),
        }
    }

    /// The answer to a request.
    pub(crate) fn applied(
        &self,
        pipeline: &PipelineId,
        key: &str,
    ) -> Result<Option<AppliedRecord>, Failure> {
        match self.read(pipeline, Key::Applied(key.to_owned()))? {
            Some(Record::Applied(record)) => Ok(Some(Arc::unwrap_or_clone(record))),
            _ => Ok(None),
        }
    }

    /// Leaves many requests for the one who writes: beside a ledger that is a file by one write to the disk for each thousand, on a
    /// server side by side, which makes many durable together.
    pub(crate) fn post_all(&self, requests: &[PendingRequest]) -> Result<(), Failure> {
        if self.place.is_embedded() {
            for some in requests.chunks(PAGE) {
                let entry =
                    |it: &PendingRequest| (it.pipeline.clone(), it.key.clone(), it.record.clone());
                let entries: Vec<_> = some.iter().map(entry).collect();
                interlock_store_embedded::leave(
                    &self.place.folder,
                    &entries,
                    (clock::now(), INBOX_PATIENCE),
                )?;
            }
            return Ok(());
        }
        let all = requests.iter().collect();
        block_on(for_each(all, |it: &PendingRequest| {
            self.store.post(&it.pipeline, &it.key, &it.record)
        }))?;
        Ok(())
    }

    /// The answers to many requests, each if there is one by now.
    pub(crate) fn answers(
        &self,
        requests: &[PendingRequest],
    ) -> Result<Vec<Option<AppliedRecord>>, Failure> {
        let keys = |it: &PendingRequest| RowsQuery {
            pipeline: it.pipeline.clone(),
            keys: vec![Key::Applied(it.key.clone())],
        };
        let found = self.read_all(&requests.iter().map(keys).collect::<Vec<_>>())?;
        let answer = |row: Option<Row<Record>>| {
            let Record::Applied(record) = row?.record else { return None };
            Some(Arc::unwrap_or_clone(record))
        };
        Ok(found.into_iter().map(|rows| rows.into_iter().find_map(answer)).collect())
    }

    /// Leaves a request for the one who writes.
    pub(crate) fn post(
        &self,
        pipeline: &PipelineId,
        key: &str,
        record: &InboxRecord,
    ) -> Result<(), Failure> {
        Ok(block_on(self.store.post(pipeline, key, record))?)
    }

    fn read(&self, pipeline: &PipelineId, key: Key) -> Result<Option<Record>, Failure> {
        let rows = block_on(self.store.read(pipeline, &[key]))?;
        Ok(rows.into_iter().next().flatten().map(|row| row.record))
    }
}

/// Asks for the open slots of a pipeline.
fn open_of(pipeline: &PipelineId) -> LedgerQuery {
    LedgerQuery {
        pipeline: Some(pipeline.clone()),
        disposition: Some("open".to_owned()),
        ..LedgerQuery::everything(PAGE)
    }
}
