//! What happens at a server, event by event: server-sent events, taken up again where they broke off.

use std::{io::Write as _, thread, time::Duration};

use interlock_answers::model::event::{EventAnswer, StreamQuery};
use interlock_trigger::web::OpenAnswer;

use super::{Opened, RemoteServer, query};
use crate::{exit::Failure, output::Output};

/// A server says something every 15 s, a comment at least.
const SILENT_FOR: Duration = Duration::from_secs(45);
/// How long is waited before it is asked again.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// So often in a row it may not be there: it may be replaced by another for a minute.
const FAILURES_MAX: u32 = 30;
/// Bytes of one event.
const FRAME_MAX: usize = 4 * 1_024 * 1_024;

/// The events behind a number, and then those that come.
pub(crate) struct EventStream<'a> {
    server: &'a RemoteServer,
    pipeline: Option<String>,
    /// The last event that was given out.
    after: u64,
    listening: Option<OpenAnswer>,
    /// What came and is not yet a whole event.
    pending: Vec<u8>,
    failures: u32,
}

/// What one frame of the stream says.
#[derive(Debug, PartialEq)]
enum Frame {
    Event(Box<EventAnswer>),
    /// The stream ends here, and is to be taken up again behind this event.
    Resume(u64),
    /// A comment, or something of a later version.
    Nothing,
}

impl<'a> EventStream<'a> {
    /// Those of one pipeline or of all.
    pub(crate) fn new(server: &'a RemoteServer, pipeline: Option<&str>, after: u64) -> Self {
        let pipeline = pipeline.map(str::to_owned);
        Self { server, pipeline, after, listening: None, pending: Vec::new(), failures: 0 }
    }

    /// The next event, however long that takes. What was printed is flushed before it waits.
    pub(crate) fn next(&mut self, output: &mut Output) -> Result<EventAnswer, Failure> {
        loop {
            while let Some(frame) = take_frame(&mut self.pending) {
                match parse(&frame) {
                    Frame::Event(event) => {
                        self.after = event.number;
                        return Ok(*event);
                    }
                    Frame::Resume(after) => {
                        self.after = after;
                        self.listening = None;
                        self.pending.clear();
                    }
                    Frame::Nothing => {}
                }
            }
            output.out.flush()?;
            self.listen(output)?;
        }
    }

    /// Takes in what comes; asks for the stream where there is none.
    fn listen(&mut self, output: &mut Output) -> Result<(), Failure> {
        let Some(listening) = &mut self.listening else {
            return self.begin(output);
        };
        match self.server.piece(listening, SILENT_FOR) {
            Ok(Some(piece)) if self.pending.len() < FRAME_MAX => {
                self.pending.extend_from_slice(&piece);
                self.failures = 0;
            }
            // It has ended, as before a restart, or it broke off.
            Ok(_) | Err(_) => {
                self.listening = None;
                self.pending.clear();
            }
        }
        Ok(())
    }

    fn begin(&mut self, output: &mut Output) -> Result<(), Failure> {
        let asked = StreamQuery {
            pipeline: self.pipeline.iter().cloned().collect(),
            ..StreamQuery::default()
        };
        let path = format!("{}{}", query::path(&["stream"]), query::text(&asked));
        // Sent at the first time too: without it only what is still to come would be told.
        let headers = [("last-event-id", self.after.to_string())];
        let failure = match self.server.open(&path, &headers) {
            Ok(Opened::Answer(answer)) => {
                self.listening = Some(answer);
                return Ok(());
            }
            Ok(Opened::Refused(reply)) if !reply.may_pass() => {
                return Err(self.server.refusal(reply));
            }
            Ok(Opened::Refused(reply)) => self.server.refusal(reply),
            Err(failure) => failure,
        };
        if self.failures == 0 {
            writeln!(output.err, "{}; trying again", failure.message)?;
        }
        self.failures += 1;
        if self.failures >= FAILURES_MAX {
            let after = self.after;
            return Err(failure.with_help(format!(
                "`interlock events --follow --after {after}` goes on where this ends."
            )));
        }
        thread::sleep(AGAIN_AFTER);
        Ok(())
    }
}

/// The next whole frame, without the empty line behind it.
fn take_frame(pending: &mut Vec<u8>) -> Option<String> {
    let end = pending.windows(2).position(|two| two == b"\n\n")?;
    let frame = pending.drain(..end + 2).take(end).collect::<Vec<u8>>();
    Some(String::from_utf8_lossy(&frame).into_owned())
}

fn parse(frame: &str) -> Frame {
    let field = |name: &str| {
        let line = frame.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.strip_prefix(' ').unwrap_or(line))
    };
    if field("event") == Some("resume") {
        let after = field("id").and_then(|id| id.parse().ok());
        return after.map_or(Frame::Nothing, Frame::Resume);
    }
    let event = field("data").and_then(|data| serde_json::from_str(data).ok());
    event.map_or(Frame::Nothing, |event| Frame::Event(Box::new(event)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_cut_into_events_wherever_the_pieces_end() {
        let event = r#"{"number":7,"pipeline":"a","kind":"SLOT_OPENED","at":"2026-02-25T09:00:00Z","slot":null,"runId":null,"message":"é","details":{}}"#;
        let text = format!(
            "retry: 2000\n\n:\n\nid: 7\nevent: SLOT_OPENED\ndata: {event}\n\nid: 9\nevent: resume\ndata: {{\"after\":9}}\n\nid: 10\n"
        );
        let (mut pending, mut told) = (Vec::new(), Vec::new());
        // Byte by byte: a letter of two bytes is cut, too.
        for byte in text.bytes() {
            pending.push(byte);
            while let Some(frame) = take_frame(&mut pending) {
                told.push(parse(&frame));
            }
        }
        let [Frame::Nothing, Frame::Nothing, Frame::Event(event), Frame::Resume(9)] = &*told else {
            panic!("{told:?}");
        };
        assert_eq!((event.number, &*event.message), (7, "é"));
        assert_eq!(pending, b"id: 10\n", "the rest waits for its end");
    }

    #[test]
    fn what_a_later_version_says_is_passed_over() {
        for odd in ["event: resume\nid: x", "data: {\"number\": \"seven\"}", "event: NEW", ""] {
            assert_eq!(parse(odd), Frame::Nothing, "{odd}");
        }
    }
}
