//! Says, as long as it is true, that reports can reach us (S10).
//!
//! It runs on the runtime that takes connections, so one that is blocked says nothing; and it goes the way of a report,
//! into the inbox, so a store that takes no reports is not said to hear any. Each time the whole stretch is told, since
//! when and until when, so one that is lost does no harm.

use std::{sync::Arc, time::Duration};

use interlock_core::id::PipelineId;
use interlock_store::{Store, record::InboxRecord, whole_milliseconds};
use interlock_watchdog::DEAF_AFTER;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::{access::Clock, surface::Surface};

/// How often it is said.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// A store that takes longer takes no reports either.
const TAKES_IN: Duration = Duration::from_secs(5);

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

async fn speak(store: &dyn Store, hearing: &Hearing, stretch: &mut Stretch) {
    let now = whole_milliseconds((hearing.clock)());
    let since = stretch.since(now);
    let (instance, after) = (hearing.instance.clone(), stretch.said.clone());
    let key = format!("heard/{instance}/{}/{}", since.as_millisecond(), now.as_millisecond());
    let record = InboxRecord::Heard { instance, since, until: now, after };
    match tokio::time::timeout(TAKES_IN, store.post(&PipelineId::system(), &key, &record)).await {
        Ok(Ok(())) => {
            *stretch = Stretch { since: Some(since), until: Some(now), said: Some(key) };
        }
        Ok(Err(error)) => tracing::warn!(%error, "reports cannot be taken now"),
        Err(_elapsed) => tracing::warn!("the store takes no reports now"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_goes_on_while_it_is_told_in_time_and_begins_again_after_a_break() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let stretch = Stretch { since: Some(at(0)), until: Some(at(100)), said: None };
        assert_eq!(stretch.since(at(110)), at(0));
        assert_eq!(stretch.since(at(115)), at(0));
        // It slept, or the store took nothing; and a clock that was set back proves nothing.
        assert_eq!(stretch.since(at(116)), at(116));
        assert_eq!(stretch.since(at(90)), at(90));
        assert_eq!(Stretch::default().since(at(5)), at(5));
    }
}
