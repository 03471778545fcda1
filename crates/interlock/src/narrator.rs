//! The story of one slot as it happens: what it waits for, its events, and what its job writes.
//!
//! The job's output goes to standard output as it is; everything else to standard error. All of it is read
//! from the ledger and the log, here or at a server, so it is the same whoever drives the slot.

mod feed;

use std::{io::Write as _, time::Duration};

pub(crate) use self::feed::SlotFeed;
use crate::{
    exit::{Failure, PROBLEMS, SUCCESS},
    output::{Form, Output},
};
use interlock_answers::{
    model::{event::EventAnswer, slot::SlotAnswer},
    prose::sentence,
    table::slot_state,
};
use interlock_core::{
    id::SlotKey,
    readiness::{Outcome, Verdict},
};

/// A reason to wait is told once it was the same so many looks in a row: evaluators answer late.
const LOOKS: u32 = 4;

/// How long a part of a log may take to come.
const PIECE_IN: Duration = Duration::from_secs(30);

/// Tells what happens to a slot.
pub(crate) struct Narrator<'a> {
    feed: &'a dyn SlotFeed,
    slot: SlotKey,
    form: Form,
    /// The last event that was looked at.
    after: u64,
    /// The run whose output is printed, and how far.
    log: Option<(String, u64)>,
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
    /// Of a slot, behind an event. In JSON nothing is told but the end.
    pub(crate) fn new(feed: &'a dyn SlotFeed, slot: SlotKey, after: u64, form: Form) -> Self {
        let (waiting, told) = ((String::new(), 0), String::new());
        Self { feed, slot, form, after, log: None, waiting, told }
    }

    /// Tells what is new. The verdict says why it waits, where that is known.
    pub(crate) fn tell(
        &mut self,
        verdict: Option<&Verdict>,
        output: &mut Output,
    ) -> Result<Told, Failure> {
        // Read before the events and the log, so that what came last is told.
        let Some(record) = self.feed.slot(&self.slot)? else { return Ok(Told::Open) };
        if self.form == Form::Text {
            self.tell_events(output)?;
            self.print_log(output)?;
        }
        self.tell_waiting(&record, verdict, output)?;
        if record.state == "closed" || record.state == "monitoring" {
            return Ok(Told::Ended);
        }
        let is_waiting = self.waiting.1 >= LOOKS && !self.waiting.0.is_empty();
        Ok(if is_waiting { Told::Waiting } else { Told::Open })
    }

    /// Whether its job runs: one that is only about to be triggered may not have reached the runner.
    pub(crate) fn has_started(&self) -> Result<bool, Failure> {
        let slot = self.feed.slot(&self.slot)?;
        Ok(slot.is_some_and(|slot| slot.runs.last().is_some_and(|run| run.status == "RUNNING")))
    }

    fn tell_events(&mut self, output: &mut Output) -> Result<(), Failure> {
        let name = format!("{}/{}", self.slot.schedule, self.slot.nominal);
        loop {
            let page = self.feed.events(&self.slot.pipeline, self.after)?;
            for event in page.items {
                self.after = event.number;
                let is_about = match &event.slot {
                    Some(slot) => *slot == name,
                    None => event.kind.starts_with("PIPELINE_"),
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

    fn tell_event(&mut self, event: &EventAnswer, output: &mut Output) -> Result<(), Failure> {
        // What a job wrote comes before what is said about its end.
        self.print_log(output)?;
        if let Some(run) = &event.run_id
            && self.log.as_ref().is_none_or(|(known, _)| known != run)
        {
            self.log = Some((run.clone(), 0));
            if event.kind != "JOB_TRIGGERED" {
                self.print_log(output)?;
            }
        }
        Ok(writeln!(output.err, "{}", sentence(event))?)
    }

    fn print_log(&mut self, output: &mut Output) -> Result<(), Failure> {
        if let Some((run, printed)) = &mut self.log {
            let now = self.feed.print_log((&self.slot.pipeline, run), *printed, output)?;
            *printed = now.unwrap_or(*printed);
        }
        Ok(())
    }

    fn tell_waiting(
        &mut self,
        record: &SlotAnswer,
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
    fn reason(&self, record: &SlotAnswer, verdict: Option<&Verdict>) -> Result<String, Failure> {
        let pipeline = &self.slot.pipeline;
        if !matches!(record.state.as_str(), "waiting" | "queued") {
            return Ok(String::new());
        }
        if let Some(pause) = self.feed.pause(pipeline)? {
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
        let name = self.slot.to_string();
        let others = self.feed.open(&self.slot.pipeline)?.into_iter().filter_map(|slot| {
            let holds = matches!(slot.state.as_str(), "running" | "backoff");
            (slot.slot != name && holds)
                .then(|| format!("{}/{} ({})", slot.schedule, slot.utc, slot.state))
        });
        Ok(others.collect())
    }

    /// How it stands at the end, and the exit code for that.
    pub(crate) fn end(&self) -> Result<Option<(SlotAnswer, u8)>, Failure> {
        let Some(record) = self.feed.slot(&self.slot)? else { return Ok(None) };
        let good = ["completed", "monitoring"];
        let is_good = good.contains(&slot_state(&record).as_str());
        let code = if is_good { SUCCESS } else { PROBLEMS };
        Ok(Some((record, code)))
    }
}
