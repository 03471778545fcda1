//! How the tally is kept: counted once, then by the store's events, and by a recount that goes round in a quarter of an hour.
//!
//! An event is only a hint: what it is about is read again. So a hint that is lost, comes twice or comes late does no harm that lasts: the
//! recount reads every quarter of an hour of the whole fleet again, one after the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, mem,
    sync::Arc,
};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    Key, Record, RowsQuery, Shard, Store, StoreError, for_each, read_batches,
    record::PipelineRecord,
};
use jiff::{SignedDuration, Timestamp};

use super::{
    cells::{PackedCells, Quarter},
    details::{UnknownPast, read_past},
    dirty::{DirtyPipeline, END, everything, read_fresh, read_range, take_fresh, take_seen},
    read::{
        read_declared, read_incidents, read_ledger, read_ledger_carefully, read_open,
        read_revisions,
    },
    seen::{QuarterRange, SeenRows},
    table::{FleetTable, FleetTally},
    tallied::{DeclarationParts, SharedParts, TalliedDeclaration, TalliedPipeline, first_kept},
};
use crate::Declarations;

/// Events that are read at once.
const EVENTS: usize = 1_000;
/// Pages of events after which others get a turn: what is left comes the next time round.
const PAGES_AT_ONCE: usize = 20;
/// Pipelines that are read again at once.
const PIPELINES_AT_ONCE: usize = 200;
/// Who has not followed for so long begins anew.
const BEHIND_MAX: SignedDuration = SignedDuration::from_mins(10);
/// A clock that went back further is another clock.
const BACK_MAX: SignedDuration = SignedDuration::from_mins(1);
/// One step of the recount: all of them take 13 minutes.
const RECOUNT_EVERY: SignedDuration = SignedDuration::from_secs(4);
/// Pipelines whose past is read at once.
const PAST_AT_ONCE: usize = 64;
/// Quarters that are counted together when all are counted.
const CHUNK: i64 = 24;

/// Keeps a tally up to date.
pub struct FleetFollower {
    tally: FleetTally,
    store: Arc<dyn Store>,
    declarations: Arc<dyn Declarations>,
    shared: SharedParts,
    /// The last event that is counted; none before the first count.
    read_to: Option<u64>,
    /// When that was.
    followed_at: Timestamp,
    recount: RecountPlace,
}

/// Where the recount is.
#[derive(Debug, Clone, Copy)]
struct RecountPlace {
    next: Quarter,
    at: Timestamp,
}

impl fmt::Debug for FleetFollower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetFollower").field("read_to", &self.read_to).finish_non_exhaustive()
    }
}

impl FleetFollower {
    /// Keeps a tally of a store, once it comes round.
    pub fn new(
        tally: FleetTally,
        store: Arc<dyn Store>,
        declarations: Arc<dyn Declarations>,
    ) -> Self {
        let (shared, epoch) = (SharedParts::default(), Timestamp::UNIX_EPOCH);
        let recount = RecountPlace { next: Quarter(0), at: epoch };
        Self { tally, store, declarations, shared, read_to: None, followed_at: epoch, recount }
    }

    /// Brings the tally up to now, and does a step of the recount if it is time. To be called every second or so.
    pub async fn come_round(&mut self) -> Result<(), StoreError> {
        let outcome = self.follow().await;
        let problem = outcome.as_ref().err().map(ToString::to_string);
        self.tally.write().problem = problem;
        outcome
    }

    /// Counts everything at the next round, whatever is counted already.
    pub fn begin_anew(&mut self) {
        self.read_to = None;
    }

    async fn follow(&mut self) -> Result<(), StoreError> {
        let now = self.store.now().await?;
        let away = now.duration_since(self.followed_at);
        if away > BEHIND_MAX || away < -BACK_MAX {
            // What happened meanwhile may be trimmed already; or the clock is another.
            self.read_to = None;
        }
        let Some(read_to) = self.read_to else { return self.count_all(now).await };
        self.read_to = Some(self.take_events(read_to, now).await?);
        self.followed_at = now;
        self.tally.write().as_of = Some(now);
        if now.duration_since(self.recount.at) >= RECOUNT_EVERY {
            self.recount_step(now).await?;
        }
        self.read_wanted(now).await
    }

    /// Reads some of the past that was asked for and that there was no time for.
    async fn read_wanted(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let wanted = self.tally.write().take_wanted(PAST_AT_ONCE, now);
        let asked: Vec<_> = wanted.iter().map(|past| (past.name.clone(), past.from)).collect();
        let read = read_past(&*self.store, wanted, &|| true).await?;
        let mut table = self.tally.write();
        for (name, history) in read {
            table.keep_history(&name, history);
        }
        for (name, from) in asked {
            let is_known = |it: &TalliedPipeline| UnknownPast::of(&name, it, from, now).is_none();
            if !table.pipelines.get(&name).is_none_or(is_known) {
                table.want(&name, from);
            }
        }
        Ok(())
    }

    /// Whether something waits to be read: then it is to come round again at once.
    pub fn is_wanted(&self) -> bool {
        !self.tally.read().wanted.is_empty()
    }

    /// Counts everything: what requests see is replaced at once, when it is done.
    async fn count_all(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let store = Arc::clone(&self.store);
        // What happens while it is counted is followed afterwards.
        let read_to = store.mark().await?.number;
        let mut table = FleetTable::default();
        self.declare_all(&mut table).await?;
        let mut from = first_kept(now);
        let last = Quarter::of(now).after(1);
        let mut ranges = Vec::new();
        while from < last {
            let until = from.after(CHUNK).min(last);
            ranges.push(QuarterRange { from, until });
            from = until;
        }
        ranges.push(QuarterRange { from, until: END });
        let names: Vec<PipelineId> = table.pipelines.keys().cloned().collect();
        let (store, names) = (&*store, &names);
        let counted =
            for_each(
                ranges,
                |range| async move { Ok((range, read_range(store, names, range).await?)) },
            );
        let mut cells: BTreeMap<PipelineId, Vec<_>> = BTreeMap::new();
        for (range, seen) in counted.await? {
            for (name, rows) in seen {
                let Some(pipeline) = table.pipelines.get_mut(&name) else { continue };
                // Packed once at the end: what is counted here is set aside.
                pipeline.take(range, &rows, now);
                let packed = mem::take(&mut pipeline.cells);
                cells.entry(name).or_default().extend(packed.counted());
            }
        }
        for (name, counted) in cells {
            if let Some(pipeline) = table.pipelines.get_mut(&name) {
                pipeline.cells = PackedCells::pack(first_kept(now), counted);
            }
        }
        take_open_of_all(&mut table, read_open(store, names.clone()).await?);
        take_incidents_of_all(&mut table, read_incidents(store, names.clone()).await?);
        table.as_of = Some(now);
        *self.tally.write() = table;
        self.recount = RecountPlace { next: first_kept(now), at: now };
        (self.read_to, self.followed_at) = (Some(read_to), now);
        Ok(())
    }

    /// Reads what is declared of all pipelines.
    async fn declare_all(&mut self, table: &mut FleetTable) -> Result<(), StoreError> {
        let store = Arc::clone(&self.store);
        let mut listed = BTreeSet::new();
        for shard in (0..store.shard_count()).map(Shard) {
            match read_declared(&*store, shard).await {
                Ok(rows) => {
                    for row in rows {
                        let marks = |id: &ScheduleId| Some(row.watermarks.get(id)?.record.at);
                        let record = (&row.record.record, row.record.revision);
                        self.declare(table, &row.pipeline, record, marks);
                        listed.insert(row.pipeline);
                    }
                }
                Err(error) if error.is_retryable => return Err(error),
                // One of them cannot be read: each by itself, then.
                Err(_unreadable) => {
                    let revisions = read_revisions(&*store, shard).await?;
                    let names: Vec<_> = revisions.into_iter().map(|(name, _)| name).collect();
                    listed.extend(names.iter().cloned());
                    for chunk in names.chunks(PIPELINES_AT_ONCE) {
                        self.declare_again(table, chunk).await?;
                    }
                }
            }
        }
        table.pipelines.retain(|name, _| listed.contains(name));
        table.unreadable.retain(|name, _| listed.contains(name));
        self.shared.sweep();
        Ok(())
    }

    /// Takes over a pipeline's row. Says whether its slots have to be counted anew.
    fn declare(
        &mut self,
        table: &mut FleetTable,
        name: &PipelineId,
        row: (&PipelineRecord, u64),
        watermark: impl Fn(&ScheduleId) -> Option<Timestamp>,
    ) -> bool {
        if *name == PipelineId::system() {
            return false;
        }
        if let Some(known) = table.pipelines.get_mut(name)
            && known.declared.revision == row.1
        {
            known.recorded_to(watermark);
            return false;
        }
        let zones = |zone: &str| self.declarations.zone(zone);
        let mut parts = DeclarationParts { shared: &mut self.shared, zones: &zones };
        let Some((declared, problem)) = parts.declaration(row, watermark) else {
            table.pipelines.remove(name);
            table.unreadable.remove(name);
            return false;
        };
        match problem {
            Some(problem) => drop(table.unreadable.insert(name.clone(), problem)),
            None => drop(table.unreadable.remove(name)),
        }
        if let Some(known) = table.pipelines.get_mut(name) {
            let is_other = starts_differ(&known.declared, &declared);
            known.declare(declared);
            return is_other;
        }
        table.pipelines.insert(name.clone(), TalliedPipeline::new(declared));
        true
    }

    /// Reads some pipelines' rows again. Says which of them have to be counted anew.
    async fn declare_again(
        &mut self,
        table: &mut FleetTable,
        names: &[PipelineId],
    ) -> Result<BTreeSet<PipelineId>, StoreError> {
        let rows = self.read_rows(names).await?;
        Ok(self.take_rows(table, rows))
    }

    /// The rows of some pipelines with their watermarks; a sentence for one that cannot be read.
    async fn read_rows(
        &self,
        names: &[PipelineId],
    ) -> Result<Vec<(PipelineId, Result<Option<DeclaredRow>, String>)>, StoreError> {
        let store = &*self.store;
        let rows: Vec<_> = names.iter().map(|name| query(name, vec![Key::Pipeline])).collect();
        let records = read_each(store, &rows).await?;
        let mut found = Vec::with_capacity(names.len());
        let mut marks = Vec::new();
        for (name, record) in names.iter().zip(records) {
            let row = record.map(|rows| {
                let row = rows.into_iter().next().flatten()?;
                let Record::Pipeline(record) = row.record else { return None };
                let record = Arc::unwrap_or_clone(record);
                marks.push(query(name, watermark_keys(&record)));
                Some(DeclaredRow { record, revision: row.revision, watermarks: BTreeMap::new() })
            });
            found.push((name.clone(), row));
        }
        let mut watermarks = marks.iter().zip(read_each(store, &marks).await?);
        for (_, row) in &mut found {
            let Ok(Some(row)) = row else { continue };
            let Some((asked, Ok(found))) = watermarks.next() else { continue };
            for (key, found) in asked.keys.iter().zip(found) {
                if let (Key::Watermark(id), Some(Record::Watermark(mark))) =
                    (key, found.map(|row| row.record))
                {
                    row.watermarks.insert(id.clone(), mark.at);
                }
            }
        }
        Ok(found)
    }

    /// Reads events, and again what they are about. Says how far it came.
    async fn take_events(&mut self, after: u64, now: Timestamp) -> Result<u64, StoreError> {
        let mut read_to = after;
        for _ in 0..PAGES_AT_ONCE {
            let page = self.store.events(None, read_to, EVENTS).await?;
            let last = page.items.last().map_or(read_to, |event| event.number);
            let mut dirty: BTreeMap<PipelineId, DirtyPipeline> = BTreeMap::new();
            for event in page.items {
                if event.pipeline != PipelineId::system() {
                    dirty.entry(event.pipeline.clone()).or_default().take(&event, now);
                }
            }
            self.read_again(dirty, now).await?;
            read_to = last;
            if !page.more {
                break;
            }
        }
        Ok(read_to)
    }

    async fn read_again(
        &mut self,
        dirty: BTreeMap<PipelineId, DirtyPipeline>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut dirty: Vec<_> = dirty.into_iter().collect();
        while !dirty.is_empty() {
            let rest = dirty.split_off(dirty.len().min(PIPELINES_AT_ONCE));
            let mut some = mem::replace(&mut dirty, rest);
            let names: Vec<_> = some.iter().map(|(name, _)| name.clone()).collect();
            let tally = self.tally.clone();
            let rows = self.read_rows(&names).await?;
            let anew = {
                let mut table = tally.write();
                self.take_rows(&mut table, rows)
            };
            {
                let table = tally.read();
                some.retain_mut(|(name, dirty)| {
                    let Some(pipeline) = table.pipelines.get(name) else { return false };
                    dirty.is_whole |= anew.contains(name);
                    dirty.has_incidents |= !pipeline.incidents.is_empty();
                    // What is open changes at times without an event of its own.
                    let base = first_kept(now);
                    let open = pipeline.open.iter().map(|slot| Quarter::of(slot.at));
                    dirty.quarters.extend(open.filter(|quarter| *quarter >= base));
                    true
                });
            }
            let store = &*self.store;
            let fresh = for_each(some, |(name, dirty)| read_fresh(store, name, dirty, now)).await?;
            let mut lost = Vec::new();
            {
                let mut table = tally.write();
                for fresh in fresh {
                    lost.extend(take_fresh(&mut table, fresh, now));
                }
            }
            for name in lost {
                let range = everything(now);
                let seen = read_range(store, std::slice::from_ref(&name), range).await?;
                take_seen(&mut tally.write(), range, &seen, now, &name);
            }
        }
        Ok(())
    }

    fn take_rows(
        &mut self,
        table: &mut FleetTable,
        rows: Vec<(PipelineId, Result<Option<DeclaredRow>, String>)>,
    ) -> BTreeSet<PipelineId> {
        let mut anew = BTreeSet::new();
        for (name, row) in rows {
            match row {
                Ok(Some(row)) => {
                    let marks = |id: &ScheduleId| row.watermarks.get(id).copied();
                    if self.declare(table, &name, (&row.record, row.revision), marks) {
                        anew.insert(name);
                    }
                }
                Ok(None) => drop(table.pipelines.remove(&name)),
                Err(problem) => drop(table.unreadable.insert(name, problem)),
            }
        }
        anew
    }

    /// Counts one quarter of the whole fleet anew; after the last one what is declared, open and wrong.
    async fn recount_step(&mut self, now: Timestamp) -> Result<(), StoreError> {
        if self.store.mark().await?.number < self.read_to.unwrap_or_default() {
            // The store has forgotten what it acknowledged.
            self.read_to = None;
            return Ok(());
        }
        self.recount.at = now;
        let from = self.recount.next.max(first_kept(now));
        let is_last = from > Quarter::of(now);
        let until = if is_last { END } else { from.after(1) };
        let range = QuarterRange { from, until };
        let seen = match read_ledger(&*self.store, None, range).await {
            Err(error) if !error.is_retryable => {
                let names = self.tally.read().pipelines.keys().cloned().collect();
                read_ledger_carefully(&*self.store, names, range).await?
            }
            seen => seen?,
        };
        {
            let mut table = self.tally.write();
            let empty = SeenRows::default();
            for (name, pipeline) in &mut table.pipelines {
                match seen.get(name) {
                    Some(rows) => pipeline.take(range, rows, now),
                    None if pipeline.has_any(range) => pipeline.take(range, &empty, now),
                    None => {}
                }
            }
        }
        self.recount.next = until;
        if is_last {
            self.recount.next = first_kept(now);
            self.recount_rest(now).await?;
        }
        Ok(())
    }

    /// Looks again which pipelines there are, what is open and what is wrong. Rows are read of those that have changed, and of those that
    /// look as if something were due and not recorded.
    async fn recount_rest(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let store = Arc::clone(&self.store);
        let names: Vec<PipelineId> = self.tally.read().pipelines.keys().cloned().collect();
        let open = read_open(&*store, names.clone()).await?;
        let incidents = read_incidents(&*store, names).await?;
        let (mut listed, mut stale) = (BTreeSet::new(), Vec::new());
        for shard in (0..store.shard_count()).map(Shard) {
            let revisions = read_revisions(&*store, shard).await?;
            let table = self.tally.read();
            for (name, revision) in revisions {
                let known = table.pipelines.get(&name);
                let is_known = |it: &TalliedPipeline| {
                    it.declared.revision == revision && !it.declared.owes(now)
                };
                if !known.is_some_and(is_known) {
                    stale.push(name.clone());
                }
                listed.insert(name);
            }
        }
        for chunk in stale.chunks(PIPELINES_AT_ONCE) {
            let rows = self.read_rows(chunk).await?;
            let tally = self.tally.clone();
            self.take_rows(&mut tally.write(), rows);
        }
        let mut table = self.tally.write();
        table.pipelines.retain(|name, _| listed.contains(name));
        table.unreadable.retain(|name, _| listed.contains(name));
        take_open_of_all(&mut table, open);
        take_incidents_of_all(&mut table, incidents);
        self.shared.sweep();
        Ok(())
    }
}

/// A pipeline's row with its watermarks.
struct DeclaredRow {
    record: PipelineRecord,
    revision: u64,
    watermarks: BTreeMap<ScheduleId, Timestamp>,
}

impl TalliedPipeline {
    /// Whether anything is counted in a range.
    fn has_any(&self, range: QuarterRange) -> bool {
        self.cells.touches(range.from, range.until)
            || self.ahead.iter().any(|slot| range.has(slot.at))
            || self.open.iter().any(|slot| range.has(slot.at))
            || self.last.is_some_and(|last| range.has(last.at))
            || self.problem.as_ref().is_some_and(|it| range.from <= it.at && it.at < range.until)
    }
}

fn starts_differ(one: &TalliedDeclaration, other: &TalliedDeclaration) -> bool {
    let starts = |declared: &TalliedDeclaration| {
        declared.schedules.iter().map(|it| Arc::clone(&it.start)).collect::<Vec<_>>()
    };
    one.revision != other.revision && starts(one) != starts(other)
}

fn take_open_of_all(
    table: &mut FleetTable,
    mut open: BTreeMap<PipelineId, Vec<super::seen::OpenSlot>>,
) {
    for (name, pipeline) in &mut table.pipelines {
        pipeline.take_open(open.remove(name).unwrap_or_default());
    }
}

fn take_incidents_of_all(
    table: &mut FleetTable,
    mut incidents: BTreeMap<PipelineId, Vec<super::tallied::TalliedIncident>>,
) {
    for (name, pipeline) in &mut table.pipelines {
        pipeline.incidents = incidents.remove(name).unwrap_or_default().into();
    }
}

fn query(name: &PipelineId, keys: Vec<Key>) -> RowsQuery {
    RowsQuery { pipeline: name.clone(), keys }
}

fn watermark_keys(record: &PipelineRecord) -> Vec<Key> {
    let starts = record.agenda.iter().flat_map(|agenda| agenda.starts.iter());
    let ids = starts.filter_map(|start| ScheduleId::any(&start.schedule.id).ok());
    ids.map(Key::Watermark).collect()
}

/// Rows of many pipelines; of those that cannot be read a sentence each.
async fn read_each(
    store: &dyn Store,
    asked: &[RowsQuery],
) -> Result<Vec<Result<interlock_store::FoundRows, String>>, StoreError> {
    let mut found = Vec::with_capacity(asked.len());
    for batch in read_batches(asked) {
        match store.read_many(batch).await {
            Ok(rows) => found.extend(rows.into_iter().map(Ok)),
            Err(error) if error.is_retryable => return Err(error),
            Err(_unreadable) => {
                for query in batch {
                    match store.read(&query.pipeline, &query.keys).await {
                        Ok(rows) => found.push(Ok(rows)),
                        Err(error) if error.is_retryable => return Err(error),
                        Err(error) => found.push(Err(error.message)),
                    }
                }
            }
        }
    }
    Ok(found)
}
