//! `interlock run` at a server: the slot is driven there, and followed from here.

use std::{io::Write as _, time::Duration};

use interlock_answers::{model::request::RequestAnswer, table::slot_state};
use interlock_core::id::SlotKey;
use interlock_store::record::{InboxRecord, SlotName};
use jiff::Timestamp;
use serde_json::{Value, json, to_value};

use super::{is_too_long, opened, say_dormant, typed};
use crate::{
    arguments::Run,
    clock,
    exit::{ACCEPTED, Failure},
    inbox,
    interrupts::Interrupts,
    narrator::{Narrator, SlotFeed as _, Told},
    output::{Form, Output},
    remote::{RemoteServer, route},
    source::{Source, applied, known_there, newest_event, print_answer},
    target::ServerAddress,
};

/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A run that was asked for.
struct Following<'a> {
    server: &'a RemoteServer,
    run: &'a Run,
    answer: RequestAnswer,
    /// Since when looks have failed.
    failing_since: Option<Timestamp>,
}

pub(super) fn run(address: &ServerAddress, run: &Run, output: &mut Output) -> Result<u8, Failure> {
    let source = Source::at(address, output)?;
    let server = source.server()?;
    let known = known_there(server, &run.pipeline)?;
    let pipeline = &known.id;
    let slot = match typed(run) {
        Some(text) => Some(source.slot_of(pipeline, &text)?),
        None => None,
    };
    let slot = slot.map(|it| SlotName { schedule: it.schedule.to_string(), nominal: it.nominal });
    if known.standing.disabled {
        say_dormant(pipeline, output)?;
    }
    let params = run.params.iter().cloned().collect();
    let record = InboxRecord::Run { slot, force: run.force, params, webhook: false };
    let change = route::of(pipeline, &record)
        .ok_or_else(|| Failure::failed("internal error: a run has no route", ""))?;
    // Before it is asked for, so that nothing that follows from it is missed.
    let after = newest_event(server, pipeline)?;
    let answer = server.change(&change, run.sending.wait)?;
    let slot = applied(&answer).as_ref().and_then(opened).filter(|_| !run.is_detached());
    let following = Following { server, run, answer, failing_since: None };
    match slot {
        Some(slot) => following.follow(&slot, after, output),
        None => following.print(output),
    }
}

impl Following<'_> {
    fn follow(mut self, slot: &SlotKey, after: u64, output: &mut Output) -> Result<u8, Failure> {
        let mut interrupts = Interrupts::listen()?;
        let form = Form::asked(self.run.sending.json);
        let mut narrator = Narrator::new(self.server, slot.clone(), after, form);
        loop {
            match narrator.tell(None, output) {
                Ok(Told::Ended) => return self.end(&narrator, slot, output),
                Ok(Told::Waiting | Told::Open) => self.failing_since = None,
                Err(failure) => self.bear(failure, slot, output)?,
            }
            if interrupts.is_interrupted_within(LOOK_EVERY) {
                return self.leave(slot, output);
            }
        }
    }

    /// A server that is away for a moment says nothing about the run.
    fn bear(
        &mut self,
        failure: Failure,
        slot: &SlotKey,
        output: &mut Output,
    ) -> Result<(), Failure> {
        match self.failing_since {
            _ if failure.is_closed_pipe() => Err(failure),
            Some(since) if is_too_long(since) => Err(failure.with_help(format!(
                "The run goes on without this command: `interlock wait {slot}` waits for its end."
            ))),
            Some(_) => Ok(()),
            None => {
                self.failing_since = Some(clock::now());
                let message = &failure.message;
                writeln!(output.err, "{message}; the run goes on, and is looked for again")?;
                Ok(())
            }
        }
    }

    /// This command goes, and its slot stays.
    fn leave(&self, slot: &SlotKey, output: &mut Output) -> Result<u8, Failure> {
        let SlotKey { pipeline, schedule, nominal } = slot;
        let state = self.server.slot(slot)?.map(|slot| slot_state(&slot));
        let state = state.unwrap_or_else(|| "not recorded".to_owned());
        writeln!(
            output.err,
            "{slot} is {state}: {} goes on with it; `interlock wait {slot}` waits for its end, `interlock cancel {pipeline} {schedule}/{nominal}` ends it",
            self.server.host()
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
        let Some((ended, code)) = narrator.end()? else { return Ok(ACCEPTED) };
        if self.run.sending.json {
            self.print_json(to_value(ended).unwrap_or_default(), output)?;
        } else {
            writeln!(output.err, "{slot} is {}", slot_state(&ended))?;
        }
        Ok(code)
    }

    /// Prints the request's answer, before any end.
    fn print(&self, output: &mut Output) -> Result<u8, Failure> {
        if !self.run.sending.json {
            return print_answer(self.server, &self.answer, self.run.sending, output);
        }
        self.print_json(Value::Null, output)?;
        Ok(inbox::exit_code(applied(&self.answer).as_ref()))
    }

    /// The one result of `--json`: the answer, and how the slot ended if it has.
    fn print_json(&self, ended: Value, output: &mut Output) -> Result<(), Failure> {
        let mut json = json!(self.answer);
        if let Value::Object(fields) = &mut json {
            fields.insert("ended".to_owned(), ended);
        }
        output.json(&json)
    }
}
