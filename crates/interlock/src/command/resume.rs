//! `interlock resume`: the end of a pause, and what becomes of what lay in it.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use interlock_answers::model::plan::{ResumePlanAnswer, ResumePlanRequest};
use interlock_core::{id::PipelineId, text::counted};
use interlock_engine::PlanLine;
use interlock_store::{block_on, record::InboxRecord};

use super::catchup::{print, print_answers};
use crate::{
    arguments::Resume,
    exit::{Failure, SUCCESS},
    inbox::Inbox,
    output::Output,
    remote::{query::path, route},
    source::{RequestSource, change_there},
    target::Target,
};

pub(super) fn run(target: &Target, asked: &Resume, output: &mut Output) -> Result<u8, Failure> {
    let request = ResumePlanRequest { catchup: asked.catchup.clone() };
    let catchup = request.wish()?;
    let record = InboxRecord::Resume { catchup };
    match RequestSource::open(target, &asked.pipeline, output)? {
        RequestSource::Inbox(inbox) => {
            if !agreed(&inbox, asked, &request, output)? {
                return stays_paused(output);
            }
            inbox.send(&record, asked.sending, output)
        }
        RequestSource::Server(inbox) => {
            let (server, name) = (inbox.source.server()?, inbox.pipeline.as_str());
            let path = path(&["pipelines", name, "resume", "plan"]);
            let (plan, etag): (ResumePlanAnswer, _) = server.plan(&path, &request)?;
            let missed = Missed { pipeline: &inbox.pipeline, count: plan.missed };
            let is_agreed = plan.missed == 0
                || confirmed(&missed, asked, output, |output| print_answers(&plan.lines, output))?;
            if !is_agreed {
                return stays_paused(output);
            }
            let change = route::of(&inbox.pipeline, &record)
                .ok_or_else(|| Failure::failed("internal error: a resume has no route", ""))?;
            // Who has looked at the plan means that one.
            let has_looked = plan.missed > 0 && !asked.yes && asked.catchup.is_none();
            let change = change.if_plan_is(etag.filter(|_| has_looked));
            change_there(server, &change, asked.sending, output)
        }
    }
}

fn stays_paused(output: &mut Output) -> Result<u8, Failure> {
    writeln!(output.err, "the pipeline stays paused")?;
    Ok(SUCCESS)
}

/// What lay in a pause.
struct Missed<'a> {
    pipeline: &'a PipelineId,
    count: u64,
}

/// Shows what was missed in the pause and asks whether that is meant. Nobody is asked when nothing was missed, or who
/// has agreed beforehand or chosen what is to become of it; a script must say one or the other beforehand.
fn agreed(
    inbox: &Inbox,
    asked: &Resume,
    request: &ResumePlanRequest,
    output: &mut Output,
) -> Result<bool, Failure> {
    let lines =
        block_on(inbox.ledger.reader().resume_lines(inbox.pipeline.as_str(), request))?.lines;
    if !lines.iter().any(PlanLine::is_missed) {
        return Ok(true);
    }
    let count = lines.iter().filter(|it| it.is_missed()).map(|it| it.count).sum();
    let missed = Missed { pipeline: &inbox.pipeline, count };
    confirmed(&missed, asked, output, |output| print(&lines, output))
}

/// Shows what was missed, and asks.
fn confirmed(
    missed: &Missed<'_>,
    asked: &Resume,
    output: &mut Output,
    show: impl FnOnce(&mut Output) -> Result<(), Failure>,
) -> Result<bool, Failure> {
    if !asked.sending.json {
        show(output)?;
    }
    if asked.yes || asked.catchup.is_some() {
        return Ok(true);
    }
    if asked.sending.json || !io::stdin().is_terminal() {
        let count = missed.count;
        let what =
            if asked.sending.json { "the pipeline's policy" } else { "what is listed above" };
        return Err(Failure::usage(
            format!(
                "{} {} missed until now, and there is no terminal to ask at",
                counted(count, "slot"),
                if count == 1 { "was" } else { "were" },
            ),
            format!(
                "Say `--yes` if {what} is meant, or choose with `--catchup none|latest|all|policy`."
            ),
        ));
    }
    write!(output.err, "resume {} and do that? [y/N] ", missed.pipeline)?;
    output.err.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
