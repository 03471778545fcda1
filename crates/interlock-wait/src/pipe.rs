//! Reads from pipes, which have no read timeout of their own: a thread reads, and the test waits for the thread.
//!
//! A thread whose pipe never ends is left behind; it ends with the test's process.

use std::{
    io::{BufRead as _, BufReader, Read},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{expired, poll};

/// How much of a long text a message shows.
const SHOWN: usize = 6_000;

/// The lines that a process prints, one by one. Bytes that are not UTF-8 are replaced.
#[derive(Debug)]
pub struct Lines {
    lines: Receiver<String>,
    heard: Vec<String>,
}

impl Lines {
    /// Reads a pipe from now on.
    pub fn of(pipe: impl Read + Send + 'static) -> Self {
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut reader = BufReader::new(pipe);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                let text = String::from_utf8_lossy(&line);
                let text = text.strip_suffix('\n').unwrap_or(&text);
                if tell.send(text.strip_suffix('\r').unwrap_or(text).to_owned()).is_err() {
                    return;
                }
                line.clear();
            }
        });
        Self { lines, heard: Vec::new() }
    }

    /// All lines that were returned so far.
    pub fn heard(&self) -> &[String] {
        &self.heard
    }

    /// The next line; none if the output has ended.
    #[track_caller]
    pub fn next_within(&mut self, what: &str, bound: Duration) -> Option<String> {
        match self.lines.recv_timeout(bound) {
            Ok(line) => {
                self.heard.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => expired(what, bound, &tail(&self.heard.join("\n"))),
        }
    }

    /// The next line that is wanted, those before it skipped; none if the output has ended without it. The bound is for all
    /// of them together.
    #[track_caller]
    pub fn find_within(
        &mut self,
        what: &str,
        bound: Duration,
        mut is_wanted: impl FnMut(&str) -> bool,
    ) -> Option<String> {
        let began = Instant::now();
        loop {
            let left = bound.saturating_sub(began.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.heard.push(line.clone());
                    if is_wanted(&line) {
                        return Some(line);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    expired(what, bound, &tail(&self.heard.join("\n")));
                }
            }
        }
    }

    /// The lines up to the end of the output.
    #[track_caller]
    pub fn rest_within(&mut self, what: &str, bound: Duration) -> Vec<String> {
        let before = self.heard.len();
        self.find_within(what, bound, |_| false);
        self.heard.iter().skip(before).cloned().collect()
    }
}

/// Everything up to the end of a pipe. Bytes that are not UTF-8 are replaced.
#[track_caller]
pub fn read_within(pipe: impl Read + Send + 'static, what: &str, bound: Duration) -> String {
    let collector = Collector::begin(pipe);
    let complete = poll(bound, || collector.is_complete().then_some(()));
    let text = String::from_utf8_lossy(&collector.taken()).into_owned();
    if complete.is_none() {
        expired(what, bound, &tail(&text));
    }
    text
}

/// What a thread has read of a pipe.
#[derive(Debug)]
pub(crate) struct Collector {
    read: Arc<Mutex<Vec<u8>>>,
    has_ended: Arc<AtomicBool>,
}

impl Collector {
    pub(crate) fn nothing() -> Self {
        Self { read: Arc::default(), has_ended: Arc::new(AtomicBool::new(true)) }
    }

    pub(crate) fn begin(mut pipe: impl Read + Send + 'static) -> Self {
        let collector = Self { read: Arc::default(), has_ended: Arc::default() };
        let (read, has_ended) = (Arc::clone(&collector.read), Arc::clone(&collector.has_ended));
        thread::spawn(move || {
            let mut portion = vec![0; 64 * 1_024];
            while let Ok(length) = pipe.read(&mut portion) {
                if length == 0 {
                    break;
                }
                let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
                read.extend(portion.iter().take(length));
            }
            has_ended.store(true, Ordering::Release);
        });
        collector
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// What was read so far.
    pub(crate) fn taken(&self) -> Vec<u8> {
        std::mem::take(&mut self.read.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The end of a long text.
pub(crate) fn tail(text: &str) -> String {
    let mut from = text.len().saturating_sub(SHOWN);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.get(from..).unwrap_or(text).to_owned()
}
