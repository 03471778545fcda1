//! `interlock why`: the whole story of a slot, or why there is none.

use std::{io::Write as _, path::Path};

use interlock_core::{
    duration,
    id::{PipelineId, SlotKey},
    pipeline::Pipeline,
    schedule::{Omission, Schedule},
};
use interlock_store::{
    EventRow, LedgerEntry, RunRow,
    record::{PipelineRecord, SlaRecord, SlotRecord, SpanRecord},
};
use jiff::Timestamp;

use super::{events, slots};
use crate::{
    clock,
    exit::{Failure, SUCCESS},
    ledger::Ledger,
    output::{Output, instant},
    project,
    slot_name::{self, Typed},
};

/// How many pages of events are looked through for those of one slot.
const PAGES_MAX: usize = 50;

pub(super) fn run(
    directory: &Path,
    pipeline: &str,
    slot: &str,
    output: &mut Output,
) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    let pipeline = ledger.known(directory, pipeline)?;
    let loaded = project::load(directory)?;
    let declared = project::find(&loaded, &pipeline);
    let typed = Typed::parse(&pipeline, slot)?;
    let stories = recorded(&ledger, &pipeline, declared, &typed)?;
    for story in &stories {
        story.print(output)?;
    }
    if stories.is_empty() {
        let known = ledger.pipeline(&pipeline)?;
        for line in absent(&ledger, &pipeline, (declared, known.as_ref()), &typed)? {
            writeln!(output.out, "{line}")?;
        }
    }
    Ok(SUCCESS)
}

/// What the ledger holds about one slot.
struct Story {
    key: SlotKey,
    entry: LedgerEntry,
    runs: Vec<RunRow>,
    events: Events,
}

/// The stories of the slots that are meant: one per schedule.
fn recorded(
    ledger: &Ledger,
    pipeline: &PipelineId,
    declared: Option<&Pipeline>,
    typed: &Typed,
) -> Result<Vec<Story>, Failure> {
    let zone = match &typed.schedule {
        Some(schedule) => slot_name::zone_of(declared, schedule),
        None => slot_name::first_zone(declared),
    };
    let at = typed.at(&zone);
    let mut stories: Vec<Story> = Vec::new();
    let is_below = ledger.floor()?.is_some_and(|floor| at < floor);
    for row in ledger.rows_at(pipeline, at)? {
        // A span may have covered a row that was taken out.
        if is_below && matches!(row.entry, LedgerEntry::Span(_)) {
            continue;
        }
        let key = SlotKey { pipeline: row.pipeline, schedule: row.schedule, nominal: at };
        let asked = typed.schedule.as_ref().is_none_or(|schedule| *schedule == key.schedule);
        // A row comes before the span that covers it, and wins.
        let told = stories.iter().any(|story| story.key == key);
        if !asked || told || !is_slot_of(declared, &key, &row.entry) {
            continue;
        }
        let runs = ledger.runs_of(pipeline, &key.schedule, at)?;
        let events = events_of(ledger, &key, &row.entry, &runs)?;
        stories.push(Story { key, entry: row.entry, runs, events });
    }
    Ok(stories)
}

/// A span covers instants between its slots, which are none.
fn is_slot_of(declared: Option<&Pipeline>, key: &SlotKey, entry: &LedgerEntry) -> bool {
    matches!(entry, LedgerEntry::Slot(_))
        || declared
            .and_then(|declared| declared.schedule(&key.schedule))
            .is_none_or(|schedule| schedule.is_slot(key.nominal))
}

/// The events about a slot, from before its first opening on, and whether that is all of them.
pub(super) fn events_of(
    ledger: &Ledger,
    key: &SlotKey,
    entry: &LedgerEntry,
    runs: &[RunRow],
) -> Result<Events, Failure> {
    let recorded = match entry {
        LedgerEntry::Slot(slot) => slot.opened_at,
        LedgerEntry::Span(span) => span.recorded_at,
    };
    let created = runs.iter().map(|run| run.record.created_at);
    let since = created.chain([recorded, key.nominal]).min().unwrap_or(recorded);
    let name = format!("{}/{}", key.schedule, key.nominal);
    // What is said of many in a row is said under the last.
    let many = match entry {
        LedgerEntry::Span(span) => Some(format!("{}/{}", key.schedule, span.last)),
        LedgerEntry::Slot(_) => None,
    };
    let is_absence = |kind: &str| {
        matches!(kind, "SCHEDULE_MISSED" | "SCHEDULE_UNKNOWN" | "IRREGULAR_SCHEDULE_MISSED")
    };
    let mut found = Vec::new();
    let mut after = ledger.events_since(&key.pipeline, since)?;
    for _ in 0..PAGES_MAX {
        let page = ledger.events(Some(&key.pipeline), after)?;
        after = page.items.last().map_or(after, |event| event.number);
        let about = |event: &EventRow| {
            let slot = event.record.slot.as_deref();
            slot == Some(name.as_str())
                || (slot.is_some() && slot == many.as_deref() && is_absence(&event.record.kind))
        };
        found.extend(page.items.into_iter().filter(about));
        if !page.more {
            return Ok(Events { found, rest_after: None });
        }
    }
    Ok(Events { found, rest_after: Some(after) })
}

/// What happened to a slot.
pub(super) struct Events {
    pub(super) found: Vec<EventRow>,
    /// The event after which nobody looked.
    pub(super) rest_after: Option<u64>,
}

impl Story {
    fn print(&self, output: &mut Output) -> Result<(), Failure> {
        let key = &self.key;
        match &self.entry {
            LedgerEntry::Slot(slot) => {
                writeln!(output.out, "{key} is {}.", slots::state(slot))?;
                for line in about_slot(slot) {
                    writeln!(output.out, "  {line}")?;
                }
            }
            LedgerEntry::Span(span) => writeln!(output.out, "{}", about_span(key, span))?,
        }
        if !self.runs.is_empty() {
            writeln!(output.out, "Runs:")?;
        }
        for run in &self.runs {
            writeln!(output.out, "  {}", about_run(run))?;
        }
        if !self.events.found.is_empty() {
            writeln!(output.out, "Events:")?;
        }
        for event in &self.events.found {
            writeln!(output.out, "  {}", events::sentence(event))?;
        }
        if let Some(after) = self.events.rest_after {
            writeln!(
                output.err,
                "later events were not looked at; `interlock events {} --after {after}` lists them",
                key.pipeline
            )?;
        }
        Ok(())
    }
}

fn about_slot(slot: &SlotRecord) -> Vec<String> {
    let mut lines = vec![format!(
        "It stands for {}; generation {} was opened at {} by {}.",
        slot.date, slot.generation, slot.opened_at, slot.opened_by
    )];
    if slot.is_open() {
        lines.push(format!("Unless something happens it is closed at {}.", slot.closes_at));
    }
    lines.extend(slot.retry_at.map(|at| format!("It is tried again at {at}.")));
    lines.extend(slot.sla.as_deref().into_iter().flat_map(promises));
    let marks = slots::marks(&slot.marks);
    if !marks.is_empty() {
        lines.push(format!("It is marked {}.", marks.join(", ")));
    }
    lines
}

/// What a slot promised about time when it was opened.
fn promises(sla: &SlaRecord) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(sla.evaluation_at.map(|at| format!("It is to be evaluated by {at}.")));
    lines.extend(sla.breach_at.map(|at| match sla.warning_at {
        Some(warning) => format!("It is to be completed by {at}; from {warning} that is at risk."),
        None => format!("It is to be completed by {at}."),
    }));
    let budget = sla.duration_max.map(duration::format);
    lines.extend(budget.map(|budget| format!("It may take {budget} from its first sensor.")));
    lines
}

fn about_span(key: &SlotKey, span: &SpanRecord) -> String {
    format!(
        "{key} is {}: one of {} slots up to {} that were recorded together at {}.",
        slots::span_state(span),
        span.count,
        span.last,
        span.recorded_at
    )
}

fn about_run(run: &RunRow) -> String {
    let record = &run.record;
    let id = run.key.id(&run.pipeline);
    let mut parts = vec![format!("{id} ({}) is {}", record.trigger_type, record.status)];
    parts.extend(record.started_at.map(|at| format!("started at {}", instant(at))));
    parts.extend(record.ended_at.map(|at| format!("ended at {}", instant(at))));
    let message = record.message.as_ref().map_or_else(String::new, |text| format!(": {text}"));
    format!("{}{message}", parts.join(", "))
}

/// Why nothing is recorded at an instant, a line per schedule.
pub(super) fn absent(
    ledger: &Ledger,
    pipeline: &PipelineId,
    (declared, known): (Option<&Pipeline>, Option<&PipelineRecord>),
    typed: &Typed,
) -> Result<Vec<String>, Failure> {
    let floor = ledger.floor()?;
    let perhaps = |at: Timestamp| match floor.filter(|floor| at < *floor) {
        Some(floor) => format!(" Perhaps {}.", taken_out(floor)),
        None => String::new(),
    };
    let Some(declared) = declared else {
        let perhaps = perhaps(typed.at(&slot_name::first_zone(None)));
        return Ok(vec![format!(
            "Nothing is recorded then, and {pipeline} is no longer declared.{perhaps}"
        )]);
    };
    let mut lines = Vec::new();
    // Nobody who asks why nothing ran means a stop, unless it is named.
    let schedules: Vec<_> = match &typed.schedule {
        Some(id) => declared.schedule(id).into_iter().collect(),
        None => declared.starts.iter().map(|start| &start.schedule).collect(),
    };
    for schedule in schedules {
        let id = schedule.id();
        let at = typed.at(&schedule.timing().zone);
        let reason = match floor.filter(|floor| at < *floor && schedule.is_slot(at)) {
            Some(floor) => taken_out(floor),
            None => reason(schedule, at, known, ledger.watermark(pipeline, id)?),
        };
        lines.push(format!("{pipeline}/{id} has no slot recorded at {at}: {reason}."));
    }
    if lines.is_empty() {
        let perhaps = perhaps(typed.at(&slot_name::first_zone(Some(declared))));
        lines.push(format!(
            "{pipeline} has no such schedule, and nothing is recorded then.{perhaps}"
        ));
    }
    Ok(lines)
}

/// What is not there and old may have been there.
fn taken_out(floor: Timestamp) -> String {
    format!(
        "it is older than what is kept: what was decided before {floor} may have been taken out \
         (`retention.slots`); an archive still has it"
    )
}

/// Why a schedule has no slot recorded at an instant.
fn reason(
    schedule: &Schedule,
    at: Timestamp,
    known: Option<&PipelineRecord>,
    watermark: Option<Timestamp>,
) -> String {
    if !schedule.is_slot(at) {
        return not_a_slot(schedule, at);
    }
    let Some(known) = known else {
        return "`interlock serve` has not seen this pipeline yet".to_owned();
    };
    if at < known.first_seen {
        return format!(
            "the pipeline was first seen at {}, and owes nothing before",
            known.first_seen
        );
    }
    if at > clock::now() {
        return "it is not due yet".to_owned();
    }
    if let Some(retired) = known.retired_at {
        return format!("the pipeline was retired at {retired}");
    }
    if let Some(pause) = known.pause.as_ref().filter(|pause| pause.is_in_force(clock::now())) {
        return format!("the pipeline is paused since {}: {}", pause.since, pause.reason);
    }
    match watermark {
        Some(watermark) if at <= watermark => {
            "its schedule was declared differently when that time was recorded".to_owned()
        }
        Some(watermark) => format!(
            "slots are recorded only up to {watermark}; `serve` was not running or is behind"
        ),
        None => "no slot of this schedule was recorded yet".to_owned(),
    }
}

/// Why an instant is not a slot of a schedule.
fn not_a_slot(schedule: &Schedule, at: Timestamp) -> String {
    let timing = schedule.timing();
    if timing.from.is_some_and(|from| at < from) || timing.until.is_some_and(|until| at >= until) {
        return "it lies outside the schedule's `from` and `until`".to_owned();
    }
    let second = jiff::SignedDuration::from_secs(1);
    let until = at.saturating_add(second).unwrap_or(at);
    match schedule.omissions(at, until, 1).first() {
        Some(Omission::Date { date, reason }) => return format!("{date} is {reason}"),
        Some(gap @ Omission::Gap { .. }) => return gap.to_string(),
        None => {}
    }
    let date = at.to_zoned(timing.zone.time_zone().clone()).date();
    if let Some(reason) = timing.days.reason(date) {
        return format!("{date} is {reason}");
    }
    let near = [schedule.previous(at), schedule.next(at)];
    let near: Vec<_> = near.iter().flatten().map(ToString::to_string).collect();
    match near.as_slice() {
        [] => "the schedule owes no slots".to_owned(),
        near => format!("the schedule owes none then; the nearest are {}", near.join(" and ")),
    }
}
