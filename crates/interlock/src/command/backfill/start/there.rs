//! `interlock backfill start` at a server: the plan comes from there, and what is started is the plan that was looked at.

use std::io::{self, IsTerminal as _, Write as _};

use interlock_answers::{
    BackfillPlan,
    model::plan::{BackfillPlanAnswer, BackfillPlanRequest},
};
use interlock_core::zone::Zone;
use serde_json::to_value;

use super::{UNASKED_MAX, confirmed, follow, none_would_run, request};
use crate::{
    arguments::BackfillStart,
    clock,
    exit::{Failure, SUCCESS},
    output::Output,
    remote::{query::path, route},
    source::{Source, applied, print_answer},
    target::ServerAddress,
};

pub(super) fn run(
    address: &ServerAddress,
    asked: &BackfillStart,
    output: &mut Output,
) -> Result<u8, Failure> {
    let source = Source::at(address, output)?;
    let server = source.server()?;
    let pipeline = source.known(&asked.pipeline)?;
    let zones = source.schedule_zones(&pipeline)?;
    let named = zones.all.iter().filter(|it| asked.schedules.iter().any(|id| id == it.id.as_str()));
    let mut named = named.map(|it| &it.zone);
    let zone: &Zone = match named.next() {
        Some(first) if named.all(|other| other == first) => first,
        Some(_) | None => &zones.first,
    };
    let wanted: BackfillPlanRequest = request(asked, clock::now(), zone)?;
    let name = pipeline.as_str();
    let (plan, etag): (BackfillPlanAnswer, _) =
        server.plan(&path(&["pipelines", name, "backfills", "plan"]), &wanted)?;
    if asked.dry_run {
        show(asked, &plan, output)?;
        return Ok(SUCCESS);
    }
    let is_much = plan.count > UNASKED_MAX as u64 && !asked.yes;
    if is_much && !confirmed((plan.from, plan.to), asked, output)? {
        writeln!(output.err, "nothing was done")?;
        return Ok(SUCCESS);
    }
    if plan.total == 0 {
        let owed = plan.verdicts.get("owed").copied().unwrap_or_default();
        return Err(none_would_run(plan.count, owed));
    }
    let change = route::post(path(&["pipelines", name, "backfills"]), &wanted);
    let answer = server.change(&change.if_plan_is(etag), asked.sending.wait)?;
    // Who sits at a terminal sees how far it is; it goes on without them.
    let is_watched = asked.follow || (io::stderr().is_terminal() && !asked.sending.json);
    match applied(&answer).as_ref().and_then(follow::number).filter(|_| is_watched) {
        Some(number) => follow::there((server, &pipeline), number, asked.sending, output),
        None => print_answer(server, &answer, asked.sending, output),
    }
}

/// Prints a plan.
fn show(
    asked: &BackfillStart,
    plan: &BackfillPlanAnswer,
    output: &mut Output,
) -> Result<(), Failure> {
    if asked.sending.json {
        return output.json(&to_value(plan).unwrap_or_default());
    }
    output.table(BackfillPlan::HEADINGS, &plan.rows())?;
    let places = plan.concurrency;
    let bound = if places < asked.concurrency {
        format!(" (`maxActiveRuns` is {places})")
    } else {
        String::new()
    };
    writeln!(output.out, "{}; {places} at a time{bound}; plan {}", plan.sum(), plan.plan)?;
    Ok(())
}
