//! `interlock next`: the coming slots, and what daylight saving and calendars do to them.

mod there;

use std::{io::Write as _, path::Path};

use interlock_answers::{
    COUNT_DEFAULT, SlotWindow,
    model::next_slot::{NextSlotAnswer, NextSlotsAnswer},
    next_slots_of, slots_within,
};
use interlock_config::zones::{self, SystemZones};
use interlock_core::{
    cron::{Cron, Seconds},
    id::{PipelineId, ScheduleId},
    schedule::{Recurrence, Schedule, Timing},
    text::TextError,
};
use jiff::Timestamp;
use serde_json::to_value;

use crate::{
    arguments::{AdHoc, Next},
    clock,
    exit::{Failure, PROBLEMS, SUCCESS},
    output::Output,
    project,
    target::Target,
};

/// Slots of each pipeline when only `--to` is given: enough for a year of hours.
const COUNT_MAX: usize = 10_000;

pub(super) fn run(target: &Target, next: &Next, output: &mut Output) -> Result<u8, Failure> {
    let now = clock::now();
    let (listing, complete) = match &next.ad_hoc.cron {
        Some(expression) => {
            let schedule = ad_hoc(expression, &next.ad_hoc)?;
            let name = PipelineId::parse("ad-hoc").map_err(|error| internal(&error))?;
            let items = slots_within(&name, &schedule, "", window(next, &schedule, now));
            (NextSlotsAnswer { items, ..NextSlotsAnswer::default() }, true)
        }
        None => match target {
            Target::Project(directory) => of_project(directory, next, now, output)?,
            Target::Server(address) => (there::slots(address, next, now, output)?, true),
        },
    };
    if next.json {
        output.json(&to_value(&listing.items).unwrap_or_default())?;
    } else {
        print(&listing, output)?;
    }
    Ok(if complete { SUCCESS } else { PROBLEMS })
}

fn internal(error: &TextError) -> Failure {
    Failure::failed(format!("internal error: {}", error.message), "")
}

fn of_project(
    directory: &Path,
    next: &Next,
    now: Timestamp,
    output: &mut Output,
) -> Result<(NextSlotsAnswer, bool), Failure> {
    let loaded = project::load(directory)?;
    let incomplete = project::mention_errors(&loaded, output)?;
    let pipelines = match &next.pipeline {
        Some(name) => vec![project::pipeline(&loaded, name)?],
        None => loaded.pipelines.iter().map(|loaded| &loaded.pipeline).collect(),
    };
    let mut listing = NextSlotsAnswer::default();
    for pipeline in pipelines {
        let found = next_slots_of(pipeline, now, |schedule| window(next, schedule, now));
        listing.items.extend(found.items);
        listing.remarks.extend(found.remarks);
    }
    Ok((listing, !incomplete))
}

/// Which slots of a schedule are meant: times without an offset are times of its zone.
fn window(next: &Next, schedule: &Schedule, now: Timestamp) -> SlotWindow {
    let zone = &schedule.timing().zone;
    let count = match (next.count, next.to) {
        (Some(count), _) => count as usize,
        (None, Some(_)) => COUNT_MAX,
        (None, None) => COUNT_DEFAULT,
    };
    SlotWindow {
        from: next.from.map_or(now, |from| from.at(now, zone)),
        until: next.to.map_or(Timestamp::MAX, |to| to.at(now, zone)),
        count,
    }
}

fn ad_hoc(expression: &str, options: &AdHoc) -> Result<Schedule, Failure> {
    let seconds = if options.seconds { Seconds::Present } else { Seconds::Absent };
    let parsed = Cron::parse(expression, seconds).map_err(|error| point(expression, &error))?;
    let zones = SystemZones::new();
    let zone = match &parsed.zone {
        Some((name, span)) => zones::resolve(&zones, name)
            .map_err(|error| point(expression, &error.shifted(span.start)))?,
        None => zones::resolve(&zones, &options.tz).map_err(|error| point(&options.tz, &error))?,
    };
    let timing = Timing {
        zone,
        dst: options.dst.unwrap_or_default(),
        days: interlock_core::calendar::DayFilter::default(),
        from: None,
        until: None,
    };
    let id = ScheduleId::from_static("cron");
    let days = parsed.cron.day_fields();
    Schedule::new(id, Recurrence::Cron(parsed.cron), timing)
        .map_err(|never| point(expression, &TextError::new(days, never.to_string(), "")))
}

/// A mistake in an argument, underlined.
fn point(text: &str, error: &TextError) -> Failure {
    let before = text.get(..error.span.start).unwrap_or("").chars().count();
    let width = text.get(error.span.clone()).unwrap_or("").chars().count().max(1);
    let underline = format!("{}{}", " ".repeat(before), "^".repeat(width));
    Failure::usage(format!("{}\n  {text}\n  {underline}", error.message), error.help.clone())
}

fn print(listing: &NextSlotsAnswer, output: &mut Output) -> Result<(), Failure> {
    let row = |slot: &NextSlotAnswer| {
        let NextSlotAnswer { pipeline, schedule, local, utc, note, .. } = slot;
        [pipeline.clone(), schedule.clone(), local.clone(), utc.to_string(), note.clone()]
    };
    let rows: Vec<_> = listing.items.iter().map(row).collect();
    if !rows.is_empty() {
        output.table(["PIPELINE", "SCHEDULE", "LOCAL", "UTC", "NOTE"], &rows)?;
    }
    for remark in &listing.remarks {
        writeln!(output.out, "{remark}")?;
    }
    if rows.is_empty() && listing.remarks.is_empty() {
        writeln!(output.out, "no slots in this time")?;
    }
    Ok(())
}
