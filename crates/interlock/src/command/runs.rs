//! `interlock runs`: attempts, newest first.

use std::{io::Write as _, path::Path};

use interlock_core::{
    run::{RunState, TriggerType},
    text::TextError,
};
use interlock_store::{Page, RunPlace, RunQuery, RunRow, story};
use serde_json::Value;

use super::logs;
use crate::{arguments::Runs, exit::Failure, ledger::Ledger, ledger_json, output::Output};

/// Runs asked for at once.
const PAGE: usize = 1_000;

pub(super) fn run(directory: &Path, runs: &Runs, output: &mut Output) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    let wrong = |error: TextError| Failure::usage(error.message, error.help);
    let status = runs.status.as_ref().map(|status| RunState::parse(&status.to_uppercase()));
    let trigger_type = runs.trigger_type.as_deref().map(TriggerType::parse);
    let named = runs.named.as_ref().or(runs.pipeline.as_ref());
    let query = RunQuery {
        pipeline: named.map(|name| ledger.known(directory, name)).transpose()?,
        slot: None,
        status: status.transpose().map_err(wrong)?.map(|state| state.as_str().to_owned()),
        trigger_type: trigger_type.transpose().map_err(wrong)?.map(|kind| kind.as_str().to_owned()),
        after: runs.after.as_ref().map(|run| place(&ledger, run)).transpose()?,
        limit: 0,
    };
    let only = query.pipeline.clone();
    let page = list(&ledger, query, runs.limit as usize)?;
    if page.more
        && let Some(last) = page.items.last()
    {
        let last = last.key.id(&last.pipeline);
        writeln!(
            output.err,
            "there are more: `--after {last}` goes on, `--limit` lists more at once"
        )?;
    }
    if runs.json {
        output.json(&Value::Array(page.items.iter().map(ledger_json::run).collect()))?;
    } else if page.items.is_empty() {
        writeln!(output.out, "no such runs")?;
    } else {
        let rows: Vec<_> = page.items.iter().map(story::run_row).collect();
        output.table(story::RUNS, &rows)?;
    }
    ledger.conclude(only.as_ref(), output)
}

/// Where a run stands among the others.
fn place(ledger: &Ledger, run: &str) -> Result<RunPlace, Failure> {
    let (pipeline, key, record) = logs::find(ledger, run)?;
    Ok(RunPlace { created_at: record.created_at, pipeline, key })
}

/// So many runs, page by page.
fn list(ledger: &Ledger, mut query: RunQuery, limit: usize) -> Result<Page<RunRow>, Failure> {
    let mut items: Vec<RunRow> = Vec::new();
    loop {
        query.limit = (limit - items.len()).min(PAGE);
        let page = ledger.runs(&query)?;
        query.after = page.items.last().map(RunRow::place);
        items.extend(page.items);
        if !page.more || items.len() == limit {
            return Ok(Page { items, more: page.more });
        }
    }
}
