//! `interlock slots`: the ledger of an interval, with what became of each slot.
//!
//! A row wins over the span that covers it. Listed as one line, a span keeps its count; expanded, it is
//! enumerated by the declared schedule, and the slots that have a row of their own are left out.

use std::{collections::BTreeSet, io::Write as _, path::Path, sync::Arc};

use interlock_config::Loaded;
use interlock_core::id::{PipelineId, ScheduleId, SlotKey};
use interlock_store::{
    LedgerEntry, LedgerQuery, LedgerRow, RunRow,
    record::{SlotRecord, SpanRecord},
    story,
};
use jiff::{SignedDuration, Timestamp, civil::Date};
use serde_json::Value;

use crate::{
    arguments::Slots,
    clock,
    exit::Failure,
    ledger::Ledger,
    ledger_json::{self, slot_key},
    output::Output,
    project, slot_name,
};

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// What is listed.
enum Item {
    /// A slot with a row of its own, and its runs.
    Slot(SlotKey, Box<SlotRecord>, Vec<RunRow>),
    /// One slot of a span.
    OfSpan(SlotKey, Date, SpanRecord),
    /// A whole span.
    Span(SlotKey, SpanRecord),
}

pub(super) fn run(directory: &Path, slots: &Slots, output: &mut Output) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    let pipeline = slots.pipeline.as_ref().map(|name| ledger.known(directory, name)).transpose()?;
    // Files say what slots a span stands for, and which zone times of a pipeline are in; of a list of all, nothing else.
    let has_times = slots.from.is_some() || slots.to.is_some();
    let needs_files = slots.expand || (pipeline.is_some() && has_times);
    let loaded = needs_files.then(|| project::load(directory)).transpose()?;
    let query = query(loaded.as_ref(), slots, pipeline);
    let rows = ledger.rows(&query)?;
    let rows = match loaded.filter(|_| slots.expand) {
        Some(loaded) => expand(&loaded, &query, rows, output)?,
        None => rows.into_iter().map(|row| (slot_key(&row), Listed::Row(row.entry))).collect(),
    };
    let asked =
        |listed: &Listed| slots.disposition.as_deref().is_none_or(|word| listed.ended(word));
    let rows: Vec<_> = rows.into_iter().filter(|(_, listed)| asked(listed)).collect();
    let items = with_runs(&ledger, rows)?;
    if slots.json {
        output.json(&Value::Array(items.iter().map(Item::to_json).collect()))?;
    } else {
        print(&items, output)?;
    }
    ledger.conclude(query.pipeline.as_ref(), output)
}

fn query(loaded: Option<&Loaded>, slots: &Slots, pipeline: Option<PipelineId>) -> LedgerQuery {
    let now = clock::now();
    let declared =
        pipeline.as_ref().zip(loaded).and_then(|(name, loaded)| project::find(loaded, name));
    let zone = slot_name::first_zone(declared);
    let from = slots.from.map(|from| from.at(now, &zone));
    let until = slots.to.map(|to| to.at(now, &zone));
    // Expanding needs the rows that win over a span, whatever became of them.
    let disposition = slots.disposition.clone().filter(|_| !slots.expand);
    LedgerQuery {
        pipeline,
        from: from.unwrap_or_else(|| now.saturating_sub(DAY).unwrap_or(Timestamp::MIN)),
        until: until.unwrap_or_else(|| now.saturating_add(DAY).unwrap_or(Timestamp::MAX)),
        disposition,
        ..LedgerQuery::everything(0)
    }
}

/// A row, or one slot of a span.
enum Listed {
    Row(LedgerEntry),
    OfSpan(Date, SpanRecord),
}

impl Listed {
    /// Whether it ended as a word says; `open` is for those that have not.
    fn ended(&self, word: &str) -> bool {
        let disposition = match self {
            Self::Row(LedgerEntry::Slot(slot)) => slot.disposition.as_deref(),
            Self::Row(LedgerEntry::Span(span)) | Self::OfSpan(_, span) => Some(&*span.disposition),
        };
        disposition.unwrap_or("open") == word
    }
}

/// Puts the slots of each span in its place, in order of time.
fn expand(
    loaded: &Loaded,
    query: &LedgerQuery,
    rows: Vec<LedgerRow>,
    output: &mut Output,
) -> Result<Vec<(SlotKey, Listed)>, Failure> {
    let own: BTreeSet<SlotKey> =
        rows.iter().filter(|row| matches!(row.entry, LedgerEntry::Slot(_))).map(slot_key).collect();
    let mut all = Vec::new();
    for row in rows {
        let key = slot_key(&row);
        let span = match row.entry {
            LedgerEntry::Span(span) => span,
            slot @ LedgerEntry::Slot(_) => {
                all.push((key, Listed::Row(slot)));
                continue;
            }
        };
        if let Some(slots) = enumerate(loaded, query, &key, &span) {
            let slots = slots.into_iter().filter(|(key, _)| !own.contains(key));
            all.extend(slots.map(|(key, date)| (key, Listed::OfSpan(date, span.clone()))));
        } else {
            writeln!(
                output.err,
                "the span of {key} stays one: its schedule has changed since it was recorded"
            )?;
            all.push((key, Listed::Row(LedgerEntry::Span(span))));
        }
    }
    all.sort_by(|(one, _), (other, _)| place(one).cmp(&place(other)));
    Ok(all)
}

fn place(key: &SlotKey) -> (Timestamp, &PipelineId, &ScheduleId) {
    (key.nominal, &key.pipeline, &key.schedule)
}

/// The slots of a span within the interval; `None` if the declared schedule does not give the same ones.
fn enumerate(
    loaded: &Loaded,
    query: &LedgerQuery,
    first: &SlotKey,
    span: &SpanRecord,
) -> Option<Vec<(SlotKey, Date)>> {
    let pipeline = project::find(loaded, &first.pipeline)?;
    let schedule = pipeline.schedule(&first.schedule)?;
    let just_after = span.last.saturating_add(SignedDuration::from_nanos(1)).unwrap_or(span.last);
    let limit = usize::try_from(span.count).ok()?.saturating_add(1);
    let found = schedule.slots(first.nominal, just_after, limit).found;
    let is_same = found.len() as u64 == span.count
        && found.first() == Some(&first.nominal)
        && found.last() == Some(&span.last);
    is_same.then(|| {
        let within = found.into_iter().filter(|at| (query.from..query.until).contains(at));
        let slot = |nominal| SlotKey { nominal, ..first.clone() };
        within.map(|at| (slot(at), schedule.occurrence(at).date)).collect()
    })
}

/// Adds the runs to the slots that have a row.
fn with_runs(ledger: &Ledger, rows: Vec<(SlotKey, Listed)>) -> Result<Vec<Item>, Failure> {
    let slots = rows.iter().filter_map(|(key, listed)| match listed {
        Listed::Row(LedgerEntry::Slot(slot)) => Some((key, slot.as_ref())),
        Listed::Row(LedgerEntry::Span(_)) | Listed::OfSpan(..) => None,
    });
    let mut runs = ledger.runs_of_all(slots)?;
    let item = |(key, listed): (SlotKey, Listed)| match listed {
        Listed::OfSpan(date, span) => Item::OfSpan(key, date, span),
        Listed::Row(LedgerEntry::Span(span)) => Item::Span(key, span),
        Listed::Row(LedgerEntry::Slot(slot)) => {
            let runs = runs.remove(&key).unwrap_or_default();
            Item::Slot(key, Box::new(Arc::unwrap_or_clone(slot)), runs)
        }
    };
    Ok(rows.into_iter().map(item).collect())
}

impl Item {
    fn to_json(&self) -> Value {
        match self {
            Self::Slot(key, slot, runs) => ledger_json::slot(key, slot, runs),
            Self::OfSpan(key, date, span) => ledger_json::slot_of_span(key, *date, span),
            Self::Span(key, span) => ledger_json::span(key, span),
        }
    }

    fn to_row(&self) -> [String; 6] {
        match self {
            Self::Slot(key, slot, runs) => story::slot_row(key, slot, runs.len()),
            Self::OfSpan(key, _, span) => story::of_span_row(key, span),
            Self::Span(key, span) => story::span_row(key, span),
        }
    }
}

fn print(items: &[Item], output: &mut Output) -> Result<(), Failure> {
    if items.is_empty() {
        writeln!(output.out, "no slots are recorded in this time")?;
        return Ok(());
    }
    let rows: Vec<_> = items.iter().map(Item::to_row).collect();
    output.table(story::SLOTS, &rows)
}
