//! `interlock runs`: attempts, newest first.

use std::{io::Write as _, path::Path};

use interlock_core::{
    run::{RunState, TriggerType},
    text::TextError,
};
use interlock_store::{RunQuery, RunRow};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    arguments::Runs,
    exit::{Failure, SUCCESS},
    ledger::Ledger,
    ledger_json,
    output::{Output, instant},
};

pub(super) fn run(directory: &Path, runs: &Runs, output: &mut Output) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    let wrong = |error: TextError| Failure::usage(error.message, error.help);
    let status = runs.status.as_ref().map(|status| RunState::parse(&status.to_uppercase()));
    let trigger_type = runs.trigger_type.as_deref().map(TriggerType::parse);
    let query = RunQuery {
        pipeline: runs.pipeline.as_ref().map(|name| ledger.known(directory, name)).transpose()?,
        slot: None,
        status: status.transpose().map_err(wrong)?.map(|state| state.as_str().to_owned()),
        trigger_type: trigger_type.transpose().map_err(wrong)?.map(|kind| kind.as_str().to_owned()),
        limit: runs.limit as usize,
    };
    let page = ledger.runs(&query)?;
    if runs.json {
        output.json(&Value::Array(page.items.iter().map(ledger_json::run).collect()))?;
        return Ok(SUCCESS);
    }
    if page.items.is_empty() {
        writeln!(output.out, "no such runs")?;
        return Ok(SUCCESS);
    }
    let rows: Vec<_> = page.items.iter().map(to_row).collect();
    output.table(["RUN", "STATUS", "TYPE", "STARTED", "ENDED", "MESSAGE"], &rows)?;
    if page.more {
        writeln!(output.err, "there are more; `--limit` says how many are listed")?;
    }
    Ok(SUCCESS)
}

fn to_row(run: &RunRow) -> [String; 6] {
    let record = &run.record;
    let shown = |at: Option<Timestamp>| at.map_or_else(String::new, instant);
    [
        run.key.id(&run.pipeline),
        record.status.clone(),
        record.trigger_type.clone(),
        shown(record.started_at),
        shown(record.ended_at),
        record.message.clone().unwrap_or_default(),
    ]
}
