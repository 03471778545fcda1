//! `cargo xtask sim`: the simulator, built for speed.
//!
//! `cargo xtask test` runs a swarm of it, `cargo xtask nightly` a long one.

use crate::{
    progress::{self, Line, Place},
    shell,
};

/// The seeds that `cargo xtask test` runs.
const SEEDS: &str = "500";

/// Builds the simulator for long runs and hands the arguments on.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let mut command =
        shell::cargo(&["run", "--quiet", "--profile", "sim", "-p", "interlock-sim", "--"]);
    shell::run(command.args(arguments))
}

/// A swarm of a minute, whatever it happens to meet, built without what only pays in a longer one.
pub(crate) fn swarm() -> Result<(), String> {
    let words = ["run", "--profile", "swarm", "-p", "interlock-sim", "--", "--some", SEEDS];
    progress::run("simulated worlds", progress::cargo(&words), |line| {
        read_worlds(line).map_or_else(|| progress::read_cargo(line), Line::At)
    })
}

/// Thousands of pipelines to which one thing happens at once, for two seeds.
pub(crate) fn masses() -> Result<(), String> {
    let words = ["run", "--profile", "swarm", "-p", "interlock-sim", "--", "--mass", "2"];
    progress::run("simulated mass events", progress::cargo(&words), |line| {
        read_worlds(line).map_or_else(|| progress::read_cargo(line), Line::At)
    })
}

/// `worlds: 25 of 500`
fn read_worlds(line: &str) -> Option<Place> {
    let (done, total) = line.strip_prefix("worlds: ")?.split_once(" of ")?;
    Some(Place { what: String::new(), done: Some((done.parse().ok()?, total.parse().ok()?)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_swarm_says_how_far_it_is() {
        let place = read_worlds("worlds: 25 of 500").unwrap();
        assert_eq!(place.done, Some((25, 500)));
        assert_eq!(read_worlds("500 seeds from 0"), None);
    }
}
