//! `interlock catchup` at a server.

use std::io::Write as _;

use interlock_answers::{
    LIMIT_MAX, Listing,
    model::{
        page::PageQuery,
        pause::PauseAnswer,
        plan::{CatchupPlanAnswer, CatchupPlanQuery, PlanLineAnswer},
    },
    table,
};
use interlock_core::id::PipelineId;
use interlock_store::record::InboxRecord;
use jiff::SignedDuration;
use serde_json::to_value;

use super::{say_nothing_missed, say_paused};
use crate::{
    arguments::Catchup,
    clock,
    exit::{Failure, SUCCESS},
    output::Output,
    remote::{RemoteServer, query::path, route},
    source::Source,
    target::ServerAddress,
};

/// How long the owner of each pipeline is waited for.
const WAIT: SignedDuration = SignedDuration::from_secs(10);

/// What is owed, and who is paused.
#[derive(Default)]
struct Owed {
    lines: Vec<PlanLineAnswer>,
    paused: Vec<String>,
}

pub(super) fn run(
    address: &ServerAddress,
    catchup: &Catchup,
    output: &mut Output,
) -> Result<u8, Failure> {
    let source = Source::at(address, output)?;
    let server = source.server()?;
    let only = catchup.pipeline.as_ref().map(|name| source.known(name)).transpose()?;
    let now = clock::now();
    let at = match (catchup.at, &only) {
        (Some(at), Some(only)) => Some(at.at(now, &source.first_zone(only)?)),
        (Some(at), None) => Some(at.at(now, &interlock_core::zone::Zone::utc())),
        (None, _) => None,
    };
    let asked = CatchupPlanQuery {
        pipeline: only.iter().map(ToString::to_string).collect(),
        after: None,
        at,
    };
    let owed = owed(server, asked)?;
    mention_paused(server, &owed, output)?;
    if catchup.json {
        output.json(&to_value(&owed.lines).unwrap_or_default())?;
    } else {
        print(&owed.lines, output)?;
    }
    let is_all_queued = owed.lines.iter().all(is_queued);
    if !(catchup.dry_run || catchup.at.is_some() || is_all_queued) {
        ask(server, &owed.lines, output)?;
    }
    Ok(SUCCESS)
}

/// What is owed from before, part by part.
fn owed(server: &RemoteServer, mut asked: CatchupPlanQuery) -> Result<Owed, Failure> {
    let mut owed = Owed::default();
    loop {
        let plan: CatchupPlanAnswer = server.get(&path(&["catchup", "plan"]), &asked)?;
        owed.lines.extend(plan.lines);
        owed.paused.extend(plan.paused);
        asked.after = plan.next;
        if asked.after.is_none() {
            return Ok(owed);
        }
    }
}

fn mention_paused(server: &RemoteServer, owed: &Owed, output: &mut Output) -> Result<(), Failure> {
    if owed.paused.is_empty() {
        return Ok(());
    }
    let mut asked = PageQuery { after: None, limit: Some(LIMIT_MAX) };
    loop {
        let page: Listing<PauseAnswer> = server.get(&path(&["pauses"]), &asked)?;
        for pause in page.items.iter().filter(|it| owed.paused.contains(&it.pipeline)) {
            say_paused(&pause.pipeline, pause.since, output)?;
        }
        asked.after = page.next;
        if asked.after.is_none() {
            return Ok(());
        }
    }
}

/// Asks the owners to do it now.
fn ask(
    server: &RemoteServer,
    lines: &[PlanLineAnswer],
    output: &mut Output,
) -> Result<(), Failure> {
    let mut pipelines: Vec<_> = lines.iter().map(|line| line.pipeline.as_str()).collect();
    pipelines.dedup();
    for pipeline in pipelines.into_iter().filter_map(|name| PipelineId::parse(name).ok()) {
        let Some(change) = route::of(&pipeline, &InboxRecord::Catchup {}) else { continue };
        server.change(&change, WAIT)?;
    }
    writeln!(output.err, "{} was asked to do it now", server.host())?;
    Ok(())
}

/// Whether its slot is recorded already and waits for its turn.
fn is_queued(line: &PlanLineAnswer) -> bool {
    line.reason == "queued" || line.action == "wait"
}

/// Prints lines for people.
pub(crate) fn print(lines: &[PlanLineAnswer], output: &mut Output) -> Result<(), Failure> {
    if lines.is_empty() {
        return say_nothing_missed(output);
    }
    output.table(table::PLAN_LINES, &table::plan_rows(lines))
}
