//! `interlock run`: a slot of its own for a run now, or an attempt at a scheduled one.
//!
//! A running `serve` is asked to run it. Without one the slot is driven here, in the foreground, to its end.

use std::{io::Write as _, path::Path, thread, time::Duration};

use interlock_core::id::{PipelineId, ScheduleId, SlotKey};
use interlock_store::{
    record::{AppliedRecord, InboxRecord, SlotName, SlotRecord},
    story,
};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    alone::{Alone, Driven},
    arguments::{Run, Sending},
    clock,
    exit::{ACCEPTED, Failure, SUCCESS},
    inbox::{self, Inbox, Request},
    ledger_json,
    narrator::{Narrator, Told},
    output::{Form, Output},
    project,
    slot_name::{self, Typed},
    writer::Writing,
};

/// How often is looked at what somebody else drives.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) fn run(directory: &Path, run: &Run, output: &mut Output) -> Result<u8, Failure> {
    let inbox = Inbox::open(directory, &run.pipeline)?;
    let typed = match (&run.slot, &run.schedule) {
        (None, _) => None,
        (Some(slot), None) => Some(slot.clone()),
        (Some(slot), Some(schedule)) => Some(format!("{schedule}/{slot}")),
    };
    let slot = typed.map(|text| find(directory, &inbox, &text)).transpose()?;
    mention_dormant(directory, &inbox, output)?;
    if run.params.is_empty()
        && !run.force
        && let Some(slot) = &slot
        && let Some((key, since)) = left_open(&inbox, slot)?
        && let Some(alone) = inbox.alone(&named(&inbox))?
    {
        // Somebody left it open, or asked for it while nobody served: it is taken up, not opened again.
        let following = Following { inbox: &inbox, run, request: None };
        return following.foreground(alone, &key, since, output);
    }
    let params = run.params.iter().cloned().collect();
    let record = InboxRecord::Run { slot, force: run.force, params };
    let since = clock::now();
    let request = inbox.post(&record, run.sending)?;
    Following { inbox: &inbox, run, request: Some(&request) }.follow(since, output)
}

/// Asks the owner of a slot for something.
pub(super) fn ask_about_slot(
    directory: &Path,
    (pipeline, slot): (&str, &str),
    request: impl FnOnce(SlotName) -> InboxRecord,
    sending: Sending,
    output: &mut Output,
) -> Result<u8, Failure> {
    let inbox = Inbox::open(directory, pipeline)?;
    let slot = find(directory, &inbox, slot)?;
    inbox.send(&request(slot), sending, output)
}

/// The slot that a text means.
fn find(directory: &Path, inbox: &Inbox, text: &str) -> Result<SlotName, Failure> {
    let loaded = project::load(directory)?;
    let typed = Typed::parse(&inbox.pipeline, text)?;
    let key = slot_name::resolve(&loaded, &inbox.ledger, &inbox.pipeline, &typed)?;
    Ok(SlotName { schedule: key.schedule.to_string(), nominal: key.nominal })
}

/// Says that nothing of a pipeline starts, if that is so by its file.
fn mention_dormant(directory: &Path, inbox: &Inbox, output: &mut Output) -> Result<(), Failure> {
    let loaded = project::load(directory)?;
    if project::find(&loaded, &inbox.pipeline).is_some_and(|pipeline| !pipeline.enabled) {
        writeln!(
            output.err,
            "{} is dormant: nothing of it starts while its file says `watch.enabled: false`",
            inbox.pipeline
        )?;
    }
    Ok(())
}

/// What the lock calls this command.
fn named(inbox: &Inbox) -> String {
    format!("interlock run {}", inbox.pipeline)
}

/// A slot that is open, and since when.
fn left_open(inbox: &Inbox, slot: &SlotName) -> Result<Option<(SlotKey, Timestamp)>, Failure> {
    let schedule = ScheduleId::any(&slot.schedule);
    let schedule = schedule.map_err(|error| Failure::usage(error.message, error.help))?;
    let record = inbox.ledger.slot(&inbox.pipeline, &schedule, slot.nominal)?;
    let key = SlotKey { pipeline: inbox.pipeline.clone(), schedule, nominal: slot.nominal };
    Ok(record.filter(SlotRecord::is_open).map(|slot| (key, slot.opened_at)))
}

/// A request on its way to its end.
struct Following<'a> {
    inbox: &'a Inbox,
    run: &'a Run,
    request: Option<&'a Request<'a>>,
}

impl Following<'_> {
    /// Until it is answered, and until its end if this process drives it or was told to follow.
    fn follow(&self, since: Timestamp, output: &mut Output) -> Result<u8, Failure> {
        let Some(request) = self.request else { return Ok(SUCCESS) };
        let looks = self.run.sending.wait.as_millis() / LOOK_EVERY.as_millis() as i128;
        let (mut looked, mut said) = (0, false);
        loop {
            if let Some(mut alone) = self.inbox.alone(&named(self.inbox))? {
                alone.pass()?;
                let answer = self.inbox.applied(request)?;
                return match answer.as_ref().and_then(opened) {
                    Some(slot) => self.foreground(alone, &slot, since, output),
                    None => self.inbox.print(request, answer.as_ref(), output),
                };
            }
            match (self.inbox.ledger.writing(), self.inbox.applied(request)?) {
                (Writing::Command(command), _) => {
                    if !said {
                        writeln!(output.err, "waiting for {command}, which has the ledger")?;
                    }
                    said = true;
                }
                (Writing::Serve | Writing::Nobody, answer) if looked >= looks => {
                    return self.inbox.print(request, answer.as_ref(), output);
                }
                (Writing::Serve, Some(answer)) => return self.served(&answer, since, output),
                (Writing::Serve | Writing::Nobody, _) => looked += 1,
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// `serve` has dealt with it.
    fn served(
        &self,
        answer: &AppliedRecord,
        since: Timestamp,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        let Some(request) = self.request else { return Ok(SUCCESS) };
        let Some(slot) = opened(answer).filter(|_| self.run.follow) else {
            return self.inbox.print(request, Some(answer), output);
        };
        let form = Form::asked(self.run.sending.json);
        let mut narrator = Narrator::new(&self.inbox.ledger, slot.clone(), since, form)?;
        while narrator.tell(None, output)? == Told::Open {
            thread::sleep(LOOK_EVERY);
        }
        self.end(&narrator, &slot, output)
    }

    fn foreground(
        &self,
        alone: Alone,
        slot: &SlotKey,
        since: Timestamp,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        let form = Form::asked(self.run.sending.json);
        let mut narrator = Narrator::new(&self.inbox.ledger, slot.clone(), since, form)?;
        match alone.drive(slot, &mut narrator, output)? {
            Driven::Ended => self.end(&narrator, slot, output),
            Driven::Left => {
                writeln!(
                    output.err,
                    "left as it is: `interlock serve`, or `interlock run {} --slot {}/{}`, takes it up",
                    slot.pipeline, slot.schedule, slot.nominal
                )?;
                Ok(ACCEPTED)
            }
        }
    }

    fn end(
        &self,
        narrator: &Narrator<'_>,
        slot: &SlotKey,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        let Some((record, code)) = narrator.end()? else { return Ok(ACCEPTED) };
        if !self.run.sending.json {
            writeln!(output.err, "{slot} is {}", story::slot_state(&record))?;
            return Ok(code);
        }
        let ledger = &self.inbox.ledger;
        let runs = ledger.runs_of(&slot.pipeline, &slot.schedule, slot.nominal)?;
        let answer = self.request.map(|request| self.inbox.applied(request)).transpose()?.flatten();
        let key = self.request.map_or("", |request| request.key.as_str());
        let mut json = inbox::to_json(key, answer.as_ref());
        if let Value::Object(fields) = &mut json {
            fields.insert("ended".to_owned(), ledger_json::slot(slot, &record, &runs));
        }
        output.json(&json)?;
        Ok(code)
    }
}

/// The slot that a request opened.
fn opened(answer: &AppliedRecord) -> Option<SlotKey> {
    let name = answer.result.get("slot").filter(|_| answer.accepted)?.as_str()?;
    let mut parts = name.splitn(3, '/');
    let pipeline = PipelineId::parse(parts.next()?).ok()?;
    let schedule = ScheduleId::any(parts.next()?).ok()?;
    Some(SlotKey { pipeline, schedule, nominal: parts.next()?.parse().ok()? })
}
