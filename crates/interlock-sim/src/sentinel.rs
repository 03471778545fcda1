//! The sentinel of an instance: says outside that all is well, as long as it is (L5).
//!
//! What is well is decided by [`interlock_engine::wellness`], as in `serve`. Here are only the questions to the store
//! and the calls; nobody judges here whether they were right.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use interlock_engine::{
    seam::World as _,
    vitals::{Pulse, Vitals},
    wellness::{Calls, Complaint, LoopWatch, Told, Wellness},
};
use interlock_store::Store;
use jiff::SignedDuration;

use crate::{
    around::Onlooker,
    clockwork::ProcessWorld,
    luck::{Luck, seconds},
    road::Road,
};

/// A little longer than a store may take for a write.
const GIVES_UP_AFTER: u64 = 11;

/// The loops of an instance that are watched.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchedLoops(Arc<Mutex<LoopWatch>>);

impl WatchedLoops {
    /// Watches a new loop, which moves the pulse.
    pub(crate) fn watch(
        &self,
        name: &'static str,
        bound: SignedDuration,
        world: &ProcessWorld,
    ) -> Pulse {
        let pulse = Pulse::default();
        self.register(name, &pulse, bound, world);
        pulse
    }

    /// Watches a loop of a process from now on: it comes round at least once in `bound`.
    pub(crate) fn register(
        &self,
        name: &'static str,
        pulse: &Pulse,
        bound: SignedDuration,
        world: &ProcessWorld,
    ) {
        let bound = Duration::try_from(bound).unwrap_or_default();
        let mut watch = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watch.register(name, pulse.clone(), bound, world.uptime());
    }
}

/// What a sentinel is made of.
pub(crate) struct Post {
    pub(crate) world: ProcessWorld,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) loops: WatchedLoops,
    /// What its notifier did.
    pub(crate) vitals: Arc<Vitals>,
    /// Who is called.
    pub(crate) outside: Arc<dyn Onlooker>,
    /// The way to the store, of which the outside knows nothing; whoever judges does.
    pub(crate) road: Road,
    pub(crate) luck: Arc<Luck>,
    /// How often it looks.
    pub(crate) look: SignedDuration,
    /// Whether it is always content: a mistake, to see it caught.
    pub(crate) is_content: bool,
}

impl Post {
    /// Looks and calls, for as long as its process lives.
    pub(crate) async fn keep(self) {
        let every = Duration::try_from(self.look).unwrap_or_default();
        let (mut wellness, mut calls) = (Wellness::default(), Calls::every(every));
        let excuse = Pulse::default();
        loop {
            self.world.sleep(self.look).await;
            self.ask_the_store(&mut wellness).await;
            let now = self.world.uptime();
            let standing = {
                let mut loops = self.loops.0.lock().unwrap_or_else(PoisonError::into_inner);
                loops.look(&excuse, every, now)
            };
            let complaints = wellness.look(&standing, Told::of(&self.vitals), now);
            if complaints.iter().any(Complaint::is_about_the_store) {
                excuse.beat();
            }
            if complaints.iter().any(|complaint| complaint.what.starts_with("loop ")) {
                self.luck.saw("beacon silent for a loop");
            }
            let is_well = wellness.is_well(&complaints) || self.is_content;
            if is_well && calls.is_time(now) {
                self.outside.is_well(self.world.pid(), self.road.reach());
            }
        }
    }

    /// An empty claim goes the way of every write, and leaves nothing behind.
    async fn ask_the_store(&self, wellness: &mut Wellness) {
        wellness.store.asked(self.world.uptime());
        tokio::select! {
            biased;
            taken = self.store.claim(0, seconds(1)) => {
                wellness.store.answered(taken.map(drop).map_err(|error| error.message));
            }
            () = self.world.sleep(seconds(GIVES_UP_AFTER)) => {}
        }
    }
}
