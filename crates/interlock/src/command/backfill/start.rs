//! `interlock backfill start`: shows or begins a backfill, and follows it if asked to.

use std::{
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    path::Path,
    sync::Arc,
};

use interlock_core::{
    backfill::has_slots,
    id::{PipelineId, ScheduleId},
    pipeline::Pipeline,
};
use interlock_engine::backfill_of;
use interlock_store::{
    Store,
    memory::MemoryStore,
    record::{BackfillRecord, InboxRecord},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    follow,
    plan::{Plan, Planner},
};
use crate::{
    arguments::BackfillStart,
    clock, environment,
    exit::{Failure, SUCCESS},
    inbox::Inbox,
    ledger::Ledger,
    output::Output,
    place::Place,
    project, slot_name,
};

/// More slots than this are asked about.
const UNASKED_MAX: usize = 10_000;

pub(super) fn run(
    directory: &Path,
    asked: &BackfillStart,
    output: &mut Output,
) -> Result<u8, Failure> {
    let loaded = project::load(directory)?;
    let spec = project::pipeline(&loaded, &asked.pipeline)?;
    let now = clock::now();
    let zone = slot_name::common_zone(spec, &asked.schedules);
    let (from, to) = (asked.from.at(now, &zone), asked.to.at(now, &zone));
    if from >= to {
        let local = |at: Timestamp| {
            let local = at.to_zoned(zone.time_zone().clone());
            local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
        };
        let (from, to) = (local(from), local(to));
        return Err(Failure::usage(
            format!("`--from` ({from}) is not before `--to` ({to})"),
            format!("Without a zone of their own they are times in {}.", zone.name()),
        ));
    }
    let mut request = request(spec, asked, now);
    let record = backfill_of(spec, &request, now);
    let record = record.map_err(|reason| Failure::usage(reason, ""))?;
    refuse_what_is_gone(directory, asked, &record)?;
    if !asked.dry_run && !asked.yes && !agreed(spec, (asked, &record), output)? {
        writeln!(output.err, "nothing was done")?;
        return Ok(SUCCESS);
    }
    let plan = plan(directory, spec, (&record, now))?;
    if asked.dry_run {
        show(spec, asked, (&record, &plan), output)?;
        return Ok(SUCCESS);
    }
    if plan.total == 0 {
        return Err(none_would_run(&plan));
    }
    let inbox = Inbox::open(directory, &asked.pipeline)?;
    if let InboxRecord::StartBackfill { total, plan: hash, .. } = &mut request {
        (*total, *hash) = (plan.total, plan.hash.clone());
    }
    // Who sits at a terminal sees how far it is; it goes on without them.
    let is_watched = io::stderr().is_terminal() && !asked.sending.json && inbox.ledger.is_served();
    if asked.follow || is_watched {
        return follow::run(&inbox, &request, asked.sending, output);
    }
    let code = inbox.send(&request, asked.sending, output)?;
    if code == SUCCESS && !inbox.ledger.is_served() {
        writeln!(
            output.err,
            "no `interlock serve` is running: it runs when one does (`--follow` runs one here)"
        )?;
    }
    Ok(code)
}

fn none_would_run(plan: &Plan) -> Failure {
    let (slots, owed) = (plan.slots, plan.owed());
    let what = match slots {
        0 => "there are no slots in the range".to_owned(),
        1 => "the slot in the range would not run".to_owned(),
        _ => format!("none of the {slots} slots in the range would run"),
    };
    let help = match owed {
        _ if slots == 0 => "`--dry-run` names the days that a calendar leaves out.".to_owned(),
        0 => "`--dry-run` says why of each; `--reprocess failed` or `all` takes more.".to_owned(),
        _ => format!(
            "{owed} of them {} owed: `interlock serve` records those first, by the catch-up policy, whatever \
             `--reprocess` says. `--dry-run` says why of each.",
            if owed == 1 { "is" } else { "are" },
        ),
    };
    Failure::refused(what, help)
}

/// What was taken out looks like what never was: nothing of that age runs unless somebody says that it is missing.
fn refuse_what_is_gone(
    directory: &Path,
    asked: &BackfillStart,
    record: &BackfillRecord,
) -> Result<(), Failure> {
    if asked.assume_missing || !Place::of(directory)?.exists()? {
        return Ok(());
    }
    match Ledger::open(directory)?.floor()? {
        Some(floor) if record.from < floor => Err(Failure::refused(
            format!("what was decided before {floor} may have been taken out of the ledger"),
            "Begin with `--from` at that instant, or say `--assume-missing`: what is not there then runs.",
        )),
        Some(_) | None => Ok(()),
    }
}

fn request(spec: &Pipeline, asked: &BackfillStart, now: Timestamp) -> InboxRecord {
    let zone = slot_name::common_zone(spec, &asked.schedules);
    let by = environment::variable("USER").or_else(|| environment::variable("LOGNAME"));
    InboxRecord::StartBackfill {
        from: asked.from.at(now, &zone),
        to: asked.to.at(now, &zone),
        schedules: asked.schedules.clone(),
        reprocess: asked.reprocess.clone(),
        order: asked.order.clone(),
        concurrency: asked.concurrency,
        reason: asked.reason.clone(),
        by: by.unwrap_or_default(),
        total: 0,
        plan: String::new(),
    }
}

/// Plans with what the ledger says; one that does not exist yet says nothing.
fn plan(
    directory: &Path,
    spec: &Pipeline,
    (record, now): (&BackfillRecord, Timestamp),
) -> Result<Plan, Failure> {
    if !Place::of(directory)?.exists()? {
        let store = MemoryStore::new(1, Arc::new(clock::now));
        return Planner { store: &store, spec, record, now }.plan(|_| None);
    }
    let ledger = Ledger::open(directory)?;
    let row = ledger.pipeline(&spec.name)?;
    let pause = row.and_then(|row| row.pause);
    // While nobody records what is due, what is owed is the backfill's.
    let is_held =
        pause.is_some_and(|pause| pause.is_in_force(now)) || !spec.enabled || !ledger.is_served();
    let watermarks = watermarks(&ledger, &spec.name, record)?;
    let store: &dyn Store = ledger.store();
    Planner { store, spec, record, now }.plan(|id| {
        let found = watermarks.iter().find(|(known, _)| known == id);
        found.map(|(_, at)| *at).filter(|_| !is_held)
    })
}

fn watermarks(
    ledger: &Ledger,
    pipeline: &PipelineId,
    record: &BackfillRecord,
) -> Result<Vec<(ScheduleId, Timestamp)>, Failure> {
    let mut found = Vec::new();
    for id in &record.schedules {
        let Ok(id) = ScheduleId::any(id) else { continue };
        if let Some(at) = ledger.watermark(pipeline, &id)? {
            found.push((id, at));
        }
    }
    Ok(found)
}

/// Asks about a very long range; a script must say so beforehand.
fn agreed(
    spec: &Pipeline,
    (asked, record): (&BackfillStart, &BackfillRecord),
    output: &mut Output,
) -> Result<bool, Failure> {
    let own = spec.starts.iter().map(|start| &start.schedule).filter(|it| has_slots(it));
    let meant = own.filter(|it| record.schedules.iter().any(|id| id == it.id().as_str()));
    let count = |schedule: &interlock_core::schedule::Schedule| {
        schedule.slots(record.from, record.to, UNASKED_MAX + 1).found.len()
    };
    if meant.map(count).sum::<usize>() <= UNASKED_MAX {
        return Ok(true);
    }
    let message =
        format!("there are more than {UNASKED_MAX} slots from {} to {}", record.from, record.to);
    if asked.sending.json || !io::stdin().is_terminal() {
        let help = "Say `--yes` if that is meant; `--dry-run` shows what would run.";
        return Err(Failure::usage(message, help));
    }
    write!(output.err, "{message}; go on? [y/N] ")?;
    output.err.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Prints a plan.
fn show(
    spec: &Pipeline,
    asked: &BackfillStart,
    (record, plan): (&BackfillRecord, &Plan),
    output: &mut Output,
) -> Result<(), Failure> {
    let places = record.concurrency.min(spec.active_runs_max);
    if asked.sending.json {
        return output.json(&json!({
            "pipeline": spec.name.as_str(),
            "from": record.from.to_string(),
            "to": record.to.to_string(),
            "schedules": record.schedules,
            "reprocess": record.reprocess,
            "order": record.order,
            "concurrency": places,
            "count": plan.slots,
            "total": plan.total,
            "verdicts": plan.counts(),
            "plan": plan.hash,
            "slots": Value::Array(plan.to_json(spec, &record.order)),
        }));
    }
    plan.print(output)?;
    let bound = if places < record.concurrency {
        format!(" (`maxActiveRuns` is {places})")
    } else {
        String::new()
    };
    writeln!(output.out, "{}; {places} at a time{bound}; plan {}", plan.sum(), plan.hash)?;
    Ok(())
}
