//! The way of one instance to the store: open, cut, about to lose an answer, or where the instance dies.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use interlock_store::StoreError;
use jiff::SignedDuration;

use super::line::{Death, Way};
use crate::{
    clockwork::{Clockwork, Pid, ProcessWorld},
    gated::{Gate, Passage},
};

/// The way of an instance.
#[derive(Clone)]
pub(super) struct Road(Arc<Shared>);

struct Shared {
    clockwork: Clockwork,
    world: ProcessWorld,
    state: Mutex<State>,
}

struct State {
    way: Way,
    death: Death,
    /// At the so-manieth commit from now on.
    dies_in: u32,
}

impl Road {
    pub(super) fn new(clockwork: &Clockwork, pid: Pid) -> Self {
        let (world, state) =
            (clockwork.process(pid), State { way: Way::Mended, death: Death::Here, dies_in: 0 });
        Self(Arc::new(Shared { clockwork: clockwork.clone(), world, state: Mutex::new(state) }))
    }

    pub(super) fn set(&self, way: Way) {
        self.lock().way = way;
    }

    /// The instance dies at its so-manieth commit from now on.
    pub(super) fn doom(&self, death: Death, count: u32) {
        let mut state = self.lock();
        (state.death, state.dies_in) = (death, count);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call fails, after a while.
    fn fails(&self, message: &'static str) -> Passage<'_> {
        Box::pin(async move {
            self.0.world.sleep(SignedDuration::from_secs(1)).await;
            Err(StoreError::retryable(message))
        })
    }

    /// The instance dies here if it is to.
    fn meets(&self, death: Death, verb: &str) -> bool {
        let mut state = self.lock();
        if verb != "commit" || state.death != death {
            return false;
        }
        state.dies_in = state.dies_in.saturating_sub(1);
        let is_here = state.dies_in == 0;
        if is_here {
            state.death = Death::Here;
            drop(state);
            self.0.clockwork.kill(self.0.world.pid());
        }
        is_here
    }
}

impl Gate for Road {
    fn enter(&self, verb: &'static str) -> Option<Passage<'_>> {
        if self.meets(Death::BeforeCommit, verb) {
            return Some(Box::pin(std::future::pending()));
        }
        (self.lock().way == Way::Cut).then(|| self.fails("the store cannot be reached"))
    }

    fn leave(&self, verb: &'static str) -> Option<Passage<'_>> {
        if self.meets(Death::AfterCommit, verb) {
            return Some(Box::pin(std::future::pending()));
        }
        let mut state = self.lock();
        if verb != "commit" || state.way != Way::LosesAnAnswer {
            return None;
        }
        state.way = Way::Mended;
        drop(state);
        Some(self.fails("the answer of the store was lost"))
    }
}

impl fmt::Debug for Road {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Road").finish_non_exhaustive()
    }
}
