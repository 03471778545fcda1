//! Following a backfill to its end: a bar on a terminal, lines elsewhere.

use std::{
    io::{self, IsTerminal as _, Write as _},
    thread,
    time::Duration,
};

use interlock_answers::{
    backfill_answer,
    model::{backfill::BackfillAnswer, page::PageQuery},
};
use interlock_core::id::PipelineId;
use interlock_store::{
    BackfillRow,
    record::{AppliedRecord, InboxRecord},
};
use jiff::SignedDuration;
use serde_json::to_value;

use crate::{
    alone::{Alone, Driven},
    arguments::Sending,
    clock,
    exit::{ACCEPTED, Failure, PROBLEMS, SUCCESS},
    inbox::Inbox,
    narrator::Told,
    output::Output,
    remote::{RemoteServer, query::path},
    source::RequestSource,
    writer::Writing,
};

/// How often is looked at what somebody else drives.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The same of what a server drives.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How wide the bar is.
const WIDTH: u64 = 30;

/// Starts a backfill and follows it.
pub(super) fn run(
    inbox: &Inbox,
    asked: &InboxRecord,
    sending: Sending,
    output: &mut Output,
) -> Result<u8, Failure> {
    let request = inbox.post(asked, sending)?;
    let looks = sending.wait.as_millis() / LOOK_EVERY.as_millis() as i128;
    let mut looked = 0;
    loop {
        if let Some(mut alone) = inbox.alone(&format!("interlock backfill {}", inbox.pipeline))? {
            alone.pass()?;
            let answer = inbox.applied(&request)?;
            return match answer.as_ref().and_then(number) {
                Some(number) => {
                    Following::new(Place::Here(inbox), number, sending).here((inbox, alone), output)
                }
                None => inbox.print(&request, answer.as_ref(), output),
            };
        }
        let answer = inbox.applied(&request)?;
        match answer.as_ref().and_then(number) {
            Some(number) => {
                return Following::new(Place::Here(inbox), number, sending).watched(output);
            }
            None if answer.is_some() || looked >= looks => {
                return inbox.print(&request, answer.as_ref(), output);
            }
            None => {}
        }
        // One that has the ledger for a moment is no reason to give up.
        looked += i128::from(!matches!(inbox.ledger.writing(), Writing::Command(_)));
        thread::sleep(LOOK_EVERY);
    }
}

/// Follows one that was started before: `serve` drives it, else this process.
pub(super) fn attach(
    requests: &RequestSource,
    number: u64,
    sending: Sending,
    output: &mut Output,
) -> Result<u8, Failure> {
    let inbox = match requests {
        RequestSource::Inbox(inbox) => inbox,
        RequestSource::Server(inbox) => {
            return there((inbox.source.server()?, &inbox.pipeline), number, sending, output);
        }
    };
    let name = &inbox.pipeline;
    let Some(record) = inbox.ledger.backfill(name, number)? else {
        return Err(Failure::refused(format!("{name} has no backfill {number}"), ""));
    };
    let following = Following::new(Place::Here(inbox), number, sending);
    if !record.is_unfinished() || inbox.ledger.is_served() {
        return following.watched(output);
    }
    match inbox.alone(&format!("interlock backfill {name}"))? {
        Some(alone) => following.here((inbox, alone), output),
        None => Err(Failure::refused(
            format!("backfill {number} waits: another process has the ledger"),
            "Try again when that one has ended, or start `interlock serve`.",
        )),
    }
}

/// Follows one that a server drives.
pub(super) fn there(
    (server, pipeline): (&RemoteServer, &PipelineId),
    number: u64,
    sending: Sending,
    output: &mut Output,
) -> Result<u8, Failure> {
    Following::new(Place::There { server, pipeline }, number, sending).watched(output)
}

pub(super) fn number(answer: &AppliedRecord) -> Option<u64> {
    answer.result.get("backfill").filter(|_| answer.accepted)?.as_u64()
}

/// Where a backfill is.
#[derive(Clone, Copy)]
enum Place<'a> {
    Here(&'a Inbox),
    There { server: &'a RemoteServer, pipeline: &'a PipelineId },
}

impl Place<'_> {
    /// How far it is.
    fn look(self, number: u64) -> Result<BackfillAnswer, Failure> {
        let found = match self {
            Self::Here(inbox) => {
                let pipeline = inbox.pipeline.clone();
                inbox.ledger.backfill(&pipeline, number)?.map(|record| {
                    let row = BackfillRow { pipeline, number, record, revision: 0 };
                    backfill_answer(&row, clock::now())
                })
            }
            Self::There { server, pipeline } => {
                let parts = ["pipelines", pipeline.as_str(), "backfills", &number.to_string()];
                server.find(&path(&parts), &PageQuery::default())?
            }
        };
        found.ok_or_else(|| Failure::refused(format!("there is no backfill {number}"), ""))
    }
}

/// A backfill on its way to its end.
struct Following<'a> {
    place: Place<'a>,
    number: u64,
    sending: Sending,
    /// What was said last.
    said: Option<String>,
}

impl<'a> Following<'a> {
    fn new(place: Place<'a>, number: u64, sending: Sending) -> Self {
        Self { place, number, sending, said: None }
    }

    /// Somebody else drives it.
    fn watched(mut self, output: &mut Output) -> Result<u8, Failure> {
        let pause = match self.place {
            Place::Here(_) => LOOK_EVERY,
            Place::There { .. } => ASK_EVERY,
        };
        while self.tell(output)? == Told::Open {
            thread::sleep(pause);
        }
        self.end(output)
    }

    /// This process drives it.
    fn here(mut self, (inbox, alone): (&Inbox, Alone), output: &mut Output) -> Result<u8, Failure> {
        match alone.drive_backfill(self.number, || self.tell(output))? {
            Driven::Ended => self.end(output),
            Driven::Left | Driven::Started => {
                let (name, number) = (&inbox.pipeline, self.number);
                writeln!(
                    output.err,
                    "left as it is: `interlock serve`, or `interlock backfill follow {name} {number}`, takes it up"
                )?;
                Ok(ACCEPTED)
            }
        }
    }

    /// Says how far it is, if that is new.
    fn tell(&mut self, output: &mut Output) -> Result<Told, Failure> {
        let answer = self.place.look(self.number)?;
        let told = if is_unfinished(&answer) { Told::Open } else { Told::Ended };
        if self.sending.json {
            return Ok(told);
        }
        let is_terminal = io::stderr().is_terminal();
        let line = if is_terminal { bar(&answer) } else { words(&answer) };
        if self.said.as_ref() == Some(&line) {
            return Ok(told);
        }
        if is_terminal {
            write!(output.err, "\r\x1b[K{line}")?;
            if told == Told::Ended {
                writeln!(output.err)?;
            }
            output.err.flush()?;
        } else {
            writeln!(output.err, "{line}")?;
        }
        self.said = Some(line);
        Ok(told)
    }

    fn end(&self, output: &mut Output) -> Result<u8, Failure> {
        let answer = self.place.look(self.number)?;
        let is_well = answer.state == "done" && ended(&answer) == answer.completed;
        if self.sending.json {
            output.json(&to_value(answer).unwrap_or_default())?;
        }
        Ok(if is_well { SUCCESS } else { PROBLEMS })
    }
}

fn is_unfinished(answer: &BackfillAnswer) -> bool {
    answer.ended_at.is_none() && matches!(answer.state.as_str(), "running" | "paused")
}

/// How many of its slots have ended.
fn ended(answer: &BackfillAnswer) -> u64 {
    answer.completed + answer.failed + answer.cancelled + answer.skipped
}

fn sum(answer: &BackfillAnswer) -> String {
    let mut sum = format!("{}/{} completed", answer.completed, answer.total);
    for (count, word) in
        [(answer.failed, "failed"), (answer.cancelled, "cancelled"), (answer.skipped, "skipped")]
    {
        if count > 0 {
            sum = format!("{sum}, {count} {word}");
        }
    }
    sum
}

fn bar(answer: &BackfillAnswer) -> String {
    let ended = ended(answer).min(answer.total);
    let done = (ended * WIDTH).checked_div(answer.total).unwrap_or(WIDTH) as usize;
    let left = answer.eta_seconds.map(SignedDuration::from_secs);
    let left = left.map(|eta| format!(", {eta:#} left"));
    let (full, empty) = ("#".repeat(done), "-".repeat(WIDTH as usize - done));
    format!("[{full}{empty}] {} {}{}", answer.state, sum(answer), left.unwrap_or_default())
}

/// A line for each hundredth of it.
fn words(answer: &BackfillAnswer) -> String {
    let number = answer.id;
    let step = (answer.total / 100).max(1);
    if is_unfinished(answer) {
        let ended = ended(answer) / step * step;
        return format!("backfill {number} is {}, {ended} of {} ended", answer.state, answer.total);
    }
    format!("backfill {number} is {}: {}", answer.state, sum(answer))
}
