//! `interlock run`: a slot of its own for a run now, or an attempt at a scheduled one.
//!
//! A running `serve` is asked to run it; without one the slot is driven here. Either way the command waits for the end
//! and exits as the run ended, unless `--detach` was said. An interrupt leaves the run going and says so.

mod there;

use std::{io::Write as _, path::Path, time::Duration};

use interlock_answers::{model::request::RequestAnswer, table::slot_state};
use interlock_core::id::{PipelineId, ScheduleId, SlotKey};
use interlock_store::{
    record::{AppliedRecord, InboxRecord, SlotName, SlotRecord},
    story,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json, to_value};

use crate::{
    alone::{Alone, Driven, Until},
    arguments::{Run, Sending},
    clock,
    exit::{ACCEPTED, FAILED, Failure, SUCCESS},
    inbox::{self, Inbox, Request},
    interrupts::Interrupts,
    narrator::{Narrator, Told},
    output::{Form, Output},
    project,
    slot_name::{self, Typed},
    source::RequestSource,
    target::Target,
    writer::Writing,
};

/// How often is looked at what somebody else drives.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// After so many looks it is asked whether `serve` is still there.
const SERVE_LOOKS: u32 = 20;

/// For so long looks may fail: a server may have been replaced by another meanwhile.
const FAILING_MAX: SignedDuration = SignedDuration::from_mins(1);

pub(super) fn run(target: &Target, run: &Run, output: &mut Output) -> Result<u8, Failure> {
    let directory = match target {
        Target::Project(directory) => directory,
        Target::Server(address) => return there::run(address, run, output),
    };
    let inbox = Inbox::open(directory, &run.pipeline)?;
    let slot = typed(run).map(|text| find(directory, &inbox, &text)).transpose()?;
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
    let record = InboxRecord::Run { slot, force: run.force, params, webhook: false };
    let since = clock::now();
    let request = inbox.post(&record, run.sending)?;
    let followed = Following { inbox: &inbox, run, request: Some(&request) }.follow(since, output);
    followed.map_err(|failure| {
        // What the owner refused does not stay.
        if failure.exit_code() != FAILED || !failure.help.is_empty() {
            return failure;
        }
        let pipeline = &inbox.pipeline;
        failure.with_help(format!(
            "The request stays in the inbox: `interlock slots {pipeline}` shows what comes of it."
        ))
    })
}

/// The slot as it was typed.
fn typed(run: &Run) -> Option<String> {
    match (&run.slot, &run.schedule) {
        (None, _) => None,
        (Some(slot), None) => Some(slot.clone()),
        (Some(slot), Some(schedule)) => Some(format!("{schedule}/{slot}")),
    }
}

/// Asks the owner of a slot for something.
pub(super) fn ask_about_slot(
    target: &Target,
    (pipeline, slot): (&str, &str),
    request: impl FnOnce(SlotName) -> InboxRecord,
    sending: Sending,
    output: &mut Output,
) -> Result<u8, Failure> {
    let requests = RequestSource::open(target, pipeline, output)?;
    let slot = requests.slot_of(slot)?;
    let slot = SlotName { schedule: slot.schedule.to_string(), nominal: slot.nominal };
    requests.send(&request(slot), sending, output)
}

/// The slot that a text means.
fn find(directory: &Path, inbox: &Inbox, text: &str) -> Result<SlotName, Failure> {
    let loaded = project::load(directory)?;
    let typed = Typed::parse(&inbox.pipeline, text)?;
    let key = slot_name::resolve(&loaded, &inbox.ledger, &inbox.pipeline, &typed)?;
    Ok(SlotName { schedule: key.schedule.to_string(), nominal: key.nominal })
}

/// Says that nothing of a pipeline starts.
fn say_dormant(pipeline: &PipelineId, output: &mut Output) -> Result<(), Failure> {
    Ok(writeln!(
        output.err,
        "{pipeline} is dormant: nothing of it starts while its file says `watch.enabled: false`"
    )?)
}

/// The same, if that is so by its file.
fn mention_dormant(directory: &Path, inbox: &Inbox, output: &mut Output) -> Result<(), Failure> {
    let loaded = project::load(directory)?;
    if project::find(&loaded, &inbox.pipeline).is_some_and(|pipeline| !pipeline.enabled) {
        say_dormant(&inbox.pipeline, output)?;
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

/// Who drives the slot of a request.
#[derive(Clone, Copy)]
enum Driver {
    /// `interlock serve`, here or on another host.
    Serve,
    /// This command, which is about to go.
    Here,
}

/// A request on its way to its end.
struct Following<'a> {
    inbox: &'a Inbox,
    run: &'a Run,
    request: Option<&'a Request<'a>>,
}

impl Following<'_> {
    /// Until it is answered, and until its end unless `--detach` was said.
    fn follow(&self, since: Timestamp, output: &mut Output) -> Result<u8, Failure> {
        let Some(request) = self.request else { return Ok(SUCCESS) };
        let mut interrupts = Interrupts::listen()?;
        let looks = self.run.sending.wait.as_millis() / LOOK_EVERY.as_millis() as i128;
        let (mut looked, mut said) = (0, false);
        loop {
            if let Some(mut alone) = self.inbox.alone(&named(self.inbox))? {
                alone.pass()?;
                let answer = self.inbox.applied(request)?;
                return match answer.as_ref().and_then(opened) {
                    Some(slot) => self.foreground(alone, &slot, since, output),
                    None => self.print(request, answer.as_ref(), output),
                };
            }
            // On a server any instance may have applied it; a file has one owner, and it is here.
            let is_elsewhere = !self.inbox.ledger.place().is_embedded();
            match (self.inbox.ledger.writing(), self.inbox.applied(request)?) {
                (Writing::Command(command), _) => {
                    if !said {
                        writeln!(output.err, "waiting for {command}, which has the ledger")?;
                    }
                    said = true;
                }
                (Writing::Serve, Some(answer)) => {
                    return self.served(&answer, since, &mut interrupts, output);
                }
                (Writing::Nobody, Some(answer)) if is_elsewhere => {
                    return self.served(&answer, since, &mut interrupts, output);
                }
                (Writing::Serve | Writing::Nobody | Writing::StandIn(_), answer)
                    if looked >= looks =>
                {
                    return self.print(request, answer.as_ref(), output);
                }
                (Writing::Serve | Writing::Nobody | Writing::StandIn(_), _) => looked += 1,
            }
            if interrupts.is_interrupted_within(LOOK_EVERY) {
                let answer = self.inbox.applied(request)?;
                return self.print(request, answer.as_ref(), output);
            }
        }
    }

    /// `serve` has dealt with it, and drives what it opened.
    fn served(
        &self,
        answer: &AppliedRecord,
        since: Timestamp,
        interrupts: &mut Interrupts,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        let Some(request) = self.request else { return Ok(SUCCESS) };
        let Some(slot) = opened(answer).filter(|_| !self.run.is_detached()) else {
            return self.print(request, Some(answer), output);
        };
        let mut narrator = self.narrator(&slot, since)?;
        let (mut looked, mut failing_since, mut is_served) = (0_u32, None, true);
        loop {
            match narrator.tell(None, output) {
                Ok(Told::Ended) => return self.end(&narrator, &slot, output),
                Ok(Told::Waiting | Told::Open) => failing_since = None,
                Err(failure) if failure.is_closed_pipe() => return Err(failure),
                // A server that is away for a moment says nothing about the run.
                Err(failure) if failing_since.is_none() => {
                    failing_since = Some(clock::now());
                    let message = &failure.message;
                    writeln!(output.err, "{message}; the run goes on, and is looked for again")?;
                }
                Err(failure) if failing_since.is_some_and(is_too_long) => {
                    return Err(failure.with_help(format!(
                        "The run goes on without this command: `interlock wait {slot}` waits for its end."
                    )));
                }
                Err(_) => {}
            }
            if interrupts.is_interrupted_within(LOOK_EVERY) {
                return self.leave(&slot, Driver::Serve, output);
            }
            looked += 1;
            if looked.is_multiple_of(SERVE_LOOKS) && self.inbox.ledger.place().is_embedded() {
                let is_still = self.inbox.ledger.is_served();
                if is_served && !is_still {
                    writeln!(
                        output.err,
                        "`interlock serve` has stopped; the end of {slot} is recorded when it runs again"
                    )?;
                }
                is_served = is_still;
            }
        }
    }

    fn narrator(&self, slot: &SlotKey, since: Timestamp) -> Result<Narrator<'_>, Failure> {
        let ledger = &self.inbox.ledger;
        let after = ledger.events_since(&slot.pipeline, since)?;
        Ok(Narrator::new(ledger, slot.clone(), after, Form::asked(self.run.sending.json)))
    }

    fn foreground(
        &self,
        alone: Alone,
        slot: &SlotKey,
        since: Timestamp,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        let mut narrator = self.narrator(slot, since)?;
        let until = if self.run.is_detached() { Until::Started } else { Until::Ended };
        match alone.drive(slot, until, &mut narrator, output)? {
            Driven::Ended => self.end(&narrator, slot, output),
            Driven::Started => {
                if !self.run.sending.json {
                    writeln!(output.out, "done: slot {slot}")?;
                }
                self.leave(slot, Driver::Here, output)?;
                Ok(SUCCESS)
            }
            Driven::Left => self.leave(slot, Driver::Here, output),
        }
    }

    /// This command goes, and its slot stays.
    fn leave(&self, slot: &SlotKey, driver: Driver, output: &mut Output) -> Result<u8, Failure> {
        let SlotKey { pipeline, schedule, nominal } = slot;
        let record = self.inbox.ledger.slot(pipeline, schedule, *nominal)?;
        let state = record.map_or_else(|| "not recorded".to_owned(), |it| story::slot_state(&it));
        let goes_on = match (state.as_str(), driver) {
            ("running", Driver::Serve) => "its job goes on".to_owned(),
            ("running", Driver::Here) => {
                "its job goes on, and the next `interlock serve` records its end".to_owned()
            }
            (_, Driver::Serve) => "`interlock serve` goes on with it".to_owned(),
            (_, Driver::Here) => "the next `interlock serve` goes on with it".to_owned(),
        };
        let how = match driver {
            Driver::Serve => format!("`interlock wait {slot}` waits for its end"),
            Driver::Here => {
                format!("`interlock run {pipeline} --slot {schedule}/{nominal}` does so now")
            }
        };
        writeln!(
            output.err,
            "{slot} is {state}: {goes_on}; {how}, `interlock cancel {pipeline} {schedule}/{nominal}` ends it"
        )?;
        if self.run.sending.json {
            self.print_json(Value::Null, output)?;
        }
        Ok(ACCEPTED)
    }

    fn end(
        &self,
        narrator: &Narrator<'_>,
        slot: &SlotKey,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        let Some((record, code)) = narrator.end()? else { return Ok(ACCEPTED) };
        if !self.run.sending.json {
            writeln!(output.err, "{slot} is {}", slot_state(&record))?;
            return Ok(code);
        }
        self.print_json(to_value(record).unwrap_or_default(), output)?;
        Ok(code)
    }

    /// Prints the request's answer, before any end.
    fn print(
        &self,
        request: &Request<'_>,
        answer: Option<&AppliedRecord>,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        if !self.run.sending.json {
            return self.inbox.print(request, answer, output);
        }
        self.print_json(Value::Null, output)?;
        Ok(inbox::exit_code(answer))
    }

    /// The one result of `--json`: the answer, and how the slot ended if it has.
    fn print_json(&self, ended: Value, output: &mut Output) -> Result<(), Failure> {
        let answer = self.request.map(|request| self.inbox.applied(request)).transpose()?.flatten();
        let key = self.request.map_or("", |request| request.key.as_str());
        let mut json = json!(RequestAnswer::of(key, answer.as_ref()));
        if let Value::Object(fields) = &mut json {
            fields.insert("ended".to_owned(), ended);
        }
        output.json(&json)
    }
}

/// Whether looks have failed for too long.
fn is_too_long(since: Timestamp) -> bool {
    clock::now().duration_since(since) > FAILING_MAX
}

/// The slot that a request opened.
pub(super) fn opened(answer: &AppliedRecord) -> Option<SlotKey> {
    let name = answer.result.get("slot").filter(|_| answer.accepted)?.as_str()?;
    let mut parts = name.splitn(3, '/');
    let pipeline = PipelineId::parse(parts.next()?).ok()?;
    let schedule = ScheduleId::any(parts.next()?).ok()?;
    Some(SlotKey { pipeline, schedule, nominal: parts.next()?.parse().ok()? })
}
