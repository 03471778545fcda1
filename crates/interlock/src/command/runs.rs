//! `interlock runs`: attempts, newest first.

use std::io::Write as _;

use interlock_answers::{
    Cursor, LIMIT_MAX, Listing,
    model::run::{RunAnswer, RunsQuery},
    table,
};
use serde_json::to_value;

use crate::{arguments::Runs, exit::Failure, output::Output, source::Source, target::Target};

pub(super) fn run(target: &Target, runs: &Runs, output: &mut Output) -> Result<u8, Failure> {
    let source = Source::open(target, output)?;
    let named = runs.named.as_ref().or(runs.pipeline.as_ref());
    let only = named.map(|name| source.known(name)).transpose()?;
    let asked = RunsQuery {
        pipeline: only.as_ref().map(ToString::to_string),
        status: runs.status.iter().map(|status| status.to_uppercase()).collect(),
        trigger_type: runs.trigger_type.iter().cloned().collect(),
        after: runs.after.as_ref().map(|run| behind(&source, run)).transpose()?,
        ..RunsQuery::default()
    };
    let page = list(&source, asked, runs.limit as usize)?;
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
    source.conclude(only.as_ref(), output)
}

/// Where a list goes on behind a run.
fn behind(source: &Source, run: &str) -> Result<String, Failure> {
    let run = source.run(run)?;
    Ok(Cursor::Runs { at: run.created_at, id: run.id }.encode())
}

/// So many runs, page by page.
fn list(
    source: &Source,
    mut asked: RunsQuery,
    limit: usize,
) -> Result<Listing<RunAnswer>, Failure> {
    let mut items: Vec<RunAnswer> = Vec::new();
    loop {
        asked.limit = Some((limit - items.len()).min(LIMIT_MAX));
        let page = source.runs(&asked)?;
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
