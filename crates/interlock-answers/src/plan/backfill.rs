//! What a backfill would do: slots in a row with the same verdict are one line.

use std::collections::BTreeMap;

use interlock_core::{
    backfill::{Fingerprint, Place, Verdict},
    id::ScheduleId,
    pipeline::Pipeline,
    schedule::{Omission, Schedule},
    text::counted,
};
use interlock_engine::{Forecast, Prospect, ZoneOf, backfill_of};
use interlock_store::{
    Key, Record, Store, kept,
    record::{BackfillRecord, InboxRecord, version_text},
};
use jiff::Timestamp;

use crate::{
    AnswerError, ErrorCode, Reader,
    model::plan::{BackfillLineAnswer, BackfillPlanAnswer, BackfillPlanRequest},
};

/// Slots that are judged at a time.
const AT_ONCE: usize = 1_000;
/// Slots that one plan over HTTP goes through, at most.
const SLOTS_MAX: usize = 100_000;
/// Days that a calendar leaves out, of each schedule: most that are named.
const EXCLUDED_MAX: usize = 1_000;
/// A plan of more slots than this is told in ranges.
const EXPANDED_MAX: u64 = 10_000;

/// The verdicts, as scripts read them: it would run, it would wait, it ended, it is open, its schedule has yet to
/// record it, there is none.
const WOULD_RUN: &str = "would_run";
const NOT_READY: &str = "not_ready";
const EXISTS: &str = "exists";
const OPEN: &str = "open";
const OWED: &str = "owed";
const EXCLUDED: &str = "excluded";
/// Newest first.
const DESCENDING: &str = "desc";

/// What would be done.
#[derive(Debug)]
pub struct BackfillPlan {
    /// What was asked for, as it would begin.
    pub record: BackfillRecord,
    lines: Vec<BackfillLine>,
    /// How many slots would be opened: those that would run, and those that would wait until they are ready.
    pub total: u64,
    /// The hash of those.
    pub hash: String,
    /// How many slots there are.
    pub slots: u64,
}

/// Slots in a row of one schedule with the same verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BackfillLine {
    schedule: String,
    /// The first and the last, or the date that has none.
    what: LineExtent,
    count: u64,
    verdict: &'static str,
    /// How it ended, or why it is not ready or left out.
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LineExtent {
    Slots(Timestamp, Timestamp),
    Day(String),
}

impl BackfillPlanRequest {
    /// The request to the owner; a plan that was shown is part of it.
    pub fn to_inbox(&self, by: &str, plan: Option<&BackfillPlan>) -> InboxRecord {
        InboxRecord::StartBackfill {
            from: self.from,
            to: self.to,
            schedules: self.schedules.clone(),
            reprocess: self.reprocess.clone(),
            order: self.order.clone(),
            concurrency: self.concurrency,
            reason: self.reason.clone(),
            by: by.to_owned(),
            total: plan.map_or(0, |plan| plan.total),
            plan: plan.map(|plan| plan.hash.clone()).unwrap_or_default(),
        }
    }
}

impl Reader<'_> {
    /// What a backfill would do, for HTTP: a range of very many slots is refused.
    pub async fn plan_backfill(
        &self,
        name: &str,
        asked: &BackfillPlanRequest,
    ) -> Result<BackfillPlanAnswer, AnswerError> {
        let declared = self.declared_pipeline(name).await?;
        let record = self.backfill_record(&declared, asked).await?;
        let own = declared.starts.iter().map(|start| &start.schedule);
        let meant = own.filter(|it| record.schedules.iter().any(|id| id == it.id().as_str()));
        let count = |it: &Schedule| it.slots(record.from, record.to, SLOTS_MAX + 1).found.len();
        if meant.map(count).sum::<usize>() > SLOTS_MAX {
            return Err(AnswerError::question(
                ErrorCode::BadParameter,
                format!(
                    "there are more than {SLOTS_MAX} slots from {} to {}",
                    record.from, record.to
                ),
                "Ask for a shorter range, or plan it with `interlock backfill start --dry-run`."
                    .to_owned(),
            ));
        }
        Ok(self.backfill_plan(&declared, record).await?.answer(&declared))
    }

    /// The backfill that is asked for, as it would begin.
    pub async fn backfill_record(
        &self,
        declared: &Pipeline,
        asked: &BackfillPlanRequest,
    ) -> Result<BackfillRecord, AnswerError> {
        let record = backfill_of(declared, &asked.to_inbox("", None), self.now);
        let record = record.map_err(|reason| {
            AnswerError::question(ErrorCode::BadParameter, reason, String::new())
        })?;
        // What was taken out looks like what never was: nothing of that age runs unless a person says that it is missing.
        let floor = if asked.assume_missing { None } else { kept::floor(self.store).await? };
        match floor {
            Some(floor) if record.from < floor => Err(AnswerError::question(
                ErrorCode::Archived,
                format!("what was decided before {floor} may have been taken out of the ledger"),
                "Begin with `--from` at that instant, or say `--assume-missing` (`assumeMissing` over HTTP): what is not there then runs."
                    .to_owned(),
            )),
            Some(_) | None => Ok(record),
        }
    }

    /// Goes through the whole range, with what the ledger says.
    pub async fn backfill_plan(
        &self,
        spec: &Pipeline,
        record: BackfillRecord,
    ) -> Result<BackfillPlan, AnswerError> {
        let watermarks = self.backfill_watermarks(spec, &record).await?;
        let prospect = Prospect::new(spec, &record, |id| watermarks.get(id).copied());
        let prospect = prospect.map_err(|error| AnswerError::unreadable(&error))?;
        let zones = |name: &str| self.declarations.zone(name);
        let source: (&dyn Store, ZoneOf<'_>) = (self.store, &zones);
        let forecast = Forecast::new(source, spec).await?;
        let mut stretches = LineStretches::default();
        let (mut total, mut slots, mut hash) = (0, 0, Fingerprint::default());
        let mut cursor: Option<Place> = None;
        loop {
            let portion = prospect.portion(self.store, cursor.as_ref(), AT_ONCE).await?;
            for (place, verdict) in &portion.slots {
                slots += 1;
                let (word, reason) = match verdict {
                    Verdict::Run => {
                        total += 1;
                        hash = hash.with(place);
                        match forecast.forbids(place, self.now).await? {
                            Some(reason) => (NOT_READY, reason),
                            None => (WOULD_RUN, String::new()),
                        }
                    }
                    Verdict::Exists(disposition) => {
                        let reason = disposition.reason().map(|it| format!("({})", it.as_str()));
                        (EXISTS, disposition.as_str().to_owned() + &reason.unwrap_or_default())
                    }
                    Verdict::Open(state) => (OPEN, state.as_str().to_owned()),
                    Verdict::Owed => (OWED, "its schedule records it first".to_owned()),
                };
                stretches.take(place, word, reason);
            }
            cursor = portion.slots.last().map(|(place, _)| place.clone()).or(cursor);
            if portion.is_end {
                break;
            }
        }
        let mut lines = stretches.lines;
        lines.extend(excluded(spec, &record));
        Ok(BackfillPlan { record, lines, total, hash: version_text(hash.0), slots })
    }

    /// How far the schedules of a backfill are recorded, as far as that bounds it: while nothing records what is due, what is owed is the
    /// backfill's.
    async fn backfill_watermarks(
        &self,
        spec: &Pipeline,
        record: &BackfillRecord,
    ) -> Result<BTreeMap<ScheduleId, Timestamp>, AnswerError> {
        let mut keys = vec![Key::Pipeline];
        let ids = record.schedules.iter().filter_map(|id| ScheduleId::any(id).ok());
        let ids: Vec<ScheduleId> = ids.collect();
        keys.extend(ids.iter().cloned().map(Key::Watermark));
        let mut rows = self.store.read(&spec.name, &keys).await?.into_iter();
        let is_paused = match rows.next().flatten().map(|row| row.record) {
            Some(Record::Pipeline(row)) => {
                row.pause.as_ref().is_some_and(|pause| pause.is_in_force(self.now))
            }
            _ => false,
        };
        if is_paused || !spec.enabled || !self.declarations.is_recording() {
            return Ok(BTreeMap::new());
        }
        let watermark = |(id, row): (ScheduleId, Option<interlock_store::Row<Record>>)| {
            let Record::Watermark(watermark) = row?.record else { return None };
            Some((id, watermark.at))
        };
        Ok(ids.into_iter().zip(rows).filter_map(watermark).collect())
    }
}

/// The days of the range that a calendar or a skipped gap leaves out.
fn excluded(spec: &Pipeline, record: &BackfillRecord) -> Vec<BackfillLine> {
    let BackfillRecord { from, to, schedules, .. } = record;
    let own = spec.starts.iter().map(|start| &start.schedule);
    let meant = own.filter(|it| schedules.iter().any(|id| id == it.id().as_str()));
    let mut lines = Vec::new();
    for schedule in meant {
        for omission in schedule.omissions(*from, *to, EXCLUDED_MAX) {
            let (day, reason) = match omission {
                Omission::Date { date, reason } => (date.to_string(), reason),
                Omission::Gap { missing } => {
                    (missing.date().to_string(), format!("{} does not exist", missing.time()))
                }
            };
            let schedule = schedule.id().to_string();
            let what = LineExtent::Day(day);
            lines.push(BackfillLine { schedule, what, count: 0, verdict: EXCLUDED, reason });
        }
    }
    lines
}

/// Lines as they grow: for each schedule the last one is continued while its verdict stays.
#[derive(Default)]
struct LineStretches {
    lines: Vec<BackfillLine>,
    last: BTreeMap<ScheduleId, usize>,
}

impl LineStretches {
    fn take(&mut self, (slot, schedule): &Place, verdict: &'static str, reason: String) {
        let last = self.last.get(schedule).and_then(|index| self.lines.get_mut(*index));
        if let Some(line) = last
            && line.verdict == verdict
            && line.reason == reason
            && let LineExtent::Slots(first, last) = &mut line.what
        {
            (*first, *last) = ((*first).min(*slot), (*last).max(*slot));
            line.count += 1;
            return;
        }
        self.last.insert(schedule.clone(), self.lines.len());
        let what = LineExtent::Slots(*slot, *slot);
        let schedule = schedule.to_string();
        self.lines.push(BackfillLine { schedule, what, count: 1, verdict, reason });
    }
}

impl BackfillPlan {
    /// What stands over its rows.
    pub const HEADINGS: [&str; 4] = ["SCHEDULE", "SLOT", "VERDICT", "REASON"];

    /// Its lines as rows of a table.
    pub fn rows(&self) -> Vec<[String; 4]> {
        let row = |line: &BackfillLine| {
            let what = match &line.what {
                LineExtent::Slots(first, last) if first == last => first.to_string(),
                LineExtent::Slots(first, last) => {
                    format!("{first} to {last} ({} slots)", line.count)
                }
                LineExtent::Day(day) => day.clone(),
            };
            [line.schedule.clone(), what, line.verdict.replace('_', " "), line.reason.clone()]
        };
        self.lines.iter().map(row).collect()
    }

    /// How many slots their schedules have yet to record.
    pub fn owed(&self) -> u64 {
        self.having(OWED)
    }

    fn having(&self, verdict: &str) -> u64 {
        self.lines.iter().filter(|line| line.verdict == verdict).map(|line| line.count).sum()
    }

    /// How many days are left out.
    fn days(&self) -> u64 {
        self.lines.iter().filter(|line| line.verdict == EXCLUDED).count() as u64
    }

    /// How many slots there are of each verdict in a sentence, without those of which there are none.
    pub fn sum(&self) -> String {
        let days = self.days();
        verdict_sum(self.slots, |it| if it == EXCLUDED { days } else { self.having(it) })
    }

    /// How many of its slots run at a time.
    pub fn concurrency(&self, spec: &Pipeline) -> u32 {
        self.record.concurrency.min(spec.active_runs_max)
    }

    /// The plan as an answer.
    pub fn answer(&self, spec: &Pipeline) -> BackfillPlanAnswer {
        let slots = [WOULD_RUN, NOT_READY, EXISTS, OPEN, OWED];
        let verdicts = slots.into_iter().map(|word| (word.to_owned(), self.having(word)));
        let days = (EXCLUDED.to_owned(), self.days());
        let record = &self.record;
        BackfillPlanAnswer {
            pipeline: spec.name.to_string(),
            from: record.from,
            to: record.to,
            schedules: record.schedules.clone(),
            reprocess: record.reprocess.clone(),
            order: record.order.clone(),
            concurrency: self.concurrency(spec),
            count: self.slots,
            total: self.total,
            plan: self.hash.clone(),
            verdicts: verdicts.chain([days]).collect(),
            slots: self.line_answers(spec),
        }
    }

    /// The lines in the order of the backfill, slot by slot where there are not too many.
    fn line_answers(&self, spec: &Pipeline) -> Vec<BackfillLineAnswer> {
        let is_descending = self.record.order == DESCENDING;
        let mut found = Vec::new();
        for line in &self.lines {
            let mut own = spec.starts.iter().map(|start| &start.schedule);
            let Some(schedule) = own.find(|it| it.id().as_str() == line.schedule) else { continue };
            let mut put = |at: Timestamp, slots: Option<SlotRange>| {
                found.push(((at, line.schedule.clone()), line.answer(spec, schedule, slots)));
            };
            let (first, last) = match &line.what {
                LineExtent::Slots(first, last) => (*first, *last),
                LineExtent::Day(day) => {
                    put(beginning(schedule, day), None);
                    continue;
                }
            };
            if self.slots > EXPANDED_MAX {
                let at = if is_descending { last } else { first };
                put(at, Some(SlotRange { first, last, count: line.count }));
                continue;
            }
            let mut slot = Some(first);
            while let Some(at) = slot.filter(|at| *at <= last) {
                put(at, Some(SlotRange { first: at, last: at, count: 1 }));
                slot = schedule.after(at);
            }
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        if is_descending {
            found.reverse();
        }
        found.into_iter().map(|(_, answer)| answer).collect()
    }
}

/// Slots in a row.
#[derive(Clone, Copy)]
struct SlotRange {
    first: Timestamp,
    last: Timestamp,
    count: u64,
}

/// When a day begins in the zone of a schedule.
fn beginning(schedule: &Schedule, day: &str) -> Timestamp {
    let zone = schedule.timing().zone.time_zone();
    let date = day.parse::<jiff::civil::Date>().ok();
    let begins = date.and_then(|date| date.to_zoned(zone.clone()).ok());
    begins.map_or(Timestamp::MIN, |it| it.timestamp())
}

impl BackfillLine {
    fn answer(
        &self,
        spec: &Pipeline,
        schedule: &Schedule,
        slots: Option<SlotRange>,
    ) -> BackfillLineAnswer {
        let day = match (&self.what, slots) {
            (LineExtent::Day(day), _) => Some(day.clone()),
            (LineExtent::Slots(..), Some(range)) => {
                Some(schedule.occurrence(range.first).date.to_string())
            }
            (LineExtent::Slots(..), None) => None,
        };
        let single = slots.filter(|range| range.count == 1);
        let name = |range: SlotRange| format!("{}/{}/{}", spec.name, self.schedule, range.first);
        BackfillLineAnswer {
            schedule: self.schedule.clone(),
            slot: slots.map(|range| range.first),
            name: single.map(name),
            last: slots.map(|range| range.last),
            count: slots.map_or(0, |range| range.count),
            date: day,
            verdict: self.verdict.to_owned(),
            reason: Some(self.reason.clone()).filter(|reason| !reason.is_empty()),
        }
    }
}

impl BackfillPlanAnswer {
    /// The lines as rows of a table, under [`BackfillPlan::HEADINGS`]: slots of a schedule in a row with the same verdict are one, and the
    /// days that are left out come last.
    pub fn rows(&self) -> Vec<[String; 4]> {
        let mut stretches: Vec<BackfillLineAnswer> = Vec::new();
        let mut last: BTreeMap<&str, usize> = BTreeMap::new();
        let (days, slots): (Vec<_>, Vec<_>) =
            self.slots.iter().partition(|line| line.verdict == EXCLUDED);
        for line in slots {
            let before = last.get(line.schedule.as_str());
            let before = before.and_then(|index| stretches.get_mut(*index));
            let goes_on = |it: &&mut BackfillLineAnswer| {
                (&it.verdict, &it.reason) == (&line.verdict, &line.reason)
            };
            if let Some(before) = before.filter(goes_on) {
                before.slot = before.slot.min(line.slot);
                before.last = before.last.max(line.last);
                before.count += line.count;
            } else {
                last.insert(&line.schedule, stretches.len());
                stretches.push(line.clone());
            }
        }
        stretches.iter().chain(days).map(line_row).collect()
    }

    /// How many slots there are of each verdict in a sentence, without those of which there are none.
    pub fn sum(&self) -> String {
        let having = |verdict: &str| self.verdicts.get(verdict).copied().unwrap_or_default();
        verdict_sum(self.count, having)
    }
}

fn line_row(line: &BackfillLineAnswer) -> [String; 4] {
    let what = match (line.slot, line.last) {
        (Some(first), Some(last)) if first != last => {
            format!("{first} to {last} ({} slots)", line.count)
        }
        (Some(first), _) => first.to_string(),
        (None, _) => line.date.clone().unwrap_or_default(),
    };
    let reason = line.reason.clone().unwrap_or_default();
    [line.schedule.clone(), what, line.verdict.replace('_', " "), reason]
}

/// How many slots there are of each verdict.
fn verdict_sum(slots: u64, having: impl Fn(&str) -> u64) -> String {
    let mut parts = vec![format!("{} of {} would run", having(WOULD_RUN), counted(slots, "slot"))];
    let exist = if having(EXISTS) == 1 { "exists" } else { "exist" };
    for (verdict, words) in [
        (NOT_READY, "would wait because not ready"),
        (EXISTS, exist),
        (OPEN, "open"),
        (OWED, "owed"),
    ] {
        let count = having(verdict);
        parts.extend((count > 0).then(|| format!("{count} {words}")));
    }
    let days = having(EXCLUDED);
    parts.extend((days > 0).then(|| format!("{} excluded", counted(days, "day"))));
    parts.join(", ")
}
