//! The allocator's numbers for a report, asked for on a thread of its own.
//!
//! The allocator takes its locks to count, and what hangs may hang with one of them. So the monitor never asks: it wakes a
//! thread that does, waits for a moment, and says that there was no answer if there was none. That thread hangs then too, and
//! later reports say the same.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread::{self, Thread},
    time::Duration,
};

use crate::{
    clock::monotonic,
    sys::heap::{ASK, HeapBytes},
};

/// How long the monitor waits for the answer.
const ANSWERED_IN: u64 = 20_000_000;
/// How often it looks meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Asks the allocator whenever it is asked to.
#[derive(Debug)]
pub(super) struct HeapReader {
    shared: Arc<Shared>,
    thread: Thread,
}

#[derive(Debug, Default)]
struct Shared {
    /// How often it was asked, and up to which of these it has answered.
    asked: AtomicU64,
    answered: AtomicU64,
    is_known: AtomicBool,
    in_use: AtomicU64,
    free: AtomicU64,
    held: AtomicU64,
    is_over: AtomicBool,
}

/// What is said of the allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeapAnswer {
    /// What it said.
    Known(HeapBytes),
    /// It counts nothing.
    Uncounted,
    /// It did not answer in time.
    Silent,
}

impl fmt::Display for HeapAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(HeapBytes { in_use, free, held }) => write!(
                f,
                "allocator: {in_use} bytes in use, {free} bytes free, {held} bytes had from the kernel"
            ),
            Self::Uncounted => f.write_str("allocator: could not be read: this one counts nothing"),
            Self::Silent => f.write_str(
                "allocator: could not be read in 20 ms: a thread may hang inside the allocator",
            ),
        }
    }
}

impl HeapReader {
    /// Starts the thread, while there is still memory for it.
    pub(super) fn start() -> io::Result<Self> {
        Self::asking(|| ASK.map(|ask| ask()))
    }

    /// The same, with somebody else to ask.
    fn asking(ask: impl Fn() -> Option<HeapBytes> + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("lv-heap".to_owned()).spawn(move || {
            while !own.is_over.load(Acquire) {
                let asked = own.asked.load(Acquire);
                if asked == own.answered.load(Relaxed) {
                    thread::park();
                    continue;
                }
                let said = ask();
                if let Some(HeapBytes { in_use, free, held }) = said {
                    own.in_use.store(in_use, Relaxed);
                    own.free.store(free, Relaxed);
                    own.held.store(held, Relaxed);
                }
                own.is_known.store(said.is_some(), Relaxed);
                own.answered.store(asked, Release);
            }
        })?;
        Ok(Self { shared, thread: thread.thread().clone() })
    }

    /// Wakes it, and waits for nothing.
    pub(super) fn ask(&self) {
        self.shared.asked.fetch_add(1, Release);
        self.thread.unpark();
    }

    /// What came of the last question, waited for briefly. Allocates nothing.
    pub(super) fn answer(&self) -> HeapAnswer {
        let asked = self.shared.asked.load(Relaxed);
        let ends = monotonic().saturating_add(ANSWERED_IN);
        while self.shared.answered.load(Acquire) != asked {
            if monotonic() >= ends {
                return HeapAnswer::Silent;
            }
            thread::sleep(LOOK_EVERY);
        }
        if !self.shared.is_known.load(Relaxed) {
            return HeapAnswer::Uncounted;
        }
        HeapAnswer::Known(HeapBytes {
            in_use: self.shared.in_use.load(Relaxed),
            free: self.shared.free.load(Relaxed),
            held: self.shared.held.load(Relaxed),
        })
    }
}

impl Drop for HeapReader {
    /// Not waited for: it may hang.
    fn drop(&mut self) {
        self.shared.is_over.store(true, Release);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_is_allocated_is_counted() {
        let reader = HeapReader::start().unwrap();
        let answer = || {
            reader.ask();
            interlock_wait::wait_for("the allocator's numbers", interlock_wait::BOUND, || {
                match reader.answer() {
                    HeapAnswer::Known(bytes) => Some(bytes),
                    HeapAnswer::Uncounted | HeapAnswer::Silent => None,
                }
            })
        };
        let before = answer();
        let much: Vec<u8> = vec![7; 64 << 20];
        let after = answer();
        assert!(after.in_use >= before.in_use + (60 << 20), "{before:?} {after:?}");
        assert!(after.held >= after.in_use, "{after:?}");
        drop(much);
    }

    #[test]
    fn an_allocator_that_hangs_is_said_in_bounded_time_and_again() {
        let (_keeps, never) = mpsc::channel::<()>();
        // Bounded: the sender is dropped at the end of the test.
        let reader = HeapReader::asking(move || never.recv().ok().and(None)).unwrap();
        for _ in 0..2 {
            reader.ask();
            let began = monotonic();
            assert_eq!(reader.answer(), HeapAnswer::Silent);
            assert!(monotonic().saturating_sub(began) >= ANSWERED_IN);
        }
        assert!(HeapAnswer::Silent.to_string().contains("could not be read"));
    }
}
