//! The way of a line to standard error: through a queue and a thread of its own.
//!
//! A terminal that is held, a pager, a log collector that hangs: whoever writes to them directly stands still
//! with them, and here that would be the engine. So lines are handed over and never waited for; when too many
//! wait, the newest are left out, and how many is said as soon as somebody reads again.

use std::{
    io::{self, Write},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use tracing::Level;

use super::{Fields, PLAIN};
use crate::arguments::LogForm;

/// Lines that may wait.
const LINES_MAX: usize = 10_000;
/// How long the last lines are waited for at the end.
const END_IN: Duration = Duration::from_secs(1);

/// What goes through the queue.
enum Item {
    Line(Vec<u8>),
    /// Everything before this is written: answer.
    End(SyncSender<()>),
}

/// The near end of the queue; a line at a time is written to it.
#[derive(Clone)]
pub(super) struct Queue {
    lines: SyncSender<Item>,
    left_out: Arc<AtomicU64>,
}

/// The one queue of the process.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// The queue; its thread begins with the first line.
pub(super) fn queue(form: LogForm) -> Queue {
    let start = || {
        let (lines, waiting) = sync_channel(LINES_MAX);
        let left_out = Arc::new(AtomicU64::new(0));
        let lost = Arc::clone(&left_out);
        let write = move || write_lines(&waiting, &lost, form, io::stderr());
        // Without a thread the queue fills up and the log is silent; the pipelines run.
        let _started = thread::Builder::new().name("log".to_owned()).spawn(write);
        Queue { lines, left_out }
    };
    QUEUE.get_or_init(start).clone()
}

/// Waits until what was logged is written, for a second at most.
pub(crate) fn finish() {
    let Some(queue) = QUEUE.get() else { return };
    let (written, wait) = sync_channel(1);
    if queue.lines.try_send(Item::End(written)).is_ok() {
        let _in_time = wait.recv_timeout(END_IN);
    }
}

impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.lines.try_send(Item::Line(line.to_vec())).is_err() {
            self.left_out.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_lines(waiting: &Receiver<Item>, left_out: &AtomicU64, form: LogForm, mut out: impl Write) {
    while let Ok(item) = waiting.recv() {
        let lost = left_out.swap(0, Relaxed);
        if lost > 0 {
            let _nobody_reads = writeln!(out, "{}", left_out_line(lost, form));
        }
        // A reader that went away stops nothing.
        match item {
            Item::Line(line) => {
                let _nobody_reads = out.write_all(&line);
            }
            Item::End(written) => {
                let _nobody_waits = written.send(());
            }
        }
    }
}

fn left_out_line(count: u64, form: LogForm) -> String {
    let message = format!("{count} lines of the log were left out: nobody read them");
    let values = [("message".to_owned(), message.into())].into_iter().collect();
    let fields = Fields { form, values };
    match form {
        LogForm::Json => fields.into_json(Level::WARN),
        LogForm::Text => fields.into_text(Level::WARN, &PLAIN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_find_no_room_are_counted_and_told() {
        let (lines, waiting) = sync_channel(2);
        let mut queue = Queue { lines, left_out: Arc::default() };
        for line in ["a\n", "b\n", "c\n", "d\n"] {
            queue.write_all(line.as_bytes()).unwrap();
        }
        let Queue { lines, left_out } = queue;
        drop(lines);
        let mut out = Vec::new();
        write_lines(&waiting, &left_out, LogForm::Text, &mut out);
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains("2 lines of the log were left out"), "{out}");
        assert!(out.ends_with("a\nb\n"), "{out}");
    }
}
