//! `interlock status`: where each pipeline stands.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    path::Path,
};

use interlock_config::Loaded;
use interlock_core::{
    id::{PipelineId, ScheduleId},
    pipeline::Pipeline,
};
use interlock_store::{
    AgendaRow, BackfillQuery, BackfillRow, LedgerEntry, LedgerQuery, LedgerRow, RunQuery,
    record::PauseRecord, story,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    clock,
    exit::Failure,
    ledger::Ledger,
    ledger_json::slot_key,
    output::{Form, Output, instant},
    owners, project,
};

/// What is known of one pipeline.
struct Standing<'a> {
    name: PipelineId,
    seen: Option<&'a AgendaRow>,
    last: Option<LedgerRow>,
    open: &'a [LedgerRow],
    /// Those that run or are paused.
    backfills: Vec<&'a BackfillRow>,
    /// Whether its file says so.
    is_disabled: bool,
    /// Whether nobody can tell now what is recorded of it.
    is_away: bool,
    next: Option<(ScheduleId, Timestamp)>,
}

pub(super) fn run(
    directory: &Path,
    pipeline: Option<&str>,
    form: Form,
    output: &mut Output,
) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    let loaded = project::load(directory)?;
    project::mention_errors(&loaded, output)?;
    let only = pipeline.map(|name| ledger.known(directory, name)).transpose()?;
    let seen = ledger.pipelines(only.as_ref())?;
    let open = ledger.open_slots(only.as_ref())?;
    let declared: BTreeMap<&PipelineId, &Pipeline> =
        loaded.pipelines.iter().map(|loaded| (&loaded.pipeline.name, &loaded.pipeline)).collect();
    let names = names(&loaded, &seen, only.as_ref());
    let seen: BTreeMap<&PipelineId, &AgendaRow> =
        seen.iter().map(|row| (&row.pipeline, row)).collect();
    let backfills = ledger.backfills(BackfillQuery {
        pipeline: only.clone(),
        unfinished: true,
        ..BackfillQuery::default()
    })?;
    let mut standings = Vec::new();
    for name in names {
        let seen = seen.get(&name).copied();
        let slots = open.get(&name).map_or(&[][..], Vec::as_slice);
        standings.push(Standing {
            last: seen.map(|row| last_slot(&ledger, row, slots)).transpose()?.flatten(),
            open: slots,
            backfills: backfills.iter().filter(|row| row.pipeline == name).collect(),
            is_disabled: declared.get(&name).is_some_and(|pipeline| !pipeline.enabled),
            next: declared.get(&name).copied().and_then(next_slot),
            is_away: ledger.away(&name).is_some(),
            name,
            seen,
        });
    }
    if form == Form::Json {
        // Of what nobody can tell, nothing is said: all fields would be those of one that was never seen.
        let told = standings.iter().filter(|standing| !standing.is_away);
        output.json(&Value::Array(told.map(Standing::to_json).collect()))?;
    } else {
        print(&standings, &ledger, output)?;
    }
    ledger.conclude(only.as_ref(), output)
}

/// Everything declared or recorded and not retired; or the one that is asked for.
fn names(loaded: &Loaded, seen: &[AgendaRow], only: Option<&PipelineId>) -> BTreeSet<PipelineId> {
    if let Some(only) = only {
        return BTreeSet::from([only.clone()]);
    }
    let declared = loaded.pipelines.iter().map(|loaded| loaded.pipeline.name.clone());
    let recorded = seen.iter().filter(|row| row.record.record.retired_at.is_none());
    declared.chain(recorded.map(|row| row.pipeline.clone())).collect()
}

/// What stands at the latest watermark, or what a sensor opened since; a stop is no work.
fn last_slot(
    ledger: &Ledger,
    row: &AgendaRow,
    open: &[LedgerRow],
) -> Result<Option<LedgerRow>, Failure> {
    let starts = row.watermarks.iter().filter(|(schedule, _)| !schedule.is_control());
    let latest = starts.max_by_key(|(_, watermark)| watermark.record.at);
    let marked = match latest {
        Some((schedule, watermark)) => {
            let rows = ledger.rows_at(&row.pipeline, watermark.record.at)?;
            // A row comes before the span that covers it.
            rows.into_iter().find(|found| found.schedule == *schedule)
        }
        None => None,
    };
    // No watermark passes what sensors open: of that, what is open and what ran last.
    let newest = RunQuery { pipeline: Some(row.pipeline.clone()), limit: 1, ..RunQuery::default() };
    let ran = match ledger.runs(&newest)?.items.first() {
        Some(run) => ledger.rows_at(&row.pipeline, run.key.nominal)?,
        None => Vec::new(),
    };
    let is_marked = marked.is_some();
    let known = ran.into_iter().chain(open.iter().cloned()).chain(marked);
    let last = known.filter(|row| is_scheduled(&row.schedule)).max_by_key(slot_instant);
    if is_marked {
        return Ok(last);
    }
    let later = last_since(ledger, &row.pipeline, last.as_ref().map(slot_instant))?;
    Ok(later.or(last))
}

/// The last slot since an instant, else of the last month: one that never ran, such as one whose sensor did not pass.
fn last_since(
    ledger: &Ledger,
    pipeline: &PipelineId,
    since: Option<Timestamp>,
) -> Result<Option<LedgerRow>, Failure> {
    let month = clock::now().checked_sub(SignedDuration::from_hours(24 * 32));
    let from = since.or(month.ok()).unwrap_or(Timestamp::MIN);
    let everything = LedgerQuery::everything(0);
    let query = LedgerQuery { pipeline: Some(pipeline.clone()), from, ..everything };
    let rows = ledger.rows(&query)?.into_iter().filter(|row| is_scheduled(&row.schedule));
    Ok(rows.max_by_key(slot_instant))
}

/// Whether slots of it are owed or awaited: neither a stop nor what a person asked for.
fn is_scheduled(schedule: &ScheduleId) -> bool {
    !schedule.is_control() && schedule.as_str() != "manual"
}

/// The next slot of a pipeline that owes any.
pub(super) fn next_slot(pipeline: &Pipeline) -> Option<(ScheduleId, Timestamp)> {
    if !pipeline.enabled || pipeline.trigger.is_none() {
        return None;
    }
    let now = clock::now();
    let nexts = pipeline
        .starts
        .iter()
        .filter_map(|start| Some((start.schedule.id().clone(), start.schedule.after(now)?)));
    nexts.min_by_key(|(_, at)| *at)
}

impl Standing<'_> {
    fn watermarks(&self) -> impl Iterator<Item = (&ScheduleId, Timestamp)> {
        let rows = self.seen.iter().flat_map(|row| &row.watermarks);
        rows.map(|(schedule, row)| (schedule, row.record.at))
    }

    /// The pause that is in force.
    fn pause(&self) -> Option<&PauseRecord> {
        let pause = self.seen.and_then(|row| row.record.record.pause.as_ref());
        pause.filter(|pause| pause.is_in_force(clock::now()))
    }

    fn to_json(&self) -> Value {
        let record = self.seen.map(|row| &row.record.record);
        let pause = self.pause();
        let watermarks: BTreeMap<_, _> = self
            .watermarks()
            .map(|(schedule, at)| (schedule.to_string(), at.to_string()))
            .collect();
        json!({
            "pipeline": self.name.as_str(),
            "firstSeen": record.map(|record| record.first_seen.to_string()),
            "retiredAt": record.and_then(|record| record.retired_at).map(|at| at.to_string()),
            "paused": pause.map(|pause| json!({
                "reason": pause.reason,
                "since": pause.since.to_string(),
                "until": pause.until.map(|at| at.to_string()),
            })),
            "disabled": self.is_disabled,
            "backfills": self.backfills.iter().map(|row| json!({
                "id": row.number,
                "state": row.record.state,
                "ended": row.record.counts.ended(),
                "total": row.record.total,
            })).collect::<Vec<_>>(),
            "last": self.last.as_ref().map(entry_json),
            "open": self.open.iter().map(entry_json).collect::<Vec<_>>(),
            "watermarks": watermarks,
            "next": self.next.as_ref().map(|(schedule, at)| json!({
                "schedule": schedule.as_str(), "utc": at.to_string(),
            })),
        })
    }

    fn to_row(&self) -> [String; 6] {
        let last = self.last.as_ref();
        [
            self.name.to_string(),
            last.map_or_else(String::new, |row| slot_instant(row).to_string()),
            last.map_or_else(String::new, state),
            open_states(self.open),
            self.next.as_ref().map_or_else(String::new, |(_, at)| at.to_string()),
            self.notes().join("; "),
        ]
    }

    /// What is out of the ordinary about it.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let record = self.seen.map(|row| &row.record.record);
        if self.is_away {
            notes.push("cannot be read: its shard is away".to_owned());
        } else if record.is_none() {
            notes.push("not seen by `interlock serve` yet".to_owned());
        }
        if record.is_some_and(|record| record.retired_at.is_some()) {
            notes.push("retired".to_owned());
        }
        if self.is_disabled {
            notes.push("disabled in its file".to_owned());
        }
        notes.extend(self.pause().map(|pause| match pause.until {
            Some(until) => format!("paused until {}: {}", instant(until), pause.reason),
            None => format!("paused: {}", pause.reason),
        }));
        notes.extend(self.backfills.iter().map(|row| {
            let record = &row.record;
            let (ended, total) = (record.counts.ended(), record.total);
            format!("backfill {} is {}, {ended} of {total} ended", row.number, record.state)
        }));
        notes
    }
}

/// The instant that a row stands for here: a slot's, or a span's last.
fn slot_instant(row: &LedgerRow) -> Timestamp {
    match &row.entry {
        LedgerEntry::Slot(_) => row.nominal,
        LedgerEntry::Span(span) => span.last,
    }
}

fn state(row: &LedgerRow) -> String {
    match &row.entry {
        LedgerEntry::Slot(slot) => story::slot_state(slot),
        LedgerEntry::Span(span) => story::span_state(span),
    }
}

fn entry_json(row: &LedgerRow) -> Value {
    let at = slot_instant(row);
    let key = interlock_core::id::SlotKey { nominal: at, ..slot_key(row) };
    let (state, disposition, reason) = match &row.entry {
        LedgerEntry::Slot(slot) => (slot.state.as_str(), slot.disposition.as_ref(), &slot.reason),
        LedgerEntry::Span(span) => ("closed", Some(&span.disposition), &span.reason),
    };
    json!({
        "slot": key.to_string(), "schedule": key.schedule.as_str(), "utc": at.to_string(),
        "state": state, "disposition": disposition, "reason": reason,
    })
}

/// How many slots are open, by state: `2 waiting, 1 running`.
fn open_states(open: &[LedgerRow]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for row in open {
        *counts.entry(state(row)).or_default() += 1;
    }
    counts.iter().map(|(state, count)| format!("{count} {state}")).collect::<Vec<_>>().join(", ")
}

fn print(standings: &[Standing<'_>], ledger: &Ledger, output: &mut Output) -> Result<(), Failure> {
    if !ledger.is_served() {
        writeln!(output.err, "no `interlock serve` is running here; this is what was recorded")?;
    }
    if standings.is_empty() {
        writeln!(output.out, "there are no pipelines")?;
        return Ok(());
    }
    let rows: Vec<_> = standings.iter().map(Standing::to_row).collect();
    output.table(["PIPELINE", "LAST SLOT", "STATE", "OPEN", "NEXT SLOT", "NOTE"], &rows)?;
    let owners = owners::sentence(ledger.roll()?.as_ref(), ledger.store().shard_count());
    if let Some(owners) = owners {
        writeln!(output.out, "shards {owners}")?;
    }
    Ok(())
}
