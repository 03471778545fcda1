//! What every part of the runner writes to: the journal with its book, and the daemons that listen.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Write},
    os::fd::OwnedFd,
    path::PathBuf,
};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{
    book::{Book, Record},
    connection::Connection,
    journal::Journal,
    log,
    parked::Parked,
    protocol::{Known, Line, News, Told},
    time,
};
use interlock_ports::trigger::Metadata;

/// The runner's memory and its voice.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) dir: PathBuf,
    pub(crate) journal: Journal,
    pub(crate) book: Book,
    pub(crate) children: BTreeMap<i32, Child>,
    pub(crate) connections: BTreeMap<u64, Connection>,
    pub(crate) spare: log::Spare,
    pub(crate) parked: Parked,
}

/// A process of a run.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) run_id: String,
    /// Becomes readable when the process is over. Nothing where there are too many, or the kernel has none.
    pub(crate) watch: Option<OwnedFd>,
}

/// How many processes are watched by a file of their own: half of what a process may usually open. The others are
/// looked at again and again.
const WATCHES_MAX: usize = 512;

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

    /// Remembers whose a process is that was just started.
    pub(crate) fn take_charge_of(&mut self, pid: i32, run_id: String) {
        let watch = Pid::from_raw(pid)
            .filter(|_| self.children.len() < WATCHES_MAX)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        self.children.insert(pid, Child { run_id, watch });
    }

    /// Whether the end of every process wakes the runner.
    pub(crate) fn is_all_watched(&self) -> bool {
        self.children.values().all(|child| child.watch.is_some())
    }

    /// Sends what was said and must not wait, and forgets who is gone.
    pub(crate) fn flush(&mut self) {
        self.connections.values_mut().for_each(Connection::flush);
        self.connections.retain(|_, connection| !connection.is_over());
    }

    /// Tells every daemon that listens.
    pub(crate) fn tell(&mut self, run_id: &str, news: News) {
        self.tell_told(Told { run_id: run_id.to_owned(), at: time::wall(), news });
    }

    /// Tells what happened earlier.
    pub(crate) fn tell_told(&mut self, told: Told) {
        let line = Line::Told(told);
        for connection in self.connections.values_mut().filter(|to| to.is_subscribed) {
            connection.say(&line);
        }
    }

    /// Tells a daemon everything that nobody has acknowledged, and from now on everything.
    pub(crate) fn subscribe(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.is_subscribed = true;
        for (run_id, at, end) in self.book.untold() {
            let news = News::Ended(end.clone());
            connection.say(&Line::Told(Told { run_id: run_id.to_owned(), at, news }));
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
