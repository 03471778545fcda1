//! Pipelines: what is declared, and where each stands.

use std::collections::BTreeMap;

use interlock_core::{
    agenda::Agenda,
    id::{PipelineId, SlotKey},
};
use interlock_store::{
    AgendaRow, BackfillQuery, BackfillRow, LedgerEntry, LedgerQuery, LedgerRow, Page, Shard,
    StoreError, for_each,
    record::{PipelineRecord, Shared, version_number},
};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    declared::{RecordedDeclaration, declared_answer, next_slot},
    duration::PipelineDurations,
    last_slot::{last_slots, slot_instant},
    pipeline_walk::{ListedPipeline, PipelineWalk},
    run::pipeline_id,
    spec::declaration_json,
};
use crate::{
    AnswerError, Cursor, Listing, Reader,
    cursor::not_ours,
    listing::{Scan, limit},
    model::pipeline::{
        BackfillProgressAnswer, DeclaredAnswer, NextAnswer, PauseAnswer, PipelineAnswer,
        PipelineDetailAnswer, PipelinesQuery, SlotStateAnswer,
    },
};

/// Open slots of one pipeline that a page shows.
const OPEN_SHOWN: usize = 100;
/// Rows asked for at once.
const PORTION: usize = 1_000;

/// How many pipelines are asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breadth {
    /// Some of perhaps very many: nothing is read of the others.
    Page,
    /// All: they are read together, and each open slot is told.
    Everything,
}

/// A pipeline on a page, as far as what is declared of it is concerned.
struct DescribedPipeline {
    listed: ListedPipeline,
    declared: DeclaredAnswer,
    /// Why its declaration cannot be loaded.
    problem: Option<String>,
}

/// What is recorded besides the rows of pipelines.
#[derive(Default)]
struct RecordedStandings {
    open: BTreeMap<PipelineId, Vec<LedgerRow>>,
    backfills: BTreeMap<PipelineId, Vec<BackfillRow>>,
    last: BTreeMap<PipelineId, LedgerRow>,
}

impl Reader<'_> {
    /// Pipelines that are declared or recorded and not retired, by name.
    pub async fn pipelines(
        &self,
        asked: &PipelinesQuery,
    ) -> Result<Listing<PipelineAnswer>, AnswerError> {
        let reader = self.at(asked.at);
        let limit = limit(asked.limit)?;
        let after = asked.after.as_deref().map(Cursor::decode).transpose()?;
        let after = after.map(Cursor::pipeline).transpose()?;
        let filter = PipelineFilter::of(asked);
        let mut scan = Scan::new(limit);
        if asked.pipeline.is_empty() {
            let mut walk = reader.walk(after, limit);
            while let Some(count) = scan.wants() {
                let listed = walk.take(count).await?;
                let more = listed.len() == count;
                let described = reader.described(listed).await;
                scan.take(Page { items: described, more }, DescribedPipeline::cursor, |it| {
                    !it.is_retired() && filter.holds(&it.declared)
                });
            }
        } else {
            let listed = reader.named(&asked.pipeline, after.as_ref()).await?;
            let described = reader.described(listed).await;
            let page = Page { items: described, more: false };
            scan.take(page, DescribedPipeline::cursor, |it| filter.holds(&it.declared));
        }
        let page = scan.listing(|it| it);
        let standings = reader.standings_of(page.items, Breadth::Page).await?;
        let Listing { next, scanned, unreadable, .. } = page;
        Ok(Listing { items: standings, next, scanned, unreadable })
    }

    /// One pipeline, with all that it declares.
    pub async fn pipeline(&self, name: &str) -> Result<PipelineDetailAnswer, AnswerError> {
        let id = pipeline_id(name)?;
        let described = self.described(self.named(&[id.to_string()], None).await?).await;
        let standing = self.standings_of(described, Breadth::Page).await?.pop();
        let standing = standing.ok_or_else(|| AnswerError::unknown_pipeline(name))?;
        let declared = self.declarations.current(&id).await.ok().flatten();
        let declaration = declared.map_or(Value::Null, |declared| declaration_json(&declared));
        let open = self.open_slots_of(&id, PORTION).await?;
        let PipelineDurations { usual, running } = self.durations(&id, &open).await?;
        Ok(PipelineDetailAnswer { standing, usual, running, declaration })
    }

    /// Where everything stands that is declared or recorded and not retired, by name; or the one that is asked about, retired or not.
    pub async fn standings(
        &self,
        only: Option<&PipelineId>,
    ) -> Result<Vec<PipelineAnswer>, AnswerError> {
        if let Some(name) = only {
            let listed = self.named(&[name.to_string()], None).await?;
            let described = self.described(listed).await;
            return Ok(self.standings_of(described, Breadth::Everything).await?);
        }
        let mut walk = self.walk(None, usize::MAX);
        let listed = walk.take(usize::MAX).await?;
        let mut described = self.described(listed).await;
        described.retain(|it| !it.is_retired());
        Ok(self.standings_of(described, Breadth::Everything).await?)
    }

    /// The same as of another instant.
    pub(crate) fn at(&self, at: Option<Timestamp>) -> Self {
        Self { now: at.unwrap_or(self.now), ..*self }
    }

    /// Those of some names that are there, in the order of their names, behind a name.
    pub(crate) async fn named(
        &self,
        names: &[String],
        after: Option<&PipelineId>,
    ) -> Result<Vec<ListedPipeline>, AnswerError> {
        let names = names.iter().map(|name| pipeline_id(name)).collect::<Result<Vec<_>, _>>();
        let mut names = names?;
        names.retain(|name| after.is_none_or(|after| name > after));
        names.sort();
        names.dedup();
        let found = for_each(names, |name| async move {
            let row = self.agenda_row(&name).await?;
            Ok(ListedPipeline { name, row })
        });
        let mut found = found.await?;
        let is_declared = |name: &PipelineId| {
            self.declarations.declared().is_some_and(|all| all.contains_key(name))
        };
        found.retain(|it| it.row.is_some() || is_declared(&it.name));
        Ok(found)
    }

    /// Goes through pipelines by name, behind one; about so many are wanted.
    pub(crate) fn walk(&self, after: Option<PipelineId>, wanted: usize) -> PipelineWalk<'_> {
        PipelineWalk::new(self, after, wanted)
    }

    /// What is declared of some pipelines.
    pub(crate) async fn declared_of(
        &self,
        names: &[String],
    ) -> Result<BTreeMap<PipelineId, DeclaredAnswer>, AnswerError> {
        let described = self.described(self.named(names, None).await?).await;
        Ok(described.into_iter().map(|it| (it.listed.name, it.declared)).collect())
    }

    /// What is declared of pipelines, and when each is due next.
    async fn described(&self, listed: Vec<ListedPipeline>) -> Vec<DescribedPipeline> {
        let mut described = Vec::with_capacity(listed.len());
        let mut shared = Shared::default();
        for listed in listed {
            described.push(self.described_one(listed, &mut shared).await);
        }
        described
    }

    async fn described_one(
        &self,
        listed: ListedPipeline,
        shared: &mut Shared,
    ) -> DescribedPipeline {
        let record = listed.row.as_ref().map(|row| &row.record.record);
        let zones = |name: &str| self.declarations.zone(name);
        let agenda = record.and_then(|record| record.agenda.as_ref());
        let agenda = agenda.and_then(|agenda| agenda.to_core(shared, &zones).ok());
        let (known, problem) = match self.declarations.declared() {
            Some(all) => (all.get(&listed.name).cloned(), None),
            None => match self.stored_answer(&listed.name, record, agenda.as_ref()).await {
                Ok(found) => (found, None),
                Err(message) => (None, Some(message)),
            },
        };
        let mut declared = known.unwrap_or_default();
        declared.pipeline = listed.name.to_string();
        if declared.enabled {
            // What is recorded may be of another version than what is declared.
            let version = record.map(|record| &record.version);
            let agenda = agenda.filter(|_| version == declared.version.as_ref());
            declared.next = self.next_of(&listed.name, agenda).await;
        }
        DescribedPipeline { listed, declared, problem }
    }

    /// What a recorded pipeline declares, where what is recorded is what is declared.
    async fn stored_answer(
        &self,
        name: &PipelineId,
        record: Option<&PipelineRecord>,
        agenda: Option<&Agenda>,
    ) -> Result<Option<DeclaredAnswer>, String> {
        let Some(record) = record.filter(|record| record.retired_at.is_none()) else {
            return Ok(None);
        };
        if let (Some(about), Some(agenda)) = (&record.about, agenda) {
            let is_enabled = record.disabled_since.is_none();
            let recorded = RecordedDeclaration { name, version: &record.version, is_enabled };
            return Ok(Some(recorded.answer(about, agenda)));
        }
        // A row of a time that kept neither.
        let version = version_number(&record.version).map_err(|error| error.to_string())?;
        let declared = self.declarations.current(name).await?;
        Ok(declared.map(|declared| declared_answer(&declared, version)))
    }

    /// The next slot of a pipeline, by its agenda or else by its declaration.
    async fn next_of(&self, name: &PipelineId, agenda: Option<Agenda>) -> Option<NextAnswer> {
        if let Some(agenda) = agenda {
            return next_slot(&agenda, self.now);
        }
        let declared = self.declarations.current(name).await.ok()??;
        next_slot(&Agenda::of(&declared), self.now)
    }

    /// Where pipelines stand.
    async fn standings_of(
        &self,
        described: Vec<DescribedPipeline>,
        breadth: Breadth,
    ) -> Result<Vec<PipelineAnswer>, StoreError> {
        let rows: Vec<AgendaRow> =
            described.iter().filter_map(|it| it.listed.row.clone()).collect();
        let is_one = described.len() == 1;
        let mut recorded = match breadth {
            Breadth::Everything if !is_one => self.recorded_of_all().await?,
            Breadth::Page | Breadth::Everything => {
                let open_max = if breadth == Breadth::Page { OPEN_SHOWN } else { usize::MAX };
                self.recorded_of_each(&rows, open_max).await?
            }
        };
        recorded.last = last_slots(self, &rows, &recorded.open, breadth).await?;
        let shown = if breadth == Breadth::Page { OPEN_SHOWN } else { usize::MAX };
        let answers =
            described.into_iter().map(|it| self.pipeline_answer(it, &mut recorded, shown));
        Ok(answers.collect())
    }

    /// The open slots and the unfinished backfills of everything.
    async fn recorded_of_all(&self) -> Result<RecordedStandings, StoreError> {
        let mut found = RecordedStandings::default();
        for shard in (0..self.store.shard_count()).map(Shard) {
            let mut after = None;
            loop {
                let page = self.store.open_slots(shard, after.as_ref(), PORTION).await?;
                let last = page.items.last();
                after = last.map(|it| (it.pipeline.clone(), it.nominal, it.schedule.clone()));
                for row in page.items {
                    found.open.entry(row.pipeline.clone()).or_default().push(row);
                }
                if !page.more {
                    break;
                }
            }
        }
        for row in self.unfinished_backfills(None).await? {
            found.backfills.entry(row.pipeline.clone()).or_default().push(row);
        }
        Ok(found)
    }

    /// The same of some pipelines, of each no more open slots than that and one.
    async fn recorded_of_each(
        &self,
        rows: &[AgendaRow],
        open_max: usize,
    ) -> Result<RecordedStandings, StoreError> {
        let each = for_each(rows.iter().map(|row| &row.pipeline).collect(), |name| async move {
            let open = self.open_slots_of(name, open_max.saturating_add(1)).await?;
            let backfills = self.unfinished_backfills(Some(name)).await?;
            Ok((name.clone(), open, backfills))
        });
        let mut found = RecordedStandings::default();
        for (name, open, backfills) in each.await? {
            found.open.insert(name.clone(), open);
            found.backfills.insert(name, backfills);
        }
        Ok(found)
    }

    /// The open slots of a pipeline, in order of time, at most so many.
    pub(crate) async fn open_slots_of(
        &self,
        pipeline: &PipelineId,
        max: usize,
    ) -> Result<Vec<LedgerRow>, StoreError> {
        let mut query = LedgerQuery {
            pipeline: Some(pipeline.clone()),
            disposition: Some("open".to_owned()),
            ..LedgerQuery::everything(max.min(PORTION))
        };
        let mut open = Vec::new();
        loop {
            let page = self.store.ledger(&query).await?;
            query.after = page.items.last().map(LedgerRow::place);
            open.extend(page.items);
            if !page.more || open.len() >= max {
                return Ok(open);
            }
        }
    }

    async fn unfinished_backfills(
        &self,
        pipeline: Option<&PipelineId>,
    ) -> Result<Vec<BackfillRow>, StoreError> {
        let pipeline = pipeline.cloned();
        let mut query =
            BackfillQuery { pipeline, unfinished: true, limit: PORTION, ..Default::default() };
        let mut rows: Vec<BackfillRow> = Vec::new();
        loop {
            let page = self.store.backfills(&query).await?;
            rows.extend(page.items);
            if !page.more {
                return Ok(rows);
            }
            query.after = rows.last().map(|row| (row.pipeline.clone(), row.number));
        }
    }

    fn pipeline_answer(
        &self,
        described: DescribedPipeline,
        recorded: &mut RecordedStandings,
        open_shown: usize,
    ) -> PipelineAnswer {
        let DescribedPipeline { listed, declared, problem } = described;
        let ListedPipeline { name, row } = listed;
        let watermarks = row.iter().flat_map(|row| &row.watermarks);
        let watermarks = watermarks.map(|(id, row)| (id.to_string(), row.record.at)).collect();
        let record = row.as_ref().map(|row| &row.record.record);
        let pause = record.and_then(|record| record.pause.as_ref());
        let pause = pause.filter(|pause| pause.is_in_force(self.now));
        let open = recorded.open.remove(&name).unwrap_or_default();
        let backfills = recorded.backfills.remove(&name).unwrap_or_default();
        PipelineAnswer {
            first_seen: record.map(|record| record.first_seen),
            retired_at: record.and_then(|record| record.retired_at),
            paused: pause.map(|pause| PauseAnswer {
                reason: pause.reason.clone(),
                since: pause.since,
                until: pause.until,
            }),
            disabled: declared.version.is_some() && !declared.enabled,
            backfills: backfills.iter().map(backfill_progress).collect(),
            last: recorded.last.remove(&name).as_ref().map(slot_state_answer),
            open: open.iter().take(open_shown).map(slot_state_answer).collect(),
            more_open: open.len() > open_shown,
            watermarks,
            problem,
            declared,
        }
    }
}

impl DescribedPipeline {
    fn is_retired(&self) -> bool {
        let row = self.listed.row.as_ref();
        self.declared.version.is_none()
            && row.is_some_and(|row| row.record.record.retired_at.is_some())
    }

    fn cursor(&self) -> Cursor {
        Cursor::Pipelines { name: self.listed.name.to_string() }
    }
}

impl Cursor {
    /// The pipeline behind which a list of pipelines goes on.
    pub(crate) fn pipeline(self) -> Result<PipelineId, AnswerError> {
        let Self::Pipelines { name } = self else { return Err(not_ours()) };
        PipelineId::parse(&name).map_err(|_malformed| not_ours())
    }
}

fn backfill_progress(row: &BackfillRow) -> BackfillProgressAnswer {
    BackfillProgressAnswer {
        id: row.number,
        state: row.record.state.clone(),
        ended: row.record.counts.ended(),
        total: row.record.total,
    }
}

/// What a row of the ledger says, in short; of a span, about its last slot.
fn slot_state_answer(row: &LedgerRow) -> SlotStateAnswer {
    let LedgerRow { pipeline, schedule, .. } = row;
    let nominal = slot_instant(row);
    let key = SlotKey { pipeline: pipeline.clone(), schedule: schedule.clone(), nominal };
    let (state, disposition, reason) = match &row.entry {
        LedgerEntry::Slot(slot) => (slot.state.as_str(), slot.disposition.as_ref(), &slot.reason),
        LedgerEntry::Span(span) => ("closed", Some(&span.disposition), &span.reason),
    };
    SlotStateAnswer {
        slot: key.to_string(),
        schedule: key.schedule.to_string(),
        utc: nominal,
        state: state.to_owned(),
        disposition: disposition.map(ToString::to_string),
        reason: reason.as_ref().map(ToString::to_string),
    }
}

/// What a list of pipelines leaves out.
struct PipelineFilter<'a> {
    asked: &'a PipelinesQuery,
    text: Option<String>,
}

impl<'a> PipelineFilter<'a> {
    fn of(asked: &'a PipelinesQuery) -> Self {
        Self { asked, text: asked.q.as_ref().map(|text| text.to_lowercase()) }
    }

    fn holds(&self, declared: &DeclaredAnswer) -> bool {
        let PipelinesQuery { owner, label, .. } = self.asked;
        let has_label = |wanted: &String| match wanted.split_once('=') {
            Some((name, value)) => declared.labels.get(name).is_some_and(|it| it == value),
            None => declared.labels.contains_key(wanted),
        };
        let is_owner = declared.owner.as_ref().is_some_and(|it| owner.contains(it));
        let has_text = |text: &String| {
            let all =
                [Some(&declared.pipeline), declared.owner.as_ref(), declared.description.as_ref()];
            all.into_iter().flatten().any(|it| it.to_lowercase().contains(text.as_str()))
        };
        (owner.is_empty() || is_owner)
            && (label.is_empty() || label.iter().any(has_label))
            && self.text.as_ref().is_none_or(has_text)
    }
}
