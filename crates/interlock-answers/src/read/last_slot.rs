//! The last slot of each of many pipelines. Of all that there are it takes a few reads for all of them; of those on a page a few for each, so
//! that a page costs the same however many others there are.

use std::collections::{BTreeMap, BTreeSet};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    AgendaRow, FoundRows, Key, LedgerEntry, LedgerQuery, LedgerRow, Record, Row, RowsQuery,
    RunQuery, RunRow, Store, StoreError, for_each, read_batches,
};
use jiff::{SignedDuration, Timestamp};

use super::Breadth;
use crate::Reader;

/// Rows asked for at once.
const PAGE: usize = 1_000;
/// So many pages are read for all before what is left is asked for one by one.
const PAGES_MAX: usize = 20;
/// So many pipelines are asked about one by one before anything is read for all: those that stand far behind the others.
const FEW: usize = 50;
/// How far back a slot is looked for of which nothing says when it was.
const LOOK_BACK: SignedDuration = SignedDuration::from_hours(24 * 32);
/// The longest period that a sensor's report is about: a day of 25 hours.
const PERIOD_MAX: SignedDuration = SignedDuration::from_hours(25);

/// So many runs of a pipeline are read first: only behind runs that a person asked for is its last slot's further back.
const RUNS_FIRST: usize = 4;

/// The last slots of pipelines, as far as they are known.
struct LastSlots<'a> {
    store: &'a dyn Store,
    now: Timestamp,
    breadth: Breadth,
    found: BTreeMap<PipelineId, LedgerRow>,
}

/// How far a pipeline is recorded: the latest watermark of those that start something.
struct Mark {
    pipeline: PipelineId,
    schedule: ScheduleId,
    at: Timestamp,
}

/// The instant that a row stands for here: a slot's, or a span's last.
pub(crate) fn slot_instant(row: &LedgerRow) -> Timestamp {
    match &row.entry {
        LedgerEntry::Slot(_) => row.nominal,
        LedgerEntry::Span(span) => span.last,
    }
}

/// Whether slots of it are owed or awaited: neither a stop nor what a person asked for.
pub(crate) fn is_scheduled(schedule: &ScheduleId) -> bool {
    !schedule.is_control() && schedule.as_str() != "manual"
}

/// What stands at the latest watermark, or what was opened or ran since; a stop is no work.
pub(crate) async fn last_slots(
    reader: &Reader<'_>,
    rows: &[AgendaRow],
    open: &BTreeMap<PipelineId, Vec<LedgerRow>>,
    breadth: Breadth,
) -> Result<BTreeMap<PipelineId, LedgerRow>, StoreError> {
    let (store, now) = (reader.store, reader.now);
    let mut last = LastSlots { store, now, breadth, found: BTreeMap::new() };
    last.take_all(open.values().flatten().cloned());
    let marks: Vec<Mark> = rows.iter().filter_map(Mark::of).collect();
    let marked = last.take_marked(&marks).await?;
    let bare = rows.iter().filter(|row| !marked.contains(&row.pipeline));
    let bare: BTreeSet<&PipelineId> = bare.map(|row| &row.pipeline).collect();
    last.take_what_ran(rows, &bare).await?;
    last.take_what_never_ran(rows, &bare).await?;
    Ok(last.found)
}

impl Mark {
    fn of(row: &AgendaRow) -> Option<Self> {
        let starts = row.watermarks.iter().filter(|(schedule, _)| !schedule.is_control());
        let (schedule, mark) = starts.max_by_key(|(_, mark)| mark.record.at)?;
        let (pipeline, schedule) = (row.pipeline.clone(), schedule.clone());
        Some(Self { pipeline, schedule, at: mark.record.at })
    }
}

impl LastSlots<'_> {
    /// Keeps the latest; of two at one instant the one that came last.
    fn take(&mut self, row: LedgerRow) {
        if !is_scheduled(&row.schedule) {
            return;
        }
        match self.found.get(&row.pipeline) {
            Some(known) if slot_instant(known) > slot_instant(&row) => {}
            _ => drop(self.found.insert(row.pipeline.clone(), row)),
        }
    }

    fn take_all(&mut self, rows: impl IntoIterator<Item = LedgerRow>) {
        for row in rows {
            self.take(row);
        }
    }

    /// What stands at the watermarks: a slot, else the span that covers it. Says of which pipelines there is anything.
    async fn take_marked(&mut self, marks: &[Mark]) -> Result<BTreeSet<PipelineId>, StoreError> {
        let asked = marks.iter().map(|mark| RowsQuery {
            pipeline: mark.pipeline.clone(),
            keys: vec![Key::Slot(mark.schedule.clone(), mark.at)],
        });
        let slots = self.read_all(&asked.collect::<Vec<_>>()).await?;
        let (mut marked, mut in_spans) = (BTreeSet::new(), Vec::new());
        for (mark, slot) in marks.iter().zip(slots) {
            match slot.into_iter().next().flatten() {
                Some(row) => {
                    marked.insert(mark.pipeline.clone());
                    self.take_slot((&mark.pipeline, &mark.schedule, mark.at), row);
                }
                None => in_spans.push(mark),
            }
        }
        in_spans.sort_by_key(|mark| mark.at);
        // One that stands far behind would make the time long in which everything is read.
        let (behind, others) = in_spans.split_at(in_spans.len().min(self.few()));
        let mut each = behind.to_vec();
        match others.first() {
            Some(first) if self.take_since(first.at, others, &mut marked).await? => {}
            _ => each.extend(others),
        }
        for row in self.at_each(&each).await? {
            marked.insert(row.pipeline.clone());
            self.take(row);
        }
        Ok(marked)
    }

    fn take_slot(
        &mut self,
        (pipeline, schedule, nominal): (&PipelineId, &ScheduleId, Timestamp),
        row: Row<Record>,
    ) {
        let Record::Slot(slot) = row.record else { return };
        let (pipeline, schedule) = (pipeline.clone(), schedule.clone());
        let entry = LedgerEntry::Slot(slot);
        self.take(LedgerRow { pipeline, schedule, nominal, entry, revision: row.revision });
    }

    /// What stands at marks, out of everything since an instant; nothing if that is more than is read at once.
    async fn take_since(
        &mut self,
        since: Timestamp,
        marks: &[&Mark],
        marked: &mut BTreeSet<PipelineId>,
    ) -> Result<bool, StoreError> {
        let marks: BTreeMap<_, _> = marks.iter().map(|mark| (&mark.pipeline, *mark)).collect();
        let pages = PAGES_MAX + marks.len() / PAGE;
        let mut query = LedgerQuery { from: since, ..LedgerQuery::everything(PAGE) };
        let mut found = Vec::new();
        for _ in 0..pages {
            let page = self.store.ledger(&query).await?;
            query.after = page.items.last().map(LedgerRow::place);
            let is_at = |row: &LedgerRow| {
                marks.get(&row.pipeline).is_some_and(|mark| {
                    row.schedule == mark.schedule
                        && row.nominal <= mark.at
                        && slot_instant(row) >= mark.at
                })
            };
            found.extend(page.items.into_iter().filter(is_at));
            if !page.more {
                marked.extend(found.iter().map(|row| row.pipeline.clone()));
                self.take_all(found);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The same, pipeline by pipeline.
    async fn at_each(&self, marks: &[&Mark]) -> Result<Vec<LedgerRow>, StoreError> {
        let store = self.store;
        let rows = for_each(marks.to_vec(), |mark: &Mark| async move {
            let until = mark.at.saturating_add(SignedDuration::from_millis(1)).unwrap_or(mark.at);
            let pipeline = Some(mark.pipeline.clone());
            let everything = LedgerQuery::everything(PAGE);
            let query = LedgerQuery { pipeline, from: mark.at, until, ..everything };
            let mut rows = store.ledger(&query).await?.items.into_iter();
            Ok(rows.rfind(|row| row.schedule == mark.schedule))
        })
        .await?;
        Ok(rows.into_iter().flatten().collect())
    }

    /// The slots of what ran last. What is recorded up to its watermark is known, so only those that may have something after it are asked
    /// about: of the newest runs of all, then one by one.
    async fn take_what_ran(
        &mut self,
        rows: &[AgendaRow],
        bare: &BTreeSet<&PipelineId>,
    ) -> Result<(), StoreError> {
        // A run of a slot after its watermark was made after that, and none before its pipeline was first seen.
        let known_to = |row: &AgendaRow| match Mark::of(row) {
            Some(mark) if !bare.contains(&row.pipeline) => mark.at,
            _ => row.record.record.first_seen,
        };
        let since: BTreeMap<&PipelineId, Timestamp> =
            rows.iter().map(|row| (&row.pipeline, known_to(row))).collect();
        let mut asked = since.clone();
        let mut query = RunQuery { limit: PAGE, ..RunQuery::default() };
        let mut newest: Vec<RunRow> = Vec::new();
        let pages = if rows.len() > self.few() { PAGES_MAX } else { 0 };
        for _ in 0..pages {
            let page = self.store.runs(&query).await?;
            let oldest = page.items.last().map_or(Timestamp::MIN, |run| run.record.created_at);
            query.after = page.items.last().map(RunRow::place);
            let is_first = |run: &RunRow| {
                is_scheduled(&run.key.schedule) && asked.remove(&run.pipeline).is_some()
            };
            newest.extend(page.items.into_iter().filter(is_first));
            asked.retain(|_, since| page.more && *since < oldest);
            if asked.is_empty() {
                break;
            }
        }
        let asked: Vec<&PipelineId> = asked.into_keys().collect();
        let store = self.store;
        let each = for_each(asked, |name: &PipelineId| newest_scheduled(store, name)).await?;
        newest.extend(each.into_iter().flatten());
        newest.retain(|run| {
            bare.contains(&run.pipeline)
                || since.get(&run.pipeline).is_some_and(|since| run.key.nominal > *since)
        });
        self.take_slots_of(&newest).await
    }

    async fn take_slots_of(&mut self, runs: &[RunRow]) -> Result<(), StoreError> {
        let asked = runs.iter().map(|run| RowsQuery {
            pipeline: run.pipeline.clone(),
            keys: vec![Key::Slot(run.key.schedule.clone(), run.key.nominal)],
        });
        let slots = self.read_all(&asked.collect::<Vec<_>>()).await?;
        for (run, slot) in runs.iter().zip(slots) {
            if let Some(row) = slot.into_iter().next().flatten() {
                self.take_slot((&run.pipeline, &run.key.schedule, run.key.nominal), row);
            }
        }
        Ok(())
    }

    /// The last slot of a pipeline at whose watermark nothing stands: one that never ran, such as one whose sensor did not pass. What was
    /// first seen at its watermark has none.
    async fn take_what_never_ran(
        &mut self,
        rows: &[AgendaRow],
        bare: &BTreeSet<&PipelineId>,
    ) -> Result<(), StoreError> {
        let month = self.now.saturating_sub(LOOK_BACK).unwrap_or(Timestamp::MIN);
        let mut asked = Vec::new();
        for row in rows.iter().filter(|row| bare.contains(&row.pipeline)) {
            let since = self.found.get(&row.pipeline).map(slot_instant);
            let first_seen = row.record.record.first_seen;
            let is_new = Mark::of(row).is_some_and(|mark| mark.at <= first_seen);
            // The first report of a sensor is about a period that may have begun before.
            let before = first_seen.saturating_sub(PERIOD_MAX).unwrap_or(Timestamp::MIN);
            let first = if is_new { before.max(month) } else { month };
            asked.push((&row.pipeline, since.unwrap_or(first)));
        }
        // Most of them were first seen a moment ago: of all, nothing is recorded since.
        asked.sort_by_key(|(_, from)| *from);
        let Some((_, first)) = asked.first().copied() else { return Ok(()) };
        let names: BTreeSet<&PipelineId> = asked.iter().map(|(name, _)| *name).collect();
        if asked.len() > self.few() && self.take_all_since(first, &names).await? {
            return Ok(());
        }
        let store = self.store;
        let found = for_each(asked, |(name, from)| last_since(store, name, from)).await?;
        self.take_all(found.into_iter().flatten());
        Ok(())
    }

    /// What some pipelines have since an instant, out of everything; nothing if that is more than is read at once.
    async fn take_all_since(
        &mut self,
        since: Timestamp,
        names: &BTreeSet<&PipelineId>,
    ) -> Result<bool, StoreError> {
        let mut query = LedgerQuery { from: since, ..LedgerQuery::everything(PAGE) };
        let mut found = Vec::new();
        for _ in 0..PAGES_MAX {
            let page = self.store.ledger(&query).await?;
            query.after = page.items.last().map(LedgerRow::place);
            found.extend(page.items.into_iter().filter(|row| names.contains(&row.pipeline)));
            if !page.more {
                self.take_all(found);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Up to how many pipelines are asked about one by one.
    fn few(&self) -> usize {
        match self.breadth {
            Breadth::Everything => FEW,
            Breadth::Page => usize::MAX,
        }
    }

    /// Rows of many pipelines, in the order asked.
    async fn read_all(&self, asked: &[RowsQuery]) -> Result<Vec<FoundRows>, StoreError> {
        let mut found = Vec::with_capacity(asked.len());
        for batch in read_batches(asked) {
            found.extend(self.store.read_many(batch).await?);
        }
        Ok(found)
    }
}

/// The newest run of a pipeline that its schedule asked for. Behind those that a person asked for just now.
async fn newest_scheduled(
    store: &dyn Store,
    name: &PipelineId,
) -> Result<Option<RunRow>, StoreError> {
    for limit in [RUNS_FIRST, FEW] {
        let query = RunQuery { pipeline: Some(name.clone()), limit, ..RunQuery::default() };
        let page = store.runs(&query).await?;
        let mut runs = page.items.into_iter();
        let found = runs.find(|run| is_scheduled(&run.key.schedule));
        if found.is_some() || !page.more {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The last row of a pipeline since an instant.
async fn last_since(
    store: &dyn Store,
    name: &PipelineId,
    from: Timestamp,
) -> Result<Option<LedgerRow>, StoreError> {
    let pipeline = Some(name.clone());
    let mut query = LedgerQuery { pipeline, from, ..LedgerQuery::everything(PAGE) };
    let mut last: Option<LedgerRow> = None;
    loop {
        let page = store.ledger(&query).await?;
        query.after = page.items.last().map(LedgerRow::place);
        let rows = page.items.into_iter().filter(|row| is_scheduled(&row.schedule));
        last = last.into_iter().chain(rows).max_by_key(slot_instant);
        if !page.more {
            return Ok(last);
        }
    }
}
