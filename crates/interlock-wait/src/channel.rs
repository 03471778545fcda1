//! Waits for other threads of the test: for what they send, and for their ends.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{expired, poll};

/// `recv` with a bound.
pub trait ChannelWithin<T> {
    /// The next message; a sender that is gone fails the test too.
    #[track_caller]
    fn recv_within(&self, what: &str, bound: Duration) -> T;

    /// The next message that is wanted, those before it skipped. The bound is for all of them together.
    #[track_caller]
    fn find_within(&self, what: &str, bound: Duration, is_wanted: impl FnMut(&T) -> bool) -> T;
}

impl<T> ChannelWithin<T> for Receiver<T> {
    #[track_caller]
    fn recv_within(&self, what: &str, bound: Duration) -> T {
        match self.recv_timeout(bound) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => expired(what, bound, ""),
            Err(RecvTimeoutError::Disconnected) => panic!("the sender ended without {what}"),
        }
    }

    #[track_caller]
    fn find_within(&self, what: &str, bound: Duration, mut is_wanted: impl FnMut(&T) -> bool) -> T {
        let (began, mut skipped) = (Instant::now(), 0);
        loop {
            match self.recv_timeout(bound.saturating_sub(began.elapsed())) {
                Ok(message) if is_wanted(&message) => return message,
                Ok(_) => skipped += 1,
                Err(RecvTimeoutError::Timeout) => {
                    expired(what, bound, &format!("{skipped} other messages"));
                }
                Err(RecvTimeoutError::Disconnected) => panic!("the sender ended without {what}"),
            }
        }
    }
}

/// `join` with a bound.
pub trait ThreadWithin<T> {
    /// The thread's result, as `join` returns it; a thread that does not end is left behind and fails the test.
    #[track_caller]
    fn join_within(self, what: &str, bound: Duration) -> thread::Result<T>;
}

impl<T> ThreadWithin<T> for JoinHandle<T> {
    #[track_caller]
    fn join_within(self, what: &str, bound: Duration) -> thread::Result<T> {
        if poll(bound, || self.is_finished().then_some(())).is_none() {
            expired(what, bound, "");
        }
        self.join()
    }
}
