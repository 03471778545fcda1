//! `interlock catchup`: what is owed from before and what becomes of it, slot by slot; and, without `--dry-run`,
//! that it be done now.
//!
//! The plan is the engine's own, made from the same rows (S5). While `serve` runs, what it has in its rows is in
//! force; while nobody does, the files are, because the next `serve` takes them over before it plans.

use std::{collections::BTreeMap, io::Write as _, path::Path};

use interlock_config::{Loaded, SystemZones, ZoneSource as _};
use interlock_core::agenda::Agenda;
use interlock_engine::{Owing, PlanLine};
use interlock_store::{
    AgendaRow,
    conformance::block_on,
    record::{InboxRecord, PauseRecord, Shared},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    arguments::Catchup,
    clock,
    exit::{Failure, SUCCESS},
    inbox::Inbox,
    ledger::Ledger,
    output::Output,
    project, slot_name,
};

/// A stretch of more slots than this is one object in JSON, too.
const EXPANDED_MAX: u64 = 10_000;

pub(super) fn run(directory: &Path, catchup: &Catchup, output: &mut Output) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    let only = catchup.pipeline.as_ref().map(|it| ledger.known(directory, it)).transpose()?;
    let loaded = project::load(directory)?;
    let declared = only.as_ref().and_then(|only| project::find(&loaded, only));
    let now = clock::now();
    let at = catchup.at.map_or(now, |at| at.at(now, &slot_name::first_zone(declared)));
    let planner = Planner { ledger: &ledger, loaded: &loaded, at };
    let mut lines = Vec::new();
    for row in ledger.pipelines()? {
        if only.as_ref().is_none_or(|only| row.pipeline == *only) {
            let pause = row.record.record.pause.clone();
            lines.extend(planner.lines(&row, pause.as_ref())?);
        }
    }
    if catchup.json {
        output.json(&Value::Array(planner.to_json(&lines)))?;
    } else {
        print(&lines, output)?;
    }
    if catchup.dry_run || catchup.at.is_some() || lines.is_empty() {
        return Ok(SUCCESS);
    }
    ask(directory, &ledger, &lines, output)
}

/// Asks the owner to do it now.
fn ask(
    directory: &Path,
    ledger: &Ledger,
    lines: &[PlanLine],
    output: &mut Output,
) -> Result<u8, Failure> {
    if !ledger.is_served() {
        return Err(Failure::refused(
            "nobody catches up while no `interlock serve` is running",
            "Start it: it does what is listed above. `--dry-run` only lists.",
        ));
    }
    let mut pipelines: Vec<_> = lines.iter().map(|line| &line.pipeline).collect();
    pipelines.dedup();
    for pipeline in pipelines {
        Inbox::open(directory, pipeline.as_str())?.post_only(&InboxRecord::Catchup {})?;
    }
    writeln!(output.err, "`interlock serve` was asked to do it now")?;
    Ok(SUCCESS)
}

/// Plans pipelines as the engine would at an instant.
pub(crate) struct Planner<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) loaded: &'a Loaded,
    pub(crate) at: Timestamp,
}

impl Planner<'_> {
    /// What becomes of what a pipeline owes, in order of time.
    pub(crate) fn lines(
        &self,
        row: &AgendaRow,
        pause: Option<&PauseRecord>,
    ) -> Result<Vec<PlanLine>, Failure> {
        let record = &row.record.record;
        let is_paused = pause.is_some_and(|pause| pause.is_in_force(self.at));
        let Some(agenda) = self.agenda(row).filter(|_| !is_paused && record.retired_at.is_none())
        else {
            return Ok(vec![]);
        };
        let watermarks = row.watermarks.iter().map(|(id, row)| (id, row.record.at));
        let watermarks: BTreeMap<_, _> = watermarks.collect();
        let pipeline = &row.pipeline;
        let owing = Owing { pipeline, agenda: &agenda, watermarks, pause, now: self.at };
        let declared = project::find(self.loaded, pipeline);
        let lines = block_on(owing.preview(self.ledger.store(), declared));
        lines.map_err(|error| Failure::failed(error.to_string(), ""))
    }

    fn agenda(&self, row: &AgendaRow) -> Option<Agenda> {
        let declared = project::find(self.loaded, &row.pipeline);
        if let Some(declared) = declared.filter(|_| !self.ledger.is_served()) {
            return Some(Agenda::of(declared));
        }
        let zones = SystemZones::new();
        let stored = row.record.record.agenda.as_ref()?;
        stored.to_core(&mut Shared::default(), &|name| zones.zone(name)).ok()
    }

    /// One object for each slot; a very long stretch stays one.
    fn to_json(&self, lines: &[PlanLine]) -> Vec<Value> {
        let mut objects = Vec::new();
        for line in lines {
            let agenda = (2..=EXPANDED_MAX).contains(&line.count).then(|| self.expand(line));
            match agenda.flatten() {
                Some(slots) => {
                    objects.extend(slots.into_iter().map(|slot| {
                        object(&PlanLine { slot, last: slot, count: 1, ..line.clone() })
                    }));
                }
                None => objects.push(object(line)),
            }
        }
        objects
    }

    fn expand(&self, line: &PlanLine) -> Option<Vec<Timestamp>> {
        let declared = project::find(self.loaded, &line.pipeline)?;
        let mut starts = declared.starts.iter().map(|start| &start.schedule);
        let schedule = starts.find(|schedule| schedule.id().as_str() == line.schedule)?;
        let end = line.last.saturating_add(SignedDuration::from_nanos(1)).ok()?;
        let slots = schedule.slots(line.slot, end, usize::MAX).found;
        (slots.len() as u64 == line.count).then_some(slots)
    }
}

fn object(line: &PlanLine) -> Value {
    json!({
        "pipeline": line.pipeline.as_str(),
        "schedule": line.schedule,
        "slot": line.slot.to_string(),
        "last": line.last.to_string(),
        "count": line.count,
        "action": line.action,
        "reason": line.reason,
    })
}

/// Prints lines for people.
pub(crate) fn print(lines: &[PlanLine], output: &mut Output) -> Result<(), Failure> {
    if lines.is_empty() {
        writeln!(output.out, "nothing is owed from before")?;
        return Ok(());
    }
    let rows: Vec<_> = lines.iter().map(PlanLine::to_row).collect();
    output.table(PlanLine::HEADINGS, &rows)
}
