//! What the runner knows about its runs: the journal, read.
//!
//! Every change is a [`Record`]. It is written to the journal and applied here, and a new runner
//! applies what it reads: there is one function from records to knowledge, for both.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::protocol::End;

/// Acknowledged runs that are still remembered, so that a start that is repeated late is refused.
const ACKNOWLEDGED_MAX: usize = 10_000;

/// One line of the journal. It holds no command, no argument and no variable: those have secrets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Record {
    /// The first line: since when nothing was forgotten, and under which boot of the host.
    Opened { version: u32, since: Timestamp, boot: String },
    /// This run is about to be started.
    Intent(Intent),
    /// A process of it runs.
    Spawned { run_id: String, step: Option<String>, pid: i32, start: u64 },
    /// That process is over.
    Exited { run_id: String, pid: i32 },
    /// How it ends is known; its handlers still run.
    Decided { run_id: String, end: End },
    /// It is over.
    Ended { run_id: String, at: Timestamp, end: End },
    /// The daemon has stored its end.
    Acknowledged { run_id: String },
}

/// What must be known about a run before it starts, and after its runner died.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Intent {
    pub(crate) run_id: String,
    pub(crate) pipeline: String,
    pub(crate) at: Timestamp,
    /// When it is ended by force.
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) grace_ms: u64,
    pub(crate) log_bytes_max: u64,
}

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) intent: Intent,
    /// Its processes that are not known to be over.
    pub(crate) live: Vec<Footprint>,
    /// Whether any process was ever recorded.
    pub(crate) spawned: bool,
    pub(crate) decided: Option<End>,
    pub(crate) ended: Option<(Timestamp, End)>,
    acknowledged: bool,
}

/// What tells a process from every other one of the same boot: a pid comes again, the pair never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Footprint {
    pub(crate) step: Option<String>,
    pub(crate) pid: i32,
    /// In clock ticks since boot.
    pub(crate) start: u64,
}

/// All runs that are under way, not acknowledged, or not yet forgotten.
#[derive(Debug, Default)]
pub(crate) struct Book {
    entries: BTreeMap<String, Entry>,
    /// Oldest first.
    acknowledged: VecDeque<String>,
}

impl Book {
    /// Takes note of a record. One about an unknown run says nothing: the run was forgotten.
    pub(crate) fn apply(&mut self, record: Record) {
        match record {
            Record::Opened { .. } => {}
            Record::Intent(intent) => {
                let entry = Entry {
                    live: Vec::new(),
                    spawned: false,
                    decided: None,
                    ended: None,
                    acknowledged: false,
                    intent,
                };
                self.entries.insert(entry.intent.run_id.clone(), entry);
            }
            Record::Spawned { run_id, step, pid, start } => {
                if let Some(entry) = self.entries.get_mut(&run_id) {
                    entry.spawned = true;
                    entry.live.push(Footprint { step, pid, start });
                }
            }
            Record::Exited { run_id, pid } => {
                if let Some(entry) = self.entries.get_mut(&run_id) {
                    entry.live.retain(|process| process.pid != pid);
                }
            }
            Record::Decided { run_id, end } => {
                if let Some(entry) = self.entries.get_mut(&run_id) {
                    entry.decided = Some(end);
                }
            }
            Record::Ended { run_id, at, end } => {
                if let Some(entry) = self.entries.get_mut(&run_id) {
                    entry.live.clear();
                    entry.ended = Some((at, end));
                }
            }
            Record::Acknowledged { run_id } => self.acknowledge(run_id),
        }
    }

    fn acknowledge(&mut self, run_id: String) {
        let Some(entry) = self.entries.get_mut(&run_id) else { return };
        if entry.acknowledged || entry.ended.is_none() {
            return;
        }
        entry.acknowledged = true;
        self.acknowledged.push_back(run_id);
        if self.acknowledged.len() > ACKNOWLEDGED_MAX
            && let Some(oldest) = self.acknowledged.pop_front()
        {
            self.entries.remove(&oldest);
        }
    }

    /// One run.
    pub(crate) fn get(&self, run_id: &str) -> Option<&Entry> {
        self.entries.get(run_id)
    }

    /// Runs that are not over.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().filter(|entry| entry.ended.is_none())
    }

    /// Ends that no daemon has acknowledged.
    pub(crate) fn untold(&self) -> impl Iterator<Item = (&str, Timestamp, &End)> {
        self.entries.values().filter(|entry| !entry.acknowledged).filter_map(|entry| {
            let (at, end) = entry.ended.as_ref()?;
            Some((entry.intent.run_id.as_str(), *at, end))
        })
    }

    /// Runs that are under way, or whose end no daemon has stored.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().filter(|entry| !entry.acknowledged)
    }

    /// Whether an acknowledgement would say something new.
    pub(crate) fn awaits_acknowledgement(&self, run_id: &str) -> bool {
        self.get(run_id).is_some_and(|entry| entry.ended.is_some() && !entry.acknowledged)
    }

    /// The fewest records that say the same.
    pub(crate) fn records(&self) -> Vec<Record> {
        let oldest_first = self.acknowledged.iter().filter_map(|run_id| self.entries.get(run_id));
        let others = self.entries.values().filter(|entry| !entry.acknowledged);
        oldest_first.chain(others).flat_map(Entry::records).collect()
    }
}

impl Entry {
    fn records(&self) -> Vec<Record> {
        let run_id = &self.intent.run_id;
        let mut records = vec![Record::Intent(self.intent.clone())];
        records.extend(self.live.iter().map(|process| Record::Spawned {
            run_id: run_id.clone(),
            step: process.step.clone(),
            pid: process.pid,
            start: process.start,
        }));
        if let Some(end) = self.decided.clone().filter(|_| self.ended.is_none()) {
            records.push(Record::Decided { run_id: run_id.clone(), end });
        }
        if let Some((at, end)) = self.ended.clone() {
            records.push(Record::Ended { run_id: run_id.clone(), at, end });
        }
        if self.acknowledged {
            records.push(Record::Acknowledged { run_id: run_id.clone() });
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intent(run_id: &str) -> Record {
        Record::Intent(Intent {
            run_id: run_id.to_owned(),
            pipeline: "orders".to_owned(),
            at: Timestamp::UNIX_EPOCH,
            deadline: None,
            grace_ms: 10,
            log_bytes_max: 10,
        })
    }

    fn ended(run_id: &str) -> Record {
        let end = End::Success { metadata: BTreeMap::new() };
        Record::Ended { run_id: run_id.to_owned(), at: Timestamp::UNIX_EPOCH, end }
    }

    fn book(records: impl IntoIterator<Item = Record>) -> Book {
        let mut book = Book::default();
        records.into_iter().for_each(|record| book.apply(record));
        book
    }

    #[test]
    fn a_book_written_and_read_says_the_same() {
        let spawned = |pid| Record::Spawned {
            run_id: "b".to_owned(),
            step: Some("load".to_owned()),
            pid,
            start: 7,
        };
        let exited = Record::Exited { run_id: "b".to_owned(), pid: 1 };
        let acknowledged = Record::Acknowledged { run_id: "c".to_owned() };
        let first = book([
            intent("a"),
            intent("b"),
            spawned(1),
            spawned(2),
            exited,
            intent("c"),
            ended("c"),
            acknowledged,
            intent("d"),
            ended("d"),
        ]);
        let second = book(first.records());
        assert_eq!(second.records(), first.records());
        assert_eq!(second.open().count(), 2);
        assert_eq!(second.get("b").unwrap().live.len(), 1);
        assert_eq!(second.untold().map(|(run_id, ..)| run_id).collect::<Vec<_>>(), ["d"]);
    }

    #[test]
    fn only_acknowledged_ends_are_forgotten_and_only_the_oldest() {
        let mut book = Book::default();
        for number in 0..=ACKNOWLEDGED_MAX {
            let run_id = format!("run-{number:06}");
            book.apply(intent(&run_id));
            book.apply(Record::Acknowledged { run_id: run_id.clone() });
            book.apply(ended(&run_id));
            assert!(book.awaits_acknowledgement(&run_id), "an end must come first");
            book.apply(Record::Acknowledged { run_id });
        }
        assert!(book.get("run-000000").is_none());
        assert!(book.get("run-000001").is_some());
    }
}
