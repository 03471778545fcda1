//! Judges what a test left behind, by the ledger and by the jobs' own log alone.
//!
//! What is owed is counted second by second, without any code of the schedules: every whole second between
//! first sight and watermark that a number divides. Every finding is a sentence; none means that S2, S3, S4,
//! S6 and S19 hold.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Arc,
};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    AgendaRow, LedgerEntry, LedgerQuery, LedgerRow, RunQuery, RunRow, Shard, Store as _, block_on,
    record::{SlotRecord, SpanRecord},
};
use interlock_store_embedded::EmbeddedStore;
use jiff::{SignedDuration, Timestamp};

/// After its `closes_at` the owner leaves a slot to the watchdog for a minute (DESIGN §3); then it closes it.
const CLOSES_LATE_MAX: SignedDuration = SignedDuration::from_secs(70);

/// A schedule of the test, and what it owes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owed {
    pub(crate) pipeline: &'static str,
    pub(crate) schedule: &'static str,
    /// Every so many seconds of the epoch.
    pub(crate) every: i64,
    /// How many of its jobs may run at once.
    pub(crate) at_once_max: usize,
}

/// What one job's log says about one run.
#[derive(Debug, Default)]
pub(crate) struct Execution {
    /// How often each part (the command, or a step) began.
    pub(crate) starts: BTreeMap<String, usize>,
    /// How each part ended.
    pub(crate) ends: BTreeMap<String, Vec<i32>>,
    slot: String,
    attempt: String,
}

impl Execution {
    /// Whether every part that began ended well.
    fn went_well(&self) -> bool {
        self.starts.keys().all(|part| self.ends.get(part).is_some_and(|codes| codes == &[0]))
    }
}

/// What really ran.
#[derive(Debug, Default)]
pub(crate) struct JobLog {
    pub(crate) runs: BTreeMap<String, Execution>,
    /// Begins and ends in the order of the file: the run, and one more or one less.
    order: Vec<(String, i64)>,
}

impl JobLog {
    pub(crate) fn read(project: &Path) -> Self {
        let mut log = Self::default();
        for line in fs::read_to_string(project.join("ran.log")).unwrap_or_default().lines() {
            log.take(line);
        }
        log
    }

    fn take(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        let &[what, run, slot, attempt, detail] = words.as_slice() else {
            panic!("a job wrote an odd line: {line}")
        };
        let execution = self.runs.entry(run.to_owned()).or_default();
        (execution.slot, execution.attempt) = (slot.to_owned(), attempt.to_owned());
        if what == "start" {
            *execution.starts.entry(detail.to_owned()).or_default() += 1;
            self.order.push((run.to_owned(), 1));
        } else {
            let (part, code) = detail.split_once('=').unwrap();
            let codes = execution.ends.entry(part.to_owned()).or_default();
            codes.push(code.parse().unwrap());
            self.order.push((run.to_owned(), -1));
        }
    }
}

/// The ledger as it was at one instant, or a little later: watermarks are read before rows.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) agenda: BTreeMap<PipelineId, AgendaRow>,
    pub(crate) rows: Vec<LedgerRow>,
    pub(crate) runs: BTreeMap<String, RunRow>,
    read_at: Timestamp,
}

impl Ledger {
    /// Nothing while there is no ledger yet.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        let store = EmbeddedStore::open_reader(folder, Arc::new(Timestamp::now)).ok()?;
        let agenda = block_on(store.agenda(Shard(0), None, 10_000)).unwrap().items;
        let mut rows: Vec<LedgerRow> = Vec::new();
        loop {
            let after = rows.last().map(LedgerRow::place);
            let query = LedgerQuery { after, ..LedgerQuery::everything(10_000) };
            let page = block_on(store.ledger(&query)).unwrap();
            rows.extend(page.items);
            if !page.more {
                break;
            }
        }
        let query = RunQuery { limit: 1_000_000, ..RunQuery::default() };
        let runs = block_on(store.runs(&query)).unwrap().items;
        Some(Self {
            agenda: agenda.into_iter().map(|row| (row.pipeline.clone(), row)).collect(),
            rows,
            runs: runs.into_iter().map(|run| (run.key.id(&run.pipeline), run)).collect(),
            read_at: Timestamp::now(),
        })
    }

    /// The rows that stand for one slot each.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (&LedgerRow, &SlotRecord)> {
        self.rows.iter().filter_map(|row| match &row.entry {
            LedgerEntry::Slot(slot) => Some((row, slot.as_ref())),
            LedgerEntry::Span(_) => None,
        })
    }

    fn spans(&self) -> impl Iterator<Item = (&LedgerRow, &SpanRecord)> {
        self.rows.iter().filter_map(|row| match &row.entry {
            LedgerEntry::Span(span) => Some((row, span)),
            LedgerEntry::Slot(_) => None,
        })
    }

    fn watermark(&self, owed: &Owed) -> Option<(i64, i64)> {
        let row = self.agenda.get(&PipelineId::parse(owed.pipeline).unwrap())?;
        let watermark = row.watermarks.get(&ScheduleId::any(owed.schedule).unwrap())?;
        Some((row.record.record.first_seen.as_millisecond(), watermark.record.at.as_millisecond()))
    }

    /// S3, S4: what is owed up to the watermark is recorded once, and nothing else is.
    pub(crate) fn unaccounted(&self, owed: &Owed, found: &mut Vec<String>) {
        let Owed { pipeline, schedule, every, .. } = *owed;
        let Some((first_seen, watermark)) = self.watermark(owed) else {
            found.push(format!("{pipeline}/{schedule} has no watermark"));
            return;
        };
        let of_ours = |row: &&LedgerRow| {
            row.pipeline.as_str() == pipeline && row.schedule.as_str() == schedule
        };
        let mut recorded: BTreeMap<i64, (usize, usize)> = BTreeMap::new();
        for (row, _) in self.slots().filter(|(row, _)| of_ours(row)) {
            recorded.entry(row.nominal.as_millisecond()).or_default().0 += 1;
        }
        for (row, span) in self.spans().filter(|(row, _)| of_ours(row)) {
            let seconds = row.nominal.as_second()..=span.last.as_second();
            let covered: Vec<_> = seconds.filter(|second| second % every == 0).collect();
            if covered.len() as u64 != span.count {
                found.push(format!("{pipeline}/{}: {span:?} counts wrongly", row.nominal));
            }
            for second in covered {
                recorded.entry(second * 1_000).or_default().1 += 1;
            }
        }
        let owed: BTreeSet<i64> = (first_seen / 1_000..=watermark / 1_000)
            .filter(|second| second % every == 0 && second * 1_000 > first_seen)
            .map(|second| second * 1_000)
            .collect();
        for at in &owed {
            match recorded.get(at) {
                Some((1, _) | (0, 1)) => {}
                counts => found.push(format!(
                    "{pipeline}/{schedule}/{} is recorded {counts:?} times (rows, spans) and the \
                     watermark is past it",
                    instant(*at)
                )),
            }
        }
        for (at, _) in recorded.iter().filter(|(at, _)| !owed.contains(at) && **at <= watermark) {
            found.push(format!("{pipeline}/{schedule}/{} was never owed", instant(*at)));
        }
    }
}

fn instant(millisecond: i64) -> Timestamp {
    Timestamp::from_millisecond(millisecond).unwrap()
}

/// Looks at the ledger now and then, while it is written.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    watermarks: BTreeMap<(String, String), i64>,
    pub(crate) looks: usize,
    pub(crate) found: Vec<String>,
}

impl Witness {
    /// S4 over time: a watermark never goes back, and is never past what is recorded.
    pub(crate) fn look(&mut self, folder: &Path, all: &[Owed]) {
        let Some(ledger) = Ledger::read(folder) else { return };
        self.looks += 1;
        for owed in all {
            let Some((_, watermark)) = ledger.watermark(owed) else { continue };
            let key = (owed.pipeline.to_owned(), owed.schedule.to_owned());
            if let Some(before) = self.watermarks.insert(key, watermark)
                && before > watermark
            {
                self.found.push(format!("the watermark of {owed:?} went back to {watermark}"));
            }
            // Rows were read later than watermarks: there may be more of them, never fewer.
            let mut found = Vec::new();
            ledger.unaccounted(owed, &mut found);
            self.found.extend(found);
        }
    }
}

/// Everything that must hold once it is quiet.
pub(crate) fn check(ledger: &Ledger, log: &JobLog, all: &[Owed]) -> Vec<String> {
    let mut found = Vec::new();
    for owed in all {
        ledger.unaccounted(owed, &mut found);
        check_overlap(ledger, log, owed, &mut found);
    }
    for (row, slot) in ledger.slots() {
        check_slot(ledger, log, (row, slot), &mut found);
    }
    for (id, run) in &ledger.runs {
        check_run(ledger, log, (id, run), &mut found);
    }
    for (id, execution) in &log.runs {
        check_execution(ledger, (id, execution), &mut found);
    }
    found
}

fn runs_of<'a>(
    ledger: &'a Ledger,
    row: &'a LedgerRow,
    generation: u32,
) -> impl Iterator<Item = (&'a String, &'a RunRow)> {
    ledger.runs.iter().filter(move |(_, run)| {
        run.pipeline == row.pipeline
            && run.key.schedule == row.schedule
            && run.key.nominal == row.nominal
            && run.key.generation == generation
    })
}

fn check_slot(
    ledger: &Ledger,
    log: &JobLog,
    (row, slot): (&LedgerRow, &SlotRecord),
    found: &mut Vec<String>,
) {
    let name = format!("{}/{}/{}", row.pipeline, row.schedule, row.nominal);
    if slot.is_open() && slot.closes_at + CLOSES_LATE_MAX < ledger.read_at {
        found.push(format!("{name} is still {}, and closes at {}", slot.state, slot.closes_at));
    }
    let runs: BTreeMap<u32, _> = runs_of(ledger, row, slot.generation)
        .map(|(id, run)| (run.key.attempt, (id, run)))
        .collect();
    if !runs.keys().copied().eq(1..=slot.attempt) {
        found.push(format!("{name} made {} attempts, and has {:?}", slot.attempt, runs.keys()));
    }
    match slot.disposition.as_deref() {
        Some("skipped" | "missed" | "unknown") if !runs.is_empty() => {
            found.push(format!("{name} is {:?} and has runs", slot.disposition));
        }
        Some("completed") => {
            let last = runs.get(&slot.attempt).and_then(|(id, _)| log.runs.get(*id));
            if !last.is_some_and(Execution::went_well) {
                found.push(format!("{name} is completed, and its last attempt was {last:?}"));
            }
            // An earlier attempt that went well was doubled, unless nobody could know that it did.
            for (id, run) in runs.values().filter(|(_, run)| run.key.attempt < slot.attempt) {
                let went_well = log.runs.get(*id).is_some_and(Execution::went_well);
                if went_well && !is_uncertain(run) {
                    found.push(format!(
                        "{name} was repeated although {id} went well: {:?}",
                        run.record
                    ));
                }
            }
        }
        _ => {}
    }
}

/// A run that ended without anybody knowing how.
pub(crate) fn is_uncertain(run: &RunRow) -> bool {
    let message = run.record.message.as_deref().unwrap_or_default();
    run.record.status == "FAILED" && message.starts_with("the outcome of the job is not known")
}

fn check_run(ledger: &Ledger, log: &JobLog, (id, run): (&str, &RunRow), found: &mut Vec<String>) {
    let ran = log.runs.get(id);
    match run.record.status.as_str() {
        "COMPLETED" if !ran.is_some_and(Execution::went_well) => {
            found.push(format!("{id} is COMPLETED, and the job's log says {ran:?}"));
        }
        "FAILED" if is_uncertain(run) => {
            let marked = ledger.slots().any(|(row, slot)| {
                row.pipeline == run.pipeline
                    && row.schedule == run.key.schedule
                    && row.nominal == run.key.nominal
                    && slot.marks.uncertain
            });
            if !marked {
                found.push(format!("{id} is uncertain, and its slot is not marked"));
            }
        }
        "FAILED" => {
            let failed = ran.is_some_and(|ran| ran.ends.values().flatten().any(|code| *code != 0));
            if !failed {
                let why = &run.record.message;
                found.push(format!("{id} is FAILED ({why:?}), and the job's log says {ran:?}"));
            }
        }
        _ => {}
    }
}

/// S2: what ran has a row, ran once, and was told who it is.
fn check_execution(ledger: &Ledger, (id, ran): (&str, &Execution), found: &mut Vec<String>) {
    if ran.starts.values().any(|count| *count != 1) || ran.ends.values().any(|ends| ends.len() > 1)
    {
        found.push(format!("{id} ran more than once: {ran:?}"));
    }
    let Some(run) = ledger.runs.get(id) else {
        found.push(format!("{id} ran, and the ledger does not know it"));
        return;
    };
    let told = (ran.slot.parse().ok(), ran.attempt.parse().ok());
    if told != (Some(run.key.nominal), Some(run.key.attempt)) {
        found.push(format!("{id} was told that it is {} {}", ran.slot, ran.attempt));
    }
}

/// S6: not more at once than allowed, unless one of them had been given up as uncertain.
fn check_overlap(ledger: &Ledger, log: &JobLog, owed: &Owed, found: &mut Vec<String>) {
    let mut running: BTreeSet<&str> = BTreeSet::new();
    for (id, step) in &log.order {
        let run = ledger.runs.get(id);
        if run.is_none_or(|run| run.pipeline.as_str() != owed.pipeline || is_uncertain(run)) {
            continue;
        }
        if *step > 0 {
            running.insert(id);
        } else {
            running.remove(id.as_str());
        }
        if running.len() > owed.at_once_max {
            found.push(format!("{running:?} ran at once"));
        }
    }
}

/// A ledger and a log that agree, and every way in which they may not.
mod tests {
    use interlock_store::{Row, RunKey, record::WatermarkRecord};
    use serde_json::json;

    use super::*;

    const TICKER: Owed = Owed { pipeline: "tt", schedule: "s", every: 1, at_once_max: 1 };

    /// Records are made from JSON, so that a new field does not concern this test.
    fn slot() -> SlotRecord {
        serde_json::from_value(json!({
            "state": "closed", "disposition": "completed", "generation": 1, "attempt": 1,
            "openedBy": "scheduler", "date": "2026-11-15", "openedAt": "1970-01-01T00:01:40Z",
            "closesAt": "1970-01-01T00:01:40Z", "version": "1",
        }))
        .unwrap()
    }

    /// Slots at 101, 102 and 103, each with one run that went well.
    fn sound() -> (Ledger, JobLog) {
        let (pipeline, schedule) =
            (PipelineId::parse("tt").unwrap(), ScheduleId::any("s").unwrap());
        let mut log = JobLog::default();
        let mut ledger = Ledger {
            agenda: BTreeMap::new(),
            rows: vec![],
            runs: BTreeMap::new(),
            read_at: Timestamp::from_second(104).unwrap(),
        };
        for second in 101..=103 {
            let nominal = Timestamp::from_second(second).unwrap();
            let entry = LedgerEntry::Slot(slot().into());
            let (p, s) = (pipeline.clone(), schedule.clone());
            let row = LedgerRow { pipeline: p, schedule: s, nominal, entry, revision: 1 };
            ledger.rows.push(row);
            let key = RunKey { schedule: schedule.clone(), nominal, generation: 1, attempt: 1 };
            let id = key.id(&pipeline);
            log.take(&format!("start {id} {nominal} 1 whole"));
            log.take(&format!("end {id} {nominal} 1 whole=0"));
            let record = serde_json::from_value(json!({
                "status": "COMPLETED", "triggerType": "scheduler", "createdAt": nominal.to_string(),
            }))
            .unwrap();
            let run = RunRow { pipeline: pipeline.clone(), key, record, revision: 1 };
            ledger.runs.insert(id, run);
        }
        let record = json!({"version": "1", "firstSeen": "1970-01-01T00:01:40.5Z"});
        let record = serde_json::from_value(record).unwrap();
        let at = Timestamp::from_second(103).unwrap();
        let watermark = Row { record: WatermarkRecord { at }, revision: 1 };
        let row = AgendaRow {
            pipeline: pipeline.clone(),
            record: Row { record, revision: 1 },
            watermarks: BTreeMap::from([(schedule, watermark)]),
        };
        ledger.agenda.insert(pipeline, row);
        (ledger, log)
    }

    #[track_caller]
    fn finds(sentence: &str, spoil: impl Fn(&mut Ledger, &mut JobLog)) {
        let (mut ledger, mut log) = sound();
        spoil(&mut ledger, &mut log);
        let found = check(&ledger, &log, &[TICKER]).join("\n");
        assert!(found.contains(sentence), "{sentence}: {found}");
    }

    fn change(row: &mut LedgerRow, change: impl Fn(&mut SlotRecord)) {
        if let LedgerEntry::Slot(slot) = &mut row.entry {
            change(Arc::make_mut(slot));
        }
    }

    const SECOND: &str = "tt~s~19700101T000142Z~1~1";

    #[test]
    fn a_sound_ledger_has_no_findings_and_each_kind_of_damage_has_one() {
        let (ledger, log) = sound();
        assert_eq!(check(&ledger, &log, &[TICKER]), Vec::<String>::new());
        finds("recorded None times", |ledger, _| drop(ledger.rows.remove(1)));
        finds("recorded Some((2, 0)) times", |ledger, _| {
            ledger.rows.push(ledger.rows[1].clone());
        });
        finds("was never owed", |ledger, _| {
            ledger.rows[0].nominal = Timestamp::from_second(99).unwrap();
        });
        finds("is still waiting, and closes at", |ledger, _| {
            change(&mut ledger.rows[0], |slot| slot.state = "waiting".into());
            ledger.read_at = Timestamp::from_second(171).unwrap();
        });
        finds("made 2 attempts", |ledger, _| change(&mut ledger.rows[0], |slot| slot.attempt = 2));
        finds("and has runs", |ledger, _| {
            change(&mut ledger.rows[0], |slot| slot.disposition = Some("skipped".into()));
        });
        finds("is completed, and its last attempt was None", |_, log| {
            drop(log.runs.remove(SECOND));
        });
        finds("is FAILED", |ledger, _| {
            ledger.runs.get_mut(SECOND).unwrap().record.status = "FAILED".into();
        });
        finds("is uncertain, and its slot is not marked", |ledger, _| {
            let run = &mut ledger.runs.get_mut(SECOND).unwrap().record;
            run.status = "FAILED".into();
            run.message = Some("the outcome of the job is not known: x".to_owned());
        });
        let again = format!("start {SECOND} 1970-01-01T00:01:42Z 1 whole");
        finds("ran more than once", |_, log| log.take(&again));
        finds("the ledger does not know it", |ledger, _| drop(ledger.runs.remove(SECOND)));
        finds("was told that it is", |_, log| {
            log.runs.get_mut(SECOND).unwrap().attempt = "7".to_owned();
        });
        finds("ran at once", |_, log| log.order.retain(|(_, step)| *step > 0));
    }
}
