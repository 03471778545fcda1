//! The threads that read the ledger.
//!
//! A few connections that cannot write, one thread each, fed by one queue. Each piece of work runs in a
//! read transaction of its own, begun when it is taken up, so it sees every group that was acknowledged
//! before it was asked for, and no half of one.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
};

use interlock_store::StoreError;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::{
    answer::{Answer, question},
    failure::{Failure, Health},
};

type Task = Box<dyn FnOnce(&mut Connection) + Send>;

/// The way to the threads. Dropped, they finish what they were given, and end.
#[derive(Debug)]
pub(crate) struct Readers {
    tasks: Option<Sender<Task>>,
    threads: Vec<JoinHandle<()>>,
    health: Health,
}

impl Readers {
    /// Starts a thread for each connection.
    pub(crate) fn start(connections: Vec<Connection>, health: Health) -> Result<Self, StoreError> {
        let (tasks, queue) = channel::<Task>();
        let queue = Arc::new(Mutex::new(queue));
        let start = |mut db: Connection| {
            let queue = Arc::clone(&queue);
            let thread = std::thread::Builder::new().name("ledger-reader".to_owned());
            thread.spawn(move || {
                while let Some(task) = next(&queue) {
                    task(&mut db);
                }
            })
        };
        let threads = connections.into_iter().map(start).collect::<Result<_, _>>();
        let threads = threads
            .map_err(|error| StoreError::retryable(format!("no thread could start: {error}")))?;
        Ok(Self { tasks: Some(tasks), threads, health })
    }

    /// Whether what the ledger says can still be believed.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.health.check()
    }

    /// Hands in work.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Answer<T> {
        let (asked, answer) = question();
        if let Err(error) = self.health.check() {
            asked.answer(Err(error));
            return answer;
        }
        let health = self.health.clone();
        let task = move |db: &mut Connection| {
            let outcome = within_transaction(db, work);
            asked.answer(outcome.map_err(|failure| health.diagnose(failure).error()));
        };
        if let Some(tasks) = &self.tasks {
            // If the threads are gone, the task comes back, is dropped, and answers that it was closed.
            drop(tasks.send(Box::new(task)));
        }
        answer
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.tasks = None;
        for thread in self.threads.drain(..) {
            // A panic there has been printed; there is nothing left to save here.
            drop(thread.join());
        }
    }
}

/// Waits for work; the lock is held only until somebody has it.
fn next(queue: &Mutex<Receiver<Task>>) -> Option<Task> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// Reads one state of the file.
pub(crate) fn within_transaction<T>(
    db: &mut Connection,
    work: impl FnOnce(&Connection) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let transaction = Transaction::new(db, TransactionBehavior::Deferred)?;
    let result = work(&transaction)?;
    // Nothing was changed: how it ends makes no difference.
    transaction.finish()?;
    Ok(result)
}
