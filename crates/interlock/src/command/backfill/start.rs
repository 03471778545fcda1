//! `interlock backfill start`: shows or begins a backfill, and follows it if asked to.

use std::{
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    path::Path,
};

use interlock_answers::{BackfillPlan, Reader, model::plan::BackfillPlanRequest};
use interlock_core::{backfill::has_slots, pipeline::Pipeline, zone::Zone};
use interlock_store::{block_on, record::BackfillRecord};
use jiff::Timestamp;
use serde_json::to_value;

mod there;

use super::follow;
use crate::{
    arguments::BackfillStart,
    clock, environment,
    exit::{Failure, SUCCESS},
    inbox::Inbox,
    ledger::Ledger,
    output::Output,
    project, slot_name,
    target::Target,
};

/// More slots than this are asked about.
const UNASKED_MAX: usize = 10_000;

pub(super) fn run(
    target: &Target,
    asked: &BackfillStart,
    output: &mut Output,
) -> Result<u8, Failure> {
    let directory: &Path = match target {
        Target::Project(directory) => directory,
        Target::Server(address) => return there::run(address, asked, output),
    };
    let loaded = project::load(directory)?;
    let spec = project::pipeline(&loaded, &asked.pipeline)?;
    let now = clock::now();
    let zone = slot_name::common_zone(spec, &asked.schedules);
    let wanted = request(asked, now, &zone)?;
    let ledger = Ledger::open_or_empty(directory)?;
    let reader = Reader { now, ..ledger.reader() };
    let record = block_on(reader.backfill_record(spec, &wanted))?;
    if !asked.dry_run && !asked.yes && !agreed(spec, (asked, &record), output)? {
        writeln!(output.err, "nothing was done")?;
        return Ok(SUCCESS);
    }
    let plan = block_on(reader.backfill_plan(spec, record))?;
    if asked.dry_run {
        show(spec, asked, &plan, output)?;
        return Ok(SUCCESS);
    }
    if plan.total == 0 {
        return Err(none_would_run(plan.slots, plan.owed()));
    }
    let by = environment::variable("USER").or_else(|| environment::variable("LOGNAME"));
    let request = wanted.to_inbox(&by.unwrap_or_default(), Some(&plan));
    let inbox = Inbox::open(directory, &asked.pipeline)?;
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

/// Why nothing would run, of so many slots, of which so many are owed.
fn none_would_run(slots: u64, owed: u64) -> Failure {
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

/// What is asked for; times without an offset are those of a zone.
fn request(
    asked: &BackfillStart,
    now: Timestamp,
    zone: &Zone,
) -> Result<BackfillPlanRequest, Failure> {
    let (from, to) = (asked.from.at(now, zone), asked.to.at(now, zone));
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
    Ok(BackfillPlanRequest {
        from,
        to,
        schedules: asked.schedules.clone(),
        reprocess: asked.reprocess.clone(),
        order: asked.order.clone(),
        concurrency: asked.concurrency,
        reason: asked.reason.clone(),
        assume_missing: asked.assume_missing,
    })
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
    confirmed((record.from, record.to), asked, output)
}

/// Asks whether so much is meant.
fn confirmed(
    (from, to): (Timestamp, Timestamp),
    asked: &BackfillStart,
    output: &mut Output,
) -> Result<bool, Failure> {
    let message = format!("there are more than {UNASKED_MAX} slots from {from} to {to}");
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
    plan: &BackfillPlan,
    output: &mut Output,
) -> Result<(), Failure> {
    if asked.sending.json {
        return output.json(&to_value(plan.answer(spec)).unwrap_or_default());
    }
    output.table(BackfillPlan::HEADINGS, &plan.rows())?;
    let places = plan.concurrency(spec);
    let bound = if places < plan.record.concurrency {
        format!(" (`maxActiveRuns` is {places})")
    } else {
        String::new()
    };
    writeln!(output.out, "{}; {places} at a time{bound}; plan {}", plan.sum(), plan.hash)?;
    Ok(())
}
