//! `interlock status`: where each pipeline stands.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    path::Path,
};

use interlock_config::ZoneSource as _;
use interlock_core::{
    agenda::Work,
    id::{PipelineId, ScheduleId},
    pipeline::Pipeline,
    schedule::Schedule,
};
use interlock_store::{
    AgendaRow, BackfillQuery, BackfillRow, LedgerEntry, LedgerRow,
    record::{PauseRecord, Shared},
    story,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    clock,
    exit::Failure,
    last_slots::{last_slots, slot_instant},
    ledger::Ledger,
    ledger_json::slot_key,
    output::{Form, Output, instant},
    owners,
    project_summary::{PipelineSummary, Project, ProjectSummary},
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
    let project = Project::open(directory, ledger.place());
    project.mention_errors(output)?;
    let only = pipeline.map(|name| ledger.known(directory, name)).transpose()?;
    let seen = ledger.pipelines(only.as_ref())?;
    let open = ledger.open_slots(only.as_ref())?;
    let backfills = ledger.backfills(BackfillQuery {
        pipeline: only.clone(),
        unfinished: true,
        ..BackfillQuery::default()
    })?;
    let mut last = last_slots(&ledger, &seen, &open)?;
    let mut nexts = NextSlots { project: &project, shared: Shared::default() };
    let names = names(&project.summary, &seen, only.as_ref());
    let seen: BTreeMap<&PipelineId, &AgendaRow> =
        seen.iter().map(|row| (&row.pipeline, row)).collect();
    let mut by_name: BTreeMap<&PipelineId, Vec<&BackfillRow>> = BTreeMap::new();
    for row in &backfills {
        by_name.entry(&row.pipeline).or_default().push(row);
    }
    let mut standings = Vec::new();
    for name in names {
        let seen = seen.get(&name).copied();
        let declared = project.summary.pipelines.get(&name);
        standings.push(Standing {
            last: last.remove(&name),
            open: open.get(&name).map_or(&[][..], Vec::as_slice),
            backfills: by_name.remove(&name).unwrap_or_default(),
            is_disabled: declared.is_some_and(|declared| !declared.is_enabled),
            next: declared.and_then(|declared| nexts.next(&name, declared, seen)),
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
fn names(
    summary: &ProjectSummary,
    seen: &[AgendaRow],
    only: Option<&PipelineId>,
) -> BTreeSet<PipelineId> {
    if let Some(only) = only {
        return BTreeSet::from([only.clone()]);
    }
    let recorded = seen.iter().filter(|row| row.record.record.retired_at.is_none());
    summary.pipelines.keys().chain(recorded.map(|row| &row.pipeline)).cloned().collect()
}

/// The next slots of pipelines, by their rows as long as these are of the version that is declared.
struct NextSlots<'a> {
    project: &'a Project,
    shared: Shared,
}

impl NextSlots<'_> {
    fn next(
        &mut self,
        name: &PipelineId,
        declared: &PipelineSummary,
        seen: Option<&AgendaRow>,
    ) -> Option<(ScheduleId, Timestamp)> {
        if !declared.is_enabled {
            return None;
        }
        let version = format!("{:016x}", declared.version);
        let record = seen.map(|row| &row.record.record).filter(|record| record.version == version);
        let zones = |name: &str| self.project.zones().zone(name);
        let agenda = record.and_then(|record| record.agenda.as_ref());
        match agenda.map(|agenda| agenda.to_core(&mut self.shared, &zones)) {
            Some(Ok(agenda)) if agenda.work == Work::Dormant => None,
            Some(Ok(agenda)) => first_of(agenda.starts.iter().map(|start| &start.schedule)),
            Some(Err(_)) | None => self.project.next_slot(name),
        }
    }
}

/// The next slot of a pipeline that owes any.
pub(crate) fn next_slot(pipeline: &Pipeline) -> Option<(ScheduleId, Timestamp)> {
    if !pipeline.enabled || pipeline.trigger.is_none() {
        return None;
    }
    first_of(pipeline.starts.iter().map(|start| &start.schedule))
}

/// The next slot of schedules.
fn first_of<'a>(schedules: impl Iterator<Item = &'a Schedule>) -> Option<(ScheduleId, Timestamp)> {
    let now = clock::now();
    let nexts =
        schedules.filter_map(|schedule| Some((schedule.id().clone(), schedule.after(now)?)));
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
