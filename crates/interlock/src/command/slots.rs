//! `interlock slots`: the ledger of an interval, with what became of each slot.
//!
//! A row wins over the span that covers it. Listed as one line, a span keeps its count; expanded, its slots are listed, and those
//! that have a row of their own are left out.

use std::{collections::BTreeSet, io::Write as _};

use interlock_answers::{
    LIMIT_MAX,
    model::slot::{LedgerAnswer, SlotsQuery},
    table,
};
use interlock_core::{id::PipelineId, zone::Zone};
use interlock_store::{LedgerQuery, block_on};
use jiff::{SignedDuration, Timestamp};
use serde_json::to_value;

use crate::{
    arguments::Slots, clock, exit::Failure, output::Output, source::Source, target::Target,
};

const DAY: SignedDuration = SignedDuration::from_hours(24);

pub(super) fn run(target: &Target, slots: &Slots, output: &mut Output) -> Result<u8, Failure> {
    let source = Source::open(target, output)?;
    let pipeline = slots.pipeline.as_ref().map(|name| source.known(name)).transpose()?;
    let query = query(&source, slots, pipeline)?;
    let items = if slots.expand {
        expanded(&source, &query, slots, output)?
    } else {
        recorded(&source, &query)?
    };
    if slots.json {
        output.json(&to_value(&items).unwrap_or_default())?;
    } else if items.is_empty() {
        writeln!(output.out, "no slots are recorded in this time")?;
    } else {
        let rows: Vec<_> = items.iter().map(table::ledger_row).collect();
        output.table(table::SLOTS, &rows)?;
    }
    source.conclude(query.pipeline.as_ref(), output)
}

fn query(
    source: &Source,
    slots: &Slots,
    pipeline: Option<PipelineId>,
) -> Result<LedgerQuery, Failure> {
    let now = clock::now();
    // What is declared says which zone times of a pipeline are in.
    let has_times = slots.from.is_some() || slots.to.is_some();
    let zone = match pipeline.as_ref().filter(|_| has_times) {
        Some(pipeline) => source.first_zone(pipeline)?,
        None => Zone::utc(),
    };
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

/// What stands in the interval, in order of time.
fn recorded(source: &Source, query: &LedgerQuery) -> Result<Vec<LedgerAnswer>, Failure> {
    if let Source::Project(here) = source {
        let rows = here.ledger.rows(query)?;
        return Ok(block_on(here.ledger.reader().ledger_answers(rows))?);
    }
    let asked = SlotsQuery {
        pipeline: query.pipeline.as_ref().map(ToString::to_string),
        disposition: query.disposition.iter().cloned().collect(),
        from: Some(query.from),
        until: Some(query.until),
        limit: Some(LIMIT_MAX),
        ..SlotsQuery::default()
    };
    all(source, asked)
}

/// Page by page.
fn all(source: &Source, mut asked: SlotsQuery) -> Result<Vec<LedgerAnswer>, Failure> {
    let mut items = Vec::new();
    loop {
        let page = source.slots(&asked)?;
        items.extend(page.items);
        asked.after = page.next;
        if asked.after.is_none() {
            return Ok(items);
        }
    }
}

/// The same with the slots of spans, pipeline by pipeline, in order of time.
fn expanded(
    source: &Source,
    query: &LedgerQuery,
    slots: &Slots,
    output: &mut Output,
) -> Result<Vec<LedgerAnswer>, Failure> {
    let pipelines: BTreeSet<String> = match &query.pipeline {
        Some(only) => [only.to_string()].into(),
        None => recorded(source, query)?.iter().map(|item| place(item).1.to_owned()).collect(),
    };
    let mut items = Vec::new();
    for pipeline in pipelines {
        let asked = SlotsQuery {
            pipeline: Some(pipeline),
            disposition: slots.disposition.iter().cloned().collect(),
            from: Some(query.from),
            until: Some(query.until),
            expand: true,
            limit: Some(LIMIT_MAX),
            ..SlotsQuery::default()
        };
        items.extend(all(source, asked)?);
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
