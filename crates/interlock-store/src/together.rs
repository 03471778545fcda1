//! Several questions to a store at once: it answers many writes with one sync of the disk, and reads without a wait
//! between two of them.

use std::{
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::Poll,
};

use crate::{StoreError, StoreFuture};

/// So many at once: each wake looks at all of them.
const AT_ONCE: usize = 100;

/// Asks about all of them, so many at once, and answers in their order. One that failed fails all: those that were asked
/// are waited for, and no more are.
///
/// Those who ask are few and go on with what is left, because a question may be large: one on the heap for each of ten
/// thousand items is most of what they cost.
pub async fn for_each<I, T, F>(items: Vec<I>, ask: impl Fn(I) -> F) -> Result<Vec<T>, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let count = items.len();
    let left = Mutex::new(items.into_iter().enumerate());
    let take = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let stop = || left.lock().unwrap_or_else(PoisonError::into_inner).by_ref().for_each(drop);
    let asker = async || {
        let mut answers = Vec::new();
        while let Some((place, item)) = take() {
            match ask(item).await {
                Ok(answer) => answers.push((place, answer)),
                Err(error) => {
                    stop();
                    return Err(error);
                }
            }
        }
        Ok(answers)
    };
    let mut all: Vec<Option<T>> = (0..count).map(|_| None).collect();
    for answers in wait_for_all((0..count.min(AT_ONCE)).map(|_| Box::pin(asker())).collect()).await
    {
        for (place, answer) in answers? {
            if let Some(empty) = all.get_mut(place) {
                *empty = Some(answer);
            }
        }
    }
    Ok(all.into_iter().flatten().collect())
}

/// Waits for all of them, and answers in their order; one that failed fails all.
pub async fn together<T>(questions: Vec<StoreFuture<'_, T>>) -> Result<Vec<T>, StoreError> {
    for_each(questions, |question| question).await
}

async fn wait_for_all<F: Future>(futures: Vec<Pin<Box<F>>>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.into_iter().map(|future| (future, None)).collect();
    std::future::poll_fn(|context| {
        let mut is_waiting = false;
        for (future, output) in waiting.iter_mut().filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(found) => *output = Some(found),
                Poll::Pending => is_waiting = true,
            }
        }
        if is_waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    waiting.into_iter().filter_map(|(_, output)| output).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;
    use crate::block_on;

    /// Lets others go first, once.
    async fn give_way() {
        let mut is_first = true;
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    #[test]
    fn all_are_answered_in_their_order_and_never_too_many_are_asked_at_once() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (now, most) = (&now, &most);
        let answers = block_on(for_each((0..1_000).collect(), |item: usize| async move {
            most.fetch_max(now.fetch_add(1, Relaxed) + 1, Relaxed);
            for _ in 0..item % 7 {
                give_way().await;
            }
            now.fetch_sub(1, Relaxed);
            Ok(item * 2)
        }));
        assert_eq!(answers.unwrap(), (0..1_000).map(|item| item * 2).collect::<Vec<_>>());
        assert_eq!(most.load(Relaxed), AT_ONCE);
    }

    #[test]
    fn one_that_fails_is_the_answer_and_what_was_not_asked_yet_is_not_asked() {
        let asked = AtomicUsize::new(0);
        let asked = &asked;
        let answers = block_on(for_each((0..1_000).collect(), |item: usize| async move {
            asked.fetch_add(1, Relaxed);
            give_way().await;
            if item == 5 { Err(StoreError::permanent("five")) } else { Ok(item) }
        }));
        assert_eq!(answers.unwrap_err().to_string(), "five");
        assert!(asked.load(Relaxed) <= 2 * AT_ONCE, "{asked:?} were asked");
    }

    #[test]
    fn nothing_asked_is_nothing_answered() {
        let none: Vec<StoreFuture<'_, ()>> = vec![];
        assert!(block_on(together(none)).unwrap().is_empty());
    }
}
