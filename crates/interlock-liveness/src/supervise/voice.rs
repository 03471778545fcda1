//! What a supervisor says, without ever waiting for whoever reads it.
//!
//! Program and supervisor often share one log. A program that hangs because nobody reads that must not take its supervisor along; so
//! lines go through a queue to a thread that may block, and those that find no room are left out and counted.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use crate::sys;

/// Lines that may wait.
const LINES_MAX: usize = 1_000;

enum Item {
    Line(String),
    /// Everything before this is written: answer.
    End(SyncSender<()>),
}

/// Says lines, and waits for nobody.
#[derive(Debug)]
pub struct Voice {
    lines: SyncSender<Item>,
    left_out: Arc<AtomicU64>,
}

impl Voice {
    /// Speaks into something that may block.
    pub fn into(out: impl Write + Send + 'static) -> Self {
        let (lines, waiting) = sync_channel(LINES_MAX);
        let left_out = Arc::new(AtomicU64::new(0));
        let lost = Arc::clone(&left_out);
        let write = move || {
            // They are for the supervisor to hear.
            sys::block_signals(None);
            write_lines(&waiting, &lost, out);
        };
        // Without a thread nothing is said; the program is looked after.
        let _started = thread::Builder::new().name("voice".to_owned()).spawn(write);
        Self { lines, left_out }
    }

    /// Says a line.
    pub fn say(&self, line: impl Into<String>) {
        if self.lines.try_send(Item::Line(line.into())).is_err() {
            self.left_out.fetch_add(1, Relaxed);
        }
    }

    /// Waits until what was said is written, for so long at most.
    pub fn finish(&self, most: Duration) {
        let (written, wait) = sync_channel(1);
        if self.lines.try_send(Item::End(written)).is_ok() {
            let _in_time = wait.recv_timeout(most);
        }
    }
}

fn write_lines(waiting: &Receiver<Item>, left_out: &AtomicU64, mut out: impl Write) {
    while let Ok(item) = waiting.recv() {
        let lost = left_out.swap(0, Relaxed);
        if lost > 0 {
            let _nobody_reads = writeln!(out, "{lost} lines were left out: nobody read them");
        }
        match item {
            Item::Line(line) => {
                let _nobody_reads = writeln!(out, "{line}");
            }
            Item::End(written) => {
                let _nobody_reads = out.flush();
                let _nobody_waits = written.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_find_no_room_are_counted_and_told() {
        let (lines, waiting) = sync_channel(2);
        let voice = Voice { lines, left_out: Arc::default() };
        for line in ["a", "b", "c", "d"] {
            voice.say(line);
        }
        let Voice { lines, left_out } = voice;
        drop(lines);
        let mut out = Vec::new();
        write_lines(&waiting, &left_out, &mut out);
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out, "2 lines were left out: nobody read them\na\nb\n");
    }
}
