//! What the watchdog needs from the world, so that a simulated one can stand in.

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc, time::Duration};

use interlock_core::{id::PipelineId, zone::Zone};
use interlock_store::{Group, record::IncidentRecord};
use jiff::Timestamp;

/// An answer to wait for.
pub type Task<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Time. Not the engine's `World`: that would bring the engine along.
pub trait World: Send + Sync + 'static {
    /// The present instant, in whole milliseconds.
    fn now(&self) -> Timestamp;

    /// Since the machine was started, sleep included: what a step of the wall clock is held against (S15). Without
    /// such a clock every step is believed.
    fn boot(&self) -> Option<Duration> {
        None
    }

    /// Ready when the clock has reached an instant. Wake-ups are hints: who waits looks again.
    fn sleep_until(&self, at: Timestamp) -> Task<()>;
}

/// Incidents of pipelines by their dedup keys, each with its revision.
pub type Incidents = BTreeMap<(PipelineId, String), (Arc<IncidentRecord>, u64)>;

/// What follows from events for people: one rule for every writer of events (S12). The engine has it.
pub trait Telling: Send + Sync + 'static {
    /// The dedup keys of the incidents that a group's events are about.
    fn keys(&self, group: &Group) -> Vec<String>;

    /// Adds to a group the incidents and notifications that follow from its events, given the incidents as
    /// they are; those are then as they will be.
    fn add(&self, group: &mut Group, incidents: &mut Incidents);
}

/// Where zones come from, by name: agendas name theirs.
pub type ZoneBook = Arc<dyn Fn(&str) -> Option<Zone> + Send + Sync>;
