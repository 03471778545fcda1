//! The rule of telling that engine and watchdog share: what follows from events for people.

use interlock_store::Group;
use interlock_watchdog::seam::{Incidents, Telling};

/// The engine's rule, for the watchdog.
#[derive(Debug)]
pub(crate) struct EngineTelling;

impl Telling for EngineTelling {
    fn keys(&self, group: &Group) -> Vec<String> {
        interlock_engine::incident_keys(group)
    }

    fn add(&self, group: &mut Group, incidents: &mut Incidents) {
        interlock_engine::add_incidents(group, incidents);
    }
}
