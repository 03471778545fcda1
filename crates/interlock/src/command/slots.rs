//! `interlock slots`: the ledger of an interval, with what became of each slot.
//!
//! A row wins over the span that covers it. Listed as one line, a span keeps its count; expanded, its slots are listed, and those
//! that have a row of their own are left out.

use std::{collections::BTreeSet, io::Write as _, path::Path};

use interlock_answers::{
    LIMIT_MAX,
    model::slot::{LedgerAnswer, SlotsQuery},
    table,
};
use interlock_core::id::PipelineId;
use interlock_store::{LedgerQuery, block_on};
use jiff::{SignedDuration, Timestamp};
use serde_json::to_value;

use crate::{
    arguments::Slots, clock, exit::Failure, ledger::Ledger, output::Output, project, slot_name,
};

const DAY: SignedDuration = SignedDuration::from_hours(24);

pub(super) fn run(directory: &Path, slots: &Slots, output: &mut Output) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    let pipeline = slots.pipeline.as_ref().map(|name| ledger.known(directory, name)).transpose()?;
    let query = query(directory, slots, pipeline)?;
    let items = if slots.expand {
        expanded(&ledger, &query, slots, output)?
    } else {
        block_on(ledger.reader().ledger_answers(ledger.rows(&query)?))?
    };
    if slots.json {
        output.json(&to_value(&items).unwrap_or_default())?;
    } else if items.is_empty() {
        writeln!(output.out, "no slots are recorded in this time")?;
    } else {
        let rows: Vec<_> = items.iter().map(table::ledger_row).collect();
        output.table(table::SLOTS, &rows)?;
    }
    ledger.conclude(query.pipeline.as_ref(), output)
}

fn query(
    directory: &Path,
    slots: &Slots,
    pipeline: Option<PipelineId>,
) -> Result<LedgerQuery, Failure> {
    let now = clock::now();
    // The files say which zone times of a pipeline are in.
    let has_times = slots.from.is_some() || slots.to.is_some();
    let loaded = (pipeline.is_some() && has_times).then(|| project::load(directory)).transpose()?;
    let declared = pipeline
        .as_ref()
        .zip(loaded.as_ref())
        .and_then(|(name, loaded)| project::find(loaded, name));
    let zone = slot_name::first_zone(declared);
    let from = slots.from.map(|from| from.at(now, &zone));
    let until = slots.to.map(|to| to.at(now, &zone));
    Ok(LedgerQuery {
        pipeline,
        from: from.unwrap_or_else(|| now.saturating_sub(DAY).unwrap_or(Timestamp::MIN)),
        until: until.unwrap_or_else(|| now.saturating_add(DAY).unwrap_or(Timestamp::MAX)),
        // Expanding needs the rows that win over a span, whatever became of them.
        disposition: slots.disposition.clone().filter(|_| !slots.expand),
        ..LedgerQuery::everything(0)
    })
}

/// The same with the slots of spans, pipeline by pipeline, in order of time.
fn expanded(
    ledger: &Ledger,
    query: &LedgerQuery,
    slots: &Slots,
    output: &mut Output,
) -> Result<Vec<LedgerAnswer>, Failure> {
    let pipelines: BTreeSet<PipelineId> = match &query.pipeline {
        Some(only) => [only.clone()].into(),
        None => ledger.rows(query)?.into_iter().map(|row| row.pipeline).collect(),
    };
    let mut items = Vec::new();
    for pipeline in pipelines {
        let mut asked = SlotsQuery {
            pipeline: Some(pipeline.to_string()),
            disposition: slots.disposition.iter().cloned().collect(),
            from: Some(query.from),
            until: Some(query.until),
            expand: true,
            limit: Some(LIMIT_MAX),
            ..SlotsQuery::default()
        };
        loop {
            let page = block_on(ledger.reader().slots(&asked))?;
            items.extend(page.items);
            asked.after = page.next;
            if asked.after.is_none() {
                break;
            }
        }
    }
    items.sort_by(|one, other| place(one).cmp(&place(other)));
    for item in &items {
        if let LedgerAnswer::Span(span) = item {
            writeln!(
                output.err,
                "the span of {}/{}/{} stays one: its schedule has changed since it was recorded",
                span.pipeline, span.schedule, span.first
            )?;
        }
    }
    Ok(items)
}

fn place(item: &LedgerAnswer) -> (Timestamp, &str, &str) {
    match item {
        LedgerAnswer::Slot(slot) => (slot.utc, &slot.pipeline, &slot.schedule),
        LedgerAnswer::Span(span) => (span.first, &span.pipeline, &span.schedule),
    }
}
