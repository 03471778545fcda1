//! What is owed from before and what becomes of it, slot by slot.
//!
//! While an owner is at work, what it has in its rows is in force; while none is, the files are, because the next one takes them over
//! before it plans.

use std::collections::BTreeMap;

use interlock_core::{
    agenda::{Agenda, Work},
    id::{PipelineId, ScheduleId},
    schedule::Schedule,
    succession::{Heir, Succession},
};
use interlock_engine::{EngineError, Owing, PlanLine, pause_after, preview_away};
use interlock_store::{
    AgendaRow, LedgerRow, Shard, StoreError, for_each,
    record::{PauseRecord, Shared},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    AnswerError, Cursor, DeclarationInForce, Reader, SCAN_MAX,
    model::plan::{CatchupPlanAnswer, CatchupPlanQuery, PlanHash, PlanLineAnswer},
};

/// A range of more slots than this is told as one, and so is what comes behind so many slots of a plan.
pub(super) const EXPANDED_MAX: u64 = 10_000;
/// A plan goes on in another part behind so many lines.
const LINES_MAX: usize = 10_000;
/// Pipelines that are read at once.
const PORTION: usize = 500;
/// Rows asked for at once.
const PAGE: usize = 1_000;

/// What becomes of what is owed.
#[derive(Debug, Default)]
pub struct CatchupLines {
    /// In order of time for each pipeline.
    pub lines: Vec<PlanLine>,
    /// The pipelines that are paused, and since when.
    pub paused: Vec<(PipelineId, Timestamp)>,
}

impl Reader<'_> {
    /// What a restart would do with everything that is owed from before.
    pub async fn plan_catchup(
        &self,
        asked: &CatchupPlanQuery,
    ) -> Result<CatchupPlanAnswer, AnswerError> {
        let reader = self.planned_at(asked.at)?;
        let after = asked.after.as_deref().map(Cursor::decode).transpose()?;
        let after = after.map(Cursor::pipeline).transpose()?;
        let mut found = CatchupLines::default();
        let (mut scanned, mut next) = (0, None);
        if asked.pipeline.is_empty() {
            let mut walk = reader.walk(after, PORTION);
            while next.is_none() {
                let listed = walk.take(PORTION).await?;
                let is_last = listed.len() < PORTION;
                for listed in listed {
                    let Some(row) = listed.row else { continue };
                    scanned += 1;
                    reader.add_catchup(&row, None, &mut found).await?;
                    if found.lines.len() >= LINES_MAX || scanned >= SCAN_MAX as u64 {
                        next = Some(Cursor::Pipelines { name: row.pipeline.to_string() }.encode());
                        break;
                    }
                }
                if is_last {
                    break;
                }
            }
        } else {
            for listed in reader.named(&asked.pipeline, after.as_ref()).await? {
                let Some(row) = listed.row else { continue };
                scanned += 1;
                reader.add_catchup(&row, None, &mut found).await?;
            }
        }
        let (plan, counts) = (hash_of(&found.lines), counts_of(&found.lines));
        let lines = line_answers(&reader, &found.lines, EXPANDED_MAX).await;
        Ok(CatchupPlanAnswer {
            at: reader.now,
            plan,
            has_ranges: lines.iter().any(|line| line.count > 1),
            lines,
            counts,
            paused: found.paused.iter().map(|(name, _)| name.to_string()).collect(),
            scanned,
            next,
        })
    }

    /// The same of all pipelines or of one, however many lines that are.
    pub async fn catchup_lines(
        &self,
        only: Option<&PipelineId>,
    ) -> Result<CatchupLines, AnswerError> {
        let mut found = CatchupLines::default();
        if let Some(only) = only {
            if let Some(row) = self.agenda_row(only).await? {
                self.add_catchup(&row, None, &mut found).await?;
            }
            return Ok(found);
        }
        let open = self.open_slots().await?;
        let mut walk = self.walk(None, usize::MAX);
        for listed in walk.take(usize::MAX).await? {
            let Some(row) = listed.row else { continue };
            let open = open.get(&row.pipeline).map_or(&[][..], Vec::as_slice);
            self.add_catchup(&row, Some(open), &mut found).await?;
        }
        Ok(found)
    }

    /// The open slots of everything.
    async fn open_slots(&self) -> Result<BTreeMap<PipelineId, Vec<LedgerRow>>, StoreError> {
        let shards = (0..self.store.shard_count()).map(Shard).collect();
        let each = for_each(shards, |shard| async move {
            let (mut rows, mut after) = (Vec::new(), None);
            loop {
                let page = self.store.open_slots(shard, after.as_ref(), PAGE).await?;
                let last = page.items.last();
                after = last.map(|it| (it.pipeline.clone(), it.nominal, it.schedule.clone()));
                rows.extend(page.items);
                if !page.more {
                    return Ok(rows);
                }
            }
        });
        let mut all: BTreeMap<PipelineId, Vec<LedgerRow>> = BTreeMap::new();
        for row in each.await?.into_iter().flatten() {
            all.entry(row.pipeline.clone()).or_default().push(row);
        }
        Ok(all)
    }

    async fn add_catchup(
        &self,
        row: &AgendaRow,
        open: Option<&[LedgerRow]>,
        found: &mut CatchupLines,
    ) -> Result<(), AnswerError> {
        let pause = row.record.record.pause.as_ref();
        if let Some(pause) = pause.filter(|pause| pause.is_in_force(self.now)) {
            found.paused.push((row.pipeline.clone(), pause.since));
        }
        found.lines.extend(self.owed_lines(row, pause, open).await?);
        Ok(())
    }

    /// What becomes of what a pipeline owes, in order of time, if a pause is its last one; its open slots are read unless they are known.
    pub(super) async fn owed_lines(
        &self,
        row: &AgendaRow,
        pause: Option<&PauseRecord>,
        open: Option<&[LedgerRow]>,
    ) -> Result<Vec<PlanLine>, AnswerError> {
        let (record, pipeline) = (&row.record.record, &row.pipeline);
        let unreadable =
            |message: String| AnswerError::unreadable_declaration(pipeline.as_str(), &message);
        let in_force = self.declarations.in_force(row).await.map_err(unreadable)?;
        let zones = |name: &str| self.declarations.zone(name);
        let stored = record.agenda.as_ref();
        let stored = stored.and_then(|it| it.to_core(&mut Shared::default(), &zones).ok());
        let agenda = match in_force {
            DeclarationInForce::Stored if record.retired_at.is_some() => None,
            DeclarationInForce::Stored => stored.clone(),
            DeclarationInForce::Declared(ref declared) => Some(Agenda::of(declared)),
            DeclarationInForce::Gone => None,
        };
        let is_declared = matches!(in_force, DeclarationInForce::Declared(_));
        let is_enabled_again =
            is_declared && agenda.as_ref().is_some_and(|agenda| agenda.work != Work::Dormant);
        let was_disabled_since = record.disabled_since.filter(|_| is_enabled_again);
        let pause = pause_after(pause, was_disabled_since, self.now);
        let was_owed =
            |stored: &&Agenda| stored.work != Work::Dormant || record.disabled_since.is_some();
        let old = match &stored {
            _ if record.retired_at.is_some() => None,
            Some(stored) => Some(stored).filter(was_owed),
            // A row of a time that kept no agendas goes on.
            None => agenda.as_ref(),
        };
        let owed = OwedPipeline {
            row,
            last: stored.as_ref(),
            old,
            agenda: agenda.as_ref(),
            pause: pause.as_ref(),
        };
        Ok(self.foresee(&owed, open).await?)
    }

    async fn foresee(
        &self,
        owed: &OwedPipeline<'_>,
        open: Option<&[LedgerRow]>,
    ) -> Result<Vec<PlanLine>, EngineError> {
        let (row, now) = (owed.row, self.now);
        let pipeline = &row.pipeline;
        let watermarks = row.watermarks.iter().map(|(id, row)| (id, row.record.at));
        let mut watermarks: BTreeMap<&ScheduleId, Timestamp> = watermarks.collect();
        let known = watermarks.clone();
        let watermark = |id: &ScheduleId| known.get(id).copied();
        let OwedPipeline { last, old, agenda, pause, .. } = *owed;
        let heir = Heir { old, last, new: agenda, watermark, is_settled: false, now };
        let Succession { begins, away } = heir.succeed();
        let mut lines = Vec::new();
        for away in &away {
            lines.extend(preview_away(self.store, pipeline, away).await?);
        }
        watermarks.extend(begins);
        let back = away.iter().filter(|away| away.is_back);
        watermarks.extend(back.map(|away| (away.start.schedule.id(), away.until)));
        let Some(agenda) = agenda else { return Ok(lines) };
        let read;
        let open = if let Some(open) = open {
            open
        } else {
            read = self.open_slots_of(pipeline, usize::MAX).await?;
            &read
        };
        let is_due = |start: &Schedule| {
            let since = watermarks.get(start.id()).copied();
            since.is_none_or(|since| start.after(since).is_some_and(|at| at <= now))
        };
        // Of most there is nothing to tell, and nothing is read for that.
        if open.is_empty() && !agenda.starts.iter().any(|start| is_due(&start.schedule)) {
            return Ok(lines);
        }
        let declared = self.declarations.current(pipeline).await;
        let declared = declared.map_err(EngineError::Declaration)?;
        let owing = Owing { pipeline, agenda, watermarks, pause, now };
        lines.extend(owing.preview(self.store, declared.as_deref(), open).await?);
        Ok(lines)
    }
}

/// A pipeline, and by what it owes its slots.
struct OwedPipeline<'a> {
    row: &'a AgendaRow,
    /// What was last declared.
    last: Option<&'a Agenda>,
    /// The same, if its slots were owed.
    old: Option<&'a Agenda>,
    /// What is declared now.
    agenda: Option<&'a Agenda>,
    pause: Option<&'a PauseRecord>,
}

/// The hash of what lines decide.
pub(super) fn hash_of(lines: &[PlanLine]) -> String {
    let mut hash = PlanHash::default();
    for line in lines {
        let PlanLine { pipeline, schedule, slot, last, count, action, reason } = line;
        hash.add(&format!("{pipeline}/{schedule}/{slot}/{last}/{count} {action} {reason}"));
    }
    hash.finish()
}

/// How many slots there are of each action.
pub(super) fn counts_of(lines: &[PlanLine]) -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for line in lines {
        *counts.entry(line.action.to_owned()).or_default() += line.count;
    }
    counts
}

/// A line for each slot, in order of time for each pipeline; a very long range stays one, and so do those behind so many slots.
pub async fn line_answers(
    reader: &Reader<'_>,
    lines: &[PlanLine],
    slots_max: u64,
) -> Vec<PlanLineAnswer> {
    let (mut single, mut left) = (Vec::new(), slots_max);
    for line in lines {
        let is_listed = (2..=EXPANDED_MAX.min(left)).contains(&line.count);
        let slots = if is_listed { expand(reader, line).await } else { None };
        match slots {
            Some(slots) => {
                let one = |slot| PlanLine { slot, last: slot, count: 1, ..line.clone() };
                left = left.saturating_sub(line.count);
                single.extend(slots.into_iter().map(one));
            }
            None => single.push(line.clone()),
        }
    }
    single.sort_by(|one, other| {
        (&one.pipeline, one.slot, &one.schedule).cmp(&(
            &other.pipeline,
            other.slot,
            &other.schedule,
        ))
    });
    single.iter().map(line_answer).collect()
}

/// The slots of a line, as long as they are those of the declaration.
async fn expand(reader: &Reader<'_>, line: &PlanLine) -> Option<Vec<Timestamp>> {
    let declared = reader.declarations.current(&line.pipeline).await.ok()??;
    let mut starts = declared.starts.iter().map(|start| &start.schedule);
    let schedule = starts.find(|schedule| schedule.id().as_str() == line.schedule)?;
    let end = line.last.saturating_add(SignedDuration::from_nanos(1)).ok()?;
    let slots = schedule.slots(line.slot, end, usize::MAX).found;
    (slots.len() as u64 == line.count).then_some(slots)
}

fn line_answer(line: &PlanLine) -> PlanLineAnswer {
    let name = || format!("{}/{}/{}", line.pipeline, line.schedule, line.slot);
    PlanLineAnswer {
        pipeline: line.pipeline.to_string(),
        schedule: line.schedule.clone(),
        slot: line.slot,
        name: (line.count == 1).then(name),
        last: line.last,
        count: line.count,
        action: line.action.to_owned(),
        reason: line.reason.to_owned(),
    }
}
