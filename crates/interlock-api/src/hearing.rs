//! Says, as long as it is true, that reports can reach us (S10).
//!
//! It runs on the runtime that takes connections, so one that is blocked says nothing; and it goes the way of a report,
//! into the inbox, so a store that takes no reports is not said to hear any. Each time the whole stretch is told, since
//! when and until when, so one that is lost does no harm.

use std::{sync::Arc, time::Duration};

use interlock_core::id::PipelineId;
use interlock_store::{
    Key, Store, StoreError,
    kept::{COVERAGE_PREFIX, HEARD_PREFIX},
    record::InboxRecord,
    whole_milliseconds,
};
use interlock_watchdog::DEAF_AFTER;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

use crate::{access::Clock, surface::Surface};

/// How often it is said.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// A store that takes longer takes no reports either.
const TAKES_IN: Duration = Duration::from_secs(5);

/// So many words may wait to be applied; while nobody applies them, only every so many is left behind.
const UNAPPLIED_MAX: u32 = 360;
const THEN_EVERY: u32 = 60;

/// Who listens, by a name that outlives the process, and by which clock.
#[derive(Clone)]
pub struct Hearing {
    /// Such as `box/127.0.0.1:8420`.
    pub instance: String,
    /// The wall clock.
    pub clock: Clock,
}

impl std::fmt::Debug for Hearing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hearing").field("instance", &self.instance).finish_non_exhaustive()
    }
}

/// The stretch that is being told.
#[derive(Debug, Default)]
struct Stretch {
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    /// The key of what was last said.
    said: Option<String>,
    /// How often in a row that was not yet applied when the next was due.
    unapplied: u32,
}

impl Stretch {
    /// Since when there was no break, now being an instant at which there is none.
    fn since(&self, now: Timestamp) -> Timestamp {
        let is_whole = self.until.is_some_and(|until| {
            let passed = now.duration_since(until);
            !passed.is_negative() && passed <= DEAF_AFTER
        });
        self.since.filter(|_| is_whole).unwrap_or(now)
    }
}

/// Says that somebody means to listen and cannot. Where anybody ever listened that shows by itself: nobody says that he
/// hears. Where nobody did, silence means that reports come by command alone; so a stretch of no length is left there,
/// long enough ago that what follows it is a break from its beginning on. Answers whether that is known now.
pub(crate) async fn cannot(store: &dyn Store, hearing: &Hearing) -> bool {
    match tokio::time::timeout(TAKES_IN, leave_word(store, hearing)).await {
        Ok(Ok(())) => return true,
        Ok(Err(error)) => tracing::warn!(%error, "could not record that reports cannot arrive"),
        Err(_elapsed) => tracing::warn!("the store did not record that reports cannot arrive"),
    }
    false
}

async fn leave_word(store: &dyn Store, hearing: &Hearing) -> Result<(), StoreError> {
    let rows = store.sensors(&PipelineId::system()).await?;
    if rows.iter().any(|(key, _)| key.starts_with(COVERAGE_PREFIX)) {
        return Ok(());
    }
    let past = (hearing.clock)().saturating_sub(DEAF_AFTER + SignedDuration::from_millis(1));
    let at = whole_milliseconds(past.unwrap_or(Timestamp::MIN));
    let (instance, after) = (hearing.instance.clone(), None);
    let key = format!("{HEARD_PREFIX}{instance}/{}/none", at.as_millisecond());
    let record = InboxRecord::Heard { instance, since: at, until: at, after };
    store.post(&PipelineId::system(), &key, &record).await
}

/// Says it until the interface ends, and once more then.
pub(crate) async fn say(
    surface: Arc<Surface>,
    hearing: Hearing,
    mut stopped: watch::Receiver<bool>,
) {
    let mut stretch = Stretch::default();
    loop {
        if let Some(store) = surface.store.get() {
            speak(store.as_ref(), &hearing, &mut stretch).await;
        }
        tokio::select! {
            _ = stopped.changed() => break,
            () = tokio::time::sleep(SAY_EVERY) => {}
        }
    }
    if let Some(store) = surface.store.get() {
        speak(store.as_ref(), &hearing, &mut stretch).await;
    }
}

/// Whether what was said last still waits for somebody to apply it.
async fn waits(store: &dyn Store, said: Option<&String>) -> bool {
    let Some(said) = said else { return false };
    let keys = [Key::Applied(said.clone())];
    let rows = store.read(&PipelineId::system(), &keys).await;
    rows.is_ok_and(|rows| rows.into_iter().flatten().next().is_none())
}

async fn speak(store: &dyn Store, hearing: &Hearing, stretch: &mut Stretch) {
    let now = whole_milliseconds((hearing.clock)());
    let since = stretch.since(now);
    let waits = waits(store, stretch.said.as_ref()).await;
    stretch.unapplied = if waits { stretch.unapplied + 1 } else { 0 };
    if stretch.unapplied > UNAPPLIED_MAX && !stretch.unapplied.is_multiple_of(THEN_EVERY) {
        // Nobody writes the ledger: the stretch goes on, and is told as a whole when somebody does.
        (stretch.since, stretch.until) = (Some(since), Some(now));
        return;
    }
    let (instance, after) = (hearing.instance.clone(), stretch.said.clone());
    let key =
        format!("{HEARD_PREFIX}{instance}/{}/{}", since.as_millisecond(), now.as_millisecond());
    let record = InboxRecord::Heard { instance, since, until: now, after };
    match tokio::time::timeout(TAKES_IN, store.post(&PipelineId::system(), &key, &record)).await {
        Ok(Ok(())) => {
            (stretch.since, stretch.until) = (Some(since), Some(now));
            stretch.said = Some(key);
        }
        Ok(Err(error)) => tracing::warn!(%error, "reports cannot be taken now"),
        Err(_elapsed) => tracing::warn!("the store takes no reports now"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

    use interlock_store::memory::MemoryStore;

    use super::*;

    #[tokio::test]
    async fn while_nobody_applies_what_is_said_little_is_left_behind_and_nothing_is_lost() {
        let store = MemoryStore::new(1, Arc::new(|| Timestamp::UNIX_EPOCH));
        let seconds = Arc::new(AtomicI64::new(0));
        let reads = Arc::clone(&seconds);
        let clock = move || Timestamp::from_second(reads.load(Relaxed)).unwrap();
        let hearing = Hearing { instance: "box".into(), clock: Arc::new(clock) };
        let mut stretch = Stretch::default();
        for _ in 0..3_600 {
            speak(&store, &hearing, &mut stretch).await;
            seconds.fetch_add(10, Relaxed);
        }
        let left = store.inbox(interlock_store::Shard(0), 10_000).await.unwrap().items;
        assert!((360..500).contains(&left.len()), "ten hours of it: {}", left.len());
        let last = left.last().map(|entry| entry.record.clone());
        let Some(InboxRecord::Heard { since, until, .. }) = last else { panic!("{last:?}") };
        assert_eq!(since, Timestamp::UNIX_EPOCH);
        assert!(until.as_second() > 35_000, "{until}");
    }

    #[test]
    fn a_stretch_goes_on_while_it_is_told_in_time_and_begins_again_after_a_break() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let stretch = Stretch { since: Some(at(0)), until: Some(at(100)), ..Stretch::default() };
        assert_eq!(stretch.since(at(110)), at(0));
        assert_eq!(stretch.since(at(115)), at(0));
        // It slept, or the store took nothing; and a clock that was set back proves nothing.
        assert_eq!(stretch.since(at(116)), at(116));
        assert_eq!(stretch.since(at(90)), at(90));
        assert_eq!(Stretch::default().since(at(5)), at(5));
    }
}
