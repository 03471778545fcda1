//! `interlock resume`: the end of a pause, and what becomes of what lay in it.

use std::{
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    path::Path,
};

use interlock_core::text::counted;
use interlock_engine::PlanLine;
use interlock_store::record::{InboxRecord, PauseRecord};

use super::catchup::{Planner, print};
use crate::{
    arguments::Resume,
    clock,
    exit::{Failure, SUCCESS},
    inbox::Inbox,
    output::Output,
    project,
};

pub(super) fn run(directory: &Path, asked: &Resume, output: &mut Output) -> Result<u8, Failure> {
    let inbox = Inbox::open(directory, &asked.pipeline)?;
    let catchup = asked.wish();
    if !agreed(directory, &inbox, asked, output)? {
        writeln!(output.err, "it stays paused")?;
        return Ok(SUCCESS);
    }
    inbox.send(&InboxRecord::Resume { catchup }, asked.sending, output)
}

impl Resume {
    /// What is asked for instead of the policy.
    fn wish(&self) -> Option<String> {
        self.catchup.clone().filter(|what| what != "policy")
    }
}

/// Shows what was missed in the pause and asks whether that is meant. Nobody is asked when nothing was missed, or who
/// has agreed beforehand or chosen what is to become of it; a script must say one or the other beforehand.
fn agreed(
    directory: &Path,
    inbox: &Inbox,
    asked: &Resume,
    output: &mut Output,
) -> Result<bool, Failure> {
    let now = clock::now();
    let loaded = project::load(directory)?;
    let Some(row) = inbox.ledger.agenda_of(&inbox.pipeline)? else { return Ok(true) };
    let pause = row.record.record.pause.clone().filter(|pause| pause.is_in_force(now));
    let Some(pause) = pause else { return Ok(true) };
    let ended = PauseRecord { until: Some(now), catchup: asked.wish(), ..pause };
    let open = inbox.ledger.open_slots(Some(&inbox.pipeline))?;
    let planner = Planner { ledger: &inbox.ledger, loaded: &loaded, open: &open, at: now };
    let lines = planner.lines(&row, Some(&ended))?;
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
                "{} {} missed until now, and nobody is there to ask",
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
