//! How a pipeline stands, in a word and a colour.

use interlock_core::id::PipelineId;
use jiff::Timestamp;

use super::table::FleetTally;
use crate::model::{badge::BadgeAnswer, fleet::FleetState};

impl FleetTally {
    /// How a pipeline stands; none of one that is not counted.
    pub fn badge(&self, name: &str, now: Timestamp) -> Option<BadgeAnswer> {
        let name = PipelineId::parse(name).ok()?;
        let state = self.read().pipeline(&name)?.state(now);
        let (message, color) = in_a_word(state);
        Some(BadgeAnswer {
            schema_version: 1,
            label: name.to_string(),
            message: message.to_owned(),
            color: color.to_owned(),
            is_error: state.needs_attention(),
        })
    }
}

/// The words of the pages, and colours that shields.io knows by name.
fn in_a_word(state: FleetState) -> (&'static str, &'static str) {
    match state {
        FleetState::Failed => ("failed", "red"),
        FleetState::Missed => ("missed", "red"),
        FleetState::Unknown => ("unknown", "lightgrey"),
        FleetState::NotReady => ("not ready", "orange"),
        FleetState::AtRisk => ("at risk", "orange"),
        FleetState::Late => ("late", "orange"),
        FleetState::CatchingUp => ("catching up", "blueviolet"),
        FleetState::PausedLong | FleetState::Paused => ("paused", "lightgrey"),
        FleetState::Running => ("running", "blue"),
        FleetState::Waiting => ("waiting", "blue"),
        FleetState::OnTime => ("on time", "brightgreen"),
        FleetState::NotDue => ("not due", "lightgrey"),
    }
}
