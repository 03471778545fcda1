//! What every part of the runner writes to: the journal with its book, and the daemons that listen.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Write},
    path::PathBuf,
    sync::mpsc,
};

use super::{
    book::{Book, Record},
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
}

/// A connected daemon.
#[derive(Debug)]
pub(crate) struct Listener {
    lines: mpsc::Sender<Vec<u8>>,
    subscribed: bool,
}

impl Listener {
    /// A connection that has asked for nothing yet.
    pub(crate) fn new(lines: mpsc::Sender<Vec<u8>>) -> Self {
        Self { lines, subscribed: false }
    }

    /// Sends a line; a peer that is gone is noticed by its reader.
    pub(crate) fn send(&self, line: &Line) {
        let _gone = self.lines.send(encode(line));
    }
}

fn encode(line: &Line) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    text
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

    /// Tells every daemon that listens.
    pub(crate) fn tell(&self, run_id: &str, news: News) {
        self.tell_told(Told { run_id: run_id.to_owned(), at: time::wall(), news });
    }

    /// Tells what happened earlier.
    pub(crate) fn tell_told(&self, told: Told) {
        let mut listening =
            self.listeners.values().filter(|listener| listener.subscribed).peekable();
        if listening.peek().is_some() {
            let text = encode(&Line::Told(told));
            for listener in listening {
                let _gone = listener.lines.send(text.clone());
            }
        }
    }

    /// Tells a daemon everything that nobody has acknowledged, and from now on everything.
    pub(crate) fn subscribe(&mut self, connection: u64) {
        let Some(listener) = self.listeners.get_mut(&connection) else { return };
        listener.subscribed = true;
        for (run_id, at, end) in self.book.untold() {
            let news = News::Ended(end.clone());
            listener.send(&Line::Told(Told { run_id: run_id.to_owned(), at, news }));
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
