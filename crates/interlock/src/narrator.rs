//! The story of one slot as it happens: what it waits for, its events, and what its job writes.
//!
//! The job's output goes to standard output as it is; everything else to standard error. All of it is read
//! from the ledger and the log, so it is the same whoever drives the slot.

use std::{io::Write as _, path::PathBuf};

use interlock_answers::{event_answer, prose::sentence};
use interlock_core::{
    id::SlotKey,
    readiness::{Outcome, Verdict},
};
use interlock_store::{EventRow, record::SlotRecord, story};
use jiff::Timestamp;

use crate::{
    clock,
    command::logs::print_from,
    exit::{Failure, PROBLEMS, SUCCESS},
    ledger::Ledger,
    output::{Form, Output},
};

/// A reason to wait is told once it was the same so many looks in a row: evaluators answer late.
const LOOKS: u32 = 4;

/// Tells what happens to a slot.
pub(crate) struct Narrator<'a> {
    ledger: &'a Ledger,
    slot: SlotKey,
    form: Form,
    /// The last event that was looked at.
    after: u64,
    /// The run whose output is printed, its log, and how far.
    log: Option<(String, PathBuf, u64)>,
    /// Why it waits, how often that was seen in a row, and what was told last.
    waiting: (String, u32),
    told: String,
}

/// Whether there is more to tell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The slot is decided, or only monitored any more.
    Ended,
    /// It waits, for a reason that has been the same for a few looks.
    Waiting,
    /// Neither.
    Open,
}

impl<'a> Narrator<'a> {
    /// Of a slot, from an instant on. In JSON nothing is told but the end.
    pub(crate) fn new(
        ledger: &'a Ledger,
        slot: SlotKey,
        since: Timestamp,
        form: Form,
    ) -> Result<Self, Failure> {
        let after = ledger.events_since(&slot.pipeline, since)?;
        let (waiting, told) = ((String::new(), 0), String::new());
        Ok(Self { ledger, slot, form, after, log: None, waiting, told })
    }

    /// Tells what is new. The verdict says why it waits, where that is known.
    pub(crate) fn tell(
        &mut self,
        verdict: Option<&Verdict>,
        output: &mut Output,
    ) -> Result<Told, Failure> {
        let SlotKey { pipeline, schedule, nominal } = &self.slot;
        // Read before the events and the log, so that what came last is told.
        let record = self.ledger.slot(pipeline, schedule, *nominal)?;
        let Some(record) = record else { return Ok(Told::Open) };
        if self.form == Form::Text {
            self.tell_events(output)?;
            self.print_log(output)?;
        }
        self.tell_waiting(&record, verdict, output)?;
        if !record.is_open() || record.state == "monitoring" {
            return Ok(Told::Ended);
        }
        let is_waiting = self.waiting.1 >= LOOKS && !self.waiting.0.is_empty();
        Ok(if is_waiting { Told::Waiting } else { Told::Open })
    }

    /// Whether its job runs: one that is only about to be triggered may not have reached the runner.
    pub(crate) fn has_started(&self) -> Result<bool, Failure> {
        let SlotKey { pipeline, schedule, nominal } = &self.slot;
        let runs = self.ledger.runs_of(pipeline, schedule, *nominal)?;
        Ok(runs.last().is_some_and(|run| run.record.status == "RUNNING"))
    }

    fn tell_events(&mut self, output: &mut Output) -> Result<(), Failure> {
        let name = format!("{}/{}", self.slot.schedule, self.slot.nominal);
        loop {
            let page = self.ledger.events(Some(&self.slot.pipeline), self.after)?;
            for event in page.items {
                self.after = event.number;
                let is_about = match &event.record.slot {
                    Some(slot) => *slot == name,
                    None => event.record.kind.starts_with("PIPELINE_"),
                };
                if is_about {
                    self.tell_event(&event, output)?;
                }
            }
            if !page.more {
                return Ok(());
            }
        }
    }

    fn tell_event(&mut self, event: &EventRow, output: &mut Output) -> Result<(), Failure> {
        // What a job wrote comes before what is said about its end.
        self.print_log(output)?;
        if let Some(run) = &event.record.run_id
            && self.log.as_ref().is_none_or(|(known, ..)| known != run)
        {
            let pipeline = &self.slot.pipeline;
            let path = self.ledger.place().log_path(pipeline, run);
            self.log = Some((run.clone(), path, 0));
            if event.record.kind != "JOB_TRIGGERED" {
                self.print_log(output)?;
            }
        }
        Ok(writeln!(output.err, "{}", sentence(&event_answer(event.clone())))?)
    }

    fn print_log(&mut self, output: &mut Output) -> Result<(), Failure> {
        if let Some((_, path, printed)) = &mut self.log {
            *printed = print_from(path, *printed, output)?.unwrap_or(*printed);
        }
        Ok(())
    }

    fn tell_waiting(
        &mut self,
        record: &SlotRecord,
        verdict: Option<&Verdict>,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let reason = self.reason(record, verdict)?;
        let looks = if reason == self.waiting.0 { self.waiting.1 + 1 } else { 1 };
        self.waiting = (reason, looks);
        if looks == LOOKS && self.waiting.0 != self.told {
            self.told.clone_from(&self.waiting.0);
            if !self.told.is_empty() && self.form == Form::Text {
                writeln!(output.err, "{}", self.told)?;
            }
        }
        Ok(())
    }

    /// Why nothing happens; empty when something does.
    fn reason(&self, record: &SlotRecord, verdict: Option<&Verdict>) -> Result<String, Failure> {
        let pipeline = &self.slot.pipeline;
        if !matches!(record.state.as_str(), "waiting" | "queued") {
            return Ok(String::new());
        }
        let pause = self.ledger.pipeline(pipeline)?.and_then(|row| row.pause);
        if let Some(pause) = pause.filter(|pause| pause.is_in_force(clock::now())) {
            return Ok(format!(
                "waiting: {pipeline} is paused since {}: {}; `interlock resume {pipeline}` ends that",
                pause.since, pause.reason
            ));
        }
        if let Some(verdict) = verdict.filter(|verdict| verdict.outcome != Outcome::Ready) {
            return Ok(format!("waiting until it is ready:\n{verdict}"));
        }
        let others = self.places()?;
        Ok(match (others.is_empty(), verdict) {
            (false, _) => format!(
                "waiting for its turn: {} of {pipeline} must end first",
                others.join(" and ")
            ),
            (true, None) => format!(
                "waiting; `interlock evaluate {pipeline} {}/{}` says what for",
                self.slot.schedule, self.slot.nominal
            ),
            (true, Some(_)) => String::new(),
        })
    }

    /// The other slots of the pipeline that hold a place.
    fn places(&self) -> Result<Vec<String>, Failure> {
        let rows = self.ledger.open_slots_of(&self.slot.pipeline)?.into_iter();
        let others = rows.filter_map(|(key, slot)| {
            let holds = matches!(slot.state.as_str(), "running" | "backoff");
            (key != self.slot && holds)
                .then(|| format!("{}/{} ({})", key.schedule, key.nominal, slot.state))
        });
        Ok(others.collect())
    }

    /// How it stands at the end, and the exit code for that.
    pub(crate) fn end(&self) -> Result<Option<(SlotRecord, u8)>, Failure> {
        let SlotKey { pipeline, schedule, nominal } = &self.slot;
        let Some(record) = self.ledger.slot(pipeline, schedule, *nominal)? else { return Ok(None) };
        let good = ["completed", "monitoring"];
        let is_good = good.contains(&story::slot_state(&record).as_str());
        let code = if is_good { SUCCESS } else { PROBLEMS };
        Ok(Some((record, code)))
    }
}
