//! `cargo xtask fuzz`: coverage-guided fuzzing on the pinned stable toolchain.
//!
//! The targets are the binaries of `fuzz/`, a crate outside the workspace, so that no ordinary
//! build compiles the fuzzing engine. What a nightly toolchain and `cargo fuzz` would set is set
//! here by hand; `docs/adr/0001-fuzzing-on-stable.md` says why. Each run is bounded in time.

mod engine;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    metadata, progress, shell,
    tools::{self, Need},
};

/// The manifest of the crate of fuzz targets.
pub(crate) const MANIFEST: &str = "fuzz/Cargo.toml";

const SECONDS: u64 = 60;

/// What was asked for on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Request {
    target: Option<String>,
    seconds: u64,
    replay: Option<String>,
}

/// Fuzzes one target or all, or replays one input.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let request = parse(arguments)?;
    let all = targets()?;
    let chosen = choose(&all, request.target.as_deref())?;
    tools::ensure(Need::Fuzz)?;
    let binaries = engine::build()?;
    if let (Some(file), [target]) = (&request.replay, &chosen[..]) {
        return engine::replay(&binaries.join(target), file);
    }
    let mut failed = Vec::new();
    for target in chosen {
        println!("\n── {target}: {} s", request.seconds);
        let before = artifacts(target);
        match engine::fuzz(&binaries.join(target), target, request.seconds) {
            Ok(summary) => println!("{target}: {summary}"),
            Err(reason) => {
                println!("{target}: {reason}");
                artifacts(target).difference(&before).for_each(|file| show(target, file));
                failed.push(target);
            }
        }
    }
    println!("\n── everything found so far, without counters, on the exact time budget");
    let budget = ["test", "--release", "--quiet", "--lib", "everything_found_keeps_the_budget"];
    without_engine(&budget, &[])?;
    if failed.is_empty() { Ok(()) } else { Err(format!("these targets failed: {failed:?}")) }
}

/// Runs every target once over its checked-in seeds, without the engine.
pub(crate) fn replay_seeds() -> Result<(), String> {
    without_engine(&["test", "--quiet", "--lib"], &[])
}

/// Lints the targets, which a look at the workspace leaves out.
pub(crate) fn lint() -> Result<(), String> {
    without_engine(&["clippy", "--lib", "--tests"], &["--", "-D", "warnings"])
}

fn without_engine(before: &[&str], after: &[&str]) -> Result<(), String> {
    let mut command = progress::cargo(before);
    command.args(["--manifest-path", MANIFEST, "--target-dir"]);
    command.arg(metadata::target_directory()?.join("fuzz-seeds")).args(after);
    progress::run("fuzz targets", command, progress::read_cargo)
}

fn parse(arguments: &[String]) -> Result<Request, String> {
    let mut request = Request { target: None, seconds: SECONDS, replay: None };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seconds" => request.seconds = shell::count("--seconds", arguments.next())?,
            "--replay" => {
                let file = arguments.next().ok_or("--replay needs a file after it")?;
                request.replay = Some(file.clone());
            }
            name if !name.starts_with('-') && request.target.is_none() => {
                request.target = Some(name.to_owned());
            }
            _ => shell::no_arguments(std::slice::from_ref(argument))?,
        }
    }
    if request.replay.is_some() && request.target.is_none() {
        return Err("--replay needs the name of a target, too".to_owned());
    }
    Ok(request)
}

fn choose<'a>(all: &'a BTreeSet<String>, target: Option<&str>) -> Result<Vec<&'a str>, String> {
    let Some(name) = target else { return Ok(all.iter().map(String::as_str).collect()) };
    let found =
        all.get(name).ok_or_else(|| format!("no fuzz target {name:?}; there are {all:?}"))?;
    Ok(vec![found.as_str()])
}

/// The names of the targets: the files in `fuzz/src/bin/`.
fn targets() -> Result<BTreeSet<String>, String> {
    let names: BTreeSet<String> = listed(&shell::root().join("fuzz/src/bin"))
        .iter()
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect();
    if names.is_empty() {
        Err("there are no targets in fuzz/src/bin".to_owned())
    } else {
        Ok(names)
    }
}

/// The inputs on which a target failed so far.
fn artifacts(target: &str) -> BTreeSet<PathBuf> {
    listed(&shell::root().join("fuzz/artifacts").join(target))
}

fn listed(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// Prints an input that failed, and how to run it again.
fn show(target: &str, file: &Path) {
    match fs::read(file) {
        Ok(bytes) => println!("input, {} bytes: \"{}\"", bytes.len(), bytes.escape_ascii()),
        Err(error) => println!("input: cannot read {}: {error}", file.display()),
    }
    println!("again: cargo xtask fuzz {target} --replay {}", file.display());
    println!("then keep it in fuzz/seeds/{target}/, so that `cargo xtask test` replays it");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Request, String> {
        parse(&arguments.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_come_in_any_order() {
        let request = Request { target: Some("cron".to_owned()), seconds: 5, replay: None };
        assert_eq!(parsed(&["cron", "--seconds", "5"]), Ok(request.clone()));
        assert_eq!(parsed(&["--seconds", "5", "cron"]), Ok(request));
        assert_eq!(parsed(&[]), Ok(Request { target: None, seconds: 60, replay: None }));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for bad in [&["--minutes"][..], &["a", "b"], &["--seconds"], &["--replay", "x"]] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_target_has_seeds() {
        for target in targets().unwrap() {
            let seeds = listed(&shell::root().join("fuzz/seeds").join(&target));
            assert!(!seeds.is_empty(), "fuzz/seeds/{target}/ is empty");
        }
    }

    #[test]
    fn unknown_target_gets_the_list() {
        let all = BTreeSet::from(["cron".to_owned()]);
        assert!(choose(&all, Some("corn")).unwrap_err().contains("cron"));
    }
}
