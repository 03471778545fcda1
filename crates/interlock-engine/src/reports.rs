//! Reports of jobs that somebody else runs: which run and which slot each belongs to, and what is written.
//!
//! The rules are the core's (`interlock_core::report`, `docs/adr/0016-reports.md`). A report is one group: its run,
//! its slot, its event and its answer. Groups are held and committed together, so that thousands of reports are a
//! few writes to the disk; who must read the store for one settles first.

mod telling;

use std::{collections::VecDeque, sync::Arc};

use interlock_core::{
    agenda::Work,
    clock::STEP_MAX,
    id::PipelineId,
    pipeline::StartSchedule,
    report::{self, End, Extra, Meaning, Report, RunSeen, Said},
    run::TriggerType,
    schedule::Recurrence,
    slot::{Disposition, Opening, Slot, SlotState},
};
use interlock_store::{
    InboxEntry, Key, LedgerEntry, LedgerQuery, Record, Row, RunKey, RunQuery,
    record::{AppliedRecord, ReportRecord, SpanRecord},
    whole_milliseconds,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use self::telling::Telling;
pub(crate) use self::telling::rejected;
use crate::{
    engine::{Engine, EngineError},
    heard::{RIDS_KEPT, began, rid_of, seen},
    scheduler::{Opener, plus},
    state::{KnownRun, PipelineState, SlotPlace},
    write::{Event, Planned},
};

/// How long a report waits for a pipeline that is about to be made.
const CREATED_IN: SignedDuration = SignedDuration::from_mins(1);

/// A report on its way into the ledger.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hearing<'a> {
    pub(crate) pipeline: &'a PipelineId,
    pub(crate) record: &'a ReportRecord,
    pub(crate) report: Report<'a>,
    pub(crate) now: Timestamp,
}

/// What came of a report.
pub(crate) enum Told {
    /// It was placed.
    Placed(Value),
    /// It belongs nowhere.
    Rejected(String),
    /// Somebody's job reports under a name that nothing watches, and may be told nowhere else.
    NotWatched(String),
    /// It stays in the inbox for now.
    Waits,
}

/// A slot as far as reports are concerned.
enum Standing {
    /// It has a row, or a span stands for it (revision 0).
    Known(Slot, u64),
    /// It is owed, and not recorded yet.
    Absent,
    /// It is not owed.
    NotOwed,
}

impl Engine {
    /// Plans what follows from a report; `None` if it stays in the inbox.
    pub(crate) async fn plan_report(
        &mut self,
        entry: &InboxEntry,
        record: &ReportRecord,
        now: Timestamp,
    ) -> Result<Option<Planned>, EngineError> {
        let mut plan = Planned::new(&entry.pipeline, self.writer);
        let told = match (&record.refused, Said::parse(&record.said)) {
            (Some(reason), _) => Told::Rejected(reason.clone()),
            (None, None) => Told::Rejected(format!("`{}` is not a kind of report", record.said)),
            (None, Some(said)) => {
                // Nobody reports from the future, nor did it come from there: that was a clock which has gone back. What
                // clocks of store and instance may differ by is left alone.
                let at = record.at.min(entry.received_at);
                let at = if at > plus(now, STEP_MAX) { now } else { at };
                // What `exec` leaves in the inbox itself is as fine as its clock; no row is.
                let at = self.after_its_making(&entry.pipeline, record, whole_milliseconds(at));
                let report = Report { said, rid: record.rid.as_deref(), at };
                let hearing = Hearing { pipeline: &entry.pipeline, record, report, now };
                match self.cannot_take(&hearing, entry.received_at) {
                    Some(told) => told,
                    None => self.follow_report(&hearing, None, &mut plan).await?,
                }
            }
        };
        let (accepted, result) = match told {
            Told::Waits => return Ok(None),
            Told::Placed(result) => (true, result),
            Told::Rejected(reason) => {
                plan.group.changes.clear();
                telling::rejected(record, &reason, now, &mut plan);
                (false, json!({ "reason": reason }))
            }
            Told::NotWatched(reason) => {
                telling::rejected(record, &reason, now, &mut plan);
                plan.event(Event::of("JOB_NOT_WATCHED", now, reason.as_str()));
                (false, json!({ "reason": reason }))
            }
        };
        let request = entry.record.fingerprint();
        let applied = AppliedRecord { at: now, accepted, result, request };
        plan.put(Key::Applied(entry.key.clone()), 0, Record::Applied(applied.into()));
        Ok(Some(plan))
    }

    /// When a report counts that made its pipeline: its first slot begins when the file is read, and is not left waiting for what
    /// was said just before.
    fn after_its_making(
        &self,
        pipeline: &PipelineId,
        record: &ReportRecord,
        at: Timestamp,
    ) -> Timestamp {
        let state = self.pipelines.0.get(pipeline).filter(|_| record.create);
        let made = state.and_then(|state| state.row.as_ref()).map(|(row, _)| row.first_seen);
        made.map_or(at, |made| at.max(plus(made, SignedDuration::from_millis(1))))
    }

    /// Why a pipeline takes no reports, if so.
    fn cannot_take(&self, hearing: &Hearing<'_>, received_at: Timestamp) -> Option<Told> {
        let name = hearing.pipeline;
        let rejected = |reason: String| Some(Told::Rejected(reason));
        if let Some(named) = &hearing.record.pipeline {
            // Whoever named it was told so, and may name anything.
            return rejected(format!("there is no pipeline `{named}`"));
        }
        let not_watched = |reason: String| Some(Told::NotWatched(reason));
        let state = self.pipelines.0.get(name).filter(|state| state.row.is_some());
        let Some(state) = state else {
            let is_made = hearing.record.create && hearing.now < plus(received_at, CREATED_IN);
            return if is_made {
                Some(Told::Waits)
            } else {
                not_watched(format!("there is no pipeline `{name}`"))
            };
        };
        match state.agenda.work {
            _ if state.is_retired() => not_watched(format!("the file of {name} is gone")),
            Work::Watched => None,
            Work::Dormant => rejected(format!("{name} is disabled, or has no trigger")),
            Work::Started => not_watched(format!(
                "Interlock itself runs {name}; only a pipeline with `trigger: {{type: external}}` takes \
                 reports"
            )),
        }
    }

    /// Places a report, of a given run or of the one it is about, and writes what follows.
    pub(crate) async fn follow_report(
        &mut self,
        hearing: &Hearing<'_>,
        named: Option<RunKey>,
        plan: &mut Planned,
    ) -> Result<Told, EngineError> {
        let run = match named {
            Some(key) => self.stored_run(hearing.pipeline, key).await?,
            None => self.run_of(hearing).await?,
        };
        let state = self.pipelines.get_mut(hearing.pipeline);
        let place = match &run {
            Some((key, _)) => Some((key.nominal, key.schedule.clone())),
            None => state.place_of(hearing.report.at),
        };
        let Some(place) = place else {
            return Ok(Told::Rejected("none of its schedules has a slot at that time".to_owned()));
        };
        let Some(start) = state.start(&place).cloned() else {
            return Ok(Told::Rejected(format!("its schedule `{}` is gone", place.1)));
        };
        // A switch has one slot, which every report is about, whatever slot its run began in.
        let place = match state.watermark(&place.1).filter(|_| start.is_switch()) {
            Some((nominal, _)) => (nominal, place.1),
            None => place,
        };
        let is_start = hearing.report.said == Said::Start && hearing.report.rid.is_none();
        let run =
            run.or_else(|| if is_start { state.run_at(&place, &hearing.report) } else { None });
        let slot = match self.standing_of(hearing, &place, &start).await? {
            Standing::Known(slot, revision) => Some((slot, revision)),
            Standing::Absent => None,
            Standing::NotOwed => {
                let first = self.first_owed(hearing.pipeline, &start);
                return Ok(Told::Rejected(format!(
                    "it is about {}/{}, which is not due: the first slot is {first}",
                    place.1, place.0
                )));
            }
        };
        let known = slot.as_ref().map(|(slot, _)| slot.state);
        // A switch takes every end: what is decided of it is over.
        let known = known.filter(|state| !start.is_switch() || report::takes_an_end(*state));
        let mut meaning = report::meaning(&hearing.report, run.as_ref().map(|(_, it)| it), known);
        let state = self.pipelines.get_mut(hearing.pipeline);
        if let Some((key, run)) = &run
            && (meaning == Meaning::Repeated && hearing.report.rid.is_some())
            && state.is_name_of_another(key, run, (&hearing.report, &start))
        {
            meaning = Meaning::Extra(Extra::NameIsTaken);
        }
        let run = match (meaning, run) {
            (Meaning::Ends(_) | Meaning::BeganBefore, Some((key, _))) => {
                self.whole_run(hearing.pipeline, &key).await?
            }
            (_, Some((key, _))) => Some(KnownRun::named(key)),
            (_, None) => None,
        };
        let state = self.pipelines.get_mut(hearing.pipeline);
        let (agenda, version, now) = (&state.agenda, state.version, hearing.now);
        let opener = Opener { agenda, start: &start, version, now };
        let fresh = || opener.open(place.0, TriggerType::External);
        let is_fresh = slot.is_none();
        let (slot, revision) = slot.unwrap_or_else(|| (fresh(), 0));
        let telling = Telling {
            hearing,
            start: &start,
            place: &place,
            slot: (&slot, revision, is_fresh),
            watermark: state.watermark(&place.1),
            opener: &opener,
        };
        Ok(Told::Placed(telling.write(meaning, run.as_ref(), plan)))
    }

    /// The run that a report is about, unless it is a start without a name.
    async fn run_of(
        &mut self,
        hearing: &Hearing<'_>,
    ) -> Result<Option<(RunKey, RunSeen)>, EngineError> {
        let Report { said, rid, .. } = hearing.report;
        if rid.is_none() && said == Said::Start {
            return Ok(None);
        }
        let state = self.pipelines.get_mut(hearing.pipeline);
        let (keys, runs): (Vec<_>, Vec<_>) = state.runs_seen().into_iter().unzip();
        if let Some(index) = hearing.report.run_among(&runs) {
            let found = keys.into_iter().zip(runs).nth(index);
            return Ok(found);
        }
        let Some(rid) = rid else { return Ok(None) };
        self.know_rids(hearing.pipeline).await?;
        let heard = self.pipelines.get_mut(hearing.pipeline).heard.as_ref();
        match heard.and_then(|heard| heard.find(rid)).cloned() {
            Some(key) => self.stored_run(hearing.pipeline, key).await,
            None => Ok(None),
        }
    }

    /// Reads the names of a pipeline's last runs, once.
    async fn know_rids(&mut self, pipeline: &PipelineId) -> Result<(), EngineError> {
        let heard = self.pipelines.get_mut(pipeline).heard.get_or_insert_default();
        if heard.rids.is_some() {
            return Ok(());
        }
        self.settle().await?;
        let query =
            RunQuery { pipeline: Some(pipeline.clone()), limit: RIDS_KEPT, ..RunQuery::default() };
        let newest_first = self.store.runs(&query).await?.items;
        let named = newest_first.into_iter().rev().filter_map(|row| {
            let rid = rid_of(&row.record)?.to_owned();
            Some((rid, row.key))
        });
        let named: VecDeque<_> = named.collect();
        self.pipelines.get_mut(pipeline).heard.get_or_insert_default().rids = Some(named);
        Ok(())
    }

    async fn stored_run(
        &mut self,
        pipeline: &PipelineId,
        key: RunKey,
    ) -> Result<Option<(RunKey, RunSeen)>, EngineError> {
        let run = self.whole_run(pipeline, &key).await?;
        Ok(run.map(|run| (key, seen(&run.record))))
    }

    /// A run with its row, from memory if its slot is open.
    pub(crate) async fn whole_run(
        &mut self,
        pipeline: &PipelineId,
        key: &RunKey,
    ) -> Result<Option<KnownRun>, EngineError> {
        let place = (key.nominal, key.schedule.clone());
        let open = self.pipelines.get_mut(pipeline).open.get(&place);
        let known = open.and_then(|open| open.runs.iter().find(|run| run.key == *key));
        if let Some(known) = known {
            return Ok(Some(known.clone()));
        }
        self.settle().await?;
        let rows = self.store.read(pipeline, &[Key::Run(key.clone())]).await?;
        Ok(rows.into_iter().flatten().find_map(|Row { record, revision }| {
            let Record::Run(record) = record else { return None };
            Some(KnownRun {
                key: key.clone(),
                record: Arc::unwrap_or_clone(record.into()),
                revision,
            })
        }))
    }

    /// How the slot of a report stands.
    async fn standing_of(
        &mut self,
        hearing: &Hearing<'_>,
        place: &SlotPlace,
        start: &Arc<StartSchedule>,
    ) -> Result<Standing, EngineError> {
        let pipeline = hearing.pipeline;
        let state = self.pipelines.get_mut(pipeline);
        if let Some(open) = state.open.get(place) {
            return Ok(Standing::Known(open.slot.clone(), open.revision));
        }
        let decided = state.heard.as_ref().and_then(|heard| heard.decided.as_ref());
        if let Some(decided) = decided.filter(|decided| decided.place == *place) {
            return Ok(Standing::Known(decided.slot.clone(), decided.revision));
        }
        let watermark = state.watermark(&place.1).map(|(at, _)| at);
        let first_seen = state.row.as_ref().map(|(row, _)| row.first_seen);
        // Of today's slot of a schedule without a time there is a row, though it began before.
        let is_daily = matches!(start.schedule.recurrence(), Recurrence::Daily);
        if first_seen.is_some_and(|seen| place.0 <= seen) && !is_daily {
            return Ok(Standing::NotOwed);
        }
        self.settle().await?;
        if let Some((slot, revision)) = self.read_slot(pipeline, place).await? {
            if !slot.state.is_open() {
                let heard = self.pipelines.get_mut(pipeline).heard.get_or_insert_default();
                heard.decided(place, (slot.clone(), revision), &[]);
            }
            return Ok(Standing::Known(slot, revision));
        }
        if start.is_switch() || watermark.is_none_or(|watermark| place.0 > watermark) {
            return Ok(Standing::Absent);
        }
        self.in_a_span(pipeline, place, start).await
    }

    /// A slot that a span stands for: its row begins with what the span says.
    async fn in_a_span(
        &self,
        pipeline: &PipelineId,
        place: &SlotPlace,
        start: &Arc<StartSchedule>,
    ) -> Result<Standing, EngineError> {
        let span = self.span_over(pipeline, place).await?;
        let Some(span) = span else { return Ok(Standing::NotOwed) };
        let Ok(disposition) = Disposition::parse(&span.disposition, span.reason.as_deref()) else {
            return Ok(Standing::NotOwed);
        };
        let opening = Opening {
            opened_by: TriggerType::Scheduler,
            date: start.schedule.occurrence(place.0).date,
            at: span.recorded_at,
            closes_at: span.recorded_at,
            version: interlock_store::record::version_number(&span.version)?,
        };
        let mut slot = Slot::decided(disposition, opening);
        if disposition.is_miss() {
            slot.marks.missed_at = Some(span.recorded_at);
        }
        Ok(Standing::Known(slot, 0))
    }

    /// When a slot that a span stands for was found to be missed, if it was.
    pub(crate) async fn missed_in_span(
        &self,
        pipeline: &PipelineId,
        place: &SlotPlace,
    ) -> Result<Option<Timestamp>, EngineError> {
        let Some(span) = self.span_over(pipeline, place).await? else { return Ok(None) };
        let disposition = Disposition::parse(&span.disposition, span.reason.as_deref());
        Ok(disposition.is_ok_and(Disposition::is_miss).then_some(span.recorded_at))
    }

    /// The span that stands for a slot.
    pub(crate) async fn span_over(
        &self,
        pipeline: &PipelineId,
        place: &SlotPlace,
    ) -> Result<Option<SpanRecord>, EngineError> {
        let query = LedgerQuery {
            pipeline: Some(pipeline.clone()),
            from: place.0,
            until: plus(place.0, SignedDuration::from_millis(1)),
            ..LedgerQuery::everything(100)
        };
        let rows = self.store.ledger(&query).await?.items;
        Ok(rows.into_iter().find_map(|row| match row.entry {
            LedgerEntry::Span(span) if row.schedule == place.1 => Some(span),
            LedgerEntry::Span(_) | LedgerEntry::Slot(_) => None,
        }))
    }

    fn first_owed(&self, pipeline: &PipelineId, start: &StartSchedule) -> String {
        let state = self.pipelines.0.get(pipeline);
        let seen = state.and_then(|state| state.row.as_ref()).map(|(row, _)| row.first_seen);
        let first = seen.and_then(|seen| start.schedule.after(seen));
        first.map_or_else(|| "none".to_owned(), |first| first.to_string())
    }
}

impl KnownRun {
    /// A run of which only the name matters.
    fn named(key: RunKey) -> Self {
        let record = interlock_store::record::RunRecord {
            status: String::new().into(),
            trigger_type: TriggerType::External.as_str().into(),
            created_at: key.nominal,
            started_at: None,
            ended_at: None,
            message: None,
            category: None,
            metadata: std::collections::BTreeMap::new(),
        };
        Self { key, record: record.into(), revision: 0 }
    }
}

impl PipelineState {
    fn start(&self, place: &SlotPlace) -> Option<&Arc<StartSchedule>> {
        self.agenda.starts.iter().find(|start| *start.schedule.id() == place.1)
    }

    /// The slot that a report of no known run belongs to. That of a switch stands at its watermark.
    fn place_of(&self, at: Timestamp) -> Option<SlotPlace> {
        let switch = self.agenda.starts.iter().find(|start| start.is_switch());
        if let Some(switch) = switch {
            let id = switch.schedule.id();
            return self.watermark(id).map(|(nominal, _)| (nominal, id.clone()));
        }
        report::place(self.agenda.starts.iter().map(AsRef::as_ref), at)
    }

    /// Whether a report that seems to be told again is of another run, whose name was used before: it is about a slot that
    /// came after the run of that name had ended. A switch has such a slot after each end, so there it must have been a
    /// while.
    fn is_name_of_another(
        &self,
        key: &RunKey,
        run: &RunSeen,
        (report, start): (&Report<'_>, &StartSchedule),
    ) -> bool {
        let (Some(ended), Some(place)) = (run.ended_at, self.place_of(report.at)) else {
            return false;
        };
        let is_later = if let Recurrence::SinceLast { step } = start.schedule.recurrence() {
            report.at > plus(ended, SignedDuration::from_secs(*step / 2))
        } else {
            place.0 > ended && report.at > ended
        };
        (key.nominal, &key.schedule) != (place.0, &place.1) && is_later
    }

    /// The runs that are remembered, oldest first.
    fn runs_seen(&self) -> Vec<(RunKey, RunSeen)> {
        let open = self.open.values().flat_map(|open| &open.runs);
        let open = open.map(|run| (run.key.clone(), seen(&run.record)));
        let decided = self.heard.as_ref().and_then(|heard| heard.decided.as_ref());
        let decided = decided.into_iter().flat_map(|decided| decided.runs.iter().cloned());
        let mut all: Vec<_> = decided.chain(open).collect();
        all.sort_by_key(|(_, run)| began(run));
        all
    }

    /// Which run of a slot a start without a name is about.
    fn run_at(&self, place: &SlotPlace, report: &Report<'_>) -> Option<(RunKey, RunSeen)> {
        let of_slot =
            |(key, _): &(RunKey, RunSeen)| (key.nominal, &key.schedule) == (place.0, &place.1);
        let (keys, runs): (Vec<_>, Vec<_>) = self.runs_seen().into_iter().filter(of_slot).unzip();
        let index = report.run_among(&runs)?;
        keys.into_iter().zip(runs).nth(index)
    }
}

/// Whether a slot is decided for good, whatever is said of it.
pub(crate) fn is_decided(state: SlotState) -> bool {
    !report::takes(state, End::Well)
}
