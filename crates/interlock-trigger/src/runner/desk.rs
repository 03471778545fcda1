//! What every part of the runner writes to: the journal with its book, and the daemons that listen.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Write},
    path::PathBuf,
};

use super::{
    book::{Book, Record},
    connection::Outgoing,
    journal::Journal,
    log,
    protocol::{Known, Line, News, Told},
    time,
};
use crate::contract::Metadata;

/// The runner's memory and its voice.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) dir: PathBuf,
    pub(crate) journal: Journal,
    pub(crate) book: Book,
    /// Which run a child belongs to.
    pub(crate) pids: BTreeMap<i32, String>,
    pub(crate) listeners: BTreeMap<u64, Listener>,
    pub(crate) spare: log::Spare,
}

/// A connected daemon.
#[derive(Debug)]
pub(crate) struct Listener {
    outgoing: Outgoing,
    /// Lines that go out together, once what they are about is done.
    text: Vec<u8>,
    subscribed: bool,
}

impl Listener {
    /// A connection that has asked for nothing yet.
    pub(crate) fn new(outgoing: Outgoing) -> Self {
        Self { outgoing, text: Vec::new(), subscribed: false }
    }

    /// Adds a line to what is sent next.
    pub(crate) fn say(&mut self, line: &Line) {
        // Lines are strings and numbers in maps; they can always be written.
        let _written = serde_json::to_writer(&mut self.text, line);
        self.text.push(b'\n');
    }

    fn flush(&mut self) {
        if !self.text.is_empty() {
            self.outgoing.send(std::mem::take(&mut self.text));
        }
    }
}

impl Desk {
    /// Writes a record and takes note of it. One that cannot be written is still noted: what it
    /// says is true, only a next runner will not know it and call the run lost.
    pub(crate) fn note(&mut self, record: Record) {
        if let Err(error) = self.journal.append(&record) {
            complain(format_args!("the journal cannot be written: {error}"));
        }
        self.book.apply(record);
    }

    /// Writes a record that must be in the journal before anything else happens.
    pub(crate) fn note_first(&mut self, record: Record) -> io::Result<()> {
        self.journal.append(&record)?;
        self.book.apply(record);
        Ok(())
    }

    /// Sends what was said. A start and all that follows from it at once is one message, so that the daemon wakes
    /// once, and after the job began.
    pub(crate) fn flush(&mut self) {
        self.listeners.values_mut().for_each(Listener::flush);
    }

    /// Tells every daemon that listens.
    pub(crate) fn tell(&mut self, run_id: &str, news: News) {
        self.tell_told(Told { run_id: run_id.to_owned(), at: time::wall(), news });
    }

    /// Tells what happened earlier.
    pub(crate) fn tell_told(&mut self, told: Told) {
        let line = Line::Told(told);
        for listener in self.listeners.values_mut().filter(|listener| listener.subscribed) {
            listener.say(&line);
        }
    }

    /// Tells a daemon everything that nobody has acknowledged, and from now on everything.
    pub(crate) fn subscribe(&mut self, connection: u64) {
        let Some(listener) = self.listeners.get_mut(&connection) else { return };
        listener.subscribed = true;
        for (run_id, at, end) in self.book.untold() {
            let news = News::Ended(end.clone());
            listener.say(&Line::Told(Told { run_id: run_id.to_owned(), at, news }));
        }
    }

    /// What is known about a run.
    pub(crate) fn known(&self, run_id: &str) -> Known {
        match self.book.get(run_id) {
            None => Known::Nothing { since: self.journal.since() },
            Some(entry) => match &entry.ended {
                Some((_, end)) => Known::Ended(end.clone()),
                None => Known::Running { metadata: self.metadata(run_id) },
            },
        }
    }

    /// What can be said about a run at any time.
    pub(crate) fn metadata(&self, run_id: &str) -> Metadata {
        let Some(entry) = self.book.get(run_id) else { return Metadata::new() };
        let mut metadata = Metadata::new();
        if let Some(process) = entry.live.first() {
            metadata.insert("pid".to_owned(), process.pid.into());
        }
        let path = log::log_path(&self.dir, &entry.intent.pipeline, run_id);
        metadata.insert("log".to_owned(), path.display().to_string().into());
        metadata
    }
}

/// Writes to the runner's own log; there is nobody else to tell.
pub(crate) fn complain(text: fmt::Arguments<'_>) {
    let _lost = writeln!(io::stderr(), "{} {text}", time::wall());
}
