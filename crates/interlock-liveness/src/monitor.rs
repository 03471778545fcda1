//! The monitor: one thread of the operating system that looks at every watch, again and again.
//!
//! It runs on no pool and no runtime, above normal priority where that is allowed. Between start and end it allocates
//! nothing, takes no lock that a watched thread could hold, and calls nothing that could wait: what may wait (hooks,
//! listeners, heartbeats, the helper) is told through queues that were made beforehand. Behind it stands the kernel's timer.

mod rounds;

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use self::rounds::Rounds;
use crate::{
    beat::{Beater, Carrier},
    clock::monotonic,
    deadman::{Deadman, Way},
    event::{Event, Listener, Teller},
    forensics::Dumper,
    ladder::Ladder,
    roster::{Roster, Row},
    slot::{Mandate, Places, Slot, Slots},
    stall::Witness,
    status::{Listed, Numbers, Probe},
    watch::Registration,
};

/// How many watches there can be, unless something else is said.
const CAPACITY: usize = 1_024;
/// How often heartbeats leave the process, unless something else is said.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// How long writing one heartbeat may take before that is an expiry of its own.
const BEAT_TAKES: Duration = Duration::from_secs(10);

/// Why there is no monitor.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A thread could not be started.
    #[error("a thread of the monitor could not be started")]
    Thread(#[source] io::Error),
    /// There is no memory for so many watches.
    #[error("there is no memory for {0} watches")]
    Memory(usize, #[source] io::Error),
    /// The kernel's timer is not to be had.
    #[error("the kernel's timer could not be made")]
    Deadman(#[source] io::Error),
    /// The watch of the heartbeats themselves could not be registered.
    #[error("the heartbeats cannot be watched")]
    Beats(#[source] RegisterError),
}

/// Why a watch was not taken in.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// There is no room.
    #[error("there are {0} watches already: give the monitor a greater capacity")]
    Full(usize),
    /// The thread of its hooks, or of a canary, could not be started.
    #[error("a thread of the watch could not be started")]
    HookThread(#[source] io::Error),
}

/// A monitor that is being described.
#[must_use = "a monitor watches once it is started"]
pub struct Builder {
    tick: Option<Duration>,
    capacity: usize,
    deadman: Deadman,
    beat_every: Duration,
    listener: Option<Listener>,
    carriers: Vec<Box<dyn Carrier>>,
    dumper: Option<Box<dyn Dumper>>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { tick, capacity, deadman, .. } = self;
        let mut shown = f.debug_struct("Builder");
        shown.field("tick", tick).field("capacity", capacity).field("deadman", deadman);
        shown.finish_non_exhaustive()
    }
}

impl Builder {
    /// How often to look at all. Otherwise as often as the shortest limit asks for: each watch is looked at every eighth of
    /// its own limit, between 5 and 250 ms.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = Some(tick.max(Duration::from_millis(1)));
        self
    }

    /// How many watches there may be: room for them is made at the start.
    pub fn capacity(mut self, watches: usize) -> Self {
        self.capacity = watches;
        self
    }

    /// Who ends the process when the monitor itself hangs, or its hard end does not come.
    pub fn deadman(mut self, deadman: Deadman) -> Self {
        self.deadman = deadman;
        self
    }

    /// Who hears of events. It has a thread of its own, and may wait.
    pub fn on_event(mut self, listener: impl FnMut(Event) + Send + 'static) -> Self {
        self.listener = Some(Box::new(listener));
        self
    }

    /// Where heartbeats go, while every critical watch is within its bound.
    pub fn beat(mut self, carrier: impl Carrier + 'static) -> Self {
        self.carriers.push(Box::new(carrier));
        self
    }

    /// How often.
    pub fn beat_every(mut self, every: Duration) -> Self {
        self.beat_every = every;
        self
    }

    /// Who takes the stacks of all threads when something expires.
    pub fn forensics(mut self, forensics: crate::forensics::Forensics) -> Self {
        self.dumper = Some(Box::new(forensics));
        self
    }

    /// Starts looking.
    pub fn start(self) -> Result<Monitor, StartError> {
        let no_memory = |error| StartError::Memory(self.capacity, error);
        let slots = Slots::new(self.capacity).map_err(no_memory)?;
        let shared = Arc::new(Shared::with_capacity(self.capacity, &slots));
        // It is as if it had just looked: nobody could be hung yet.
        shared.numbers.scanned_at.store(monotonic(), Relaxed);
        let timer = self.deadman.arm().map_err(StartError::Deadman)?;
        let way = timer.as_ref().map(|timer| timer.way);
        let teller = Teller::start(self.listener).map_err(StartError::Thread)?;
        let has_beats = !self.carriers.is_empty();
        let (beater, beats) = Beater::new(self.carriers, self.beat_every);
        let rounds = Rounds {
            roster: Roster::of(&slots),
            acts: Vec::with_capacity(self.capacity * 3 + 8),
            shared: Arc::clone(&shared),
            fixed_tick: self.tick,
            timer,
            teller,
            beater,
            dumper: self.dumper,
            witness: Witness::default(),
        };
        let thread = thread::Builder::new().name("lv-monitor".to_owned());
        let thread = thread.spawn(move || rounds.run()).map_err(StartError::Thread)?;
        let monitor = Monitor { shared, thread: Some(thread), way };
        if has_beats {
            let watch = monitor.watch("heartbeat", Ladder::soft(BEAT_TAKES)).aside().section();
            beats.start(watch.map_err(StartError::Beats)?).map_err(StartError::Thread)?;
        }
        Ok(monitor)
    }
}

/// What the monitor's thread and all others share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) yard: Mutex<Yard>,
    /// Who is known by name; the monitor's thread never looks here.
    pub(crate) directory: Mutex<Vec<Listed>>,
    pub(crate) numbers: Numbers,
    pub(crate) stops: AtomicBool,
    capacity: usize,
}

/// Where watches wait to be taken in, and to be freed.
#[derive(Debug)]
pub(crate) struct Yard {
    pub(crate) newcomers: Vec<Row>,
    pub(crate) gone: Vec<Row>,
    places: Places,
    count: usize,
}

impl Yard {
    /// Frees who is gone, and what they had.
    fn forget(&mut self) {
        self.count -= self.gone.len();
        for row in self.gone.drain(..) {
            self.places.free(row.place());
        }
    }
}

impl Shared {
    fn with_capacity(capacity: usize, slots: &Arc<Slots>) -> Self {
        let yard = Yard {
            newcomers: Vec::with_capacity(capacity),
            gone: Vec::with_capacity(capacity),
            places: Places::of(slots),
            count: 0,
        };
        Self {
            yard: Mutex::new(yard),
            directory: Mutex::default(),
            numbers: Numbers::default(),
            stops: AtomicBool::new(false),
            capacity,
        }
    }
}

/// Looks at every watch, until it is dropped.
#[derive(Debug)]
pub struct Monitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    way: Option<Way>,
}

impl Monitor {
    /// Describes a monitor.
    pub fn builder() -> Builder {
        Builder {
            tick: None,
            capacity: CAPACITY,
            deadman: Deadman::Off,
            beat_every: BEAT_EVERY,
            listener: None,
            carriers: vec![],
            dumper: None,
        }
    }

    /// Describes a watch. Different loops have different cadences: give each its own.
    pub fn watch(&self, name: &str, ladder: Ladder) -> Registration<'_> {
        Registration::new(self, name, ladder)
    }

    /// Reads how things stand, from any thread.
    pub fn probe(&self) -> Probe {
        Probe(Arc::clone(&self.shared))
    }

    /// How the kernel would end this process, if it was asked to.
    pub fn deadman(&self) -> Option<Way> {
        self.way
    }

    /// A place for a watch, if there is room for one more.
    pub(crate) fn allot(&self) -> Result<Slot, RegisterError> {
        let mut yard = self.shared.yard.lock().unwrap_or_else(PoisonError::into_inner);
        if !yard.gone.is_empty() {
            // Forgotten before their places are given to others: a name must never stand for somebody else.
            let mut listed = self.shared.directory.lock().unwrap_or_else(PoisonError::into_inner);
            listed.retain(|known| known.slot.own().mandate().mandate() != Mandate::Retired);
            yard.forget();
        }
        if yard.count >= self.shared.capacity {
            return Err(RegisterError::Full(yard.count));
        }
        let slot = yard.places.allot().ok_or(RegisterError::Full(yard.count))?;
        yard.count += 1;
        Ok(slot)
    }

    /// Nobody came for this place.
    pub(crate) fn give_back(&self, slot: &Slot) {
        let mut yard = self.shared.yard.lock().unwrap_or_else(PoisonError::into_inner);
        yard.count -= 1;
        yard.places.free(slot.place());
    }

    pub(crate) fn take_in(&self, row: Row, slot: &Slot) {
        let (name, ladder) = (Arc::clone(&row.cold.name), row.cold.ladder);
        let mut listed = self.shared.directory.lock().unwrap_or_else(PoisonError::into_inner);
        listed.push(Listed { name, ladder, slot: slot.clone() });
        drop(listed);
        self.shared.yard.lock().unwrap_or_else(PoisonError::into_inner).newcomers.push(row);
        self.wake();
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.stops.store(true, Relaxed);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // It ends the process rather than panic.
            let _ended = thread.join();
        }
    }
}
