//! Several questions to a store at once: it answers many writes with one sync of the disk, and reads without a wait
//! between two of them.

use std::task::Poll;

use crate::{StoreError, StoreFuture};

/// So many at once: each wake looks at all of them.
const AT_ONCE: usize = 100;

/// A question, and the place of its answer.
type Asked<'a, T> = (StoreFuture<'a, T>, Option<Result<T, StoreError>>);

/// Waits for all of them, and answers in their order; one that failed fails all.
pub async fn together<T>(questions: Vec<StoreFuture<'_, T>>) -> Result<Vec<T>, StoreError> {
    let mut questions = questions.into_iter().peekable();
    let mut all = Vec::new();
    while questions.peek().is_some() {
        let mut asked: Vec<Asked<'_, T>> =
            questions.by_ref().take(AT_ONCE).map(|question| (question, None)).collect();
        std::future::poll_fn(|context| {
            let mut is_waiting = false;
            for (question, answer) in asked.iter_mut().filter(|(_, answer)| answer.is_none()) {
                match question.as_mut().poll(context) {
                    Poll::Ready(found) => *answer = Some(found),
                    Poll::Pending => is_waiting = true,
                }
            }
            if is_waiting { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        for (_, answer) in asked {
            all.extend(answer.transpose()?);
        }
    }
    Ok(all)
}
