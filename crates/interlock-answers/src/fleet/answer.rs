//! The answer: a page of rows out of the tally, with what is read for its pipelines.

use std::collections::BTreeMap;

use interlock_core::id::PipelineId;
use interlock_store::record::PauseRecord;
use jiff::{SignedDuration, Timestamp, civil::Date};

use super::{
    cells::{CountedCell, Quarter},
    details::{
        DetailedPipeline, IsTimeLeft, PipelineDetails, UnknownPast, read_details, read_past,
    },
    planned::{DueRange, PlannedSlots, unrecorded},
    question::FleetQuestion,
    state::{KnownDurations, short},
    survey::{FleetLine, survey},
    table::{FleetTable, FleetTally},
    tallied::{TalliedPipeline, first_kept},
};
use crate::{
    AnswerError, Reader,
    model::{
        coverage::CoverageGapsQuery,
        fleet::{
            ClockChangeAnswer, FleetAnswer, FleetCellAnswer, FleetCountsAnswer, FleetPeriodAnswer,
            FleetPlace, FleetQuery, FleetRowAnswer, FleetState, FleetStatesAnswer,
        },
        pipeline::{NextAnswer, PauseAnswer},
    },
};

/// Unreadable rows that are listed.
const UNREADABLE_MAX: usize = 20;
/// Blind periods and clock changes that are listed: the newest.
const PERIODS_MAX: usize = 200;
/// Days of a range that are looked at for what calendars leave out.
const DAYS_MAX: usize = 130;

/// What rows are made of.
struct RowParts<'a> {
    table: &'a FleetTable,
    question: &'a FleetQuestion,
    planned: PlannedSlots,
    details: BTreeMap<PipelineId, PipelineDetails>,
}

/// Slots by bucket.
struct BucketCounts {
    buckets: Vec<FleetCountsAnswer>,
}

impl Reader<'_> {
    /// The fleet, out of a tally that a follower keeps. What it takes to read for a page is read while there is time left; what is not read
    /// is said (`countedFrom`, `listsAllSlots`), and is there the next time.
    pub async fn fleet(
        &self,
        tally: &FleetTally,
        asked: &FleetQuery,
        is_time_left: IsTimeLeft<'_>,
    ) -> Result<FleetAnswer, AnswerError> {
        let question = FleetQuestion::of(asked, self.declarations, self.now)?;
        let (survey, unknown) = {
            let mut table = tally.write();
            let survey = survey(&mut table, &question);
            let unknown = unknown_past(&table, &survey.lines, &question);
            (survey, unknown)
        };
        let wanted: Vec<_> = unknown.iter().map(|past| past.name.clone()).collect();
        let past = read_past(self.store, unknown, is_time_left).await?;
        if !wanted.is_empty() {
            let mut table = tally.write();
            for (name, history) in past {
                table.keep_history(&name, history);
            }
            for name in wanted {
                let pipeline = table.pipeline(&name);
                let from = question.from;
                if pipeline.is_some_and(|it| UnknownPast::of(&name, it, from, self.now).is_some()) {
                    table.want(&name, from);
                }
            }
        }
        let mut planned = PlannedSlots::default();
        let detailed = detailed(&tally.read(), &survey.lines, &question, &mut planned);
        let details = read_details(self.store, &question, detailed, is_time_left).await?;
        let blind = self.blind(&question).await?;
        let table = tally.read();
        let mut parts = RowParts { table: &table, question: &question, planned, details };
        let items = survey.lines.iter().filter_map(|line| parts.row(line)).collect();
        Ok(FleetAnswer {
            now: self.now,
            from: question.from.start(),
            until: question.until.start(),
            bucket_seconds: question.bucket as u32,
            buckets: question.buckets(),
            items,
            sections: survey.sections,
            next: survey.next,
            pipelines: survey.states,
            groups: survey.groups,
            totals: survey.totals,
            blind,
            clock_changes: clock_changes(&question),
            freshness: table.freshness(),
            unreadable: table.unreadable(UNREADABLE_MAX),
        })
    }

    async fn blind(
        &self,
        question: &FleetQuestion,
    ) -> Result<Vec<crate::model::coverage::CoverageGapAnswer>, AnswerError> {
        let asked = CoverageGapsQuery {
            from: Some(question.from.start()),
            until: Some(question.until.start()),
        };
        match self.coverage_gaps(&asked).await {
            Ok(found) => {
                let mut gaps = found.items;
                gaps.drain(..gaps.len().saturating_sub(PERIODS_MAX));
                Ok(gaps)
            }
            Err(error) => Err(error),
        }
    }
}

/// What is not known of the past of the pipelines of a page.
fn unknown_past(
    table: &FleetTable,
    lines: &[FleetLine],
    question: &FleetQuestion,
) -> Vec<UnknownPast> {
    if question.from >= first_kept(question.now) {
        return vec![];
    }
    let names = lines.iter().flat_map(FleetLine::names);
    let unknown = names.filter_map(|name| {
        UnknownPast::of(name, table.pipeline(name)?, question.from, question.now)
    });
    unknown.collect()
}

/// The pipelines of a page that are rows of their own.
fn detailed(
    table: &FleetTable,
    lines: &[FleetLine],
    question: &FleetQuestion,
    planned: &mut PlannedSlots,
) -> Vec<DetailedPipeline> {
    let one = |line: &FleetLine| {
        let FleetLine::Pipeline { name, .. } = line else { return None };
        let pipeline = table.pipeline(name)?;
        let mut counts = BucketCounts::new(question);
        counts.add(pipeline, question, planned);
        let sum = counts.sum();
        let exceptions = FleetPlace::ALL.into_iter().filter(|place| place.is_exception());
        Some(DetailedPipeline {
            name: name.clone(),
            declared: pipeline.declared.clone(),
            last: pipeline.last,
            is_counted: counted_from(question, std::iter::once(pipeline)) <= question.from.start(),
            slots: sum.sum(),
            exceptions: exceptions.map(|place| sum.of(place)).sum(),
        })
    };
    lines.iter().filter_map(one).collect()
}

impl BucketCounts {
    fn new(question: &FleetQuestion) -> Self {
        Self { buckets: vec![FleetCountsAnswer::default(); question.buckets() as usize] }
    }

    fn add(
        &mut self,
        pipeline: &TalliedPipeline,
        question: &FleetQuestion,
        planned: &mut PlannedSlots,
    ) {
        let kept = first_kept(question.now);
        let past = pipeline.history.iter().flat_map(|history| history.counted());
        let past = past.filter(|_| question.from < kept);
        let known = pipeline.cells.counted().filter(|cell| cell.at >= kept);
        for CountedCell { at, place, count } in known.chain(past) {
            if let Some(bucket) = question.bucket_of(at) {
                self.add_in(bucket, place, count);
            }
        }
        planned.of(pipeline, question, |bucket, count| {
            self.add_in(bucket, FleetPlace::Planned, count);
        });
        for schedule in &pipeline.declared.schedules {
            let due = DueRange { since: question.from.start(), now: question.now };
            for at in unrecorded(pipeline, schedule, due) {
                if let Some(bucket) = question.bucket_of(Quarter::of(at)) {
                    self.add_in(bucket, FleetPlace::Waiting, 1);
                }
            }
        }
    }

    fn add_in(&mut self, bucket: u32, place: FleetPlace, count: u64) {
        if let Some(counts) = self.buckets.get_mut(bucket as usize) {
            counts.add(place, count);
        }
    }

    fn sum(&self) -> FleetCountsAnswer {
        let mut sum = FleetCountsAnswer::default();
        for counts in &self.buckets {
            for place in FleetPlace::ALL {
                sum.add(place, counts.of(place));
            }
        }
        sum
    }

    fn cells(&self) -> Vec<FleetCellAnswer> {
        let cells = self.buckets.iter().enumerate();
        let cells = cells.filter(|(_, counts)| **counts != FleetCountsAnswer::default());
        cells.map(|(at, counts)| FleetCellAnswer { bucket: at as u32, counts: *counts }).collect()
    }
}

impl RowParts<'_> {
    /// A row; none of a pipeline that has gone meanwhile.
    fn row(&mut self, line: &FleetLine) -> Option<FleetRowAnswer> {
        match line {
            FleetLine::Pipeline { name, group, state } => {
                self.pipeline_row(name, group.clone(), *state)
            }
            FleetLine::Group { group, members, states, worst } => {
                Some(self.group_row(group.clone(), members, (*states, *worst)))
            }
        }
    }

    fn pipeline_row(
        &mut self,
        name: &PipelineId,
        group: Option<String>,
        state: FleetState,
    ) -> Option<FleetRowAnswer> {
        let pipeline = self.table.pipeline(name)?;
        let (question, now) = (self.question, self.question.now);
        let mut counts = BucketCounts::new(question);
        counts.add(pipeline, question, &mut self.planned);
        let details = self.details.remove(name).unwrap_or_default();
        let reason = self.reason(name, pipeline, state, &details.durations);
        let mut states = FleetStatesAnswer::default();
        states.add(state);
        let about = &pipeline.declared.about;
        let pause = pipeline.declared.pause.as_deref();
        Some(FleetRowAnswer {
            pipeline: Some(name.to_string()),
            group,
            pipelines: 1,
            state,
            reason: short(&reason),
            reason_in_full: reason,
            needs_attention: state.needs_attention(),
            states,
            usual_seconds: details.durations.usual,
            next: next(pipeline, now),
            trigger: about.trigger.as_deref().map(str::to_owned),
            is_watch_only: pipeline.declared.is_watch_only,
            owner: about.owner.as_deref().map(str::to_owned),
            labels: about.labels.clone(),
            paused: pause.filter(|pause| pause.is_in_force(now)).map(|pause| PauseAnswer {
                reason: pause.reason.clone(),
                since: pause.since,
                until: pause.until,
            }),
            counts: counts.sum(),
            cells: counts.cells(),
            counted_from: counted_from(question, std::iter::once(pipeline)),
            lists_all_slots: details.lists_all,
            slots: details.slots,
            has_more_slots: details.has_more,
            pauses: pauses(pause, question),
            excluded: excluded(pipeline, question),
        })
    }

    fn reason(
        &self,
        name: &PipelineId,
        pipeline: &TalliedPipeline,
        state: FleetState,
        known: &KnownDurations,
    ) -> String {
        let own = pipeline.problem.as_deref().map(|problem| problem.message.as_str());
        match self.table.unreadable.get(name).map(String::as_str).or(own) {
            Some(problem) => format!("a row cannot be read: {problem}"),
            None => pipeline.reason(state, known, self.question.now, &self.question.zone),
        }
    }

    fn group_row(
        &mut self,
        group: Option<String>,
        members: &[PipelineId],
        (states, worst): (FleetStatesAnswer, FleetState),
    ) -> FleetRowAnswer {
        let question = self.question;
        let mut counts = BucketCounts::new(question);
        let pipelines: Vec<_> =
            members.iter().filter_map(|name| self.table.pipeline(name)).collect();
        for pipeline in &pipelines {
            counts.add(pipeline, question, &mut self.planned);
        }
        let sum = counts.sum();
        let mut reason = states.reason(worst);
        if !worst.needs_attention() && sum.skipped > 0 {
            reason = format!("{reason}; {} skipped", sum.skipped);
        }
        let next = pipelines.iter().filter_map(|it| next(it, question.now));
        let is_by_owner = question.group == Some(super::question::GroupBy::Owner);
        FleetRowAnswer {
            pipeline: None,
            owner: group.clone().filter(|_| is_by_owner),
            group,
            pipelines: states.pipelines,
            state: worst,
            reason: short(&reason),
            reason_in_full: reason,
            needs_attention: worst.needs_attention(),
            states,
            usual_seconds: None,
            next: next.min_by_key(|next| next.utc),
            trigger: None,
            is_watch_only: false,
            labels: BTreeMap::new(),
            paused: None,
            counts: sum,
            cells: counts.cells(),
            counted_from: counted_from(question, pipelines.into_iter()),
            lists_all_slots: false,
            slots: vec![],
            has_more_slots: false,
            pauses: vec![],
            excluded: vec![],
        }
    }
}

/// From when on the slots of all of them are counted.
fn counted_from<'a>(
    question: &FleetQuestion,
    pipelines: impl Iterator<Item = &'a TalliedPipeline>,
) -> Timestamp {
    let (from, kept) = (question.from, first_kept(question.now));
    if from >= kept {
        return from.start();
    }
    let known = pipelines.map(|it| match it.history.as_deref() {
        Some(history) if history.until >= kept => history.from,
        // What has left the last 48 hours since is to be read first.
        Some(_) | None => kept,
    });
    known.max().unwrap_or(from).max(from).start()
}

fn next(pipeline: &TalliedPipeline, now: Timestamp) -> Option<NextAnswer> {
    let (utc, schedule) = pipeline.next(now)?;
    Some(NextAnswer { schedule: schedule.to_owned(), utc })
}

/// The pauses that touch a range, as far as the row still says of them.
fn pauses(pause: Option<&PauseRecord>, question: &FleetQuestion) -> Vec<FleetPeriodAnswer> {
    let (from, until) = (question.from.start(), question.until.start());
    let all = pause.into_iter().flat_map(PauseRecord::all);
    let touching =
        all.filter(|it| it.since < until && it.until.is_none_or(|end| end > from.max(it.since)));
    touching
        .map(|it| FleetPeriodAnswer { from: it.since, until: it.until, reason: it.reason.clone() })
        .collect()
}

/// The days on which calendars leave out all slots of a pipeline.
fn excluded(pipeline: &TalliedPipeline, question: &FleetQuestion) -> Vec<FleetPeriodAnswer> {
    let has_calendars =
        |it: &super::tallied::TalliedSchedule| !it.start.schedule.timing().days.is_empty();
    let schedules = &pipeline.declared.schedules;
    if schedules.is_empty() || !schedules.iter().all(has_calendars) {
        return vec![];
    }
    let Some(first) = schedules.first() else { return vec![] };
    let zone = first.start.schedule.timing().zone.time_zone().clone();
    let mut day = question.from.start().to_zoned(zone.clone()).date();
    let mut found: Vec<FleetPeriodAnswer> = Vec::new();
    let is_left_out =
        |day: Date| schedules.iter().all(|it| !it.start.schedule.timing().days.allows(day));
    for _ in 0..DAYS_MAX {
        let (Ok(from), Ok(next)) = (day.to_zoned(zone.clone()), day.tomorrow()) else { break };
        let Ok(until) = next.to_zoned(zone.clone()) else { break };
        let (from, until) = (from.timestamp(), until.timestamp());
        if from >= question.until.start() {
            break;
        }
        if is_left_out(day) {
            match found.last_mut() {
                Some(last) if last.until == Some(from) => last.until = Some(until),
                _ => {
                    let reason = "left out by a calendar".to_owned();
                    found.push(FleetPeriodAnswer { from, until: Some(until), reason });
                }
            }
        }
        day = next;
    }
    found
}

/// When the clocks of the zone are changed.
fn clock_changes(question: &FleetQuestion) -> Vec<ClockChangeAnswer> {
    let (from, until) = (question.from.start(), question.until.start());
    let changes = question.zone.following(from.saturating_sub(MOMENT).unwrap_or(from));
    let changes = changes.map(|change| change.timestamp()).take_while(|at| *at < until);
    changes
        .take(PERIODS_MAX)
        .filter_map(|utc| {
            let before = utc.saturating_sub(MOMENT).ok()?;
            let offset = |at| question.zone.to_offset(at).seconds();
            let shift_seconds = offset(utc) - offset(before);
            let zone = question.zone_name.clone();
            (shift_seconds != 0).then_some(ClockChangeAnswer { utc, zone, shift_seconds })
        })
        .collect()
}

const MOMENT: SignedDuration = SignedDuration::from_secs(1);

impl FleetTally {
    /// Slots by place and quarter of an hour, of each pipeline: what a recount is compared with.
    pub fn cells(&self, now: Timestamp) -> BTreeMap<(String, Timestamp, FleetPlace), u64> {
        let table = self.read();
        let kept = first_kept(now);
        let mut found = BTreeMap::new();
        for (name, pipeline) in table.pipelines() {
            for cell in pipeline.cells.counted().filter(|cell| cell.at >= kept) {
                let start = cell.at.start();
                *found.entry((name.to_string(), start, cell.place)).or_default() += cell.count;
            }
        }
        found
    }
}
