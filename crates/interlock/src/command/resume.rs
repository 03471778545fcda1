//! `interlock resume`: the end of a pause, and what becomes of what lay in it.

use std::{
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    path::Path,
};

use interlock_answers::model::plan::ResumePlanRequest;
use interlock_core::text::counted;
use interlock_engine::PlanLine;
use interlock_store::{block_on, record::InboxRecord};

use super::catchup::print;
use crate::{
    arguments::Resume,
    exit::{Failure, SUCCESS},
    inbox::Inbox,
    output::Output,
};

pub(super) fn run(directory: &Path, asked: &Resume, output: &mut Output) -> Result<u8, Failure> {
    let inbox = Inbox::open(directory, &asked.pipeline)?;
    let request = ResumePlanRequest { catchup: asked.catchup.clone() };
    let catchup = request.wish()?;
    if !agreed(&inbox, asked, &request, output)? {
        writeln!(output.err, "the pipeline stays paused")?;
        return Ok(SUCCESS);
    }
    inbox.send(&InboxRecord::Resume { catchup }, asked.sending, output)
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
    if !asked.sending.json {
        print(&lines, output)?;
    }
    if asked.yes || asked.catchup.is_some() {
        return Ok(true);
    }
    if asked.sending.json || !io::stdin().is_terminal() {
        let count: u64 = lines.iter().filter(|it| it.is_missed()).map(|it| it.count).sum();
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
    write!(output.err, "resume {} and do that? [y/N] ", inbox.pipeline)?;
    output.err.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
