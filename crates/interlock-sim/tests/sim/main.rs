//! The simulator, judged: it repeats itself, it bites, and what it once found stays fixed.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on should stop, and say what it saw"
)]

mod bites;
mod conformance;
mod regressions;
mod scenarios;

use interlock_sim::{Options, Weather, simulate};

#[test]
fn a_seed_run_twice_gives_the_same_log() {
    let options =
        Options { seed: 7, days: 1, pipelines: 4, weather: Weather::Even, ..Options::default() };
    let (one, other) = (simulate(&options).unwrap(), simulate(&options).unwrap());
    assert!(one.violation.is_none(), "{:?}", one.violation);
    assert!(one.tally.events > 100 && one.faults > 2, "{one:?}");
    assert_eq!(one.tally, other.tally);
    assert_eq!(one.counts, other.counts);
    let another = simulate(&Options { seed: 8, ..options }).unwrap();
    assert_ne!(one.tally.hash, another.tally.hash, "another seed is another world");
}

#[test]
fn leaving_faults_out_changes_nothing_before_them() {
    let options = Options {
        seed: 7,
        days: 1,
        pipelines: 3,
        faults: 0,
        weather: Weather::Even,
        ..Options::default()
    };
    let calm = simulate(&options).unwrap();
    assert!(calm.violation.is_none(), "{:?}", calm.violation);
    assert_eq!(calm.faults, 0);
    assert_eq!(simulate(&Options { faults: 1, ..options }).unwrap().faults, 1);
}
