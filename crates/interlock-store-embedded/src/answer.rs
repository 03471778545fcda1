//! Answers on their way from a thread of the store to whoever waits for them.
//!
//! A one-shot channel whose receiving end is a future. It needs no runtime, because the store is used
//! under several and under none.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use interlock_store::StoreError;

/// What the one who waits gets.
type Outcome<T> = Result<T, StoreError>;

enum State<T> {
    Waiting(Option<Waker>),
    Answered(Outcome<T>),
    /// Taken by the one who waited, or wanted by nobody.
    Over,
}

struct Shared<T>(Mutex<State<T>>);

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing under this lock can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, outcome: Outcome<T>) {
        let mut state = self.lock();
        if let State::Waiting(waker) = &mut *state {
            let waker = waker.take();
            *state = State::Answered(outcome);
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// The end that answers. Dropped without an answer, it says that the store was closed.
pub(crate) struct Asked<T>(Arc<Shared<T>>);

/// The end that waits.
pub(crate) struct Answer<T>(Arc<Shared<T>>);

/// Two ends of one question.
pub(crate) fn question<T>() -> (Asked<T>, Answer<T>) {
    let shared = Arc::new(Shared(Mutex::new(State::Waiting(None))));
    (Asked(Arc::clone(&shared)), Answer(shared))
}

impl<T> Asked<T> {
    /// Answers.
    pub(crate) fn answer(self, outcome: Outcome<T>) {
        self.0.answer(outcome);
    }
}

impl<T> Drop for Asked<T> {
    fn drop(&mut self) {
        self.0.answer(Err(StoreError::retryable("the store was closed before it answered")));
    }
}

impl<T> Answer<T> {
    /// Blocks the thread until the answer is there; for the store's own threads.
    pub(crate) fn wait(self) -> Outcome<T> {
        struct Bell(Thread);
        impl Wake for Bell {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Bell(thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut waiting = self;
        loop {
            match Pin::new(&mut waiting).poll(&mut context) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => thread::park(),
            }
        }
    }
}

impl<T> Future for Answer<T> {
    type Output = Outcome<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Over) {
            State::Answered(outcome) => Poll::Ready(outcome),
            State::Waiting(_) => {
                *state = State::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
            State::Over => Poll::Pending,
        }
    }
}

impl<T> fmt::Debug for Asked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use interlock_wait::{BOUND, ThreadWithin as _};

    use super::*;

    #[test]
    fn answer_reaches_a_waiting_thread() {
        let (asked, answer) = question();
        // Bounded: the test answers, and its wait for this thread has a bound.
        let waiting = std::thread::spawn(move || answer.wait());
        asked.answer(Ok(7));
        assert_eq!(waiting.join_within("the answer", BOUND).unwrap().unwrap(), 7);
    }

    #[test]
    fn question_that_is_dropped_is_answered_with_an_error() {
        let (asked, answer) = question::<()>();
        drop(asked);
        // Bounded: the test's wait for this thread has a bound.
        let waiting = std::thread::spawn(move || answer.wait());
        let answer = waiting.join_within("the error", BOUND).unwrap();
        assert!(answer.unwrap_err().message.contains("closed"));
    }
}
