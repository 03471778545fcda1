//! One caller: it asks, is answered, and hangs up. Nothing here waits.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use rustix::event::PollFlags;

use crate::clock::{monotonic, nanos};

/// How long somebody may take for all of it.
const PATIENCE: Duration = Duration::from_secs(5);
/// A request's first line is shorter.
const LINE_MAX: usize = 1_024;

/// Somebody who asks.
pub(super) struct Caller {
    stream: TcpStream,
    until: u64,
    stage: Stage,
}

enum Stage {
    /// So much of the first line has come.
    Asking(Vec<u8>),
    /// So much of the answer is still to be sent.
    Hearing(Vec<u8>),
    /// What it still wants to say is of no interest, but an end with unread bytes would take the answer back.
    Leaving,
}

impl Caller {
    pub(super) fn new(stream: TcpStream, now: u64) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let until = now.saturating_add(nanos(PATIENCE));
        Ok(Self { stream, until, stage: Stage::Asking(Vec::new()) })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// What has to happen before it can proceed.
    pub(super) fn awaits(&self) -> PollFlags {
        match self.stage {
            Stage::Asking(_) | Stage::Leaving => PollFlags::IN,
            Stage::Hearing(_) => PollFlags::OUT,
        }
    }

    pub(super) fn is_late(&self, now: u64) -> bool {
        now >= self.until
    }

    /// Goes on as far as it can without waiting; an error when there is nothing more to do.
    pub(super) fn proceed(&mut self, answer: impl Fn(&str) -> String) -> io::Result<()> {
        loop {
            let went_on = match &mut self.stage {
                Stage::Asking(line) => ask(&mut self.stream, line, &answer),
                Stage::Hearing(left) => send(&mut self.stream, left),
                Stage::Leaving => discard(&mut self.stream),
            };
            match went_on {
                Ok(Some(stage)) => self.stage = stage,
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            // Somebody who sends for ever is not to be listened to for ever.
            if self.is_late(monotonic()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}

fn ask(
    stream: &mut TcpStream,
    line: &mut Vec<u8>,
    answer: impl Fn(&str) -> String,
) -> io::Result<Option<Stage>> {
    let mut room = [0; LINE_MAX];
    let came = stream.read(&mut room)?;
    line.extend_from_slice(room.get(..came).unwrap_or_default());
    let end = line.iter().position(|byte| *byte == b'\n');
    if end.is_none() && came > 0 && line.len() < LINE_MAX {
        return Ok(None);
    }
    let asked = str::from_utf8(line.get(..end.unwrap_or(line.len())).unwrap_or_default());
    let answer = answer(asked.map_err(io::Error::other)?.trim_end());
    Ok(Some(Stage::Hearing(answer.into_bytes())))
}

fn send(stream: &mut TcpStream, left: &mut Vec<u8>) -> io::Result<Option<Stage>> {
    let sent = stream.write(left)?;
    left.drain(..sent);
    if !left.is_empty() {
        return Ok(None);
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(Some(Stage::Leaving))
}

fn discard(stream: &mut TcpStream) -> io::Result<Option<Stage>> {
    let mut rest = [0; LINE_MAX];
    match stream.read(&mut rest)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(None),
    }
}
