//! Seeds that once violated something. A change of the generator changes what a seed means; each therefore also left a
//! test of its own where the mistake was (`crates/interlock-engine/tests/engine/traps.rs`).

use std::sync::Mutex;

use interlock_sim::swarm::{fly, shape};

/// Seeds of the swarm, the invariant, and what it was.
const FOUND: [(u64, &str, &str); 24] = [
    (2, "S17", "two runs asked for in one millisecond, applied again and again"),
    (9, "S5", "a sensor's slot was given up hours before its deadline"),
    (40, "S11", "a report opened what had been given up in a span"),
    (48, "S14", "the checker forgot that who could not ask had sent an alert on its way"),
    (53, "S16", "a deadline that was put back left slots that nobody had owed"),
    (61, "S1", "the checker took what ended with a pause for a part of it"),
    (72, "S14", "a store that did not answer ended every silence"),
    (80, "S10", "the checker held a report against a slot behind a pause in the inbox"),
    (94, "S10", "a slot was given up between two portions of the inbox"),
    (119, "S1", "a report opened the second of two hours, before it began"),
    (142, "S16", "a deadline that was taken out retired what reports could still open"),
    (147, "S10", "a pause that was over gave up what was reported behind it"),
    (192, "L4", "the checker granted no time to what was told shortly before the end"),
    (214, "S8", "the checker counted the time that a slow store took"),
    (215, "L2", "the checker asked for a slot on a date that the calendar left out"),
    (287, "S10", "the checker held a report against the second of two hours"),
    (299, "S8", "a slow engine took an answer for new when it came to it"),
    (366, "S16", "the checker counted an edit from when a slow store took it"),
    (401, "S8", "answers aged by a clock that was being set back"),
    (402, "L3", "a report that came in a pause kept its window open"),
    (439, "S10", "the checker did not keep the calendar by which a report was applied"),
    (1012, "S6", "a rerun took its place before the run that timed out had given it up"),
    (2180, "S5", "the checker wanted one pause around a span that lies in two"),
    (4470, "S10", "breaks of a listener were forgotten, and slots in them called missed"),
];

#[test]
fn what_was_found_stays_fixed() {
    // Unoptimised, one after the other, they take minutes.
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let seeds = Mutex::new(FOUND.iter());
    let next = || seeds.lock().unwrap().next().map(|(seed, ..)| shape(*seed));
    let flown = fly(threads, &next).unwrap();
    if let Some(failed) = flown.failed {
        let known = FOUND.iter().find(|(seed, ..)| *seed == failed.options.seed);
        panic!("it was {known:?}: {:?}", failed.violation);
    }
    assert_eq!(flown.swarm.seeds, FOUND.len() as u64);
}
