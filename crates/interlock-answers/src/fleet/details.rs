//! What is read for the pipelines of one page: slots, runs, and the time before what is kept. As much as there is time for.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::{
    id::{PipelineId, ScheduleId},
    run::RunState,
    usual_duration::{RUNS_MAX, usual_duration},
};
use interlock_store::{RunQuery, RunRow, Store, StoreError, for_each};
use jiff::{SignedDuration, Timestamp};

use super::{
    cells::Quarter,
    history::PipelineHistory,
    planned::just_after,
    question::FleetQuestion,
    read::{read_ledger, read_ledger_carefully},
    seen::{DecidedSlot, QuarterRange, SeenRows},
    state::KnownDurations,
    tallied::{QUARTERS_KEPT, TalliedDeclaration, TalliedPipeline, first_kept},
};
use crate::model::fleet::{FleetPlace, FleetSlotAnswer};

/// Pipelines whose rows are read at once; between them it is asked whether there is time for more.
const AT_ONCE: usize = 8;
/// Exceptions of one row that are listed.
const EXCEPTIONS_MAX: usize = 100;
/// Slots of one row that are looked through for exceptions.
const LOOKED_THROUGH: u64 = 600;
/// Runs of one row that are read beside those of its slots: the usual duration is a median of so many.
const RUNS: usize = RUNS_MAX + 5;
/// About so many slots of one pipeline's past are read at once, and those of a day at least; of 45 days at most, because some stores look
/// at each hour.
const PAST_SLOTS: i64 = 3_000;
const DAY: i64 = 96;
const PAST_QUARTERS: i64 = 45 * DAY;
/// Pipelines whose past is read at once while a page waits.
const PAST_AT_ONCE: usize = 4;
/// How long the past of a pipeline is believed that nothing was heard of.
const BELIEVED: SignedDuration = SignedDuration::from_hours(1);

/// Says whether there is time to read more for this answer. It is first asked when reading begins.
pub type IsTimeLeft<'a> = &'a (dyn Fn() -> bool + Sync);

/// What was read of one pipeline.
#[derive(Debug, Default)]
pub(super) struct PipelineDetails {
    pub(super) durations: KnownDurations,
    pub(super) slots: Vec<FleetSlotAnswer>,
    pub(super) lists_all: bool,
    pub(super) has_more: bool,
}

/// A row of a pipeline, as far as reading for it is concerned.
#[derive(Debug, Clone)]
pub(super) struct DetailedPipeline {
    pub(super) name: PipelineId,
    pub(super) declared: TalliedDeclaration,
    pub(super) last: Option<DecidedSlot>,
    /// Whether all of the range is counted.
    pub(super) is_counted: bool,
    /// Its slots of the range, as far as they are counted.
    pub(super) slots: u64,
    /// Those of them that are exceptions.
    pub(super) exceptions: u64,
}

/// Reads for the rows of a page: first the runs of all, then slots.
pub(super) async fn read_details(
    store: &dyn Store,
    question: &FleetQuestion,
    pipelines: Vec<DetailedPipeline>,
    is_time_left: IsTimeLeft<'_>,
) -> Result<BTreeMap<PipelineId, PipelineDetails>, StoreError> {
    let mut found: BTreeMap<PipelineId, PipelineDetails> = BTreeMap::new();
    let mut runs = Vec::new();
    for some in pipelines.chunks(AT_ONCE) {
        if !is_time_left() {
            break;
        }
        runs.extend(for_each(some.iter().collect(), |it| read_runs(store, question, it)).await?);
    }
    for (pipeline, runs) in pipelines.iter().zip(&runs) {
        let durations = durations(pipeline, runs);
        let has_more = pipeline.exceptions > 0;
        let details = PipelineDetails { durations, has_more, ..PipelineDetails::default() };
        found.insert(pipeline.name.clone(), details);
    }
    let listed: Vec<_> = pipelines.iter().zip(&runs).collect();
    let listed: Vec<_> = listed.into_iter().filter(|(it, _)| it.is_listed(question)).collect();
    for some in listed.chunks(AT_ONCE) {
        if !is_time_left() {
            break;
        }
        let read = for_each(some.to_vec(), |(pipeline, runs)| async move {
            let details = read_slots(store, question, pipeline, runs).await?;
            Ok((pipeline.name.clone(), details))
        });
        found.extend(read.await?);
    }
    Ok(found)
}

impl DetailedPipeline {
    /// Whether each of its slots is listed.
    fn lists_all(&self, question: &FleetQuestion) -> bool {
        self.is_counted && self.slots <= question.slots_apart()
    }

    /// Whether any is.
    fn is_listed(&self, question: &FleetQuestion) -> bool {
        let is_looked_through = self.exceptions > 0 && self.slots <= LOOKED_THROUGH;
        self.lists_all(question) || (self.is_counted && is_looked_through)
    }
}

/// The newest runs of a pipeline: as many as its usual duration needs, and those of its slots.
async fn read_runs(
    store: &dyn Store,
    question: &FleetQuestion,
    pipeline: &DetailedPipeline,
) -> Result<Vec<RunRow>, StoreError> {
    let of_slots = if pipeline.lists_all(question) { pipeline.slots as usize } else { 0 };
    let limit = of_slots + RUNS;
    let query = RunQuery { pipeline: Some(pipeline.name.clone()), limit, ..RunQuery::default() };
    Ok(store.runs(&query).await?.items)
}

async fn read_slots(
    store: &dyn Store,
    question: &FleetQuestion,
    pipeline: &DetailedPipeline,
    runs: &[RunRow],
) -> Result<PipelineDetails, StoreError> {
    let lists_all = pipeline.lists_all(question);
    let durations = durations(pipeline, runs);
    let range = QuarterRange { from: question.from, until: question.until };
    let name = &pipeline.name;
    let seen = match read_ledger(store, Some(name), range).await {
        Err(error) if !error.is_retryable => {
            read_ledger_carefully(store, vec![name.clone()], range).await?
        }
        seen => seen?,
    };
    let empty = SeenRows::default();
    let each = seen.get(name).unwrap_or(&empty).each(range, &|id: &ScheduleId| {
        pipeline.declared.schedule(id).map(|it| Arc::clone(&it.start))
    });
    let mut slots = slot_answers(each, runs, &durations, question);
    if lists_all {
        slots.extend(planned_slots(pipeline, &slots, &durations, question));
    } else {
        slots.retain(|slot| slot.place.is_exception());
    }
    slots.sort_by(|one, other| (one.utc, &one.schedule).cmp(&(other.utc, &other.schedule)));
    let has_more = !lists_all && slots.len() > EXCEPTIONS_MAX;
    if !lists_all {
        // The newest are those that a person looks for.
        slots.drain(..slots.len().saturating_sub(EXCEPTIONS_MAX));
    }
    Ok(PipelineDetails { durations, slots, lists_all, has_more })
}

/// How long runs take: those of the schedule that completed last.
fn durations(pipeline: &DetailedPipeline, newest_first: &[RunRow]) -> KnownDurations {
    let is_completed = |run: &&RunRow| &*run.record.status == RunState::Completed.as_str();
    let last = newest_first.iter().find(is_completed);
    let Some(last) = last else {
        return KnownDurations { failure: failure(pipeline, newest_first), ..Default::default() };
    };
    let own = newest_first.iter().filter(|run| run.key.schedule == last.key.schedule);
    let took: Vec<_> = own.filter(is_completed).filter_map(|run| run.record.duration()).collect();
    KnownDurations {
        usual: usual_duration(&took).map(|usual| usual.as_secs()),
        last: last.record.duration().map(|took| took.as_secs()),
        failure: failure(pipeline, newest_first),
    }
}

/// Why the last decided slot failed.
fn failure(pipeline: &DetailedPipeline, newest_first: &[RunRow]) -> Option<String> {
    let last = pipeline.last.filter(|last| last.place == FleetPlace::Failed)?;
    let run = newest_first.iter().find(|run| run.key.nominal == last.at)?;
    let message = run.record.message.clone()?;
    Some(match run.key.attempt {
        attempt @ 2.. => format!("{message}, {attempt} attempts"),
        _ => message,
    })
}

fn slot_answers(
    each: Vec<(ScheduleId, DecidedSlot)>,
    newest_first: &[RunRow],
    durations: &KnownDurations,
    question: &FleetQuestion,
) -> Vec<FleetSlotAnswer> {
    let mut runs: BTreeMap<(&ScheduleId, Timestamp), &RunRow> = BTreeMap::new();
    for run in newest_first {
        runs.entry((&run.key.schedule, run.key.nominal)).or_insert(run);
    }
    let pixel = question.seconds_per_pixel();
    let answer = |(schedule, slot): (ScheduleId, DecidedSlot)| {
        let run = runs.get(&(&schedule, slot.at)).map(|run| &run.record);
        let run = run.filter(|run| {
            run.ended_at.is_none() || run.duration().is_some_and(|took| took.as_secs() >= pixel)
        });
        let started_at = run.and_then(|run| run.started_at.or(Some(run.created_at)));
        let is_running = slot.place == FleetPlace::Running;
        let end = |started_at: Timestamp| {
            let usual = SignedDuration::from_secs(durations.usual?);
            started_at.saturating_add(usual).ok().map(|end| end.max(question.now))
        };
        FleetSlotAnswer {
            word: word(slot).to_owned(),
            schedule: schedule.to_string(),
            utc: slot.at,
            place: slot.place,
            reason: slot.reason.map(|reason| reason.as_str().to_owned()),
            started_at,
            ended_at: run.and_then(|run| run.ended_at),
            expected_end: started_at.filter(|_| is_running).and_then(end),
        }
    };
    each.into_iter().map(answer).collect()
}

/// The word of its state or disposition.
fn word(slot: DecidedSlot) -> &'static str {
    match slot.place {
        FleetPlace::OnTime | FleetPlace::CaughtUp | FleetPlace::Late => "completed",
        FleetPlace::Missed if slot.reason.is_some() => "skipped",
        FleetPlace::Failed
        | FleetPlace::Missed
        | FleetPlace::Unknown
        | FleetPlace::Skipped
        | FleetPlace::Cancelled
        | FleetPlace::Running
        | FleetPlace::Waiting
        | FleetPlace::Planned => slot.place.as_str(),
    }
}

fn planned_slots(
    pipeline: &DetailedPipeline,
    recorded: &[FleetSlotAnswer],
    durations: &KnownDurations,
    question: &FleetQuestion,
) -> Vec<FleetSlotAnswer> {
    let mut found = Vec::new();
    let limit = question.slots_apart() as usize + 1;
    for schedule in &pipeline.declared.schedules {
        let from = schedule.owed_from.unwrap_or(question.now).max(question.from.start());
        let slots = schedule.start.schedule.slots(from, question.until.start(), limit).found;
        let id = schedule.start.schedule.id().to_string();
        for at in slots {
            if recorded.iter().any(|slot| slot.utc == at && slot.schedule == id) {
                continue;
            }
            let is_due = at < just_after(question.now);
            let place = if is_due { FleetPlace::Waiting } else { FleetPlace::Planned };
            let usual = durations.usual.map(SignedDuration::from_secs);
            found.push(FleetSlotAnswer {
                schedule: id.clone(),
                utc: at,
                place,
                word: place.as_str().to_owned(),
                reason: None,
                started_at: None,
                ended_at: None,
                expected_end: usual.and_then(|usual| at.saturating_add(usual).ok()),
            });
        }
    }
    found
}

/// The past of a pipeline of which something is not known.
pub(super) struct UnknownPast {
    pub(super) name: PipelineId,
    /// From when on it is asked for.
    pub(super) from: Quarter,
    declared: TalliedDeclaration,
    known: PipelineHistory,
    ranges: Vec<QuarterRange>,
}

impl UnknownPast {
    /// What is not known of a range's past; none if all of it is.
    pub(super) fn of(
        name: &PipelineId,
        pipeline: &TalliedPipeline,
        from: Quarter,
        now: Timestamp,
    ) -> Option<Self> {
        let (known, kept) = (pipeline.history.as_deref(), first_kept(now));
        if from >= kept {
            return None;
        }
        let is_fresh = |known: &&PipelineHistory| {
            now.duration_since(known.read_at).abs() < BELIEVED && known.until <= kept
        };
        let known = match known.filter(is_fresh) {
            Some(known) => known.clone(),
            None => PipelineHistory::empty(kept, now),
        };
        let mut ranges = Vec::new();
        if known.until < kept {
            ranges.push(QuarterRange { from: known.until, until: kept });
        }
        if from < known.from {
            let slots: u64 = pipeline.cells.counted().map(|cell| cell.count).sum();
            // What is behind that is read the next time.
            let quarters = QUARTERS_KEPT * PAST_SLOTS / (slots as i64).max(1);
            let first = from.max(known.from.after(-quarters.clamp(DAY, PAST_QUARTERS)));
            ranges.push(QuarterRange { from: first, until: known.from });
        }
        let (name, declared) = (name.clone(), pipeline.declared.clone());
        (!ranges.is_empty()).then_some(Self { name, from, declared, known, ranges })
    }

    async fn read(self, store: &dyn Store) -> Result<(PipelineId, PipelineHistory), StoreError> {
        let mut known = self.known;
        for range in self.ranges {
            let seen = match read_ledger(store, Some(&self.name), range).await {
                Err(error) if !error.is_retryable => {
                    read_ledger_carefully(store, vec![self.name.clone()], range).await?
                }
                seen => seen?,
            };
            let empty = SeenRows::default();
            let rows = seen.get(&self.name).unwrap_or(&empty);
            let counted = rows.counted(range, &|id: &ScheduleId| {
                self.declared.schedule(id).map(|it| Arc::clone(&it.start))
            });
            known = known.extended(range, counted);
        }
        Ok((self.name, known))
    }
}

/// Reads the past of pipelines, as many as there is time for.
pub(super) async fn read_past(
    store: &dyn Store,
    unknown: Vec<UnknownPast>,
    is_time_left: IsTimeLeft<'_>,
) -> Result<Vec<(PipelineId, PipelineHistory)>, StoreError> {
    let mut found = Vec::new();
    let mut unknown = unknown.into_iter();
    while is_time_left() {
        let some: Vec<_> = unknown.by_ref().take(PAST_AT_ONCE).collect();
        if some.is_empty() {
            break;
        }
        found.extend(for_each(some, |past| past.read(store)).await?);
    }
    Ok(found)
}
