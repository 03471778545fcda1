//! `interlock catchup`: what is owed from before and what becomes of it, slot by slot; and, without `--dry-run`,
//! that it be done now.
//!
//! The plan is the engine's own, made from the same rows (S5). While `serve` runs, what it has in its rows is in
//! force; while nobody does, the files are, because the next `serve` takes them over before it plans.

use std::{collections::BTreeMap, io::Write as _, path::Path};

use interlock_config::{Loaded, Severity, SystemZones, ZoneSource as _};
use interlock_core::{
    agenda::{Agenda, Work},
    id::{PipelineId, ScheduleId},
    succession::{Heir, Succession},
};
use interlock_engine::{EngineError, Owing, PlanLine, pause_after, preview_away};
use interlock_store::{
    AgendaRow, LedgerRow, block_on,
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
    output::{Output, instant},
    place::Place,
    project,
    serve::files::is_much,
    slot_name,
};

/// A stretch of more slots than this is one object in JSON, too.
const EXPANDED_MAX: u64 = 10_000;

pub(super) fn run(directory: &Path, catchup: &Catchup, output: &mut Output) -> Result<u8, Failure> {
    if catchup.dry_run && !Place::of(directory)?.exists()? {
        return nothing_recorded(directory, catchup, output);
    }
    let ledger = Ledger::open(directory)?;
    let only = catchup.pipeline.as_ref().map(|it| ledger.known(directory, it)).transpose()?;
    let loaded = project::load(directory)?;
    let declared = only.as_ref().and_then(|only| project::find(&loaded, only));
    let now = clock::now();
    let at = catchup.at.map_or(now, |at| at.at(now, &slot_name::first_zone(declared)));
    let open = ledger.open_slots(only.as_ref())?;
    let planner = Planner { ledger: &ledger, loaded: &loaded, open: &open, at };
    let mut lines = Vec::new();
    for row in ledger.pipelines(only.as_ref())? {
        let pause = row.record.record.pause.clone();
        if let Some(pause) = pause.as_ref().filter(|pause| pause.is_in_force(at)) {
            let (pipeline, since) = (&row.pipeline, instant(pause.since));
            writeln!(
                output.err,
                "{pipeline} is paused since {since}: what it owes is decided by its `resume`, which shows it"
            )?;
        }
        lines.extend(planner.lines(&row, pause.as_ref())?);
    }
    if catchup.json {
        output.json(&Value::Array(planner.to_json(&lines)))?;
    } else {
        print(&lines, output)?;
    }
    let code = ledger.conclude(only.as_ref(), output)?;
    if !(catchup.dry_run || catchup.at.is_some() || lines.iter().all(PlanLine::is_queued)) {
        ask(directory, &ledger, &lines, output)?;
    }
    Ok(code)
}

/// Where nothing was ever recorded, nothing is owed: history from before the first sight is not replayed.
fn nothing_recorded(
    directory: &Path,
    catchup: &Catchup,
    output: &mut Output,
) -> Result<u8, Failure> {
    let loaded = project::load(directory)?;
    if let Some(name) = &catchup.pipeline {
        project::pipeline(&loaded, name)?;
    }
    if catchup.json {
        output.json(&Value::Array(vec![]))?;
    } else {
        print(&[], output)?;
    }
    Ok(SUCCESS)
}

/// Asks the owner to do it now.
fn ask(
    directory: &Path,
    ledger: &Ledger,
    lines: &[PlanLine],
    output: &mut Output,
) -> Result<(), Failure> {
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
    Ok(())
}

/// Plans pipelines as the engine would at an instant.
pub(crate) struct Planner<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) loaded: &'a Loaded,
    pub(crate) open: &'a BTreeMap<PipelineId, Vec<LedgerRow>>,
    pub(crate) at: Timestamp,
}

impl Planner<'_> {
    /// What becomes of what a pipeline owes, in order of time.
    pub(crate) fn lines(
        &self,
        row: &AgendaRow,
        pause: Option<&PauseRecord>,
    ) -> Result<Vec<PlanLine>, Failure> {
        let (record, pipeline) = (&row.record.record, &row.pipeline);
        let watermarks = row.watermarks.iter().map(|(id, row)| (id, row.record.at));
        let mut watermarks: BTreeMap<_, _> = watermarks.collect();
        let stored = stored_agenda(row);
        let in_force = self.files_say(row)?;
        let is_enabled_again =
            matches!(&in_force, InForce::Declared(agenda) if agenda.work != Work::Dormant);
        let was_disabled_since = record.disabled_since.filter(|_| is_enabled_again);
        let pause = pause_after(pause, was_disabled_since, self.at);
        let pause = pause.as_ref();
        let agenda = match in_force {
            InForce::Stored if record.retired_at.is_some() => None,
            InForce::Stored => stored.clone(),
            InForce::Declared(agenda) => Some(agenda),
            InForce::Gone => None,
        };
        let was_owed =
            |stored: &&Agenda| stored.work != Work::Dormant || record.disabled_since.is_some();
        let old = match &stored {
            _ if record.retired_at.is_some() => None,
            Some(stored) => Some(stored).filter(was_owed),
            // A row of a time that kept no agendas goes on.
            None => agenda.as_ref(),
        };
        let known = watermarks.clone();
        let watermark = |id: &ScheduleId| known.get(id).copied();
        let now = self.at;
        let (last, new) = (stored.as_ref(), agenda.as_ref());
        let heir = Heir { old, last, new, watermark, is_settled: false, now };
        let Succession { begins, away } = heir.succeed();
        let preview = async {
            let store = self.ledger.store();
            let mut lines = Vec::new();
            for away in &away {
                lines.extend(preview_away(store, pipeline, away).await?);
            }
            watermarks.extend(begins);
            let back = away.iter().filter(|away| away.is_back);
            watermarks.extend(back.map(|away| (away.start.schedule.id(), away.until)));
            if let Some(agenda) = &agenda {
                let owing = Owing { pipeline, agenda, watermarks, pause, now };
                let declared = project::find(self.loaded, pipeline);
                let open = self.open.get(pipeline).map_or(&[][..], Vec::as_slice);
                lines.extend(owing.preview(store, declared, open).await?);
            }
            Ok(lines)
        };
        let lines: Result<_, EngineError> = block_on(preview);
        lines.map_err(|error| Failure::failed(error.to_string(), ""))
    }

    /// What the next `serve` has in force of a pipeline, before it plans.
    fn files_say(&self, row: &AgendaRow) -> Result<InForce, Failure> {
        if self.ledger.is_served() {
            return Ok(InForce::Stored);
        }
        if let Some(declared) = project::find(self.loaded, &row.pipeline) {
            return Ok(InForce::Declared(Agenda::of(declared)));
        }
        // A broken file keeps what it said, and could be any that is missing.
        let is_broken = self.loaded.problems.iter().any(|it| it.severity == Severity::Error);
        if is_broken || row.record.record.retired_at.is_some() || self.ledger.is_shared() {
            return Ok(InForce::Stored);
        }
        let rows = self.ledger.pipelines(None)?;
        let known = rows.iter().filter(|row| row.record.record.retired_at.is_none());
        let gone = known.clone().filter(|it| project::find(self.loaded, &it.pipeline).is_none());
        let is_spared = is_much(gone.count(), known.count());
        Ok(if is_spared { InForce::Stored } else { InForce::Gone })
    }

    /// One object for each slot, in order of time for each pipeline; a very long stretch stays one.
    fn to_json(&self, lines: &[PlanLine]) -> Vec<Value> {
        let mut single = Vec::new();
        for line in lines {
            let slots = (2..=EXPANDED_MAX).contains(&line.count).then(|| self.expand(line));
            match slots.flatten() {
                Some(slots) => single.extend(slots.into_iter().map(|slot| PlanLine {
                    slot,
                    last: slot,
                    count: 1,
                    ..line.clone()
                })),
                None => single.push(line.clone()),
            }
        }
        single.sort_by(|one, other| {
            let place = |line: &PlanLine| (line.pipeline.clone(), line.slot, line.schedule.clone());
            place(one).cmp(&place(other))
        });
        single.iter().map(object).collect()
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

/// What a pipeline owes its slots by.
enum InForce {
    /// What the ledger has.
    Stored,
    /// What its file says.
    Declared(Agenda),
    /// Nothing any more: its file is gone.
    Gone,
}

fn stored_agenda(row: &AgendaRow) -> Option<Agenda> {
    let zones = SystemZones::new();
    let stored = row.record.record.agenda.as_ref()?;
    stored.to_core(&mut Shared::default(), &|name| zones.zone(name)).ok()
}

fn object(line: &PlanLine) -> Value {
    let name = || format!("{}/{}/{}", line.pipeline, line.schedule, line.slot);
    json!({
        "pipeline": line.pipeline.as_str(),
        "schedule": line.schedule,
        "slot": line.slot.to_string(),
        "name": (line.count == 1).then(name),
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
