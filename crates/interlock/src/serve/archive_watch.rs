//! Whether anybody archives what the files say is archived: seen from the store, by whoever has the engine.
//!
//! An archiver that finds its database away says so itself, and a loop that hangs is noticed by the sentinel of its
//! process. But one that runs in a process of its own may be gone with it, or never have been started. What it has not
//! read waits in the store; so the oldest of it is looked at now and then, and one that has not moved for long is told.

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
}

/// Looks until the process ends.
pub(super) async fn go_on(around: Around) {
    let mut seen = Seen { oldest: None, at: Instant::now(), is_told: false };
    loop {
        sleep(around.interval.min(LOOK_LAST)).await;
        // A store that does not answer is told of by others.
        if let Ok(oldest) = oldest(around.store.as_ref()).await {
            let waited = seen.waits(oldest, Instant::now());
            around.waited.store(waited.as_secs(), Ordering::Relaxed);
            seen.tell(&around, waited).await;
        }
    }
}

/// The number of the oldest change that is not archived; 0 if none is even noted.
async fn oldest(store: &dyn Store) -> Result<Option<u64>, StoreError> {
    let page = store.changes(0, 1).await?;
    if page.since.is_none() {
        return Ok(Some(0));
    }
    Ok(page.items.first().map(|change| change.number))
}

/// The oldest change, and since when it is that one.
struct Seen {
    oldest: Option<u64>,
    at: Instant,
    is_told: bool,
}

impl Seen {
    /// How long the oldest change has been seen waiting.
    fn waits(&mut self, oldest: Option<u64>, now: Instant) -> Duration {
        if oldest.is_none() || oldest != self.oldest {
            (self.oldest, self.at) = (oldest, now);
        }
        now.duration_since(self.at)
    }

    async fn tell(&mut self, around: &Around, waited: Duration) {
        let is_behind = waited > around.interval.saturating_mul(INTERVALS_MISSED);
        if is_behind == self.is_told {
            return;
        }
        let (message, over) = if is_behind {
            let message = format!(
                "nothing was archived for {} s: is a process with the role `archiver` running?",
                waited.as_secs()
            );
            tracing::warn!("{message}");
            (message, Over::No)
        } else {
            ("it is written to again".to_owned(), Over::Yes)
        };
        if notice(around.store.as_ref(), message, over).await {
            self.is_told = is_behind;
        }
    }
}

/// Has people told of the archive; false if even that was not possible.
pub(super) async fn notice(store: &dyn Store, message: String, over: Over) -> bool {
    notice::notice(store, ("ARCHIVE_BEHIND", "the archive"), message, over).await
}
