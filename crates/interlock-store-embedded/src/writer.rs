//! The one thread that writes the ledger.
//!
//! It owns the only connection that may write. Work comes in over a channel; whatever has gathered while
//! the last transaction was made durable goes into the next one, so that one fsync serves many callers
//! (group commit); except that those with little to write do not wait in the same transaction for those with much.
//! Answers are given after the COMMIT, all at once; no code of a caller runs here, and
//! records are encoded before they come.
//!
//! After a failure the transaction is rolled back, everything that the thread remembers is read anew, and
//! each piece of work in it is answered with the failure. After a failure of the disk itself nothing is
//! believed any more, and every later call is refused ([`Health`]).

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
};

use interlock_store::StoreError;
use rusqlite::{Connection, TransactionBehavior};

use crate::{
    answer::{Answer, Asked, question},
    failure::{Failure, Health, Trouble},
    file_guard::FileGuard,
    log::LogKeeper,
    memory::Memory,
};

/// How many groups are gathered into one transaction. A task that brings more by itself stays whole.
const GROUPS_MAX: usize = 2_000;
/// Who brings no more groups than this has little to write, and need not wait for those who bring more.
pub(crate) const LITTLE: usize = 8;
/// How many prepared statements a connection keeps: more than there are.
pub(crate) const STATEMENTS_MAX: usize = 128;

/// The ledger inside a transaction.
#[derive(Debug)]
pub(crate) struct Ledger<'a> {
    /// The transaction.
    pub(crate) db: &'a Connection,
    /// What need not be read each time.
    pub(crate) memory: &'a mut Memory,
    /// How groups are applied.
    pub(crate) mood: Mood,
}

/// How groups are applied; see the module `apply`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// As if no precondition failed, until one does.
    Hopeful,
    /// All preconditions first.
    Careful,
}

/// A piece of work, with whoever waits for it.
trait Task: Send {
    /// How many groups it counts for.
    fn weight(&self) -> usize;
    /// Does it, inside a transaction; again, if that was given up. After an error of SQLite, or if there
    /// was not enough care, the whole transaction is given up.
    fn perform(&mut self, ledger: &mut Ledger<'_>) -> Result<(), Failure>;
    /// Tells what came of it, once that is durable; or that all failed.
    fn answer(self: Box<Self>, trouble: Option<&Trouble>, health: &Health);
}

struct Typed<T, F> {
    weight: usize,
    work: F,
    result: Option<Result<T, Failure>>,
    asked: Asked<T>,
}

impl<T, F> Task for Typed<T, F>
where
    T: Send,
    F: FnMut(&mut Ledger<'_>) -> Result<T, Failure> + Send,
{
    fn weight(&self) -> usize {
        self.weight
    }

    fn perform(&mut self, ledger: &mut Ledger<'_>) -> Result<(), Failure> {
        match (self.work)(ledger) {
            Err(failure @ (Failure::Sql(_) | Failure::Again)) => Err(failure),
            result => {
                self.result = Some(result);
                Ok(())
            }
        }
    }

    fn answer(self: Box<Self>, trouble: Option<&Trouble>, health: &Health) {
        match (trouble, self.result) {
            (Some(trouble), _) => self.asked.answer(Err(trouble.error())),
            (None, Some(result)) => {
                self.asked.answer(result.map_err(|failure| health.diagnose(failure).error()));
            }
            // Unanswered, it says that the store was closed.
            (None, None) => {}
        }
    }
}

/// The way to the thread. Dropped, the thread finishes what it was given, and ends.
#[derive(Debug)]
pub(crate) struct Writer {
    tasks: Option<Sender<Box<dyn Task>>>,
    thread: Option<JoinHandle<()>>,
    health: Health,
    made: Arc<Made>,
}

/// What was made durable, for whoever would otherwise have to read.
#[derive(Debug, Default)]
struct Made {
    /// How many transactions that changed something.
    transactions: AtomicU64,
    /// The number of the newest inbox entry.
    last_inbox: AtomicI64,
}

impl Writer {
    /// Starts the thread on a connection.
    pub(crate) fn start(
        db: Connection,
        log: LogKeeper,
        health: Health,
        guard: Arc<FileGuard>,
    ) -> Result<Self, StoreError> {
        let memory = Memory::load(&db).map_err(|failure| health.diagnose(failure).error())?;
        let (tasks, queue) = channel();
        let made = Arc::new(Made { last_inbox: memory.last_inbox().into(), ..Made::default() });
        let (kept, sick) = (Arc::clone(&made), health.clone());
        let mut desk = Desk { db, log, memory, health: sick, guard, made: kept };
        let thread = std::thread::Builder::new()
            .name("ledger-writer".to_owned())
            .spawn(move || desk.work(&queue))
            .map_err(|error| StoreError::retryable(format!("no thread could start: {error}")))?;
        Ok(Self { tasks: Some(tasks), thread: Some(thread), health, made })
    }

    /// A number that grows with each transaction that changes something, once that can be read: nobody else writes the ledger.
    pub(crate) fn moved(&self) -> u64 {
        self.made.transactions.load(Ordering::Acquire)
    }

    /// The number of the newest inbox entry there ever was, once that can be read.
    pub(crate) fn last_inbox(&self) -> i64 {
        self.made.last_inbox.load(Ordering::Acquire)
    }

    /// Hands in work. What it returns is given to the caller once it is durable.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        weight: usize,
        work: impl FnMut(&mut Ledger<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Answer<T> {
        let (asked, answer) = question();
        if let Err(error) = self.health.check() {
            asked.answer(Err(error));
        } else if let Some(tasks) = &self.tasks {
            // If the thread is gone, the task comes back, is dropped, and answers that it was closed.
            drop(tasks.send(Box::new(Typed { weight, work, result: None, asked })));
        }
        answer
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed; there is nothing left to save here.
            drop(thread.join());
        }
    }
}

/// What the thread has before it.
struct Desk {
    db: Connection,
    log: LogKeeper,
    memory: Memory,
    health: Health,
    guard: Arc<FileGuard>,
    made: Arc<Made>,
}

impl Desk {
    fn work(&mut self, queue: &Receiver<Box<dyn Task>>) {
        let mut waiting = Waiting::default();
        while let Some(mut batch) = waiting.next(queue) {
            let trouble = self.run(&mut batch).err();
            for task in batch {
                task.answer(trouble.as_ref(), &self.health);
            }
            self.log.tend(&self.db);
        }
        self.log.stop();
        // A clean end leaves one file. If this fails, the log is read at the next start.
        drop(self.db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)"));
    }

    /// Does a batch in one transaction; durable when it returns.
    fn run(&mut self, batch: &mut [Box<dyn Task>]) -> Result<(), Trouble> {
        // The disk may have failed while this batch was waiting.
        self.check()?;
        let mut outcome = self.transact(batch, Mood::Hopeful);
        if let Err(Failure::Again) = outcome {
            self.recollect();
            outcome = self.transact(batch, Mood::Careful);
        }
        outcome.map_err(|failure| {
            let trouble = self.health.diagnose(failure);
            self.recollect();
            trouble
        })?;
        // Written, but perhaps to a file that no path leads to any more.
        self.check()
    }

    /// Whether what is written now is where others will read it.
    fn check(&self) -> Result<(), Trouble> {
        if let Err(what) = self.guard.check() {
            self.health.stop(what);
        }
        self.health.check().map_err(|error| self.health.diagnose(Failure::Said(error)))
    }

    fn transact(&mut self, batch: &mut [Box<dyn Task>], mood: Mood) -> Result<(), Failure> {
        let before = self.db.total_changes();
        let transaction = rusqlite::Transaction::new(&mut self.db, TransactionBehavior::Immediate)?;
        let mut ledger = Ledger { db: &transaction, memory: &mut self.memory, mood };
        for task in batch {
            task.perform(&mut ledger)?;
        }
        self.memory.keep_counters(&transaction)?;
        transaction.commit()?;
        self.made.last_inbox.store(self.memory.last_inbox(), Ordering::Release);
        // Most are for nothing, such as a claim while nobody is to be told: whoever follows need not look.
        if self.db.total_changes() > before {
            self.made.transactions.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// After a transaction was given up, what is remembered may never have happened.
    fn recollect(&mut self) {
        match Memory::load(&self.db) {
            Ok(memory) => self.memory = memory,
            // Numbers would be given twice. Every call after this one is refused.
            Err(failure) => drop(self.health.diagnose(failure)),
        }
    }
}

/// Tasks that have come and are not done: in two rows, which take turns.
#[derive(Default)]
struct Waiting {
    little: VecDeque<Box<dyn Task>>,
    much: VecDeque<Box<dyn Task>>,
    turn: Turn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Turn {
    #[default]
    Little,
    Much,
}

impl Waiting {
    /// The next batch; waits for one. Nothing, when all is done and nobody can come any more.
    fn next(&mut self, queue: &Receiver<Box<dyn Task>>) -> Option<Vec<Box<dyn Task>>> {
        if self.little.is_empty() && self.much.is_empty() {
            self.take_in(queue.recv().ok()?);
        }
        while let Ok(task) = queue.try_recv() {
            self.take_in(task);
        }
        let is_for_little = match self.turn {
            Turn::Little => !self.little.is_empty(),
            Turn::Much => self.much.is_empty(),
        };
        // While somebody with little waits, one of those with much is enough.
        let groups_max = if is_for_little || self.little.is_empty() { GROUPS_MAX } else { 0 };
        let row = if is_for_little { &mut self.little } else { &mut self.much };
        self.turn = if is_for_little { Turn::Much } else { Turn::Little };
        let mut batch: Vec<_> = row.pop_front().into_iter().collect();
        let mut weight: usize = batch.iter().map(|task| task.weight()).sum();
        while weight < groups_max
            && let Some(task) = row.pop_front()
        {
            weight += task.weight();
            batch.push(task);
        }
        Some(batch)
    }

    fn take_in(&mut self, task: Box<dyn Task>) {
        let row = if task.weight() <= LITTLE { &mut self.little } else { &mut self.much };
        row.push_back(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Groups(usize);

    impl Task for Groups {
        fn weight(&self) -> usize {
            self.0
        }

        fn perform(&mut self, _: &mut Ledger<'_>) -> Result<(), Failure> {
            Ok(())
        }

        fn answer(self: Box<Self>, _: Option<&Trouble>, _: &Health) {}
    }

    fn next(waiting: &mut Waiting, queue: &Receiver<Box<dyn Task>>) -> Option<Vec<usize>> {
        waiting.next(queue).map(|batch| batch.iter().map(|task| task.weight()).collect())
    }

    #[test]
    fn those_with_little_wait_for_one_with_much_at_most_and_nobody_is_left_behind() {
        let (tasks, queue) = channel::<Box<dyn Task>>();
        let bring = |weights: &[usize]| {
            for weight in weights {
                tasks.send(Box::new(Groups(*weight))).unwrap();
            }
        };
        let mut waiting = Waiting::default();
        bring(&[200, 1, 2, 1_900, 500, 1]);
        assert_eq!(next(&mut waiting, &queue), Some(vec![1, 2, 1]));
        bring(&[3]);
        assert_eq!(next(&mut waiting, &queue), Some(vec![200]));
        bring(&[4]);
        assert_eq!(next(&mut waiting, &queue), Some(vec![3, 4]));
        assert_eq!(
            next(&mut waiting, &queue),
            Some(vec![1_900, 500]),
            "small writes are never delayed"
        );
        bring(&[9_000]);
        assert_eq!(next(&mut waiting, &queue), Some(vec![9_000]));
        bring(&[300, 1]);
        assert_eq!(next(&mut waiting, &queue), Some(vec![1]), "it waited for one already");
        drop(tasks);
        assert_eq!(next(&mut waiting, &queue), Some(vec![300]));
        assert_eq!(next(&mut waiting, &queue), None);
    }
}
