//! `cargo xtask nightly`: what is too long for every change.
//!
//! Each step has a short sample in `cargo xtask test`; here it runs for as long as it takes to find what is rare. The whole takes
//! about two hours on two cores.

use crate::{
    fuzz, mutants, shell, sim, soak,
    step::Steps,
    tools::{self, Need},
};

/// Runs all steps; fails when one failed.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    shell::no_arguments(arguments)?;
    tools::ensure(Need::Test)?;
    tools::ensure(Need::Fuzz)?;
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut steps = Steps::default();
    steps.run("a million schedules against the walker", || soak::run(&[]).into());
    steps.run("simulated worlds, half an hour", || sim::run(&words("--swarm --minutes 30")).into());
    steps.run("simulated years", || sim::run(&words("--years 2")).into());
    steps.run("deliberate mistakes in the simulator", || sim::run(&words("--bites")).into());
    steps.run("deliberate mistakes in the watchdog", || mutants::run(&[]).into());
    steps.run("three instances in trouble", || soak::run(&words("--instances 10")).into());
    steps.run("watches on a full machine", || soak::run(&words("--liveness 10")).into());
    steps.run("a thousand readers of the stream", || soak::run(&words("--stream 10")).into());
    for store in ["embedded", "redis", "postgres"] {
        let step = format!("the API against its document on {store}, eight minutes");
        steps.run(&step, || contract(store).into());
    }
    steps.run("fuzzing", || fuzz::run(&words("--seconds 300")).into());
    steps.finish()
}

/// Everything that the API's document allows, asked for longer than a test of every change may take; a test is stopped after ten minutes.
fn contract(store: &str) -> Result<(), String> {
    let mut command =
        shell::cargo(&["nextest", "run", "-p", "interlock", "--test", "serve", "api::contract"]);
    command.env("INTERLOCK_CONTRACT_STORE", store);
    shell::run(command.env("INTERLOCK_CONTRACT_SECONDS", "480"))
}
