//! `cargo xtask test`: everything that must hold before a change lands.
//!
//! Every step runs, whatever became of those before it, so that one run shows all problems. The
//! tests come last: their closing line is then near the end of the log, where people and CI look.

use crate::{
    fuzz, shell, sim,
    step::{Outcome, Steps},
    tidy,
    tools::{self, Need},
};

/// Runs all steps; fails when one failed.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    shell::no_arguments(arguments)?;
    tools::ensure(Need::Test)?;
    let mut steps = Steps::default();
    steps.run("formatting", formatting);
    steps.run("lints", lints);
    steps.run("tidy", || tidy::run(&[]).into());
    steps.run("documentation", documentation);
    steps.run("documentation tests", || cargo(&["test", "--workspace", "--doc", "--quiet"]));
    steps.run("fuzz targets over their seeds", || fuzz::replay_seeds().into());
    steps.run("simulated worlds", || sim::swarm().into());
    steps.run("tests", tests);
    steps.finish()
}

fn formatting() -> Outcome {
    if !has(&["fmt", "--version"]) {
        return missing_component("rustfmt");
    }
    let workspace = shell::run(&mut shell::cargo(&["fmt", "--all", "--check"]));
    let fuzz = ["fmt", "--manifest-path", fuzz::MANIFEST, "--check"];
    workspace.and(shell::run(&mut shell::cargo(&fuzz))).into()
}

fn lints() -> Outcome {
    if !has(&["clippy", "--version"]) {
        return missing_component("clippy");
    }
    let workspace = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    // The workspace turns every feature of it on; other programs may want it without.
    let bare = ["clippy", "-p", "interlock-liveness", "--", "-D", "warnings"];
    let crates =
        shell::run(&mut shell::cargo(&workspace)).and(shell::run(&mut shell::cargo(&bare)));
    crates.and(fuzz::lint()).into()
}

/// The crates are documented for those who work on them, so private items count, and a link to one
/// is as good as any.
fn documentation() -> Outcome {
    let flags = "-D warnings -A rustdoc::private-intra-doc-links";
    let arguments = ["doc", "--workspace", "--no-deps", "--document-private-items"];
    shell::run(shell::cargo(&arguments).env("RUSTDOCFLAGS", flags)).into()
}

/// A change is judged by the same cases as the one before it: what a property test draws anew finds old mistakes, and belongs
/// to whoever runs that test by itself.
const CASES: (&str, &str) = ("PROPTEST_RNG_SEED", "20260225");

fn tests() -> Outcome {
    let arguments: &[&str] = if has(&["nextest", "--version"]) {
        &["nextest", "run", "--workspace"]
    } else {
        println!("cargo-nextest is not installed; using cargo test");
        &["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"]
    };
    let mut command = shell::cargo(arguments);
    if std::env::var_os(CASES.0).is_none() {
        command.env(CASES.0, CASES.1);
    }
    shell::run(&mut command).into()
}

fn cargo(arguments: &[&str]) -> Outcome {
    shell::run(&mut shell::cargo(arguments)).into()
}

fn has(arguments: &[&str]) -> bool {
    shell::works(&mut shell::cargo(arguments))
}

fn missing_component(name: &str) -> Outcome {
    Outcome::Skipped(format!("{name} is not installed: `rustup component add {name}` adds it"))
}
