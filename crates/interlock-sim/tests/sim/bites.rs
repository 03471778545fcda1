//! Deliberate mistakes are caught, each within a few seeds.

use interlock_sim::{Options, Weather, luck::Fault, simulate, tap::Mutation};

/// So many seeds may pass before a mistake is caught.
const SEEDS: u64 = 4;

/// The promise that the mistake breaks first.
fn caught(mutation: Mutation, weather: Weather) -> &'static str {
    for seed in 1..=SEEDS {
        let options = Options {
            seed,
            days: 1,
            pipelines: 5,
            instances: 2,
            weather,
            mutation: Some(mutation),
            ..Options::default()
        };
        let outcome = simulate(&options).unwrap();
        if let Some(violation) = outcome.violation {
            println!("{mutation:?}, seed {seed}: {violation}");
            assert!(!outcome.story.is_empty(), "a violation has a story");
            return violation.invariant;
        }
    }
    panic!("{mutation:?} was not caught in {SEEDS} seeds")
}

#[test]
fn a_store_that_accepts_stale_terms() {
    assert_eq!(caught(Mutation::StaleTerms, Weather::Only(Fault::Freeze)), "S9");
}

#[test]
fn rows_that_are_lost_while_the_watermark_moves() {
    assert_eq!(caught(Mutation::LostRows, Weather::Even), "S3");
}

#[test]
fn a_watermark_that_moves_too_far() {
    assert_eq!(caught(Mutation::HastyWatermark, Weather::Even), "S3");
}

#[test]
fn starts_that_are_made_twice() {
    assert_eq!(caught(Mutation::DoubleStarts, Weather::Even), "S2");
}

#[test]
fn readiness_that_is_passed_over() {
    assert_eq!(caught(Mutation::BlindTrust, Weather::Only(Fault::Evaluators)), "S8");
}

#[test]
fn alerts_that_are_dropped() {
    assert_eq!(caught(Mutation::DroppedAlerts, Weather::Only(Fault::Channel)), "S13");
}

#[test]
fn incidents_that_nobody_is_told_of() {
    assert_eq!(caught(Mutation::SilentIncidents, Weather::Even), "S12");
}

#[test]
fn misses_that_nobody_could_have_seen() {
    assert_eq!(caught(Mutation::CertainMisses, Weather::Only(Fault::Outage)), "S10");
}

#[test]
fn failures_that_are_called_success() {
    assert_eq!(caught(Mutation::KindLedger, Weather::Even), "S11");
}
