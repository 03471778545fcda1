//! Seeds that once violated something. A change of the generator changes what a seed means; each therefore also left a
//! test of its own where the mistake was (`crates/interlock-engine/tests/engine/traps.rs`).

use interlock_sim::{simulate, swarm::shape};

/// Seeds of the swarm, the invariant, and what it was.
const FOUND: [(u64, &str, &str); 8] = [
    (2, "S17", "two runs asked for in one millisecond, applied again and again"),
    (48, "S14", "the checker forgot that who could not ask had sent an alert on its way"),
    (72, "S14", "a store that did not answer ended every silence"),
    (192, "L4", "the checker granted no time to what was told shortly before the end"),
    (214, "S8", "the checker counted the time that a slow store took"),
    (299, "S8", "a slow engine took an answer for new when it came to it"),
    (401, "S8", "answers aged by a clock that was being set back"),
    (1012, "S6", "a rerun took its place before the run that timed out had given it up"),
];

#[test]
fn what_was_found_stays_fixed() {
    for (seed, invariant, what) in FOUND {
        let outcome = simulate(&shape(seed)).unwrap();
        assert!(outcome.violation.is_none(), "{invariant} again ({what}): {:?}", outcome.violation);
    }
}
