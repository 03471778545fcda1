//! Whether anybody archives what the files say is archived: seen from the store, by whoever has the engine.
//!
//! An archiver that finds its database away says so itself, and a loop that hangs is noticed by the sentinel of its
//! process. But one that runs in a process of its own may be gone with it, or never have been started. What it has not
//! read waits in the store; so the oldest of it is looked at now and then, and one that has not moved for long is told.
//! While an archive reads all rows for the first time no change is forgotten; an archiver in the same process says
//! that it gets on.
//!
//! Whoever told may be gone when it is over, so that it is told is read from the store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use interlock_store::{Store, StoreError};
use tokio::time::{Instant, sleep};

use super::notice::{self, Over};

/// People are told when nothing was archived for so many intervals.
pub(super) const INTERVALS_MISSED: u32 = 3;
/// Between two looks, at most.
const LOOK_LAST: Duration = Duration::from_mins(1);

/// What the watch needs of the rest.
pub(super) struct Around {
    pub(super) store: Arc<dyn Store>,
    /// How often the archiver is to archive.
    pub(super) interval: Duration,
    /// Shown on `/metrics`: for how many seconds the oldest change has waited.
    pub(super) waited: Arc<AtomicU64>,
    /// How many batches the archiver of this process has written.
    pub(super) batches: Arc<AtomicU64>,
}

/// Looks until the process ends.
pub(super) async fn go_on(around: Around) {
    let mut seen = Seen::default();
    loop {
        sleep(around.interval.min(LOOK_LAST)).await;
        // A store that does not answer is told of by others.
        if let Ok(look) = look(&around).await {
            let news =
                seen.take(look, Instant::now(), around.interval.saturating_mul(INTERVALS_MISSED));
            around.waited.store(seen.waited.as_secs(), Ordering::Relaxed);
            if let Some(news) = news {
                seen.tell(&around, news).await;
            }
        }
    }
}

async fn look(around: &Around) -> Result<Look, StoreError> {
    let store = around.store.as_ref();
    let batches = around.batches.load(Ordering::Relaxed);
    Ok(Look { is_open: is_open(store).await?, oldest: oldest(store).await?, batches })
}

/// The number of the oldest change that is not archived; 0 if none is even noted.
async fn oldest(store: &dyn Store) -> Result<Option<u64>, StoreError> {
    let page = store.changes(0, 1).await?;
    if page.since.is_none() {
        return Ok(Some(0));
    }
    Ok(page.items.first().map(|change| change.number))
}

/// What there is to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    /// Whether people are told, by whomever.
    is_open: bool,
    /// The oldest change that the archive has not read.
    oldest: Option<u64>,
    batches: u64,
}

impl Look {
    /// Whether the archive was written to since an earlier look.
    fn is_after_a_write(&self, earlier: &Self) -> bool {
        let is_read = match (earlier.oldest, self.oldest) {
            (_, None) => true,
            (None | Some(0), Some(_)) => false,
            (Some(then), Some(now)) => now > then,
        };
        is_read || self.batches > earlier.batches
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    Behind,
    Over,
}

/// What was seen last, and since when nothing moves.
#[derive(Default)]
struct Seen {
    last: Option<(Look, Instant)>,
    waited: Duration,
    /// Whether this process has told: who resolves it by hand is not told again.
    is_told: bool,
}

impl Seen {
    fn take(&mut self, look: Look, now: Instant, bound: Duration) -> Option<News> {
        let last = self.last.as_ref();
        let wrote = last.is_some_and(|(earlier, _)| look.is_after_a_write(earlier));
        // What was told of between two looks may be younger than the write; and the row of an incident waits like any other.
        let is_over = wrote && look.is_open && last.is_some_and(|(earlier, _)| earlier.is_open);
        let still = last.filter(|(earlier, _)| !wrote && earlier.oldest.is_some());
        let since = still.map_or(now, |(_, since)| *since);
        self.waited = now.duration_since(since);
        self.last = Some((look, since));
        self.is_told &= !wrote;
        if is_over {
            return Some(News::Over);
        }
        (self.waited > bound && !self.is_told).then_some(News::Behind)
    }

    async fn tell(&mut self, around: &Around, news: News) {
        match news {
            News::Over => {
                notice(around.store.as_ref(), "it is written to again".to_owned(), Over::Yes).await;
            }
            News::Behind => {
                let message = format!(
                    "nothing was archived for {} s: is a process with the role `archiver` running? (One that reads a large \
                     store for the first time is not seen from another process)",
                    self.waited.as_secs()
                );
                tracing::warn!("{message}");
                self.is_told = notice(around.store.as_ref(), message, Over::No).await;
            }
        }
    }
}

const EVENT: &str = "ARCHIVE_BEHIND";
const THING: &str = "the archive";

/// Has people told of the archive; false if even that was not possible.
pub(super) async fn notice(store: &dyn Store, message: String, over: Over) -> bool {
    notice::notice(store, (EVENT, THING), message, over).await
}

/// Whether people are told, perhaps by a process that is gone.
pub(super) async fn is_open(store: &dyn Store) -> Result<bool, StoreError> {
    notice::is_open(store, format!("archive:{THING}")).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(2);

    /// The oldest change, batches, whether people are told; what is news, and for how long nothing moved.
    type Expected = (Option<u64>, u64, bool, Option<News>, u64);

    /// Looks a second apart.
    fn check(looks: &[Expected]) {
        let (mut seen, start) = (Seen::default(), Instant::now());
        for ((oldest, batches, is_open, news, waited), second) in looks.iter().zip(0..) {
            let look = Look { is_open: *is_open, oldest: *oldest, batches: *batches };
            let taken = seen.take(look, start + Duration::from_secs(second), BOUND);
            assert_eq!((taken, seen.waited.as_secs()), (*news, *waited), "second {second}");
            seen.is_told |= taken == Some(News::Behind);
        }
    }

    #[test]
    fn an_archive_that_stands_still_is_told_once_until_it_moves() {
        let (still, behind) = (Some(7), Some(News::Behind));
        check(&[
            (still, 0, false, None, 0),
            (still, 0, false, None, 1),
            (still, 0, false, None, 2),
            (still, 0, false, behind, 3),
            // Resolved by hand: not told again.
            (still, 0, false, None, 4),
            (Some(9), 0, false, None, 0),
            (None, 0, false, None, 0),
            (Some(12), 0, false, None, 0),
            (Some(12), 0, false, None, 1),
        ]);
    }

    /// The first read of a large store forgets no change, and the archiver of this process says that it gets on.
    #[test]
    fn an_archive_that_reads_everything_is_not_behind() {
        check(&[
            (Some(7), 0, false, None, 0),
            (Some(7), 1, false, None, 0),
            (Some(7), 2, false, None, 0),
            (Some(7), 3, false, None, 0),
            (Some(7), 4, false, None, 0),
        ]);
    }

    /// Told by a process that is gone, or by an archiver that knows better than what is seen here.
    #[test]
    fn what_somebody_else_told_is_over_when_it_is_written_to_afterwards() {
        let over = Some(News::Over);
        check(&[(Some(7), 0, true, None, 0), (Some(9), 0, true, over, 0)]);
        check(&[(None, 0, true, None, 0), (None, 0, true, over, 0)]);
        check(&[(Some(7), 0, false, None, 0), (Some(9), 0, true, None, 0)]);
        check(&[(None, 0, true, None, 0), (Some(9), 0, true, None, 0)]);
    }
}
