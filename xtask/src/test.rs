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
    steps.run("tests", || without.step("cargo-nextest", || tests(&without, &mut groups)));
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

/// What the tests and the simulator are made of, under a heading of its own: it is the longest part of a first run.
fn build(without: &Without) -> Outcome {
    progress::run("build", nextest(without, &["--no-run"]), progress::read_cargo).into()
}

fn tests(without: &Without, groups: &mut Groups) -> Outcome {
    // Passed tests are named so that they can be counted; they are not shown.
    let mut command = nextest(without, &["--status-level", "pass"]);
    if std::env::var_os(CASES.0).is_none() {
        command.env(CASES.0, CASES.1);
    }
    progress::run("tests", command, |line| groups.read(line)).into()
}

fn nextest(without: &Without, arguments: &[&str]) -> Command {
    let mut command = progress::cargo(&["nextest", "run", "--workspace"]);
    command.args(arguments).args(without.filter());
    command
}

fn cargo(title: &str, arguments: &[&str]) -> Result<(), String> {
    progress::run(title, progress::cargo(arguments), progress::read_cargo)
}
