//! Following a backfill to its end: a bar on a terminal, lines elsewhere.

use std::{
    io::{self, IsTerminal as _, Write as _},
    thread,
    time::Duration,
};

use interlock_answers::{backfill_answer, backfill_eta};
use interlock_store::{
    BackfillRow,
    record::{AppliedRecord, BackfillRecord, InboxRecord},
};
use serde_json::to_value;

use crate::{
    alone::{Alone, Driven},
    arguments::Sending,
    clock,
    exit::{ACCEPTED, Failure, PROBLEMS, SUCCESS},
    inbox::Inbox,
    narrator::Told,
    output::Output,
    writer::Writing,
};

/// How often is looked at what somebody else drives.
const LOOK_EVERY: Duration = Duration::from_millis(100);
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
                Some(number) => Following::new(inbox, number, sending).here(alone, output),
                None => inbox.print(&request, answer.as_ref(), output),
            };
        }
        let answer = inbox.applied(&request)?;
        match answer.as_ref().and_then(number) {
            Some(number) => return Following::new(inbox, number, sending).watched(output),
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
    inbox: &Inbox,
    number: u64,
    sending: Sending,
    output: &mut Output,
) -> Result<u8, Failure> {
    let name = &inbox.pipeline;
    let Some(record) = inbox.ledger.backfill(name, number)? else {
        return Err(Failure::refused(format!("{name} has no backfill {number}"), ""));
    };
    let following = Following::new(inbox, number, sending);
    if !record.is_unfinished() || inbox.ledger.is_served() {
        return following.watched(output);
    }
    match inbox.alone(&format!("interlock backfill {name}"))? {
        Some(alone) => following.here(alone, output),
        None => Err(Failure::refused(
            format!("backfill {number} waits: another process has the ledger"),
            "Try again when that one has ended, or start `interlock serve`.",
        )),
    }
}

fn number(answer: &AppliedRecord) -> Option<u64> {
    answer.result.get("backfill").filter(|_| answer.accepted)?.as_u64()
}

/// A backfill on its way to its end.
struct Following<'a> {
    inbox: &'a Inbox,
    number: u64,
    sending: Sending,
    /// What was said last.
    said: Option<String>,
}

impl<'a> Following<'a> {
    fn new(inbox: &'a Inbox, number: u64, sending: Sending) -> Self {
        Self { inbox, number, sending, said: None }
    }

    /// Somebody else drives it.
    fn watched(mut self, output: &mut Output) -> Result<u8, Failure> {
        while self.tell(output)? == Told::Open {
            thread::sleep(LOOK_EVERY);
        }
        self.end(output)
    }

    /// This process drives it.
    fn here(mut self, alone: Alone, output: &mut Output) -> Result<u8, Failure> {
        match alone.drive_backfill(self.number, || self.tell(output))? {
            Driven::Ended => self.end(output),
            Driven::Left | Driven::Started => {
                let (name, number) = (&self.inbox.pipeline, self.number);
                writeln!(
                    output.err,
                    "left as it is: `interlock serve`, or `interlock backfill follow {name} {number}`, takes it up"
                )?;
                Ok(ACCEPTED)
            }
        }
    }

    fn record(&self) -> Result<BackfillRecord, Failure> {
        let found = self.inbox.ledger.backfill(&self.inbox.pipeline, self.number)?;
        found.ok_or_else(|| Failure::failed(format!("backfill {} is gone", self.number), ""))
    }

    /// Says how far it is, if that is new.
    fn tell(&mut self, output: &mut Output) -> Result<Told, Failure> {
        let record = self.record()?;
        let told = if record.is_unfinished() { Told::Open } else { Told::Ended };
        if self.sending.json {
            return Ok(told);
        }
        let is_terminal = io::stderr().is_terminal();
        let line = if is_terminal { bar(&record) } else { words(self.number, &record) };
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
        let record = self.record()?;
        let is_well = record.state == "done" && record.counts.ended() == record.counts.completed;
        if self.sending.json {
            let pipeline = self.inbox.pipeline.clone();
            let row = BackfillRow { pipeline, number: self.number, record, revision: 0 };
            let answer = backfill_answer(&row, clock::now());
            output.json(&to_value(answer).unwrap_or_default())?;
        }
        Ok(if is_well { SUCCESS } else { PROBLEMS })
    }
}

fn sum(record: &BackfillRecord) -> String {
    let counts = record.counts;
    let mut sum = format!("{}/{} completed", counts.completed, record.total);
    for (count, word) in
        [(counts.failed, "failed"), (counts.cancelled, "cancelled"), (counts.skipped, "skipped")]
    {
        if count > 0 {
            sum = format!("{sum}, {count} {word}");
        }
    }
    sum
}

fn bar(record: &BackfillRecord) -> String {
    let ended = record.counts.ended().min(record.total);
    let done = (ended * WIDTH).checked_div(record.total).unwrap_or(WIDTH) as usize;
    let left = backfill_eta(record, clock::now()).map(|eta| format!(", {eta:#} left"));
    let (full, empty) = ("#".repeat(done), "-".repeat(WIDTH as usize - done));
    format!("[{full}{empty}] {} {}{}", record.state, sum(record), left.unwrap_or_default())
}

/// A line for each hundredth of it.
fn words(number: u64, record: &BackfillRecord) -> String {
    let step = (record.total / 100).max(1);
    if record.is_unfinished() {
        let ended = record.counts.ended() / step * step;
        return format!("backfill {number} is {}, {ended} of {} ended", record.state, record.total);
    }
    format!("backfill {number} is {}: {}", record.state, sum(record))
}
