//! Waits for tests: each has a bound, and says what it waited for when the bound is over.
//!
//! A test that waits without a bound fails by hanging: it stops the run, and its output does not say where it stands. Here a
//! wait that is over its bound is a panic in the test's own line that names what was expected, how long the test waited, and
//! what was seen last. A process that was waited for is killed first, by its pid, so that it does not outlive the test.
//!
//! `cargo xtask tidy` reports the blocking calls of the standard library in test code; each has its counterpart here:
//!
//! | instead of | write |
//! |---|---|
//! | `loop { if … { break } sleep }` | [`wait_until`], [`wait_for`], [`wait_for_seeing`] |
//! | `command.output()`, `.status()` | [`CommandWithin`] |
//! | `child.wait()`, `.wait_with_output()` | [`ChildWithin`] |
//! | `thread.join()` | [`ThreadWithin`] |
//! | `receiver.recv()` | [`ChannelWithin`] |
//! | `listener.accept()` | [`ListenerWithin`] |
//! | lines of a pipe, or all of it | [`Lines`], [`read_within`] |
//!
//! Only the standard library is used, so that every crate's tests can afford it.

#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "this is test code that is shared: it waits by the real clock, and a wait that is over its bound fails the test"
)]

mod channel;
mod child;
mod command;
mod pipe;
mod socket;

pub use self::{
    channel::{ChannelWithin, ThreadWithin},
    child::ChildWithin,
    command::CommandWithin,
    pipe::{Lines, read_within},
    socket::ListenerWithin,
};

use std::{
    thread,
    time::{Duration, Instant},
};

/// The bound of a wait whose length the test promises nothing about: far more than it takes on a busy machine, and far less
/// than the ten minutes after which the test runner ends the whole test without a word about the wait.
pub const BOUND: Duration = Duration::from_mins(2);

/// The pause between two looks grows from the first to the second: most waits are short, and long ones must not keep a
/// processor busy that the waited-for program needs.
const FIRST_PAUSE: Duration = Duration::from_micros(500);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Waits until something holds.
#[track_caller]
pub fn wait_until(what: &str, bound: Duration, mut holds: impl FnMut() -> bool) {
    wait_for(what, bound, || holds().then_some(()));
}

/// Waits until a look finds something, and returns it.
#[track_caller]
pub fn wait_for<T>(what: &str, bound: Duration, look: impl FnMut() -> Option<T>) -> T {
    wait_for_seeing(what, bound, look, String::new)
}

/// Waits until a look finds something; if it does not, `seen` says what is there instead, such as the end of a log.
#[track_caller]
pub fn wait_for_seeing<T>(
    what: &str,
    bound: Duration,
    look: impl FnMut() -> Option<T>,
    seen: impl FnOnce() -> String,
) -> T {
    let Some(found) = poll(bound, look) else { expired(what, bound, &seen()) };
    found
}

/// Looks again and again; none if nothing was found within the bound.
fn poll<T>(bound: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        // The last look is after the bound, so that a thread that slept too long still sees what is there.
        let is_last = began.elapsed() >= bound;
        match look() {
            None if is_last => return None,
            None => thread::sleep(pause),
            found => return found,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Fails the test whose wait is over its bound.
#[track_caller]
fn expired(what: &str, bound: Duration, seen: &str) -> ! {
    match seen {
        "" => panic!("waited {bound:?} for {what}"),
        seen => panic!("waited {bound:?} for {what}; seen instead:\n{seen}"),
    }
}

#[cfg(test)]
mod tests;
