//! What the subscribers of a process share: the events that happened lately, read by one task.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use interlock_answers::{event_answer, model::event::EventAnswer};
use interlock_store::{Store, StoreError};
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};

/// Streams at once.
pub(super) const STREAMS_MAX: usize = 1_000;
/// Events that are remembered: who is further behind resumes from the store.
const REMEMBERED: usize = 10_000;
/// How often the store is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Events that are read at once.
const PAGE: usize = 1_000;
/// Subscribers that read the store at once, to get to where the hub is.
const READERS_AT_ONCE: usize = 4;

/// The events of lately, and who listens.
#[derive(Debug, Clone)]
pub(crate) struct EventHub(Arc<HubShared>);

#[derive(Debug)]
struct HubShared {
    state: Mutex<HubState>,
    /// Moves when there is something new; its end is the end of the process.
    news: Mutex<Option<watch::Sender<u64>>>,
    seats: AtomicUsize,
    /// Told when the first one comes.
    wanted: Notify,
    readers: Semaphore,
}

#[derive(Debug, Default)]
struct HubState {
    /// The number behind which it remembers everything; none while nothing is read.
    begins_after: Option<u64>,
    /// The last number that was read.
    read_to: u64,
    events: VecDeque<Arc<EventAnswer>>,
}

/// What there is behind an event.
#[derive(Debug)]
pub(super) enum RecentEvents {
    /// These come next.
    Some(Vec<Arc<EventAnswer>>),
    /// Nothing yet.
    None,
    /// What comes next is no longer remembered.
    Behind,
}

/// A subscriber's place; given up when dropped.
#[derive(Debug)]
pub(super) struct StreamSeat(EventHub);

impl Drop for StreamSeat {
    fn drop(&mut self) {
        self.0.0.seats.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Default for EventHub {
    fn default() -> Self {
        Self(Arc::new(HubShared {
            state: Mutex::default(),
            news: Mutex::new(Some(watch::Sender::new(0))),
            seats: AtomicUsize::new(0),
            wanted: Notify::new(),
            readers: Semaphore::new(READERS_AT_ONCE),
        }))
    }
}

impl EventHub {
    /// A seat, if there is one left.
    pub(super) fn enter(&self) -> Option<StreamSeat> {
        let taken = self.0.seats.fetch_add(1, Ordering::SeqCst);
        let seat = StreamSeat(self.clone());
        self.0.wanted.notify_one();
        (taken < STREAMS_MAX).then_some(seat)
    }

    /// How many listen.
    pub(crate) fn listening(&self) -> usize {
        self.0.seats.load(Ordering::SeqCst)
    }

    /// Tells when there is something new.
    pub(super) fn news(&self) -> watch::Receiver<u64> {
        let news = self.0.news.lock().unwrap_or_else(PoisonError::into_inner);
        // Of a hub that is closed nothing comes, which the receiver says at once.
        news.as_ref().map_or_else(|| watch::channel(0).1, watch::Sender::subscribe)
    }

    /// The number behind which everything is remembered, as soon as something is read; none when the hub is closed.
    pub(super) async fn begins_after(&self) -> Option<u64> {
        let mut news = self.news();
        loop {
            if let Some(begins) = self.lock().begins_after {
                return Some(begins);
            }
            // Bounded: the reader tells when it begins, and the hub when it closes.
            news.changed().await.ok()?;
        }
    }

    /// Leave to read the store.
    pub(super) async fn reading(&self) -> Option<SemaphorePermit<'_>> {
        self.0.readers.acquire().await.ok()
    }

    /// What comes behind an event, at most so many.
    pub(super) fn recent(&self, after: u64, limit: usize) -> RecentEvents {
        let state = self.lock();
        if state.begins_after.is_none_or(|begins| after < begins) {
            return RecentEvents::Behind;
        }
        let from = state.events.partition_point(|event| event.number <= after);
        let found: Vec<_> = state.events.iter().skip(from).take(limit).map(Arc::clone).collect();
        if found.is_empty() { RecentEvents::None } else { RecentEvents::Some(found) }
    }

    /// Ends every stream.
    pub(crate) fn close(&self) {
        self.0.news.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.0.readers.close();
    }

    /// Reads events for as long as anything listens, and waits while nothing does.
    pub(crate) async fn read(self, store: Arc<dyn Store>) {
        loop {
            if self.listening() == 0 {
                *self.lock() = HubState::default();
                // Bounded: the one who comes tells, and the end of the interface ends this task.
                self.0.wanted.notified().await;
                continue;
            }
            match self.look(store.as_ref()).await {
                // There is more.
                Ok(PAGE) => continue,
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "cannot read events; streams wait"),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Reads what is new; says how many there were.
    async fn look(&self, store: &dyn Store) -> Result<usize, StoreError> {
        let begins_after = self.lock().begins_after;
        if begins_after.is_none() {
            let number = store.mark().await?.number;
            let mut state = self.lock();
            (state.begins_after, state.read_to) = (Some(number), number);
            drop(state);
            self.tell();
        }
        let read_to = self.lock().read_to;
        let found = store.events(None, read_to, PAGE).await?.items;
        let count = found.len();
        if count > 0 {
            self.take(found.into_iter().map(event_answer));
            self.tell();
        }
        Ok(count)
    }

    fn take(&self, events: impl Iterator<Item = EventAnswer>) {
        let mut state = self.lock();
        for event in events {
            state.read_to = event.number;
            state.events.push_back(Arc::new(event));
        }
        while state.events.len() > REMEMBERED
            && let Some(forgotten) = state.events.pop_front()
        {
            state.begins_after = Some(forgotten.number);
        }
    }

    fn tell(&self) {
        if let Some(news) = self.0.news.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            news.send_modify(|count| *count += 1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;

    use super::*;

    fn event(number: u64) -> EventAnswer {
        let (pipeline, kind) = ("orders".to_owned(), "SLOT_OPENED".to_owned());
        let (message, at) = (String::new(), Timestamp::UNIX_EPOCH);
        let (slot, run_id, details) = (None, None, BTreeMap::new());
        EventAnswer { number, pipeline, kind, at, slot, run_id, message, details }
    }

    fn numbers(found: &RecentEvents) -> Vec<u64> {
        match found {
            RecentEvents::Some(events) => events.iter().map(|event| event.number).collect(),
            RecentEvents::None | RecentEvents::Behind => vec![],
        }
    }

    #[test]
    fn who_is_behind_what_is_remembered_is_told_so_and_the_others_get_each_event_once() {
        let hub = EventHub::default();
        assert!(matches!(hub.recent(0, 10), RecentEvents::Behind), "nothing is read yet");
        hub.lock().begins_after = Some(5);
        hub.take([6, 8, 9].into_iter().map(event));
        assert_eq!(numbers(&hub.recent(5, 2)), [6, 8]);
        assert_eq!(numbers(&hub.recent(8, 2)), [9]);
        assert!(matches!(hub.recent(9, 2), RecentEvents::None));
        assert!(matches!(hub.recent(4, 2), RecentEvents::Behind));
        hub.take((10..10 + REMEMBERED as u64).map(event));
        assert!(matches!(hub.recent(8, 2), RecentEvents::Behind));
        assert_eq!(numbers(&hub.recent(9, 2)), [10, 11]);
        assert_eq!(hub.lock().events.len(), REMEMBERED);
    }

    #[test]
    fn there_are_so_many_seats_and_one_that_is_given_up_is_free() {
        let hub = EventHub::default();
        let mut seats: Vec<_> = (0..STREAMS_MAX).filter_map(|_| hub.enter()).collect();
        assert_eq!(seats.len(), STREAMS_MAX);
        assert!(hub.enter().is_none());
        assert_eq!(hub.listening(), STREAMS_MAX, "one that got none has none");
        seats.pop();
        assert!(hub.enter().is_some());
    }
}
