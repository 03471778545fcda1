//! Deliberate mistakes are caught, each within a few seeds: at least one for every promise that is judged here.

use interlock_sim::{bites::caught, tap::Mutation};

#[track_caller]
fn check(promises: &[&str]) {
    let theirs = Mutation::ALL.iter().filter(|(_, promise)| promises.contains(promise));
    let mut count = 0;
    for (mutation, promise) in theirs {
        let outcome = caught(*mutation).unwrap();
        let violation = outcome.violation.unwrap();
        println!("{mutation:?}, seed {}: {violation}", outcome.options.seed);
        assert_eq!(violation.invariant, *promise, "{mutation:?}");
        assert!(!outcome.story.is_empty(), "a violation has a story");
        count += 1;
    }
    assert!(count >= promises.len(), "one of {promises:?} has no mistake");
}

#[test]
fn mistakes_about_what_is_owed() {
    check(&["S1", "S3", "S4", "S5"]);
}

#[test]
fn mistakes_about_runs() {
    check(&["S2", "S6", "S7", "S8", "S18"]);
}

#[test]
fn mistakes_about_who_may_write_and_when() {
    check(&["S9", "S15", "S16", "S17", "S19"]);
}

#[test]
fn mistakes_about_what_was_seen() {
    check(&["S10", "S11"]);
}

#[test]
fn mistakes_about_telling() {
    check(&["S12", "S13", "S14", "L4", "L5"]);
}

#[test]
fn mistakes_about_time() {
    check(&["L1", "L2", "L3"]);
}
