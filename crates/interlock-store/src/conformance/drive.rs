//! The smallest executor: one future, one thread.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            // Bounded: by the store alone, which answers every call within its own limits. Commands wait here too.
            Poll::Pending => thread::park(),
        }
    }
}

/// Runs futures at once, as far as they let each other, and returns what came of each.
pub(super) async fn all<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<Result<T, Pin<Box<_>>>> =
        futures.into_iter().map(|future| Err(Box::pin(future))).collect();
    poll_fn(|context| {
        for place in &mut waiting {
            if let Err(future) = place
                && let Poll::Ready(value) = future.as_mut().poll(context)
            {
                *place = Ok(value);
            }
        }
        if waiting.iter().all(Result::is_ok) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    waiting.into_iter().filter_map(Result::ok).collect()
}
