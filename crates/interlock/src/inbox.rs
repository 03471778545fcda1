//! Requests: left in the inbox under a fresh key, applied by whoever writes the ledger, and answered there.
//!
//! While nobody writes, the command becomes the writer itself, for one pipeline and a moment (`alone`).

use std::{
    hash::{BuildHasher as _, RandomState},
    io::Write as _,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use interlock_answers::model::request::RequestAnswer;
use interlock_core::id::PipelineId;
use interlock_store::record::{AppliedRecord, InboxRecord};
pub(crate) use interlock_store::story::{answer as sentence, plain, refusal as reason};
use serde_json::json;

use crate::{
    alone::Alone,
    arguments::Sending,
    clock,
    exit::{ACCEPTED, Failure, PROBLEMS, SUCCESS},
    ledger::Ledger,
    output::Output,
    place::Place,
    project,
    writer::{self, Writing},
};

/// How often the answer is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A project's ledger and one of its pipelines, to ask something of.
pub(crate) struct Inbox {
    pub(crate) directory: PathBuf,
    pub(crate) ledger: Ledger,
    pub(crate) pipeline: PipelineId,
}

/// A request that was left.
pub(crate) struct Request<'a> {
    pub(crate) key: String,
    pub(crate) record: &'a InboxRecord,
    pub(crate) sending: Sending,
}

impl Inbox {
    /// The inbox of a pipeline that the ledger or the files know; a first request makes the ledger.
    pub(crate) fn open(directory: &Path, pipeline: &str) -> Result<Self, Failure> {
        if directory.is_dir() && !Place::of(directory)?.exists()? {
            // Nothing is made for a name that nobody declares.
            project::pipeline(&project::load(directory)?, pipeline)?;
            Place::of(directory)?.open_writer("interlock", writer::SERVE_WAITS)?;
        }
        let ledger = Ledger::open(directory)?;
        let pipeline = ledger.known(directory, pipeline)?;
        Ok(Self { directory: directory.to_path_buf(), ledger, pipeline })
    }

    /// The inbox of `_system`, for what is about no pipeline; a first request makes the ledger.
    pub(crate) fn system(directory: &Path) -> Result<Self, Failure> {
        let place = Place::of(directory)?;
        if directory.is_dir() && !place.exists()? {
            place.open_writer("interlock", writer::SERVE_WAITS)?;
        }
        Ok(Self::of(directory, Ledger::open(directory)?, PipelineId::system()))
    }

    /// The inbox of whoever an incident belongs to: a pipeline that may be long gone, or `_system`.
    pub(crate) fn of(directory: &Path, ledger: Ledger, pipeline: PipelineId) -> Self {
        Self { directory: directory.to_path_buf(), ledger, pipeline }
    }

    /// Leaves a request.
    pub(crate) fn post<'a>(
        &self,
        record: &'a InboxRecord,
        sending: Sending,
    ) -> Result<Request<'a>, Failure> {
        let key = fresh_key();
        self.ledger.post(&self.pipeline, &key, record)?;
        Ok(Request { key, record, sending })
    }

    /// Leaves a request whose answer nobody waits for.
    pub(crate) fn post_only(&self, record: &InboxRecord) -> Result<(), Failure> {
        self.ledger.post(&self.pipeline, &fresh_key(), record)
    }

    /// Leaves a request, sees to its answer and prints it.
    pub(crate) fn send(
        &self,
        record: &InboxRecord,
        sending: Sending,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        let request = self.post(record, sending)?;
        let answer = self.answer(&request)?;
        self.print(&request, answer.as_ref(), output)
    }

    /// Prints what came of a request.
    pub(crate) fn print(
        &self,
        request: &Request<'_>,
        answer: Option<&AppliedRecord>,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        if request.sending.json {
            output.json(&json!(RequestAnswer::of(&request.key, answer)))?;
            return Ok(exit_code(answer));
        }
        match answer {
            Some(answer) if answer.accepted => {
                writeln!(output.out, "done{}", sentence(&answer.result))?;
                self.say_who_starts_it(request, output)?;
                Ok(SUCCESS)
            }
            Some(answer) => Err(Failure::refused(reason(&answer.result), "")),
            None => self.say_not_applied(output),
        }
    }

    /// The answer to a request, by this process if nobody else gives it.
    pub(crate) fn answer(&self, request: &Request<'_>) -> Result<Option<AppliedRecord>, Failure> {
        let looks = request.sending.wait.as_millis() / LOOK_EVERY.as_millis() as i128;
        for _ in 0..looks.max(1) {
            if let Some(answer) = self.applied(request)? {
                return Ok(Some(answer));
            }
            if let Some(alone) = self.alone("interlock")? {
                let asked = (&self.pipeline, request.record);
                alone.apply(&self.ledger, asked, request.sending.wait)?;
                break;
            }
            thread::sleep(LOOK_EVERY);
        }
        self.applied(request)
    }

    /// The answer to a request, if there is one by now.
    pub(crate) fn applied(&self, request: &Request<'_>) -> Result<Option<AppliedRecord>, Failure> {
        self.ledger.applied(&self.pipeline, &request.key)
    }

    /// Becomes the pipeline's owner if nobody writes the ledger.
    pub(crate) fn alone(&self, what: &str) -> Result<Option<Alone>, Failure> {
        match self.ledger.writing() {
            Writing::Nobody | Writing::StandIn(_) => {}
            Writing::Serve | Writing::Command(_) => return Ok(None),
        }
        Alone::take(&self.directory, &self.ledger, &self.pipeline, what)
    }

    /// A slot that was opened while nobody serves waits for somebody.
    fn say_who_starts_it(&self, request: &Request<'_>, output: &mut Output) -> Result<(), Failure> {
        let InboxRecord::Rerun { slot, .. } = request.record else { return Ok(()) };
        if !self.ledger.is_served() {
            writeln!(
                output.err,
                "no `interlock serve` is running: it starts when one does, or now with `interlock run {} \
                 --slot {}/{}`",
                self.pipeline, slot.schedule, slot.nominal
            )?;
        }
        Ok(())
    }

    fn say_not_applied(&self, output: &mut Output) -> Result<u8, Failure> {
        write!(output.out, "accepted, not yet applied")?;
        match self.ledger.writing() {
            Writing::Serve => writeln!(output.out, ": `interlock serve` has not applied it yet")?,
            Writing::Command(command) => writeln!(
                output.out,
                ": {command} has the ledger, and serves only its own pipeline; the next \
                 `interlock serve`, or the next request for {}, applies it",
                self.pipeline
            )?,
            Writing::Nobody | Writing::StandIn(_) => writeln!(
                output.out,
                ": the next `interlock serve`, or the next request for {}, applies it",
                self.pipeline
            )?,
        }
        Ok(ACCEPTED)
    }
}

/// A key that nobody has used: time, process and chance.
pub(crate) fn fresh_key() -> String {
    let chance = RandomState::new().hash_one(std::process::id());
    format!("cli-{}-{}-{chance:016x}", clock::now().as_millisecond(), std::process::id())
}

pub(crate) fn exit_code(answer: Option<&AppliedRecord>) -> u8 {
    match answer {
        Some(answer) if answer.accepted => SUCCESS,
        Some(_) => PROBLEMS,
        None => ACCEPTED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_requests_have_one_key() {
        assert_ne!(fresh_key(), fresh_key());
    }
}
