//! `cargo xtask test`: everything that must hold before a change lands.
//!
//! Every step runs, whatever became of those before it, so that one run shows all problems. The
//! tests come last: their closing line is then near the end of the log, where people and CI look.
//! What makes the run long is said in CONTRIBUTING.md; what is too long for it is `cargo xtask nightly`.

mod groups;
mod without;

use std::process::Command;

use self::{groups::Groups, without::Without};
use crate::{
    fuzz, progress, sim,
    step::{Outcome, Steps},
    tidy,
    tools::{self, Need},
};

/// Runs all steps; fails when one failed.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let without = Without::parse(arguments)?;
    tools::ensure_but(Need::Test, without.tools())?;
    let mut steps = Steps::default();
    let mut groups = Groups::default();
    steps.run("formatting", || without.step("rustfmt", formatting));
    steps.run("tidy", || tidy::run(&[]).into());
    steps.run("lints", || without.step("clippy", lints));
    steps.run("documentation", documentation);
    steps.run("build", || without.step("cargo-nextest", || build(&without)));
    steps.run("documentation tests", documentation_tests);
    steps.run("fuzz targets over their seeds", || fuzz::replay_seeds().into());
    steps.run("simulated worlds", || sim::swarm().into());
    steps.run("simulated mass events", || sim::masses().into());
    steps.run("tests of the simulator", || {
        without.step("cargo-nextest", || tests(SIMULATOR, &without, &mut groups))
    });
    steps.run("tests", || without.step("cargo-nextest", || tests(OTHERS, &without, &mut groups)));
    groups.print();
    steps.finish()
}

fn formatting() -> Outcome {
    let workspace = cargo("formatting", &["fmt", "--all", "--check"]);
    let fuzz = ["fmt", "--manifest-path", fuzz::MANIFEST, "--check"];
    workspace.and(cargo("formatting of the fuzz targets", &fuzz)).into()
}

fn lints() -> Outcome {
    let workspace = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    // The workspace turns every feature of it on; other programs may want it without.
    let bare = ["clippy", "-p", "interlock-liveness", "--", "-D", "warnings"];
    let crates = cargo("lints", &workspace).and(cargo("lints without features", &bare));
    crates.and(fuzz::lint()).into()
}

/// The crates are documented for those who work on them, so private items count, and a link to one
/// is as good as any.
fn documentation() -> Outcome {
    let arguments = ["doc", "--workspace", "--no-deps", "--document-private-items"];
    let mut command = progress::cargo(&arguments);
    command.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links");
    progress::run("documentation", command, progress::read_cargo).into()
}

fn documentation_tests() -> Outcome {
    cargo("documentation tests", &["test", "--workspace", "--doc", "--quiet"]).into()
}

/// A change is judged by the same cases as the one before it: a property test that draws new cases finds old mistakes too.
/// Run by itself, it draws new ones.
const CASES: (&str, &str) = ("PROPTEST_RNG_SEED", "20260225");

/// The simulator's tests live through years, so they are built as the swarm is: unoptimised they took a tenth of the whole run.
const SIMULATOR: &[&str] = &["--package", "interlock-sim", "--cargo-profile", "swarm"];
/// All other tests, on the same build as the quickstart.
const OTHERS: &[&str] = &["--workspace", "--exclude", "interlock-sim"];

/// What the tests are made of, under a heading of its own: it is the longest part of a first run.
fn build(without: &Without) -> Outcome {
    let mut command = nextest(OTHERS, without);
    command.arg("--no-run");
    progress::run("build", command, progress::read_cargo).into()
}

fn tests(which: &[&str], without: &Without, groups: &mut Groups) -> Outcome {
    let mut command = nextest(which, without);
    // Passed tests are named so that they can be counted; they are not shown.
    command.args(["--status-level", "pass"]);
    if std::env::var_os(CASES.0).is_none() {
        command.env(CASES.0, CASES.1);
    }
    progress::run("tests", command, |line| groups.read(line)).into()
}

fn nextest(which: &[&str], without: &Without) -> Command {
    let mut command = progress::cargo(&["nextest", "run"]);
    command.args(which).args(without.filter());
    command
}

fn cargo(title: &str, arguments: &[&str]) -> Result<(), String> {
    progress::run(title, progress::cargo(arguments), progress::read_cargo)
}
