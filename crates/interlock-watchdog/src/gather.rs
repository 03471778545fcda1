//! Gathering a snapshot: what the store says about one pipeline and what is due of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use interlock_core::{
    agenda::{Agenda, Work},
    id::{PipelineId, ScheduleId},
    sla,
    slot::SkipReason,
};
use interlock_store::{
    DueKind, FoundRows, Key, LedgerEntry, LedgerQuery, LedgerRow, Obligation, Record, Row,
    RowsQuery, RunQuery, RunRow, Store, StoreError, Subject,
    record::{AgendaRecord, PipelineRecord, Shared, SpanRecord, Unreadable, Zones, version_number},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    owed::Expecting,
    reports::Settled,
    seam::ZoneBook,
    snapshot::{Known, Place, Snapshot, SpanSeen},
};

/// What is asked about a pipeline.
#[derive(Debug, Default)]
pub(crate) struct Question {
    /// From when on its slots are judged by the clock, if the time has come.
    pub(crate) from: Option<Timestamp>,
    /// Obligations that are due.
    pub(crate) due: Vec<Obligation>,
    /// Open slots that are looked at besides.
    pub(crate) open: BTreeSet<Place>,
    /// Whether sensors are looked at for slots that were not opened.
    pub(crate) reconciles: Reconciles,
}

/// Whether sensors are looked at without a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Reconciles {
    #[default]
    No,
    Yes,
}

/// What holds for every pipeline of a pass.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    /// Pipelines with reports that nobody has applied.
    pub(crate) unapplied: BTreeSet<PipelineId>,
    /// Times in which nobody watched.
    pub(crate) blind: Vec<(Timestamp, Timestamp)>,
    /// What is found later than this is found late.
    pub(crate) late_after: SignedDuration,
    /// The one time of the pass.
    pub(crate) now: Timestamp,
}

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GatherError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// A snapshot, or the pipeline's row as it is now, if what is kept of it is out of date.
#[derive(Debug)]
pub(crate) enum Gathered {
    /// With when there is something to be judged next, if it was asked about by the clock.
    Snapshot(Box<Snapshot>, Option<Next>),
    Changed(Box<PipelineRecord>, u64),
    /// It is not there any more.
    Gone,
}

/// A snapshot that lacks the rows about what is due.
#[derive(Debug)]
pub(crate) struct Draft {
    snapshot: Snapshot,
    question: Question,
    next: Option<Next>,
    keys: Vec<Key>,
}

impl Draft {
    /// The rows that it lacks.
    pub(crate) fn query(&self) -> RowsQuery {
        RowsQuery { pipeline: self.snapshot.pipeline.clone(), keys: self.keys.clone() }
    }
}

/// A snapshot that was begun, or all that there is to it.
#[derive(Debug)]
pub(crate) enum Begun {
    Draft(Box<Draft>),
    Ended(Gathered),
}

/// When there is something to be judged next; nothing ever, when absent.
pub(crate) type Next = Option<Timestamp>;

/// What is to be judged of a pipeline.
#[derive(Debug)]
pub(crate) struct SnapshotRequest {
    pub(crate) pipeline: PipelineId,
    /// Of its row, as it is known.
    pub(crate) revision: u64,
    pub(crate) question: Question,
}

pub(crate) struct Gatherer<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) around: &'a Surroundings,
    pub(crate) zones: &'a ZoneBook,
    /// Agendas that were read before.
    pub(crate) agendas: &'a Mutex<Agendas>,
}

/// So many agendas are kept: an installation with more reads each when it is due.
const AGENDAS_KEPT: usize = 1_000;

/// Agendas as they were last read, by the revisions of their pipelines' rows: most are asked for again within the hour, and reading one
/// is most of what it takes to judge a slot.
#[derive(Debug, Default)]
pub(crate) struct Agendas {
    kept: BTreeMap<PipelineId, Kept>,
    shared: Shared,
}

#[derive(Debug)]
struct Kept {
    /// Of the pipeline's row.
    revision: u64,
    agenda: Agenda,
    settled: Settled,
}

impl Agendas {
    fn of(
        &mut self,
        (pipeline, revision): (&PipelineId, u64),
        record: Option<&AgendaRecord>,
        zones: Zones<'_>,
    ) -> Result<Agenda, Unreadable> {
        if let Some(kept) = self.kept.get(pipeline).filter(|kept| kept.revision == revision) {
            return Ok(kept.agenda.clone());
        }
        let agenda = record.map(|it| it.to_core(&mut self.shared, zones)).transpose()?;
        let agenda = agenda.unwrap_or_default();
        if self.kept.len() >= AGENDAS_KEPT {
            *self = Self::default();
        }
        let kept = Kept { revision, agenda: agenda.clone(), settled: Settled::default() };
        self.kept.insert(pipeline.clone(), kept);
        Ok(agenda)
    }

    /// The reports of a pipeline that came to what they should.
    pub(crate) fn settled(&mut self, pipeline: &PipelineId) -> Option<&mut Settled> {
        self.kept.get_mut(pipeline).map(|kept| &mut kept.settled)
    }
}

impl Gatherer<'_> {
    /// Begins a snapshot with the pipeline's row, which says what it owes, and with it which rows are needed besides.
    pub(crate) fn begin(
        &self,
        request: SnapshotRequest,
        own: FoundRows,
    ) -> Result<Begun, Unreadable> {
        let SnapshotRequest { pipeline, revision, question } = request;
        let pipeline = &pipeline;
        let own = own.into_iter().flatten().next();
        let Some(Row { record: Record::Pipeline(record), revision: found }) = own else {
            return Ok(Begun::Ended(Gathered::Gone));
        };
        if found != revision {
            let record = Box::new(Arc::unwrap_or_clone(record));
            return Ok(Begun::Ended(Gathered::Changed(record, found)));
        }
        let Surroundings { unapplied, blind, late_after, now } = self.around;
        let zones = |name: &str| (self.zones)(name);
        let known = (pipeline, found);
        let agenda = self.agendas().of(known, record.agenda.as_deref(), &zones)?;
        let mut snapshot = Snapshot {
            version: version_number(&record.version)?,
            is_retired: record.retired_at.is_some(),
            pause: record.pause.clone(),
            has_unapplied: unapplied.contains(pipeline),
            blind: blind.clone(),
            late_after: *late_after,
            ..Snapshot::new(pipeline.clone(), agenda, record.first_seen)
        };
        let mut next = None;
        if let Some(from) = question.from {
            let expecting = Expecting { pipeline, agenda: &snapshot.agenda };
            let (owed, until) = expecting.between(from, *now);
            next = Some(expecting.next_after(until));
            snapshot.owed = owed;
        }
        let keys = keys(&snapshot, &question);
        Ok(Begun::Draft(Box::new(Draft { snapshot, question, next, keys })))
    }

    /// Completes a snapshot: with its rows, and with what is read of few pipelines only.
    pub(crate) async fn complete(
        &self,
        draft: Draft,
        rows: FoundRows,
    ) -> Result<Gathered, GatherError> {
        let Draft { mut snapshot, question, next, keys } = draft;
        add_rows(&mut snapshot, keys, rows)?;
        snapshot.due = question.due;
        let reports = self.add_sensors(&mut snapshot, question.reconciles).await?;
        self.add_spans(&mut snapshot, &reports.absent).await?;
        self.settle(&snapshot, reports);
        self.add_armed(&mut snapshot).await?;
        self.add_runs(&mut snapshot).await?;
        Ok(Gathered::Snapshot(Box::new(snapshot), next))
    }

    pub(crate) fn agendas(&self) -> MutexGuard<'_, Agendas> {
        // A panic in between leaves out what is kept; nothing else.
        self.agendas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Spans matter for slots that have no row: those behind the scheduler's watermark, and those that were reported.
    async fn add_spans(
        &self,
        snapshot: &mut Snapshot,
        reported: &[Timestamp],
    ) -> Result<(), GatherError> {
        let behind: Vec<Timestamp> = snapshot
            .owed
            .iter()
            .map(|owed| (owed.nominal, owed.start.schedule.id().clone()))
            .filter(|place| !snapshot.slots.contains_key(place) && !snapshot.is_ahead(place))
            .map(|(nominal, _)| nominal)
            .chain(reported.iter().copied())
            .collect();
        let (Some(first), Some(last)) = (behind.iter().min(), behind.iter().max()) else {
            return Ok(());
        };
        let until = last.saturating_add(SignedDuration::from_millis(1)).unwrap_or(*last);
        let mut query = LedgerQuery {
            pipeline: Some(snapshot.pipeline.clone()),
            from: *first,
            until,
            ..LedgerQuery::everything(crate::load::PAGE)
        };
        loop {
            let page = self.store.ledger(&query).await?;
            let spans = page.items.iter().filter_map(|row| match &row.entry {
                LedgerEntry::Span(span) => Some(span_seen(&row.schedule, row.nominal, span)),
                LedgerEntry::Slot(_) => None,
            });
            snapshot.spans.extend(spans);
            query.after = page.items.last().map(LedgerRow::place);
            if !page.more {
                return Ok(());
            }
        }
    }

    /// Which open slots have an SLA entry.
    async fn add_armed(&self, snapshot: &mut Snapshot) -> Result<(), GatherError> {
        let mut keys = Vec::new();
        for (place, known) in &snapshot.slots {
            let limit = known.slot.sla.as_deref().and_then(|sla| sla.completion);
            if let Some(limit) = limit.filter(|_| known.slot.state.is_open()) {
                keys.extend(sla_keys(place, limit));
            }
        }
        if keys.is_empty() {
            return Ok(());
        }
        for (key, row) in keys.iter().zip(self.store.read(&snapshot.pipeline, &keys).await?) {
            if let (Key::Due(_, _, name), Some(_)) = (key, row) {
                snapshot.armed.extend(slot_named(name));
            }
        }
        Ok(())
    }

    /// The last run of the slots that obligations are about.
    async fn add_runs(&self, snapshot: &mut Snapshot) -> Result<(), GatherError> {
        let places: BTreeSet<Place> =
            snapshot.due.iter().filter_map(|due| due.subject.slot()).collect();
        for (nominal, schedule) in places {
            let query = RunQuery {
                pipeline: Some(snapshot.pipeline.clone()),
                slot: Some((schedule.clone(), nominal)),
                limit: 1,
                ..RunQuery::default()
            };
            if let Some(run) = self.store.runs(&query).await?.items.into_iter().next() {
                snapshot.runs.insert((nominal, schedule), run);
            }
        }
        self.add_limited(snapshot).await
    }

    /// The runs whose own time limit is due: of a watch-only slot there may be several.
    async fn add_limited(&self, snapshot: &mut Snapshot) -> Result<(), GatherError> {
        let closes = snapshot.due.iter().filter(|due| due.kind == DueKind::Closes);
        let keys: Vec<Key> = closes
            .filter_map(|due| match &due.subject {
                Subject::Run(key) => Some(Key::Run(key.clone())),
                Subject::Slot(..) | Subject::Budget(..) | Subject::Pipeline => None,
            })
            .collect();
        if keys.is_empty() {
            return Ok(());
        }
        let pipeline = &snapshot.pipeline;
        for (key, row) in keys.iter().zip(self.store.read(pipeline, &keys).await?) {
            if let (Key::Run(key), Some(row)) = (key, row)
                && let Record::Run(record) = row.record
            {
                let (pipeline, revision) = (pipeline.clone(), row.revision);
                let run = RunRow {
                    pipeline,
                    key: key.clone(),
                    record: Arc::unwrap_or_clone(record),
                    revision,
                };
                snapshot.limited.insert(key.clone(), run);
            }
        }
        Ok(())
    }
}

/// Watermarks, slots and SLA entries.
fn add_rows(snapshot: &mut Snapshot, keys: Vec<Key>, rows: FoundRows) -> Result<(), Unreadable> {
    for (key, row) in keys.into_iter().zip(rows) {
        let Some(row) = row else { continue };
        match (key, row.record) {
            (Key::Watermark(schedule), Record::Watermark(mark)) => {
                snapshot.watermarks.insert(schedule, mark.at);
            }
            (Key::Slot(schedule, nominal), Record::Slot(slot)) => {
                let known = Known { slot: slot.to_core()?, revision: row.revision };
                snapshot.slots.insert((nominal, schedule), known);
            }
            (Key::Due(_, _, name), Record::Due(_)) => snapshot.armed.extend(slot_named(&name)),
            _ => {}
        }
    }
    Ok(())
}

/// The rows that a question is about, besides the pipeline's own.
fn keys(snapshot: &Snapshot, question: &Question) -> Vec<Key> {
    let agenda = &snapshot.agenda;
    let mut places: BTreeSet<Place> = question.open.clone();
    let mut schedules: BTreeSet<ScheduleId> = BTreeSet::new();
    let mut entries = Vec::new();
    for owed in &snapshot.owed {
        let place = (owed.nominal, owed.start.schedule.id().clone());
        schedules.insert(place.1.clone());
        let promise = || agenda.promise(&owed.start, owed.nominal, sla::Opening::Live);
        if agenda.sla.is_some()
            && let Some(limit) = promise().completion
        {
            entries.extend(sla_keys(&place, limit));
        }
        places.insert(place);
    }
    for place in question.due.iter().filter_map(|due| due.subject.slot()) {
        schedules.insert(place.1.clone());
        places.insert(place);
    }
    if question.reconciles == Reconciles::Yes && agenda.work != Work::Dormant {
        schedules.extend(agenda.starts.iter().map(|start| start.schedule.id().clone()));
    }
    let slots = places.into_iter().map(|(nominal, schedule)| Key::Slot(schedule, nominal));
    let marks = schedules.into_iter().map(Key::Watermark);
    marks.chain(slots).chain(entries).collect()
}

/// The entries that may be armed for a slot.
fn sla_keys((nominal, schedule): &Place, limit: sla::Limit) -> Vec<Key> {
    let subject = Subject::Slot(schedule.clone(), *nominal);
    let warning = limit.warning_at.map(|at| (at, DueKind::SlaWarning));
    let all = warning.into_iter().chain([(limit.breach_at, DueKind::SlaBreach)]);
    all.map(|(at, kind)| Obligation::new(at, kind, subject.clone()).key()).collect()
}

fn slot_named(name: &str) -> Option<Place> {
    let (schedule, nominal) = name.split_once('/')?;
    Some((nominal.parse().ok()?, ScheduleId::any(schedule).ok()?))
}

fn span_seen(schedule: &ScheduleId, first: Timestamp, span: &SpanRecord) -> SpanSeen {
    let reason = span.reason.as_ref().map(ToString::to_string).unwrap_or_default();
    // Whoever wrote that reports were missed, or may have been, told people in the same group.
    let counts = SkipReason::parse(&reason).is_ok_and(SkipReason::counts_as_missed);
    SpanSeen {
        schedule: schedule.clone(),
        first,
        last: span.last,
        count: span.count,
        counts_as_missed: counts,
        reason,
    }
}
