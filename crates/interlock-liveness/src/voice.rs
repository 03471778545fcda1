//! Lines on their way to a reader that may hang.
//!
//! A terminal that is held, a pager, a log collector that hangs, a pipe that a hung program shares: whoever writes to them directly
//! stands still with them. So lines are handed to a thread that may block, and never waited for; when too many wait, the newest are left out,
//! and how many is said as soon as somebody reads again.

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
const LINES_MAX: usize = 10_000;

enum Item {
    Line(Vec<u8>),
    /// Everything before this is written: answer.
    End(SyncSender<()>),
}

/// Says lines, and waits for nobody.
#[derive(Debug, Clone)]
pub struct Voice {
    lines: SyncSender<Item>,
    left_out: Arc<AtomicU64>,
}

impl Voice {
    /// Speaks into something that may block, by a thread of that name; `lost` is the line for so many that were left out.
    pub fn start(
        name: &str,
        out: impl Write + Send + 'static,
        lost: impl Fn(u64) -> String + Send + 'static,
    ) -> Self {
        let (lines, waiting) = sync_channel(LINES_MAX);
        let left_out = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&left_out);
        let write = move || {
            // They are for others to hear.
            sys::block_signals(None);
            write_lines(&waiting, &count, lost, out);
        };
        // Without a thread nothing is said; everything else goes on.
        let _started = thread::Builder::new().name(name.to_owned()).spawn(write);
        Self { lines, left_out }
    }

    /// Says a line, which brings its own end.
    pub fn say(&self, line: impl Into<Vec<u8>>) {
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

fn write_lines(
    waiting: &Receiver<Item>,
    left_out: &AtomicU64,
    lost: impl Fn(u64) -> String,
    mut out: impl Write,
) {
    while let Ok(item) = waiting.recv() {
        let count = left_out.swap(0, Relaxed);
        if count > 0 {
            let _nobody_reads = writeln!(out, "{}", lost(count));
        }
        // A reader that went away stops nothing.
        match item {
            Item::Line(line) => {
                let _nobody_reads = out.write_all(&line);
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
        for line in ["a\n", "b\n", "c\n", "d\n"] {
            voice.say(line);
        }
        let Voice { lines, left_out } = voice;
        drop(lines);
        let mut out = Vec::new();
        write_lines(&waiting, &left_out, |count| format!("{count} were left out"), &mut out);
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out, "2 were left out\na\nb\n");
    }
}
