//! `interlock why`: the whole story of a slot, or why there is none.

use std::{io::Write as _, path::Path};

use interlock_core::{
    id::{PipelineId, SlotKey},
    pipeline::Pipeline,
};
use interlock_store::{
    EventRow, LedgerEntry, LedgerRow, RunRow,
    record::PipelineRecord,
    story::{About, Absence, Story},
};
use jiff::Timestamp;

use crate::{
    clock,
    exit::{Failure, SUCCESS},
    ledger::Ledger,
    output::Output,
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
    for (story, rest_after) in &stories {
        print(story, *rest_after, output)?;
    }
    if stories.is_empty() {
        let known = ledger.pipeline(&pipeline)?;
        for line in absent(&ledger, &pipeline, (declared, known.as_ref()), &typed)? {
            writeln!(output.out, "{line}")?;
        }
    }
    Ok(SUCCESS)
}

/// The stories of the slots that are meant: one per schedule.
fn recorded(
    ledger: &Ledger,
    pipeline: &PipelineId,
    declared: Option<&Pipeline>,
    typed: &Typed,
) -> Result<Vec<(Story, Option<u64>)>, Failure> {
    let zone = match &typed.schedule {
        Some(schedule) => slot_name::zone_of(declared, schedule),
        None => slot_name::first_zone(declared),
    };
    let at = typed.at(&zone);
    let mut stories: Vec<(Story, Option<u64>)> = Vec::new();
    let is_below = ledger.floor()?.is_some_and(|floor| at < floor);
    let rows = ledger.rows_at(pipeline, at)?;
    for row in rows.clone() {
        // A span may have covered a row that was taken out.
        if is_below && matches!(row.entry, LedgerEntry::Span(_)) {
            continue;
        }
        let key = SlotKey { pipeline: row.pipeline, schedule: row.schedule, nominal: at };
        let asked = typed.schedule.as_ref().is_none_or(|schedule| *schedule == key.schedule);
        // A row comes before the span that covers it, and wins.
        let told = stories.iter().any(|(story, _)| story.key == key);
        if !asked || told || !is_slot_of(declared, &key, &row.entry) {
            continue;
        }
        let runs = ledger.runs_of(pipeline, &key.schedule, at)?;
        let events = events_of(ledger, &key, &rows, &runs)?;
        let Events { found, rest_after } = events;
        stories.push((Story { key, entry: row.entry, runs, events: found }, rest_after));
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
    rows: &[LedgerRow],
    runs: &[RunRow],
) -> Result<Events, Failure> {
    let own = rows.iter().filter(|row| row.schedule == key.schedule);
    let recorded = own.map(|row| match &row.entry {
        LedgerEntry::Slot(slot) => slot.opened_at,
        LedgerEntry::Span(span) => span.recorded_at,
    });
    let created = runs.iter().map(|run| run.record.created_at);
    let since = created.chain(recorded).chain([key.nominal]).min().unwrap_or(key.nominal);
    let about = About::new(key, rows);
    let mut found = Vec::new();
    let mut after = ledger.events_since(&key.pipeline, since)?;
    for _ in 0..PAGES_MAX {
        let page = ledger.events(Some(&key.pipeline), after)?;
        after = page.items.last().map_or(after, |event| event.number);
        found.extend(page.items.into_iter().filter(|event| about.is_told_by(event)));
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

fn print(story: &Story, rest_after: Option<u64>, output: &mut Output) -> Result<(), Failure> {
    for line in story.lines() {
        writeln!(output.out, "{line}")?;
    }
    if let Some(after) = rest_after {
        let pipeline = &story.key.pipeline;
        writeln!(
            output.err,
            "later events were not looked at; `interlock events {pipeline} --after {after}` lists them"
        )?;
    }
    Ok(())
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
        let below = floor.filter(|floor| at < *floor && schedule.is_slot(at));
        let reason = if let Some(floor) = below {
            taken_out(floor)
        } else {
            let watermark = ledger.watermark(pipeline, id)?;
            Absence { declared, schedule, at, known, watermark, now: clock::now() }.reason()
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
