//! `interlock runs`: attempts, newest first.

use std::{io::Write as _, path::Path};

use interlock_answers::{
    Cursor, LIMIT_MAX, Listing,
    model::run::{RunAnswer, RunsQuery},
    table,
};
use interlock_store::block_on;
use serde_json::to_value;

use super::logs;
use crate::{arguments::Runs, exit::Failure, ledger::Ledger, output::Output};

pub(super) fn run(directory: &Path, runs: &Runs, output: &mut Output) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    let named = runs.named.as_ref().or(runs.pipeline.as_ref());
    let only = named.map(|name| ledger.known(directory, name)).transpose()?;
    let asked = RunsQuery {
        pipeline: only.as_ref().map(ToString::to_string),
        status: runs.status.iter().map(|status| status.to_uppercase()).collect(),
        trigger_type: runs.trigger_type.iter().cloned().collect(),
        after: runs.after.as_ref().map(|run| behind(&ledger, run)).transpose()?,
        ..RunsQuery::default()
    };
    let page = list(&ledger, asked, runs.limit as usize)?;
    if page.next.is_some()
        && let Some(last) = page.items.last()
    {
        writeln!(
            output.err,
            "there are more: `--after {}` goes on, `--limit` lists more at once",
            last.id
        )?;
    }
    if runs.json {
        output.json(&to_value(&page.items).unwrap_or_default())?;
    } else if page.items.is_empty() {
        writeln!(output.out, "no such runs")?;
    } else {
        let rows: Vec<_> = page.items.iter().map(table::run_row).collect();
        output.table(table::RUNS, &rows)?;
    }
    ledger.conclude(only.as_ref(), output)
}

/// Where a list goes on behind a run.
fn behind(ledger: &Ledger, run: &str) -> Result<String, Failure> {
    let (pipeline, key, record) = logs::find(ledger, run)?;
    Ok(Cursor::Runs { at: record.created_at, id: key.id(&pipeline) }.encode())
}

/// So many runs, page by page.
fn list(
    ledger: &Ledger,
    mut asked: RunsQuery,
    limit: usize,
) -> Result<Listing<RunAnswer>, Failure> {
    let mut items: Vec<RunAnswer> = Vec::new();
    loop {
        asked.limit = Some((limit - items.len()).min(LIMIT_MAX));
        let page = block_on(ledger.reader().runs(&asked))?;
        asked.after.clone_from(&page.next);
        items.extend(page.items);
        if page.next.is_none() || items.len() == limit {
            return Ok(Listing {
                items,
                next: page.next,
                scanned: page.scanned,
                unreadable: page.unreadable,
            });
        }
    }
}
