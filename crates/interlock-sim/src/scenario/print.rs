//! What there is to see, in the words of the commands.

use std::collections::BTreeMap;

use interlock_answers::{
    AbsenceInput, IncidentRow, SlotEvents, StoredIncident, StoryRows, absence, event_answer,
    incident_answer, ledger_answer,
    prose::{sentence, story_lines},
    run_answer, slot_key, story_answer, table,
};
use interlock_config::{SystemZones, ZoneSource as _};
use interlock_core::{
    agenda::Agenda,
    id::{PipelineId, ScheduleId, SlotKey},
};
use interlock_engine::{Owing, PlanLine};
use interlock_ports::trigger::Outcome;
use interlock_store::{
    AgendaRow, EventRow, Key, LedgerEntry, LedgerQuery, LedgerRow, Record, RunQuery, RunRow, Shard,
    Store as _, block_on,
    record::{PipelineRecord, Shared},
    story::{self, About},
};
use jiff::{SignedDuration, Timestamp};

use super::{
    house::House,
    line::{Question, Slot},
};

/// More than any script makes.
const MANY: usize = 100_000;

type Answer = Result<Vec<String>, String>;

impl House {
    /// Answers a question.
    pub(super) fn print(&self, question: &Question) -> Answer {
        match question {
            Question::Plan(only) => self.plan(only.as_ref()),
            Question::Slots(only) => self.slots(only.as_ref()),
            Question::Runs(only) => self.runs(only.as_ref()),
            Question::Events(only) => {
                let rows = self.event_rows(only.as_ref())?.into_iter();
                Ok(rows.map(|row| sentence(&event_answer(row))).collect())
            }
            Question::Jobs(only) => Ok(self.jobs(only.as_ref())),
            Question::Why(pipeline, slot) => self.why(pipeline, slot),
            Question::Incidents => self.incidents(),
            Question::Told => Ok(self.told()),
        }
    }

    fn plan(&self, only: Option<&PipelineId>) -> Answer {
        let rows = read(block_on(self.store.agenda(Shard(0), None, MANY)))?.items;
        let mut lines = Vec::new();
        for row in rows.iter().filter(|row| only.is_none_or(|only| row.pipeline == *only)) {
            lines.extend(self.lines(row)?);
        }
        if lines.is_empty() {
            return Ok(vec!["nothing was missed".to_owned()]);
        }
        let rows: Vec<_> = lines.iter().map(PlanLine::to_row).collect();
        Ok(laid_out(PlanLine::HEADINGS, &rows))
    }

    fn lines(&self, row: &AgendaRow) -> Result<Vec<PlanLine>, String> {
        let (record, now) = (&row.record.record, self.now());
        let is_paused = record.pause.as_ref().is_some_and(|pause| pause.is_in_force(now));
        let Some(agenda) = self.agenda(row).filter(|_| !is_paused && record.retired_at.is_none())
        else {
            return Ok(vec![]);
        };
        let owing = Owing {
            pipeline: &row.pipeline,
            agenda: &agenda,
            watermarks: row.watermarks.iter().map(|(id, row)| (id, row.record.at)).collect(),
            pause: record.pause.as_ref(),
            now,
        };
        let declared = self.declared(&row.pipeline).ok();
        let query = LedgerQuery {
            pipeline: Some(row.pipeline.clone()),
            disposition: Some("open".to_owned()),
            ..LedgerQuery::everything(MANY)
        };
        let open = read(block_on(self.store.ledger(&query)))?.items;
        read(block_on(owing.preview(self.store.as_ref(), declared.as_deref(), &open)))
    }

    /// While nobody is up the files are in force: the next one takes them over before it plans.
    fn agenda(&self, row: &AgendaRow) -> Option<Agenda> {
        if !self.is_any_up()
            && let Ok(declared) = self.declared(&row.pipeline)
        {
            return Some(Agenda::of(&declared));
        }
        let zones = SystemZones::new();
        let stored = row.record.record.agenda.as_ref()?;
        stored.to_core(&mut Shared::default(), &|name| zones.zone(name)).ok()
    }

    fn slots(&self, only: Option<&PipelineId>) -> Answer {
        let query = LedgerQuery { pipeline: only.cloned(), ..LedgerQuery::everything(MANY) };
        let mut rows = Vec::new();
        for row in read(block_on(self.store.ledger(&query)))?.items {
            let runs = self.runs_of(&slot_key(&row))?;
            rows.push(table::ledger_row(&ledger_answer(&row, &runs, self.now())));
        }
        if rows.is_empty() {
            return Ok(vec!["no slots are recorded in this time".to_owned()]);
        }
        Ok(laid_out(table::SLOTS, &rows))
    }

    fn runs(&self, only: Option<&PipelineId>) -> Answer {
        let query = RunQuery { pipeline: only.cloned(), limit: MANY, ..RunQuery::default() };
        let runs = read(block_on(self.store.runs(&query)))?.items;
        if runs.is_empty() {
            return Ok(vec!["no such runs".to_owned()]);
        }
        let rows = runs.into_iter().map(|run| table::run_row(&run_answer(run)));
        Ok(laid_out(table::RUNS, &rows.collect::<Vec<_>>()))
    }

    fn runs_of(&self, key: &SlotKey) -> Result<Vec<RunRow>, String> {
        let query = RunQuery {
            pipeline: Some(key.pipeline.clone()),
            slot: Some((key.schedule.clone(), key.nominal)),
            limit: MANY,
            ..RunQuery::default()
        };
        let mut runs = read(block_on(self.store.runs(&query)))?.items;
        runs.sort_by_key(|run| (run.key.generation, run.key.attempt));
        Ok(runs)
    }

    fn event_rows(&self, only: Option<&PipelineId>) -> Result<Vec<EventRow>, String> {
        Ok(read(block_on(self.store.events(only, 0, MANY)))?.items)
    }

    /// What really happened, whatever the ledger says.
    fn jobs(&self, only: Option<&PipelineId>) -> Vec<String> {
        let jobs = self.cast.jobs();
        let own =
            jobs.iter().filter(|(_, job)| only.is_none_or(|only| job.pipeline == only.as_str()));
        let mut jobs: Vec<_> = own.collect();
        jobs.sort_by_key(|(run_id, job)| (job.began.first().copied(), *run_id));
        let line = |(run_id, job): (&String, &super::cast::Job)| {
            let began: Vec<_> = job.began.iter().map(|at| story::instant(*at)).collect();
            let end = match &job.ended {
                None => "still runs".to_owned(),
                Some((at, Outcome::Success { .. })) => {
                    format!("ended well at {}", story::instant(*at))
                }
                Some((at, Outcome::Failure { message, .. })) => {
                    format!("failed at {}: {message}", story::instant(*at))
                }
                Some((at, Outcome::Cancelled { .. })) => {
                    format!("was ended at {}", story::instant(*at))
                }
            };
            format!("{run_id} began at {}, {end}", began.join(" and again at "))
        };
        if jobs.is_empty() {
            return vec!["no job began".to_owned()];
        }
        jobs.into_iter().map(line).collect()
    }

    fn incidents(&self) -> Answer {
        let rows = read(block_on(self.store.incidents(None, MANY)))?.items;
        if rows.is_empty() {
            return Ok(vec!["no incidents".to_owned()]);
        }
        let row = |(pipeline, key, row): &StoredIncident| {
            let incident = IncidentRow { pipeline, key, record: &row.record };
            table::incident_row(&incident_answer(&incident, None))
        };
        let rows: Vec<_> = rows.iter().map(row).collect();
        Ok(laid_out(table::INCIDENTS, &rows))
    }

    fn told(&self) -> Vec<String> {
        let heard = self.cast.take_heard();
        if heard.is_empty() {
            return vec!["no alert was sent".to_owned()];
        }
        heard.iter().map(|(at, alert)| format!("{} {alert}", story::instant(*at))).collect()
    }

    fn why(&self, pipeline: &PipelineId, slot: &Slot) -> Answer {
        let at = self.instant(slot.at);
        let until = at + SignedDuration::from_millis(1);
        let pipeline_only = Some(pipeline.clone());
        let query = LedgerQuery {
            pipeline: pipeline_only,
            from: at,
            until,
            ..LedgerQuery::everything(MANY)
        };
        let mut rows = read(block_on(self.store.ledger(&query)))?.items;
        // A row wins over the span that covers it.
        rows.sort_by_key(|row| matches!(row.entry, LedgerEntry::Span(_)));
        let mut told: BTreeMap<ScheduleId, Vec<String>> = BTreeMap::new();
        for row in rows.clone() {
            let asked = slot.schedule.as_ref().is_none_or(|schedule| *schedule == row.schedule);
            if !asked || told.contains_key(&row.schedule) || !self.is_slot(&row, at) {
                continue;
            }
            let key = SlotKey { nominal: at, ..slot_key(&row) };
            let about = About::new(&key, &rows);
            let events = self.event_rows(Some(pipeline))?;
            let found = events.into_iter().filter(|event| about.is_told_by(event)).collect();
            let events = SlotEvents { found, looked_at_until: None };
            let (runs, schedule) = (self.runs_of(&key)?, row.schedule.clone());
            let story = StoryRows { key, row, date: None, runs, events };
            let story = story_answer(story, vec![], self.now());
            told.insert(schedule, story_lines(&story));
        }
        if told.is_empty() {
            return self.why_not(pipeline, slot, at);
        }
        Ok(told.into_values().flatten().collect())
    }

    /// A span covers instants between its slots, which are none.
    fn is_slot(&self, row: &LedgerRow, at: Timestamp) -> bool {
        let declared = self.declared(&row.pipeline).ok();
        let schedule = declared.as_ref().and_then(|spec| spec.schedule(&row.schedule));
        matches!(row.entry, LedgerEntry::Slot(_)) || schedule.is_none_or(|it| it.is_slot(at))
    }

    fn why_not(&self, pipeline: &PipelineId, slot: &Slot, at: Timestamp) -> Answer {
        let Ok(declared) = self.declared(pipeline) else {
            return Ok(vec![format!(
                "Nothing is recorded then, and {pipeline} is no longer declared."
            )]);
        };
        let known = self.row(pipeline, Key::Pipeline)?;
        let known = match known {
            Some(Record::Pipeline(record)) => Some(record),
            _ => None,
        };
        let own = declared.starts.iter().map(|start| &start.schedule);
        let meant = own.filter(|it| slot.schedule.as_ref().is_none_or(|id| id == it.id()));
        let line = |schedule: &interlock_core::schedule::Schedule| {
            let (watermark, now) = (self.watermark(pipeline, schedule.id()), self.now());
            let known: Option<&PipelineRecord> = known.as_deref();
            let declared = &declared;
            let input = AbsenceInput { declared, schedule, at, known, watermark, floor: None, now };
            absence(&input).sentence
        };
        Ok(meant.map(line).collect())
    }

    /// How far a schedule is recorded.
    pub(super) fn watermark(&self, pipeline: &PipelineId, id: &ScheduleId) -> Option<Timestamp> {
        match self.row(pipeline, Key::Watermark(id.clone())).ok().flatten() {
            Some(Record::Watermark(record)) => Some(record.at),
            _ => None,
        }
    }

    fn row(&self, pipeline: &PipelineId, key: Key) -> Result<Option<Record>, String> {
        let rows = read(block_on(self.store.read(pipeline, &[key])))?;
        Ok(rows.into_iter().next().flatten().map(|row| row.record))
    }
}

fn read<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

fn laid_out<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> Vec<String> {
    let (heading, mut lines) = story::layout(headings, rows);
    lines.insert(0, heading);
    lines
}
