//! The scanner: whether what must always be true is true of the ledger in production.
//!
//! A page of pipelines at a time. For each schedule its last slots up to the watermark are enumerated again and looked for,
//! and some older ones behind a cursor that goes round its history (S3, and that a watermark passes nothing, S4); the
//! watermark is compared with the clock (frozen), with the last rotation and with what stands after it (S4); open slots with
//! their `closes_at` (S19). The judging is pure (`section`); `ADR 17` says what it cannot see.

mod section;

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

use self::section::Section;
use crate::{
    load::{self, OpenPlace},
    owed::plus,
    seam::ZoneBook,
};

/// So many of a schedule's older slots are looked for at each visit.
const HISTORY: usize = 100;
/// Rows that are read for one schedule; what lies after them is not judged.
const ROWS_MAX: usize = 500;
/// An edit is in force a little later than it says: reading many files takes time.
const EDIT_TAKES: SignedDuration = SignedDuration::from_mins(10);
/// How much the floor of retention rises at most while a pipeline is looked at: it is raised a few times a day.
const FLOOR_RISES: SignedDuration = SignedDuration::from_hours(48);
/// A schedule that is so far behind stands still, and a slot that is open so long after its end is forgotten.
const BEHIND_MAX: SignedDuration = SignedDuration::from_mins(10);

/// What is looked at.
const INVARIANTS: [&str; 4] = ["S3", "S4", "S19", "frozen"];

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

    /// The one that an incident is about; nothing if it is about something else.
    pub(crate) fn of_incident(pipeline: &PipelineId, key: &str) -> Option<Self> {
        let (invariant, place) = key.strip_prefix("invariant:")?.split_once(' ')?;
        let invariant = INVARIANTS.into_iter().find(|known| *known == invariant)?;
        let schedule = place.strip_prefix(pipeline.as_str())?.strip_prefix('/')?;
        let schedule = ScheduleId::any(schedule).ok()?;
        Some(Self { pipeline: pipeline.clone(), invariant, schedule, says: String::new() })
    }

    /// Whether it is over when it is no longer seen. A slot that was lost stays lost.
    pub fn can_pass(&self) -> bool {
        matches!(self.invariant, "S19" | "frozen")
    }
}

/// Goes through the ledger, page by page.
pub struct Scanner {
    zones: ZoneBook,
    shared: Shared,
    /// Where it is.
    pipeline: Option<PipelineId>,
    open: Option<OpenPlace>,
    /// Whether all pipelines were looked at in this rotation, and only open slots are left.
    has_been_round: bool,
    /// What is remembered of schedules, by a hash of whose it is.
    marks: BTreeMap<u64, Mark>,
    /// Where the cursors are that moved in the last look: they move for good once it was looked twice.
    moved: Vec<(u64, Timestamp)>,
}

/// What is remembered of a schedule.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// Its watermark in the last rotation.
    watermark: Timestamp,
    /// The older slots from here on are looked for next.
    history: Option<Timestamp>,
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
        let (pipeline, open, moved) = (None, None, vec![]);
        Self { zones, shared, pipeline, open, has_been_round: false, marks, moved }
    }

    /// Looks at the next pipelines. What looks wrong is read again: somebody may have been writing.
    pub async fn page(
        &mut self,
        store: &dyn Store,
        (shard, limit): (Shard, usize),
        now: Timestamp,
    ) -> Result<Scanned, StoreError> {
        let mut scanned = Scanned::default();
        if !self.has_been_round {
            self.look_at_pipelines(store, (shard, limit), now, &mut scanned).await?;
        }
        let (rows, next) = load::open_slots(store, shard, (self.open.as_ref(), limit)).await?;
        for row in rows {
            scanned.violations.extend(left_open(&row, now));
            scanned.pipelines.insert(row.pipeline);
        }
        self.open = next;
        scanned.is_last = self.has_been_round && self.open.is_none();
        self.has_been_round &= !scanned.is_last;
        Ok(scanned)
    }

    /// Looks at the next pipelines, if there are more in this rotation.
    async fn look_at_pipelines(
        &mut self,
        store: &dyn Store,
        (shard, limit): (Shard, usize),
        now: Timestamp,
        scanned: &mut Scanned,
    ) -> Result<(), StoreError> {
        let page = store.agenda(shard, self.pipeline.as_ref(), limit).await?;
        for row in &page.items {
            let first = self.look(store, row, now).await?;
            scanned.pipelines.insert(row.pipeline.clone());
            if !first.is_empty() {
                let again = self.look_again(store, row, now).await?;
                scanned.violations.extend(first.intersection(&again).cloned());
            }
            for (key, history) in self.moved.drain(..) {
                if let Some(mark) = self.marks.get_mut(&key) {
                    mark.history = Some(history);
                }
            }
        }
        self.pipeline = page.items.last().filter(|_| page.more).map(|row| row.pipeline.clone());
        self.has_been_round = self.pipeline.is_none();
        Ok(())
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
            fresh.record = Row { record: Arc::unwrap_or_clone(record), revision };
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
        self.moved.clear();
        let since = in_force_since(store, &row.pipeline, record).await?;
        // Below the floor nothing need be there (S3), and it may rise while this is looked at.
        let floor = interlock_store::kept::floor(store).await?;
        let since = floor.map_or(since, |floor| since.max(plus(floor, FLOOR_RISES)));
        let (pipeline, agenda) = (&row.pipeline, &agenda);
        for start in by_the_clock(agenda) {
            let id = start.schedule.id();
            let watermark = row.watermarks.get(id).map(|row| row.record.at);
            let section = Section {
                pipeline,
                agenda,
                start,
                watermark: watermark.unwrap_or(since),
                from: since,
                version: &record.version,
            };
            found.extend(section.frozen(record, (watermark, now)));
            if watermark.is_some() {
                self.look_at(store, &section, now, &mut found).await?;
            }
        }
        for start in agenda.starts.iter().filter(|start| start.is_switch()) {
            found.extend(lost_switch(store, (row, start), now).await?);
        }
        Ok(found)
    }

    /// Looks at the last slots of a schedule, at what stands after its watermark, and at some of its history.
    async fn look_at(
        &mut self,
        store: &dyn Store,
        section: &Section<'_>,
        now: Timestamp,
        found: &mut BTreeSet<Violation>,
    ) -> Result<(), StoreError> {
        let went_back = self.went_back(section);
        let last = section.slots();
        let first = last.first().copied().unwrap_or(section.watermark);
        let rows = ledger(store, section.pipeline, (first, now.max(section.watermark))).await?;
        found.extend(section.unrecorded(&last, &rows));
        found.extend(went_back.or_else(|| section.ahead(&rows.0)));
        let older = self.history(section, first, now);
        if let (Some(oldest), Some(newest)) = (older.first(), older.last()) {
            let rows = ledger(store, section.pipeline, (*oldest, *newest)).await?;
            found.extend(section.unrecorded(&older, &rows));
        }
        Ok(())
    }

    /// S4: a watermark never goes back.
    fn went_back(&mut self, section: &Section<'_>) -> Option<Violation> {
        let now = section.watermark;
        let mark =
            self.marks.entry(section.hash()).or_insert(Mark { watermark: now, history: None });
        let before = mark.watermark;
        mark.watermark = before.max(now);
        (now < before).then(|| {
            section.violation("S4", format!("its watermark went back from {before} to {now}"))
        })
    }

    /// The next of a schedule's slots that are older than those which are looked for every time. The cursor begins
    /// somewhere: a process that lives for a day each time must not look at the same ones for ever.
    fn history(
        &mut self,
        section: &Section<'_>,
        until: Timestamp,
        now: Timestamp,
    ) -> Vec<Timestamp> {
        let schedule = &section.start.schedule;
        let (key, begin) = (section.hash(), plus(section.from, SignedDuration::from_millis(1)));
        if schedule.next(begin).is_none_or(|first| first >= until) {
            return vec![];
        }
        let known = self.marks.get(&key).and_then(|mark| mark.history);
        let somewhere = || {
            let length = until.duration_since(begin).as_millis().max(1).unsigned_abs();
            let chance = u128::from(fnv1a(format!("{key}{now}").as_bytes())) % length;
            plus(begin, SignedDuration::from_millis(i64::try_from(chance).unwrap_or(0)))
        };
        let from = known.filter(|at| (begin..until).contains(at)).unwrap_or_else(somewhere);
        let slots = schedule.slots(from, until, HISTORY);
        self.moved.push((key, slots.rest.unwrap_or(begin)));
        slots.found
    }
}

/// A dead-man's switch has the slot that its watermark names.
async fn lost_switch(
    store: &dyn Store,
    (row, start): (&AgendaRow, &Arc<StartSchedule>),
    now: Timestamp,
) -> Result<Option<Violation>, StoreError> {
    let (pipeline, schedule) = (row.pipeline.clone(), start.schedule.id().clone());
    let wrong = |invariant, says: String| Violation {
        pipeline: pipeline.clone(),
        invariant,
        schedule: schedule.clone(),
        says,
    };
    let record = &row.record.record;
    let Some(mark) = row.watermarks.get(&schedule) else {
        let is_new = plus(record.first_seen, BEHIND_MAX) > now;
        let is_quiet = is_new || record.pause.as_ref().is_some_and(|pause| pause.is_in_force(now));
        return Ok((!is_quiet).then(|| wrong("frozen", "it was never set".to_owned())));
    };
    let key = Key::Slot(schedule.clone(), mark.record.at);
    let slot = store.read(&pipeline, &[key]).await?.into_iter().flatten().next();
    Ok(slot.is_none().then(|| {
        wrong("S3", format!("the slot of {} was due and is not recorded", mark.record.at))
    }))
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
            format!(
                "the slot of {} is still open; its end was due at {}",
                row.nominal, slot.closes_at
            )
        }
        Ok(_) => return None,
    };
    let (pipeline, schedule) = (row.pipeline.clone(), row.schedule.clone());
    Some(Violation { pipeline, invariant: "S19", schedule, says })
}
