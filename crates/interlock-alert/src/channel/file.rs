//! A file: one JSON object a line, on the disk before it counts as delivered.
//!
//! Lines that come while the disk is busy wait for each other, and go there together: a disk that takes ten milliseconds to
//! make one line durable takes as long for a hundred.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use interlock_ports::channel::Delivery;
use serde_json::Value;
use tokio::sync::oneshot;

use super::TIME_MAX;

/// The files that are written, each with the lines that wait for it: one that hangs holds up no other.
#[derive(Debug, Clone, Default)]
pub(crate) struct AlertFiles(Arc<Mutex<BTreeMap<PathBuf, Arc<LineQueue>>>>);

impl AlertFiles {
    fn queue(&self, path: &Path) -> Arc<LineQueue> {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(queues.entry(path.to_owned()).or_default())
    }
}

/// Lines on their way to a file.
#[derive(Debug, Default)]
struct LineQueue(Mutex<LineQueueState>);

#[derive(Debug, Default)]
struct LineQueueState {
    waiting: Vec<WaitingLine>,
    /// Whether a thread writes them, and looks again before it ends.
    has_writer: bool,
}

/// A line, and who wants to know what came of it: nothing, or a reason.
#[derive(Debug)]
struct WaitingLine {
    line: String,
    answer: oneshot::Sender<Result<(), String>>,
}

/// Appends what a program is sent.
pub(crate) async fn deliver(files: AlertFiles, path: PathBuf, payload: Value) -> Delivery {
    let failed = |reason: String| Delivery::Failed { reason, retry_after: None };
    let what = path.display().to_string();
    let (answer, answered) = oneshot::channel();
    let queue = files.queue(&path);
    if queue.add(WaitingLine { line: format!("{payload}\n"), answer }) {
        drop(tokio::task::spawn_blocking(move || queue.write_all(&path)));
    }
    match tokio::time::timeout(TIME_MAX, answered).await {
        Ok(Ok(Ok(()))) => Delivery::Delivered,
        Ok(Ok(Err(reason))) => failed(format!("{what} cannot be written: {reason}")),
        Ok(Err(_closed)) => failed(format!("{what} cannot be written: its writer broke off")),
        Err(_elapsed) => failed(format!("{what} did not take it in time")),
    }
}

impl LineQueue {
    /// Adds a line; says whether the caller has to write, or another one does.
    fn add(&self, line: WaitingLine) -> bool {
        let mut state = self.lock();
        state.waiting.push(line);
        !std::mem::replace(&mut state.has_writer, true)
    }

    /// Writes what waits until nothing does, and answers.
    fn write_all(&self, path: &Path) {
        let _turn = WriterTurn(self);
        while let Some(lines) = self.take() {
            let text: String = lines.iter().map(|waiting| waiting.line.as_str()).collect();
            let written = append(path, &text).map_err(|error| error.to_string());
            for WaitingLine { answer, .. } in lines {
                // Who does not wait any more tries again.
                let _nobody_waits = answer.send(written.clone());
            }
        }
    }

    /// The lines that are waited for; gives the turn back when there are none.
    fn take(&self) -> Option<Vec<WaitingLine>> {
        let mut state = self.lock();
        let mut lines = std::mem::take(&mut state.waiting);
        lines.retain(|waiting| !waiting.answer.is_closed());
        state.has_writer = !lines.is_empty();
        state.has_writer.then_some(lines)
    }

    fn lock(&self) -> MutexGuard<'_, LineQueueState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives the turn back if the writer breaks off; else the queue has given it back already, perhaps to another.
struct WriterTurn<'a>(&'a LineQueue);

impl Drop for WriterTurn<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().has_writer = false;
        }
    }
}

fn append(path: &Path, lines: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    let before = file.metadata()?.len();
    // After a crash in the middle of a line the next one begins on its own.
    let text =
        if ends_in_a_line(&mut file, before)? { lines.to_owned() } else { format!("\n{lines}") };
    file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).inspect_err(|_| {
        // Half a line is worse than none; if even that fails, the next one begins on its own.
        let _kept = file.set_len(before);
    })
}

fn ends_in_a_line(file: &mut File, length: u64) -> io::Result<bool> {
    if length == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::Start(length - 1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Answered = oneshot::Receiver<Result<(), String>>;

    fn add(queue: &LineQueue, line: &str) -> (bool, Answered) {
        let (answer, answered) = oneshot::channel();
        (queue.add(WaitingLine { line: format!("{line}\n"), answer }), answered)
    }

    #[test]
    fn lines_that_wait_go_to_the_disk_together_and_each_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let (path, queue) = (folder.path().join("alerts.jsonl"), LineQueue::default());
        let (is_first, mut first) = add(&queue, "1");
        let (is_second, mut second) = add(&queue, "2");
        let (_, given_up) = add(&queue, "3");
        drop(given_up);
        assert_eq!((is_first, is_second), (true, false), "one writes for both");
        let lines = queue.take().unwrap();
        assert_eq!(lines.len(), 2, "a line that is not waited for is not written");
        queue.lock().waiting = lines;
        queue.write_all(&path);
        assert_eq!((first.try_recv(), second.try_recv()), (Ok(Ok(())), Ok(Ok(()))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n");
        // The turn was given back.
        let (is_first, _) = add(&queue, "4");
        assert!(is_first);
    }

    #[test]
    fn a_file_that_cannot_be_written_fails_all_that_wait_and_none_that_come_later() {
        let folder = tempfile::tempdir().unwrap();
        let (path, queue) = (folder.path().join("alerts.jsonl"), LineQueue::default());
        fs::create_dir(&path).unwrap();
        let (_, mut first) = add(&queue, "1");
        let (_, mut second) = add(&queue, "2");
        queue.write_all(&path);
        assert!(matches!((first.try_recv(), second.try_recv()), (Ok(Err(_)), Ok(Err(_)))));
        fs::remove_dir(&path).unwrap();
        let (is_first, mut third) = add(&queue, "3");
        assert!(is_first);
        queue.write_all(&path);
        assert_eq!(third.try_recv(), Ok(Ok(())));
        assert_eq!(fs::read_to_string(&path).unwrap(), "3\n");
    }
}
