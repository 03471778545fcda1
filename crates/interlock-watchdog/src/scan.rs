//! The scanner: whether what must always be true is true of the ledger in production.
//!
//! A page of pipelines at a time. For each schedule its last slots up to the watermark are enumerated again and looked for
//! (S3, and that a watermark passes nothing, S4); the watermark is compared with the clock (frozen) and with the last
//! rotation (S4); open slots with their `closes_at` (S19). The judging is pure; `ADR 17` says what it cannot see.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use interlock_core::{
    agenda::{Agenda, Work},
    id::{PipelineId, ScheduleId, fnv1a},
    pipeline::StartSchedule,
    schedule::Recurrence,
};
use interlock_store::{
    AgendaRow, Key, LedgerEntry, LedgerQuery, LedgerRow, Record, Row, Shard, Store, StoreError,
    record::{PipelineRecord, Shared, version_number},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    load::{self, OpenPlace},
    owed::{Expecting, plus},
    seam::ZoneBook,
};

/// So many of a schedule's last slots are looked for.
const SLOTS: usize = 20;
/// Rows that are read for one schedule; what lies after them is not judged.
const ROWS_MAX: usize = 500;
/// An edit is in force a little later than it says: reading many files takes time.
const EDIT_TAKES: SignedDuration = SignedDuration::from_mins(10);
/// A schedule that is so far behind stands still, and a slot that is open so long after its end is forgotten.
const BEHIND_MAX: SignedDuration = SignedDuration::from_mins(10);

/// Something that must always be true, and is not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Of which pipeline.
    pub pipeline: PipelineId,
    /// What: `S3`, `S4`, `S19` or `frozen`.
    pub invariant: &'static str,
    /// Of which schedule.
    pub schedule: ScheduleId,
    /// For people.
    pub says: String,
}

impl Violation {
    /// What an incident about it is about.
    pub fn thing(&self) -> String {
        format!("{} {}/{}", self.invariant, self.pipeline, self.schedule)
    }

    /// Whether it is over when it is no longer seen. A slot that was lost stays lost.
    pub fn can_pass(&self) -> bool {
        matches!(self.invariant, "S19" | "frozen")
    }
}

/// What is looked at of one schedule.
struct Section<'a> {
    pipeline: &'a PipelineId,
    agenda: &'a Agenda,
    start: &'a Arc<StartSchedule>,
    watermark: Timestamp,
    /// Slots up to this were enumerated by another version, or are nobody's.
    from: Timestamp,
}

/// Goes through the ledger, page by page.
pub struct Scanner {
    zones: ZoneBook,
    shared: Shared,
    /// Where it is.
    pipeline: Option<PipelineId>,
    open: Option<OpenPlace>,
    /// The watermarks of the last rotation, by a hash of whose they are.
    marks: BTreeMap<u64, Timestamp>,
}

impl std::fmt::Debug for Scanner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scanner").field("pipeline", &self.pipeline).finish_non_exhaustive()
    }
}

/// A page that was looked at.
#[derive(Debug, Default)]
pub struct Scanned {
    /// The pipelines that were.
    pub pipelines: BTreeSet<PipelineId>,
    /// What is wrong with them.
    pub violations: BTreeSet<Violation>,
    /// Whether the rotation is at its end.
    pub is_last: bool,
}

impl Scanner {
    /// At the beginning of a rotation.
    pub fn new(zones: ZoneBook) -> Self {
        let (shared, marks) = (Shared::default(), BTreeMap::new());
        Self { zones, shared, pipeline: None, open: None, marks }
    }

    /// Looks at the next pipelines. What looks wrong is read again: somebody may have been writing.
    pub async fn page(
        &mut self,
        store: &dyn Store,
        (shard, limit): (Shard, usize),
        now: Timestamp,
    ) -> Result<Scanned, StoreError> {
        let page = store.agenda(shard, self.pipeline.as_ref(), limit).await?;
        let mut scanned = Scanned::default();
        for row in &page.items {
            let first = self.look(store, row, now).await?;
            scanned.pipelines.insert(row.pipeline.clone());
            if !first.is_empty() {
                let again = self.look_again(store, row, now).await?;
                scanned.violations.extend(first.intersection(&again).cloned());
            }
        }
        self.pipeline = page.items.last().filter(|_| page.more).map(|row| row.pipeline.clone());
        let (rows, next) = load::open_slots(store, shard, (self.open.as_ref(), limit)).await?;
        for row in rows {
            scanned.violations.extend(left_open(&row, now));
            scanned.pipelines.insert(row.pipeline);
        }
        self.open = next;
        scanned.is_last = self.pipeline.is_none() && self.open.is_none();
        Ok(scanned)
    }

    async fn look_again(
        &mut self,
        store: &dyn Store,
        row: &AgendaRow,
        now: Timestamp,
    ) -> Result<BTreeSet<Violation>, StoreError> {
        let schedules: Vec<_> = row.watermarks.keys().cloned().collect();
        let mut keys = vec![Key::Pipeline];
        keys.extend(schedules.iter().cloned().map(Key::Watermark));
        let mut rows = store.read(&row.pipeline, &keys).await?.into_iter();
        let mut fresh = AgendaRow { watermarks: BTreeMap::new(), ..row.clone() };
        if let Some(Some(Row { record: Record::Pipeline(record), revision })) = rows.next() {
            fresh.record = Row { record, revision };
        }
        for (schedule, found) in schedules.into_iter().zip(rows) {
            if let Some(Row { record: Record::Watermark(record), revision }) = found {
                fresh.watermarks.insert(schedule, Row { record, revision });
            }
        }
        self.look(store, &fresh, now).await
    }

    async fn look(
        &mut self,
        store: &dyn Store,
        row: &AgendaRow,
        now: Timestamp,
    ) -> Result<BTreeSet<Violation>, StoreError> {
        let mut found = BTreeSet::new();
        let record = &row.record.record;
        let zones = |name: &str| (self.zones)(name);
        let agenda = record.agenda.as_ref().map(|it| it.to_core(&mut self.shared, &zones));
        // One that cannot be read is set aside by the engine, which says so.
        let Some(Ok(agenda)) = agenda else { return Ok(found) };
        if record.retired_at.is_some() || agenda.work == Work::Dormant {
            return Ok(found);
        }
        let since = in_force_since(store, &row.pipeline, record).await?;
        for start in by_the_clock(&agenda) {
            let id = start.schedule.id();
            let Some(watermark) = row.watermarks.get(id).map(|row| row.record.at) else { continue };
            let pipeline = &row.pipeline;
            let agenda = &agenda;
            let section = Section { pipeline, agenda, start, watermark, from: since };
            found.extend(self.went_back(&section));
            found.extend(section.frozen(record, now));
            let slots = section.slots();
            if let Some(first) = slots.first() {
                let rows = ledger(store, pipeline, (*first, watermark)).await?;
                found.extend(section.unrecorded(&slots, &rows));
            }
        }
        Ok(found)
    }

    /// S4: a watermark never goes back.
    fn went_back(&mut self, section: &Section<'_>) -> Option<Violation> {
        let name = format!("{}/{}", section.pipeline, section.start.schedule.id());
        let known = self.marks.entry(fnv1a(name.as_bytes())).or_insert(section.watermark);
        let before = *known;
        *known = before.max(section.watermark);
        let now = section.watermark;
        (now < before).then(|| {
            section.violation("S4", format!("its watermark went back from {before} to {now}"))
        })
    }
}

impl Section<'_> {
    fn violation(&self, invariant: &'static str, says: String) -> Violation {
        let (pipeline, schedule) = (self.pipeline.clone(), self.start.schedule.id().clone());
        Violation { pipeline, invariant, schedule, says }
    }

    /// The last slots that must be recorded, in order.
    fn slots(&self) -> Vec<Timestamp> {
        let schedule = &self.start.schedule;
        let after = plus(self.watermark, SignedDuration::from_millis(1));
        let walk = std::iter::successors(schedule.previous(after), |at| schedule.previous(*at));
        let mut slots: Vec<_> = walk.take_while(|at| *at > self.from).take(SLOTS).collect();
        slots.reverse();
        slots
    }

    /// S3, and that a watermark passes nothing (S4).
    fn unrecorded(
        &self,
        slots: &[Timestamp],
        (rows, known_until): &(Vec<LedgerRow>, Timestamp),
    ) -> Vec<Violation> {
        let ours = || rows.iter().filter(|row| row.schedule == *self.start.schedule.id());
        let spans = ours().filter_map(|row| match &row.entry {
            LedgerEntry::Span(span) => Some((row.nominal, span.last, span.count)),
            LedgerEntry::Slot(_) => None,
        });
        let spans: Vec<_> = spans.collect();
        let is_row = |row: &LedgerRow| matches!(row.entry, LedgerEntry::Slot(_));
        let rows: BTreeSet<_> = ours().filter(|row| is_row(row)).map(|row| row.nominal).collect();
        let mut found = Vec::new();
        for slot in slots.iter().filter(|slot| *slot <= known_until) {
            let covers = spans.iter().filter(|(first, last, _)| (first..=last).contains(&slot));
            match covers.count() {
                0 if !rows.contains(slot) => {
                    found
                        .push(self.violation("S3", format!("{slot} was owed and is not recorded")));
                }
                0 | 1 => {}
                many => {
                    found.push(self.violation("S3", format!("{many} spans stand for {slot}")));
                }
            }
        }
        for (first, last, count) in spans {
            let inside = slots.iter().filter(|slot| (first..=last).contains(*slot)).count() as u64;
            let is_whole =
                slots.first().is_some_and(|oldest| *oldest <= first) && last <= self.watermark;
            if is_whole && inside != count {
                let says = format!(
                    "a span from {first} to {last} stands for {count} slots, and {inside} were owed"
                );
                found.push(self.violation("S3", says));
            }
        }
        found
    }

    /// Something was due long ago, nothing holds it up, and the watermark is before it. Until its deadline that is for the
    /// checks to judge.
    fn frozen(&self, record: &PipelineRecord, now: Timestamp) -> Option<Violation> {
        let pause = record.pause.as_ref();
        let is_paused = pause.is_some_and(|pause| {
            pause.is_in_force(now) || pause.until.is_some_and(|until| plus(until, BEHIND_MAX) > now)
        });
        let next = self.start.schedule.after(self.watermark)?;
        let expecting = Expecting { pipeline: self.pipeline, agenda: self.agenda };
        let judged = expecting.owed(self.start, next).limit;
        let due = plus(judged.max(plus(next, self.start.delay(self.pipeline))), BEHIND_MAX);
        (due < now && !is_paused)
            .then(|| self.violation("frozen", format!("{next} was due and nobody has recorded it")))
    }
}

/// The schedules whose slots follow from the clock alone.
fn by_the_clock(agenda: &Agenda) -> impl Iterator<Item = &Arc<StartSchedule>> {
    agenda.owed().filter(|start| match start.schedule.recurrence() {
        Recurrence::Cron(_)
        | Recurrence::Every { .. }
        | Recurrence::At { .. }
        | Recurrence::Once(_)
        | Recurrence::Dates { .. }
        | Recurrence::Daily => true,
        Recurrence::Sensor { .. } | Recurrence::SinceLast { .. } => false,
    })
}

/// Since when the version in force can be held against the ledger.
async fn in_force_since(
    store: &dyn Store,
    pipeline: &PipelineId,
    record: &PipelineRecord,
) -> Result<Timestamp, StoreError> {
    let Ok(version) = version_number(&record.version) else { return Ok(Timestamp::MAX) };
    let rows = store.read(pipeline, &[Key::Version(version)]).await?;
    let since = rows.into_iter().flatten().next().and_then(|row| {
        if let Record::Version(version) = row.record { Some(version.since) } else { None }
    });
    // What was never edited holds from its first sight on.
    let edited = since.filter(|since| *since > plus(record.first_seen, EDIT_TAKES));
    Ok(edited.map_or(record.first_seen, |since| plus(since, EDIT_TAKES)))
}

/// The rows of a stretch, and up to where they are all there.
async fn ledger(
    store: &dyn Store,
    pipeline: &PipelineId,
    (from, until): (Timestamp, Timestamp),
) -> Result<(Vec<LedgerRow>, Timestamp), StoreError> {
    let query = LedgerQuery {
        pipeline: Some(pipeline.clone()),
        from,
        until: plus(until, SignedDuration::from_millis(1)),
        ..LedgerQuery::everything(ROWS_MAX)
    };
    let page = store.ledger(&query).await?;
    let last = page.items.last().filter(|_| page.more).map(|row| row.nominal);
    // Of the last instant there may be more.
    let until = last.map_or(until, |last| plus(last, SignedDuration::from_millis(-1)));
    Ok((page.items, until))
}

/// S19: an open slot has its end, and the end came.
fn left_open(row: &LedgerRow, now: Timestamp) -> Option<Violation> {
    let LedgerEntry::Slot(record) = &row.entry else { return None };
    let says = match record.to_core() {
        Err(error) => format!("{} is open and cannot be read: {error}", row.nominal),
        Ok(slot) if plus(slot.closes_at, BEHIND_MAX) < now => {
            format!("{} is still open, and was to be closed at {}", row.nominal, slot.closes_at)
        }
        Ok(_) => return None,
    };
    let (pipeline, schedule) = (row.pipeline.clone(), row.schedule.clone());
    Some(Violation { pipeline, invariant: "S19", schedule, says })
}
