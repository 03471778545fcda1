//! Futures that are driven at once, for races.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

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
