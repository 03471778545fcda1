//! The road between a process and its store: cut, slow, lossy, or the place where the process dies.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use interlock_store::{Group, StoreError};
use jiff::{SignedDuration, Timestamp};

use crate::{
    clockwork::{Clockwork, ProcessWorld},
    gated::{Gate, Passage},
    luck::{Luck, seconds},
    random::Random,
};

/// What ends a process.
pub type Death = Arc<dyn Fn() + Send + Sync>;

/// The road of one process.
#[derive(Clone)]
pub struct Road(Arc<Shared>);

struct Shared {
    world: ProcessWorld,
    clockwork: Clockwork,
    luck: Arc<Luck>,
    death: Death,
    state: Mutex<State>,
}

struct State {
    random: Random,
    /// The process dies at the so-manieth wait from now on.
    dies_in: Option<u64>,
    /// Not there but in the next commit of several groups, of which some are still written; or after so many others.
    tears_in: Option<u64>,
    /// The process dies behind the present commit.
    is_torn: bool,
    /// It stands still in front of the so-manieth commit, for so many seconds: with a plan in its hands.
    freezes_in: Option<(u64, u64)>,
    /// When it was cut last.
    cut_at: Timestamp,
    cut_until: Timestamp,
    lossy_until: Timestamp,
    slow_until: Timestamp,
    /// How slow, in milliseconds.
    slow_by: u64,
}

/// What cannot be done on a full disk.
const WRITES: [&str; 7] = ["commit", "post", "settle_many", "claim", "acquire", "renew", "release"];

/// How a process reaches its store.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    /// Since when no call gets through.
    pub cut_since: Option<Timestamp>,
    /// Until when calls failed, were slow or lost their answers, or nobody was there to make them.
    pub troubled_until: Timestamp,
}

/// Which way a call goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

/// What happens to a call.
enum Fate {
    Passes,
    Yields,
    Freezes(u64),
    Waits(u64),
    Fails(&'static str),
    IsFull,
    Dies,
}

impl Road {
    /// A good road.
    pub fn new(
        (clockwork, world): (Clockwork, ProcessWorld),
        luck: Arc<Luck>,
        random: Random,
        death: Death,
    ) -> Self {
        let never = Timestamp::MIN;
        let state = Mutex::new(State {
            random,
            dies_in: None,
            tears_in: None,
            is_torn: false,
            freezes_in: None,
            cut_at: never,
            cut_until: never,
            lossy_until: never,
            slow_until: never,
            slow_by: 0,
        });
        Self(Arc::new(Shared { world, clockwork, luck, death, state }))
    }

    /// The process dies at the so-manieth wait from now on.
    pub fn doom(&self, waits: u64) {
        let mut state = self.lock();
        if state.random.chance(400) {
            state.tears_in = Some(waits);
        } else {
            state.dies_in = Some(waits);
        }
    }

    /// The process stands still in front of the so-manieth commit from now on, for so many seconds.
    pub fn freeze(&self, commits: u64, for_seconds: u64) {
        self.lock().freezes_in = Some((commits, for_seconds));
    }

    /// No call gets through for a while.
    pub fn cut(&self, until: Timestamp) {
        let now = self.0.clockwork.time();
        let mut state = self.lock();
        if now >= state.cut_until {
            state.cut_at = now;
        }
        state.cut_until = until;
    }

    /// How the process reaches its store now.
    pub(crate) fn reach(&self) -> Reach {
        let now = self.0.clockwork.time();
        let full_until = self.0.luck.full_until().unwrap_or(Timestamp::MIN);
        let state = self.lock();
        let troubles = [state.cut_until, state.lossy_until, state.slow_until, full_until];
        let went_on_at = self.0.clockwork.went_on_at(self.0.world.pid());
        let last = troubles.into_iter().chain(went_on_at).fold(Timestamp::MIN, Ord::max);
        // What leads a process to its death passes a road that is cut, too.
        let is_cut = now < state.cut_until && state.dies_in.is_none();
        Reach { cut_since: is_cut.then_some(state.cut_at), troubled_until: last.min(now) }
    }

    /// Many answers are lost for a while.
    pub fn lose_answers(&self, until: Timestamp) {
        self.lock().lossy_until = until;
    }

    /// Calls take up to so many milliseconds for a while.
    pub fn slow_down(&self, until: Timestamp, by: u64) {
        let mut state = self.lock();
        (state.slow_until, state.slow_by) = (until, by);
    }

    /// It is a good road again.
    pub fn mend(&self) {
        let mut state = self.lock();
        let never = Timestamp::MIN;
        (state.cut_until, state.lossy_until, state.slow_until) = (never, never, never);
        (state.dies_in, state.freezes_in) = (None, None);
        (state.tears_in, state.is_torn) = (None, false);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fate(&self, verb: &str, way: Way) -> Fate {
        let now = self.0.clockwork.time();
        let mut state = self.lock();
        if verb == "commit" && way == Way::Out && std::mem::take(&mut state.is_torn) {
            return Fate::Dies;
        }
        let is_commit = verb == "commit" && way == Way::In;
        match &mut state.dies_in {
            Some(0) => {
                state.dies_in = None;
                return Fate::Dies;
            }
            Some(left) => {
                *left -= 1;
                return Fate::Yields;
            }
            None => {}
        }
        match &mut state.freezes_in {
            _ if !is_commit => {}
            Some((0, for_seconds)) => {
                let for_seconds = *for_seconds;
                state.freezes_in = None;
                return Fate::Freezes(for_seconds);
            }
            Some((left, _)) => *left -= 1,
            None => {}
        }
        if now < state.cut_until {
            return Fate::Fails("the store cannot be reached");
        }
        if way == Way::In && WRITES.contains(&verb) && self.0.luck.is_disk_full(now) {
            return Fate::IsFull;
        }
        if way == Way::Out && now < state.lossy_until && state.random.chance(120) {
            return Fate::Fails("the answer of the store was lost");
        }
        if now < state.slow_until && state.random.chance(300) {
            let by = state.slow_by;
            return Fate::Waits(state.random.between(1, by));
        }
        Fate::Passes
    }

    fn pass(&self, verb: &'static str, way: Way) -> Option<Passage<'_>> {
        let Shared { world, luck, death, .. } = &*self.0;
        match self.fate(verb, way) {
            Fate::Passes => None,
            Fate::Yields => Some(Box::pin(async {
                world.yield_now().await;
                Ok(())
            })),
            Fate::Freezes(for_seconds) => {
                self.0.clockwork.hold_for(world.pid(), seconds(for_seconds));
                Some(Box::pin(async {
                    world.yield_now().await;
                    Ok(())
                }))
            }
            Fate::Waits(milliseconds) => Some(Box::pin(async move {
                world.sleep(SignedDuration::from_millis(milliseconds as i64)).await;
                Ok(())
            })),
            Fate::Fails(message) => {
                if way == Way::Out && verb == "commit" {
                    luck.saw("commit applied, answer lost");
                }
                Some(Box::pin(async move {
                    world.sleep(SignedDuration::from_secs(1)).await;
                    Err(StoreError::retryable(message))
                }))
            }
            Fate::IsFull => Some(Box::pin(async {
                world.yield_now().await;
                Err(StoreError::permanent("no space is left on the disk"))
            })),
            Fate::Dies => {
                if verb == "commit" {
                    luck.saw(match way {
                        Way::In => "death before a commit",
                        Way::Out => "death after a commit",
                    });
                }
                death();
                Some(Box::pin(std::future::pending()))
            }
        }
    }
}

impl Gate for Road {
    fn enter(&self, verb: &'static str) -> Option<Passage<'_>> {
        self.pass(verb, Way::In)
    }

    fn leave(&self, verb: &'static str) -> Option<Passage<'_>> {
        self.pass(verb, Way::Out)
    }

    /// Groups of a call are independent: who dies in the middle leaves the first of them.
    fn commits(&self, mut groups: Vec<Group>) -> Vec<Group> {
        let mut state = self.lock();
        match state.tears_in {
            Some(_) if groups.len() > 1 => {
                let kept = state.random.between(1, groups.len() as u64 - 1);
                groups.truncate(kept as usize);
                (state.tears_in, state.is_torn) = (None, true);
                self.0.luck.saw("commit torn");
            }
            Some(0) => (state.tears_in, state.is_torn) = (None, true),
            Some(left) => state.tears_in = Some(left - 1),
            None => {}
        }
        groups
    }

    fn repeats(&self) -> bool {
        let now = self.0.clockwork.time();
        let mut state = self.lock();
        let repeats = now < state.lossy_until && state.random.chance(100);
        if repeats {
            self.0.luck.saw("commit delivered twice");
        }
        repeats
    }
}

impl fmt::Debug for Road {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Road").finish_non_exhaustive()
    }
}
