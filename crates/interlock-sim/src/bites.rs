//! Proof that it bites: a world with a deliberate mistake, and the promise that is then found broken.

use crate::{
    luck::Fault,
    simulation::{Options, Outcome, Weather, simulate},
    tap::Mutation,
};

/// So many seeds may pass before a mistake is caught.
pub const SEEDS: u64 = 12;

/// The first world in which a mistake is caught.
pub fn caught(mutation: Mutation) -> Result<Outcome, String> {
    for seed in 1..=SEEDS {
        // What grows with their number shows with many of them only.
        let is_mass = mutation == Mutation::CarelessReloads;
        let pipelines = if is_mass { 300 } else { 5 };
        let weather = if is_mass { Weather::Mass } else { weather(mutation) };
        let options = Options {
            seed,
            days: 1,
            pipelines,
            instances: 2,
            weather,
            mutation: Some(mutation),
            ..Options::default()
        };
        let outcome = simulate(&options)?;
        if outcome.violation.is_some() {
            return Ok(outcome);
        }
    }
    Err(format!("{mutation:?} was not caught in {SEEDS} seeds"))
}

/// What must often go wrong for a mistake to show.
const SHOWN_BY: [(Mutation, Fault); 10] = [
    (Mutation::StaleTerms, Fault::Freeze),
    (Mutation::BlindTrust, Fault::Evaluators),
    (Mutation::DroppedAlerts, Fault::Channel),
    (Mutation::CertainMisses, Fault::Outage),
    (Mutation::LongWindows, Fault::Outage),
    (Mutation::GreedyBackfills, Fault::Backfill),
    (Mutation::LoudSilences, Fault::Silence),
    (Mutation::SilencedRecords, Fault::Silence),
    (Mutation::QuietPauses, Fault::Pause),
    (Mutation::ContentSentinels, Fault::Freeze),
];

fn weather(mutation: Mutation) -> Weather {
    let shown_by = SHOWN_BY.iter().find(|(shown, _)| *shown == mutation);
    shown_by.map_or(Weather::Even, |(_, fault)| Weather::Only(*fault))
}
