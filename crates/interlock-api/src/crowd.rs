//! Who is connected: so many at once, and whoever has done nothing for longest makes room.
//!
//! A place is taken by connecting, which costs a stranger nothing. So a new connection is never made to wait behind
//! old ones that say nothing: when all places are taken, the one that has been still for longest is closed. A thousand
//! clients that send a byte a minute then only push each other out, and a ping, which is answered within milliseconds,
//! is long gone when its turn would come.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// Everybody who is connected, those first that have been still for longest.
#[derive(Debug)]
pub(crate) struct Crowd {
    places: usize,
    order: Mutex<Order>,
}

#[derive(Debug, Default)]
struct Order {
    next: u64,
    by_activity: BTreeMap<u64, Arc<Notify>>,
}

/// One connection's place; given up when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    crowd: Arc<Crowd>,
    number: Mutex<u64>,
    leave: Arc<Notify>,
}

impl Crowd {
    pub(crate) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self { places, order: Mutex::default() })
    }

    /// Gives a place to a new connection.
    pub(crate) fn enter(self: &Arc<Self>) -> Arc<Place> {
        let mut order = self.lock();
        while order.by_activity.len() >= self.places
            && let Some((_, stillest)) = order.by_activity.pop_first()
        {
            stillest.notify_one();
        }
        let leave = Arc::new(Notify::new());
        let number = order.place(&leave);
        drop(order);
        Arc::new(Place { crowd: Arc::clone(self), number: Mutex::new(number), leave })
    }

    fn lock(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Order {
    fn place(&mut self, leave: &Arc<Notify>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.by_activity.insert(number, Arc::clone(leave));
        number
    }
}

impl Place {
    /// The connection did something: it goes to the end of the line. One that was told to leave stays told.
    pub(crate) fn moves(&self) {
        let mut order = self.crowd.lock();
        let mut number = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        if order.by_activity.remove(&number).is_some() {
            *number = order.place(&self.leave);
        }
    }

    /// The connection is kept however still it is: what it carries is counted elsewhere.
    pub(crate) fn is_kept(&self) {
        let number = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        self.crowd.lock().by_activity.remove(&number);
    }

    /// Ready when somebody else needs the place.
    pub(crate) async fn is_needed(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let number = *self.number.lock().unwrap_or_else(PoisonError::into_inner);
        self.crowd.lock().by_activity.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_told_to_leave(place: &Place) -> bool {
        let mut told = std::pin::pin!(place.is_needed());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        told.as_mut().poll(&mut context).is_ready()
    }

    #[test]
    fn one_that_is_kept_makes_no_room_and_takes_no_place() {
        let crowd = Crowd::new(1);
        let kept = crowd.enter();
        kept.is_kept();
        kept.moves();
        let (one, two) = (crowd.enter(), crowd.enter());
        let told = [&kept, &one, &two].map(|place| is_told_to_leave(place));
        assert_eq!(told, [false, true, false]);
    }

    #[test]
    fn whoever_was_still_for_longest_makes_room() {
        let crowd = Crowd::new(2);
        let (one, two) = (crowd.enter(), crowd.enter());
        one.moves();
        let three = crowd.enter();
        let told = [&one, &two, &three].map(|place| is_told_to_leave(place));
        assert_eq!(told, [false, true, false]);
        drop(one);
        let four = crowd.enter();
        assert!(!is_told_to_leave(&three) && !is_told_to_leave(&four));
        two.moves();
        assert_eq!(crowd.lock().by_activity.len(), 2, "who was told to leave has no place");
    }
}
