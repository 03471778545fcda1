//! `cargo xtask sim`: the simulator, built for speed.
//!
//! `cargo xtask test` runs a small swarm of it in the profile that the tests are built in anyway.

use crate::shell;

/// The seeds that `cargo xtask test` runs.
const SEEDS: &str = "10";

/// Builds the simulator and hands the arguments on.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let mut command =
        shell::cargo(&["run", "--quiet", "--profile", "sim", "-p", "interlock-sim", "--"]);
    shell::run(command.args(arguments))
}

/// A small swarm, whatever it happens to meet.
pub(crate) fn few_seeds() -> Result<(), String> {
    let arguments = ["run", "--quiet", "-p", "interlock-sim", "--", "--some", SEEDS];
    shell::run(&mut shell::cargo(&arguments))
}
