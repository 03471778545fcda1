//! `interlock next`: the coming slots, and what daylight saving and calendars do to them.

use std::{io::Write as _, path::Path};

use interlock_config::zones::{self, SystemZones};
use interlock_core::{
    cron::{Cron, Seconds},
    id::{PipelineId, ScheduleId, SlotKey},
    pipeline::{ControlAction, ControlSchedule, Pipeline, StartSchedule},
    schedule::{Recurrence, Schedule, Timing, jitter_offset},
    text::TextError,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    arguments::{AdHoc, Next},
    clock,
    exit::{Failure, PROBLEMS, SUCCESS},
    output::Output,
    project,
};

/// Slots of each pipeline when neither `--count` nor `--to` is given.
const COUNT_DEFAULT: usize = 5;
/// Slots of each pipeline when only `--to` is given: enough for a year of hours.
const COUNT_MAX: usize = 10_000;
/// Omissions named in one note; the rest is counted.
const OMISSIONS_NAMED: usize = 3;

/// One slot of the listing.
struct Row {
    key: SlotKey,
    local: String,
    note: String,
}

/// The rows of one pipeline, or why it has none.
struct Listing {
    rows: Vec<Row>,
    remarks: Vec<String>,
}

pub(super) fn run(directory: &Path, next: &Next, output: &mut Output) -> Result<u8, Failure> {
    let now = clock::now();
    let (listing, complete) = match &next.ad_hoc.cron {
        Some(expression) => {
            let schedule = ad_hoc(expression, &next.ad_hoc)?;
            let name = PipelineId::parse("ad-hoc").map_err(|error| internal(&error))?;
            let rows = list(&name, &[(&schedule, String::new())], next, now);
            (Listing { rows, remarks: vec![] }, true)
        }
        None => of_project(directory, next, now, output)?,
    };
    if next.json {
        output.json(&Value::Array(listing.rows.iter().map(Row::to_json).collect()))?;
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
) -> Result<(Listing, bool), Failure> {
    let loaded = project::load(directory)?;
    let incomplete = project::mention_errors(&loaded, output)?;
    let pipelines = match &next.pipeline {
        Some(name) => vec![project::pipeline(&loaded, name)?],
        None => loaded.pipelines.iter().map(|loaded| &loaded.pipeline).collect(),
    };
    let mut listing = Listing { rows: vec![], remarks: vec![] };
    for pipeline in pipelines {
        if let Some(reason) = never_due(pipeline) {
            listing.remarks.push(format!("{} is never due: {reason}", pipeline.name));
            continue;
        }
        let schedules: Vec<_> = pipeline
            .starts
            .iter()
            .map(|start| (&start.schedule, standing_note(pipeline, start)))
            .collect();
        let rows = list(&pipeline.name, &schedules, next, now);
        if rows.is_empty() {
            listing.remarks.push(format!("{} has no slots in this time", pipeline.name));
        }
        listing.rows.extend(rows);
        listing.remarks.extend(pipeline.controls.iter().filter_map(|it| coming(pipeline, it, now)));
    }
    Ok((listing, !incomplete))
}

/// When a stop or restart schedule fires next. It owes no run that could be listed.
fn coming(pipeline: &Pipeline, control: &ControlSchedule, now: Timestamp) -> Option<String> {
    let at = control.schedule.after(now)?;
    let what = match control.action {
        ControlAction::Stop => "ends what runs",
        ControlAction::Restart => "ends what runs and starts a new run",
    };
    Some(format!("{}/{} {what}, next at {at}", pipeline.name, control.schedule.id()))
}

fn never_due(pipeline: &Pipeline) -> Option<&'static str> {
    if !pipeline.enabled {
        return Some("`watch.enabled` is false");
    }
    if pipeline.trigger.is_none() {
        return Some("it has no trigger");
    }
    if pipeline.starts.is_empty() {
        return None;
    }
    let owes_nothing = pipeline
        .starts
        .iter()
        .all(|start| matches!(start.schedule.recurrence(), Recurrence::SinceLast { .. }));
    owes_nothing.then_some("it only watches the time since the last report")
}

/// What is to be said about every slot of a schedule.
fn standing_note(pipeline: &Pipeline, start: &StartSchedule) -> String {
    if let Recurrence::Sensor { rule, .. } = start.schedule.recurrence() {
        return format!("when sensor `{}` says so", rule.key);
    }
    let offset = jitter_offset(&pipeline.name, start.schedule.id(), start.jitter);
    match offset.as_secs() {
        0 => String::new(),
        seconds => format!("opens {seconds}s later (jitter)"),
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

/// The slots of a pipeline's schedules in order of time.
fn list(
    pipeline: &PipelineId,
    schedules: &[(&Schedule, String)],
    next: &Next,
    now: Timestamp,
) -> Vec<Row> {
    let count = match (next.count, next.to) {
        (Some(count), _) => count as usize,
        (None, Some(_)) => COUNT_MAX,
        (None, None) => COUNT_DEFAULT,
    };
    let mut rows: Vec<Row> = schedules
        .iter()
        .flat_map(|(schedule, note)| rows_of(pipeline, schedule, note, next, (count, now)))
        .collect();
    rows.sort_by(|one, other| {
        (one.key.nominal, &one.key.schedule).cmp(&(other.key.nominal, &other.key.schedule))
    });
    rows.truncate(count);
    rows
}

fn rows_of(
    pipeline: &PipelineId,
    schedule: &Schedule,
    standing_note: &str,
    next: &Next,
    (count, now): (usize, Timestamp),
) -> Vec<Row> {
    let zone = &schedule.timing().zone;
    let from = next.from.map_or(now, |from| from.at(now, zone));
    let until = next.to.map_or(Timestamp::MAX, |to| to.at(now, zone));
    let mut since = from;
    let slots = schedule.slots(from, until, count).found;
    slots
        .into_iter()
        .map(|slot| {
            let note = note(schedule, slot, since, standing_note);
            since = slot;
            Row {
                key: SlotKey {
                    pipeline: pipeline.clone(),
                    schedule: schedule.id().clone(),
                    nominal: slot,
                },
                local: slot
                    .to_zoned(zone.time_zone().clone())
                    .strftime("%Y-%m-%dT%H:%M:%S%:z")
                    .to_string(),
                note,
            }
        })
        .collect()
}

/// What daylight saving did to a slot, and what was left out since the one before.
fn note(schedule: &Schedule, slot: Timestamp, since: Timestamp, standing_note: &str) -> String {
    let mut notes: Vec<String> = Vec::new();
    notes.extend(schedule.occurrence(slot).dst.map(|effect| effect.to_string()));
    let omissions = schedule.omissions(since, slot, OMISSIONS_NAMED + 1);
    let named = omissions.iter().take(OMISSIONS_NAMED).map(ToString::to_string);
    if !omissions.is_empty() {
        let and_more = if omissions.len() > OMISSIONS_NAMED { ", and more" } else { "" };
        notes.push(format!("before it: {}{and_more}", named.collect::<Vec<_>>().join(", ")));
    }
    if !standing_note.is_empty() {
        notes.push(standing_note.to_owned());
    }
    notes.join("; ")
}

impl Row {
    fn to_json(&self) -> Value {
        json!({
            "pipeline": self.key.pipeline.as_str(),
            "schedule": self.key.schedule.as_str(),
            "slot": self.key.to_string(),
            "utc": self.key.nominal.to_string(),
            "local": self.local,
            "note": self.note,
        })
    }
}

fn print(listing: &Listing, output: &mut Output) -> Result<(), Failure> {
    let rows: Vec<_> = listing
        .rows
        .iter()
        .map(|row| {
            [
                row.key.pipeline.to_string(),
                row.key.schedule.to_string(),
                row.local.clone(),
                row.key.nominal.to_string(),
                row.note.clone(),
            ]
        })
        .collect();
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
