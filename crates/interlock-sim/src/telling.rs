//! What follows from events for people, as the engine has it, handed to the watchdog.

use interlock_engine::{add_incidents, incident_keys};
use interlock_store::Group;
use interlock_watchdog::seam::{Incidents, Telling};

/// The engine's rule.
pub(crate) struct Words;

impl Telling for Words {
    fn keys(&self, group: &Group) -> Vec<String> {
        incident_keys(group)
    }

    fn add(&self, group: &mut Group, incidents: &mut Incidents) {
        add_incidents(group, incidents);
    }
}
