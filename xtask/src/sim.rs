//! `cargo xtask sim`: the simulator, built for speed.
//!
//! `cargo xtask test` runs a swarm of it.

use crate::shell;

/// The seeds that `cargo xtask test` runs.
const SEEDS: &str = "500";

/// Builds the simulator and hands the arguments on.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let mut command =
        shell::cargo(&["run", "--quiet", "--profile", "sim", "-p", "interlock-sim", "--"]);
    shell::run(command.args(arguments))
}

/// A swarm, whatever it happens to meet.
pub(crate) fn swarm() -> Result<(), String> {
    run(&["--some", SEEDS].map(str::to_owned))
}
